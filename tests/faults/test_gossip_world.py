"""Federations whose members gossip, under all kinds of trouble: whatever fails, the laws hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from eris.core.mixing import add_difference
from eris.core.vectors import Vector
from eris.methods.method import GossipComposition
from eris.protocol.gossip import mixing
from eris.protocol.gossip.accumulating import AccumulatingPeer
from eris.protocol.gossip.member import GossipMember
from eris.protocol.gossip.mixing import MixingPeer
from eris.protocol.messages import Outgoing, Share
from eris.protocol.transcript import Record
from eris.runtimes.station import Stations
from eris.runtimes.swarm import Swarm
from eris.testing import LawBroken
from eris.testing.gossip_world import METHODS, GossipWorld
from eris.testing.shape import Shape
from eris.testing.soak import OPEN, run_seeds
from eris.testing.weather import FORGETTING, Trouble
from eris.training.population import Trainers
from eris.training.trainer import LocalUpdate

CIRCUMSTANCES = [
    "a catchup is sent",
    "a member comes back",
    "a refusal is sent",
    "a round is calm",
    "a share comes again",
    "a share comes early",
    "a share comes too late",
    "a share is missing at its deadline",
    "the directory refuses somebody",
]
NONE: frozenset[Trouble] = frozenset()
First = dict[tuple[int, int, int, int], tuple[tuple[int, ...], bytes]]


@pytest.mark.parametrize("first", [0, 30])
def test_the_laws_hold_in_worlds_of_trouble(first: int) -> None:
    tally = run_seeds(first, first + 29, "gossip")
    assert tally.findings == {}
    assert [kind for kind in OPEN if not tally.struck[kind]] == []
    assert [what for what in CIRCUMSTANCES if not tally.saw[what]] == []
    assert tally.faulted > 200


# -- where nothing fails, members say and hold what members in step do ----------------------------


class Recorded(GossipWorld):
    """A world that keeps what was said."""

    def said(self, member: GossipMember, record: Record, message: Any) -> None:
        self.records = [*getattr(self, "records", []), record]
        super().said(member, record, message)


class Host:
    """What a host of the world trains, as a trainer."""

    def __init__(self, world: GossipWorld, number: int) -> None:
        self._world, self._number = world, number

    def update(self, parameters: Vector, round: int) -> LocalUpdate:
        return LocalUpdate(self._world.update(self._number, parameters, round), samples=1)


def first_sent(records: Sequence[Record]) -> First:
    """By sender, round and segment: to whom a share went when it was first sent, and its bytes."""
    sent: First = {}
    for record in records:
        if isinstance(share := record.message, Share):
            place = (record.sender, share.header.round, *share.header.key)
            sent.setdefault(place, (record.receivers, record.data))
    return sent


def in_step(world: GossipWorld, order: Sequence[int], epoch: int) -> tuple[Swarm, First]:
    """The same federation, moved in step; ``order`` has the host behind each member."""
    settings = world.settings.in_view(len(order), epoch)
    nodes = world.nodes(settings)
    clients = tuple(range(len(order)))
    names = tuple(world.shape.name(host) for host in order)
    composition = GossipComposition(names, clients, clients, nodes.phases, settings, nodes.build)
    trainers = Trainers([Host(world, host) for host in order])
    swarm = Swarm(composition, world.initial, trainers, record=True)
    engine = Stations([swarm])
    rounds = range(1, world.shape.rounds + 1)
    return swarm, first_sent([one for round in rounds for one in engine.run_round(round).records])


@pytest.mark.parametrize("roster", [False, True])
@pytest.mark.parametrize(
    "method", sorted(METHODS.keys() - {"shatter"})
)  # see test_carried_world.py
def test_without_trouble_members_are_those_of_the_swarm(method: str, roster: bool) -> None:
    shape = Shape(members=6, rounds=5, roster=roster, gossip=method, ordered=roster)
    world = Recorded(4, shape=shape, kinds=NONE)
    world.run()
    seats = [world.seats[number] for number in sorted(world.seats)]
    members = [seat.member for seat in seats if seat.member is not None]
    swarm, expected = in_step(world, [seat.number for seat in seats], members[0].view.epoch)
    assert first_sent(world.records) == expected
    for number, member in enumerate(members):
        assert member.model.tobytes() == swarm.peers[number].model.tobytes()


@pytest.mark.parametrize("method", ["d-psgd", "muffliato"])
def test_mixing_keeps_the_mean_of_all_models(method: str) -> None:
    world = GossipWorld(4, shape=Shape(members=5, rounds=4, gossip=method), kinds=NONE)
    world.update = lambda host, model, round: np.full_like(model, 10.0 if round == 1 else 0)  # type: ignore[method-assign]
    world.run()
    members = [host.member for host in world.hosts if host.member is not None]
    mean = np.mean([member.model for member in members], axis=0, dtype=np.float64)
    spread = 0.0 if method == "d-psgd" else 4 * 5 * 0.01
    assert np.allclose(mean, world.initial - 1.0, atol=1e-5 + spread)


# -- bugs put in on purpose are caught -------------------------------------------------------------


class Forgetful(GossipMember):
    """Throws away what comes before its round."""

    def _keep_early(self, share: Share, source: int) -> None:
        pass


class Lenient(GossipMember):
    """Takes what is late for what it waits for."""

    def _hear(self, share: Share, source: int) -> None:
        if share.header.round == self.round - 1:
            share = replace(share, header=replace(share.header, round=self.round))
        super()._hear(share, source)


class Hasty(GossipMember):
    """Sends where it may have sent before."""

    def start(self, now: float) -> list[Outgoing]:
        return self._enter(self.round + 1, now)


class Unpermitted(GossipMember):
    """Waits for no permit."""

    def _enter(self, round: int, now: float) -> list[Outgoing]:
        self.through = 1 << 30
        return super()._enter(round, now)


class Patient(GossipMember):
    """Has no deadline."""

    def tick(self, now: float) -> list[Outgoing]:
        self._deadline = float("inf")
        return super().tick(now)


class Lonely(GossipMember):
    """Draws its graph over everybody, whoever is there."""

    def _sit(self) -> None:
        views = self.agreement._views
        self.agreement._views = tuple(
            replace(one, view=replace(one.view, clients=tuple(range(len(one.view.members)))))
            for one in views
        )
        super()._sit()
        self.agreement._views = views


class Hoarding(GossipMember):
    """Keeps whatever comes early."""

    def _keep_early(self, share: Share, source: int) -> None:
        key = (share.header.round, *share.header.key)
        self._early.setdefault(source, {})[key] = share


def broken(seeds: range, laws: str, member: type[GossipMember] = GossipMember) -> bool:
    """Whether one of some worlds breaks one of some laws, which are parted by bars."""
    for seed in seeds:
        kinds = OPEN - {*FORGETTING}
        world = GossipWorld(seed, shape=Shape.gossiping(seed), kinds=kinds, member=member)
        try:
            world.run()
        except LawBroken as found:
            if any(law in str(found) for law in laws.split("|")):
                return True
    return False


@pytest.mark.parametrize(
    ("bug", "law"),
    [
        (Forgetful, "off what it sent, heard and trained|mixed without"),
        (Lenient, "off what it sent, heard and trained"),
        (Hasty, "sent without a permit|enters round"),
        (Unpermitted, "sent without a permit"),
        (Patient, "no progress"),
        (Lonely, "no neighbours"),
        (Hoarding, "keeps too much"),
    ],
)
def test_a_bug_in_a_member_is_found(bug: type[GossipMember], law: str) -> None:
    assert broken(range(100, 108), law, bug)


def test_weights_of_those_who_are_missing_that_others_get(monkeypatch: pytest.MonkeyPatch) -> None:
    turn = MixingPeer.turn

    def spread(self: MixingPeer, phase: int) -> list[Outgoing]:
        here = len(self._turns.sources(phase))
        wanted = here + len(self.awaited(phase))
        with monkeypatch.context() as patch:
            pace = self.mixing.pace * wanted / max(1, here)
            patch.setattr(self, "mixing", replace(self.mixing, pace=pace))
            return turn(self, phase)

    monkeypatch.setattr(MixingPeer, "turn", spread)
    assert broken(range(100, 108), "off what it sent")


def test_a_share_that_counts_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        mixing, "add_difference", lambda *given: [add_difference(*given), add_difference(*given)]
    )
    assert broken(range(100, 103), "off what it sent")


def test_increments_that_are_told_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    send = AccumulatingPeer._send

    def keeping(self: AccumulatingPeer, row: int) -> Outgoing:
        before = self._unsent.copy()
        out = send(self, row)
        self._unsent = before
        return out

    monkeypatch.setattr(AccumulatingPeer, "_send", keeping)
    assert broken(range(100, 113, 6), "told of updates that it knows")


def test_what_was_kept_for_others_is_not_sent_again_after_a_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    restore = GossipMember.restore

    def trusting(self: GossipMember, state: Any) -> None:
        restore(self, state)
        self._kept = tuple(state["clients"].tolist()), self._kept[1]

    monkeypatch.setattr(GossipMember, "restore", trusting)
    assert broken(range(4, 100, 6), "told of updates that it knows")
