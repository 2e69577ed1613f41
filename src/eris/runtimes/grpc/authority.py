"""Who says which view holds: a directory that a member asks, or a roster that all have.

A roster never changes, so nobody can take a shard over: without an authority over epochs, members
that time each other out would split the federation.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeAlias

from eris.core.errors import ErisError
from eris.protocol.authority.standing import LOOKAHEAD, Joined, Scheduled, Standing
from eris.protocol.authority.succession import Candidate, assign
from eris.protocol.machine import Machine
from eris.protocol.round.member import Member
from eris.protocol.secure.certified import KeyStatement
from eris.protocol.view import View
from eris.runtimes.grpc import storage
from eris.runtimes.grpc.directory import DirectoryClient, DirectoryUnavailable
from eris.runtimes.grpc.roster import Roster
from eris.runtimes.grpc.settings import Agreed, shard_sizes

LEDGER = "ledger.json"


class RosterAuthority:
    """A list of members for good. What this node may have published it notes on its own disk.

    Without that note (its disk is lost) nobody knows; the node then publishes nothing until it has
    heard how far the others are. Only then is there a note again: a second loss in between must
    not look like a start from the beginning.
    """

    clock_offset: float | None = None

    def __init__(self, roster: Roster, name: str, settings: Agreed, folder: Path) -> None:
        self._path = folder / LEDGER
        self.view = roster_view(roster, settings)
        self.me = self.view.members.index(name)
        self._addresses = tuple(member.address for member in roster.members)
        remedy = "remove it, and this node publishes nothing in the first rounds it hears of"
        noted = storage.noted(self._path, lambda note: int(note["through"]), remedy)
        self._through, self.lost = noted or 0, noted is None

    async def join(self, **_: object) -> Joined:
        """What may have been published before; nobody is told."""
        return Joined(self.me, self._through, self._standing())

    async def renew(self, round: int, keys: KeyStatement | None = None) -> Standing:
        """Note what may be published from now on, before it is; a roster has no keys."""
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


EpochAuthority: TypeAlias = DirectoryClient | RosterAuthority
"""The authority over epochs, as a node sees it."""


def roster_view(roster: Roster, settings: Agreed) -> View:
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


def wants_epoch(member: Machine) -> bool:
    """Whether a member should join once more: it cannot give before an epoch begins."""
    return isinstance(member, Member) and member.node.client.wants_epoch


def reached(member: Machine, authority: EpochAuthority) -> int:
    """The round to tell the authority; with a roster whose note is lost, 0 until it can be written
    anew, and then at least what has to be in it."""
    lost = isinstance(authority, RosterAuthority) and authority.lost
    if lost and isinstance(member, Member):
        return 0 if member.ownership.unsure else max(member.round, member.ownership.abstain_through)
    return member.round
