"""Rounds as ``eris plan`` predicts them, and as nodes take them: ``python benchmarks/planner.py``.

Nodes in network namespaces on links of different rates; no training. For each of three plans (in
the clear, compressed, secure sums) the planner is asked, its charter is agreed on, and the middle
round after the first is put beside the prediction. Needs root and iproute2.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from benchmarks.hosts.eris_nodes import eris_round_ends
from rich.console import Console
from rich.table import Table

from eris.core.errors import ErisError
from eris.planning.plan import MBIT, FederationPlan, planned
from eris.planning.question import Question
from eris.planning.writing import charter
from eris.theory.distribution_time import Links
from support.hosts import Hosts, LinkShape, require_tools

RATES = (10.0, 10.0, 15.0, 15.0, 20.0, 20.0, 30.0, 30.0)
"""Mbit/s of the links, both ways."""
PARAMETERS = 1_000_000
ROUNDS = 5
COMPRESSED_TO = 0.5
"""The compressed plan's target: this share of the plain plan's seconds."""


@dataclass(frozen=True)
class Compared:
    """A plan, and the seconds of the rounds that nodes took by it."""

    plan: FederationPlan
    seconds: tuple[float, ...]

    @property
    def measured(self) -> float:
        """The middle round after the first, in which connections are made."""
        return statistics.median(self.seconds[1:] or self.seconds)

    @property
    def ratio(self) -> float:
        """What was predicted over what was measured."""
        return self.plan.seconds / self.measured


def questions(parameters: int, rates: Sequence[float]) -> dict[str, Question]:
    """What the planner is asked: three plans on the same links, whose nodes share this machine."""
    links = [rate * MBIT for rate in rates]
    plain = Question(
        clients=len(rates),
        parameters=parameters,
        links=Links(up=links, down=links),
        secure="none",
        members_per_core=len(rates) / (os.cpu_count() or 1),
    )
    wanted = COMPRESSED_TO * planned(plain).seconds
    return {
        "plain": plain,
        "compressed": replace(plain, seconds=wanted),
        "secure": replace(plain, secure="2 of 3"),
    }


def measured(plan: FederationPlan, rates: Sequence[float], rounds: int) -> Compared:
    """Rounds of nodes that have agreed on the plan, each on its own link."""
    owners = plan.division.owners
    order = [*owners, *sorted(set(range(len(rates))) - set(owners))]  # owners come first there
    words = {k: v for k, v in charter(plan)["federation"].items() if k not in ("rounds", "shards")}
    shapes = [LinkShape(rate_mbit=rates[member]) for member in order]
    with Hosts(len(rates), shapes) as hosts:
        ends = eris_round_ends(
            list(hosts), plan.question.parameters, plan.aggregators, rounds, words
        )
    return Compared(plan, tuple(after - before for before, after in pairwise(ends)))


def table(found: dict[str, Compared], rates: Sequence[float]) -> Table:
    """Predictions beside measurements."""
    links = ", ".join(f"{rate:g}" for rate in rates)
    out = Table("plan", title=f"links of {links} Mbit/s; seconds a round, no training")
    for name in ("owners", "kept", "limit", "predicted", "measured", "spread", "ratio"):
        out.add_column(name, justify="right")
    for name, one in found.items():
        counted = one.seconds[1:] or one.seconds
        out.add_row(
            name,
            str(one.plan.aggregators),
            f"{one.plan.kept:g}",
            f"{one.plan.limit:.2f}",
            f"{one.plan.seconds:.2f}",
            f"{one.measured:.2f}",
            f"{(max(counted) - min(counted)) / one.measured:.0%}",
            f"{one.ratio:.3f}",
        )
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0] if __doc__ else None)
    parser.add_argument("--parameters", type=int, default=PARAMETERS, help="size of the model")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds of a run")
    parser.add_argument(
        "--rates", type=float, nargs="+", default=list(RATES), help="Mbit/s, one a node"
    )
    given = parser.parse_args()
    say = Console(stderr=True, markup=False).print
    found = {}
    before = os.getloadavg()[0]
    try:
        require_tools()
        for name, question in questions(given.parameters, given.rates).items():
            plan = planned(question)
            say(f"{name}: {plan.seconds:.2f} s predicted, {given.rounds} rounds")
            found[name] = measured(plan, given.rates, given.rounds)
    except ErisError as error:
        raise SystemExit(str(error)) from error
    Console(width=110, markup=False).print(table(found, given.rates))
    figures = {
        f"predicted_over_measured_{name}": round(one.ratio, 4) for name, one in found.items()
    }
    conditions = {
        "parameters": given.parameters,
        "rounds": given.rounds,
        "rates_mbit": given.rates,
        "load_before": round(before, 1),
        "load_after": round(os.getloadavg()[0], 1),
    }
    print(json.dumps({"benchmark": "planner", "figures": figures, "conditions": conditions}))


if __name__ == "__main__":
    main()
