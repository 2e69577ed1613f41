"""Which samples does an update give away? The attacks on a model, a loss and an update of your own.

A hospital sends one gradient. You are an aggregator that was given a quarter of it, and have a list
of samples of which some may have been in it. Needs torch and scikit-learn; run it with
``python examples/attack_your_own.py``.
"""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

from eris.audit.call import attack


def main() -> None:
    """One full-batch gradient, of which a quarter of the coordinates is seen."""
    torch.manual_seed(0)
    draw = np.random.default_rng(0)
    images, labels = load_digits(return_X_y=True)
    inputs = torch.from_numpy((images[:120] / 16).astype(np.float32))
    targets = torch.from_numpy(labels[:120])
    included = draw.random(120) < 0.5  # a fair coin each: then ε can be bounded

    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    mean = functional.cross_entropy(model(inputs[included]), targets[included])
    gradients = torch.autograd.grad(mean, list(model.parameters()))
    update = torch.cat([piece.flatten() for piece in gradients])
    seen = draw.random(len(update)) < 0.25

    found = attack(
        model, functional.cross_entropy, update, inputs, targets,
        mask=seen, learning_rate=0.1, included=included, coins=True,
    )  # fmt: skip
    print(f"seen: {found.visible:,.0f} of {len(update):,} coordinates")
    for name, finding in found.findings.items():
        least = "no bound" if finding.bound is None else f"ε ≥ {finding.bound.epsilon:.2f}"
        print(f"{name:>10}: {finding.pooled.accuracy:.0%} of guesses right, "
              f"AUC {finding.roc.auc:.2f}, {least}")  # fmt: skip
    highest = found.highest("joint")
    print(f"the ten that look most like members: {included[highest].sum()} are")


if __name__ == "__main__":
    main()
