"""Slots: no sample's gradient moves with another, at models made for it too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from eris.core.errors import InvalidSetting
from eris.core.exact_clip import Arranged, add_clipped
from eris.models.lenet import lenet5
from eris.models.softmax import Softmax
from eris.training.flat import FlatParameters
from eris.training.gradients import ClientGradients
from eris.training.population import ClippingPopulation, Trainers
from eris.training.slots import SamplesMeet, SlotGradients, check_slots
from eris.training.torch import TorchTrainer
from eris.training.trainer import PerSampleClip
from eris.training.vectorised import TorchPopulation
from training.small import RATE, network, some_data, start, trainer

pytestmark = pytest.mark.usefixtures("one_thread")

CLIP, PLACES = 0.5, 43
ALL = PerSampleClip(CLIP, PLACES, lambda rows: rows)


def crafted(inputs: Tensor, scale: float) -> nn.Module:
    """LeNet-5 whose first full layer cancels the pre-activations of the first sample."""
    model = lenet5(0)
    entered: list[Tensor] = []
    model.full1.register_forward_hook(lambda layer, given, out: entered.append(given[0]))
    with torch.no_grad():
        model.full1.weight.mul_(scale)
        model(inputs[:1])
        model.full1.bias.copy_(-(model.full1.weight @ entered[0][0]))
    model.full1._forward_hooks.clear()
    return model


def images(count: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(4)
    labels = torch.randint(0, 10, (70,), generator=generator)
    return torch.randn(70, 1, 28, 28, generator=generator)[:count], labels[:count]


def gradients(model: nn.Module, count: int) -> tuple[ClientGradients, Tensor]:
    flat = FlatParameters(model)
    return ClientGradients(flat, *images(count), functional.cross_entropy), flat.read()


def rows_of(found: ClientGradients, position: Tensor, slots: int) -> Any:
    return np.concatenate([rows.copy() for rows in SlotGradients(found, slots).passes(position)])


def content(found: ClientGradients, position: Tensor, slots: int | None = None) -> Any:
    return SlotGradients(found, slots).clipped_sum(position, ALL)


class Residual(nn.Module):
    """A branch around a convolution, and a group norm: layers without a rule for single samples."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 4, 3, stride=3), nn.Conv2d(4, 4, 3, padding=1)
        self.norm, self.full = nn.GroupNorm(2, 4), nn.Linear(4 * 81, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(x))
        y: Tensor = self.full((x + self.norm(self.second(x))).flatten(1))
        return y


def strided() -> nn.Module:
    layers = [nn.Conv2d(1, 3, (5, 4), stride=(3, 2), padding=(1, 2), bias=False), nn.Tanh()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(3 * 9 * 15, 1), nn.Linear(1, 10))


