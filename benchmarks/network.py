"""Rounds over a network beside its limit, Flower and bare gRPC: ``python benchmarks/network.py``.

Eight nodes in network namespaces, each with a link of 100 Mbit/s in both directions; no training
counts. A time is divided by the physical limit of its round, the most loaded direction of any link,
which counts payload only: headers make 1.046 the lowest ratio there can be. All contestants use the
same namespaces, one after another; CPU seconds of all members are beside the bare exchange's. Over
loopback, throughput is beside one gRPC stream with TLS and gloo. Needs root and iproute2; Flower
gets an environment of its own on first use.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import pairwise
from operator import add
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from benchmarks.hosts.cpu import CpuMeter
from benchmarks.hosts.eris_nodes import eris_round_ends, eris_round_times
from benchmarks.hosts.exchange import LOOPBACK_PIECE, exchange_round_times, exchange_rounds
from benchmarks.hosts.flower import flower_round_times
from benchmarks.hosts.gloo import gloo_round_times
from benchmarks.hosts.limits import Round
from benchmarks.hosts.places import Loopback, Place
from benchmarks.hosts.stream import stream_rate
from benchmarks.peers.environments import FLOWER
from rich.console import Console
from rich.table import Table

from eris.core.errors import ErisError
from support.hosts import Counters, Hosts, LinkShape, Namespace, require_tools

CONTESTANTS = ("eris", "exchange", "flower", "loopback")
QUICK = 40
"""A quick run has models this many times smaller."""
LOOPBACK_MEMBERS = 4
FLOWER_PATIENCE = 10.0
"""Flower is given up after so many times its bound a round, and as long again for starting."""


@dataclass(frozen=True)
class Plan:
    """What is measured, and how often."""

    cases: dict[str, Round]
    compressed: Round
    """The round whose bytes are held against the wire law."""
    rounds: int = 5
    flower_rounds: int = 3

    @classmethod
    def full(cls) -> Plan:
        """Models of 10 and 40 MB."""
        cases = {
            "a8_40mb": Round(10_000_000, aggregators=8),
            "a2_40mb": Round(10_000_000, aggregators=2),
            "a8_10mb": Round(2_500_000, aggregators=8),
        }
        return cls(cases, Round(10_000_000, aggregators=8, kept_fraction=0.05))

    def quick(self) -> Plan:
        """The same on small models: a try, whose figures say little."""

        def small(case: Round) -> Round:
            return replace(case, parameters=case.parameters // QUICK)

        cases = {name: small(case) for name, case in self.cases.items()}
        return Plan(cases, small(self.compressed), rounds=2, flower_rounds=1)


NOTHING = Counters(0, 0, 0, 0)


@dataclass(frozen=True)
class Timed:
    """Seconds of a contestant's rounds, and what all members put on their links meanwhile.

    ``cpu_s`` is what a counted round cost all members together, where that was measured.
    """

    seconds: tuple[float, ...]
    traffic: Counters = NOTHING
    cpu_s: float | None = None

    @property
    def counted(self) -> tuple[float, ...]:
        """All rounds but the first, in which connections are made and windows grow."""
        return self.seconds[1:] or self.seconds

    @property
    def median_s(self) -> float:
        """The middle one of the counted rounds."""
        return statistics.median(self.counted)

    @property
    def spread(self) -> float:
        """How far the counted rounds lie apart, as a share of the median."""
        return (max(self.counted) - min(self.counted)) / self.median_s


@dataclass
class Measured:
    """All that was measured, by case; what was left out is not there."""

    eris: dict[str, Timed] = field(default_factory=dict)
    exchange: dict[str, Timed] = field(default_factory=dict)
    flower: dict[str, Timed] = field(default_factory=dict)
    compressed: Timed | None = None
    loopback: dict[str, float] = field(default_factory=dict)
    """Bytes a second that all members together get through, by contestant."""


Say = Callable[[str], None]


# -- measuring --------------------------------------------------------------------------------


def on_links(hosts: Sequence[Namespace], measure: Callable[[], Timed]) -> Timed:
    """A run, and what it put on these hosts' links."""
    before = reduce(add, (host.counters() for host in hosts))
    run = measure()
    return replace(run, traffic=reduce(add, (host.counters() for host in hosts)) - before)


def bare_run(places: Sequence[Place], parameters: int, aggregators: int, rounds: int) -> Timed:
    """Rounds of the bare exchange, and their CPU seconds."""
    with CpuMeter() as meter:
        seconds, ends = zip(*exchange_rounds(places, parameters, aggregators, rounds), strict=True)
    return Timed(seconds, cpu_s=cpu_of_a_round(meter, ends))


