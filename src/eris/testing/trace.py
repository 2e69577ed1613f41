"""What happens in a simulated world, a line an event: time, member, round, epoch, role, what.

``python -m eris.testing.world --seed 5 --trace`` shows a world's whole course, and the scenes in
``tests/scenes`` are written in the same words. A segment is named ``shard.number``; ``→`` is what a
member says, ``←`` what it hears.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from textwrap import fill
from typing import TypeVar

from eris.core.vectors import Vector
from eris.protocol.agreement import Key
from eris.protocol.authority.directory import Refused
from eris.protocol.authority.standing import Scheduled
from eris.protocol.messages import (
    CatchUp,
    Contribution,
    Holding,
    Message,
    Outgoing,
    Refusal,
    Result,
    Reveal,
    RevealRequest,
    Share,
    Snapshot,
)
from eris.protocol.recent import Recent
from eris.protocol.round.ending import Phase
from eris.protocol.round.member import Member
from eris.protocol.view import NOBODY
from eris.testing.found import Case, kept
from eris.testing.liar import made_up, twisted
from eris.testing.weather import Trouble
from eris.testing.witness import Witness
from eris.testing.world import World

Item = TypeVar("Item")
UNSEEN = (Trouble.DROP, Trouble.DUPLICATE, Trouble.DELAY, Trouble.ECHO, Trouble.SLOW,
          Trouble.FAILURE, Trouble.POISON)  # fmt: skip
"""Troubles that are not incidents: they strike a single message or training, just after a line."""
ROLE = 20
"""Characters for a member's round, epoch and role."""
_DOES = {
    Phase.CATCHING_UP: "catches up",
    Phase.TRAINING: "trains",
    Phase.EXCHANGING: "follows",
    Phase.DONE: "is through",
}


def segment(key: Key) -> str:
    """A segment's name.

    >>> segment((1, 0))
    '1.0'
    """
    return f"{key[0]}.{key[1]}"


def worded(message: Message, names: Sequence[str]) -> str:
    """A message in a few words; ``names`` are the members'."""
    header = message.header
    of = f"{segment(header.key)} of round {header.round}"
    match message:
        case Contribution(based_on=on):
            return f"contribution {of} (on {on})"
        case Result(previous=on, included=included, payload=payload):
            who = " ".join(names[client] for client in sorted(included))
            return f"result {of} (on {on}): {'withheld' if payload is None else who}"
        case CatchUp(have=have, whole=whole):
            return f"question {segment(header.key)}, " + ("whole" if whole else f"after {have}")
        case Snapshot(at=at) | Holding(at=at):
            kind = "state" if isinstance(message, Snapshot) else "holding"
            lie = " (made up)" if made_up(message) else ""
            return f"{kind} {segment(header.key)} of round {at}{lie}"
        case RevealRequest(included=included) | Reveal(included=included):
            asks = isinstance(message, RevealRequest)
            if not included:
                shard = f"shard {header.shard} in round {header.round}"
                return f"asks to keep seeds of {shard}" if asks else f"keeps seeds of {shard}"
            who = " ".join(names[client] for client in sorted(included))
            return f"{'asks to open' if asks else 'opens'} {of}: {who}"
        case Refusal(reason=reason):
            return f"refusal {of}: {reason}"
        case Share():
            return f"share {of}"


@dataclass(frozen=True)
class Glance:
    """What one sees of a member from outside, so that one can tell what has changed."""

    round: int
    epoch: int
    role: str
    phase: Phase
    versions: dict[Key, int]
    astray: frozenset[Key]
    refused: int
    left_out: int
    discarded: int

    @classmethod
    def at(cls, member: Member) -> Glance:
        """A member as it is now."""
        view, node = member.view, member.node
        owned = ",".join(map(str, view.owned_by(member.me)))
        roles = ["client"] * (member.me in view.client_set) + [f"owns {owned}"] * bool(owned)
        return cls(
            member.round,
            view.epoch,
            ", ".join(roles) or "no role",
            member.phase,
            dict(node.replica.versions),
            frozenset(node.replica.astray),
            node.refused.count_of_all,
            node.client.left_out.count_of_all,
            member.discarded,
        )

    def since(self, before: Glance, member: Member, name: Callable[[int], str]) -> list[str]:
        """What has become different, in words; ``name`` gives members' names."""
        moved: dict[int, list[Key]] = {}
        for key, version in self.versions.items():
            if version != before.versions[key]:
                moved.setdefault(version, []).append(key)
        said = [f"has {_all(keys)} of round {version}" for version, keys in moved.items()]
        if astray := self.astray - before.astray:
            said.append(f"is astray with {_all(sorted(astray))}")
        node = member.node
        for why in _latest(node.refused, self.refused - before.refused):
            said.append("notes: " + re.sub(r"member (\d+)", lambda m: name(int(m[1])), why))
        lost = _latest(node.client.left_out, self.left_out - before.left_out)
        for key in sorted({key for _, key in lost}):
            rounds = " ".join(str(round) for round, missed in lost if missed == key)
            said.append(f"was left out of {segment(key)} of round {rounds}")
        if self.discarded > before.discarded:
            said.append("drops its update, which came too late")
        entered = self.round != before.round
        if entered or (self.phase is not before.phase and self.phase is not Phase.EXCHANGING):
            said.append(_DOES[self.phase])
        return said


