"""One pass for single samples: the plain way's gradients, and no model in which samples meet."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from eris.models.lenet import lenet5, lenet5_colour
from eris.models.softmax import softmax
from eris.training.fast.calls import NotTogether
from eris.training.fast.samples import BLOCK, SampleGradients
from eris.training.flat import FlatParameters
from eris.training.gradients import ClientGradients

pytestmark = pytest.mark.usefixtures("one_thread")

ROWS = 2 * BLOCK + 3


def samples(*shape: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(7)
    labels = torch.randint(0, 3, (ROWS,), generator=generator)
    return torch.randn(ROWS, *shape, generator=generator), labels


def rows_of(model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    flat = FlatParameters(model)
    found = SampleGradients(flat, functional.cross_entropy, flat.read(), inputs, labels)
    return torch.cat([block.clone() for block in found.rows()])


def windowed() -> nn.Module:
    layers = [
        nn.Conv2d(2, 4, (3, 2), stride=(2, 1), padding=(1, 0)), nn.Tanh(),
        nn.Conv2d(4, 3, 2, bias=False), nn.Sigmoid(), nn.Flatten(), nn.Linear(3 * 3 * 5, 3),
    ]  # fmt: skip
    return nn.Sequential(*layers)


def frozen() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    model[0].weight.requires_grad_(False)
    model[2].bias.requires_grad_(False)
    return model


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (lambda: lenet5(1), (1, 28, 28)),
        (lambda: lenet5_colour(1), (3, 32, 32)),
        (lambda: softmax(1), (1, 8, 8)),
        (windowed, (2, 8, 7)),
        (frozen, (4,)),
    ],
)
def test_rows_are_the_gradients_of_single_samples(
    model: Callable[[], nn.Module], shape: tuple[int, ...]
) -> None:
    made, (inputs, labels) = model(), samples(*shape)
    flat = FlatParameters(made)
    plain, _ = ClientGradients(flat, inputs, labels, functional.cross_entropy).each(
        flat.read(), None
    )
    found = rows_of(made, inputs, labels)
    assert found.shape == plain.shape
    assert float((found - plain).norm()) <= 1e-6 * float(plain.norm())


class Meets(nn.Module):
    """A model that does something with all rows at once."""

    def __init__(self, what: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.full, self.what = nn.Linear(4, 3), what

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.full(self.what(x))
        return y


def branching(x: Tensor) -> Tensor:
    return torch.relu(x) if x[0, 0] > 0 else x


@pytest.mark.parametrize(
    "what",
    [
        branching,
        lambda x: x + x.mean(0),
        lambda x: x - x,
        lambda x: x.view(ROWS, -1),
        lambda x: x.flip(0),
        lambda x: torch.relu(x).data,
        lambda x: functional.relu(x, inplace=True),
        lambda x: functional.dropout(x),
        lambda x: torch.tensor(x.tolist()),
        lambda x: x.T.flatten(1).T,
    ],
)
def test_what_is_not_known_to_treat_rows_one_by_one_is_not_taken(
    what: Callable[[Tensor], Tensor],
) -> None:
    with pytest.raises(NotTogether, match=r"not known to|one row a sample"):
        rows_of(Meets(what), *samples(4))


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.full = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.full(self.full(x))
        return y


class Unseen(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        with torch._C.DisableTorchFunction():
            x = self.first(x)
        y: Tensor = self.second(x)
        return y


@pytest.mark.parametrize(
    ("model", "complaint"),
    [
        (Twice, "used more than once"),
        (Unseen, "where it was not seen"),
        (lambda: nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6)), "no rule for a norm"),
        (lambda: nn.Sequential(nn.Embedding(5, 3), nn.Flatten()), "no rule for an embedding"),
        (lambda: nn.Sequential(nn.Unflatten(1, (2, 2)), nn.Linear(2, 3)), "not known to"),
    ],
)
def test_layers_without_a_rule_are_not_taken(
    model: Callable[[], nn.Module], complaint: str
) -> None:
    inputs, labels = samples(4)
    made = model()
    if isinstance(made, nn.Sequential) and isinstance(made[0], nn.Embedding):
        inputs = torch.zeros(ROWS, 1, dtype=torch.int64)
    with pytest.raises(NotTogether, match=complaint):
        rows_of(made, inputs, labels)


def test_another_loss_is_not_taken() -> None:
    flat = FlatParameters(nn.Linear(4, 3))
    inputs, labels = samples(4)
    with pytest.raises(NotTogether, match="not a cross-entropy"):
        SampleGradients(flat, functional.mse_loss, flat.read(), inputs, labels)


def test_a_label_that_is_left_out_changes_no_other_row() -> None:
    inputs, labels = samples(4)
    model = nn.Linear(4, 3)
    plain = rows_of(model, inputs, labels)
    labels[5] = -100
    found = rows_of(model, inputs, labels)
    assert not found[5].any()
    rest = [i for i in range(ROWS) if i != 5]
    assert torch.equal(found[rest], plain[rest])
