"""Sums on a common grid in simulated worlds: units follow, wraps are withheld, bugs are seen."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from eris.core.vectors import Vector
from eris.protocol.agreement import Key
from eris.protocol.messages import Snapshot
from eris.protocol.round.replica import Replica
from eris.protocol.schemes.grid import GridCoding
from eris.protocol.secure.sums import MaskedSum
from eris.testing.shape import Shape
from eris.testing.weather import Trouble
from eris.testing.world import World
from support.bugs import catch, opened_unchecked

SHAPE = Shape(members=6, shards=3, rounds=8, min_included=4, kept=1.0, secure="2 of 3", bits=12)
KINDS = frozenset(Trouble) - {Trouble.POISON}


def test_every_width_is_among_the_worlds() -> None:
    found = Counter(Shape.secured(seed).bits for seed in range(100))
    assert {*found} == {0, 8, 10, 12, 16}
    assert found[0] > 50


@pytest.mark.parametrize("bits", [8, 12])
def test_the_laws_hold_whatever_fails(bits: int) -> None:
    saw: Counter[str] = Counter()
    for seed in range(3):
        shape = replace(Shape.secured(seed), bits=bits, ring_bytes=8, kept=1.0)
        world = World(seed, shape=shape, kinds=KINDS)
        world.run()
        saw.update(world.witness.saw)
    assert saw["a sum is opened"] > 30
    assert saw["a unit steps back"] > 5
    assert saw["a unit follows the mean"] > 5
    assert saw["a snapshot is sent"] > 5


def test_members_that_come_back_go_on_in_the_unit_that_holds() -> None:
    kinds = frozenset({Trouble.CRASH, Trouble.LOSS, Trouble.LEAVE})
    world = World(3, shape=SHAPE, kinds=kinds)
    world.run()
    assert world.witness.saw["a unit follows the mean"] > 3
    assert sum(world.weather.struck.values())


# -- bugs -----------------------------------------------------------------------------------------


def test_a_wrapped_sum_that_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MaskedSum, "opened", opened_unchecked)
    catch(monkeypatch, "whose check words do not fit", shape=SHAPE)


def test_an_owner_that_does_not_step_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def stays(self: GridCoding, exponent: int, round: int) -> int:
        return exponent

    monkeypatch.setattr(GridCoding, "exponent_after_wrap", stays)
    catch(monkeypatch, "keeps its unit, but its sum did not fit", shape=SHAPE)


def test_an_owner_that_steps_back_where_nothing_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    def always(self: GridCoding, mean: Vector, round: int) -> int:
        return self.first_exponent(round) - 3

    monkeypatch.setattr(GridCoding, "next_exponent", always)
    catch(monkeypatch, "names the exponent", shape=SHAPE)


def test_a_snapshot_without_the_exponent(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Replica.snapshot

    def bare(self: Replica, key: Key, sender: int) -> Snapshot:
        return replace(whole(self, key, sender), exponent=0)

    monkeypatch.setattr(Replica, "snapshot", bare)
    catch(monkeypatch, "", Trouble.CRASH, Trouble.LOSS, shape=SHAPE)
