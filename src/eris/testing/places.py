"""The places of a simulated world: hosts with a clock and a disk, and the authority over epochs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from eris.protocol.authority.directory import Directory, Joined, NotYet, Refused
from eris.protocol.authority.history import History, Mark
from eris.protocol.authority.standing import LOOKAHEAD, Scheduled, Standing
from eris.protocol.enccluster.answering import RevealKey
from eris.protocol.enccluster.sending import EncryptingSender
from eris.protocol.enccluster.shares import KeyShare
from eris.protocol.round.member import Member
from eris.protocol.secure.certified import KeyStatement
from eris.protocol.secure.vault import Vault
from eris.runtimes.clock import M, Seat
from eris.testing.shape import Shape

LEASE = 2.0
Answer = TypeVar("Answer")


@dataclass
class AnswerDisk:
    """The part of a disk that has a client's answers."""

    written: dict[RevealKey, KeyShare] = field(default_factory=dict)

    def write(self, key: RevealKey, share: KeyShare) -> None:
        """On the disk on return."""
        self.written[key] = share


@dataclass
class Host(Seat[M]):
    """A machine, and what it has noted for the authority."""

    up: bool = False
    joined: Joined | None = None
    mark: Mark | None = None
    """The newest of the directory's ledger, as it noted on its disk before it acted on it."""
    ledger: int = 0
    """With a roster: the last round it may have published in, as it noted on its disk."""
    unsure: bool = False
    """Whether that note is lost."""
    starts: int = 0
    calls: int = 0
    begun: bool = False
    """Whether it has ever taken part."""
    doomed: bool = False
    """Whether it will stop when it publishes next."""
    lying: bool = False
    vault: Vault | None = None
    """Its secrets, since it last started; no disk has them."""
    renewals: int = 0
    """How often it has renewed its lease since then."""
    rewinds: int = 0
    """How often it was brought back with its memory."""
    answers: AnswerDisk = field(default_factory=AnswerDisk)
    """What it has answered about encrypted sums."""
    _image: Seat[M] | None = None

    def written(self) -> bytes:
        """All that is on its disk."""
        stored = b"".join(value.tobytes() for value in (self.disk or {}).values())
        return stored + b"".join(s.statement + s.data for s in self.answers.written.values())

    def take_up(self, member: M) -> None:
        """A member begins here; it goes on from what is stored."""
        self.member = member
        sender = member.node.client.sender if isinstance(member, Member) else None
        if isinstance(sender, EncryptingSender):
            sender.keep(self.answers.written, self.answers.write)
        if self.disk is not None:
            member.restore(self.disk)

    def take_image(self) -> None:
        """A snapshot of the machine: memory, disk and all."""
        if self.member is not None:
            self._image = deepcopy(replace(self, _image=None))

    def rewind(self) -> bool:
        """The machine is brought back as it was; whether there is such an image."""
        image, self._image = self._image, None
        if image is None or not self.up:
            return False
        calls, starts, rewinds = self.calls + 1, self.starts, self.rewinds + 1
        vars(self).update(vars(image))
        self.calls, self.starts, self.rewinds = calls, starts, rewinds
        self.asking, self.training, self.ticks_at = False, None, float("inf")
        return True

    def lose_disk(self) -> None:
        """Nothing is left of what was stored."""
        self.disk, self.mark, self.ledger, self.unsure = None, None, 0, True
        self.answers = AnswerDisk()

    def find_folder_of_another_run(self) -> None:
        """What is stored is of the same federation, but of another time that it trained."""
        other = History.new(f"another run of host {self.number:032}")
        self.mark = other.mark(self.stored)
        if self.disk is not None:
            state = {name: value.copy() for name, value in self.disk.items()}
            for value in state.values():
                if value.dtype == np.float32:
                    value += 1
            self.disk = state

    def stop(self) -> None:
        """The process is gone; its disk is not."""
        super().stop()
        self.up, self.joined, self.doomed, self.vault = False, None, False, None
        self.renewals, self._image = 0, None

    def draw_keys(self, seed: int, name: str) -> KeyStatement:
        """Other keys for every start, where members have any."""
        if self.vault is None:
            self.vault = Vault.simulated(seed, 1000 * self.starts + self.number)
        return KeyStatement(name, self.starts, self.vault.newest.public)


