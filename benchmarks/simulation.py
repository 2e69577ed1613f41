"""How fast the simulator is beside pfl and Flower: ``python benchmarks/simulation.py``.

All do the same work: 50 clients, LeNet-5, one step on 16 images each, every round; and 50 of 1,000
clients, five steps on ten images of CIFAR-10 each. Each contestant runs in a process of its own,
one after another and in turns, so that a busy machine disturbs all alike; a figure is a ratio of
medians over all turns. That nobody is fast by doing less is checked: the final weights must agree.
The *floor* is one batch of all images forward and backward.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from benchmarks.peers.environments import FLOWER, PFL
from benchmarks.peers.run_eris import SEED
from benchmarks.peers.workload import Task, Workload
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from eris.core.streams import Stream
from eris.data.cifar10 import load_cifar10
from eris.protocol.view import View
from eris.runtimes.sampling import Sampling
from eris.training.options import LocalTraining

ROOT = Path(__file__).resolve().parents[1]
CORES = os.cpu_count() or 1
PATH = os.pathsep.join((str(ROOT), str(ROOT / "src")))
"""What is measured is this tree, whichever is installed."""
AGREEMENT = 2e-3
"""Final weights may differ by this share of the way from the initial ones: every contestant rounds
in its own order, and over the rounds a ReLU or two near 0 turn over."""


@dataclass(frozen=True)
class Contestant:
    """Who runs the workload, and in which setting."""

    name: str
    threads: int

    @property
    def python(self) -> str:
        """The interpreter of its environment."""
        peers = {peer.name: str(peer.python) for peer in (PFL, FLOWER)}
        return peers.get(self.name, sys.executable)


@dataclass(frozen=True)
class Run:
    """What one process measured."""

    rounds: tuple[float, ...]
    cpu_s: float
    memory_mib: float
    norm: float
    final: Path


@dataclass(frozen=True)
class Summary:
    """All runs of one contestant on one workload."""

    runs: tuple[Run, ...]

    @property
    def round_s(self) -> float:
        """Median seconds of a round, the first of each run left out."""
        return statistics.median(s for run in self.runs for s in run.rounds[1:] or run.rounds)

    @property
    def spread(self) -> float:
        """How far the runs' own medians lie apart, as a share of the whole median."""
        medians = [statistics.median(run.rounds[1:] or run.rounds) for run in self.runs]
        return (max(medians) - min(medians)) / self.round_s

    @property
    def first_s(self) -> float:
        """Median seconds of the first round."""
        return statistics.median(run.rounds[0] for run in self.runs)

    @property
    def cpu_s(self) -> float:
        """Median CPU seconds of a round."""
        return statistics.median(run.cpu_s for run in self.runs)

    @property
    def memory_mib(self) -> float:
        """The most memory any run had resident at the end of a round."""
        return max(run.memory_mib for run in self.runs)


Summaries = dict[Contestant, Summary]


# -- running ----------------------------------------------------------------------------------


def run(contestant: Contestant, workload: Workload, folder: Path, turn: int) -> Run:
    """Let a contestant do the work in a process of its own."""
    final = folder / f"{contestant.name}-{contestant.threads}-{turn}.npy"
    task = Task(workload, contestant.threads, str(final))
    module = f"benchmarks.peers.run_{contestant.name}"
    # Flower's clients are processes of one core each, whatever their number.
    threads = "1" if contestant.name == "flower" else str(contestant.threads)
    pinned = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), threads)
    environment = {**os.environ, **pinned, "NUMBA_NUM_THREADS": "1", "PYTHONPATH": PATH}
    command = [contestant.python, "-m", module, *task.arguments()]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"contestant"')]
    if done.returncode or not lines:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    found = json.loads(lines[-1])
    return Run(tuple(found["rounds"]), found["cpu_s"], found["memory_mib"], found["norm"], final)


