"""A node's keys for sealed sums: its own, and which of the others' it believes.

Private keys are drawn at every start and are in memory only. What is on the disk are numbers: the
highest start that was seen of every member, so that keys from before do not come back.
"""

from __future__ import annotations

import ctypes
import json
import logging
import math
import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from eris.core.errors import ErisError
from eris.protocol.authority.standing import Scheduled, Standing
from eris.protocol.secure.certified import KeyStatement
from eris.protocol.secure.keys import RefusedKeys
from eris.protocol.secure.terms import REKEY_EVERY
from eris.protocol.secure.vault import Vault
from eris.protocol.settings import Settings
from eris.protocol.view import NOBODY, Seating, View, lawful
from eris.runtimes.grpc import pem, storage
from eris.runtimes.grpc.directory import DirectoryUnavailable
from eris.runtimes.grpc.logs import event
from eris.runtimes.grpc.tls import Identity

STARTS = "starts.json"
PR_SET_DUMPABLE = 4
_log = logging.getLogger("eris.node")


class NodeKeys:
    """Keys of one start of a node: drawn, stated, renewed, erased; and the others', checked.

    ``clock`` gives nanoseconds since 1970: a start's number, which grows with every statement.
    """

    def __init__(
        self,
        identity: Identity,
        settings: Settings,
        folder: Path,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        assert settings.keyed, "only sealed sums have keys"
        self.vault = Vault(lambda count, round: os.urandom(count))
        self.refused = 0
        """Statements that this node did not believe."""
        self._name, self._clock = identity.name, clock
        self._federation = settings.fingerprint
        self._need = 0 if settings.secure is None else settings.secure.threshold.need
        self._certificate, self._key = identity.statement_signer()
        self._authorities = pem.certificates(identity.authority)
        self._path = folder / STARTS
        remedy = "remove it: this node then believes keys of any start, as a new one does"
        self._noted = storage.noted(self._path, _starts, remedy) or {}
        self._newest = dict(self._noted)  # by name: the highest start
        self._believed: dict[str, KeyStatement] = {}
        self._told: set[tuple[object, ...]] = set()
        self._views: tuple[Scheduled, ...] = ()
        self._seatings: dict[int, tuple[Seating, Seating]] = {}  # by epoch: as told, as believed
        self._me, self._drawn = NOBODY, 0
        self.statement = self._signed()
        """What this node states: the public half of the newest keys."""

    # -- its own ------------------------------------------------------------------------------

    def _signed(self, after: int = 0) -> KeyStatement:
        start = max(self._clock(), after + 1, self._newest.get(self._name, 0) + 1)
        self._newest[self._name] = start
        public = self.vault.newest.public
        return KeyStatement.signed(
            self._federation, self._name, start, public, self._certificate, self._key
        )

    def state_after(self, start: int) -> None:
        """State the same keys once more: the directory knows of a later start, for this machine's
        clock went back."""
        self.statement = self._signed(after=start)

    @property
    def untold(self) -> KeyStatement | None:
        """The statement, until a view has it."""
        return None if self._stated_from() else self.statement

    @property
    def from_round(self) -> int | None:
        """The first round of the views that have this node's newest keys; None if none has."""
        return self._stated_from()

    def _stated_from(self) -> int | None:
        for scheduled in self._views:
            seating = scheduled.view.seating
            if seating is not None and self.statement in seating.statements[self._me :][:1]:
                return scheduled.from_round
        return None

    def enter(self, round: int) -> None:
        """A round has begun: draw new keys if it is time, and forget those that are done with.

        All members draw in the same rounds, so that there is one new view and not one for each. Old
        keys go when the first round with new ones is over.
        """
        if not self._drawn:
            self._drawn = max(1, round)
        if round // REKEY_EVERY > self._drawn // REKEY_EVERY and self.untold is None:
            self._drawn = round
            self.vault.renew(round)
            self.statement = self._signed()
        later = [scheduled.from_round for scheduled in self._views[1:]]
        needed = {
            scheduled.view.seating.known.get(self._me)
            for scheduled, end in zip(self._views, [*later, math.inf], strict=False)
            if scheduled.view.seating is not None and end >= round
        }
        self.vault.erase(needed)

    def close(self) -> None:
        """Forget all keys: this node has left."""
        self.vault.close()

    # -- the others' --------------------------------------------------------------------------

    def checked(self, standing: Standing) -> Standing:
        """What the authority says, with the keys alone that this node believes."""
        self._me, self._views = standing.me, standing.views
        views = tuple(replace(one, view=self._view(one.view)) for one in standing.views)
        epochs = {scheduled.view.epoch for scheduled in views}
        self._seatings = {e: known for e, known in self._seatings.items() if e in epochs}
        if views and self._newest != self._noted:
            self._note()
        return replace(standing, views=views)

    def _note(self) -> None:
        text = json.dumps(self._newest).encode()
        try:
            storage.replace(self._path, [text], "this node believes no keys that it cannot note")
        except ErisError as failed:  # as with a directory that cannot write: it asks again
            raise DirectoryUnavailable(str(failed)) from failed
        self._noted = dict(self._newest)

    def _view(self, view: View) -> View:
        told = view.seating
        if told is None:
            raise ErisError("the directory gives views without seats or keys, which sums need here")
        known = self._seatings.get(view.epoch)
        if known is None or known[0] != told:
            believed = tuple(
                None if one is None else self._believes(one) for one in told.statements
            )
            known = told, Seating(told.helpers, believed)
            self._seatings[view.epoch] = known
            self._look(view, known[1])
        return replace(view, seating=known[1])

    def _believes(self, statement: KeyStatement) -> KeyStatement | None:
        name = statement.name
        if self._believed.get(name) == statement:
            return statement
        last = self._newest.get(name, 0)
        try:
            statement.check(self._federation, self._authorities, datetime.now(UTC), last)
        except RefusedKeys as refused:
            self.refused += 1
            if self._first(name, str(refused)):
                event(_log, logging.WARNING, "keys refused", member=name, reason=str(refused))
            return None
        self._believed[name], self._newest[name] = statement, max(last, statement.start)
        return statement

    def _look(self, view: View, seating: Seating) -> None:
        """Say which shards cannot be opened as the rules have it: nothing of them is sent."""
        for shard, owner in enumerate(view.owners):
            helpers = seating.helpers[shard]
            why = "" if owner == NOBODY else _problem(seating, shard, owner, self._need)
            if why and self._first(shard, owner, helpers, why):
                event(_log, logging.WARNING, "shard withheld", shard=shard, epoch=view.epoch,
                      owner=view.members[owner], helpers=view.named(helpers), why=why)  # fmt: skip

    def _first(self, *what: object) -> bool:
        first = what not in self._told
        self._told.add(what)
        return first


def _problem(seating: Seating, shard: int, owner: int, need: int) -> str:
    """Why sums of a shard cannot be opened; empty if they can."""
    if seating.able(shard, owner, need):
        return ""
    if owner not in seating.known:
        return "the keys of its owner are not known"
    there = [member for member in seating.helpers[shard] if member in seating.known]
    if len(there) < need:
        return f"{len(there)} of its seats are held by members whose keys are known; {need} needed"
    if not lawful(owner, there, seating.parties):
        return "owner and helpers are not of different parties"
    return "a seat is held by a member whose keys are not known"


def _starts(note: dict[str, int]) -> dict[str, int]:
    return {str(name): int(start) for name, start in note.items()}


def keep_memory_off_disk() -> str:
    """Let no crash and no debugger of this user write this process' memory to a file.

    Returns what could not be done. Swap and hibernation are the machine's own.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if not sys.platform.startswith("linux"):
        return "this system can attach debuggers to the node; only core dumps are off"
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0):
        return f"the process stays dumpable: {os.strerror(ctypes.get_errno())}"
    return ""
