"""What measurements say of a plan: between points, at their edges, and what is refused."""

from __future__ import annotations

import pytest

from eris.core.errors import InvalidSetting
from eris.theory.reconstruction import Measured, advise, layers_completed, measurements


def curve(*below: float, mode: str = "mask-aware", whole: float = 0.05) -> list[Measured]:
    """Points at 100, 50, 10 and 2 % whose interval is 0.1."""
    shares = (1.0, 0.5, 0.1, 0.02)
    return [
        Measured("made up", "some", mode, share, 12, whole if share == 1 else 0.3, each, 0.1)
        for share, each in zip(shares, below, strict=True)
    ]


def test_a_plan_is_judged_by_the_next_larger_share() -> None:
    known = curve(0.5, 0.4, 0.05, 0.0)
    (at,) = advise(4, known=known)  # 25 %: at least as hidden as 50 %
    assert at.measured is not None
    assert at.measured.share == 0.5
    assert not at.stopped
    (below,) = advise(5, 0.5, known=known)  # exactly 10 %
    assert below.stopped
    assert (below.enough, below.aggregators) == (0.1, 10)
    (hardly,) = advise(100, known=known)  # less than was ever measured
    assert hardly.measured is None
    assert hardly.stopped


def test_an_attacker_that_is_stopped_at_a_larger_share_but_not_below_is_not_stopped() -> None:
    # A dip at 10 % is chance if 2 % is read again.
    (found,) = advise(10, known=curve(0.5, 0.4, 0.05, 0.3))
    assert not found.stopped
    assert (found.enough, found.aggregators) == (None, None)
    (hardly,) = advise(100, known=curve(0.5, 0.4, 0.05, 0.3))
    assert not hardly.stopped


def test_an_attacker_that_does_not_find_whole_updates_says_nothing() -> None:
    assert advise(10, known=curve(0.2, 0.04, 0.03, 0.02, whole=0.21)) == []
    assert ("cifar10", "idlg") not in {(one.data, one.attack) for one in advise(8)}


def test_each_attacker_has_its_own_verdict() -> None:
    known = curve(0.5, 0.4, 0.3, 0.3) + curve(0.5, 0.0, 0.0, 0.0, mode="oblivious")
    aware, oblivious = advise(2, known=known)
    assert (aware.stopped, oblivious.stopped) == (False, True)
    assert oblivious.aggregators == 2


@pytest.mark.parametrize(
    ("plan", "what"),
    [((0,), "aggregators is 0"), ((2, 0.0), "kept is 0.0"), ((2, 1.1), "kept is 1.1"),
     ((2, 1.0, 0), "samples is 0")],
)  # fmt: skip
def test_no_plan_is_refused(plan: tuple[int, ...], what: str) -> None:
    with pytest.raises(InvalidSetting, match=what):
        advise(*plan)


def test_a_share_above_all_measured_ones_is_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"visible share is 1.0; expected at most 0\.5"):
        advise(1, known=curve(0.5, 0.4, 0.05, 0.0)[1:])


def test_what_is_shipped_is_a_whole_curve_for_every_attacker() -> None:
    points = measurements()
    curves = {(one.data, one.attack, one.mode) for one in points}
    for key in curves:
        shares = [one.share for one in points if (one.data, one.attack, one.mode) == key]
        assert len(set(shares)) == len(shares) >= 4
        assert max(shares) == 1.0
        assert all(one.images >= 4 for one in points)
    # Seen whole, no attacker is stopped: a weak attack makes every plan look good.
    assert not any(one.stopped for one in points if one.share == 1.0)


def test_counting_stands_beside_it() -> None:
    assert layers_completed([(256, 785)], 16, 1.0, 32) == {(256, 785): "no"}
