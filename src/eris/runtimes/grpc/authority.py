"""Who says which view holds: a directory that a member asks, or a roster that all have.

A roster never changes, so nobody can take a shard over: without an authority over epochs, members
that time each other out would split the federation.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from eris.core.errors import ErisError
from eris.protocol.authority.history import Mark, newest
from eris.protocol.authority.standing import LOOKAHEAD, Joined, Scheduled, Standing
from eris.protocol.authority.succession import Candidate, assign
from eris.protocol.settings import Settings
from eris.protocol.view import View
from eris.runtimes.grpc import storage
from eris.runtimes.grpc.directory import DirectoryClient, DirectoryUnavailable
from eris.runtimes.grpc.roster import Roster
from eris.runtimes.grpc.settings import NodeSettings, shard_sizes

LEDGER, MEMORY = "ledger.json", "run.json"
RUN = "run"
"""What a checkpoint calls the run it is of."""
Note = TypeVar("Note")


class Memory:
    """The newest mark of its run's ledger that a node has seen: ``run.json`` beside its checkpoint.

    It is on the disk before the node acts on an answer of the directory, so that whatever this node
    may have published, its folder knows of the ledger that permitted it.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / MEMORY
        about = storage.about(folder / storage.CHECKPOINT)
        self.mark = _noted(
            self._path, _mark, "give this node an empty folder: it catches up from its peers"
        )
        self.begun = about is not None or self.mark is not None
        """Whether the folder is of a run."""
        if self.mark is None and about and about.get(RUN):
            self.mark = Mark(about[RUN])  # the note is lost, but the checkpoint says it, too

    @property
    def run(self) -> str:
        """The identity of the run that the folder is of; empty if that is not known."""
        return "" if self.mark is None else self.mark.ledger

    def keep(self, told: Mark | None) -> None:
        """Note what was told; it is on the disk when this returns."""
        mark = newest(self.mark, told)
        if mark is not None and mark != self.mark:
            text = json.dumps(asdict(mark)).encode()
            storage.replace(self._path, [text], "this node acts on no answer that it cannot note")
            self.mark = mark


class DirectoryAuthority:
    """A directory somewhere on the network; what it answers is noted before anybody acts on it."""

    def __init__(
        self, client: DirectoryClient, settings: NodeSettings, charter: str, memory: Memory
    ) -> None:
        self._client, self._settings, self._charter = client, settings, charter
        self._memory = memory

    @property
    def clock_offset(self) -> float | None:
        """Seconds by which the directory's clock is ahead."""
        return self._client.clock_offset

    async def join(self, address: str) -> Joined:
        """Become a member, or one again."""
        node = self._settings.node
        joined = await self._client.join(
            address=address,
            charter=self._charter,
            client=node.client,
            aggregator=node.aggregator,
            max_share=node.max_share,
            mark=self._memory.mark,
        )
        await self._note(joined.standing)
        return joined

    async def renew(self, round: int) -> Standing:
        """Keep the lease."""
        standing = await self._client.renew(round, self._memory.mark)
        await self._note(standing)
        return standing

    async def leave(self, published: int | None) -> None:
        """End the lease."""
        await self._client.leave(published, self._memory.mark)

    async def _note(self, standing: Standing) -> None:
        """Before the federation has begun there is nothing to act on, nor a run to belong to."""
        if standing.views:
            try:
                await asyncio.to_thread(self._memory.keep, standing.mark)
            except ErisError as failed:
                raise DirectoryUnavailable(str(failed)) from failed


class RosterAuthority:
    """A list of members for good. What this node may have published it notes on its own disk.

    Without that note (its disk is lost) nobody knows; the node then publishes nothing until it has
    heard how far the others are. Only then is there a note again: a second loss in between must
    not look like a start from the beginning.
    """

    clock_offset: float | None = None

    def __init__(self, roster: Roster, name: str, settings: Settings, folder: Path) -> None:
        self._path = folder / LEDGER
        self.view = roster_view(roster, settings)
        self.me = self.view.members.index(name)
        self._addresses = tuple(member.address for member in roster.members)
        remedy = "remove it, and this node publishes nothing in the first rounds it hears of"
        noted = _noted(self._path, lambda note: int(note["through"]), remedy)
        self._through, self.lost = noted or 0, noted is None

    async def join(self, address: str) -> Joined:
        """What may have been published before; nobody is told."""
        return Joined(self.me, self._through, self._standing())

    async def renew(self, round: int) -> Standing:
        """Note what may be published from now on, before it is."""
        through = max(self._through, round + LOOKAHEAD)
        if self.lost and not round:
            return self._standing()
        if through > self._through:
            try:
                write_ledger(self._path.parent, through)
            except ErisError as failed:
                # As with a directory that cannot write: the node goes on, and asks again.
                raise DirectoryUnavailable(str(failed)) from failed
            self._through, self.lost = through, False
        return self._standing()

    async def leave(self, published: int | None) -> None:
        """Nobody is told: a roster does not change. What was not published is given back."""
        if published is not None and published < self._through:
            write_ledger(self._path.parent, published)

    def _standing(self) -> Standing:
        views = (Scheduled(self.view, 1),)
        return Standing(self.me, views, self._addresses, self._through, 0)


EpochAuthority: TypeAlias = DirectoryAuthority | RosterAuthority
"""The authority over epochs, as a node sees it."""


def roster_view(roster: Roster, settings: Settings) -> View:
    """The one view of a federation with a roster."""
    numbered = list(enumerate(roster.members))
    candidates = [Candidate(number, 1.0, True) for number, m in numbered if m.aggregator]
    clients = tuple(number for number, member in numbered if member.client)
    names = tuple(member.name for member in roster.members)
    return View(names, clients, assign(shard_sizes(settings), candidates), epoch=1)


def write_ledger(folder: Path, through: int) -> None:
    """Note the last round whose results this node may have published."""
    text = json.dumps({"through": through}).encode()
    storage.replace(folder / LEDGER, [text], "this node publishes nothing until it can")


def _noted(path: Path, read: Callable[[Any], Note], remedy: str) -> Note | None:
    """What a node has noted in a file; None if there is none."""
    try:
        return read(json.loads(path.read_text("utf-8"))) if path.exists() else None
    except (OSError, ValueError, KeyError, TypeError, ErisError) as damaged:
        raise ErisError(f"{path} is damaged ({damaged}); {remedy}") from damaged


def _mark(note: Any) -> Mark:
    mark = Mark(**note)
    mark.check()
    return mark
