"""What EncCluster's server reads of trained clients, from recorded messages of simulated runs.

Clients train, cluster, encrypt and give shares as in any run; the server reads mappings, opens sums
and solves them for every client's centroids (``eris.audit.mapping_attack``). Clustered weights,
as in the paper, beside clustered updates; a filter with wrong hits; one of four shards; labels by
Dirichlet(0.1). *digits*: a 64-256-10 network; *resnet20*: CIFAR-10. Beside it the paper's own
measure (its figure 2) of its attacker, of this one and of another client's model. A line is kept
when it is done, so a campaign that was stopped goes on.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.table import Table
from torch import Tensor, nn

from eris.audit.attack import show
from eris.audit.embeddings import COMPONENTS, embedding_errors, perfect_guess
from eris.audit.mapping_attack import AttackedSegment, MappingAttack, TrueClients
from eris.audit.mapping_measures import Guess, MappingMeasures
from eris.audit.watch import Watch
from eris.core.clustering import clustered
from eris.core.errors import InvalidSetting, PrivacyWarning, one_of
from eris.core.rules import server_rule
from eris.core.vectors import Vector
from eris.experiments.audits.auditing import kept_tables
from eris.experiments.audits.mapping_tables import MappingRow, shown_mappings
from eris.experiments.audits.programs import asked, told
from eris.experiments.audits.report import write
from eris.experiments.figures import say
from eris.experiments.runs.holdings import Holdings, holdings
from eris.experiments.runs.recipe import DataRecipe
from eris.experiments.runs.store import runs_root
from eris.federation import Federation
from eris.methods.enccluster import EncCluster
from eris.model_file import read_model
from eris.models import MODELS, create
from eris.models.seeding import seeded
from eris.protocol.enccluster.coding import MOST_RANGE
from eris.protocol.enccluster.mapped import MappingCoding, Policy
from eris.protocol.schemes.weights import Travelling, moved
from eris.protocol.settings import model_digest
from eris.training.evaluation import evaluate
from eris.training.flat import flatten, unflatten
from eris.training.population import Models, Population
from eris.training.torch import single_threaded
from eris.training.trainer import LocalUpdate, PerSampleNoise
from eris.training.vectorised import TorchPopulation

FOLDER = "enccluster-attacks"
EMBEDDED = 100
"""Samples of a client that are embedded, at most."""


@dataclass(frozen=True)
class TrainedCell:
    """A line: a federation, and what of it is clustered and how."""

    label: str
    clusters_of: Travelling = "weights"
    coding: MappingCoding = "packed"
    policy: Policy = "exact"
    aggregators: int | None = None
    alpha: float | None = None
    """Of the Dirichlet distribution of labels; none: dealt by lot."""

    @property
    def shift(self) -> int:
        """Bits of the range that are taken from the fraction: an update is a sum of gradients, and
        larger than weights."""
        return 4 if self.clusters_of == "updates" else 0


@dataclass(frozen=True)
class TrainedWorld:
    """Data, a model, and how clients train."""

    data: str
    model: str
    samples: int
    epochs: int
    batch: int
    rate: float
    rounds: int
    shown: tuple[int, ...]
    cells: tuple[TrainedCell, ...]
    clients: int = 10
    clusters: int = 128
    fraction_bits: int = 20


BOTH = (TrainedCell("weights"), TrainedCell("updates", "updates"))
MORE = (
    *BOTH,
    TrainedCell("weights, filter8, first hit", coding="filter8", policy="first"),
    TrainedCell("weights, one of four shards", aggregators=4),
    TrainedCell("weights, Dir(0.1)", alpha=0.1),
)
WORLDS: Mapping[str, TrainedWorld] = {
    "digits": TrainedWorld("digits", "64-256-10", 140, 2, 32, 0.1, 6, (1, 6), MORE),
    "resnet20": TrainedWorld("cifar10", "resnet20", 1000, 1, 32, 0.1, 10, (1, 5, 10), BOTH),
}
QUICK = TrainedWorld("digits", "64-256-10", 140, 2, 32, 0.1, 2, (1, 2), BOTH)


@dataclass(frozen=True)
class AttackSettings:
    """What is asked for; ``only`` is one of the worlds, or ``all``. ``samples`` a client and
    ``rounds`` are others than usual if they are not 0. ``initial`` is a file with the model to
    begin with (safetensors with one flat tensor ``model``), in place of a random one."""

    seed: int = 0
    quick: bool = False
    only: str = "all"
    samples: int = 0
    rounds: int = 0
    initial: str = ""
    runs: str = ""

    def __post_init__(self) -> None:
        if self.initial and self.only == "all":
            raise InvalidSetting("initial", self.initial, "one world: --only, for the model is its")
        if self.only not in (known := ["all", *WORLDS]):
            raise InvalidSetting("only", self.only, one_of(known, self.only))

    @property
    def worlds(self) -> Iterator[TrainedWorld]:
        """Those that are asked for, in the sizes that are asked for."""
        for name, world in {"digits": QUICK}.items() if self.quick else WORLDS.items():
            if self.only in ("all", name):
                yield self._sized(world)

    def _sized(self, world: TrainedWorld) -> TrainedWorld:
        given = asdict(world) | {"cells": world.cells, "shown": world.shown}
        if self.samples:
            given["samples"] = self.samples
        if self.rounds:
            shown = tuple(one for one in world.shown if one < self.rounds)
            given |= {"rounds": self.rounds, "shown": (*shown, self.rounds)}
        return TrainedWorld(**given)

    def start(self, world: TrainedWorld) -> Vector:
        """The model that everyone starts from."""
        if self.initial:
            return read_model(Path(self.initial), "--initial")
        return flatten(network(world, self.seed))

    def path(self, world: TrainedWorld, cell: TrainedCell) -> Path:
        """Where a line's figures are kept: other settings are another file."""
        start = model_digest(self.start(world)) if self.initial else ""
        said = repr((asdict(world) | {"cells": ()}, cell, self.seed, start))
        digest = hashlib.sha256(said.encode()).hexdigest()[:12]
        root = runs_root(Path(self.runs) if self.runs else None)
        return root / FOLDER / f"{world.model}-{digest}.json"


