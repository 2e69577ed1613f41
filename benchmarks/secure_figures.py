"""What the benchmark of secure sums found: its records, ratios and tables."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.hosts.secagg import SecAggRun
from benchmarks.published_sizes import Published
from benchmarks.published_sizes import figures as size_figures
from benchmarks.published_sizes import table as size_table
from rich.console import Console
from rich.table import Table

from eris.protocol.secure.seats import Threshold
from eris.theory.distribution_time import Links, eris_physical_limit
from eris.theory.secure_sums import limit_seconds, secagg_bound_seconds

MEMBERS = 8
THRESHOLD = Threshold(2, 3)
PLAIN = "plain"
SECURE = {"8b": 8, "4b": 4}
"""Bytes of a word of the variants that are named so."""
RATE = 100e6 / 8
"""Bytes a second in each direction of every link."""
STARTS = 1_000
"""Coordinates beside which a round of SecAgg+ is nothing but its stages and processes."""


@dataclass(frozen=True)
class Run:
    """Rounds that count: their seconds, and of a round CPU seconds and bytes of all members."""

    parameters: int
    seconds: tuple[float, ...]
    cpu_s: float
    sent: float = 0.0
    longest_s: float = 0.0
    """Of all rounds after the first, whether or not they count."""

    @property
    def median_s(self) -> float:
        """The middle one of the rounds."""
        return statistics.median(self.seconds)


@dataclass
class Found:
    """All that was measured; what was left out is not there."""

    cpu: dict[str, Run] = field(default_factory=dict)
    """Over loopback, by variant."""
    engine: dict[str, float] = field(default_factory=dict)
    links: dict[tuple[int, str], Run] = field(default_factory=dict)
    killed: dict[tuple[int, str], Run] = field(default_factory=dict)
    """By number of members killed, and variant; the largest size."""
    secagg: dict[int, SecAggRun] = field(default_factory=dict)
    secagg_sent: dict[int, float] = field(default_factory=dict)
    sizes: list[Published] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    """By what was to be measured, in the words of whoever refused it."""


def plain_limit_s(parameters: int) -> float:
    """The limit of a plain round on the links."""
    sent, links = 4.0 * parameters, Links.uniform(RATE)
    return eris_physical_limit(sent, sent, MEMBERS, MEMBERS, links)


def limit_s(parameters: int, variant: str) -> float:
    """The limit of a variant's round on the links."""
    if variant == PLAIN:
        return plain_limit_s(parameters)
    links = Links.uniform(RATE)
    return limit_seconds(parameters, MEMBERS, MEMBERS, links, THRESHOLD, SECURE[variant])


def secagg_seconds(run: SecAggRun, dropouts: int = 0) -> float:
    """The middle round with so many dropouts; the first of a run is not counted, if others are."""
    rounds = [one for one in run.rounds[1:] or run.rounds if MEMBERS - one.included == dropouts]
    return statistics.median(one.seconds for one in rounds)


def figures(found: Found) -> dict[str, float]:
    """The ratios, as far as their parts were measured; those of the largest size have no suffix."""
    out: dict[str, float] = {}
    for where, cpu in (
        ("cpu", {name: run.cpu_s for name, run in found.cpu.items()}),
        ("engine_cpu", found.engine),
    ):
        for name, cpu_s in cpu.items():
            if name == PLAIN:
                out[f"{where}_plain_s"] = cpu_s
            elif PLAIN in cpu:
                out[f"{where}_over_plain_{name}"] = cpu_s / cpu[PLAIN]
    largest = max([n for n, _ in found.links] + list(found.secagg), default=0)

    def put(name: str, parameters: int, value: float) -> None:
        out[name if parameters == largest else f"{name}_n{parameters}"] = value

    for (n, name), run in found.links.items():
        put(f"vs_own_limit_{name}", n, run.median_s / limit_s(n, name))
        if name != PLAIN and (n, PLAIN) in found.links:
            put(f"time_over_plain_{name}", n, run.median_s / found.links[n, PLAIN].median_s)
    for (number, name), run in found.killed.items():
        plain = found.killed.get((number, PLAIN))
        if name != PLAIN and plain is not None:
            out[f"time_over_plain_{name}_killed_{number}"] = run.median_s / plain.median_s
        out[f"longest_s_{name}_killed_{number}"] = run.longest_s
    starts = secagg_seconds(found.secagg[STARTS]) if STARTS in found.secagg else None
    for n, secagg in found.secagg.items():
        if n == STARTS:
            continue
        took = secagg_seconds(secagg)
        bound = secagg_bound_seconds(n, MEMBERS, Links.uniform(RATE))
        put("secagg_vs_bound", n, took / bound)
        for name in (PLAIN, *SECURE):
            ours = found.links.get((n, name))
            if ours is None:
                continue
            put(f"secagg_over_{name}", n, took / ours.median_s)
            put(f"secagg_bound_over_{name}", n, bound / ours.median_s)
            if starts is not None:
                put(f"secagg_less_starts_over_{name}", n, (took - starts) / ours.median_s)
    if "secagg_over_8b" in out:
        out["secagg_over_ours"] = out["secagg_over_8b"]
    return {name: round(value, 4) for name, value in out.items()} | {
        name: round(value, 4) for name, value in size_figures(found.sizes).items()
    }


