"""Scenes: a script of commands to members and directory, with the course it leads to underneath.

A scene is a text. A block of it is one command or several, a line ``----``, and what came of them,
up to an empty line; lines that begin with ``#`` are for the reader. :func:`play` gives the text
back with what really happens, so that a change of behaviour is a difference that one can read::

    federation members=3 shards=2
    join all
    train all
    deliver
    ----
      0.00 anna                             joins
    …

The machines are the real ones, the clock is virtual, and whatever members say to each other waits
until it is delivered, lost or doubled by a command; calls to the directory are answered at once.
The laws (:mod:`eris.testing.witness`) are checked all the while. A command is a method ``do_…`` of
:class:`Scene`; its docstring says what it does.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from eris.core.errors import ErisError
from eris.protocol.messages import Message, Outgoing
from eris.testing.liar import twisted
from eris.testing.places import Host
from eris.testing.shape import Shape
from eris.testing.trace import Trace, segment
from eris.testing.weather import Trouble, Weather
from eris.testing.world import World

RULE = "----"
DIRECTORY = "directory"


class SceneError(ErisError):
    """A command that makes no sense; says which, and what was expected."""


@dataclass(frozen=True)
class InFlight:
    """A message on its way."""

    sender: str
    receiver: str
    message: Message
    arrive: Callable[[], None]


class Calm(Weather):
    """Nothing goes wrong, and nobody is through with training until it is told."""

    def training(self, host: int, round: int, now: float) -> float:
        """For ever."""
        return math.inf


class Scene(World):
    """A world that is moved by commands."""

    store_every = sys.maxsize  # nothing is stored but by a command

    def __init__(self, shape: Shape) -> None:
        super().__init__(seed=0, shape=shape, kinds=frozenset(), incidents=())
        self.weather = Calm(0, shape, kinds=frozenset(), planned=())
        self.lines: list[str] = []
        """What has happened since the last block."""
        self.witness = self.trace = Trace(self, self._tell)
        self._hidden: tuple[str, ...] = ()
        self.flying: list[InFlight] = []
        self.at(math.inf, lambda: None)  # time never ends

    def command(self, line: str) -> None:
        """Do what a line says."""
        verb, *words = line.split()
        does = getattr(self, f"do_{verb}", None)
        if does is None:
            raise SceneError(f"no command {verb!r}; expected one of {', '.join(COMMANDS)}")
        options = dict(word.split("=", 1) for word in words if "=" in word)
        try:
            does(*(word for word in words if "=" not in word), **options)
        except (TypeError, ValueError) as wrong:
            raise SceneError(f"{line}: {wrong}") from wrong
        self.run_until(self.now)

    # -- commands -----------------------------------------------------------------------------

    def do_join(self, *names: str) -> None:
        """Members (or ``all``) start, for the first time or again, with what is on their disks."""
        for host in self._hosts(names):
            self._start(host)
            self.run_until(self.now)
        for host in self.hosts:
            if host.joined is not None and host.member is None:
                self.ask(host)  # the federation may have begun meanwhile
                self.run_until(self.now)

    do_restart = do_join

    def do_train(self, *names: str) -> None:
        """Members (or ``all`` that are at it) are through with training."""
        for host in self._hosts(names):
            if host.member is not None and host.member.job is not None:
                self._trained(host, host.member, host.member.job)

    def do_deliver(self, **which: str) -> None:
        """Messages arrive: all, and what they lead to, or those that are now on their way
        ``from=``, ``to=``, of a kind (``what=result``) or of a segment (``of=0.0``)."""
        while self.flying:
            for flying in self._chosen(which):
                self.flying.remove(flying)
                if self._host(flying.receiver).member is None:
                    unheard = f"is not there to hear {self.trace.worded(flying.message)}"
                    self.trace.tell(unheard, name=flying.receiver)
                flying.arrive()
                self.run_until(self.now)
            if which:
                return

    def do_drop(self, **which: str) -> None:
        """Messages are lost."""
        for flying in self._chosen(which):
            self.flying.remove(flying)
            self.trace.tell(
                f"never hears {self.trace.worded(flying.message)}", name=flying.receiver
            )

    def do_double(self, **which: str) -> None:
        """Messages will arrive twice."""
        self.flying += self._chosen(which)

    def do_tick(self, seconds: str) -> None:
        """Time passes; what is on its way stays there."""
        self.run_until(self.now + float(seconds))

    def do_rounds(self, count: str) -> None:
        """Whole rounds in fine weather: all train, and everything is delivered."""
        for _ in range(int(count)):
            self.do_train("all")
            self.do_deliver()

    def do_run(self, seconds: str, epoch: str = "") -> None:
        """Time passes in fine weather: messages take 0.1 s at most and training 0.5 s. With
        ``epoch=``, nobody is through with training in it, and it ends when all that are there are
        at it."""
        for step in range(1, 1 + round(10 * float(seconds))):
            self.do_tick("0.1")
            there = [(host, host.member) for host in self.hosts if host.member is not None]
            early = [host for host, m in there if str(m.view.epoch) != epoch or m.job is None]
            if not early:
                return
            if step % 5 == 0:
                self.do_train(*(self.shape.name(host.number) for host in early))
            self.do_deliver()

    def do_hide(self, *words: str) -> None:
        """From now on lines with one of these words are left out; ``everything``, ``nothing``."""
        named: dict[tuple[str, ...], tuple[str, ...]] = {("everything",): (" ",), ("nothing",): ()}
        self._hidden = named.get(words, words)

    def do_store(self, *names: str) -> None:
        """Members write a checkpoint."""
        for host in self._hosts(names):
            host.store()

    def do_crash(self, *names: str, disk: str = "kept") -> None:
        """Processes end, the ``directory``'s too; with ``disk=lost`` nothing is left of them."""
        if DIRECTORY in names:
            self.authority.fail()
        for host in self._hosts(name for name in names if name != DIRECTORY):
            host.stop()
            if disk == "lost":
                host.lose_disk()

    def do_leave(self, *names: str) -> None:
        """Members say goodbye to the directory, and stop."""
        self._strike(Trouble.LEAVE, frozenset(host.number for host in self._hosts(names)))

    def do_recover(self, directory: str, ledger: str = "kept") -> None:
        """The ``directory`` starts again, with its ledger, an ``older`` copy of it, or, since that
        is ``lost``, a new one; ``found`` puts the newest in its place again."""
        match ledger:
            case "lost" | "older":
                self.authority.forget(1.0 if ledger == "lost" else 0.5)
            case "found":
                self.authority.remember()
            case _:
                self.authority.recover()

    def do_lie(self, *names: str) -> None:
        """From now on members answer with states that they have made up."""
        for host in self._hosts(names):
            host.lying = True

    def do_show(self) -> None:
        """What is on its way, and where everybody is."""
        for flying in self.flying:
            self._tell(
                f"       {flying.sender} → {flying.receiver}: {self.trace.worded(flying.message)}"
            )
        for host in self.hosts:
            if (member := host.member) is not None:
                versions = member.node.replica.versions.items()
                held = " ".join(f"{segment(key)}@{version}" for key, version in versions)
                done = ", finished" if member.finished else ""
                self.trace.tell(f"{member.phase.value}, has {held}{done}", member)

    # -- what a world does otherwise ----------------------------------------------------------

    def _prepare(self) -> None:
        """Nobody starts by itself."""

    def spread(self, seat: Host[Any], said: Outgoing, arrive: Callable[[Host[Any]], None]) -> None:
        """What is said stays on its way."""
        message = twisted(said.message) if seat.lying else said.message
        for receiver in (self.seats[to] for to in said.to):
            names = self.shape.name(seat.number), self.shape.name(receiver.number)
            self.flying.append(InFlight(*names, message, partial(arrive, receiver)))

    def _carry(
        self,
        sender: int,
        receiver: int,
        arrive: Callable[[], None],
        *,
        twice: Trouble | None = None,
    ) -> None:
        self.at(self.now, arrive)

    def _tell(self, line: str) -> None:
        if not any(word in line for word in self._hidden):
            self.lines.append(line)

    # -- words --------------------------------------------------------------------------------

    def _hosts(self, names: Iterable[str]) -> list[Host[Any]]:
        chosen = list(names)
        return self.hosts if chosen == ["all"] else [self._host(name) for name in chosen]

    def _host(self, name: str) -> Host[Any]:
        names = [self.shape.name(host.number) for host in self.hosts]
        if name not in names:
            raise SceneError(f"no member {name!r}; expected one of {', '.join(names)}")
        return self.hosts[names.index(name)]

    def _chosen(self, which: dict[str, str]) -> list[InFlight]:
        """What is on its way and meant."""
        if unknown := which.keys() - {"from", "to", "what", "of"}:
            raise SceneError(f"no choice by {unknown.pop()!r}; expected from, to, what or of")
        found = [one for one in self.flying if which.items() <= self._names(one).items()]
        if which and not found:
            meant = " ".join(f"{what}={value}" for what, value in which.items())
            raise SceneError(f"nothing on its way has {meant}")
        return found

    def _names(self, flying: InFlight) -> dict[str, str]:
        message = flying.message
        return {
            "from": flying.sender, "to": flying.receiver, "of": segment(message.header.key),
            "what": type(message).__name__.lower(),
        }  # fmt: skip