@dataclass
class Remembered:
    """Clients of a population whose last updates are known beside the messages: they are the truth
    that no message tells."""

    population: Population
    given: dict[int, tuple[Vector, Vector]] = field(default_factory=dict)
    """By client: the model that it trained from, and its update."""

    def __len__(self) -> int:
        return len(self.population)

    def updates(
        self, clients: Sequence[int], models: Models, round: int,
        noise: PerSampleNoise | None = None,
    ) -> Iterator[LocalUpdate]:  # fmt: skip
        """The updates of these clients in this order."""
        made = self.population.updates(clients, models, round, noise)
        for place, (client, update) in enumerate(zip(clients, made, strict=True)):
            model = models if isinstance(models, np.ndarray) else models[place]
            self.given[client] = np.array(model), np.array(update.vector)
            yield update

    def state(self) -> Mapping[str, Vector]:
        """What clients keep between rounds."""
        return self.population.state()

    def restore(self, state: Mapping[str, Vector]) -> None:
        """Continue from a ``state()``."""
        self.population.restore(state)


def network(world: TrainedWorld, seed: int) -> nn.Module:
    """The model of a world."""
    if world.model in MODELS:
        return create(world.model, seed)

    def build() -> nn.Sequential:
        return nn.Sequential(
            nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)
        )  # fmt: skip

    return seeded(build, seed)


def dealt(world: TrainedWorld, cell: TrainedCell, seed: int) -> Holdings:
    """The data of a line's clients."""
    how: dict[str, Any] = {"partition": "iid"}
    if cell.alpha is not None:
        how = {"partition": "dirichlet", "alpha": cell.alpha}
    recipe = DataRecipe(name=world.data, clients=world.clients, samples=world.samples, **how)
    return holdings(recipe.resolved(), seed)


