"""What EncCluster's server reads from mappings and opened sums, in four tables.

*laplace*: clients with Laplace layers, by number, weights and coordinates, and a control with
permuted mappings; *trained*: a 64-256-10 network on scikit-learn's digits, clustered weights beside
clustered updates; *embeddings*: the paper's own measure (its figure 2) of its attacker, of this one
and of another client's model; *sampling*: rounds until keys for sampled sets give single keys.

``python -m eris.experiments.audits.mapping_tables --quick`` has smaller models and fewer runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from time import process_time

import numpy as np
from rich.table import Table

from eris.audit.embeddings import COMPONENTS, embedding_errors, perfect_guess
from eris.audit.mapping_measures import MappingMeasures
from eris.audit.subsets import sampled_rounds_to_keys
from eris.core.errors import InvalidSetting, one_of
from eris.experiments.audits.mapping_cases import (
    ClusteredClients,
    DigitsClients,
    kmeans,
    laplace_clients,
)
from eris.experiments.audits.programs import asked, told
from eris.experiments.figures import NOTHING
from eris.training.torch import single_threaded

CLUSTERS = 128
UNEQUAL = (40, 400, 90, 150, 60, 220, 120, 300, 70, 50)
"""Samples of ten clients."""
SHOWN = 1, 6
"""Rounds of which the trained clients are shown."""


@dataclass(frozen=True)
class MappingSettings:
    """What is asked for; ``only`` is one table, or ``all``."""

    seed: int = 0
    quick: bool = False
    only: str = "all"


@dataclass(frozen=True)
class MappingRow:
    """An attack and what it took."""

    name: str
    found: MappingMeasures
    seconds: float | None = None


def attacked(name: str, clients: ClusteredClients) -> MappingRow:
    """Attack clients and judge what was read."""
    begun = process_time()
    found = clients.attacked()
    seconds = process_time() - begun
    return MappingRow(name, clients.judged(found), seconds)


def shown_mappings(title: str, rows: Sequence[MappingRow]) -> None:
    """Print rows, and their figures."""
    table = Table(
        "", "N", "d", "bound", "rank", "determined", "exact", "of", "tied %", "residual", "CPU s",
        "error/variance: attack", "clipped", "clustering", "aggregate",
        "explained: attack", "clipped", "aggregate", "mean",
        title=title,
        caption="clipped: the aggregate, to the client's cells; aggregate: the opened mean of "
        "clustered models; mean: of the models themselves, as a secure sum has it",
    )  # fmt: skip
    for row in rows:
        found = row.found
        errors = (found.attack, found.clipped, found.clustering, found.aggregate)
        shares = (found.attack, found.clipped, found.aggregate, found.mean)
        table.add_row(
            row.name, str(found.clients), f"{found.coordinates:,}", str(found.bound),
            str(found.rank), str(found.determined), str(found.exact), str(found.differences),
            f"{100 * found.tied:.2g}", f"{found.residual:.1e}",
            NOTHING if row.seconds is None else f"{row.seconds:.1f}",
            *(f"{one.error:.2e}" for one in errors), *(f"{one.explained:.3f}" for one in shares),
        )  # fmt: skip
    told(table, 230, {"mappings": [asdict(row) for row in rows]})


def laplace(settings: MappingSettings) -> None:
    """Print the table of Laplace layers."""
    whole, shard, small = (27_000, 8_100, 4_096) if settings.quick else (270_000, 27_000, 4_096)
    ten = (1,) * 10
    cells: list[tuple[str, tuple[int, ...], int, float]] = [
        ("three clients", (1,) * 3, whole, 0.1),
        ("ten clients", ten, whole, 0.1),
        ("unequal weights", UNEQUAL, whole, 0.1),
        ("one of ten shards", ten, shard, 0.1),
        ("a small shard", ten, small, 0.1),
        ("clients 2 % apart", ten, whole, 0.02),
    ]
    if not settings.quick:
        cells.insert(3, ("thirty clients", (1,) * 30, whole, 0.1))
    rows = []
    for name, samples, coordinates, apart in cells:
        clients = laplace_clients(settings.seed, samples, coordinates, CLUSTERS, apart)
        rows.append(attacked(name, clients))
        if name == "ten clients":
            rows.append(attacked("control: permuted", clients.permuted(settings.seed)))
    shown_mappings(
        f"Mappings and sums: 19 Laplace layers, κ = {CLUSTERS}, seed {settings.seed}", rows
    )


def trained(settings: MappingSettings) -> None:
    """Print the table of trained clients."""
    rows = []
    course = DigitsClients(settings.seed, CLUSTERS).rounds()
    for number, both in enumerate(islice(course, max(SHOWN)), 1):
        if number in SHOWN:
            rows += [
                attacked(f"round {number}, {what}", clients)
                for what, clients in zip(("weights", "updates"), both, strict=True)
            ]
    shown_mappings(
        f"Mappings and sums: 64-256-10 on digits, 2 epochs, SGD 0.1, κ = {CLUSTERS}, "
        f"seed {settings.seed}",
        rows,
    )


def embeddings(settings: MappingSettings) -> None:
    """Print the paper's measure, round by round."""
    table = Table(
        "clients", "round", "guess", *(f"MSE, {kept} components" for kept in COMPONENTS),
        title="EncCluster's figure 2: hidden layers of a client's own digits; mean over clients, "
        f"clustered weights, κ = {CLUSTERS}, seed {settings.seed}",
    )  # fmt: skip
    figures = []
    for dealt, alpha in (("IID", None), ("Dir(0.1)", 0.1)):
        clients = DigitsClients(settings.seed, CLUSTERS, alpha=alpha)
        for number, (weights, _) in enumerate(islice(clients.rounds(), max(SHOWN)), 1):
            if settings.quick and number not in SHOWN:
                continue
            for guess, errors in guessed(clients, weights).items():
                figures.append({"clients": dealt, "round": number, "guess": guess, "mse": errors})
                shown = (f"{errors[kept]:.3g}" for kept in COMPONENTS)
                table.add_row(dealt, str(number), guess, *shown)
    told(table, 110, {"embeddings": figures})


