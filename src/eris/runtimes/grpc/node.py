"""A node: one process that takes part in a federation, from its settings to its last checkpoint."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import grpc
import grpc.aio

from eris.core.errors import ErisError
from eris.files import tidy
from eris.model_file import model_bytes
from eris.protocol.authority.directory import NotAMember, OldKeys
from eris.protocol.authority.standing import Joined, Standing
from eris.protocol.codec import Limits
from eris.protocol.gossip.peer import GossipSettings
from eris.protocol.round.ending import Phase
from eris.protocol.round.member import Member
from eris.protocol.secure.sending import SecureSender
from eris.protocol.settings import Settings, model_digest
from eris.runtimes.grpc import answers, clients_key, storage
from eris.runtimes.grpc import learner as learners
from eris.runtimes.grpc.aggregating import AggregatingDriver
from eris.runtimes.grpc.authority import (
    EpochAuthority,
    RosterAuthority,
    reached,
    wants_epoch,
)
from eris.runtimes.grpc.checkpoints import Checkpoints
from eris.runtimes.grpc.directory import DirectoryClient, DirectoryService, DirectoryUnavailable
from eris.runtimes.grpc.driver import Driver
from eris.runtimes.grpc.gossip import Around, GossipDriver, gossip_member, rehearse_gossip
from eris.runtimes.grpc.health import Health, TrainingFails
from eris.runtimes.grpc.journal import Journal
from eris.runtimes.grpc.keys import NodeKeys
from eris.runtimes.grpc.local_noise import SecretNoise, local_noise
from eris.runtimes.grpc.logs import event
from eris.runtimes.grpc.observe import NodeState, StatusServer, shown
from eris.runtimes.grpc.parts import (
    directory_channel,
    hosted_directory,
    prepared_tables,
    renewed_after,
    transport_limits,
)
from eris.runtimes.grpc.privacy import NodePrivacy, check_learner
from eris.runtimes.grpc.recorder import Recorder
from eris.runtimes.grpc.rehearsal import rehearse
from eris.runtimes.grpc.settings import NodeSettings
from eris.runtimes.grpc.storage import Memory
from eris.runtimes.grpc.threads import in_thread
from eris.runtimes.grpc.tls import Identity, peer_identity
from eris.runtimes.grpc.transport import Transport
from eris.training.trainer import starting_model

_log = logging.getLogger("eris.node")
Answer = TypeVar("Answer")
CLOCK_OFF = 60.0
"""Seconds by which a clock may differ from the directory's before it is worth a warning."""
GRACE = 5.0

START_AGAIN = (
    "no model was written, the checkpoint is kept: start this node again while one that has what "
    "is missing is there, and it goes on"
)
SKIPPED = (
    "results were skipped that this client may be in: it gives nothing until an epoch begins, with "
    "references of zero"
)


