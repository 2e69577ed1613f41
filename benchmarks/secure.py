"""What secure sums cost on real nodes, beside plain rounds and Flower's SecAgg+.

``python benchmarks/secure.py``: eight members, 2 of 3 helpers. CPU seconds over loopback; seconds
on links of 100 Mbit/s both ways, beside the limit of the same bytes, with all members there and
with one and two of eight killed; SecAgg+ on the same hosts and links, its mean checked; the in-step
engine; and the cryptography alone at the sizes that papers publish. Updates are uniform random
vectors (seed: the member's number), one sample each; no training counts. Needs root and iproute2;
Flower gets an environment of its own on first use. What a node or the engine refuses has no figure:
the refusal stands in its place.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from operator import add
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from benchmarks.hosts.cpu import CpuMeter
from benchmarks.hosts.engine import EngineRun
from benchmarks.hosts.eris_nodes import eris_round_ends
from benchmarks.hosts.places import Loopback, Place
from benchmarks.hosts.secagg import secagg_run
from benchmarks.peers.environments import FLOWER
from benchmarks.published_sizes import SIZES, measured
from benchmarks.secure_figures import (
    MEMBERS,
    PLAIN,
    RATE,
    SECURE,
    STARTS,
    THRESHOLD,
    Found,
    Run,
    conditions,
    figures,
    report,
)
from rich.console import Console

from eris.core.errors import ErisError
from eris.theory.distribution_time import Links
from eris.theory.secure_sums import secagg_bound_seconds
from support.hosts import Hosts, LinkShape, Namespace, require_tools

CONTESTANTS = ("cpu", "engine", "links", "killed", "secagg", "sizes")
RANGE = {"value_range": 0.125}
"""Of all variants: what four bytes a word have places for."""
CHARTERS: dict[str, dict[str, Any]] = {
    PLAIN: RANGE,
    **{
        name: {**RANGE, "secure_sums": str(THRESHOLD), "ring_bytes": size}
        for name, size in SECURE.items()
    },
}
"""What a node's charter says for each variant."""
NOISE: dict[str, Any] = {"epsilon": 8.0, "protects": "client", "clip": 0.01, "most_samples": 1}
"""Further words for variants with noise; of a whole client, for nothing is trained."""
SETTLED = 5
"""Rounds that count where nodes were killed: the last ones, when the view is without them."""
DEADLINE = 30.0
"""SecAgg+ is given up after so many times its bound a round, and ten minutes a round besides."""

Say = Callable[[str], None]


def with_noise(variant: str) -> str:
    """The name of a variant with noise."""
    return f"{variant}_noise"


def all_charters() -> dict[str, dict[str, Any]]:
    """The charters, also with noise."""
    noisy = {with_noise(name): CHARTERS[name] | NOISE for name in SECURE}
    return CHARTERS | noisy


@dataclass(frozen=True)
class Plan:
    """What is measured, and how often."""

    sizes: tuple[int, ...] = (1_000_000, 10_000_000)
    """Coordinates on links."""
    cpu_size: int = 1_000_000
    rounds: int = 5
    cpu_rounds: int = 20
    engine_rounds: int = 15
    killed: tuple[int, ...] = (1, 2)
    killed_rounds: int = 14
    secagg_rounds: int = 3
    """With nobody dropping out; one more for each number of ``killed`` that drop out."""
    published: tuple[tuple[int, int], ...] = SIZES

    def quick(self) -> Plan:
        """The same on small models: a try, whose figures say little."""
        return replace(
            self, sizes=(50_000,), cpu_size=50_000, rounds=3, cpu_rounds=4, engine_rounds=3,
            killed=(1,), secagg_rounds=1, published=((20, 16_384),),
        )  # fmt: skip

    def secagg_dropouts(self) -> list[int]:
        """How many clients drop out in each round of SecAgg+."""
        return [0] * self.secagg_rounds + list(self.killed)


# -- measuring --------------------------------------------------------------------------------


