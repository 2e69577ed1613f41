"""The places of a simulated world: hosts with a clock and a disk, and the authority over epochs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from eris.protocol.directory import Directory, Joined
from eris.protocol.member import Job, Member
from eris.protocol.settings import Settings
from eris.protocol.standing import LOOKAHEAD, Scheduled, Standing
from eris.testing.shape import Shape

LEASE = 2.0


@dataclass
class Host:
    """A machine: its clock, its disk, and the member that runs on it while it is up."""

    number: int
    offset: float
    rate: float
    up: bool = False
    member: Member | None = None
    joined: Joined | None = None
    disk: dict[str, NDArray[Any]] | None = None
    ledger: int = 0
    """With a roster: the last round it may have published in, as it noted on its disk."""
    unsure: bool = False
    """Whether that note is lost."""
    starts: int = 0
    asking: bool = False
    training: Job | None = None
    ticks_at: float = float("inf")
    stored: int = 0
    doomed: bool = False
    """Whether it will stop when it publishes next."""

    def clock(self, time: float) -> float:
        """What its clock shows."""
        return self.offset + self.rate * time

    def time(self, clock: float) -> float:
        """When its clock shows that."""
        return (clock - self.offset) / self.rate

    def store(self) -> None:
        """Write a checkpoint."""
        if self.member is not None:
            self.stored = self.member.round
            self.disk = {name: value.copy() for name, value in self.member.state().items()}

    def lose_disk(self) -> None:
        """Nothing is left of what was stored."""
        self.disk, self.ledger, self.unsure = None, 0, True

    def stop(self) -> None:
        """The process is gone; its disk is not."""
        self.up, self.member, self.joined, self.asking = False, None, None, False
        self.training, self.ticks_at, self.doomed = None, float("inf"), False


class Authority:
    """The directory with its disk, or a roster that every host has."""

    def __init__(
        self,
        shape: Shape,
        settings: Settings,
        start_with: int,
        clock: Callable[[], float],
        make: type[Directory] = Directory,
    ) -> None:
        shard_map = settings.plan.at(settings.n, settings.seed)
        sizes = [shard_map.size(shard) for shard in range(shard_map.shards)]
        self.shape, self._clock, self._make = shape, clock, make
        self._terms: dict[str, Any] = {
            "charter": "{}", "sizes": sizes, "start_with": start_with, "lease": LEASE,
            "least_clients": shape.enough if shape.cautious else 1,
        }  # fmt: skip
        self._starts = 0
        self.directory: Directory | None = None
        self.roster: tuple[Scheduled, ...] = ()
        if shape.roster:
            self.roster = (Scheduled(shape.roster_view(sizes), 1),)
        else:
            self.directory = make(**self._terms, entropy=self._entropy())
            self._stored = (self.directory.revision, self.directory.state())

    # -- a directory --------------------------------------------------------------------------

    def join(self, host: int) -> Joined | None:
        """Take a host in, or back in; None while the directory is away."""
        if self.directory is None:
            return None
        name = f"member-{host}"
        joined = self.directory.join(
            self._clock(), name=name, fingerprint=name, address=name, charter="{}",
            client=self.shape.is_client(host), aggregator=self.shape.is_aggregator(host),
            max_share=self.shape.max_share,
        )  # fmt: skip
        self._keep(self.directory)
        return joined

    def renew(self, host: int, joined: Joined, round: int) -> Standing | None:
        """Keep a host's lease."""
        if self.directory is None:
            return None
        name = f"member-{host}"
        standing = self.directory.renew(
            self._clock(), name, name, round=round, incarnation=joined.incarnation
        )
        self._keep(self.directory)
        return standing

    def leave(self, host: int, joined: Joined, published: int | None) -> None:
        """End a host's lease; it has published up to a round only."""
        if self.directory is not None:
            name = f"member-{host}"
            self.directory.leave(
                self._clock(), name, name, incarnation=joined.incarnation, published=published
            )
            self._keep(self.directory)

    def _keep(self, directory: Directory) -> None:
        """What must be on disk is there before an answer tells of it."""
        if directory.revision != self._stored[0]:
            self._stored = (directory.revision, directory.state())

    def _entropy(self) -> str:
        """Other characters for every start."""
        self._starts += 1
        return f"{self._starts:032}"

    def fail(self) -> None:
        """The directory stops."""
        self.directory = None

    def recover(self) -> None:
        """The directory comes back with its disk."""
        if self.directory is None and not self.roster:
            stored = json.loads(json.dumps(self._stored[1]))
            self.directory = self._make.restore(
                stored, self._clock(), **self._terms, entropy=self._entropy()
            )
            self._stored = (self.directory.revision, stored)

    # -- a roster -----------------------------------------------------------------------------

    def consult(self, host: Host, round: int) -> Standing:
        """What may be published is noted on the host's own disk before it is."""
        if host.joined is not None:
            host.ledger = max(host.ledger, round + LOOKAHEAD)
        addresses = tuple(self.roster[0].view.members)
        return Standing(host.number, self.roster, addresses, host.ledger, 0)