class NetworkNode:
    """A member of a federation as a process: :meth:`run` until training is over or :meth:`stop`."""

    def __init__(self, settings: NodeSettings, tables: Path | None = None) -> None:
        self.settings = settings
        self.name = settings.node.name
        self.folder = settings.node.folder
        tls = settings.tls
        self.identity = Identity(tls.certificate, tls.key, tls.authority)
        for warning in self.identity.check(self.name):
            event(_log, logging.WARNING, "certificate", problem=warning)
        options = settings.training.options
        place = settings.path.absolute().parent
        self.learner = learners.load(settings.training.trainer, place, self.name, options)
        if said := learners.step_problem(self.learner, settings.federation.server_rule()):
            event(_log, logging.WARNING, "training", problem=said)
        self.initial = starting_model(self.learner)
        self.agreed = settings.agreed(len(self.initial), model_digest(self.initial))
        if self.agreed.noise is not None and settings.node.client:
            check_learner(self.learner, self.agreed.noise, self.initial)
        scheme = None if isinstance(self.agreed, GossipSettings) else self.agreed.scheme
        self._clients_key = clients_key.of_node(settings, scheme)
        if scheme is not None and (exposed := scheme.exposure()):
            event(_log, logging.WARNING, "method", problem=exposed)
        self._samples = 0
        if self.agreed.weighed and settings.node.client:
            self._samples = learners.declared_samples(self.learner)
        self._noise: SecretNoise | None = None
        local = None if settings.gossip is not None else settings.parts.privacy
        if local is not None and settings.node.client:
            rounds = settings.federation.rounds
            self._noise = local_noise(local, rounds, self.learner)
            event(_log, logging.INFO, "noise", sigma=self._noise.sigma, clip=local.clip,
                  epsilon=local.epsilon, delta=local.delta, calibration=local.calibration,
                  rounds=rounds)  # fmt: skip
        if isinstance(self.agreed, GossipSettings):
            rehearse_gossip(settings, self.agreed)
        else:
            rehearse(self.agreed)
            self._tables = prepared_tables(settings, self.agreed, tables)
        self._privacy: NodePrivacy | None = None
        self._keys: NodeKeys | None = None
        self.address = settings.address
        self._stopping = asyncio.Event()
        self._driver: Driver | None = None
        self._reason = "starting"
        self._clock_told = False
        self._failure: ErisError | None = None

    def stop(self) -> None:
        """End gracefully: save, say goodbye, hang up."""
        self._stopping.set()

    async def run(self) -> None:
        """Take part until training is over (and ``linger`` has passed) or the node is stopped."""
        self.folder.mkdir(parents=True, exist_ok=True)
        tidy(self.folder)
        with Journal(self.folder / "journal.jsonl") as self.journal:
            memory = self._memory = Memory(self.folder)
            self._checkpoints = Checkpoints(self.folder, self.agreed.fingerprint, memory)
            self._checkpoints.check()
            if self.agreed.noise is not None and self.settings.node.client:
                noted = storage.about(self._checkpoints.path)
                table = self.settings.privacy
                self._privacy = NodePrivacy(self.agreed, table, self.folder, noted)
            if isinstance(self.agreed, Settings) and self.agreed.keyed:
                self._keys = NodeKeys(self.identity, self.agreed, self.folder)
            hosts = self.settings.membership.host_directory
            service = hosted_directory(self.settings, self.agreed) if hosts else None
            transport = self._transport = self._open_transport(service)
            port = await transport.start()
            self.address = self.settings.reachable(port)
            event(_log, logging.INFO, "listening", name=self.name, address=self.address)
            observer, channel = None, None
            try:
                observer = self._observe()
                authority, channel = self._find_authority()
                await self._take_part(authority)
            finally:
                if service is not None and service.directory.stale:
                    # The others, too, are to hear why nobody is served, and not just nothing.
                    await asyncio.sleep(self.settings.membership.lease)
                await transport.stop(GRACE)
                if channel is not None:
                    await channel.close()
                if observer is not None:  # last: why a node ends is seen as long as it is there
                    await asyncio.to_thread(observer.stop)
        if self._failure is not None:
            raise self._failure

    # -- parts --------------------------------------------------------------------------------

    def _open_transport(self, service: DirectoryService | None) -> Transport:
        return Transport(
            self.identity,
            self.settings.node.listen,
            receive=self._receive,
            identify=self._identify,
            limits=transport_limits(self.settings, self.agreed),
            handlers=[service.handler()] if service else [],
            on_state=self._on_state,
        )

    def _find_authority(self) -> tuple[EpochAuthority, grpc.aio.Channel | None]:
        if self.settings.roster is not None:
            found = RosterAuthority(self.settings.roster, self.name, self.agreed, self.folder)
            return found, None
        channel, address = directory_channel(self.settings, self.identity, self.address)
        return DirectoryClient(channel, address, self._memory), channel

    def _observe(self) -> StatusServer | None:
        if not self.settings.observe.http:
            return None
        loop = asyncio.get_running_loop()

        def status() -> Mapping[str, Any]:
            return asyncio.run_coroutine_threadsafe(self._status(), loop).result()

        observer = StatusServer(self.settings.observe.http, status)
        port = observer.start()
        event(_log, logging.INFO, "observable", port=port)
        return observer

    # -- taking part --------------------------------------------------------------------------

    async def _take_part(self, authority: EpochAuthority) -> None:
        joined = await self._until(self._join(authority))
        if joined is None:
            return
        driver = self._driver = self._begin(joined, authority)
        seldom = self.settings.training.evaluate_every
        driver.asked = partial(learners.evaluating, self.learner, seldom, self._note_evaluation)
        driver.note_view()
        self._connect(joined.standing)
        every = self.settings.checkpoint.every_seconds
        work = [self._renewals(authority, driver), self._checkpoints.keep(driver, every)]
        tasks = [asyncio.create_task(one) for one in work]
        try:
            await driver.start()
            await self._until(driver.over.wait())
            await self._end(driver)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await driver.stop()
            await self._goodbye(authority, driver)

    async def _join(self, authority: EpochAuthority) -> Joined:
        """Join, and wait until the federation begins."""
        told = ""
        while True:
            try:
                joined = await self._joined(authority)
                standing = self._believed(joined.standing)
                break
            except DirectoryUnavailable as unavailable:
                if str(unavailable) != told:
                    event(_log, logging.WARNING, "waiting for the directory",
                          problem=str(unavailable))  # fmt: skip
                told = self._reason = str(unavailable)
                await asyncio.sleep(1.0)
        self._check_clock(authority)
        number = joined.number
        event(_log, logging.INFO, "joined", number=number, abstain_through=joined.abstain_through)
        # Once more at the least: with the answer comes the first permit to publish.
        while not (standing := await self._renewed(authority, 0) or standing).views:
            self._reason = (
                f"{len(standing.addresses)} of {self.settings.start_with} members have joined"
            )
            event(_log, logging.INFO, "waiting for members", joined=len(standing.addresses),
                  start_with=self.settings.start_with)  # fmt: skip
            await asyncio.sleep(0.5)
        return Joined(number, joined.abstain_through, standing, joined.incarnation)

    async def _joined(self, authority: EpochAuthority) -> Joined:
        node = self.settings.node
        return await self._stating(
            lambda: authority.join(
                address=self.address,
                charter=self.settings.charter(self.agreed),
                client=node.client,
                aggregator=node.aggregator,
                max_share=node.max_share,
                samples=self._samples,
                keys=None if self._keys is None else self._keys.statement,
            )
        )

    async def _stating(self, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        """Ask with this node's keys; stated once more if this machine's clock went back."""
        try:
            return await ask()
        except OldKeys as refused:
            if self._keys is None:
                raise
            self._keys.state_after(refused.newest)
            return await ask()

    def _believed(self, standing: Standing) -> Standing:
        """What the authority says, with the keys alone that this node has found right."""
        if self.agreed.weighed and any(one.view.samples is None for one in standing.views):
            raise ErisError("the authority gives views without samples, which weigh clients here")
        return standing if self._keys is None else self._keys.checked(standing)

    def _begin(self, joined: Joined, authority: EpochAuthority) -> Driver:
        around = self._around(joined)
        if isinstance(self.agreed, GossipSettings):
            gossiping = gossip_member(self.settings, self.agreed, joined, self.initial)
            self._checkpoints.restore(gossiping, self.learner)
            return GossipDriver(gossiping, *around)
        member = Member(
            self.agreed,
            joined.standing,
            self.initial,
            rounds=self.settings.federation.rounds,
            abstain_through=joined.abstain_through,
            unsure=isinstance(authority, RosterAuthority) and authority.lost,
            vault=None if self._keys is None else self._keys.vault,
        )
        del self.initial  # as large as the model, and no longer needed
        self._checkpoints.restore(member, self.learner)
        sender = member.node.client.sender
        member.agreement.coding.equip(self._tables)
        clients_key.unlock(sender, self._clients_key)
        answers.keep(sender, self.folder)
        if self._privacy is not None and isinstance(sender, SecureSender):
            views = joined.standing.views
            self._privacy.attach(sender, self._memory.run, views, self.journal)
        return AggregatingDriver(member, *around, self._keys, self._privacy, self._noise)

    def _note_evaluation(self, round: int, metrics: dict[str, float], problem: str) -> None:
        """How good the trainer calls the model after a round."""
        told = {"problem": problem} if problem else {}
        if self._driver is not None:
            self._driver.health.evaluated = metrics
        self.journal.write("evaluated", round=round, metrics=metrics, **told)
        event(_log, logging.INFO, "evaluated", round=round, **metrics, **told)

    def _around(self, joined: Joined) -> Around:
        """What a driver moves a member with."""
        recorder = None
        if self.settings.observe.record:
            recorder = Recorder(self.folder, joined.number, self.agreed.canonical)
        training = self.settings.training
        health = Health(training.most_failures, training.slow_after, training.time_limit)
        limits = Limits(message_bytes=self.settings.message_bytes(self.agreed))
        return self.learner, self._transport, self.journal, health, recorder, limits

    async def _renewals(self, authority: EpochAuthority, driver: Driver) -> None:
        """Keep the lease, and fetch permits and views as they are needed."""
        pause = renewed_after(self.settings)
        while True:
            try:
                async with asyncio.timeout(pause):
                    await driver.renew.wait()
            except TimeoutError:
                pass
            driver.renew.clear()
            standing = await self._renewed(authority, reached(driver.member, authority))
            if standing is None:
                await asyncio.sleep(min(0.5, pause))
                driver.renew.set()
                continue
            self._check_clock(authority)
            self._connect(standing)
            await driver.stand(standing)

    async def _renewed(self, authority: EpochAuthority, round: int) -> Standing | None:
        keys = self._keys
        try:
            if self._driver is not None and wants_epoch(self._driver.member):
                event(_log, logging.WARNING, "joins anew", problem=SKIPPED)
                return self._believed((await self._joined(authority)).standing)
            try:
                standing = await self._stating(
                    lambda: authority.renew(round, None if keys is None else keys.untold)
                )
            except NotAMember:  # it was told that this member left
                standing = (await self._joined(authority)).standing
            self._reason = ""
            return self._believed(standing)
        except DirectoryUnavailable as unavailable:
            if str(unavailable) != self._reason:
                self._reason = str(unavailable)
                event(_log, logging.WARNING, "directory unavailable", problem=self._reason)
        except ErisError as refused:
            event(_log, logging.ERROR, "refused", problem=str(refused))
            self._reason = str(refused)
            self._failure = refused
            self.stop()
        return None

    def _connect(self, standing: Standing) -> None:
        for member, address in enumerate(standing.addresses):
            name = standing.views[-1].view.members[member] if standing.views else ""
            if name and name != self.name and address:
                self._transport.connect(name, address)

    async def _receive(self, peer: str, data: bytes) -> None:
        if self._driver is not None:
            await self._driver.receive(peer, data)

    def _identify(self, context: grpc.aio.ServicerContext[Any, Any]) -> str | None:
        name, _ = peer_identity(context)
        if self._driver is None:
            raise ErisError(f"{self.name} has not begun yet")
        if name not in self._driver.member.agreement.view.members:
            self._driver.renew.set()
            raise ErisError(f"{self.name} does not know a member {name!r} yet")
        return name

    def _on_state(self, peer: str, up: bool, why: str) -> None:
        level = logging.INFO if up else logging.WARNING
        event(_log, level, "peer up" if up else "peer down", peer=peer, why=why)

    def _check_clock(self, authority: EpochAuthority) -> None:
        offset = authority.clock_offset
        if offset is None or self._clock_told or abs(offset) < CLOCK_OFF:
            return
        self._clock_told = True
        event(_log, logging.WARNING, "clock", problem=(
            f"this machine's clock is {abs(offset):.0f} s {'behind' if offset > 0 else 'ahead of'} "
            "the directory's; training does not depend on it, but certificates and logs do: "
            "set one of the two right"))  # fmt: skip

    # -- what stays ---------------------------------------------------------------------------

    async def _end(self, driver: Driver) -> None:
        """Training is over: keep the model, and stay for those who are behind.

        One whose model is not complete stays as long, for somebody who brings what is missing; it
        says what that is, and that it failed.
        """
        if isinstance(driver.failure, TrainingFails):
            self._failure = driver.failure
        elif driver.failure is not None:
            self._failure = ErisError(f"a part of the node failed: {driver.failure!r}; see the log")
        if self._stopping.is_set() or driver.member.phase is not Phase.DONE:
            return
        linger = self.settings.node.linger
        if not driver.complete.is_set():
            self._reason = driver.missing()
            event(_log, logging.WARNING, "incomplete", problem=self._reason, waits_seconds=linger)
            await self._until(asyncio.wait({asyncio.create_task(driver.complete.wait())},
                                           timeout=linger))  # fmt: skip
            self._reason = driver.missing()
        if not driver.complete.is_set():
            if not self._stopping.is_set():
                self.journal.write("incomplete", round=driver.member.rounds, missing=self._reason)
                self._failure = ErisError(f"{self._reason}; {START_AGAIN}")
            return
        announced = await self._announce(driver)
        event(_log, logging.INFO, "staying for members that are behind", seconds=linger)
        await self._until(asyncio.sleep(linger))
        # Others may have told meanwhile that they have ended without a result that died with its
        # owner, and this node has followed them.
        if model_digest(driver.member.model) != announced:
            await self._announce(driver)
        self._failure = self._write_model(driver) or self._failure

    async def _announce(self, driver: Driver) -> str:
        """Write the model, and say that it is final and how good; its digest."""
        self._write_model(driver)
        digest, rounds = model_digest(driver.member.model), driver.member.rounds
        evaluating = in_thread(learners.evaluated, self.learner, driver.member.model)
        metrics, problem = await self._until(evaluating) or ({}, "")
        problem = driver.health.verdict() or problem
        told = {"problem": problem} if problem else {}
        self.journal.write("finished", round=rounds, metrics=metrics, model=digest, **told)
        event(_log, logging.ERROR if problem else logging.INFO, "finished",
              rounds=rounds, **metrics, **told)  # fmt: skip
        if self._privacy is not None:
            self._privacy.tell()
        if problem:
            self._failure = ErisError(f"training is over, but {problem}")
        return digest

    def _write_model(self, driver: Driver) -> ErisError | None:
        about = {"rounds": str(driver.member.rounds), "federation": self.agreed.name}
        try:
            layout = getattr(self.learner, "layout", None)
            pieces = model_bytes(driver.member.model, layout, about)
            storage.replace(self.folder / storage.MODEL, pieces, storage.KEPT)
        except ErisError as failed:
            event(_log, logging.ERROR, "model", problem=str(failed))
            return failed
        return None

    async def _goodbye(self, authority: EpochAuthority, driver: Driver) -> None:
        await self._checkpoints.save(driver)
        if driver.recorder is not None:
            driver.recorder.close(driver.member.model)
        try:
            async with asyncio.timeout(GRACE):
                await authority.leave(driver.member.acted)
        except (ErisError, TimeoutError) as error:
            event(_log, logging.INFO, "left without a word", problem=str(error) or "no answer")
        if self._keys is not None:
            self._keys.close()

    # -- showing ------------------------------------------------------------------------------

    async def _status(self) -> dict[str, Any]:
        """What the node shows; asked in the event loop, so an answer means that it runs."""
        if self._driver is None:
            return NodeState(name=self.name, reason=self._reason).mapping()
        saved_at = self._checkpoints.saved_at
        return shown(self._driver, self.name, self.address, self._reason, saved_at)

    async def _until(self, work: Any) -> Any:
        """Await something, unless the node is stopped first; then None."""
        doing = asyncio.ensure_future(work)
        stopping = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait({doing, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if doing.done():
            return doing.result()
        doing.cancel()
        return None
