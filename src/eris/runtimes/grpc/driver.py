"""Moves a member's machine on a real network: its messages, its training, its time.

Everything that touches the member happens in one task at a time; training runs in a thread of its
own. What is sent is produced as fast as the peers' queues have room for it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from eris.core.compress import Encoding
from eris.core.errors import ErisError
from eris.core.vectors import Vector
from eris.protocol.agreement import Key
from eris.protocol.authority.standing import Standing
from eris.protocol.codec import CLOSED_BYTES, Limits, decode, encode
from eris.protocol.machine import Machine
from eris.protocol.messages import Contribution, Outgoing, Refusal, Result, Reveal, Snapshot
from eris.protocol.round.ending import Phase
from eris.protocol.round.giving import Job
from eris.protocol.round.member import Member
from eris.protocol.secure.wire import answered
from eris.runtimes.grpc.health import Health, TrainingFails
from eris.runtimes.grpc.journal import Journal, shown_metrics
from eris.runtimes.grpc.keys import NodeKeys
from eris.runtimes.grpc.logs import event
from eris.runtimes.grpc.omissions import NAMED_AT, Omissions
from eris.runtimes.grpc.privacy import REFUSALS, NodePrivacy
from eris.runtimes.grpc.recorder import Recorder
from eris.runtimes.grpc.threads import in_thread
from eris.runtimes.grpc.transport import FullQueues, Transport
from eris.training.trainer import (
    Learner,
    LocalUpdate,
    PerSampleNoise,
    PrivateTrainer,
    StatefulTrainer,
    as_update,
)

_log = logging.getLogger("eris.node")


class Driver:
    """One member at work; :meth:`run` lasts until training is over."""

    member: Member  # its calls are any machine's; what is noted is of one that aggregates

    def __init__(
        self,
        member: Machine,
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
        self.member = member  # type: ignore[assignment]
        self.learner, self.transport = learner, transport
        self.journal, self.health, self.recorder, self._limits = journal, health, recorder, limits
        self.keys, self.privacy, self.noise = keys, privacy, noise
        self.omissions = Omissions()
        self.training_seconds, self.results_applied = 0.0, 0
        self.round_begun = asyncio.Event()
        """Set when a round has begun."""
        self.renew = asyncio.Event()
        """Set when the authority should be asked."""
        self.over = asyncio.Event()
        """Set when there is no more to be done: training is over, or a part of the node failed."""
        self.complete = asyncio.Event()
        """Set when training is over and nothing is missing in the model."""
        self.failure: BaseException | None = None
        """Why work ended before training was over."""
        self.moving = asyncio.Lock()
        """Held by whoever moves the member, or reads all of it."""
        self._stopped = False
        self._woken, self._alarm = asyncio.Event(), math.inf
        self._job: Job | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._round, self._began = 0, time.monotonic()
        self._told: set[str] = set()
        """What is worth one word and was said."""
        self._refusals: set[tuple[int, int]] = set()
        """(round, member) of the refusals that are in the log: segments are refused one by one."""
        self._seen: dict[int, dict[int, dict[Key, int]]] = {}
        """By round and sender: how many coordinates of its update reached this node, by segment."""
        self._bytes = self._totals()
        self.trainer_state = self._kept()
        """What the trainer had kept when the round's training began: where a restart goes on."""
        self._based_on: list[int] = []
        """The versions of the segments that the round's training began from."""

    # -- what happens -------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin; returns at once."""
        for work in (self._pump(), self._watch()):
            self._spawn(work)
        async with self.moving:
            self._after(self.member.start(self._now()))

    async def stop(self) -> None:
        """End all work; training that is under way ends by itself and counts for nothing.

        From here on nothing moves the member: what it has saved and told the authority stays true.
        """
        async with self.moving:
            self._stopped = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def receive(self, peer: str, data: bytes) -> None:
        """Take in a message of a peer; bytes that are none end its stream with a reason."""
        message = decode(data, self._limits)
        members = self.member.agreement.view.members
        if peer not in members:
            self.renew.set()
            return
        source = members.index(peer)
        async with self.moving:
            if self._stopped:
                return
            if self.recorder is not None:
                self.recorder.received(time.time(), source, data)
            if isinstance(message, Contribution):
                self._saw(source, message)
            if isinstance(message, Refusal):
                self._note_refusal(message, self.member.me, by=peer)
            before = self._versions(message)
            self._after(self.member.receive(message, source, self._now()))
            now = self._versions(message)
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

    async def stand(self, standing: Standing) -> None:
        """Take in what the authority says."""
        async with self.moving:
            epoch = self.member.agreement.view.epoch
            self._after(self.member.stand(standing, self._now()))
            view = self.member.agreement.view
            if view.epoch != epoch:
                self.note_view()

    def note_view(self) -> None:
        """Log and journal the newest view."""
        view, start = self.member.agreement.view, self.member.agreement.newest_from
        names = view.named(view.owners)
        clients = [view.members[client] for client in view.clients]
        lines = () if view.seating is None else view.seating.helpers
        seats = {"helpers": [view.named(line) for line in lines]} if any(lines) else {}
        weights = {} if view.samples is None else {"samples": view.samples}
        self.journal.write("view", epoch=view.epoch, from_round=start, owners=names,
                           members=view.members, clients=clients, **seats, **weights)  # fmt: skip
        event(_log, logging.INFO, "view", epoch=view.epoch, from_round=start, owners=names,
              clients=len(clients), **seats)  # fmt: skip
        if self.recorder is not None:
            self.recorder.in_view(view)

    # -- what the member wants ----------------------------------------------------------------

    def _after(self, out: Sequence[Outgoing]) -> None:
        """Send what the member said, and do what it wants done."""
        member = self.member
        self._send(out)
        self._note_findings()
        if member.job is not None and member.job is not self._job:
            self._job = member.job
            self._spawn(self._train(member.job))
        if member.renewal_due:
            member.renewal_due = False
            self.renew.set()
        if member.round != self._round:
            self._note_round()
        if not self.complete.is_set() and member.finished:
            self.complete.set()
        if self.complete.is_set() or member.exhausted:
            self.over.set()
        self.transport.stir()
        if member.wakes_at < self._alarm:
            self._woken.set()

    def _send(self, out: Sequence[Outgoing]) -> None:
        view = self.member.agreement.view
        stayed = self.member.take_stayed()
        for own in stayed:
            if isinstance(own, Reveal):
                self._note_answer(own)
        # Words with noise are not written down: on a stolen disk they are without masks.
        if self.recorder is not None and self.privacy is None:
            for own in stayed:
                self.recorder.sent(time.time(), (self.member.me,), encode(own))
        for outgoing in out:
            data, message = encode(outgoing.message), outgoing.message
            if self.recorder is not None:
                self.recorder.sent(time.time(), outgoing.to, data)
            if isinstance(message, Result) and message.header.sender == self.member.me:
                self._note_result(message)
            elif isinstance(message, Reveal):
                self._note_answer(message)
            urgent = not isinstance(message, Contribution | Snapshot)
            for to in outgoing.to:
                if isinstance(message, Refusal):
                    self._note_refusal(message, to, by=view.members[self.member.me])
                self.transport.send(view.members[to], data, urgent=urgent)

    async def _pump(self) -> None:
        """Produce contributions as fast as they can be sent."""
        while True:
            async with self.moving:
                out = self.member.pull(
                    self._now(),
                    FullQueues(self.transport, self.member.view.members, self.member.me),
                )
                if out is not None:
                    self._after(out)
            if out is None:
                await self.transport.drained()
            else:
                await asyncio.sleep(0)  # others have work to do, too

    async def _watch(self) -> None:
        """Let the member's time pass."""
        while True:
            self._woken.clear()
            # Whoever moves the member says so only if it is to wake up before that.
            self._alarm = self.member.wakes_at
            wait = max(0.0, self._alarm - self._now())
            try:
                async with asyncio.timeout(min(wait, 3600.0)):
                    await self._woken.wait()
            except TimeoutError:
                async with self.moving:
                    if self.member.wakes_at <= self._now():
                        self._after(self.member.tick(self._now()))

    async def _train(self, job: Job) -> None:
        """Ask the user's code for an update; if it fails, the round goes on without one."""
        name = self.member.agreement.view.members[self.member.me]
        began = time.monotonic()
        self.trainer_state = self._kept()
        try:
            made = await self._made(job)
            update = as_update(made, name, len(job.model), self._note_cast)
            if self.privacy is not None:
                update = self.privacy.weighed(update)
            metrics = shown_metrics(update.metrics)
        except TrainingFails:
            raise
        except Exception as error:
            async with self.moving:
                self._gave_nothing(job, error)
            return
        self.training_seconds = time.monotonic() - began
        async with self.moving:
            try:
                out = self._handed_over(update)
            except ErisError as error:
                self._gave_nothing(job, error)
                return
            self.health.gave()
            # What a trainer was given is what it had when the round began.
            self.journal.write("trained", round=job.round, samples=int(update.samples),
                               steps=int(update.steps), seconds=round(self.training_seconds, 4),
                               based_on=self._based_on, metrics=metrics)  # fmt: skip
            # The trainer's copy of the model goes before the next round makes another.
            self._job = None
            del job
            self._note_faint()
            self._after(out)

    async def _made(self, job: Job) -> object:
        """What the user's code returns; while it takes long, that is said now and then."""
        self.health.began(time.monotonic())
        train: Callable[[], object] = partial(self.learner.update, job.model, job.round)
        if self.noise is not None:
            assert isinstance(self.learner, PrivateTrainer), "checked before the node joined"
            train = partial(self.learner.private_update, job.model, job.round, self.noise)
        if self.privacy is not None:
            train = partial(self.privacy.update, self.learner, job)
        work = asyncio.ensure_future(in_thread(train))
        try:
            while True:
                pause = self.health.wait(job.round, time.monotonic())
                if (await asyncio.wait({work}, timeout=pause))[0]:
                    return work.result()
                taken = round(self.health.training_for(time.monotonic()), 1)
                event(_log, logging.WARNING, "training takes long", round=job.round, seconds=taken)
                self.journal.write("training takes long", round=job.round, seconds=taken)
        finally:
            work.cancel()

    def _handed_over(self, update: LocalUpdate) -> list[Outgoing]:
        """Give the member what was trained; what its ledger refuses is no failure of training."""
        try:
            return self.member.trained(update.vector, int(update.samples), int(update.steps),
                                       self._now(), update.content)  # fmt: skip
        except REFUSALS as refused:
            assert self.privacy is not None
            self.privacy.refuse(self.member.round, refused)
            return self.member.failed(self._now())

    def _gave_nothing(self, job: Job, error: Exception) -> None:
        """Training failed, or what it gave cannot be combined: the round goes on without it."""
        told = str(error) if isinstance(error, ErisError) else f"{type(error).__name__}: {error}"
        event(_log, logging.ERROR, "training failed", round=job.round, error=told)
        if not isinstance(error, ErisError):
            _log.error("the trainer raised", exc_info=error)
        self.journal.write("training failed", round=job.round, error=told)
        self.health.failed(job.round, told)
        instead = None if self.privacy is None else self.privacy.nothing(job)
        if instead is not None and not self.member.node.client.sender.drew(job.round):
            self._after(self._handed_over(instead))
        else:
            self._after(self.member.failed(self._now()))

    def _note_cast(self, text: str) -> None:
        if self._first("cast"):
            event(_log, logging.WARNING, "update cast", what=text)
            self.journal.write("update cast", what=text)

    def _note_faint(self) -> None:
        """Say once that updates are too small for the agreed precision."""
        lost = self.member.node.client.sender.lost
        if lost and self.privacy is None and self._first("faint"):
            event(_log, logging.WARNING, "update too small", lost=round(lost, 4),
                  remedy="a smaller value_range has a finer grid")  # fmt: skip

    def _first(self, what: str) -> bool:
        """Whether this is the first time that something is to be said."""
        first = what not in self._told
        self._told.add(what)
        return first

    def _kept(self) -> dict[str, Vector]:
        """What the trainer keeps between rounds."""
        kept = self.learner.state() if isinstance(self.learner, StatefulTrainer) else {}
        return {name: np.array(value) for name, value in kept.items()}

    # -- notes --------------------------------------------------------------------------------

    def _note_round(self) -> None:
        """A round has begun: say how the last one went."""
        member, now = self.member, time.monotonic()
        if self._round:
            totals = self._totals()
            sent, received = (now_ - was for now_, was in zip(totals, self._bytes, strict=True))
            self._bytes = totals
            n = member.agreement.settings.places
            pieces = self._seen.get(self._round, {}).values()
            seen = max((sum(piece.values()) for piece in pieces), default=0) / n
            included = member.node.replica.included_in(self._round)
            summary = {
                "round": self._round,
                "seconds": round(now - self._began, 4),
                "included": None if included is None else round(included, 4),
                "sent": sent,
                "received": received,
                "seen": round(seen, 6),
            }
            event(_log, logging.INFO, "round over", **summary)
            self.journal.write("round", **summary)
            gauge = member.node.replica.gauge
            if gauge is not None and gauge.round == self._round and gauge.warning:
                event(_log, logging.WARNING, "noise", problem=gauge.warning)
                self.journal.write("noise", round=gauge.round, problem=gauge.warning)
        self._seen = {round: who for round, who in self._seen.items() if round >= member.round}
        self._round, self._began = member.round, now
        if self.keys is not None:
            self.keys.enter(member.round)
        self._based_on = list(member.node.replica.versions.values())
        for pair in self.omissions.settle(member.round):
            owner, client = member.agreement.view.named(pair)
            who = {"owner": owner, "client": client, "rounds": NAMED_AT}
            event(_log, logging.WARNING, "an owner alone leaves out a client", **who)
            self.journal.write("leaves out", **who)
        done = member.phase is Phase.DONE
        self.journal.write("done" if done else "began", round=member.round)
        self.round_begun.set()

    def _note_refusal(self, refusal: Refusal, member: int, by: str) -> None:
        """Whose contribution to which round was refused, and why; once a round."""
        round, name = refusal.header.round, self.member.agreement.view.members[member]
        if refusal.no_result or refusal.again or (round, member) in self._refusals:
            return
        if member == self.member.me:
            self.health.refusal = refusal.reason
        self._refusals = {told for told in self._refusals if told[0] >= round - 1}
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

    def figures(self) -> dict[str, Any]:
        """What a status counts of this kind of member."""
        node = self.member.node
        return {
            "contributions_left_out": node.client.left_out.count_of_all,
            "noise_off": None if node.replica.gauge is None else node.replica.gauge.off,
            "results_applied": self.results_applied,
        }

    def _totals(self) -> tuple[int, int]:
        counters = self.transport.counters.values()
        return sum(c.sent_bytes for c in counters), sum(c.received_bytes for c in counters)

    def _versions(self, message: Any) -> int | None:
        return self.member.node.replica.versions.get(message.header.key)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.failure = task.exception()
            if not isinstance(self.failure, TrainingFails):  # which is said in one line
                _log.error("a part of the node failed", exc_info=self.failure)
            self.over.set()
