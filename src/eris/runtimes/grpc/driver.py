"""Moves a member's machine on a real network: its messages, its training, its time.

Everything that touches the member happens in one task at a time; training runs in a thread of its
own. What is sent is produced as fast as the peers' queues have room for it. What is noted of a
member depends on its kind: :class:`~eris.runtimes.grpc.aggregating.AggregatingDriver`,
:class:`~eris.runtimes.grpc.gossip.GossipDriver`.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from eris.core.errors import ErisError
from eris.core.vectors import Vector
from eris.protocol.authority.standing import Standing
from eris.protocol.codec import Limits, decode, encode
from eris.protocol.machine import Machine
from eris.protocol.messages import Contribution, Message, Outgoing, Snapshot
from eris.protocol.round.ending import Phase
from eris.protocol.round.giving import Job
from eris.runtimes.grpc.health import Health, TrainingFails
from eris.runtimes.grpc.journal import Journal, shown_metrics
from eris.runtimes.grpc.logs import event
from eris.runtimes.grpc.recorder import Recorder
from eris.runtimes.grpc.threads import Made, in_thread
from eris.runtimes.grpc.transport import FullQueues, Transport
from eris.training.trainer import Learner, LocalUpdate, StatefulTrainer, as_update

_log = logging.getLogger("eris.node")
Training = Callable[[], object]


class Driver(ABC):
    """One member at work, of any kind; :attr:`over` is set when there is no more to be done."""

    slow = False
    """Whether moving the member may take so long that it is done in a thread."""

    def __init__(
        self,
        member: Machine,
        learner: Learner,
        transport: Transport,
        journal: Journal,
        health: Health,
        recorder: Recorder | None,
        limits: Limits,
    ) -> None:
        self.member = member
        self.learner, self.transport = learner, transport
        self.journal, self.health, self.recorder, self._limits = journal, health, recorder, limits
        self.asked: Callable[[Job, Training], Training] = lambda job, train: train
        """What the user's code is asked in a round, around its training."""
        self.training_seconds = 0.0
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
        self._bytes = self._totals()
        self.trainer_state = self._kept()
        """What the trainer had kept when the round's training began: where a restart goes on."""
        self._based_on: list[int] = []
        """The versions of the model that the round's training began from."""

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
            await self._take_in(message, source)

    async def _take_in(self, message: Message, source: int) -> None:
        self._after(await self._move(self.member.receive, message, source, self._now()))

    async def stand(self, standing: Standing) -> None:
        """Take in what the authority says. Where moving the member takes long, whoever keeps the
        lease does not wait for it: it is taken in once the member is free, in order."""
        if self.slow and self.moving.locked():
            self._spawn(self._stand(standing))
        else:
            await self._stand(standing)

    async def _stand(self, standing: Standing) -> None:
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
        for own in self.member.take_stayed():
            self._stays(own)
        for outgoing in out:
            self._leaves(outgoing)

    def _stays(self, own: Message) -> None:
        """The member gave something to itself."""
        if self.recorder is not None:
            self.recorder.sent(time.time(), (self.member.me,), encode(own))

    def _leaves(self, outgoing: Outgoing) -> None:
        """The member says something to others."""
        data, members = encode(outgoing.message), self.member.agreement.view.members
        if self.recorder is not None:
            self.recorder.sent(time.time(), outgoing.to, data)
        urgent = not isinstance(outgoing.message, Contribution | Snapshot)
        for to in outgoing.to:
            self.transport.send(members[to], data, urgent=urgent)

    async def _pump(self) -> None:
        """Produce contributions as fast as they can be sent."""
        while True:
            async with self.moving:
                full = FullQueues(self.transport, self.member.view.members, self.member.me)
                out = await self._move(self.member.pull, self._now(), full)
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
                        self._after(await self._move(self.member.tick, self._now()))

    async def _move(self, call: Callable[..., Made], *given: Any) -> Made:
        """Move the member, by whoever holds :attr:`moving`; in a thread if that may take long."""
        return await in_thread(call, *given) if self.slow else call(*given)

    async def _train(self, job: Job) -> None:
        """Ask the user's code for an update; if it fails, the round goes on without one."""
        name = self.member.agreement.view.members[self.member.me]
        began = time.monotonic()
        self.trainer_state = self._kept()
        try:
            made = await self._made(job)
            update = self._weighed(as_update(made, name, len(job.model), self._note_cast))
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
            self._after(out)

    async def _made(self, job: Job) -> object:
        """What the user's code returns; while it takes long, that is said now and then."""
        self.health.began(time.monotonic())
        work = asyncio.ensure_future(in_thread(self.asked(job, self._training(job))))
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

    def _training(self, job: Job) -> Training:
        """How the user's code is asked for an update."""
        return partial(self.learner.update, job.model, job.round)

    def _weighed(self, update: LocalUpdate) -> LocalUpdate:
        """An update with the weight that it counts with: that of its samples."""
        return update

    def _handed_over(self, update: LocalUpdate) -> list[Outgoing]:
        """Give the member what was trained."""
        return self.member.trained(update.vector, int(update.samples), int(update.steps),
                                   self._now(), update.content)  # fmt: skip

    def _gave_nothing(self, job: Job, error: Exception) -> None:
        """Training failed, or what it gave cannot be combined: the round goes on without it."""
        told = str(error) if isinstance(error, ErisError) else f"{type(error).__name__}: {error}"
        event(_log, logging.ERROR, "training failed", round=job.round, error=told)
        if not isinstance(error, ErisError):
            _log.error("the trainer raised", exc_info=error)
        self.journal.write("training failed", round=job.round, error=told)
        self.health.failed(job.round, told)
        self._after(self._instead(job))

    def _instead(self, job: Job) -> list[Outgoing]:
        """What a round gets whose training gave nothing."""
        return self.member.failed(self._now())

    def _note_cast(self, text: str) -> None:
        if self._first("cast"):
            event(_log, logging.WARNING, "update cast", what=text)
            self.journal.write("update cast", what=text)

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
        member, now, past = self.member, time.monotonic(), self._round
        if past:
            totals = self._totals()
            sent, received = (new - old for new, old in zip(totals, self._bytes, strict=True))
            self._bytes = totals
            summary = {"round": past, "seconds": round(now - self._began, 4)}
            summary |= self._summed_up({"sent": sent, "received": received})
            event(_log, logging.INFO, "round over", **summary)
            self.journal.write("round", **summary)
        self._round, self._began = member.round, now
        self._based_on = self._entered(past)
        done = member.phase is Phase.DONE
        self.journal.write("done" if done else "began", round=member.round)
        self.round_begun.set()

    @abstractmethod
    def _summed_up(self, traffic: dict[str, int]) -> dict[str, Any]:
        """What is told of the round that is over; among it the bytes that it cost."""

    @abstractmethod
    def _entered(self, past: int) -> list[int]:
        """A round has begun, after ``past`` (0: the first). Returns the versions that its training
        is based on."""

    # -- what is shown ------------------------------------------------------------------------

    def record(self) -> dict[str, str]:
        """What a checkpoint says besides the member's state."""
        return {}

    def missing(self) -> str:
        """What is missing in the model, in a line."""
        return ""

    @property
    def noisy(self) -> bool:
        """Whether noise hides what its data says; then nothing else may tell of them."""
        return False

    def problem(self, now: float) -> str:
        """What is wrong with the training at the moment, as it may be shown; nothing: empty."""
        problem = self.health.problem(now)
        if problem and self.noisy:
            return "training has a problem; this node's log says which"
        return problem

    def evaluated(self) -> Mapping[str, float]:
        """What the trainer last said of the model, as it may be shown."""
        return {} if self.noisy else self.health.evaluated

    @abstractmethod
    def figures(self) -> dict[str, Any]:
        """What a status counts of this kind of member."""

    def besides(self) -> dict[str, Any]:
        """What a status has besides: no counts."""
        return {}

    def _totals(self) -> tuple[int, int]:
        counters = self.transport.counters.values()
        return sum(c.sent_bytes for c in counters), sum(c.received_bytes for c in counters)

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
