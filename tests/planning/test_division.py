"""Who owns how much: against all subsets, against a linear program, and what must always hold."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from eris.planning.division import AS_FAST, Division, Loads, equal, rates, weighted
from eris.protocol.authority.seating import seated
from eris.protocol.secure.seats import Threshold
from eris.theory.distribution_time import Links
from eris.theory.secure_sums import escrow_bytes

THRESHOLDS = st.sampled_from([None, Threshold(2, 3), Threshold(3, 4)])
SPEEDS = st.sampled_from([1e5, 3e5, 1e6, 2e6, 1e7])
MANY = 10**7
"""Coordinates beside which escrows are nothing."""


@st.composite
def cases(draw: st.DrawFn, most: int) -> tuple[Loads, Links]:
    clients = draw(st.integers(5, most))
    up, down = (draw(st.lists(SPEEDS, min_size=clients, max_size=clients)) for _ in range(2))
    return Loads(clients, MANY, draw(THRESHOLDS)), Links(up=up, down=down)


def best_of_all_subsets(loads: Loads, links: Links) -> float:
    everyone = range(loads.clients)
    return min(
        Division(owners, (1 / count,) * count).limit(loads, links)
        for count in range(1, loads.clients + 1)
        for owners in combinations(everyone, count)
    )


@settings(max_examples=25)
@given(cases(most=7))
def test_no_set_of_owners_with_equal_shards_is_faster(case: tuple[Loads, Links]) -> None:
    loads, links = case
    found = equal(loads, links)
    assert found is not None
    assert found.limit(loads, links) <= best_of_all_subsets(loads, links) * (AS_FAST + 1e-3)


def least_seconds(loads: Loads, links: Links, largest: float) -> float:
    """The linear program: T such that loads of shares s fit, Σs = 1, 0 ≤ s ≤ largest."""
    rows, bounds = [], []
    for rate, (fixed, more) in zip(rates(links, loads.clients), loads.lines(), strict=True):
        for member, one in enumerate(rate / 1e6):
            row = np.zeros(loads.clients + 1)
            row[member], row[-1] = more / 1e6, -one
            rows.append(row)
            bounds.append(-fixed / 1e6)
    whole = np.ones(loads.clients + 1)
    whole[-1] = 0
    solved = linprog(
        [0] * loads.clients + [1], A_ub=np.array(rows), b_ub=bounds, A_eq=whole[None], b_eq=[1],
        bounds=[(0, largest)] * loads.clients + [(0, None)],
    )  # fmt: skip
    assert solved.status == 0
    return float(solved.x[-1])


@settings(max_examples=25)
@given(cases(most=12), st.sampled_from([1.0, 1.5, 2.0, 4.0]))
def test_water_filling_is_the_linear_program(case: tuple[Loads, Links], even: float) -> None:
    loads, links = case
    largest = min(1.0, even / loads.clients)
    found = weighted(loads, links, largest=largest)
    assert found is not None
    assert sum(found.shares) == pytest.approx(1)
    assert max(found.shares) <= largest * (1 + 1e-6)
    least = least_seconds(loads, links, largest)
    # Who would own very little owns nothing, which may cost the others a little more.
    assert least * (1 - 1e-6) <= found.limit(loads, links) <= least * 1.2 * AS_FAST


@settings(max_examples=25)
@given(cases(most=12))
def test_at_its_time_no_smaller_largest_share_would_do(case: tuple[Loads, Links]) -> None:
    loads, links = case
    found = weighted(loads, links)
    assert found is not None
    seconds = found.limit(loads, links)
    carried = np.clip(loads.carried(links, seconds), 0, 0.9 * max(found.shares))
    owners = list(found.owners)
    assert carried[owners].sum() < 1


def test_equal_links_have_equal_shares_and_the_limit_of_an_all_reduce() -> None:
    loads, links = Loads(8, MANY), Links.uniform(12.5e6)
    for found in (equal(loads, links), weighted(loads, links)):
        assert found is not None
        assert found.shares == pytest.approx([1 / 8] * 8)
        assert found.limit(loads, links) == pytest.approx(5.6)


def test_a_slow_member_owns_nothing_and_a_lid_costs_time() -> None:
    speeds = [1e6, 8e6, 8e6, 8e6, 16e6, 32e6]
    loads, links = Loads(6, MANY), Links(up=speeds, down=speeds)
    free, lidded = weighted(loads, links), weighted(loads, links, largest=0.2)
    assert free is not None
    assert lidded is not None
    assert 0 not in free.owners
    assert max(lidded.shares) <= 0.2 + 1e-9 < max(weighted_by_speed(loads, links).shares)
    assert weighted(loads, links, largest=0.16) is None
    assert equal(loads, links, largest=0.16) is None


def weighted_by_speed(loads: Loads, links: Links) -> Division:
    up, _ = rates(links, loads.clients)
    return Division(tuple(range(loads.clients)), tuple(float(one) for one in up / up.sum()))


def test_thousands_of_members_are_divided() -> None:
    speeds = [1e6 * (1 + number % 7) for number in range(3000)]
    loads, links = Loads(3000, MANY), Links(up=speeds, down=speeds)
    for found in (equal(loads, links), weighted(loads, links, largest=2 / 3000)):
        assert found is not None
        assert sum(found.shares) == pytest.approx(1)


@given(clients=st.integers(6, 40), data=st.data())
def test_a_member_is_counted_with_the_most_seats_that_a_directory_gives_it(
    clients: int, data: st.DataObject
) -> None:
    threshold = data.draw(st.sampled_from([Threshold(2, 3), Threshold(3, 4), Threshold(5, 5)]))
    owners = data.draw(st.permutations(range(clients)))[: data.draw(st.integers(1, clients))]
    seats = seated(owners, {member: str(member) for member in range(clients)}, threshold.seats)
    held = Counter(member for line in seats for member in line)
    counted = Loads(clients, 100, threshold).most_seats(len(owners))
    assert sum(held.values()) == len(owners) * threshold.seats
    # As evenly as can be; now and then who is left for the last shard owns it, and another has one
    # more.
    assert counted <= max(held.values()) <= counted + 1


def test_seats_that_are_not_even_are_on_the_link_of_whoever_has_most() -> None:
    loads, escrow = Loads(8, 3000, Threshold(2, 3)), escrow_bytes(Threshold(2, 3))
    up, _ = loads.of((1 / 6,) * 6)[7]  # owns nothing, and holds three of 18 seats
    # Its update, answers for a sixth of the model two times in three, an escrow for every owner.
    assert up == pytest.approx(8 * 3000 + 3 * (2 / 3) * 8 * 500 + 6 * escrow)
    assert loads.most_seats(8) == 3  # of 24
