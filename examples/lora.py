"""A model that was trained before is fitted to new data by small adapters; only those travel.

``peft`` freezes the base and puts an adapter of rank 4 beside each of its layers (LoRA, Hu et al.,
2022): y = Wx + BAx. What does not require a gradient is no part of the federation's model, so
clients send A and B alone. ``python examples/lora.py`` needs torch, scikit-learn and peft.
"""

from __future__ import annotations

import copy

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from torch.nn import functional

import eris
from eris.data import iid, load_digits
from eris.training.torch import evaluate, flatten, parameter_count, torch_clients

SEED, CLIENTS, ROUNDS, RATE, RANK = 0, 5, 20, 0.1, 4


def pretrained(images: Tensor, labels: Tensor) -> nn.Sequential:
    """A network that knows the digits as they are."""
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    step = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(100):
        step.zero_grad()
        functional.cross_entropy(model(images), labels).backward()  # type: ignore[no-untyped-call]
        step.step()
    return model


def main() -> None:
    """Fit a network to digits that lie on their side."""
    torch.manual_seed(SEED)
    data = load_digits()
    upright, lying = (
        torch.from_numpy(
            (np.rot90(data.train_images, turns, (1, 2)) / 16).astype(np.float32).copy()
        )
        for turns in (0, 1)
    )
    labels = torch.from_numpy(data.train_labels.astype(np.int64))
    test = (np.rot90(data.test_images, 1, (1, 2)) / 16).astype(np.float32).reshape(-1, 64)
    wanted = torch.from_numpy(data.test_labels.astype(np.int64))
    base = pretrained(upright.reshape(-1, 64), labels)
    before = evaluate(base, flatten(base), torch.from_numpy(test), wanted)["accuracy"]

    adapters = LoraConfig(r=RANK, lora_alpha=RANK, target_modules=["0", "2"])
    model = get_peft_model(copy.deepcopy(base), adapters)
    parts = iid(data.train_labels, CLIENTS, None, SEED)
    clients = torch_clients(
        model, lying.reshape(-1, 64), labels, parts,
        learning_rate=RATE, epochs=1, batch_size=16, seed=SEED,
    )  # fmt: skip
    fit = eris.Federation(clients).fit(ROUNDS, progress=False)
    after = evaluate(model, fit.model, torch.from_numpy(test), wanted)["accuracy"]
    print(
        f"{data.name}: {CLIENTS} clients, {ROUNDS} rounds, seed {SEED}, {len(wanted)} test images"
    )
    print(f"{len(fit.model):,} values travel, of a model with {parameter_count(base):,}")
    print(f"accuracy on digits that lie on their side: {before:.3f} before, {after:.3f} after")
    adapted, frozen = fit.state_dict(model), base.state_dict()
    same = all(
        torch.equal(adapted[f"base_model.model.{k}.base_layer.weight"], frozen[f"{k}.weight"])
        for k in (0, 2)
    )
    print(f"the base is as it was: {same}")
    model.load_state_dict(adapted)
    plain = model.merge_and_unload().requires_grad_(True)  # of the layers that the base had
    merged = evaluate(plain, flatten(plain), torch.from_numpy(test), wanted)["accuracy"]
    print(f"adapters put into the base: {sorted(plain.state_dict())}, accuracy {merged:.3f}")


if __name__ == "__main__":
    main()