def nodes_run(
    places: Sequence[Place],
    parameters: int,
    rounds: int,
    charter: Mapping[str, Any],
    killed: int = 0,
) -> Run:
    """Rounds of real nodes; the first is not counted, nor where nodes were killed all but a few."""
    with CpuMeter() as meter:
        ends = eris_round_ends(places, parameters, MEMBERS, rounds, charter, killed=killed)
    counted = ends[-SETTLED - 1 :] if killed else ends[1:]
    seconds = tuple(after - before for before, after in pairwise(counted))
    cpu_s = meter.between(counted[0], counted[-1]) / len(seconds)
    return Run(parameters, seconds, cpu_s, longest_s=max(b - a for a, b in pairwise(ends[1:])))


def sent_by(hosts: Sequence[Namespace]) -> int:
    """Bytes that hosts have put on their links."""
    return reduce(add, (host.counters() for host in hosts)).sent


def on_links(hosts: Sequence[Namespace], rounds: int, measure: Callable[[], Run]) -> Run:
    """A run, and what its hosts put on their links in a round."""
    before = sent_by(hosts)
    run = measure()
    return replace(run, sent=(sent_by(hosts) - before) / rounds)


class Measuring:
    """Measures one thing after another; what is refused is noted, and the next one follows."""

    def __init__(self, plan: Plan, say: Say) -> None:
        self.plan, self.say, self.found = plan, say, Found()

    def _each(
        self, what: str, charters: Mapping[str, Mapping[str, Any]],
        measure: Callable[[str, Mapping[str, Any]], Run | None],
    ) -> None:  # fmt: skip
        for variant, charter in charters.items():
            self.say(f"{what}: {variant}")
            try:
                if (run := measure(variant, charter)) is not None:  # who stops it early has this
                    self.say(f"  {run.median_s:.2f} s, {run.cpu_s:.2f} CPU s a round")
            except ErisError as refusal:
                if variant == PLAIN:
                    raise
                self.say(f"refused: {refusal}")
                self.found.refused[f"{what}: {variant}"] = str(refusal)

    def cpu(self) -> None:
        """CPU seconds over loopback."""
        plan, places = self.plan, [Loopback()] * MEMBERS

        def measure(variant: str, charter: Mapping[str, Any]) -> Run:
            run = nodes_run(places, plan.cpu_size, plan.cpu_rounds, charter)
            self.found.cpu[variant] = run
            return run

        self._each(f"nodes over loopback, n = {plan.cpu_size:,}", all_charters(), measure)

    def engine(self) -> None:
        """CPU seconds of the simulator's engine, the variants in turn."""
        size, rounds = self.plan.cpu_size, self.plan.engine_rounds
        runs: dict[str, EngineRun] = {}

        def begin(variant: str, charter: Mapping[str, Any]) -> None:
            run = EngineRun(MEMBERS, size, rounds, charter)
            run.step()
            runs[variant] = run

        self._each(f"engine, n = {size:,}", all_charters(), begin)
        for _ in range(rounds):
            for run in runs.values():
                run.step()
        self.found.engine = {variant: run.cpu_s for variant, run in runs.items()}

    def links(self, hosts: Sequence[Namespace], parameters: int) -> None:
        """Seconds on links, everybody there."""
        rounds = self.plan.rounds

        def measure(variant: str, charter: Mapping[str, Any]) -> Run:
            run = on_links(hosts, rounds, lambda: nodes_run(hosts, parameters, rounds, charter))
            self.found.links[parameters, variant] = run
            return run

        self._each(f"nodes on links, n = {parameters:,}", CHARTERS, measure)

    def killed(self, hosts: Sequence[Namespace], number: int) -> None:
        """Seconds on links once some members are gone for good."""
        parameters, rounds = max(self.plan.sizes), self.plan.killed_rounds

        def measure(variant: str, charter: Mapping[str, Any]) -> Run:
            run = nodes_run(hosts, parameters, rounds, charter, killed=number)
            self.found.killed[number, variant] = run
            return run

        self._each(f"nodes on links, {number} killed, n = {parameters:,}", CHARTERS, measure)

    def secagg(self, hosts: Sequence[Namespace], parameters: int, dropouts: list[int]) -> None:
        """Flower's SecAgg+; the last host is the server's."""
        self.say(f"Flower's SecAgg+, n = {parameters:,}, dropouts {dropouts}")
        bound = secagg_bound_seconds(parameters, MEMBERS, Links.uniform(RATE))
        deadline = (DEADLINE * bound + 600) * (len(dropouts) + 1)
        before = sent_by(hosts)
        run = secagg_run(hosts, parameters, dropouts, deadline_s=deadline)
        self.found.secagg[parameters] = run
        self.found.secagg_sent[parameters] = (sent_by(hosts) - before) / len(dropouts)

    def sizes(self) -> None:
        """The cryptography alone."""
        for clients, values in self.plan.published:
            for size in SECURE.values():
                self.say(f"cryptography alone: {clients:,} clients × {values:,}, B = {size}")
                self.found.sizes.append(measured(clients, values, size))

    def all(self, wanted: Sequence[str]) -> Found:
        """Everything that is wanted."""
        for name in ("cpu", "engine", "sizes"):
            if name in wanted:
                getattr(self, name)()
        if {"links", "killed", "secagg"} & set(wanted):
            with Hosts(MEMBERS + 1, LinkShape()) as hosts:
                everybody = list(hosts)
                self._on_links(everybody, everybody[:MEMBERS], wanted)
        return self.found

    def _on_links(
        self, everybody: Sequence[Namespace], nodes: Sequence[Namespace], wanted: Sequence[str]
    ) -> None:
        for parameters in self.plan.sizes:
            if "links" in wanted:
                self.links(nodes, parameters)
        if "killed" in wanted:
            for number in self.plan.killed:
                self.killed(nodes, number)
        if "secagg" in wanted:
            self.secagg(everybody, STARTS, [0] * max(2, self.plan.secagg_rounds - 1))
            for parameters in self.plan.sizes:
                self.secagg(everybody, parameters, self.plan.secagg_dropouts())