@pytest.mark.parametrize(
    ("model", "together"),
    [
        (lambda: Softmax((1, 28, 28), 10), True),
        (lambda: lenet5(0), True),
        (strided, True),
        (Residual, False),
    ],
)
@pytest.mark.parametrize("clip", [0.5, 1e3])
def test_whole_gradients_are_summed_as_single_ones_by_autograd(
    model: Any, together: bool, clip: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(3)
    found, position = gradients(model(), 65)
    order = np.random.default_rng(1).permutation(len(position))
    whole = PerSampleClip(clip, PLACES, Arranged(order))
    ours = SlotGradients(found).clipped_sum(position, whole)
    slow = np.zeros(len(position))
    for i in range(65):
        gradient = found.mean(position, torch.tensor([i]))[0].double().numpy()
        slow += gradient * min(1.0, clip / float(np.linalg.norm(gradient)))
    assert np.abs(ours * 2.0**-PLACES - slow[order]).max() <= 1e-6 * float(np.linalg.norm(slow))
    assert np.array_equal(ours, SlotGradients(found).clipped_sum(position, whole))
    # One sample less is one sample's content less, to the last bit, and that is within the clip. It
    # is the first of its pass here and there: on some machines a row's bits depend on its place.
    rest = ClientGradients(found.flat, found.inputs[:64], found.targets[:64], found.loss)
    alone = ClientGradients(found.flat, found.inputs[64:], found.targets[64:], found.loss)
    slots = SlotGradients(alone, 64)
    moved = ours - SlotGradients(rest, 65).clipped_sum(position, whole)
    if together:
        assert np.array_equal(moved, slots.clipped_sum(position, whole))
    assert 0 < sum(int(a) ** 2 for a in moved) <= int(clip * 2**PLACES) ** 2
    # Rows are written out for models that have layers without a rule, and for these alone.
    monkeypatch.setattr("eris.training.slots.add_clipped", None)
    if together:
        SlotGradients(found).clipped_sum(position, whole)
    else:
        with pytest.raises(TypeError):
            SlotGradients(found).clipped_sum(position, whole)


def test_a_part_of_the_coordinates_is_clipped_as_that_part() -> None:
    found, position = gradients(lenet5(0), 20)
    for order in (np.arange(100), np.zeros(len(position), np.int64)):
        some = Arranged(order)
        fast = PerSampleClip(0.01, 40, some)
        slow = PerSampleClip(0.01, 40, some.__call__)
        ours, theirs = (SlotGradients(found).clipped_sum(position, clip) for clip in (fast, slow))
        assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("scale", [1.0, 1e3, 1e6])
def test_crafted_models_do_not_make_one_sample_move_the_others(scale: float) -> None:
    model = crafted(images(1)[0], scale)
    found, position = gradients(model, 20)
    check_slots(found, position)
    whole = content(found, position, 20)
    without = ClientGradients(found.flat, found.inputs[:19], found.targets[:19], found.loss)
    moved = whole - content(without, position, 20)
    alone = np.zeros_like(whole)
    add_clipped(alone, rows_of(found, position, 20)[19:], CLIP, PLACES)
    assert np.array_equal(moved, alone)
    assert sum(int(a) ** 2 for a in moved) <= int(CLIP * 2**PLACES) ** 2
    # The same where no gradient is written out.
    apart = PerSampleClip(CLIP, PLACES, Arranged(np.arange(len(position))))
    moved = SlotGradients(found, 20).clipped_sum(position, apart)
    moved -= SlotGradients(without, 20).clipped_sum(position, apart)
    assert np.abs(moved - alone).max() <= 2.0**-22 * np.abs(alone).max()
    assert sum(int(a) ** 2 for a in moved) <= int(CLIP * 2**PLACES) ** 2


def test_empty_slots_and_several_passes() -> None:
    found, position = gradients(lenet5(0), 70)
    first, _ = gradients(lenet5(0), 64)
    rows = rows_of(found, position, 200)
    assert len(rows) == 4 * 64
    assert np.array_equal(rows[:64], rows_of(first, position, 64))
    assert rows[:70].any(axis=1).all()
    assert not rows[70:].any()


class Meeting(nn.Module):
    """A model in which samples meet: a mean over the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.inner(x)
        return y + y.detach().mean(0)


class Draws(nn.Module):
    """A model that draws, by who comes first."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.inner(x + torch.rand(x.shape))
        return y


def test_samples_that_meet_are_found() -> None:
    flat = FlatParameters(Draws())
    found = ClientGradients(flat, *some_data(), functional.cross_entropy)
    with pytest.raises(SamplesMeet, match=r"gradients of \d+ of \d+ samples move"):
        check_slots(found, flat.read())
    # vmap shows a model one sample at a time, so that this one's cannot meet.
    flat = FlatParameters(Meeting())
    check_slots(ClientGradients(flat, *some_data(), functional.cross_entropy), flat.read())


class Placed(torch.autograd.Function):
    """A factor that differs from row to row of a pass."""

    @staticmethod
    def forward(y: Tensor) -> Tensor:
        return torch.ones_like(y)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None: ...

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0] * 0

    @staticmethod
    def vmap(info: Any, in_dims: Any, y: Tensor) -> Any:
        places = torch.arange(1.0, info.batch_size + 1).reshape(-1, *[1] * (y.dim() - 1))
        return torch.ones_like(y) * places, 0


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.inner(x)
        placed: Tensor = Placed.apply(y)  # type: ignore[no-untyped-call]
        return y * placed


def test_a_model_that_knows_its_rows_is_refused_for_batches_only() -> None:
    flat = FlatParameters(Counts())
    found = ClientGradients(flat, *some_data(), functional.cross_entropy)
    check_slots(found, flat.read())
    with pytest.raises(SamplesMeet, match="move if they change places, as in secret batches"):
        check_slots(found, flat.read(), packed=True)