def eris_run(
    places: Sequence[Place], parameters: int, aggregators: int, kept: float | None, rounds: int
) -> Timed:
    """Rounds of real nodes, and their CPU seconds."""
    charter = {} if kept is None else {"kept_fraction": kept}
    with CpuMeter() as meter:
        began, *ends = eris_round_ends(places, parameters, aggregators, rounds, charter)
    seconds = tuple(after - before for before, after in pairwise([began, *ends]))
    return Timed(seconds, cpu_s=cpu_of_a_round(meter, ends))


def flower_run(places: Sequence[Place], parameters: int, rounds: int, deadline_s: float) -> Timed:
    """Rounds of Flower, given up after so many seconds."""
    return Timed(tuple(flower_round_times(places, parameters, rounds, deadline_s=deadline_s)))


def cpu_of_a_round(meter: CpuMeter, ends: Sequence[float]) -> float | None:
    """CPU seconds from the end of the first round on, a round; None of a single round."""
    return meter.between(ends[0], ends[-1]) / (len(ends) - 1) if len(ends) > 1 else None


def measure_links(wanted: Sequence[str], plan: Plan, say: Say, found: Measured) -> None:
    """Everything that goes over shaped links, case by case."""
    clients = plan.compressed.clients
    with Hosts(clients + 1, LinkShape()) as everybody:
        nodes = list(everybody)[:clients]
        for name, case in plan.cases.items():
            sizes = (nodes, case.parameters, case.aggregators)
            if "exchange" in wanted:
                say(f"{name}: bare gRPC, {plan.rounds} rounds")
                bare = partial(bare_run, *sizes, plan.rounds)
                found.exchange[name] = on_links(nodes, bare)
            if "eris" in wanted:
                say(f"{name}: ERIS, {plan.rounds} rounds")
                ours = partial(eris_run, *sizes, None, plan.rounds)
                found.eris[name] = on_links(nodes, ours)
            # Flower has no shards: one run a size of model.
            if "flower" in wanted and case.aggregators == clients:
                say(f"{name}: Flower, {plan.flower_rounds} rounds")
                patience = FLOWER_PATIENCE * case.central_s * (plan.flower_rounds + 1) + 120
                found.flower[name] = on_links(
                    nodes,
                    partial(
                        flower_run, list(everybody), case.parameters, plan.flower_rounds, patience
                    ),
                )
        if "eris" in wanted:
            case = plan.compressed
            say(f"ERIS + DSC {case.kept_fraction:.0%}, {plan.rounds} rounds")
            sizes = (nodes, case.parameters, case.aggregators)
            compressed = partial(eris_run, *sizes, case.kept_fraction, plan.rounds)
            found.compressed = on_links(nodes, compressed)


def measure_loopback(wanted: Sequence[str], plan: Plan, say: Say, found: Measured) -> None:
    """Throughput without a link: what the processes themselves cost."""
    parameters = max(case.parameters for case in plan.cases.values())
    case = Round(parameters, LOOPBACK_MEMBERS, clients=LOOPBACK_MEMBERS)
    places = [Loopback()] * LOOPBACK_MEMBERS
    sizes = (places, parameters, LOOPBACK_MEMBERS)

    def rate(seconds: Sequence[float]) -> float:
        return case.law_bytes / Timed(tuple(seconds)).median_s

    say(f"loopback, {LOOPBACK_MEMBERS} members")
    stream = stream_rate(int(case.law_bytes), plan.rounds)
    found.loopback["gRPC stream"] = statistics.median(stream[1:] or stream)
    bare = exchange_round_times(*sizes, plan.rounds, piece_bytes=LOOPBACK_PIECE)
    found.loopback["bare gRPC"] = rate(bare)
    found.loopback["gloo"] = rate(gloo_round_times(LOOPBACK_MEMBERS, parameters, plan.rounds))
    if "eris" in wanted:
        found.loopback["ERIS"] = rate(eris_round_times(*sizes, None, plan.rounds))


# -- reporting --------------------------------------------------------------------------------


