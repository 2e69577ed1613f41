"""How fast many clients train in one pass: ``python benchmarks/training.py``.

Three ways to the same work are timed in turns, so that a busy machine disturbs all alike: the plain
loop over clients, ``TorchPopulation``, and the *floor*: one batch of all clients' samples forward
and backward, which gives no client its own gradient. The updates of the last turn are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter, process_time
from typing import Any

os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "2"

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch import nn
from torch.nn import functional

from eris.models import create
from eris.training.population import Population, Trainers
from eris.training.torch import flatten, torch_clients
from eris.training.vectorised import TorchPopulation

RATE = 0.01


@dataclass(frozen=True)
class Workload:
    """Clients with random images, all of whom take part in a round."""

    model: str
    shape: tuple[int, ...]
    clients: int
    samples: int
    steps: int
    threads: int

    @property
    def name(self) -> str:
        return f"{self.model}_{self.steps}_steps_{self.threads}_threads"


@dataclass(frozen=True)
class Measured:
    """Milliseconds of a round (median of the turns) for each way, and how far updates differ."""

    work: Workload
    wall: dict[str, float]
    cpu: dict[str, float]
    first: float
    difference: float


def workloads(quick: bool) -> Iterator[Workload]:
    for threads in (1, 2):
        for steps in (1, 5):
            yield Workload("lenet5", (1, 28, 28), 8 if quick else 50, 16, steps, threads)
    for threads in (1, 2):
        yield Workload("resnet9", (3, 32, 32), 2 if quick else 10, 4 if quick else 16, 1, threads)


def measure(work: Workload, turns: int) -> Measured:
    """Time one workload; its first turn warms up and is reported apart."""
    torch.set_num_threads(work.threads)
    model = create(work.model, 0)
    total = work.clients * work.samples
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(total, *work.shape, generator=generator)
    targets = torch.randint(0, 10, (total,), generator=generator)
    parts = list(np.arange(total).reshape(work.clients, work.samples))
    settings: dict[str, Any] = {"learning_rate": RATE, "steps": work.steps}
    ways: dict[str, Population] = {
        "loop": Trainers(torch_clients(model, inputs, targets, parts, **settings)),
        "fast": TorchPopulation(
            model, inputs, targets, parts, path="fast", threads=work.threads, **settings
        ),
    }
    start = flatten(model)

    def trained(way: str) -> Callable[[], Any]:
        # Not the first round, in which passes are held against the loop.
        return lambda: [*ways[way].updates(range(work.clients), start, 2)]

    works = {way: trained(way) for way in ways}
    works["floor"] = lambda: floor(model, inputs, targets, work.steps)
    wall: dict[str, list[float]] = {way: [] for way in works}
    cpu: dict[str, list[float]] = {way: [] for way in works}
    made: dict[str, Any] = {}
    for _ in range(turns + 1):
        for way, do in works.items():
            began, used = perf_counter(), process_time()
            made[way] = do()
            wall[way].append(1e3 * (perf_counter() - began))
            cpu[way].append(1e3 * (process_time() - used))
    differences = [
        np.linalg.norm(one.vector - other.vector) / np.linalg.norm(other.vector)
        for one, other in zip(made["fast"], made["loop"], strict=True)
    ]
    return Measured(
        work,
        {way: statistics.median(times[1:]) for way, times in wall.items()},
        {way: statistics.median(times[1:]) for way, times in cpu.items()},
        wall["fast"][0],
        float(max(differences)),
    )


def floor(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, steps: int) -> None:
    """One batch of everything, forward and backward."""
    parameters = list(model.parameters())
    for _ in range(steps):
        torch.autograd.grad(functional.cross_entropy(model(inputs), targets), parameters)


def table(found: list[Measured]) -> Table:
    out = Table(title="milliseconds a round, medians (processor time in brackets)")
    out.add_column("work")
    columns = ("loop", "floor", "fast", "first", "of the loop's speed", "of the floor's", "differ")
    for column in columns:
        out.add_column(column, justify="right")
    for one in found:
        out.add_row(
            f"{one.work.model}, {one.work.clients} × {one.work.samples}, {one.work.steps} steps, "
            f"{one.work.threads} threads",
            *(f"{one.wall[way]:.0f} ({one.cpu[way]:.0f})" for way in ("loop", "floor", "fast")),
            f"{one.first:.0f}",
            f"{one.wall['loop'] / one.wall['fast']:.2f}",
            f"{one.wall['floor'] / one.wall['fast']:.2f}",
            f"{one.difference:.0e}",
        )
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="few clients, two turns")
    quick = parser.parse_args().quick
    found = []
    with Progress(console=Console(stderr=True)) as progress:
        for work in progress.track(list(workloads(quick)), description="training"):
            found.append(measure(work, 2 if quick else 9 if work.model == "lenet5" else 3))
    Console(width=150, file=sys.stdout).print(table(found))
    figures = {}
    for one in found:
        figures[f"{one.work.name}_vs_loop"] = round(one.wall["loop"] / one.wall["fast"], 2)
        figures[f"{one.work.name}_vs_floor"] = round(one.wall["floor"] / one.wall["fast"], 2)
    print(json.dumps({"benchmark": "training", "figures": figures}))


if __name__ == "__main__":
    main()
