"""Federations of node processes that train a quadratic, led from round to round by a test."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from eris.experiments.federations.processes import LocalFederation
from eris.runtimes.grpc.parts import describe
from eris.runtimes.grpc.settings import NodeSettings
from eris.testing.kills import TIMES, examine
from eris.testing.quadratic import let_train
from support.hosts import Hosts

PATIENCE = 300.0
"""Seconds, on a machine that may be busy; what does not hold by then never will."""
NAMES = ("anna", "ben", "cleo", "dora", "emil", "fay")


class Nodes(LocalFederation):
    """Node processes on a leash: they train up to the round that :meth:`lead` names.

    ``options`` are those of single nodes' learners, by name; with ``hosts`` each has its own.
    """

    def __init__(
        self,
        folder: Path,
        count: int,
        *,
        rounds: int,
        values: Mapping[str, Any] | None = None,
        own: Mapping[str, Mapping[str, Any]] | None = None,
        options: Mapping[str, Mapping[str, Any]] | None = None,
        hosts: Hosts | None = None,
    ) -> None:
        self.hosts = hosts
        self.leash, self.rounds = folder / "leash", rounds
        names, own, options = NAMES[:count], own or {}, options or {}
        common = {"leash": str(self.leash), "pace": 0.02}
        chosen = {
            **TIMES,
            "node.linger": 1.5,
            "federation.rounds": rounds,
            "training.trainer": "eris.testing.quadratic:Quadratic",
            **(values or {}),
        }
        single = {
            name: {"training.options": {**common, **options.get(name, {})}, **own.get(name, {})}
            for name in names
        }
        addresses = None if hosts is None else [host.address for host in hosts]
        super().__init__(folder / "nodes", names, chosen, single, addresses)
        let_train(self.leash, rounds)

    def lead(self, through: int) -> None:
        """Let them train up to a round."""
        let_train(self.leash, through)

    def begin(self, *names: str) -> None:
        """Start some nodes, or all."""
        for name in names or self.names:
            host = self.hosts and self.hosts[self.names.index(name)]
            self.start(name, prefix=host.command([]) if host else ())

    def step(self, first: int, last: int, *names: str) -> None:
        """Lead them round by round, so that permits follow closely; start them if need be."""
        self.lead(first)
        if not self.processes:
            self.begin()
        for round in range(first, last):
            self.lead(round)
            self.until_round(round + 1, *(names or self.names))

    # -- waiting ------------------------------------------------------------------------------

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait until something holds; where it never does, say what the nodes were doing."""
        deadline = time.monotonic() + PATIENCE
        while not holds():
            if time.monotonic() > deadline:
                logs = "\n".join(f"{name}:\n{self.log(name, 8)}" for name in self.names)
                raise AssertionError(f"not yet after {PATIENCE:g} s: {what}\n{logs}")
            time.sleep(0.03)  # journals and logs are files: there is nothing to wait on

    def until_round(self, round: int, *names: str) -> None:
        """Wait until nodes have begun a round."""
        for name in names:
            self.until(lambda name=name: self.at(name) >= round, f"{name} is in round {round}")  # type: ignore[misc]

    def until_said(self, name: str, *words: str) -> str:
        """Wait for a line with these words in a node's log, and give it."""
        self.until(lambda: bool(self.said(name, *words)), f"{name} says {words}")
        return self.said(name, *words)[0]

    def ends(self, name: str) -> int:
        """Wait until a node has ended by itself; its exit code."""
        return self.processes[name].wait(PATIENCE)

    def finish(self, *names: str) -> None:
        """Let them train to the end; all must end by themselves, well, and leave what they should.

        Without ``names`` that is all of them.
        """
        self.lead(self.rounds)
        codes = {name: self.ends(name) for name in names or self.names}
        assert not any(codes.values()), (codes, [self.log(n) for n, code in codes.items() if code])

    # -- looking ------------------------------------------------------------------------------

    def at(self, name: str) -> int:
        """The round a node has last begun."""
        return max((line["round"] for line in self.events(name, "began")), default=0)

    def said(self, name: str, *words: str) -> list[str]:
        """The lines of a node's log with all these words."""
        lines = self.log(name, 10_000).splitlines()
        return [line for line in lines if all(word in line for word in words)]

    def results(self, name: str, shard: int | None = None) -> dict[tuple[int, int], set[str]]:
        """Included members by (round, shard), of the results a node knows; withheld ones not."""
        found: dict[tuple[int, int], set[str]] = {}
        for line in self.events(name, "result"):
            members = [view["members"] for view in self.events(name, "view")][-1]
            if not line["withheld"] and shard in (None, line["segment"][0]):
                included = {members[number] for number in line["included"]}
                found[line["round"], line["segment"][0]] = included
        return found

    def presence(self, name: str) -> str:
        """Whether a member is here, away or has left, as the directory has it."""
        settings = NodeSettings.load(self.folder / self.names[0] / "node.toml", {})
        members = asyncio.run(describe(settings))["members"]
        return next(str(member["presence"]) for member in members if member["name"] == name)

    def views(self, name: str) -> list[dict[str, Any]]:
        """The views a node was told of."""
        return list(self.events(name, "view"))


def lawful(
    federation: LocalFederation,
    lost: Mapping[str, Sequence[Any]] | None = None,
    models: Sequence[str] | None = None,
) -> None:
    """Every law of a federation of processes holds for what it left behind.

    ``lost`` is what was in journals that are gone, ``models`` those that have to leave one.
    """
    _, wrong = examine(federation, lost, models)
    assert not wrong, "\n".join(wrong)