def _latest(items: Recent[Item], count: int) -> list[Item]:
    return list(items)[-count:] if count else []


def _all(keys: Iterable[Key]) -> str:
    return " ".join(map(segment, keys))


class Trace(Witness):
    """A witness of a world that tells what it sees; put in the place of the world's own.

    >>> world, lines = World(seed=1, kinds=frozenset()), list[str]()
    >>> world.witness = Trace(world, lines.append)
    >>> world.run()
    >>> len(lines) > 100
    True
    """

    def __init__(self, world: World, say: Callable[[str], object]) -> None:
        super().__init__(world.settings)
        self._world, self._say = world, say
        self._glances: dict[Member, Glance] = {}
        self._through: Counter[int] = Counter()
        incidents = world.weather.incidents
        coming = [(one.start, one.kind.value, one.members) for one in incidents]
        coming += [(one.end, f"over: {one.kind.value}", one.members) for one in incidents]
        self._struck, self._last = Counter[Trouble](), 0.0
        self._coming = deque(sorted(coming, key=lambda trouble: trouble[0]))
        self.announced(world.authority.roster)

    def tell(self, what: str, member: Member | None = None, name: str = "directory") -> None:
        """An event, of a member or of somebody who has only a name."""
        self._tell_troubles()
        where = ""
        if member is not None:
            name, seen = self._name(member.me), self._glances.get(member) or Glance.at(member)
            where = f"r{seen.round} e{seen.epoch} {seen.role}"
        self._say(f"{self._world.now:6.2f} {name:<9} {where:<{ROLE}} {what}")

    def _tell_troubles(self) -> None:
        """What the weather has done since the last line."""
        struck = Counter({kind: self._world.weather.struck[kind] for kind in UNSEEN})
        for kind, times in (struck - self._struck).items():
            more = f" ({times} times)" if times > 1 else ""
            self._say(f"{self._last:6.2f} {kind.value}{more}")
        self._struck, self._last = struck, self._world.now
        while self._coming and self._coming[0][0] <= self._world.now:
            time, trouble, hosts = self._coming.popleft()
            names = " ".join(map(self._world.shape.name, sorted(hosts)))
            nobody = "directory" if "directory" in trouble else "nobody"
            self._say(f"{time:6.2f} {names or nobody}: {trouble}")

    def _name(self, number: int) -> str:
        seat = self._world.seats.get(number)
        # A member that the others know may not have been told yet that it is in.
        return self._names[number] if seat is None else self._world.shape.name(seat.number)

    @property
    def _names(self) -> Sequence[str]:
        return self.views[max(self.views)].view.members

    def worded(self, message: Message) -> str:
        """A message, with the members' names."""
        return worded(message, self._names)

    # -- what a witness is told ---------------------------------------------------------------

    def announced(self, views: Sequence[Scheduled]) -> None:
        """The authority has told of these views."""
        new = [one for one in views if one.view.epoch not in self.views]
        super().announced(views)
        for view, start in ((one.view, one.from_round) for one in new):
            owners = ("nobody" if one == NOBODY else view.members[one] for one in view.owners)
            shards = ", ".join(f"{shard} {owner}" for shard, owner in enumerate(owners))
            clients = " ".join(view.members[client] for client in view.clients)
            told = f"epoch {view.epoch} from round {start}: shard {shards}; clients {clients}"
            self.tell(told)

    def refused(self, why: Refused) -> None:
        """The directory has turned a member down."""
        super().refused(why)
        self.tell("refuses: " + re.split(r"[;.] ", str(why))[0])

    def started(self, member: int, abstain_through: int, *, unsure: bool = False) -> None:
        """A member starts."""
        super().started(member, abstain_through, unsure=unsure)
        silent = f", abstains up to round {abstain_through}" if abstain_through else ""
        silent = ", does not know what it has published" if unsure else silent
        self.tell(f"joins{silent}", name=self._name(member))

    def permitted(self, member: int, through: int) -> None:
        """A member has been told how far it may publish."""
        super().permitted(member, through)
        if through > self._through[member]:
            self._through[member] = through
            told, seat = f"is permitted rounds up to {through}", self._world.seats[member]
            self.tell(told, seat.member, self._name(member))

    def sent(self, said: Outgoing, member: Member, data: bytes = b"") -> None:
        """A member has said something."""
        to = " ".join(map(self._name, said.to))
        whom = "keeps its" if said.to == (member.me,) else f"→ {to}:"
        lying = self._world.seats[member.me].lying
        told = twisted(said.message) if lying else said.message
        self.tell(f"{whom} {self.worded(told)}", member)
        super().sent(said, member, data)

    def made_up(self, member: Member, message: Message, hides: Vector | None = None) -> None:
        """A member lies."""
        super().made_up(member, message, hides)
        self.tell(f"lies: {self.worded(message)}", member)

    def received(self, message: Message, source: int, member: Member) -> None:
        """A message has reached a member."""
        super().received(message, source, member)
        self.tell(f"← {self._name(source)}: {self.worded(message)}", member)

    def look(self, member: Member) -> None:
        """A member may have moved."""
        before, now = self._glances.get(member), Glance.at(member)
        said = [_DOES[now.phase]] if before is None else now.since(before, member, self._name)
        self._glances[member] = now
        if said:
            self.tell("; ".join(said), member)
        super().look(member)