def guessed(clients: DigitsClients, weights: ClusteredClients) -> dict[str, dict[int, float]]:
    """The paper's measure of every guess at a client's model, as means over the clients."""
    found, every = weights.attacked(), len(weights.models)
    each = [
        embedding_errors(
            weights.models[client],
            {
                "paper's attacker": perfect_guess(
                    weights.models[client], weights.aggregate, CLUSTERS, kmeans
                ),
                "mappings and sums": found.model(client),
                "aggregate clipped": found.clipped(client),
                "aggregate": weights.aggregate,
                "another client": weights.models[(client + 1) % every],
            },
            partial(clients.embeddings, client),
        )
        for client in range(every)
    ]
    return {
        guess: {kept: float(np.mean([one[guess][kept] for one in each])) for kept in COMPONENTS}
        for guess in each[0]
    }


def sampling(settings: MappingSettings) -> None:
    """Print when keys for sampled sets have given away single keys."""
    runs = 50 if settings.quick else 300
    table = Table(
        "N", "sampled", "first key: median", "least", "most", "all keys: median", "least", "most",
        title=f"Rounds until keys that last give single clients' keys: {runs} runs, "
        f"seed {settings.seed}",
    )  # fmt: skip
    figures = []
    for clients, chosen in ((10, 2), (30, 6), (30, 15)):
        both = sampled_rounds_to_keys(settings.seed, runs, 4 * clients, clients, chosen)
        cells = [(float(np.median(one)), int(one.min()), int(one.max())) for one in both]
        figures.append({"clients": clients, "chosen": chosen, "first": cells[0], "all": cells[1]})
        table.add_row(str(clients), str(chosen), *(f"{value:g}" for one in cells for value in one))
    told(table, 110, {"sampling": figures})


TABLES: dict[str, Callable[[MappingSettings], None]] = {
    "laplace": laplace,
    "trained": trained,
    "embeddings": embeddings,
    "sampling": sampling,
}


def main(given: list[str] | None = None) -> None:
    """Print the tables."""
    settings = asked(MappingSettings, __name__, __doc__, ("seed", "quick", "only"), given)
    known = ["all", *TABLES]
    if settings.only not in known:
        raise InvalidSetting("only", settings.only, one_of(known, settings.only))
    with single_threaded():
        for name, table in TABLES.items():
            if settings.only in ("all", name):
                table(settings)


if __name__ == "__main__":
    main()
