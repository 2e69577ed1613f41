"""What a review of secure sums found, in simulated worlds: with every rule, and without it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from eris.protocol.agreement import Key
from eris.protocol.authority.standing import Standing
from eris.protocol.round.aggregator import Aggregator
from eris.protocol.round.giving import Giving, Job
from eris.protocol.round.helping import Helping
from eris.protocol.round.member import Member
from eris.protocol.round.ownership import Ownership
from eris.protocol.round.replica import Replica
from eris.protocol.secure import sending
from eris.protocol.secure.collecting import SecureDesk
from eris.protocol.secure.helper import Helper
from eris.protocol.secure.labels import digest
from eris.protocol.secure.sending import SecureSender
from eris.protocol.secure.sums import Statement
from eris.protocol.secure.wire import LACKING, read_verdicts
from eris.protocol.view import View
from eris.testing.shape import Shape
from eris.testing.weather import Incident, Trouble
from eris.testing.world import World
from support.bugs import catch

NONE: frozenset[Trouble] = frozenset()
SHAPE = Shape(members=6, shards=3, rounds=6, min_included=4, kept=1.0, secure="2 of 3")
COME_AND_GO = (Trouble.CRASH, Trouble.LEAVE, Trouble.DROP, Trouble.DELAY, Trouble.OUTAGE)


# -- 8.2 --------------------------------------------------------------------------------------


def test_a_client_that_sends_a_round_again_under_the_next_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Restarts are among the troubles: after one it abstains from what it may have sent."""

    def to_whoever_asks(self: SecureSender, round: int, shard: int) -> bool:
        view = self.agreement.view_at(round)
        return view.seating is not None and self._keys(view) is not None

    def bind_anew(self: SecureSender, *about: Any) -> Any:
        training, view = self.training, self.agreement.view_at(about[2])
        if training is not None and training.round == about[2] and training.view != view:
            samples, steps = training.samples, training.steps
            self._bind(about[2], training.states)
            self.training.samples, self.training.steps = samples, steps  # type: ignore[union-attr]
        return payload(self, *about)

    def without_permit(self: Ownership, round: int) -> bool:
        return not self.abstains(round)

    def opens_with_one(self: Ownership, round: int) -> bool:
        """An owner's results without a permit are another law's."""
        return permits(self, round) and may_open(self, round)

    payload, permits, may_open = SecureSender.payload, Ownership.permits, Ownership._may_open
    monkeypatch.setattr(SecureSender, "gives", to_whoever_asks)
    monkeypatch.setattr(SecureSender, "payload", bind_anew)
    monkeypatch.setattr(Ownership, "permits", without_permit)
    monkeypatch.setattr(Ownership, "_may_open", opens_with_one)
    law = "contributed in epochs|two trainings"
    catch(monkeypatch, law, *COME_AND_GO, Trouble.DEATH, most=60, shape=SHAPE)


# -- 8.3 and 8.10 -----------------------------------------------------------------------------


