"""Limits of secure sums: the table of their design, hand-worked members, and what must hold."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eris.core.errors import InvalidSetting
from eris.core.ring import RING_BYTES
from eris.protocol.secure.escrow import Root, seal
from eris.protocol.secure.labels import ShardRound
from eris.protocol.secure.seats import Threshold
from eris.theory.distribution_time import Links, eris_physical_limit
from eris.theory.secure_sums import (
    escrow_bytes,
    limit_seconds,
    link_loads,
    secagg_bound_seconds,
)

TWO_OF_THREE, THREE_OF_FOUR = Threshold(2, 3), Threshold(3, 4)
LINKS = Links.uniform(100e6 / 8)
MANY = 10**9
"""Coordinates beside which escrows are nothing."""


@pytest.mark.parametrize(
    ("clients", "aggregators", "threshold", "ratios"),
    [
        # Ratios of limits at 4, 5, 6 and 8 bytes a word, as the design's table prints them.
        (8, 8, TWO_OF_THREE, ("1.143", "1.304", "1.464", "1.786")),
        (8, 8, THREE_OF_FOUR, ("1.214", "1.393", "1.571", "1.929")),
        (8, 2, TWO_OF_THREE, ("1.25", "1.53", "1.81", "2.375")),
        (50, 50, TWO_OF_THREE, ("1.020", "1.151", "1.281", "1.541")),
    ],
)
def test_ratios_to_a_plain_round_are_those_of_the_design(
    clients: int, aggregators: int, threshold: Threshold, ratios: tuple[str, ...]
) -> None:
    plain = eris_physical_limit(4.0 * MANY, 4.0 * MANY, clients, aggregators, LINKS)
    for ring_bytes, printed in zip(RING_BYTES, ratios, strict=True):
        found = limit_seconds(MANY, clients, aggregators, LINKS, threshold, ring_bytes) / plain
        half_digit = 0.5 * 10 ** -len(printed.partition(".")[2])
        assert abs(found - float(printed)) <= half_digit * 1.001


def test_the_loads_of_two_owners_and_six_others_by_hand() -> None:
    # n = 1000, B = 8: an update has 8,000 bytes of words, a shard 4,000, its result 2,000.
    e, owners, others = 352, 2, 7
    loads = link_loads(1000, 8, 2, TWO_OF_THREE, 8)
    # Four answers for two shards, over eight members, and six seats likewise.
    answer, seats = 0.5 * 4000, 0.75
    passed_on = 3 * others * e
    assert loads[0] == pytest.approx((
        4000 + 7 * 2000 + answer + 1 * e + passed_on,
        7 * 4000 + 2000 + 2 * 4000 + others * e + seats * others * e,
    ))  # fmt: skip
    assert loads[7] == pytest.approx((8000 + answer + owners * e, 4000 + seats * others * e))


@settings(max_examples=50)
@given(
    parameters=st.integers(1, 10**8),
    clients=st.integers(5, 60),
    threshold=st.sampled_from([TWO_OF_THREE, THREE_OF_FOUR, Threshold(2, 2)]),
    ring_bytes=st.sampled_from(RING_BYTES),
    data=st.data(),
)
def test_what_is_sent_is_received(
    parameters: int, clients: int, threshold: Threshold, ring_bytes: int, data: st.DataObject
) -> None:
    aggregators = data.draw(st.integers(1, clients))
    weights = data.draw(st.lists(st.integers(1, 9), min_size=aggregators, max_size=aggregators))
    shares = data.draw(st.sampled_from([None, [one / sum(weights) for one in weights]]))
    loads = link_loads(parameters, clients, aggregators, threshold, ring_bytes, shares=shares)
    sent, received = (math.fsum(load[way] for load in loads) for way in range(2))
    assert sent == pytest.approx(received)
    # Words of every client but a shard's owner, results to all others, and the answers.
    whole = (clients - 1) * (ring_bytes + 4) + threshold.need * ring_bytes
    escrows = aggregators * (clients - 1) * (1 + threshold.seats) * escrow_bytes(threshold)
    assert sent == pytest.approx(whole * parameters + escrows)


@pytest.mark.parametrize("threshold", [TWO_OF_THREE, THREE_OF_FOUR, Threshold(2, 2)])
def test_an_escrow_is_as_large_as_one_that_is_sealed(threshold: Threshold) -> None:
    place, helpers = ShardRound(1, 1, 1, 0), range(threshold.seats)
    seeds = Root(bytes(32)).seeds(place, threshold)
    keys = dict.fromkeys(helpers, bytes(32))
    made = seal(place, 9, tuple(helpers), bytes(16), seeds, keys, threshold)
    pieces = (made.model, *made.commitments, *made.boxes)
    assert escrow_bytes(threshold) == sum(len(piece) for piece in pieces)


def test_one_server_that_unmasks_needs_several_times_as_long() -> None:
    server = secagg_bound_seconds(10**7, 8, LINKS)
    assert server == pytest.approx(8 * 10**7 * (8 + 4) / 12.5e6)
    ours = {size: limit_seconds(10**7, 8, 8, LINKS, TWO_OF_THREE, size) for size in (4, 8)}
    assert server / ours[8] == pytest.approx(7.68, abs=0.01)
    assert server / ours[4] == pytest.approx(12.0, abs=0.01)
    words = secagg_bound_seconds(10**7, 8, LINKS, word_bytes=4)
    assert words == pytest.approx(2 / 3 * server)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"parameters": 0}, "parameters is 0; expected at least 1"),
        ({"clients": 3}, "clients is 3; expected at least 4 for 2 of 3"),
        ({"ring_bytes": 7}, "ring_bytes is 7; expected 4, 5, 6 or 8"),
        ({"aggregators": 9}, "aggregators is 9"),
    ],
)
def test_what_cannot_be_is_refused(wrong: dict[str, int], said: str) -> None:
    given = {"parameters": 1000, "clients": 8, "aggregators": 3, "ring_bytes": 8, **wrong}
    with pytest.raises(InvalidSetting, match=said):
        limit_seconds(**given, links=LINKS, threshold=TWO_OF_THREE)
