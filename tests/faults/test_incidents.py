"""Each kind of trouble alone, and incidents that are planned: what happens, and that it goes on.

What one can read message by message is in ``tests/scenes``.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from eris.protocol.messages import Result
from eris.protocol.schemes import Rotated
from eris.protocol.view import NOBODY
from eris.testing.shape import Shape
from eris.testing.weather import NEED_A_DIRECTORY, Incident, Trouble
from eris.testing.world import World

NONE: frozenset[Trouble] = frozenset()


def scene(shape: Shape, *incidents: tuple[Trouble, float, float, set[int]]) -> World:
    """A world in which nothing goes wrong but this."""
    planned = [Incident(kind, a, b, frozenset(hosts)) for kind, a, b, hosts in incidents]
    return World(1, shape=shape, kinds=NONE, incidents=planned)


def results_of(world: World, shard: int) -> list[Result]:
    """The results of a shard's first segment, by round."""
    found = [r for (key, _), r in world.witness.results.items() if key == (shard, 0)]
    return sorted(found, key=lambda result: result.header.round)


def rounds_with_results(world: World) -> set[int]:
    return {round for _, round in world.witness.results}


# -- one kind at a time -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", [kind for kind in Trouble if kind is not Trouble.REWIND])
@pytest.mark.parametrize("roster", [False, True])
def test_a_kind_of_trouble_alone_strikes_and_is_survived(kind: Trouble, roster: bool) -> None:
    shape = Shape(members=5, start_with=4, rounds=8, roster=roster)
    struck = 0
    for seed in range(6):
        world = World(seed, shape=shape, kinds=frozenset({kind}))
        world.run()
        struck += world.weather.struck[kind]
        assert set(world.weather.struck) <= {kind}
    assert (struck > 0) is not (roster and kind in NEED_A_DIRECTORY)


@pytest.mark.parametrize("roster", [False, True])
def test_in_fine_weather_everyone_is_in_every_result(roster: bool) -> None:
    world = World(2, shape=Shape(rounds=5, roster=roster), kinds=NONE)
    world.run()
    assert rounds_with_results(world) == {1, 2, 3, 4, 5}
    assert {result.included for result in world.witness.results.values()} == {
        frozenset(range(5)),
    }
    assert not world.faulted
    assert not world.weather.struck


def test_a_world_is_a_function_of_its_seed() -> None:
    one, other = (World(5), World(5))
    for world in (one, other):
        world.run()
    assert one.witness.results == other.witness.results
    assert (one.now, one.faulted, one.weather.struck) == (
        other.now,
        other.faulted,
        other.weather.struck,
    )
    different = World(6)
    different.run()
    assert different.witness.results != one.witness.results


# -- who comes and goes -----------------------------------------------------------------------


def test_a_newcomer_in_mid_training_is_soon_in_every_result() -> None:
    shape = Shape(members=5, start_with=3, rounds=30)
    world = World(3, shape=shape, kinds=frozenset({Trouble.LATE}))
    world.run()
    views = [scheduled.view for _, scheduled in sorted(world.witness.views.items())]
    assert [len(view.members) for view in (views[0], views[-1])] == [3, 5]
    first, last = results_of(world, 0)[0], results_of(world, 0)[-1]
    assert first.included == {0, 1, 2}
    assert last.included == {0, 1, 2, 3, 4}
    assert rounds_with_results(world) == set(range(1, 31)), "no round was lost over it"


def test_those_that_are_cut_off_publish_nothing() -> None:
    world = scene(Shape(members=5, shards=5, rounds=20), (Trouble.EXILE, 2.5, math.inf, {3, 4}))
    world.run()
    exiled = [host.member for host in world.hosts[3:]]
    for member in exiled:
        assert member is not None
        own = [r for r in world.witness.results.values() if r.header.sender == member.me]
        assert max(r.header.round for r in own) <= member.ownership.through
        assert member.round < 20
        # Alone they had no quorum, and what they have is what all had before.
        assert max(member.node.replica.versions.values()) <= member.round


def test_what_only_members_without_a_role_still_have_is_found_if_two_have_it() -> None:
    # Training is over when all clients lose their disks; the last hosts have no data and no shard.
    for helpers in (2, 1):
        shape = Shape(members=3 + helpers, helpers=helpers, shards=2, rounds=4)
        world = scene(shape, (Trouble.LOSS, 8.0, 8.5, {0, 1, 2}))
        world.run_until(7.9)
        helper = world.hosts[3].member
        assert helper is not None
        assert helper.me not in helper.agreement.view.roles
        learnt = helper.model.copy()
        assert set(helper.node.replica.versions.values()) == {4}
        world.run()
        for host in world.hosts[:3]:
            assert host.member is not None
            # One word is not enough: then they do not say that they are finished.
            assert host.member.finished is (helpers == 2)
            assert np.array_equal(host.member.model, learnt) is (helpers == 2)


# -- a shard waits, a quorum is missing -------------------------------------------------------


