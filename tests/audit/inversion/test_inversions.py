"""The attacks on real images: what is found, what is not, and what is refused.

The figures in full: ``python -m eris.experiments.audits.inversions``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from eris.audit.inversion import Cosine, Inverted, SearchBudget, invert
from eris.audit.inversion.judging import RECONSTRUCTED
from eris.audit.inversion.simulation import Simulation
from eris.core.errors import InvalidSetting
from eris.data import load_mnist
from eris.experiments.audits.inversions import InversionRow, Victims
from eris.training.flat import FlatParameters

BUDGET = SearchBudget(1000, restarts=4)


def quiet(share: float) -> None:
    """Tell nobody."""


def errors(found: Tensor, images: Tensor) -> list[float]:
    return [float(one) for one in (found[:, 0] - images).square().mean(dim=(1, 2, 3))]


@pytest.mark.parametrize(
    ("row", "images"),
    [(InversionRow("dlg", 1.0), 1), (InversionRow("idlg", 1.0), 2), (InversionRow("idlg", 0.5), 2)],
    ids=str,
)
def test_all_images_are_found(row: InversionRow, images: int) -> None:
    victims = Victims.of(row.attack, images, seed=0)
    found = victims.inverted(row, BUDGET, 0, quiet)
    assert max(errors(found.inputs, victims.images)) < RECONSTRUCTED
    assert found.labels[:, 0].tolist() == victims.labels.tolist()
    # The attack finds nothing where there is nothing.
    assert min(errors(found.control, victims.images)) > 0.05


def test_taking_the_unseen_for_zeros_finds_nothing() -> None:
    victims = Victims.of("idlg", 2, seed=0)
    row = InversionRow("idlg", 0.5, "oblivious")
    found = victims.inverted(row, SearchBudget(150), 0, quiet)
    assert min(errors(found.inputs, victims.images)) > 0.05


def small(count: int) -> tuple[nn.Module, Tensor, Tensor]:
    """Digits of a quarter of the pixels, and a network that is quick to invert."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 8, 3, 1, 1), nn.Sigmoid(), nn.Flatten(), nn.Linear(1568, 10))
    data = load_mnist()
    images = torch.from_numpy(data.train_images[:count, ::2, ::2].astype(np.float32) / 255)
    return model, images[:, None], torch.from_numpy(data.train_labels[:count].astype(np.int64))


def updates(model: nn.Module, images: Tensor, labels: Tensor, steps: int, rate: float) -> Tensor:
    flat = FlatParameters(model)
    simulation = Simulation(flat, functional.cross_entropy, flat.read(), steps, rate)
    return simulation.updates(images, labels).detach()


def inverted(model: nn.Module, update: Any, **options: Any) -> Inverted:
    given = {"shape": (1, 14, 14), "budget": SearchBudget(800, 3), **options}
    return invert(model, functional.cross_entropy, update, **given)


def test_several_local_steps_are_unrolled() -> None:
    model, images, labels = small(2)
    sent = updates(model, images[:, None], labels[:, None], steps=3, rate=0.002)
    by_client = dict(enumerate(sent))
    found = inverted(model, by_client, steps=3, learning_rate=0.002)
    assert max(errors(found.inputs, images)) < RECONSTRUCTED
    one = inverted(
        model, by_client, budget=SearchBudget(200)
    )  # who takes the sum for a gradient does not find them
    assert min(errors(one.inputs, images)) > RECONSTRUCTED


def test_both_samples_of_a_client_are_found() -> None:
    model, images, labels = small(2)
    (sent,) = updates(model, images[None], labels[None], steps=1, rate=1.0)
    found = inverted(model, sent, samples=2)
    assert sorted(found.labels[0].tolist()) == sorted(labels.tolist())
    order = [found.labels[0].tolist().index(label) for label in labels.tolist()]
    assert max(errors(found.inputs[0, order][:, None], images)) < RECONSTRUCTED


def test_one_by_one_finds_what_all_at_once_finds() -> None:
    model, images, labels = small(2)
    sent = dict(enumerate(updates(model, images[:, None], labels[:, None], 1, 1.0)))
    for at_once in (1, 32):
        found = inverted(model, sent, budget=SearchBudget(800, 3, at_once))
        assert max(errors(found.inputs, images)) < RECONSTRUCTED


def test_cosine_comes_closer_than_to_random_numbers() -> None:
    model, images, labels = small(2)
    sent = dict(enumerate(updates(model, images[:, None], labels[:, None], 1, 1.0)))
    told: list[float] = []
    found = inverted(model, sent, attack=Cosine(), budget=SearchBudget(150), tell=told.append)
    assert found.inputs.min() >= 0
    assert found.inputs.max() <= 1
    assert max(errors(found.inputs, images)) < 0.3 * min(errors(found.control, images))
    assert told == sorted(told)
    assert told[-1] == 1


def test_a_box_of_another_scale_changes_nothing() -> None:
    model, images, labels = small(1)
    flat = nn.Sequential(*model.children())
    sent = updates(flat, 4 * images[:, None] - 1, labels[:, None], 1, 1.0)
    found = inverted(flat, sent[0], attack="cosine", box=(-1.0, 3.0), budget=SearchBudget(150))
    assert errors((found.inputs + 1) / 4, images)[0] < 0.05


class Once(torch.autograd.Function):
    """A layer with a gradient, and no second one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        return slope


class OnceOnly(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = Once.apply(self.layer(x.flatten(1)))  # type: ignore[no-untyped-call]
        return found


def refused(expected: str, model: nn.Module | None = None, **options: Any) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2)) if model is None else model
    given = {"update": torch.ones(10), "shape": (1, 2, 2), "budget": SearchBudget(2), **options}
    with pytest.raises(InvalidSetting, match=expected):
        invert(model, functional.cross_entropy, **given)


def test_bad_input_says_what_to_do() -> None:
    refused("update is .*shape \\(9,\\).*shape \\(10,\\), one a parameter", update=torch.ones(9))
    refused("mask is .*shape \\(9,\\).*shape \\(10,\\)", mask=np.ones(9, bool))
    refused("mask is 'all false'", mask=np.zeros(10, bool))
    refused("all zeros.*nothing can be read out of it", update=torch.zeros(10))
    refused("learning_rate is None; expected a number: 3 local steps can be unrolled", steps=3)
    refused("attack is 'idgl'.*did you mean 'idlg'", attack="idgl")
    refused("mode is 'aware'.*mask-aware", mode="aware")
    refused("differentiate twice.*replace the layer", model=OnceOnly(), labels=[1])
    refused("image", attack="cosine", shape=(4,))
    refused(r"takes inputs \(1, 1, 3, 3\)", shape=(1, 3, 3))
    refused("labels is '2 rows'; expected 1 rows", labels=[0, 1])
    with pytest.raises(InvalidSetting, match="restarts is 0; expected at least 1"):
        SearchBudget(5, restarts=0)
