"""Which picture is behind a gradient? The inversions on a model, a loss and an update of your own.

A hospital sends the gradient of one scan. You are an aggregator that was given half of it. Needs
torch, scikit-learn and scikit-image; run it with ``python examples/reconstruct_your_own.py``.
"""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

from eris.audit import similarity
from eris.audit.inversion import SearchBudget, invert


def main() -> None:
    """One gradient, of which half of the coordinates is seen."""
    torch.manual_seed(0)
    draw = np.random.default_rng(0)
    images, labels = load_digits(return_X_y=True)
    image = torch.from_numpy((images[:1] / 16).astype(np.float32)).reshape(1, 1, 8, 8)
    label = torch.from_numpy(labels[:1])

    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.Sigmoid(), nn.Flatten(), nn.Linear(512, 10)
    )
    loss = functional.cross_entropy(model(image), label)
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    update = torch.cat([piece.flatten() for piece in gradients])
    seen = draw.random(len(update)) < 0.5

    found = invert(
        model, functional.cross_entropy, update, mask=seen, shape=(1, 8, 8), attack="idlg",
        budget=SearchBudget(500, restarts=4),
    )  # fmt: skip
    original = image.numpy()
    print(f"seen: {seen.sum():,} of {len(update):,} coordinates")
    print(f"label: {found.labels.item()}, in truth {label.item()}")
    for name, inputs in (("reconstruction", found.inputs), ("control", found.control)):
        mse = similarity.mse(original, inputs[0].clamp(0, 1).numpy()).item()
        print(f"{name}: mean squared error {'below' if mse < 1e-4 else 'above'} 1e-4")


if __name__ == "__main__":
    main()
