"""The papers' measure against plain loops, and its null: noise gives 59 % and is no leak."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest
from numpy.typing import NDArray

from eris.audit import paper_measure as module
from eris.audit.paper_measure import paper_measure, paper_measures, permuted_within_clients
from eris.audit.statistics import client_thirds
from eris.core.errors import InvalidSetting

UNEVEN = np.repeat([3, 8, 1, 5, 0], [8, 2, 5, 12, 7])
"""Clients of which one (8) has too few canaries to guess."""


def slow_accuracies(
    scores: NDArray[np.float64], client: NDArray[np.int64], included: NDArray[np.bool_]
) -> list[float]:
    """Per round: the mean over clients that guess of right guesses over guesses."""
    found = []
    for guesses in client_thirds(scores, client).tolist():
        shares = []
        for whose in sorted(set(client.tolist())):
            own = [i for i, name in enumerate(client.tolist()) if name == whose and guesses[i]]
            if own:
                right = sum((guesses[i] == 1) == bool(included[i]) for i in own)
                shares.append(right / len(own))
        found.append(sum(shares) / len(shares))
    return found


def noise(
    seed: int, rounds: int, client: NDArray[np.int64], observers: int = 1
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(observers, rounds, len(client))), rng.random(len(client)) < 0.5


def test_the_measures_and_their_nulls_are_those_of_plain_loops() -> None:
    scores, included = noise(1, 6, UNEVEN, observers=3)
    draws = 40
    found = paper_measures(scores, UNEVEN, included, seed=9, draws=draws)
    rows = np.array([slow_accuracies(each, UNEVEN, included) for each in scores])
    permuted = permuted_within_clients(included, UNEVEN, 9, 0, draws)
    null = np.array(
        [[slow_accuracies(each, UNEVEN, truth) for each in scores] for truth in permuted]
    )
    expected = [
        *((rows[o], null[:, o].max(axis=1)) for o in range(3)),
        (rows.mean(axis=0), null.mean(axis=1).max(axis=1)),
        (rows.max(axis=0), null.max(axis=(1, 2))),
    ]
    for one, (by_round, maxima) in zip(
        [*found.each, found.mean, found.worst], expected, strict=True
    ):
        assert one.by_round == pytest.approx(by_round.tolist())
        assert one.accuracy == pytest.approx(by_round.max())
        assert by_round[one.round] == pytest.approx(by_round.max())
        assert one.null_mean == pytest.approx(maxima.mean())
        assert one.null_q95 == pytest.approx(np.quantile(maxima, 0.95))
        reached = np.count_nonzero(maxima >= by_round.max() - 1e-12)
        assert one.p_value == pytest.approx((1 + reached) / (1 + draws))
        assert (one.clients, one.draws) == (4, draws)
    assert found.each[found.worst_observer].accuracy == found.worst.accuracy
    assert paper_measure(scores[1], UNEVEN, included, seed=9, draws=draws) == found.each[1]


def test_permutations_keep_each_clients_number_and_leave_no_place_out() -> None:
    rng = np.random.default_rng(2)
    client = rng.permutation(UNEVEN)
    included = rng.random(len(client)) < 0.5
    permuted = permuted_within_clients(included, client, seed=4, start=0, count=4000)
    for whose in np.unique(client):
        own = client == whose
        assert (permuted[:, own].sum(axis=1) == included[own].sum()).all()
        assert permuted[:, own].mean(axis=0) == pytest.approx(included[own].mean(), abs=0.04)
    later = permuted_within_clients(included, client, seed=4, start=17, count=5)
    assert (later == permuted[17:22]).all()
    other = permuted_within_clients(included, client, seed=5, start=0, count=4000)
    assert (other != permuted).any()


def test_blocks_of_permutations_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    scores, included = noise(3, 5, UNEVEN, observers=2)
    whole = paper_measures(scores, UNEVEN, included, seed=1, draws=50)
    monkeypatch.setattr(module, "BLOCK_BYTES", 7 * 8 * (5 + len(UNEVEN)))
    assert paper_measures(scores, UNEVEN, included, seed=1, draws=50) == whole


def test_noise_at_the_papers_size_looks_like_a_leak_and_lies_on_its_null() -> None:
    client = np.repeat(np.arange(50), 8)
    scores, included = noise(11, 160, client)
    found = paper_measure(scores[0], client, included, seed=1, draws=300)
    assert 0.56 < found.accuracy < 0.62
    assert 0.56 < found.null_mean < 0.60
    assert found.null_mean < found.null_q95 < 0.63
    assert found.p_value > 0.05
    assert np.mean(found.by_round) == pytest.approx(0.5, abs=0.01)


def test_without_signal_p_values_are_uniform() -> None:
    client = np.repeat(np.arange(12), [3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14])
    kinds: dict[str, list[float]] = {"one": [], "mean": [], "worst": []}
    for audit in range(600):
        scores, included = noise(1000 + audit, 8, client, observers=2)
        found = paper_measures(scores, client, included, seed=audit, draws=99)
        kinds["one"].append(found.each[0].p_value)
        kinds["mean"].append(found.mean.p_value)
        kinds["worst"].append(found.worst.p_value)
    for kind, values in kinds.items():
        for level in (0.05, 0.1, 0.25, 0.5, 0.75):
            share = np.mean(np.array(values) <= level)
            spread = 3 * np.sqrt(level * (1 - level) / 600)
            # Equal maxima count against a leak, hence the room below.
            assert 0.9 * level - spread < share < level + spread, (kind, level)


def test_a_leak_is_found_where_it_is() -> None:
    client = np.repeat(np.arange(10), 6)
    scores, _ = noise(5, 20, client, observers=4)
    balanced = np.tile([True, False, True, False, True, False], 10)
    scores[2, 13] = balanced
    found = paper_measures(scores, client, balanced, seed=1, draws=199)
    assert (found.worst.accuracy, found.worst.round, found.worst_observer) == (1.0, 13, 2)
    assert found.worst.p_value == found.each[2].p_value == 1 / 200
    assert found.worst.null_mean < 0.8
    assert all(found.each[o].p_value > 0.01 for o in (0, 1, 3))
    assert found.mean.accuracy < 0.8
    assert json.loads(json.dumps(asdict(found)))["worst"]["round"] == 13


def test_what_cannot_be_measured_is_refused() -> None:
    client, included = np.repeat([0, 1, 2], 2), np.zeros(6, np.bool_)
    with pytest.raises(InvalidSetting, match="of a client is 2; expected a client with at least 3"):
        paper_measure(np.zeros((4, 6)), client, included, seed=1)
    three = np.repeat([0, 1], 3)
    with pytest.raises(InvalidSetting, match="draws is 0"):
        paper_measure(np.zeros((4, 6)), three, included, seed=1, draws=0)
    for shape in ((6,), (0, 6), (2, 4, 6)):
        with pytest.raises(InvalidSetting, match="scores is"):
            paper_measure(np.zeros(shape), three, included, seed=1)
    with pytest.raises(InvalidSetting, match="scores is"):
        paper_measures(np.zeros((4, 6)), three, included, seed=1)
    with pytest.raises(InvalidSetting, match=r"scores\[3, 5\] is nan"):
        paper_measure(
            np.where(np.arange(24) < 23, 0, np.nan).reshape(4, 6), three, included, seed=1
        )
    with pytest.raises(InvalidSetting, match="each of 6 canaries"):
        paper_measure(np.zeros((4, 6)), three[:5], included, seed=1)
    with pytest.raises(InvalidSetting, match="each of 6 canaries"):
        paper_measure(np.zeros((4, 6)), three, included[:5], seed=1)