class AttackedTraining:
    """A line under way: a federation that is trained, recorded and read round by round."""

    def __init__(
        self, world: TrainedWorld, cell: TrainedCell, seed: int, initial: Vector | None = None
    ) -> None:
        self.world, self.cell, self.seed = world, cell, seed
        self.data, self.module = dealt(world, cell, seed), network(world, seed)
        self._inputs = torch.from_numpy(self.data.inputs)
        population = TorchPopulation(
            self.module, self._inputs, torch.from_numpy(self.data.targets), self.data.parts,
            learning_rate=world.rate, epochs=world.epochs, batch_size=world.batch, seed=seed,
        )  # fmt: skip
        self.clients = Remembered(population)
        method = EncCluster(
            world.clusters, cell.coding, cell.policy, weight_range=MOST_RANGE * 2**cell.shift,
            fraction_bits=world.fraction_bits - cell.shift, clusters_of=cell.clusters_of,
            aggregators=cell.aggregators,
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyWarning)  # that is what is measured
            self.federation = Federation(
                self.clients, flatten(self.module) if initial is None else initial, method,
                rule=server_rule("fedavg", learning_rate=world.rate),
                samples=[len(part) for part in self.data.parts], seed=seed,
            )  # fmt: skip

    def attacked(self, tell: Callable[[int], None]) -> dict[str, Any]:
        """Train, and read the rounds that are shown."""
        world, spent = self.world, process_time()
        with closing(self.federation.start(world.rounds, record=True)) as training:
            frame, initial = training.transcript, self.federation.initial
            assert frame is not None
            owner = frame.aggregator(min(frame.owners))
            watch = Watch(frame, initial, [owner], tables=kept_tables)
            truth = TrueClients(frame, initial, tables=kept_tables, trained=self._trained)
            attack = MappingAttack([owner], [0], truth, self.seed)
            embedded = []
            for round, records in training.rounds_seen(world.rounds):
                truth.note(round, records)
                looking = [attack] if round in world.shown else []
                show(watch, round, records, looking)
                if self.cell.clusters_of == "weights" and not self.cell.aggregators:
                    embedded += [
                        {"round": round, "mse": self._embedded(one)}
                        for one in attack.attacked
                        if one.round == round
                    ]
                tell(round)
            tested = (
                torch.from_numpy(self.data.test_inputs),
                torch.from_numpy(self.data.test_targets),
            )
            found = evaluate(self.module, training.model, *tested)
        report = attack.report()
        return {
            "source": self.data.source,
            "parameters": len(initial),
            "accuracy": found["accuracy"],
            "rounds": [
                {"round": one.round, "without key": one.without_key, **asdict(one.measures)}
                for one in report.attacked
            ],
            "control": list(report.controls),
            "embeddings": embedded,
            "cpu seconds": process_time() - spent,
        }

    def _trained(self, round: int, client: int) -> Vector:
        model, update = self.clients.given[client]
        if self.cell.clusters_of == "updates":
            return update
        return moved(model, update, self.world.rate)

    def _embedded(self, attacked: AttackedSegment) -> dict[str, dict[int, float]]:
        """The paper's measure of every guess at a client's model, as means over the clients."""
        found, every = attacked.found, len(attacked.models)
        each = [
            embedding_errors(
                attacked.models[row],
                {
                    "paper's attacker": perfect_guess(
                        attacked.models[row], found.aggregate, self.world.clusters, _centroids
                    ),
                    "mappings and sums": found.model(row),
                    "aggregate clipped": found.clipped(row),
                    "aggregate": found.aggregate,
                    "another client": attacked.models[(row + 1) % every],
                },
                partial(self._embed, self.data.parts[client][:EMBEDDED]),
            )
            for row, client in enumerate(attacked.segment.clients)
        ]
        return {
            guess: {kept: float(np.mean([one[guess][kept] for one in each])) for kept in COMPONENTS}
            for guess in each[0]
        }

    def _embed(self, places: NDArray[np.int64], model: Vector) -> NDArray[np.floating]:
        """What the last layer is given of some samples."""
        placed = np.empty_like(model)
        # A segment's coordinates are in the order of the plan.
        placed[self._coordinates] = model
        unflatten(placed, self.module)
        last = [part for part in self.module.modules() if isinstance(part, nn.Linear)][-1]
        seen: list[Tensor] = []
        hook = last.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
        with torch.no_grad():
            self.module(self._inputs[torch.from_numpy(places)])
        hook.remove()
        return np.asarray(seen[0].numpy())

    @property
    def _coordinates(self) -> NDArray[np.int64]:
        agreement = self.federation.agreement
        assert agreement is not None
        (segment,) = agreement.segments(1).values()
        return segment.coordinates