# -- the program ------------------------------------------------------------------------------


def parse(arguments: Sequence[str] | None = None) -> tuple[Plan, list[str]]:
    """What to measure, and of whom."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="small models: only to try it")
    parser.add_argument("--sizes", type=float, nargs="+", help="coordinates on links")
    parser.add_argument("--rounds", type=int, help="rounds of a run on links")
    parser.add_argument("--secagg-rounds", type=int, help="rounds of SecAgg+ without dropouts")
    parser.add_argument(
        "--only", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS), metavar="WHAT",
        help=f"some of {', '.join(CONTESTANTS)}",
    )  # fmt: skip
    wanted = parser.parse_args(arguments)
    plan = Plan().quick() if wanted.quick else Plan()
    if wanted.sizes is not None:
        if min(wanted.sizes) < STARTS:
            parser.error(f"--sizes has {min(wanted.sizes):g}; expected at least {STARTS}")
        plan = replace(plan, sizes=tuple(int(size) for size in wanted.sizes))
    for name, least in (("rounds", 2), ("secagg_rounds", 1)):
        given = getattr(wanted, name)
        if given is not None and given < least:
            parser.error(f"--{name.replace('_', '-')} is {given}; expected at least {least}")
        if given is not None:
            plan = replace(plan, **{name: given})
    return plan, wanted.only


def main() -> None:
    plan, wanted = parse()
    before = os.getloadavg()[0]
    say = Console(stderr=True, markup=False).print
    try:
        if {"links", "killed", "secagg"} & set(wanted):
            require_tools()
        if "secagg" in wanted:
            FLOWER.prepare(say)
        found = Measuring(plan, say).all(wanted)
    except ErisError as error:
        raise SystemExit(str(error)) from error
    report(found, Console(width=120, markup=False))
    # A try has other sizes: nobody is to take it for a measurement.
    kind = "secure" if plan.sizes == Plan().sizes else "secure (other sizes)"
    said = {"benchmark": kind, "figures": figures(found), "refused": sorted(found.refused)}
    load = [before, os.getloadavg()[0]]
    print(json.dumps(said | {"conditions": conditions(found, plan.killed) | {"load": load}}))


if __name__ == "__main__":
    main()