class Authority:
    """The directory with its disk, or a roster that every host has."""

    def __init__(
        self,
        shape: Shape,
        sizes: Sequence[int],
        start_with: int,
        clock: Callable[[], float],
        make: type[Directory] = Directory,
    ) -> None:
        self.shape, self._clock, self._make = shape, clock, make
        self._terms: dict[str, Any] = {
            "charter": "{}", "sizes": list(sizes), "start_with": start_with, "lease": LEASE,
            "least_clients": shape.enough if shape.cautious else shape.fewest,
        }  # fmt: skip
        if shape.keyed:
            self._terms["seats"] = 0 if shape.sums is None else shape.sums.threshold.seats
        if shape.own:
            self._terms |= {"weighed": True, "anew": True}
        self.starts = 0
        """How often the directory has been started."""
        self._newest: list[dict[str, Any]] | None = None
        self.directory: Directory | None = None
        self.roster: tuple[Scheduled, ...] = ()
        if shape.roster:
            self.roster = (Scheduled(shape.roster_view(list(sizes)), 1),)
        else:
            self._found()

    # -- a directory --------------------------------------------------------------------------

    def join(self, host: int, mark: Mark | None, keys: KeyStatement | None = None) -> Joined | None:
        """Take a host in, or back in; None while the directory does not answer."""
        shape, name = self.shape, self.shape.name(host)
        return self._asked(
            lambda directory: directory.join(
                self._clock(), name=name, fingerprint=name, address=name, charter="{}", mark=mark,
                client=shape.is_client(host), aggregator=shape.is_aggregator(host),
                max_share=shape.max_share, keys=keys,
                samples=shape.samples(host) if shape.is_client(host) else 0,
            )
        )  # fmt: skip

    def renew(
        self, host: int, joined: Joined, round: int, mark: Mark | None, number: int | None
    ) -> Standing | None:  # fmt: skip
        """Keep a host's lease."""
        name, start = self.shape.name(host), joined.incarnation
        return self._asked(
            lambda directory: directory.renew(
                self._clock(), name, name, round=round, incarnation=start, mark=mark, number=number
            )
        )

    def leave(self, host: int, joined: Joined, published: int | None, mark: Mark | None) -> None:
        """End a host's lease; it has published up to a round only."""
        name, start = self.shape.name(host), joined.incarnation
        with suppress(Refused):  # it may have started again
            self._asked(
                lambda directory: directory.leave(
                    self._clock(), name, name, incarnation=start, published=published, mark=mark
                )
            )

    def _asked(self, ask: Callable[[Directory], Answer]) -> Answer | None:
        """The directory's answer; None while it gives none."""
        directory = self.directory
        if directory is None:
            return None
        try:
            return ask(directory)
        except NotYet:
            return None
        finally:
            # What must be on disk is there before an answer tells of it, or a refusal.
            if directory.revision != self._stored[-1]["revision"]:
                self._stored.append(directory.state())

    def _entropy(self) -> str:
        """Other characters for every start."""
        self.starts += 1
        return f"{self.starts:032}"

    def fail(self) -> None:
        """The directory stops."""
        self.directory = None

    def recover(self) -> None:
        """The directory comes back with its disk."""
        if self.directory is None and not self.roster:
            stored = json.loads(json.dumps(self._stored[-1]))
            self.directory = self._make.restore(
                stored, self._clock(), **self._terms, entropy=self._entropy()
            )

    def _found(self) -> None:
        """The directory begins with a new ledger."""
        self.directory = self._make(**self._terms, entropy=self._entropy())
        self._stored = [self.directory.state()]
        """All that its disk has held, the last of which it does."""

    def forget(self, share: float) -> None:
        """The directory comes back with a copy that lacks a share of all revisions, or with none
        of them; :meth:`remember` undoes it."""
        self.fail()
        self._newest = self._stored
        kept = int(len(self._stored) * (1 - share))
        if kept:
            self._stored = self._stored[:kept]
            self.recover()
        else:
            self._found()

    def remember(self) -> None:
        """If it was found out that the ledger is not the newest, that is put in its place.

        A copy that nobody knows more than is as good as the original.
        """
        found_out = self.directory is not None and (
            self.directory.stale or not self.directory.state()["views"]
        )
        if self._newest is not None and found_out:
            self.fail()
            self._stored = self._newest
            self.recover()
        self._newest = None

    # -- a roster -----------------------------------------------------------------------------

    def consult(self, host: Host[Any], round: int) -> Standing:
        """What may be published is noted on the host's own disk before it is."""
        if host.joined is not None:
            host.ledger = max(host.ledger, round + LOOKAHEAD)
        addresses = tuple(self.roster[0].view.members)
        return Standing(host.number, self.roster, addresses, host.ledger, 0)
