"""Populations larger than the data."""

from __future__ import annotations

import numpy as np
import pytest

from eris.core.errors import InvalidSetting
from eris.data import Drawn


def test_every_client_draws_for_itself_and_always_the_same() -> None:
    clients = Drawn(count=50, clients=1000, samples=20, seed=3)
    assert len(clients) == 1000
    assert clients[7].tolist() == clients[7].tolist() != clients[8].tolist()
    assert clients[-1].tolist() == clients[999].tolist()
    assert [part.tolist() for part in clients[3:5]] == [clients[3].tolist(), clients[4].tolist()]
    other = Drawn(count=50, clients=1000, samples=20, seed=4)
    assert clients[7].tolist() != other[7].tolist()
    # A larger population has the same first clients.
    larger = Drawn(count=50, clients=100_000, samples=20, seed=3)
    assert larger[7].tolist() == clients[7].tolist()


def test_all_samples_are_drawn_alike() -> None:
    clients = Drawn(count=50, clients=1000, samples=20, seed=3)
    counts = np.bincount(np.concatenate(list(clients)), minlength=50)
    assert len(counts) == 50
    expected = 1000 * 20 / 50
    # Chi-square with 49 degrees of freedom: above 94 once in ten thousand seeds.
    assert float(((counts - expected) ** 2 / expected).sum()) < 94


@pytest.mark.parametrize("wrong", [{"count": 0}, {"clients": 0}, {"samples": 0}])
def test_nothing_to_draw_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidSetting, match="at least 1"):
        Drawn(**{"count": 5, "clients": 5, "samples": 5, "seed": 0, **wrong})


def test_a_client_that_is_not_there_is_an_error() -> None:
    with pytest.raises(IndexError, match="client 5 of 5"):
        Drawn(5, 5, 5, 0)[5]