def test_a_client_that_encodes_at_the_time_of_sending(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its model and versions would be those of the replica, which moves while segments leave."""
    train, payload = Giving.train, SecureSender.payload

    def from_whatever_comes(self: Giving) -> Job:
        job = train(self)
        self._trained_from = self._node.replica.versions  # the same object, not a copy
        return job

    def bound_now(self: SecureSender, *about: Any) -> Any:
        assert self.training is not None
        self.training.escrows.pop(about[1].shard, None)
        self.training.model = sending.model_name(
            self.agreement, self.training.view, sending.states_of(self.agreement, REPLICAS[self.me])
        )
        return payload(self, *about)

    bind = SecureSender.bind

    def noted(self: SecureSender, round: int, replica: Any) -> None:
        REPLICAS[self.me] = replica
        bind(self, round, replica)

    monkeypatch.setattr(Giving, "train", from_whatever_comes)
    monkeypatch.setattr(SecureSender, "bind", noted)
    monkeypatch.setattr(SecureSender, "payload", bound_now)
    law = "contributed two contents|contributes of two trainings|is not the mean"
    shape = replace(SHAPE, segment_size=4, rounds=10)
    catch(monkeypatch, law, Trouble.DROP, Trouble.DELAY, Trouble.CRASH, most=20, shape=shape)


REPLICAS: dict[int, Any] = {}


# -- 8.5 --------------------------------------------------------------------------------------


@pytest.mark.parametrize("waits", [False, True])
def test_where_no_model_has_clients_enough_a_round_is_withheld(
    waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody trains twice in a round, so a wait for enough clients of one model never ends."""

    def of_its_own(agreement: Any, replica: Replica) -> bytes:
        return digest(id(replica).to_bytes(8, "little"))

    def of_one_model(self: Aggregator, key: Key) -> bool:
        state = self._open.get(key)
        return state is not None and len(state.collector.included) >= self._enough

    monkeypatch.setattr(sending, "states_of", of_its_own)
    if waits:
        monkeypatch.setattr(Aggregator, "_may_close", of_one_model)
    world = World(3, shape=SHAPE, kinds=NONE)
    world.run_until(12.0)
    reached = {host.member.round for host in world.hosts if host.member is not None}
    assert all(result.payload is None for result in world.witness.results.values())
    assert reached == ({1} if waits else {7})


@pytest.mark.parametrize("secure", ["2 of 3", "3 of 4"])
def test_with_a_liar_among_them_every_round_of_the_honest_ends(secure: str) -> None:
    """In a result, or withheld: never in waiting."""
    lie = [Incident(Trouble.LIE, 0.0, 12.0, frozenset({2}))]
    world = World(7, shape=replace(SHAPE, secure=secure, shards=6), kinds=NONE, incidents=lie)
    world.run()
    assert world.witness.saw["an owner asks for a sum that it may not have"] > 10
    assert world.witness.saw["a second content is sent"] > 10
    liar = world.hosts[2].member
    assert liar is not None
    ended = 0
    for scheduled in world.witness.views.values():
        view: View = scheduled.view
        for key in liar.agreement.keys:
            if view.owners[key[0]] != liar.me:
                found = [world.witness.results.get((key, round)) for round in range(1, 7)]
                assert None not in found, "a round of an honest owner has ended"
                ended += sum(one is not None and one.payload is not None for one in found)
    assert ended > 0


# -- 8.9 --------------------------------------------------------------------------------------


def secrets(member: Member) -> Iterator[bytes]:
    """All that would open something: keys, roots, seeds, and what is masked."""
    sender, helping = member.node.client.sender, member.node.helping
    assert isinstance(sender, SecureSender)
    assert isinstance(helping, Helping)
    raw = (Encoding.Raw, PrivateFormat.Raw, NoEncryption())
    for keys in sender._vault._keys:
        yield from (keys.exchange.private_bytes(*raw), keys.signing.private_bytes(*raw))
        yield keys.process_secret
    if sender.training is not None:
        yield sender.training.root.secret
        for seeds, _ in sender.training.escrows.values():
            yield from seeds.values()
    for escrows in helping.helper._seeds.values():
        for _, seeds in escrows.values():
            yield from seeds.values()
    dispatch = member.giving.dispatch
    for piece in dispatch.prepared.pieces.values() if dispatch is not None else ():
        yield piece.tobytes()


def written(member: Member) -> bytes:
    return b"".join(np.ascontiguousarray(value).tobytes() for value in member.state().values())


def test_a_disk_image_after_any_step_of_a_round_holds_nothing_that_opens_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stolen() -> tuple[int, int]:
        world, looked, found = World(3, shape=SHAPE, kinds=NONE), 0, 0
        while world.now < 2.6:  # two rounds
            world.step()
            for host in world.hosts:
                if host.member is not None and host.disk is not None:
                    image = b"".join(value.tobytes() for value in host.disk.values())
                    image += written(host.member)
                    hits = [secret for secret in secrets(host.member) if secret in image]
                    looked, found = looked + 1, found + len(hits)
        return looked, found

    looked, found = stolen()
    assert looked > 500
    assert found == 0

    def with_its_root(self: SecureSender) -> dict[str, Any]:
        root = b"" if self.training is None else self.training.root.secret
        return {"root": np.frombuffer(root, np.uint8)}

    monkeypatch.setattr(SecureSender, "state", with_its_root)
    assert stolen()[1] > 100, "a root in the checkpoint"


# -- 8.11 -------------------------------------------------------------------------------------


def test_sample_counts_follow_from_enough_different_sets() -> None:
    """What is opened says its sum of samples: over a run they are no secret, noise or not."""
    world = World(13, shape=replace(SHAPE, rounds=14), kinds=frozenset({Trouble.FAILURE,
                  Trouble.SLOW, Trouble.DROP, Trouble.CRASH}))  # fmt: skip
    world.run()
    opened = [result for result in world.witness.results.values() if result.payload is not None]
    sets = np.array([[k in result.included for k in range(6)] for result in opened], float)
    solved, _, rank, _ = np.linalg.lstsq(sets, np.array([r.samples for r in opened], float))
    assert rank == 6
    numbers = {host.member.me: host.number for host in world.hosts if host.member}
    assert np.allclose(solved, [3 ** numbers[k] for k in range(6)])


# -- 8.13 -------------------------------------------------------------------------------------


class Deceived(Member):
    """Member 4 is shown other helpers at one shard than all others."""

    def __init__(self, settings: Any, standing: Standing, *given: Any, **more: Any) -> None:
        super().__init__(settings, shown(standing), *given, **more)

    def stand(self, standing: Standing, now: float) -> Any:
        return super().stand(shown(standing), now)


def shown(standing: Standing) -> Standing:
    if standing.me != 4:
        return standing

    def friends(view: View) -> View:
        seating = view.seating
        assert seating is not None
        first = tuple(reversed(seating.helpers[0]))
        return replace(view, seating=replace(seating, helpers=(first, *seating.helpers[1:])))

    views = tuple(replace(one, view=friends(one.view)) for one in standing.views)
    return replace(standing, views=views)


@pytest.mark.parametrize("bound", [True, False])
def test_a_client_that_is_shown_a_view_of_its_own_is_in_no_sum(
    bound: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not bound:  # were the view not in the model's name

        def of_states(agreement: Any, view: View, states: bytes) -> bytes:
            return states[:16]

        monkeypatch.setattr(sending, "model_name", of_states)
    world = World(3, shape=SHAPE, kinds=NONE, member=Deceived)
    while world.now < 5.0:
        world.step()
    opened = [r for (key, _), r in world.witness.results.items() if key[0] != 0 and r.payload]
    assert len(opened) > 4
    assert any(4 in result.included for result in opened) is not bound
    host = next(host for host in world.hosts if host.member and host.member.me == 4)
    assert host.member is not None
    if bound:
        assert host.member.node.client.left_out, "and it knows"


# -- an escrow that a helper lacks ------------------------------------------------------------


@pytest.mark.parametrize("again", [True, False])
def test_a_helper_that_lacks_an_escrow_is_offered_it_again(
    again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are asked first have lost the seeds of one client."""
    answer, asked = Helper.answer, Counter[bytes]()

    def losing(self: Helper, statement: Statement, *about: Any, **more: Any) -> Any:
        asked[statement.digest] += 1
        if asked[statement.digest] <= self.terms.threshold.need:
            self._seeds.pop((statement.shape.place, statement.included[0].client), None)
        return answer(self, statement, *about, **more)

    monkeypatch.setattr(Helper, "answer", losing)
    if not again:
        said = SecureDesk.said

        def deaf(self: SecureDesk, round: int, shard: int, member: int, data: bytes) -> bool:
            lacking = data[:1] == b"\x01" and LACKING in read_verdicts(data).values()
            return True if lacking else said(self, round, shard, member, data)

        monkeypatch.setattr(SecureDesk, "said", deaf)
    world = World(3, shape=SHAPE, kinds=NONE)
    world.run_until(8.0)
    withheld = sum(result.payload is None for result in world.witness.results.values())
    assert (withheld == 0) is again
