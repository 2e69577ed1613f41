"""Labels are read off the last layer of real gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from eris.audit.inversion.labels import candidates, row_means
from eris.audit.inversion.matching import Matching
from eris.audit.inversion.simulation import Simulation
from eris.core.errors import InvalidSetting
from eris.data import load_mnist
from eris.experiments.audits.inversions import sigmoid_network
from eris.training.flat import FlatParameters

LAST = slice(13_426 - 5_890, 13_426)
"""Where the last layer lies: ten rows of 588, then ten biases."""


def matching(samples: int, clients: int = 20) -> tuple[Matching, Tensor]:
    data = load_mnist()
    count = samples * clients
    images = torch.from_numpy(data.train_images[:count].astype(np.float32) / 255)
    labels = torch.from_numpy(data.train_labels[:count].astype(np.int64)).reshape(clients, samples)
    flat = FlatParameters(sigmoid_network(0))
    simulation = Simulation(flat, functional.cross_entropy, flat.read())
    updates = simulation.updates(images.reshape(clients, samples, 1, 28, 28), labels).detach()
    seen = torch.ones_like(updates, dtype=torch.bool)
    return Matching(simulation, updates, seen, (1, 28, 28), samples), labels


@pytest.mark.parametrize("share", [1.0, 0.1])
def test_the_label_of_one_sample_is_the_smallest_row(share: float) -> None:
    whole, labels = matching(1)
    seen = torch.rand(whole.values.shape, generator=torch.Generator().manual_seed(0)) < share
    found = candidates(whole.with_rows(whole.values * seen, seen))
    assert [ways.tolist() for ways in found] == [[label] for label in labels.tolist()]


def test_of_several_samples_most_labels_are_counted_right() -> None:
    whole, labels = matching(4)
    found = candidates(whole)
    assert all(ways.shape == (1, 4) for ways in found)
    right = [
        len(set(ways[0].tolist()) & set(truth)) / len(set(truth))
        for ways, truth in zip(found, labels.tolist(), strict=True)
    ]
    assert np.mean(right) > 0.6  # four classes of ten by chance: 0.4


def test_where_the_rows_are_hidden_every_class_is_tried() -> None:
    whole, labels = matching(1, clients=3)
    seen = whole.seen.clone()
    seen[:, LAST] = False
    hidden = whole.with_rows(whole.values * seen, seen)
    assert row_means(hidden).isnan().all()
    assert [ways[:, 0].tolist() for ways in candidates(hidden)] == [list(range(10))] * 3
    # A row that is visible and negative leaves nothing to try.
    row = slice(LAST.start + 588 * int(labels[0]), LAST.start + 588 * (int(labels[0]) + 1))
    seen[0, row] = True
    one = candidates(whole.with_rows(whole.values * seen, seen))
    assert one[0].tolist() == [[int(labels[0])]]
    assert len(one[1]) == 10


def test_too_many_sets_of_labels_are_refused() -> None:
    whole, _ = matching(6, clients=1)
    seen = whole.seen.clone()
    seen[:, LAST] = False
    with pytest.raises(InvalidSetting, match=r"more than 128.*give `labels`, or use dlg"):
        candidates(whole.with_rows(whole.values * seen, seen))


def test_a_model_without_a_last_linear_layer_is_refused() -> None:
    flat = FlatParameters(nn.Sequential(nn.Conv2d(1, 3, 2), nn.Flatten()))
    simulation = Simulation(flat, functional.cross_entropy, flat.read())
    rows = torch.ones(1, len(flat))
    with pytest.raises(InvalidSetting, match="a last linear layer of 3 rows; or give `labels`"):
        candidates(Matching(simulation, rows, rows > 0, (1, 2, 2)))
