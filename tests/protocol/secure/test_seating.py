"""Seats of helpers over random churn: who sits stays, and no party is at a shard twice."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from eris.protocol.authority.seating import Seats, lawful, seated
from eris.protocol.authority.succession import Candidate, assign
from eris.protocol.view import NOBODY

Party = Callable[[int], str]


def churn(seed: int, steps: int, party: Party) -> list[tuple[tuple[int, ...], Seats]]:
    """Eight members, each away with 5 % a step; three of one party (8, 9, 10) come one by one."""
    drawn = random.Random(seed)
    before: Seats = ()
    seen = []
    for step in range(steps):
        there = [m for m in range(11) if (m < 8 or step >= 10 * (m - 7)) and drawn.random() > 0.05]
        owners = assign([1] * 8, [Candidate(m, alive=m in there) for m in range(11)])
        before = seated(owners, {m: party(m) for m in there}, 3, before)
        seen.append((owners, before))
    return seen


def one_party(member: int) -> str:
    return "they" if member >= 8 else str(member)


def reads(owners: tuple[int, ...], seats: Seats) -> bool:
    """Whether owner and two seats of a shard are of the three."""
    return any(owner >= 8 and sum(m >= 8 for m in line) >= 2
               for owner, line in zip(owners, seats, strict=True))  # fmt: skip


@given(st.integers(0, 2**32))
def test_a_party_that_joins_one_by_one_never_has_a_shard_to_itself(seed: int) -> None:
    for owners, seats in churn(seed, 60, one_party):
        for owner, line in zip(owners, seats, strict=True):
            assert owner == NOBODY or lawful(owner, line, {m: one_party(m) for m in range(11)})
        assert not reads(owners, seats)


def test_without_parties_it_would() -> None:
    found = sum(any(reads(o, s) for o, s in churn(seed, 200, str)) for seed in range(20))
    assert found >= 10


@given(st.integers(0, 2**32))
def test_who_sits_stays_while_it_may_and_seats_are_shared_out(seed: int) -> None:
    seen = churn(seed, 40, str)
    for (_, before), (owners, after) in pairwise(seen):
        there = {member for line in after for member in line}
        for owner, old, new in zip(owners, before, after, strict=True):
            for seat, member in enumerate(old):
                if member in there and owner not in (member, NOBODY):
                    assert new[seat] == member or member == NOBODY


def test_at_first_everyone_has_as_many_seats() -> None:
    seats = seated(range(8), {m: str(m) for m in range(8)}, 3)
    held = [sum(m in line for line in seats) for m in range(8)]
    assert held == [3] * 8
    assert all(shard not in line for shard, line in enumerate(seats))


def test_where_there_are_too_few_a_seat_stays_vacant() -> None:
    assert seated([0], {0: "a", 1: "b"}, 3) == ((1, NOBODY, NOBODY),)
    assert seated([NOBODY], {0: "a", 1: "b"}, 2) == ((NOBODY, NOBODY),)
