"""Bugs put into the logic of a node or of the directory on purpose are caught in simulated worlds.

Each says which law catches it. A world without the bug passes (``test_world.py``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from eris.protocol.agreement import Agreement, Key
from eris.protocol.authority.directory import Directory
from eris.protocol.authority.standing import Standing
from eris.protocol.messages import Contribution, Message, Outgoing, Payload, Result, Snapshot
from eris.protocol.round.aggregator import Aggregator
from eris.protocol.round.client import Client, Prepared
from eris.protocol.round.ending import Phase
from eris.protocol.round.evidence import Evidence
from eris.protocol.round.member import Member
from eris.protocol.round.ownership import Ownership
from eris.protocol.round.replica import Replica
from eris.protocol.round.roles import Node
from eris.protocol.schemes import Collector
from eris.testing import LawBroken
from eris.testing.found import kept
from eris.testing.shape import Shape
from eris.testing.weather import Incident, Trouble, Weather
from eris.testing.world import World
from support.bugs import Hasty, catch

# -- fencing ----------------------------------------------------------------------------------


class Presumptuous(Member):
    """Publishes whatever it is not permitted to."""

    def stand(self, standing: Standing, now: float) -> list[Outgoing]:
        return super().stand(replace(standing, through=2**31), now)


def test_owners_without_permits_and_no_fencing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caught by: nobody publishes without a permit; a result is of its round's epoch."""
    check = Node._check

    def check_all_but_the_epoch(self: Node, message: Message, source: int) -> None:
        header = replace(message.header, epoch=self.agreement.view_at(message.header.round).epoch)
        check(self, replace(message, header=header), source)

    monkeypatch.setattr(Node, "_check", check_all_but_the_epoch)
    law = "published without a permit|but the round belongs to"
    catch(monkeypatch, law, Trouble.OUTAGE, Trouble.DROP, member=Presumptuous)


def test_a_second_owner_in_a_round_after_a_takeover(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caught by: a result is of its round's epoch, for each round belongs to one."""
    law = "but the round belongs to|has two results|names a client that is not in the view"
    kinds = (Trouble.ONE_WAY, Trouble.PARTITION, Trouble.DELAY)
    shape = Shape(members=6, start_with=4, shards=4, rounds=15)
    catch(monkeypatch, law, *kinds, most=30, shape=shape, directory=Hasty)


class Forgetful(Member):
    """Does not remember, after a restart, that it may have published before."""

    def __init__(self, *agreed: Any, **options: Any) -> None:
        super().__init__(*agreed, **{**options, "abstain_through": 0})
        # Else it would not believe what others tell it of its own results either.
        self.evidence.abstains = options["abstain_through"]


@pytest.mark.parametrize("roster", [False, True])
def test_a_restarted_owner_that_does_not_abstain(
    monkeypatch: pytest.MonkeyPatch, roster: bool
) -> None:
    """Caught by: nobody publishes, or contributes, where it may have before it restarted."""
    law = "in a round in which it may have before it restarted|has two results|two contents"
    shape = Shape(roster=roster, rounds=10)
    catch(monkeypatch, law, Trouble.CRASH, shape=shape, member=Forgetful)


# -- counting ---------------------------------------------------------------------------------


class Unmindful(set[int]):
    """A set that does not know what it holds."""

    def __contains__(self, member: object) -> bool:
        return False


def count_twice(patch: pytest.MonkeyPatch) -> None:
    """An owner counts whatever it hears, however often."""
    begin = Aggregator._begin_segment

    def begin_unmindful(self: Aggregator, key: Key) -> Any:
        state = begin(self, key)
        state.heard = Unmindful()
        return state

    patch.setattr(Aggregator, "_begin_segment", begin_unmindful)
    # It waits for ever for everyone to be heard; results come at the deadline.
    patch.setattr(Aggregator, "_may_close", lambda self, key: key in self._open)


def test_a_duplicate_that_counts_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caught by: a result is the mean of its included clients, each counted once."""
    count_twice(monkeypatch)
    law = "is not the mean of its included clients, each once"
    catch(monkeypatch, law, Trouble.DUPLICATE)


def test_a_result_below_the_quorum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caught by: a result includes at least a quorum."""
    # Two of five: enough for min_included, which every replica checks, but no majority.
    monkeypatch.setattr(Aggregator, "_enough", 2)
    catch(monkeypatch, "fewer than", Trouble.SLOW, Trouble.CRASH, shape=Shape(members=5))


def test_a_contribution_to_an_old_state_that_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caught by: a result is the mean of what its clients sent, of the state that it follows."""
    receive = Aggregator.receive

    def receive_anyway(
        self: Aggregator, contribution: Contribution
    ) -> tuple[list[Result], list[Outgoing]]:
        version = self.replica.versions[contribution.header.key]
        return receive(self, replace(contribution, based_on=version))

    monkeypatch.setattr(Aggregator, "receive", receive_anyway)
    kinds, shape = (Trouble.ONE_WAY, Trouble.DROP), Shape(shards=5, segment_size=4, rounds=15)
    catch(monkeypatch, "who sent nothing for it", *kinds, shape=shape)


def test_somebody_included_who_sent_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caught by: a result is the mean of its included clients."""
    result_of = Aggregator._result

    def of_all(self: Aggregator, key: Key, collector: Collector, payload: Payload) -> Result:
        everyone = self.agreement.view_at(self.round).client_set
        return replace(result_of(self, key, collector, payload), included=everyone)

    monkeypatch.setattr(Aggregator, "_result", of_all)
    law = "who sent nothing for it|is not the mean of its included clients"
    catch(monkeypatch, law, Trouble.SLOW, Trouble.CRASH)


def test_a_client_that_is_not_told_that_it_was_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caught by: a contribution is in a result, or its client knows that it is not."""
    follow = Client.follow

    def follow_silently(self: Client, result: Result) -> None:
        before = list(self.left_out)
        follow(self, result)
        self.left_out.clear()
        for name in before:
            self.left_out.append(name)

    monkeypatch.setattr(Client, "follow", follow_silently)
    catch(monkeypatch, "does not know that its contribution", Trouble.SLOW)


def test_an_owner_that_does_not_wait_for_everyone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caught by: in fine weather a result leaves nobody out."""
    enter = Aggregator._enter

    def enter_overdue(self: Aggregator, round: int, now: float) -> None:
        enter(self, round, now)
        self._overdue = True

    monkeypatch.setattr(Aggregator, "_enter", enter_overdue)
    shape = Shape(rounds=40)
    catch(monkeypatch, "in fine weather", Trouble.DROP, shape=shape)


# -- who is sent what -------------------------------------------------------------------------


def test_a_client_that_sends_to_the_old_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caught by: no contribution outside the shards of whoever receives it."""
    contribution = Client._contribution

    def contribution_to_the_first(self: Client, prepared: Prepared, key: Key) -> Outgoing | None:
        made = contribution(self, prepared, key)
        owner = self.agreement._views[0].view.owners[key[0]]
        return made if made is None or made.to == (self.me,) else replace(made, to=(owner,))

    monkeypatch.setattr(Client, "_contribution", contribution_to_the_first)
    shape = Shape(members=5, shards=5, rounds=20)
    catch(monkeypatch, "but . owns it in epoch", Trouble.DEATH, shape=shape)


# -- replicas ---------------------------------------------------------------------------------


@contextmanager
def unsealed() -> Iterator[None]:
    """Results do not say which state they lead to; else the member itself notices these bugs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Replica, "seal", lambda self, result: result)
        yield


