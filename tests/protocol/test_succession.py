"""The laws of the rule that says who owns which shard."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from eris.protocol.authority.succession import Candidate, assign, heirs, successors
from eris.protocol.view import NOBODY

SIZES = some.lists(some.integers(1, 1_000), min_size=1, max_size=12)
SHARES = some.sampled_from([0.05, 0.2, 1 / 3, 0.5, 2 / 3, 0.9, 1.0])

LAW = settings(max_examples=200, deadline=None, derandomize=True)


@some.composite
def crowds(draw: some.DrawFn, shares: some.SearchStrategy[float] = SHARES) -> list[Candidate]:
    numbers = draw(some.lists(some.integers(0, 40), max_size=9, unique=True))
    return [Candidate(number, draw(shares), draw(some.booleans())) for number in numbers]


def loads(sizes: list[int], owners: tuple[int, ...], crowd: list[Candidate]) -> dict[int, int]:
    load = {candidate.number: 0 for candidate in crowd}
    for size, owner in zip(sizes, owners, strict=True):
        if owner != NOBODY:
            load[owner] += size
    return load


@LAW
@given(SIZES, crowds())
def test_nobody_is_given_more_than_it_accepts_and_the_dead_own_nothing(
    sizes: list[int], crowd: list[Candidate]
) -> None:
    load = loads(sizes, assign(sizes, crowd), crowd)
    for candidate in crowd:
        assert load[candidate.number] <= candidate.max_share * sum(sizes) * (1 + 1e-6)
        assert candidate.alive or load[candidate.number] == 0


@LAW
@given(SIZES, crowds())
def test_a_shard_waits_only_if_it_fits_nowhere(sizes: list[int], crowd: list[Candidate]) -> None:
    owners = assign(sizes, crowd)
    load = loads(sizes, owners, crowd)
    for size, owner in zip(sizes, owners, strict=True):
        for candidate in crowd if owner == NOBODY else ():
            room = candidate.max_share * sum(sizes) - load[candidate.number]
            assert not candidate.alive or size > room


@LAW
@given(SIZES, crowds(), some.data())
def test_what_a_living_home_keeps_stays_whoever_else_dies_or_returns(
    sizes: list[int], crowd: list[Candidate], data: some.DataObject
) -> None:
    changed = [replace(c, alive=data.draw(some.booleans())) for c in crowd]
    before, after = assign(sizes, crowd), assign(sizes, changed)
    alive = {c.number for c in crowd if c.alive} & {c.number for c in changed if c.alive}
    for shard, owner in enumerate(before):
        home = next(iter(successors(shard, crowd)), NOBODY)
        if owner == home and home in alive:
            assert after[shard] == home


@LAW
@given(SIZES, crowds(some.just(1.0)))
def test_loads_differ_by_at_most_one_shard_where_limits_allow(
    sizes: list[int], crowd: list[Candidate]
) -> None:
    owners = assign(sizes, crowd)
    load = loads(sizes, owners, crowd)
    alive = [c.number for c in crowd if c.alive]
    assert not alive or NOBODY not in owners
    for shard, owner in enumerate(owners):
        if alive and owner != successors(shard, crowd)[0]:
            # A taker has, without the largest of what it took, no more than anybody.
            taken = [
                sizes[a]
                for a, taker in enumerate(owners)
                if taker == owner and successors(a, crowd)[0] != owner
            ]
            assert load[owner] - max(taken) <= min(load[c] for c in alive)


@LAW
@given(SIZES, crowds(), some.randoms())
def test_the_order_in_which_candidates_are_listed_does_not_matter(
    sizes: list[int], crowd: list[Candidate], order: random.Random
) -> None:
    shuffled = list(crowd)
    order.shuffle(shuffled)
    assert assign(sizes, shuffled) == assign(sizes, crowd)
    assert heirs(sizes, shuffled) == heirs(sizes, crowd)


@LAW
@given(SIZES, crowds())
def test_an_heir_is_who_the_rule_names_once_the_owner_is_dead(
    sizes: list[int], crowd: list[Candidate]
) -> None:
    owners, named = assign(sizes, crowd), heirs(sizes, crowd)
    for shard, owner in enumerate(owners):
        dead = [replace(c, alive=False) if c.number == owner else c for c in crowd]
        assert named[shard] == (NOBODY if owner == NOBODY else assign(sizes, dead)[shard])
        assert named[shard] == NOBODY or named[shard] != owner


@pytest.mark.parametrize(
    ("shares", "alive", "expected"),
    [
        ((1.0, 1.0, 1.0), (1, 1, 1), (0, 1, 2, 0, 1, 2)),
        ((1.0, 1.0, 1.0), (1, 0, 1), (0, 2, 2, 0, 0, 2)),  # a tie goes to the next in the ring
        ((1.0, 1 / 3, 1.0), (0, 1, 1), (2, 1, 2, 2, 1, 2)),  # 1 is full with its own two
        ((1 / 3, 1 / 3, 1 / 3), (1, 1, 0), (0, 1, -1, 0, 1, -1)),
        ((1.0, 1.0, 1.0), (0, 0, 0), (-1, -1, -1, -1, -1, -1)),
        ((0.1, 1.0, 1.0), (1, 1, 1), (1, 1, 2, 2, 1, 2)),  # too large for 0, which is alive
    ],
)
def test_owners_of_six_equal_shards(
    shares: tuple[float, ...], alive: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    crowd = [Candidate(n, share, bool(alive[n])) for n, share in enumerate(shares)]
    assert assign([7] * 6, crowd) == expected


def test_limits_are_met_exactly_whatever_floating_point_makes_of_them() -> None:
    assert assign([7] * 3, [Candidate(0, 2 / 3), Candidate(1, 1 / 3)]) == (0, 1, 0)
    assert 0.29 * 100 < 29
    assert assign([1] * 100, [Candidate(0, 0.29), Candidate(1, 0.71)]).count(0) == 29


def test_more_candidates_than_shards_stand_by() -> None:
    crowd = [Candidate(n) for n in (5, 9, 2, 30)]
    assert assign([10, 10], crowd) == (2, 5)
    assert heirs([10, 10], crowd) == (9, 9)
    assert assign([10, 10], []) == (NOBODY, NOBODY)
