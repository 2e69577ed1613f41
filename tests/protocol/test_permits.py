"""What a new view costs: rounds that somebody may have published in are left out, and no more."""

from __future__ import annotations

from eris.protocol.authority.directory import Directory
from eris.protocol.authority.standing import Standing

TERMS = {"charter": "{}", "client": True, "aggregator": True, "max_share": 0.5}


def directory(least_clients: int = 3) -> Directory:
    """Four members in round 5, who reported every round."""
    made = Directory("{}", [10] * 4, 4, 10.0, least_clients=least_clients, entropy="0" * 32)
    for name in "abcd":
        join(made, name)
    for round in range(1, 6):
        for name in "abcd":
            made.renew(round / 10, name, name, round=round)
    return made


def join(made: Directory, name: str, now: float = 0.0) -> None:
    made.join(now, name=name, fingerprint=name, address=f"{name}:1", **TERMS)  # type: ignore[arg-type]


def newest(standing: Standing) -> tuple[int, int]:
    return standing.views[-1].view.epoch, standing.views[-1].from_round


def test_without_a_quorum_members_that_come_and_go_cost_no_rounds() -> None:
    made = directory()
    made.leave(1.0, "c", "c")
    made.leave(1.0, "d", "d")
    before = newest(made.renew(1.0, "a", "a", round=5))
    for _ in range(5):
        join(made, "d", 1.0)
        made.leave(1.0, "d", "d")
    costs = newest(made.renew(1.0, "a", "a", round=5))[1] - before[1]
    assert costs <= made.lookahead + 1


def test_whoever_leaves_gives_back_what_it_did_not_publish() -> None:
    made = directory(least_clients=1)
    for name in "abcd":
        made.leave(1.0, name, name, published=5)
    for name in "abcd":
        join(made, name, 2.0)
    assert newest(made.renew(2.0, "a", "a", round=5))[1] == 6
    assert made.renew(2.0, "b", "b", round=5).through == 7


def test_nobody_gives_back_more_than_it_has() -> None:
    made = directory()
    made.leave(1.0, "d", "d", published=10**6)
    join(made, "d", 1.0)
    assert made.standing(3).through == 7


def test_rounds_that_a_member_skipped_after_a_restart_were_not_fast() -> None:
    made = directory()
    for round in range(6, 17):
        for name in "abc":
            made.renew(2.0, name, name, round=round)
    join(made, "d", 2.0)
    assert made.renew(2.0, "d", "d", round=5).through == 7
    assert made.renew(2.0, "d", "d", round=16).through == 18


def test_where_rounds_are_fast_permits_reach_further() -> None:
    made = directory()
    for name in "abcd":
        made.renew(2.0, name, name, round=8)
    assert made.standing(3).through > 8 + made.lookahead