def test_results_that_are_applied_out_of_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caught by: at the same version of a segment, all hold the same bits."""

    def any_that_waits(self: Replica, key: Key) -> Result | None:
        waiting = sorted(self._waiting[key].values(), key=lambda result: result.header.round)
        return waiting[0] if waiting else None

    monkeypatch.setattr(Replica, "_next", any_that_waits)
    with unsealed():
        catch(monkeypatch, "has two states", Trouble.DROP, Trouble.DELAY)


def test_a_member_that_goes_on_from_an_orphaned_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caught by: at the same version of a segment, all hold the same bits."""
    offer = Replica.offer

    def offer_anyway(self: Replica, result: Result) -> list[Result]:
        version = self.versions[result.header.key]
        if result.previous < version < result.header.round:
            result = replace(result, previous=version)
        return offer(self, result)

    monkeypatch.setattr(Replica, "offer", offer_anyway)
    # An owner that nobody hears publishes; meanwhile its successor goes on from the state before.
    shape = Shape(members=5, shards=5, rounds=20)
    with unsealed():
        catch(monkeypatch, "has two states", Trouble.ONE_WAY, most=20, shape=shape)


def test_a_snapshot_that_is_adopted_although_it_is_older(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caught by: no version goes back."""
    adopt = Replica.adopt

    def adopt_any(self: Replica, snapshot: Snapshot) -> bool:
        self.versions[snapshot.header.key] = -1
        return adopt(self, snapshot)

    monkeypatch.setattr(Replica, "adopt", adopt_any)
    monkeypatch.setattr(Evidence, "asked", lambda *_: True)  # else an old answer is not looked at
    kinds = (Trouble.DELAY, Trouble.LOSS, Trouble.DUPLICATE)
    catch(monkeypatch, "went back from version", *kinds)


# -- progress ---------------------------------------------------------------------------------


class Patient(Member):
    """Waits for what is missing and never asks for it."""

    def _ask(self, now: float) -> list[Outgoing]:
        self._quiet_from(now)
        return []


def test_a_member_that_never_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caught by: those that are connected make progress."""
    law = "no progress although enough are connected"
    catch(monkeypatch, law, Trouble.DROP, member=Patient)


def test_an_owner_that_waits_for_two_that_agree_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caught by: those that are connected make progress, and in fine weather there are results.

    In worlds that are kept: without the bug they hold (``test_found.py``).
    """
    monkeypatch.setattr(Ownership, "_insist", lambda *_: [])
    stuck = "no progress although enough are connected|has no result in fine weather"
    set_back = [case for case in kept() if "comes back behind the others" in case.why]
    assert any(re.search(stuck, case.breaks()) for case in set_back)


# -- lies -------------------------------------------------------------------------------------


LIED = Shape(members=6, shards=4, rounds=20, min_included=2)
ENTERED = "to which no result has led|has two states|has two results|published, who does not own"


def test_a_member_that_takes_one_word_for_a_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caught by: every state is one to which a published result has led."""
    monkeypatch.setattr(Evidence, "believes", lambda *_: True)
    kinds = (Trouble.LIE, Trouble.DROP, Trouble.CRASH)
    catch(monkeypatch, ENTERED, *kinds, most=30, shape=LIED)


def test_a_member_that_takes_what_nobody_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caught by: every state is one to which a published result has led."""
    monkeypatch.setattr(Evidence, "believes", lambda *_: True)
    monkeypatch.setattr(Evidence, "asked", lambda *_: True)
    catch(monkeypatch, ENTERED, Trouble.LIE, shape=LIED)


def test_a_member_that_takes_results_from_anybody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caught by: every state is one to which a published result has led."""
    check = Node._check

    def check_all_but_the_sender(self: Node, message: Message, source: int) -> None:
        check(self, message, message.header.sender if isinstance(message, Result) else source)

    monkeypatch.setattr(Node, "_check", check_all_but_the_sender)
    catch(monkeypatch, ENTERED, Trouble.LIE, shape=LIED)


def lost_to_lies(member: type[Member] = Member, directory: type[Directory] = Directory) -> set[int]:
    """Rounds without a result, where nothing is wrong but that one member lies."""
    lost: set[int] = set()
    for seed in range(4):
        lies = Incident(Trouble.LIE, 2.0, 9.0, Weather(seed, LIED).liar)
        kinds: frozenset[Trouble] = frozenset()
        world = World(
            seed, shape=LIED, kinds=kinds, incidents=[lies], member=member, directory=directory
        )
        try:
            world.run()
        except LawBroken:
            lost.add(LIED.rounds + 1)
        assert world.weather.struck[Trouble.LIE]
        lost |= set(range(1, LIED.rounds + 1)) - {round for _, round in world.witness.results}
    return lost


def test_nobodys_training_ends_early_because_one_member_lies() -> None:
    assert lost_to_lies() == set()


class Credulous(Directory):
    """Believes whatever a member says of its round."""

    def _possible(self, number: int) -> int:
        return 2**31

    @property
    def _round(self) -> int:
        return max((member.round for member in self._members), default=0)


def test_a_directory_that_believes_any_round() -> None:
    """Caught by: nobody's training ends early."""
    assert lost_to_lies(directory=Credulous)


class Gullible(Member):
    """Believes any member of the round that it says it has reached."""

    def _learn(self, message: Message, source: int) -> None:
        super()._learn(message, source)
        self.evidence.reached = max(self.evidence.reached, message.header.round)
        self._look_ahead()


def test_a_member_that_believes_any_round() -> None:
    """Caught by: nobody's training ends early."""
    assert lost_to_lies(member=Gullible)


# -- the end ----------------------------------------------------------------------------------


class Rash(Member):
    """Is finished as soon as it has asked everybody, whatever the answers."""

    @property
    def finished(self) -> bool:
        return self.phase is Phase.DONE and not self._astray


def test_a_member_that_is_finished_without_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caught by: whoever is finished knows that its model is complete."""
    kinds = (Trouble.DROP, Trouble.TORN, Trouble.PARTITION, Trouble.EXILE)
    shape = Shape(members=5, shards=5, rounds=4)
    law = "end with two models|does not know that segment"
    catch(monkeypatch, law, *kinds, most=40, shape=shape, member=Rash)


def test_a_quorum_that_does_not_grow_with_the_federation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caught by: a result includes a majority of the clients there are."""

    def agreed_at_the_start(self: Agreement, round: int) -> int:
        return max(self.settings.quorum, self.settings.min_included)

    monkeypatch.setattr(Agreement, "enough", agreed_at_the_start)
    shape = Shape(members=7, start_with=3, rounds=20)
    catch(monkeypatch, "fewer than", Trouble.LATE, Trouble.SLOW, shape=shape)
