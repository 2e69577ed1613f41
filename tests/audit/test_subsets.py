"""Keys for sampled sets that last give single keys."""

from __future__ import annotations

import numpy as np
import pytest

from eris.audit.low_rank import Choice
from eris.audit.subsets import rounds_to_keys, sampled_rounds_to_keys, sampled_subsets
from eris.core.errors import InvalidSetting
from eris.core.streams import Stream


def test_with_a_fifth_of_thirty_clients_all_keys_fall_after_thirty_rounds() -> None:
    """N = 30 and ρ = 0.2 as in EncCluster's table 3; median 30 and least 30 of 300 runs."""
    first, last = sampled_rounds_to_keys(0, 300, 60, 30, 6)
    assert np.median(last) == 30
    assert last.min() == 30  # so that none is 0, never
    assert last.max() <= 45
    assert np.median(first) in (29, 30)


def by_ranks(subsets: Choice, weights: list[int]) -> list[int]:
    """When each unit vector is spanned, by floating-point ranks of small matrices."""
    rows, clients = subsets * np.array(weights), subsets.shape[1]
    fallen = [0] * clients
    for number in range(len(rows), 0, -1):
        rank = np.linalg.matrix_rank(rows[:number])
        for client in range(clients):
            with_unit = np.vstack([rows[:number], np.eye(clients)[client]])
            if np.linalg.matrix_rank(with_unit) == rank:
                fallen[client] = number
    return fallen


@pytest.mark.parametrize("seed", range(8))
def test_a_key_falls_when_its_unit_vector_is_spanned_whatever_the_weights(seed: int) -> None:
    subsets = sampled_subsets(Stream(seed, "sets"), 9, 7, 2 + seed % 3)
    found = rounds_to_keys(subsets).tolist()
    assert found == by_ranks(subsets, [1] * 7) == by_ranks(subsets, [3, 1, 4, 1, 5, 9, 2])


def test_one_set_for_ever_gives_no_single_key() -> None:
    always = np.ones((20, 5), np.bool_)
    assert rounds_to_keys(always).tolist() == [0] * 5
    assert [list(one) for one in sampled_rounds_to_keys(0, 2, 20, 5, 5)] == [[0, 0], [0, 0]]
    always[7, 2] = False  # one client that is away once
    assert rounds_to_keys(always).tolist() == [0, 0, 8, 0, 0]


def test_more_clients_than_there_are_cannot_be_sampled() -> None:
    with pytest.raises(InvalidSetting, match="chosen"):
        sampled_subsets(Stream(0, "sets"), 1, 3, 4)