@pytest.mark.parametrize(("scale", "share"), [(1.0, 0.5), (1e6, 0.1), (1e6, 0.9), (1e6, 0.0)])
def test_batches_are_packed_and_rows_keep_their_bits(scale: float, share: float) -> None:
    found, position = gradients(crafted(images(1)[0], scale), 70)
    check_slots(found, position, packed=True)
    slots, whole = SlotGradients(found, 100), rows_of(found, position, 100)[:100]
    chosen = np.random.default_rng(5).random(100) < share
    held = int(chosen.sum())
    packed = [rows.copy() for rows in slots.passes(position, lambda count: chosen)]
    assert sum(map(len, packed)) == -(-held // 64) * 64
    if held:
        rows = np.concatenate(packed)
        assert np.array_equal(rows[:held], whole[chosen])
        assert not rows[held:].any()
    clip = PerSampleClip(CLIP, PLACES, lambda rows: rows, 100, lambda count: chosen)
    slow = np.zeros(whole.shape[1], np.int64)
    add_clipped(slow, whole[chosen], CLIP, PLACES)
    assert np.array_equal(slots.clipped_sum(position, clip), slow)
    apart = replace(clip, select=Arranged(np.arange(len(slow))))
    inputs, targets = (data[torch.from_numpy(chosen[:70])] for data in images(70))
    left = ClientGradients(found.flat, inputs, targets, found.loss)
    alone = SlotGradients(left, 64 * 2).clipped_sum(
        position, replace(apart, slots=None, batch=None)
    )
    assert np.array_equal(slots.clipped_sum(position, apart), alone)


def test_an_update_is_the_sum_of_clipped_gradients_and_no_vector() -> None:
    client = trainer()
    update = client.clipped_update(start(), 3, ALL)
    assert update.content is not None
    assert (update.samples, update.steps, dict(update.metrics)) == (12, 1, {})
    assert not update.vector.any()
    slow = np.zeros(83)
    for i in range(12):
        inputs, targets = some_data()
        alone = TorchTrainer(network(), inputs[i : i + 1], targets[i : i + 1], learning_rate=RATE)
        gradient = alone.update(start(), 0).vector.astype(np.float64)
        slow += gradient * min(1.0, CLIP / float(np.linalg.norm(gradient)))
    assert np.allclose(update.content * 2.0**-PLACES, slow, atol=1e-6)


def test_what_is_selected_is_clipped() -> None:
    few = PerSampleClip(0.01, PLACES, lambda rows: rows[:, [7, 2]])
    update = trainer().clipped_update(start(), 0, few)
    assert update.content is not None
    assert len(update.content) == 2
    assert np.linalg.norm(update.content * 2.0**-PLACES) <= 12 * 0.01


def test_populations_give_contents() -> None:
    inputs, targets = some_data()
    parts = [np.arange(0, 5), np.arange(5, 12)]
    together = TorchPopulation(network(), inputs, targets, parts, learning_rate=RATE)
    single = Trainers([
        TorchTrainer(network(), inputs[part], targets[part], learning_rate=RATE) for part in parts
    ])  # fmt: skip
    found = [
        [update.content for update in population.clipped_updates([1, 0], start(), 0, ALL)]
        for population in (together, single)
        if isinstance(population, ClippingPopulation)
    ]
    assert len(found) == 2
    together.check_clipping(start())
    single.check_clipping(start())
    for ours, theirs in zip(*found, strict=True):
        assert ours is not None
        assert np.array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"steps": 2}, "local steps is 2; expected 1: .*protects = client"),
        ({"epochs": 2}, "local steps is 2"),
        ({"batch_size": 4}, "batch_size is 4; expected none, or all 12"),
        ({"momentum": 0.9}, r"momentum is 0.9; expected 0, and that of the server rule instead"),
        ({"optimiser": "adam"}, "optimiser is 'adam'; expected 'sgd'"),
        ({"estimator": "saga"}, "estimator is 'saga'; expected 'sgd' with noise per sample"),
        ({"weight_decay": 0.1}, "weight_decay is 0.1; expected 0"),
    ],
)
def test_training_that_no_clip_bounds_is_refused(settings: Any, complaint: str) -> None:
    with pytest.raises(InvalidSetting, match=complaint):
        trainer(**settings).clipped_update(start(), 0, ALL)
    with pytest.raises(InvalidSetting, match=complaint):
        trainer(**settings).check_clipping(start())


def test_models_and_trainers_that_cannot_are_refused() -> None:
    normed = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    client = trainer(normed, running_statistics="batch")
    with pytest.raises(InvalidSetting, match="noise per sample is '1'; expected one that treats"):
        client.clipped_update(np.zeros(99, np.float32), 0, ALL)
    with pytest.raises(InvalidSetting, match=r"dropout of layer 2 is 0\.5"):
        trainer(network(dropout=0.5)).clipped_update(start(), 0, ALL)
    with pytest.raises(InvalidSetting, match="samples of a client is 12; expected at most 5"):
        trainer().clipped_update(start(), 0, PerSampleClip(1.0, 40, lambda rows: rows, 5))
    with pytest.raises(InvalidSetting, match="expected fewer than"):
        trainer().clipped_update(start(), 0, PerSampleClip(1.0, 60, lambda rows: rows))
    other = Trainers([_Plain()])
    with pytest.raises(InvalidSetting, match="'_Plain'; expected one with clipped_update"):
        list(other.clipped_updates([0], start(), 0, ALL))


class _Plain:
    def update(self, parameters: Any, round: int) -> Any:
        raise AssertionError