def contest(
    workload: Workload,
    contestants: Sequence[Contestant],
    turns: int,
    folder: Path,
    advance: Callable[[str], None],
) -> Summaries:
    """All contestants in turns, and whether they did the same work."""
    runs: dict[Contestant, list[Run]] = {contestant: [] for contestant in contestants}
    for turn in range(turns):
        for contestant in contestants:
            advance(f"{workload.model}: {contestant.name}, {contestant.threads} thread(s)")
            runs[contestant].append(run(contestant, workload, folder, turn))
    flat = [p.detach().numpy().ravel() for p in workload.network().parameters()]
    # The floor has no clients: with several steps it ends elsewhere.
    federated = [one for who, some in runs.items() if who.name != "floor" for one in some]
    agree(np.concatenate(flat), federated)
    return {contestant: Summary(tuple(some)) for contestant, some in runs.items()}


def agree(initial: np.ndarray[tuple[int], np.dtype[np.float32]], runs: Iterable[Run]) -> None:
    """Stop unless all runs ended with the same weights, but for rounding."""
    first, *others = (np.load(run.final).astype(np.float64) for run in runs)
    way = float(np.linalg.norm(first - initial))
    for number, other in enumerate(others, 1):
        apart = float(np.linalg.norm(first - other))
        if not apart <= AGREEMENT * way:
            found = f"runs 0 and {number} ended {apart:.3g} apart, having moved {way:.3g}"
            raise SystemExit(f"{found}: they did not do the same work")


# -- reporting --------------------------------------------------------------------------------


def fastest(summaries: Summaries, name: str) -> Summary:
    """A contestant in the setting in which it is fastest."""
    settings = [s for contestant, s in summaries.items() if contestant.name == name]
    return min(settings, key=lambda summary: summary.round_s)


def ratios(summaries: Summaries, threads: int) -> dict[str, float]:
    """Our updates per second with so many threads, over the others'."""
    ours = summaries[Contestant("eris", threads)]
    found = {
        "vs_pfl": round(fastest(summaries, "pfl").round_s / ours.round_s, 2),
        "vs_flower": round(fastest(summaries, "flower").round_s / ours.round_s, 2),
    }
    if (floor := summaries.get(Contestant("floor", threads))) is not None:
        found["vs_floor"] = round(floor.round_s / ours.round_s, 3)
    found["first_round_s"] = round(ours.first_s, 3)
    found["memory_mib"] = round(ours.memory_mib, 1)
    return found


