"""Shatter's own privacy measures: the loss attack and linkability, against epidemic learning.

Nodes train LeNet-5 on MNIST with skewed classes by epidemic learning (EL), by Muffliato and by
Shatter with 2 to 16 virtual nodes, all on graphs of the paper's degree (figure 7: r = 6 for every
k). Some neighbours complete what they receive with their own last average
(:mod:`eris.audit.linkability`). Beside them stand the paper's figures, of 100 nodes on CIFAR-10.

``python -m eris.experiments.audits.shatter_privacy --seed 0`` prints a table, and all of it as JSON
in its last line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from eris.audit.attack import show
from eris.audit.linkability import (
    Linkability,
    Linking,
    LinkReport,
    LossAttack,
    PooledSamples,
    true_owners,
)
from eris.audit.neighbour import Neighbourhood
from eris.core.errors import InvalidSetting
from eris.experiments.audits.programs import asked, told
from eris.experiments.figures import NOTHING, say
from eris.experiments.runs.assembly import Assembly, assemble
from eris.experiments.runs.printed import printed, tables
from eris.experiments.runs.progress import bar
from eris.experiments.runs.recipe import Recipe
from eris.protocol.gossip.peer import GossipSettings
from eris.protocol.observers import Observer

FIGURE = "Shatter figure 7"
PIECES = 8
"""Tried of what a neighbour receives in a round."""


@dataclass(frozen=True)
class ShatterExperiment:
    """The federation, and which of its nodes look at what they are sent."""

    data: str = "mnist"
    nodes: int = 20
    samples: int = 16
    alpha: float = 0.1
    rounds: int = 20
    epochs: int = 5
    learning_rate: float = 0.1
    neighbours: int = 3
    virtual_nodes: tuple[int, ...] = (2, 4, 8, 16)
    degree: int = 6
    sigma: float = 0.025
    test_samples: int = 500
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.neighbours < self.nodes:
            expected = f"1 to {self.nodes - 1}: some of the nodes"
            raise InvalidSetting("neighbours", self.neighbours, expected)

    @property
    def methods(self) -> dict[str, dict[str, Any]]:
        """What is compared, by name."""
        rows: dict[str, dict[str, Any]] = {
            "EL": {"method.name": "el"},
            f"Muffliato, σ = {self.sigma:g}": {
                "method.name": "muffliato",
                "method.sigma": self.sigma,
            },
        }
        for count in self.virtual_nodes:
            name = f"Shatter, k = {count}"
            rows[name] = {"method.name": "shatter", "method.virtual_nodes": count}
        return {name: {**method, "method.degree": self.degree} for name, method in rows.items()}

    def recipe(self, method: Mapping[str, Any]) -> Recipe:
        """What one row trains."""
        return Recipe().changed(
            {
                "data.name": self.data,
                "data.clients": self.nodes,
                "data.samples": self.samples,
                "data.partition": "dirichlet",
                "data.alpha": self.alpha,
                "data.test_samples": self.test_samples,
                "training.rounds": self.rounds,
                "training.epochs": self.epochs,
                "training.batch_size": 0,
                "training.learning_rate": self.learning_rate,
                "seed": self.seed,
                **method,
            }
        )


@dataclass(frozen=True)
class ShatterRow:
    """What neighbours made of one method's pieces."""

    method: str
    accuracy: float
    loss: LossAttack
    link: Linkability


def rows(
    settings: ShatterExperiment, advance: Callable[[], None] = lambda: None
) -> Iterator[ShatterRow]:
    """Train by every method and try the pieces; a row as soon as it is known."""
    for name, method in settings.methods.items():
        assembly = assemble(settings.recipe(method))
        found, accuracy = _tried(settings, assembly, advance)
        yield ShatterRow(name, accuracy, found.loss, found.link)


def _tried(
    settings: ShatterExperiment, assembly: Assembly, advance: Callable[[], None]
) -> tuple[LinkReport, float]:
    agreed = assembly.federation.settings
    assert isinstance(agreed, GossipSettings)
    step = settings.nodes // settings.neighbours
    observers = [
        Observer("neighbour", frozenset({node * step})) for node in range(settings.neighbours)
    ]
    watch = Neighbourhood.of(agreed, assembly.initial, observers)
    owners: dict[int, int] = {}
    attack = Linking(_holdings(assembly), owners, most=PIECES, seed=settings.seed)
    with assembly.training(record=True) as training:
        for round, records in training.rounds_seen(settings.rounds):
            owners |= true_owners(agreed, records)
            show(watch, round, records, [attack])
            advance()
        return attack.report(), assembly.evaluate(training)["accuracy"]


def _holdings(assembly: Assembly) -> PooledSamples:
    data = assembly.samples
    inputs, targets = torch.from_numpy(data.inputs), torch.from_numpy(data.targets)
    parts = {
        node: (inputs[torch.from_numpy(part)], targets[torch.from_numpy(part)])
        for node, part in enumerate(data.parts)
    }
    test = torch.from_numpy(data.test_inputs), torch.from_numpy(data.test_targets)
    return PooledSamples.of(assembly.module, assembly.samples.loss, parts, test)


def paper(method: str) -> str:
    """What figure 7 of the paper has for a method: AUC and linkability, in %.

    >>> paper("Shatter, k = 16"), paper("Shatter, k = 4")
    ('58, 2.5', '–')
    """
    if method not in tables()[FIGURE]["rows"]:
        return NOTHING
    columns = ("membership AUC", "linkability")
    return ", ".join(printed(FIGURE, method, column) for column in columns)


def as_table(settings: ShatterExperiment, found: Sequence[ShatterRow]) -> Table:
    """The rows for people."""
    table = Table(
        "", "test, %", "AUC by node: median (quartiles)", "linked, % (95 %)", "chance, %", "pieces",
        "paper: AUC, linked, %", title=f"r = {settings.degree} for all methods",
    )  # fmt: skip
    for row in found:
        nodes, link = row.loss.nodes, row.link
        table.add_row(
            row.method,
            f"{100 * row.accuracy:.1f}",
            f"{nodes.median:.3f} ({nodes.quarter:.2f}–{nodes.three_quarters:.2f})",
            f"{100 * link.share:.1f} ({100 * link.low:.1f}–{100 * link.high:.1f})",
            f"{100 * link.chance:.1f}",
            str(link.pieces),
            paper(row.method),
        )
    return table


def main(arguments: list[str] | None = None) -> int:
    """Run the experiment."""
    options = ("data", "seed", "nodes", "samples", "rounds", "epochs", "neighbours", "test_samples")
    module = "eris.experiments.audits.shatter_privacy"
    settings = asked(ShatterExperiment, module, __doc__, options, arguments)
    say(f"settings: {asdict(settings)}")
    with bar(Console(stderr=True)) as shown:
        task = shown.add_task("Shatter", total=settings.rounds * len(settings.methods))
        found = list(rows(settings, lambda: shown.advance(task)))
    figures = {"settings": asdict(settings), "rows": [asdict(row) for row in found]}
    told(as_table(settings, found), 110, figures)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