def _centroids(values: Vector, clusters: int) -> Vector:
    return clustered(values, clusters, fewer="allow").centroids


def line(
    world: TrainedWorld, cell: TrainedCell, settings: AttackSettings,
    tell: Callable[[int], None] = lambda round: None,
) -> dict[str, Any]:  # fmt: skip
    """The figures of a line, made unless they are there."""
    path = settings.path(world, cell)
    if not path.is_file():
        training = AttackedTraining(world, cell, settings.seed, settings.start(world))
        write(training.attacked(tell), path)
    kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return kept


GUESSES = ("attack", "clipped", "aggregate", "mean", "clustering")


def measures_of(kept: Mapping[str, Any]) -> MappingMeasures:
    """The measures of a round as they were kept."""
    found: dict[str, Any] = {one.name: kept[one.name] for one in fields(MappingMeasures)}
    return MappingMeasures(**found | {name: Guess(**kept[name]) for name in GUESSES})


def tables(
    world: TrainedWorld, lines: Mapping[str, Mapping[str, Any]], settings: AttackSettings
) -> None:
    """Print a world's lines."""
    first = next(iter(lines.values()))
    start = f"from {settings.initial}" if settings.initial else "from random weights"
    tested = ", ".join(f"{name} {100 * one['accuracy']:.1f} %" for name, one in lines.items())
    say(f"{first['source']}; {world.clients} clients of {world.samples} samples; {world.model}, "
        f"{first['parameters']:,} weights; {world.epochs} epochs a round, SGD {world.rate:g}, "
        f"batches of {world.batch}; {world.rounds} rounds; κ = {world.clusters}; seed "
        f"{settings.seed}, {start}. On test samples in the end: {tested}")  # fmt: skip
    rows = []
    for name, one in lines.items():
        rows += [MappingRow(f"{name}, round {kept['round']}", measures_of(kept))
                 for kept in one["rounds"]]  # fmt: skip
        missing = sorted({*world.shown} - {kept["round"] for kept in one["rounds"]})
        if missing:
            say(f"{name}: too few contributions were in range to open rounds {missing}")
    shown_mappings("Recorded messages: mappings and opened sums", rows)
    control = Table(
        "", "rank", "determined", "exact", "residual", "error/variance",
        title="Control: each client's mapping permuted, first round that is shown",
    )  # fmt: skip
    for name, one in lines.items():
        for kept in one["control"]:
            cells = (kept["rank"], kept["determined"], kept["exact"], f"{kept['residual']:.3f}")
            control.add_row(name, *map(str, cells), f"{kept['error']:.2e}")
    told(control, 110, {"controls": {name: one["control"] for name, one in lines.items()}})
    drawn = Table(
        "", "guess", *(f"MSE, {kept} components" for kept in COMPONENTS),
        title="EncCluster's figure 2: what the last layer is given of clients' own samples, means "
        "over clients",
    )  # fmt: skip
    for name, one in lines.items():
        for kept in one["embeddings"]:
            for guess, errors in kept["mse"].items():
                values = (f"{errors[str(number)]:.3g}" for number in COMPONENTS)
                drawn.add_row(f"{name}, round {kept['round']}", guess, *values)
    told(drawn, 110, {"embeddings": {name: one["embeddings"] for name, one in lines.items()}})


def main(given: list[str] | None = None) -> None:
    """Print the tables."""
    names = ("seed", "quick", "only", "samples", "rounds", "initial", "runs")
    settings = asked(AttackSettings, __name__, __doc__, names, given)
    for world in settings.worlds:
        with single_threaded():
            lines = {cell.label: line(world, cell, settings) for cell in world.cells}
        tables(world, lines, settings)


if __name__ == "__main__":
    main()
