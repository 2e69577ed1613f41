"""A model with batch norm goes in and comes out as a ``state_dict``, trained by five clients.

``python examples/state_dict.py`` needs scikit-learn for its pictures of digits. What becomes of
batch norm's running means and variances is said once: here they travel with the parameters, and
the server's step sets them to the clients' mean.
"""

from __future__ import annotations

import torch
from safetensors.torch import load_file, save_file
from torch import nn

import eris
from eris.data import iid, load_digits
from eris.training.torch import (
    evaluate,
    flatten,
    normalise,
    torch_clients,
    unflatten,
    with_statistics,
)

RATE, LEVELS = 0.1, 16


def network() -> nn.Module:
    """A small convolutional network as one finds them, with batch norm."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(),
        nn.Linear(256, 10),
    )  # fmt: skip


def main() -> None:
    """Write a state_dict, train it in a federation, and write the outcome."""
    torch.manual_seed(0)
    save_file(network().state_dict(), "before.safetensors")

    model = with_statistics(network(), "averaged")
    model.load_state_dict(load_file("before.safetensors"))

    data = load_digits()
    scale = {"mean": 0.3054 * LEVELS / 255, "std": 0.3755 * LEVELS / 255}  # levels 0 to 16
    images, test = (normalise(part, **scale) for part in (data.train_images, data.test_images))
    labels, wanted = (torch.tensor(part).long() for part in (data.train_labels, data.test_labels))
    parts = iid(data.train_labels, 5, None, seed=0)
    clients = torch_clients(
        model, images, labels, parts, learning_rate=RATE, epochs=1, batch_size=32
    )
    rule = eris.server_rule("fedavg", learning_rate=RATE)
    federation = eris.Federation(clients, flatten(model), eris.ERIS(), rule=rule)
    fit = federation.fit(8, progress=False)
    scored = evaluate(model, fit.model, test, wanted)
    print(f"accuracy in the federation: {scored['accuracy']:.3f}")

    unflatten(fit.model, model)
    save_file(model.state_dict(), "after.safetensors")

    plain = network()  # anywhere else, without this package
    plain.load_state_dict(load_file("after.safetensors"))
    plain.eval()
    with torch.no_grad():
        right = (plain(test).argmax(dim=1) == wanted).float().mean()
    print(f"accuracy of the state_dict: {right:.3f}")


if __name__ == "__main__":
    main()