def conditions(found: Found, killed: Sequence[int]) -> dict[str, Any]:
    """What the figures are of: who, on what links, beside which SecAgg+."""
    said: dict[str, Any] = {
        "members": MEMBERS,
        "secure_sums": str(THRESHOLD),
        "mbit_s": RATE * 8 / 1e6,
        "share_killed": {str(number): number / MEMBERS for number in killed},
    }
    for run in found.secagg.values():
        said["flower"] = {name: run.terms.get(name) for name in ("version", "api", "word_bytes")}
    return said


def nodes_table(found: Found) -> Table:
    """Real nodes: over loopback, on links, and on links without those that were killed."""
    out = Table(title=f"{MEMBERS} real nodes, {THRESHOLD}; random updates of one sample each")
    out.add_column("where")
    for name in ("n", "variant", "rounds", "s/round", "limit s", "÷ limit", "CPU s", "MB sent"):
        out.add_column(name, justify="right")

    def row(where: str, variant: str, run: Run, limit: float | None) -> None:
        out.add_row(
            where, f"{run.parameters:,}", variant, str(len(run.seconds)), f"{run.median_s:.2f}",
            f"{limit:.2f}" if limit else "", f"{run.median_s / limit:.3f}" if limit else "",
            f"{run.cpu_s:.2f}", f"{run.sent / 1e6:.1f}" if run.sent else "",
        )  # fmt: skip

    for variant, run in found.cpu.items():
        row("loopback", variant, run, None)
    for (n, variant), run in found.links.items():
        row("100 Mbit/s", variant, run, limit_s(n, variant))
    for (number, variant), run in found.killed.items():
        row(f"100 Mbit/s, {number} killed", variant, run, None)
    return out


def secagg_table(found: Found) -> Table:
    """SecAgg+, by size and dropouts, and what exactly it is."""
    terms = next(iter(found.secagg.values())).terms
    out = Table(title=f"Flower {terms['version']} SecAgg+, {MEMBERS} clients, 100 Mbit/s")
    for name in ("n", "dropouts", "s/round", "bound s", "÷ bound", "CPU s", "MB sent", "error"):
        out.add_column(name, justify="right")
    for n, run in found.secagg.items():
        bound = secagg_bound_seconds(n, MEMBERS, Links.uniform(RATE))
        for dropouts in sorted({MEMBERS - one.included for one in run.rounds}):
            rounds = [one for one in run.rounds if MEMBERS - one.included == dropouts]
            took = secagg_seconds(run, dropouts)
            out.add_row(
                f"{n:,}", str(dropouts), f"{took:.1f}", f"{bound:.2f}", f"{took / bound:.2f}",
                f"{statistics.median(one.cpu_s for one in rounds):.1f}",
                f"{found.secagg_sent[n] / 1e6:.1f}",
                f"{max(one.worst_error for one in rounds):.2g}",
            )  # fmt: skip
    return out


def report(found: Found, console: Console) -> None:
    """All tables."""
    if found.cpu or found.links or found.killed:
        console.print(nodes_table(found))
    for variant, cpu_s in found.engine.items():
        console.print(f"in-step engine, {variant}: {cpu_s:.3f} CPU s a round")
    if found.secagg:
        console.print(secagg_table(found))
        run = next(iter(found.secagg.values()))
        for name, value in run.terms.items():
            console.print(f"  {name.replace('_', ' ')}: {value}")
        console.print(f"  its means are checked to a step of its grid, {run.step:.3g}")
    if found.sizes:
        console.print(size_table(found.sizes))
    for variant, refusal in found.refused.items():
        console.print(f"{variant}: refused: {refusal}")