def figures(plan: Plan, found: Measured) -> dict[str, float]:
    """The ratios, as far as their parts were measured."""
    out: dict[str, float] = {}
    for name, case in plan.cases.items():
        if name in found.eris:
            out[f"vs_limit_{name}"] = found.eris[name].median_s / case.limit_s
        if name in found.exchange:
            out[f"bare_vs_limit_{name}"] = found.exchange[name].median_s / case.limit_s
        if name in found.flower:
            out[f"flower_vs_bound_{name}"] = found.flower[name].median_s / case.central_s
    # Where the two are compared: the largest model that both ran.
    both = [name for name in plan.cases if name in found.eris and name in found.flower]
    if both:
        name = max(both, key=lambda one: plan.cases[one].parameters)
        case = plan.cases[name]
        out["flower_over_eris"] = found.flower[name].median_s / found.eris[name].median_s
        out["flower_bound_over_eris_bound"] = case.central_s / case.limit_s
    # What our messages cost beside bare ones: the first case that both ran, of the largest model.
    for name in plan.cases:
        ours, bare = found.eris.get(name), found.exchange.get(name)
        if ours and bare and ours.cpu_s and bare.cpu_s:
            out["cpu_over_bare"] = ours.cpu_s / bare.cpu_s
            break
    if found.compressed is not None:
        out["dsc_vs_limit"] = found.compressed.median_s / plan.compressed.limit_s
        rounds = len(found.compressed.seconds)
        law = rounds * plan.compressed.law_bytes
        out["wire_bytes_over_law"] = found.compressed.traffic.sent / law
    for name, whose in (("loopback_vs_grpc", "ERIS"), ("bare_loopback_vs_grpc", "bare gRPC")):
        if whose in found.loopback:
            out[name] = found.loopback[whose] / found.loopback["gRPC stream"]
    if "ERIS" in found.loopback:
        out["loopback_vs_gloo"] = found.loopback["ERIS"] / found.loopback["gloo"]
    return {name: round(value, 4) for name, value in out.items()}


def table(plan: Plan, found: Measured) -> Table:
    """What was measured on the links."""
    out = Table(title="100 Mbit/s links; seconds a round, no training")
    for name in ("case", "contestant"):
        out.add_column(name)
    for name in ("s/round", "spread", "limit s", "÷ limit", "sent ÷ law", "charged", "drops",
                 "CPU s"):  # fmt: skip
        out.add_column(name, justify="right")
    for name, case in plan.cases.items():
        papers = f"{case.papers_s:.2f}"
        out.add_row(name, "papers' bound", papers, "", f"{case.limit_s:.2f}",
                    f"{case.papers_s / case.limit_s:.3f}")  # fmt: skip
        for who, timed in (("bare gRPC", found.exchange), ("ERIS", found.eris)):
            if name in timed:
                out.add_row(name, who, *row(timed[name], case.limit_s, case.law_bytes))
        if name in found.flower:
            # Its clients send their updates, and what they ask for comes from the server.
            law = case.clients * case.model_bytes
            out.add_row(name, "Flower", *row(found.flower[name], case.central_s, law))
    if found.compressed is not None:
        case = plan.compressed
        name = f"a{case.aggregators}, DSC {case.kept_fraction:.0%}"
        out.add_row(name, "ERIS", *row(found.compressed, case.limit_s, case.law_bytes))
    return out


def row(timed: Timed, limit_s: float, law_bytes: float) -> list[str]:
    """One contestant's line: its time beside a limit, its bytes beside their law."""
    law = law_bytes * len(timed.seconds)
    return [
        f"{timed.median_s:.2f}",
        f"{timed.spread:.0%}",
        f"{limit_s:.2f}",
        f"{timed.median_s / limit_s:.3f}",
        f"{timed.traffic.sent / law:.3f}",
        f"{timed.traffic.charged / law:.3f}",
        str(timed.traffic.dropped),
        "" if timed.cpu_s is None else f"{timed.cpu_s:.2f}",
    ]


def parse(arguments: Sequence[str] | None = None) -> tuple[Plan, list[str]]:
    """What to measure, and whom."""
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="small models: only to try it")
    parser.add_argument("--rounds", type=int, help="rounds of a run")
    parser.add_argument("--flower-rounds", type=int, help="rounds of a run of Flower")
    parser.add_argument(
        "--only", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS), metavar="WHOM",
        help=f"some of {', '.join(CONTESTANTS)}",
    )  # fmt: skip
    wanted = parser.parse_args(arguments)
    plan = Plan.full().quick() if wanted.quick else Plan.full()
    for name in ("rounds", "flower_rounds"):
        given = getattr(wanted, name)
        if given is not None and given < 1:
            parser.error(f"--{name.replace('_', '-')} is {given}; expected at least 1")
        if given is not None:
            plan = replace(plan, **{name: given})
    return plan, wanted.only


def main() -> None:
    plan, wanted = parse()
    console = Console(width=110, markup=False)
    say = Console(stderr=True, markup=False).print
    found = Measured()
    try:
        if set(wanted) != {"loopback"}:
            require_tools()
            if "flower" in wanted:
                FLOWER.prepare(say)
            measure_links(wanted, plan, say, found)
        if "loopback" in wanted:
            measure_loopback(wanted, plan, say, found)
    except ErisError as error:
        raise SystemExit(str(error)) from error
    console.print(table(plan, found))
    for who, rate in found.loopback.items():
        console.print(f"loopback: {who} {rate / 1e6:.0f} MB/s")
    # A try has other sizes than its cases' names say: nobody is to take it for a measurement.
    kind = "network" if plan.cases == Plan.full().cases else "network (quick)"
    print(json.dumps({"benchmark": kind, "figures": figures(plan, found)}))


if __name__ == "__main__":
    main()
