"""Clinics share how pictures are read; what each makes of them stays at home.

Every clinic has its own names for the digits, so one common model cannot please all. With
``PersonalTrainer`` the last layer is each clinic's own: it is trained there, kept there, and never
sent. ``python examples/personal_heads.py`` needs torch and scikit-learn.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

import eris
from eris.data import ImageData, iid, load_digits
from eris.training.personal import PersonalTrainer
from eris.training.torch import TorchTrainer

SEED, CLIENTS, ROUNDS, RATE = 0, 5, 30, 0.1


def network() -> nn.Module:
    """A body that is shared, and a head."""
    torch.manual_seed(SEED)
    body = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Tanh())
    return nn.Sequential(body, nn.Linear(32, 10))


def trainers(data: ImageData) -> list[TorchTrainer]:
    """One for each clinic, whose labels are shuffled in its own way; tested on others like it."""
    found = []
    for client, part in enumerate(iid(data.train_labels, CLIENTS, None, SEED)):
        names = np.random.default_rng(client).permutation(10)
        images = (data.train_images[part] / 16).astype(np.float32)
        test = (data.test_images / 16).astype(np.float32), names[data.test_labels]
        labels = names[data.train_labels[part]]
        trainer = TorchTrainer(
            network(), images, labels, test=test,
            client=client, learning_rate=RATE, epochs=1, batch_size=16, seed=SEED,
        )  # fmt: skip
        found.append(trainer)
    return found


def main() -> None:
    """The same clinics with one model, and with heads of their own."""
    data = load_digits()
    print(f"{data.name}: {CLIENTS} clinics, {ROUNDS} rounds, seed {SEED}, {len(data.test_labels)} "
          "test images")  # fmt: skip
    for name, clients in (
        ("one model for all", trainers(data)),
        ("heads of their own", [PersonalTrainer(one, "1.*") for one in trainers(data)]),
    ):
        fit = eris.Federation(clients).fit(
            ROUNDS, evaluate="clients", evaluate_every=ROUNDS, progress=False
        )
        print(f"{name}: {len(fit.model):,} values travel, accuracy {fit.metrics['accuracy']:.3f}")


if __name__ == "__main__":
    main()
