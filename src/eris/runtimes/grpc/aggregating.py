"""A member that aggregates, on a real network: what is noted of it.

Journal, log and status tell of results: who is in them, who was refused or left out, what this node
has found as an owner and has helped to open; and of what noise has cost its own data.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

from eris.core.compress import Encoding
from eris.protocol.agreement import Key
from eris.protocol.codec import CLOSED_BYTES, Limits
from eris.protocol.messages import (
    Contribution,
    Message,
    Outgoing,
    Refusal,
    Result,
    Reveal,
    Snapshot,
)
from eris.protocol.round.giving import Job
from eris.protocol.round.member import Member
from eris.protocol.secure.wire import answered
from eris.runtimes.grpc.driver import Driver, Training
from eris.runtimes.grpc.health import Health
from eris.runtimes.grpc.journal import Journal
from eris.runtimes.grpc.keys import NodeKeys
from eris.runtimes.grpc.logs import event
from eris.runtimes.grpc.omissions import NAMED_AT, Omissions
from eris.runtimes.grpc.privacy import RECORD, REFUSALS, NodePrivacy
from eris.runtimes.grpc.recorder import Recorder
from eris.runtimes.grpc.transport import Transport
from eris.training.trainer import Learner, LocalUpdate, PerSampleNoise, PrivateTrainer

_log = logging.getLogger("eris.node")
MOST_SHOWN = 20
"""Pairs of owner and client in a status, those with most rounds."""
SPOKEN_OF = 8
"""Rounds that are over whose refusals are still logged."""


class AggregatingDriver(Driver):
    """One aggregating member at work."""

    member: Member

    def __init__(
        self,
        member: Member,
        learner: Learner,
        transport: Transport,
        journal: Journal,
        health: Health,
        recorder: Recorder | None,
        limits: Limits,
        keys: NodeKeys | None = None,
        privacy: NodePrivacy | None = None,
        noise: PerSampleNoise | None = None,
    ) -> None:
        super().__init__(member, learner, transport, journal, health, recorder, limits)
        self.slow = member.agreement.settings.scheme.slow
        self.keys, self.privacy, self.noise = keys, privacy, noise
        self.omissions, self.results_applied = Omissions(), 0
        self._refusals: set[tuple[int, int]] = set()
        """(round, member) of the latest refusals in the log: segments are refused one by one."""
        self._seen: dict[int, dict[int, dict[Key, int]]] = {}
        """By round and sender: how many coordinates of its update reached this node, by segment."""
        self._published: dict[Key, int] = {}
        """By segment, the last own result that is in the journal: peers ask for results again."""

    # -- what happens -------------------------------------------------------------------------

    async def _take_in(self, message: Message, source: int) -> None:
        if isinstance(message, Contribution):
            self._saw(source, message)
        if isinstance(message, Refusal):
            by = self.member.agreement.view.members[source]
            self._note_refusal(message, self.member.me, by)
        before = self._version(message)
        await super()._take_in(message, source)
        now = self._version(message)
        if isinstance(message, Result | Snapshot) and now != before:
            self.results_applied += 1
            if self.privacy is not None:
                last = self.member.node.replica.last_included
                self.privacy.hear(last.get(self.member.me, 0))
            self._note_result(message)
            replica = self.member.node.replica
            behind = replica.result_of(message.header.key, now or 0)
            if behind is not None and behind.header.round != message.header.round:
                self._note_result(behind)  # it was waiting for this one

    def _send(self, out: Sequence[Outgoing]) -> None:
        super()._send(out)
        self._note_findings()

    def _stays(self, own: Message) -> None:
        if isinstance(own, Reveal):
            self._note_answer(own)
        # Words with noise are not written down: on a stolen disk they are without masks.
        if self.privacy is None:
            super()._stays(own)

    def _leaves(self, outgoing: Outgoing) -> None:
        message, me = outgoing.message, self.member.me
        if isinstance(message, Result) and message.header.sender == me:
            if message.header.round > self._published.get(message.header.key, 0):
                self._published[message.header.key] = message.header.round
                self._note_result(message)
        elif isinstance(message, Reveal):
            self._note_answer(message)
        elif isinstance(message, Refusal):
            for to in outgoing.to:
                self._note_refusal(message, to, by=self.member.agreement.view.members[me])
        super()._leaves(outgoing)

    # -- training -----------------------------------------------------------------------------

    def _training(self, job: Job) -> Training:
        if self.privacy is not None:
            return partial(self.privacy.update, self.learner, job)
        if self.noise is not None:
            assert isinstance(self.learner, PrivateTrainer), "checked before the node joined"
            return partial(self.learner.private_update, job.model, job.round, self.noise)
        return super()._training(job)

    def _weighed(self, update: LocalUpdate) -> LocalUpdate:
        return update if self.privacy is None else self.privacy.weighed(update)

    def _handed_over(self, update: LocalUpdate) -> list[Outgoing]:
        """Give the member what was trained; what its ledger refuses is no failure of training."""
        try:
            out = super()._handed_over(update)
        except REFUSALS as refused:
            assert self.privacy is not None
            self.privacy.refuse(self.member.round, refused)
            return self.member.failed(self._now())
        self._note_faint()
        return out

    def _instead(self, job: Job) -> list[Outgoing]:
        instead = None if self.privacy is None else self.privacy.nothing(job)
        if instead is not None and not self.member.node.client.sender.drew(job.round):
            return self._handed_over(instead)
        return super()._instead(job)

    def _note_faint(self) -> None:
        """Say once that updates are too small for the agreed precision."""
        lost = self.member.node.client.sender.lost
        if lost and self.privacy is None and self._first("faint"):
            event(_log, logging.WARNING, "update too small", lost=round(lost, 4),
                  remedy="a smaller value_range has a finer grid")  # fmt: skip

    # -- notes --------------------------------------------------------------------------------

    def _summed_up(self, traffic: dict[str, int]) -> dict[str, Any]:
        member = self.member
        pieces = self._seen.get(self._round, {}).values()
        seen = max((sum(piece.values()) for piece in pieces), default=0)
        included = member.node.replica.included_in(self._round)
        return {
            "included": None if included is None else round(included, 4),
            **traffic,
            "seen": round(seen / member.agreement.settings.places, 6),
        }

    def _entered(self, past: int) -> list[int]:
        member, replica = self.member, self.member.node.replica
        gauge = replica.gauge
        if past and gauge is not None and gauge.round == past and gauge.warning:
            event(_log, logging.WARNING, "noise", problem=gauge.warning)
            self.journal.write("noise", round=gauge.round, problem=gauge.warning)
        self._seen = {round: who for round, who in self._seen.items() if round >= member.round}
        if self.keys is not None:
            self.keys.enter(member.round)
        for pair in self.omissions.settle(member.round):
            owner, client = member.agreement.view.named(pair)
            who = {"owner": owner, "client": client, "rounds": NAMED_AT}
            event(_log, logging.WARNING, "an owner alone leaves out a client", **who)
            self.journal.write("leaves out", **who)
        return list(replica.versions.values())

    def _note_refusal(self, refusal: Refusal, member: int, by: str) -> None:
        """Whose contribution to which round was refused, and why; once a round."""
        round, name = refusal.header.round, self.member.agreement.view.members[member]
        if refusal.no_result or refusal.again or (round, member) in self._refusals:
            return
        # A peer names the round: of those that are long over or far ahead nothing is said.
        if not self._round - SPOKEN_OF <= round <= self._round + 1:
            return
        if member == self.member.me:
            self.health.refusal = refusal.reason
        self._refusals = {told for told in self._refusals if told[0] >= self._round - SPOKEN_OF}
        self._refusals.add((round, member))
        event(_log, logging.WARNING, "contribution refused", member=name, round=round, by=by,
              reason=refusal.reason)  # fmt: skip

    def _saw(self, source: int, contribution: Contribution) -> None:
        """Note what of a client's update reached this node; what comes again is not more."""
        header = contribution.header
        if contribution.payload.encoded.encoding is Encoding.RING:
            return  # masked: nothing of it can be read
        # A peer names the round and the segment: only what can be is remembered.
        current = self._round <= header.round <= self._round + 1
        if current and header.key in self.member.node.replica.versions:
            pieces = self._seen.setdefault(header.round, {}).setdefault(source, {})
            pieces[header.key] = contribution.payload.encoded.count

    def _note_result(self, message: Result | Snapshot) -> None:
        header = message.header
        if isinstance(message, Snapshot):
            self.journal.write("snapshot", segment=header.key, at=message.at)
            return
        self.health.included |= self.member.me in message.included
        owners = self.member.agreement.view_at(header.round).owners
        self.omissions.note(header.round, owners[header.shard], message.included, owners)
        self.journal.write(
            "result",
            round=header.round,
            segment=header.key,
            previous=message.previous,
            included=sorted(message.included),
            withheld=not message.included,
            digest=message.digest.hex(),
            closed=message.closed.hex(),
        )

    def _note_findings(self) -> None:
        """What this node found as an owner: who lied, or gave no share of a key."""
        notes = self.member.node.notes
        for note in notes:
            event(_log, logging.WARNING, "found", what=note)
            self.journal.write("found", what=note)
        notes.clear()

    def _note_answer(self, answer: Reveal) -> None:
        """What this node helps to open: of a segment and round one statement."""
        encrypted = self.member.agreement.settings.scheme.keyed
        header, data = answer.header, answer.data
        named = data[:CLOSED_BYTES] if encrypted else answered(data)
        if named is not None:
            told = {"round": header.round, "segment": header.key, "closed": named.hex()}
            self.journal.write("answered", **told)

    def _version(self, message: Message) -> int | None:
        return self.member.node.replica.versions.get(message.header.key)

    # -- what is shown ------------------------------------------------------------------------

    def record(self) -> dict[str, str]:
        """What its data has cost, where there is noise."""
        return {} if self.privacy is None else {RECORD: self.privacy.ledger.record().text}

    def missing(self) -> str:
        """Which results are missing, in a line."""
        return self.member.ending.missing()

    @property
    def noisy(self) -> bool:
        """Whether clients share noise, or this one adds its own."""
        return self.privacy is not None or self.noise is not None

    def figures(self) -> dict[str, Any]:
        """Results, and what members are found or believed to do."""
        node, most = self.member.node, {}
        for one in reversed(self._left_out()):
            most[one["owner"]] = one["rounds"]
        return {
            "contributions_left_out": node.client.left_out.count_of_all,
            "noise_off": None if node.replica.gauge is None else node.replica.gauge.off,
            "results_applied": self.results_applied,
            "keys_refused": 0 if self.keys is None else self.keys.refused,
            "left_out_alone": most,
        }

    def besides(self) -> dict[str, Any]:
        """Seats and keys, what noise has cost, and who is left out."""
        view, told = self.member.agreement.view, dict[str, Any]()
        if self.keys is not None and view.seating is not None:
            # Its own keys are in force once their first round is here.
            told["helpers"] = [view.named(line) for line in view.seating.helpers]
            told["keys_from"] = self.keys.from_round
        if self.privacy is not None:
            told |= self.privacy.shown()
        return told | {"left_out": self._left_out()[:MOST_SHOWN]}

    def _left_out(self) -> list[dict[str, Any]]:
        view = self.member.agreement.view
        return [
            {"owner": owner, "client": client, "rounds": rounds}
            for pair, rounds in self.omissions.rounds.most_common()
            for owner, client in [view.named(pair)]
        ]