def test_a_shard_that_nobody_may_take_over_waits_and_goes_on() -> None:
    shape = Shape(members=4, shards=4, max_share=0.3, rounds=40)
    world = scene(shape, (Trouble.CRASH, 2.5, 9.0, {1}))
    world.run()
    (waiting,) = {v.view.owners.index(NOBODY) for v in world.witness.views.values()
                  if NOBODY in v.view.owners}  # fmt: skip
    rounds = [result.header.round for result in results_of(world, waiting)]
    gaps = [(a, b) for a, b in pairwise(rounds) if b - a > 1]
    ((before, after),) = gaps
    assert after - before > 4, "it waited"
    assert rounds[-1] == 40, "and went on"
    assert len({r.header.sender for r in results_of(world, waiting)}) == 1, "with its own owner"
    for shard in set(range(4)) - {waiting}:
        assert len(results_of(world, shard)) == 40, "the others did not wait for it"
    chain = results_of(world, waiting)
    assert all(b.previous == a.header.round for a, b in pairwise(chain))


@pytest.mark.parametrize("roster", [False, True])
def test_without_a_quorum_nothing_moves_and_nothing_is_burnt(roster: bool) -> None:
    shape = Shape(members=5, shards=5, rounds=20, roster=roster)
    world = scene(shape, (Trouble.CRASH, 3.0, 11.0, {0, 1, 2}))
    world.run_until(3.5)
    rounds, results = world_rounds(world), len(world.witness.results)
    models = [host.member.model.copy() for host in world.hosts if host.member is not None]
    for time in range(4, 11):
        world.run_until(float(time))
        assert world_rounds(world) == rounds
        assert len(world.witness.results) == results
    world.run()
    burnt = set(range(1, 21)) - rounds_with_results(world)
    assert len(burnt) <= 3, "at most the rounds in which the dead had permits"
    last = [result for (_, round), result in world.witness.results.items() if round == 20]
    assert len(last) == 5
    assert all(result.included == set(range(5)) for result in last)
    assert not np.array_equal(models[0], world.survivors[0].member.model)  # type: ignore[union-attr]


def world_rounds(world: World) -> list[int | None]:
    return [host.member.round if host.member is not None else None for host in world.hosts]


# -- a roster ---------------------------------------------------------------------------------


def test_with_a_roster_an_owner_that_comes_back_goes_on_with_its_shard() -> None:
    shape = Shape(members=5, shards=5, rounds=20, roster=True)
    world = scene(shape, (Trouble.CRASH, 2.5, 8.0, {1}))
    world.run()
    assert list(world.witness.views) == [1], "nobody takes a shard over"
    rounds = [result.header.round for result in results_of(world, 1)]
    assert rounds[-1] == 20
    assert 0 < len(set(range(1, 21)) - set(rounds)) < 10
    assert {result.header.sender for result in results_of(world, 1)} == {1}


def test_with_a_roster_the_shard_of_a_dead_owner_waits_and_the_others_go_on() -> None:
    shape = Shape(members=5, shards=5, rounds=10, roster=True)
    world = scene(shape, (Trouble.DEATH, 2.5, math.inf, {1}))
    world.run()
    assert results_of(world, 1)[-1].header.round < 10
    for shard in (0, 2, 3, 4):
        assert results_of(world, shard)[-1].header.round == 10


def test_with_a_roster_an_owner_without_its_disk_asks_the_others_where_they_are() -> None:
    # Nobody has noted for it what it published; a second result would be caught.
    shape = Shape(members=5, shards=5, rounds=12, roster=True, ordered=True)
    storm = frozenset({Trouble.DROP, Trouble.DUPLICATE, Trouble.DELAY, Trouble.SKEW})
    for seed in range(12):
        start = 1.5 + seed / 4
        loss = Incident(Trouble.LOSS, start, start + 0.3, frozenset({seed % 5}))
        world = World(seed, shape=shape, kinds=storm, incidents=[loss])
        world.run()
        again = world.hosts[seed % 5].member
        assert again is not None
        assert again.ownership.abstain_through > 0
        own = {
            r.header.round for r in world.witness.results.values() if r.header.sender == again.me
        }
        assert 12 in own, "it publishes again"


@pytest.mark.parametrize("roster", [False, True])
def test_all_stop_at_once_and_go_on(roster: bool) -> None:
    # Nobody may publish in the rounds in which somebody may have before; those are given up.
    shape = Shape(members=4, shards=3, rounds=20, roster=roster)
    world = scene(shape, (Trouble.CRASH, 3.0, 3.5, {0, 1, 2, 3}))
    world.run()
    assert world.witness.saw["an owner says that no result will come"] > 0
    assert 20 in rounds_with_results(world)
    assert len(set(range(1, 21)) - rounds_with_results(world)) <= 3


# -- training ---------------------------------------------------------------------------------


def test_a_client_that_failed_trains_again_if_nothing_comes_without_it() -> None:
    shape = Shape(members=3, min_included=3, rounds=6)
    failed = 0
    for seed in range(6):
        world = World(seed, shape=shape, kinds=frozenset({Trouble.FAILURE}))
        world.weather.failure = 0.3
        world.run()
        failed += world.weather.struck[Trouble.FAILURE]
        assert rounds_with_results(world) == set(range(1, 7))
    assert failed > 6


@pytest.mark.parametrize("seed", range(12))
def test_the_laws_hold_where_masks_act_in_a_rotated_basis(seed: int) -> None:
    """256 places of few coordinates, in pieces that have none, one or several kept values."""
    drawn = Shape.drawn(seed)
    world = World(seed, shape=replace(drawn, kept=0.02, adaptive=False, segment_size=40))
    assert isinstance(world.settings.scheme, Rotated)
    world.run()
