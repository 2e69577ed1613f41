"""How the cost of a round grows with clients and coordinates: ``python benchmarks/growth.py``.

Nothing is trained: clients hand out prepared vectors, so that what is timed is the protocol. Every
point runs in a process of its own, which makes its peak memory its own too. The last lines are a
table, the exponents e of CPU time ∝ Kᵉ and ∝ nᵉ, and a plot in ``runs/growth.png``.
"""

from __future__ import annotations

import os

os.environ["NUMBA_NUM_THREADS"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import json
import resource
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.federation import Federation
from eris.methods.eris import ERIS
from eris.methods.fedavg import FedAvg
from eris.training.trainer import LocalUpdate, PerSampleNoise

METHODS = ("fedavg", "eris", "eris + dsc")
SIZES = ((60_000, (10, 100, 1_000)), (1_600_000, (10, 50)), (10_000_000, (10, 50)))
"""Coordinates n, and with how many clients K they are measured."""
MOST_AGGREGATORS = 50
KEPT_FRACTION = 0.05
PREPARED = 2
PIECE = 1 << 16
SECONDS = 4.0
"""A point is measured for about this long, and for two rounds at least."""
PLOT = Path("runs") / "growth.png"


@dataclass(frozen=True)
class Point:
    """What is measured: a method with so many clients and coordinates."""

    method: str
    clients: int
    n: int

    def composition(self) -> FedAvg | ERIS:
        """The method of this point."""
        if self.method == "fedavg":
            return FedAvg()
        kept = KEPT_FRACTION if self.method == "eris + dsc" else None
        return ERIS(aggregators=min(self.clients, MOST_AGGREGATORS), kept_fraction=kept)


@dataclass(frozen=True)
class Cost:
    """What a round of a point costs."""

    round_s: float
    cpu_s: float
    """CPU seconds of a round: what a busy machine does not change, so exponents come from it."""
    first_s: float
    rounds: int
    sent_mb: float
    """Encoded megabytes that all members send in a round."""
    peak_mib: float


Costs = dict[Point, Cost]


def prepared(n: int, number: int) -> Vector:
    """A vector of values in ±0.01, made piece by piece: the peak of memory is to be a round's."""
    vector, stream = np.empty(n, np.float32), Stream(0, "growth", client=number)
    for start in range(0, n, PIECE):
        piece = vector[start : start + PIECE]
        piece[:] = (stream.uniform(start, len(piece)) - 0.5) / 50
    return vector


class PreparedUpdates:
    """A population that does not train: its clients hand out a few vectors in turn."""

    def __init__(self, clients: int, n: int) -> None:
        self._clients = clients
        self._vectors = [prepared(n, number) for number in range(min(PREPARED, clients))]

    def __len__(self) -> int:
        return self._clients

    def updates(
        self,
        clients: Sequence[int],
        models: Vector | Sequence[Vector],
        round: int,
        noise: PerSampleNoise | None = None,
    ) -> Iterator[LocalUpdate]:
        """The vectors, one client after another: no two have to be held at once."""
        for client in clients:
            yield LocalUpdate(self._vectors[client % len(self._vectors)], samples=16)

    def state(self) -> dict[str, Vector]:
        """Nothing is kept."""
        return {}

    def restore(self, state: Mapping[str, Vector]) -> None:
        """Nothing is kept."""


# -- measuring --------------------------------------------------------------------------------


def measure(point: Point, seconds: float = SECONDS) -> Cost:
    """Time rounds of a point in this process."""
    population = PreparedUpdates(point.clients, point.n)
    federation = Federation(population, np.zeros(point.n, np.float32), point.composition())
    session = federation.start(rounds=10**6)
    times: list[float] = []
    cpu: list[float] = []
    while len(times) < 3 or (sum(times[1:]) < seconds and len(times) < 100):
        started, used = perf_counter(), process_time()
        record = session.step()
        times.append(perf_counter() - started)
        cpu.append(process_time() - used)
        if record.included != 1:
            raise SystemExit(f"{point}: only {record.included} of the clients were included")
    sent = sum(record.traffic.sent.values()) / 1e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    medians = statistics.median(times[1:]), statistics.median(cpu[1:])
    return Cost(*medians, times[0], len(times) - 1, sent, peak)


def measured_apart(point: Point) -> Cost:
    """:func:`measure` in a process of its own."""
    command = [sys.executable, str(Path(__file__).resolve()), "--point", json.dumps(asdict(point))]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Cost(**json.loads(done.stdout))


# -- reporting --------------------------------------------------------------------------------


def exponent(pairs: Sequence[tuple[float, float]]) -> float:
    """e of y ∝ xᵉ, fitted to (x, y) by least squares of the logarithms."""
    x, y = np.log(np.array(pairs, np.float64)).T
    slope, _ = np.polyfit(x, y, 1)
    return float(slope)


def lines(costs: Costs, method: str) -> dict[str, list[tuple[float, float]]]:
    """(K, CPU seconds) for each n and (n, CPU seconds) for each K, where there are several."""
    found: dict[str, list[tuple[float, float]]] = {}
    for point, cost in costs.items():
        if point.method == method:
            found.setdefault(f"K, n={point.n:.2g}", []).append((point.clients, cost.cpu_s))
            found.setdefault(f"n, K={point.clients}", []).append((point.n, cost.cpu_s))
    return {what: pairs for what, pairs in found.items() if len(pairs) > 1}


def table(costs: Costs) -> Table:
    """What was measured."""
    out = Table(title="rounds without training, one thread")
    out.add_column("method")
    names = ("rounds/s", "ms/round", "CPU ms", "CPU ns/(K·n)", "first s", "MB sent", "peak MiB")
    for name in ("K", "n", *names):
        out.add_column(name, justify="right")
    for point, cost in costs.items():
        out.add_row(
            point.method,
            f"{point.clients:,}",
            f"{point.n:,}",
            f"{1 / cost.round_s:.3g}",
            f"{1e3 * cost.round_s:.1f}",
            f"{1e3 * cost.cpu_s:.1f}",
            f"{1e9 * cost.cpu_s / point.clients / point.n:.2f}",
            f"{cost.first_s:.2f}",
            f"{cost.sent_mb:.1f}",
            f"{cost.peak_mib:.0f}",
        )
    return out


def plot(costs: Costs, path: Path) -> None:
    """CPU seconds a round over K and over n, both axes logarithmic."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    panels = dict(zip(("K", "n"), figure.subplots(1, 2, sharey=True), strict=True))
    for method in METHODS:
        for what, pairs in lines(costs, method).items():
            axis, _, fixed = what.partition(", ")
            label = f"{method}, {fixed}: exponent {exponent(pairs):.2f}"
            panels[axis].loglog(*zip(*sorted(pairs), strict=True), marker="o", label=label)
    for name, title in (("K", "clients K"), ("n", "coordinates n")):
        panels[name].set(xlabel=title, ylabel="CPU seconds a round")
        panels[name].grid(alpha=0.3)
        panels[name].legend(fontsize=6)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def figures(costs: Costs) -> dict[str, float]:
    """The exponents, and the cost of the largest point of each method."""
    out: dict[str, float] = {}
    for method in METHODS:
        name = method.replace(" + ", "_")
        for what, pairs in lines(costs, method).items():
            key = what.replace(", ", "_at_").replace("=", "_").replace("+0", "").replace("+", "")
            out[f"{name}_exponent_{key}"] = round(exponent(pairs), 3)
        ours = {point: cost for point, cost in costs.items() if point.method == method}
        largest = max(ours, key=lambda point: (point.n, point.clients))
        out[f"{name}_largest_rounds_s"] = round(1 / ours[largest].round_s, 4)
        out[f"{name}_largest_peak_mib"] = round(ours[largest].peak_mib, 1)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0] if __doc__ else None)
    parser.add_argument("--point", help="measure one point, given as JSON, in this process")
    parser.add_argument("--quick", action="store_true", help="a thousandth of the coordinates")
    parser.add_argument("--plot", type=Path, default=PLOT, help="where the plot goes")
    wanted = parser.parse_args()
    if wanted.point is not None:
        print(json.dumps(asdict(measure(Point(**json.loads(wanted.point))))))
        return
    sizes = [(n // 1000, (10, 50)) for n, _ in SIZES] if wanted.quick else SIZES
    points = [Point(method, k, n) for method in METHODS for n, clients in sizes for k in clients]
    costs: Costs = {}
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=len(points))
        for point in points:
            what = f"{point.method}, K = {point.clients:,}, n = {point.n:,}"
            progress.update(task, description=what)
            costs[point] = measure(point, 0.0) if wanted.quick else measured_apart(point)
            progress.advance(task)
    Console(width=110).print(table(costs))
    plot(costs, wanted.plot)
    print(f"the plot is {wanted.plot}")
    print(json.dumps({"benchmark": "growth", "figures": figures(costs)}))


if __name__ == "__main__":
    main()
