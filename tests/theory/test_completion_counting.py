"""Counting for the planner against what was measured (completion.md, sections 2 and 8)."""

from __future__ import annotations

import pytest

from eris.core.errors import InvalidSetting
from eris.theory.completion import completes, ratio, redundancy, rounds_needed, share_of_columns

VARYING = {2: 0.28, 4: 0.36, 8: 0.47, 16: 0.51, 32: 0.57}
SUCCESS = {
    2: {2: 1.0, 4: 1.0, 8: 1.0, 16: 1.0, 32: 0.36, 50: 0.0},
    4: {2: 1.0, 4: 1.0, 8: 1.0, 16: 0.98, 32: 0.0, 50: 0.0},
    8: {2: 1.0, 4: 1.0, 8: 1.0, 16: 0.0, 32: 0.0, 50: 0.0},
    16: {2: 1.0, 4: 1.0, 8: 0.0, 16: 0.0},
    32: {2: 0.75, 4: 0.0},
}
"""Of the 256 × 785 layer on MNIST, by samples and shards."""


def verdict(samples: int, shards: int, kept: float = 1.0) -> str:
    return completes(256, 785, shards, kept, samples, varying=VARYING[samples], background=True)


def test_verdicts_agree_with_what_was_measured() -> None:
    found = {"yes": [], "boundary": [], "no": []}  # type: dict[str, list[float]]
    for samples, cells in SUCCESS.items():
        for shards, success in cells.items():
            found[verdict(samples, shards)].append(success)
    assert min(found["yes"]) >= 0.75
    assert max(found["no"]) == 0
    assert len(found["yes"]) >= 8
    assert len(found["no"]) >= 4


@pytest.mark.parametrize(("samples", "least"), [(2, 67), (4, 35), (8, 18), (16, 9)])
def test_the_shards_that_stop_it_in_one_round(samples: int, least: int) -> None:
    def stopped(shards: int, varying: float = 0.36, background: bool = True) -> bool:
        asked = completes(256, 785, shards, 1.0, samples, varying=varying, background=background)
        return asked == "no"

    assert stopped(least)
    assert not stopped(least - 1)
    everything = {2: 71, 4: 43, 8: 23, 16: 12}[samples]
    assert stopped(everything, 1.0, background=False)
    assert not stopped(everything - 1, 1.0, background=False)


@pytest.mark.parametrize(
    ("rows", "columns", "shards", "kept", "share"),
    [(128, 785, 32, 1.0, 0.974), (128, 785, 50, 1.0, 0.924), (128, 785, 8, 0.1, 0.793),
     (128, 785, 2, 0.033, 0.88), (128, 785, 4, 0.033, 0.642), (60, 401, 32, 1.0, 0.844)],
)  # fmt: skip
def test_one_sample_is_connectivity(
    rows: float, columns: float, shards: int, kept: float, share: float
) -> None:
    assert share_of_columns(rows, columns, kept / shards) == pytest.approx(share, abs=0.02)


def test_over_rounds_one_sample_always_falls() -> None:
    assert completes(256, 785, 50, 0.033, 1) == "no"
    assert completes(256, 785, 50, 0.033, 1, rounds=200) == "yes"
    assert share_of_columns(128, 785, 0.033 / 50, rounds=100) == pytest.approx(0.96, abs=0.01)


@pytest.mark.parametrize(
    ("samples", "columns", "background", "share", "rounds"),
    [(2, 220, True, 0.1 / 16, 4), (2, 220, True, 0.033 / 50, 250), (4, 283, True, 0.1 / 50, 1700),
     (8, 369, True, 1 / 50, 10), (16, 400, True, 1 / 32, 53), (8, 785, False, 0.1 / 16, 250),
     (16, 785, False, 1 / 50, 38), (4, 785, False, 0.033 / 50, 7e4)],
)  # fmt: skip
def test_rounds_that_counting_asks_for(
    samples: int, columns: int, background: bool, share: float, rounds: float
) -> None:
    active = 0.9 * 256 * (1 - 0.5**samples)
    found = rounds_needed(active, columns, share, samples, background)
    assert found == pytest.approx(rounds, rel=0.06)


def test_entries_over_unknowns() -> None:
    assert redundancy(100, 5, 6, 2) == 100 - 2 * 9
    assert ratio(215, 280, 1 / 16, 4) == pytest.approx(1.9, abs=0.05)
    assert rounds_needed(10, 20, 1.0, 4) == pytest.approx(4 * 16 / (10 * 16))
    assert completes(10, 85, 4, 1.0, 16, alive=1.0) == "no", "more samples than rows"


def test_bad_input_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="kept is 0"):
        completes(256, 785, 16, 0.0, 4)
    with pytest.raises(InvalidSetting, match="samples is 0"):
        completes(256, 785, 16, 1.0, 0)