COMMANDS = ("federation", *(name[3:] for name in dir(Scene) if name.startswith("do_")))


def play(text: str) -> str:
    """A scene with what really happens under its commands.

    >>> print(play("federation members=3\\n----\\n"), end="")
    federation members=3
    ----
    """
    scene: Scene | None = None
    out: list[str] = []
    expected = False  # whether these are lines of a course, which is written anew
    for number, line in enumerate(text.splitlines(), 1):
        if expected and line:
            continue
        expected = line == RULE
        out.append(line)
        try:
            if expected and scene is not None:
                out += scene.lines
                scene.lines.clear()
            elif line and not line.startswith("#") and not expected:
                if line.split()[0] == "federation":
                    scene = Scene(_shape(line))
                elif scene is None:
                    raise SceneError("a scene begins with a federation")
                else:
                    scene.command(line)
        except SceneError as wrong:
            raise SceneError(f"line {number}: {wrong}") from wrong
    return "\n".join(out) + "\n"


def _shape(line: str) -> Shape:
    """``federation members=3 roster=true``: any field of a shape, as JSON has it."""
    told: dict[str, Any] = {"members": 3, "shards": 2, "kept": 1.0, "cautious": True}
    known = [one.name for one in fields(Shape)]
    for word in line.split()[1:]:
        name, _, value = word.partition("=")
        if name not in known:
            raise SceneError(f"no field {name!r} of a shape; expected one of {', '.join(known)}")
        try:
            told[name] = json.loads(value)
        except ValueError:
            raise SceneError(f"{name} is {value!r}; expected a number, true or false") from None
    return Shape(**told)