def main(arguments: Sequence[str] | None = None) -> int:
    """Let one world run, and say what came of it; the exit status tells whether a law broke."""
    kinds = ", ".join(kind.name.lower() for kind in Trouble)
    parser = argparse.ArgumentParser(
        prog="python -m eris.testing.world",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="A whole federation in simulated trouble; the seed says which, and repeats it.",
        epilog=f"""\
--seed 5                     whether all laws held in world 5, in a line
--seed 5 --trace             everything that happened in it, a line an event
--seed 5 --kinds crash,drop  the same federation with no other trouble than this
--found 3 --trace            the third of the worlds that once broke a law

A line has time, member, round (r), epoch (e), role, and what happened. → is what a member
says and ← what it hears; 1.0 is the first segment of shard 1; a result or contribution "on 2"
builds on the state after round 2. Kinds of trouble:
{fill(kinds, 88)}.""",
    )
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seed", type=int, help="of the world")
    which.add_argument("--found", type=int, metavar="N", help="of the list of kept findings")
    parser.add_argument("--trace", action="store_true", help="print every event")
    parser.add_argument("--kinds", help="the only kinds of trouble, separated by commas")
    wanted = parser.parse_args(arguments)
    try:
        case = Case(wanted.seed) if wanted.found is None else kept()[wanted.found - 1]
    except IndexError:
        parser.error(f"--found is {wanted.found}; expected 1 to {len(kept())}")
    if wanted.kinds is not None:
        names = [name.strip().upper() for name in wanted.kinds.split(",") if name.strip()]
        if unknown := [name for name in names if name not in Trouble.__members__]:
            parser.error(f"--kinds names {unknown[0].lower()}; expected some of {kinds}")
        case = replace(case, kinds=frozenset(Trouble[name] for name in names))
    world, lines = case.world(), list[str]()
    if wanted.trace and isinstance(world, World):
        world.witness = Trace(world, lines.append)
    verdict = "all laws held"
    try:
        world.run()
    except Exception as broken:  # whatever it is, the seed repeats it
        verdict = f"{type(broken).__name__}: {broken}"
    shape, held = world.shape, verdict == "all laws held"
    lines.append(
        f"seed {world.seed}: {shape.members} members, {shape.shards} shards, "
        f"{len(world.entered)} rounds entered, {len(world.faulted)} faulted, "
        f"{len(world.weather.incidents)} incidents, {world.now:.1f} s: {verdict}"
    )
    with suppress(BrokenPipeError):  # of a reader who has seen enough
        print("\n".join(lines), flush=True)
    return 0 if held else 1
