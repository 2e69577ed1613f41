"""A node's checkpoint: looked at before it joins, gone on from, written between rounds."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path

from eris.core.errors import ErisError
from eris.protocol.machine import Machine
from eris.runtimes.grpc import storage
from eris.runtimes.grpc.driver import Driver
from eris.runtimes.grpc.logs import event
from eris.runtimes.grpc.storage import RUN, Memory
from eris.runtimes.grpc.threads import written
from eris.training.trainer import Learner, StatefulTrainer

_log = logging.getLogger("eris.node")
_OWN = "trainer/"
"""What of the state is the trainer's own."""


class Checkpoints:
    """The checkpoint in a folder, of a federation whose settings have a ``fingerprint``."""

    def __init__(self, folder: Path, fingerprint: int, memory: Memory) -> None:
        self.path = folder / storage.CHECKPOINT
        self.saved_at: float | None = None
        """When the last one was written, by the monotonic clock."""
        self._federation, self._memory = f"{fingerprint:016x}", memory
        self._complaint = ""

    def check(self) -> None:
        """Refuse one that is damaged or of another federation, before anybody is told of it."""
        about = storage.about(self.path)
        if about is not None and about.get("federation") != self._federation:
            raise ErisError(
                f"{self.path} belongs to a federation with other settings; give this node another "
                "folder, or remove the file to start from the beginning"
            )

    def restore(self, member: Machine, learner: Learner) -> None:
        """Go on from it, if there is one, and if it is of the run that this node is in."""
        found = storage.load(self.path)
        if found is None:
            return
        state, about = found
        if (run := about.get(RUN, "")) != self._memory.run:
            raise ErisError(
                f"{self.path} is of run {run[:8] or 'unknown'} of this federation, not of "
                f"{self._memory.run[:8]}; give this node an empty folder, and it catches up from "
                "its peers"
            )
        own = {k.removeprefix(_OWN): v for k, v in state.items() if k.startswith(_OWN)}
        member.restore({k: v for k, v in state.items() if not k.startswith(_OWN)})
        if own and isinstance(learner, StatefulTrainer):
            learner.restore(own)
        event(_log, logging.INFO, "resumed", round=member.round)

    async def keep(self, driver: Driver, every: float) -> None:
        """Write one now and then, between rounds, for as long as this is awaited."""
        while True:
            await asyncio.sleep(every)
            driver.round_begun.clear()
            await driver.round_begun.wait()
            await self.save(driver)

    async def save(self, driver: Driver) -> None:
        """Write one; what keeps it from the disk is told once, and the last one stays."""
        async with driver.moving:
            state = dict(driver.member.state())
            state |= {f"{_OWN}{name}": value for name, value in driver.trainer_state.items()}
            about = {
                "federation": self._federation,
                "round": str(driver.member.round),
                RUN: self._memory.run,
            }
            about |= driver.record()
            try:
                await written(storage.save, self.path, state, about)
                self.saved_at, self._complaint = time.monotonic(), ""
            except ErisError as failed:
                if str(failed) != self._complaint:
                    event(_log, logging.ERROR, "checkpoint", problem=str(failed))
                self._complaint = str(failed)