def table(workload: Workload, summaries: Summaries) -> Table:
    """What was measured."""
    turns = len(next(iter(summaries.values())).runs)
    steps = workload.epochs * -(-workload.samples // workload.batch)
    whom = f"{workload.sampled} of {workload.clients}" if workload.sampled else workload.clients
    title = f"{whom} clients, {workload.model}, {steps} step(s) of {workload.batch}"
    out = Table(title=f"{title}; {workload.rounds} rounds, {turns} turn(s)")
    out.add_column("contestant")
    names = ("threads", "updates/s", "ms/round", "spread", "CPU s/round", "first s", "MiB", "norm")
    for name in names:
        out.add_column(name, justify="right")
    for contestant, summary in summaries.items():
        out.add_row(
            contestant.name,
            str(contestant.threads),
            f"{workload.updates / summary.round_s:.1f}",
            f"{1e3 * summary.round_s:.1f}",
            f"{summary.spread:.0%}",
            f"{summary.cpu_s:.3f}",
            f"{summary.first_s:.2f}",
            f"{summary.memory_mib:.0f}",
            f"{summary.runs[0].norm:.4f}",
        )
    return out


# -- workloads --------------------------------------------------------------------------------


def cifar_images(workload: Workload, folder: Path) -> Workload:
    """The workload on CIFAR-10 images, dealt out once for all contestants."""
    data = load_cifar10()
    count = workload.clients * workload.samples
    chosen = np.argsort(Stream(0, "benchmark-images").words(0, len(data.train_images)))[:count]
    inputs = np.asarray(data.train_images[chosen], np.float32)
    inputs = (inputs - inputs.mean()) / inputs.std()
    folder.mkdir()
    np.save(folder / "inputs.npy", inputs)
    np.save(folder / "targets.npy", np.asarray(data.train_labels[chosen], np.int64))
    return replace(workload, images=str(folder))


def draw_lists(workload: Workload) -> None:
    """Write down, beside the images, whom our simulator samples and how it orders their images."""
    names = tuple(f"client-{number}" for number in range(workload.clients))
    template = View.serverless(list(names[: workload.sampled]), aggregators=1)
    sampling = Sampling(template, names, SEED)
    clients = [sampling.view(round).clients for round in range(1, workload.rounds + 1)]
    options = LocalTraining(
        learning_rate=workload.learning_rate, batch_size=workload.batch, seed=SEED
    )
    steps = -(-workload.samples // workload.batch)
    orders = [
        [
            np.concatenate(list(islice(options.batches(workload.samples, client, round), steps)))
            for client in some
        ]
        for round, some in enumerate(clients, 1)
    ]
    np.save(Path(workload.images) / "clients.npy", np.array(clients, np.int64))
    np.save(Path(workload.images) / "orders.npy", np.array(orders, np.int64))


def sampled_workload(folder: Path, rounds: int) -> Workload:
    """What frameworks publish: CIFAR-10, 50 of 1,000 clients a round, batches of ten."""
    workload = Workload(
        "lenet5-colour",
        clients=1000,
        rounds=rounds,
        samples=50,
        batch=10,
        sampled=50,
    )
    workload = cifar_images(workload, folder)
    draw_lists(workload)
    return workload


def settings(names: Iterable[str], threads: Iterable[int]) -> list[Contestant]:
    """Every contestant with every number of threads."""
    return [Contestant(name, count) for count in sorted(set(threads)) for name in names]


EVERYONE = ("eris", "floor", "pfl", "flower")
FEDERATED = ("eris", "pfl", "flower")
WORKLOADS = ("one_step", "sampled", "five_steps", "resnet9")


@dataclass(frozen=True)
class Entry:
    """A workload, who does it, and how often."""

    workload: Workload
    names: tuple[str, ...]
    turns: int


def entry(name: str, turns: int, rounds: int | None, folder: Path) -> Entry:
    """The workload called ``name``, its data in ``folder``."""
    few = max(1, turns // 2)
    if name == "sampled":
        return Entry(sampled_workload(folder / name, rounds or 20), FEDERATED, few)
    if name == "resnet9":
        workload = cifar_images(Workload("resnet9", rounds=rounds or 3), folder / name)
        return Entry(workload, EVERYONE, 1)
    if name == "five_steps":
        return Entry(Workload(epochs=5, rounds=rounds or 10), EVERYONE, few)
    return Entry(Workload(rounds=rounds or 10), EVERYONE, turns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0] if __doc__ else None)
    parser.add_argument("--turns", type=int, default=5, help="how often each contestant runs")
    parser.add_argument("--rounds", type=int, help="rounds of a run")
    parser.add_argument("--only", nargs="+", choices=WORKLOADS, default=WORKLOADS)
    wanted = parser.parse_args()
    console = Console(width=110, markup=False)
    for peer in (PFL, FLOWER):
        peer.prepare(console.print)
    figures: dict[str, float] = {}
    load = [os.getloadavg()[0]]
    with (
        tempfile.TemporaryDirectory() as folder,
        Progress(console=Console(stderr=True)) as progress,
    ):
        entries = {
            name: entry(name, wanted.turns, wanted.rounds, Path(folder)) for name in wanted.only
        }
        runs = sum(len(settings(one.names, (1, CORES))) * one.turns for one in entries.values())
        task = progress.add_task("", total=runs)

        def advance(what: str) -> None:
            progress.update(task, description=what, advance=1)

        for name, one in entries.items():
            contestants = settings(one.names, (1, CORES))
            summaries = contest(one.workload, contestants, one.turns, Path(folder), advance)
            load.append(os.getloadavg()[0])
            console.print(table(one.workload, summaries))
            found = ratios(summaries, CORES)
            console.print(f"with {CORES} thread(s), peers where they are fastest: {found}")
            console.print(f"with 1 thread, peers where they are fastest: {ratios(summaries, 1)}")
            prefix = "" if name == "one_step" else f"{name}_"
            figures |= {prefix + figure: value for figure, value in found.items()}
    conditions = {"cores": CORES, "load": [round(value, 1) for value in load]}
    print(json.dumps({"benchmark": "simulation", "figures": figures, "conditions": conditions}))


if __name__ == "__main__":
    main()
