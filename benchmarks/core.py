"""How near the core comes to the speed of memory: ``python benchmarks/core.py``.

Everything runs on one thread and is compared with a limit measured in the same run, in turns, so
that a busy machine disturbs both alike: a copy for split and reassemble, a compiled a·x + y for
combining. The last part streams 1.3·10⁹ coordinates through split, combine and reassemble in a
process of its own and reports what it needed beyond the vectors (about 17 GB of memory).
"""

from __future__ import annotations

import os

os.environ["NUMBA_NUM_THREADS"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"

import argparse
import json
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import perf_counter

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from eris.core.combine import ExactMean, FixedPoint, examine
from eris.core.compress import Encoding, decode_values, encode_values
from eris.core.kernels import compiled
from eris.core.masks import exactly_kept, fraction_kept
from eris.core.shards import RandomPlan, ShardPlan, WeightedPlan
from eris.core.streams import Stream
from eris.protocol.codec import decode, encode
from eris.protocol.messages import Contribution, Header, Payload

Vector = NDArray[np.float32]
Work = Callable[[], object]

SEGMENT = 1 << 18
CLIENTS = 8
BILLION = 1_300_000_000
GIB = 1 << 30


@compiled
def sweep(y: Vector, x: Vector, a: np.float32) -> None:
    """y ← a·x + y, the least that adding a contribution could cost."""
    for i in range(y.shape[0]):
        y[i] = a * x[i] + y[i]


@compiled
def fill(out: Vector, salt: np.uint32) -> None:
    """Values in [−1, 1) that look random and are cheap."""
    for i in range(out.shape[0]):
        word = (np.uint32(i) ^ salt) * np.uint32(2654435769)
        out[i] = np.float32(np.int32(word ^ (word >> np.uint32(15)))) * np.float32(2.0**-31)


# -- 10⁸ coordinates --------------------------------------------------------------------------


@dataclass
class Timings:
    """Seconds of each piece of work, and the limit it is held against."""

    coordinates: int
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def measure(self, works: dict[str, Work], repeats: int, progress: Progress) -> None:
        """Time all works in turns; the first turn compiles and is not counted."""
        task = progress.add_task(next(iter(works)), total=(repeats + 1) * len(works))
        for turn in range(repeats + 1):
            for name, work in works.items():
                progress.update(task, description=name)
                start = perf_counter()
                work()
                elapsed = perf_counter() - start
                if turn:
                    self.seconds.setdefault(name, []).append(elapsed)
                progress.advance(task)
        progress.update(task, description="done")

    def best(self, name: str) -> float:
        return min(self.seconds[name])

    def median(self, name: str) -> float:
        return statistics.median(self.seconds[name])

    def rate(self, name: str) -> float:
        """Million coordinates a second."""
        return self.coordinates / self.best(name) / 1e6

    def ratio(self, name: str, limit: str) -> float:
        """How much of the limit's speed was reached."""
        return self.best(limit) / self.best(name)


def combine(vector: Vector) -> None:
    """The mean of eight contributions, segment by segment, as an aggregator takes it."""
    length, precision = len(vector) // CLIENTS, FixedPoint()
    for start in range(0, length, SEGMENT):
        stop = min(start + SEGMENT, length)
        mean = ExactMean(stop - start, precision)
        for client in range(CLIENTS):
            offset = client * length
            mean.add(vector[offset + start : offset + stop], 100 + client, client)
        mean.result()


def messages(vector: Vector) -> tuple[Work, Work]:
    """Encode and decode the vector as dense contributions of 1 MiB."""
    header = Header(federation=1 << 63, epoch=0, sender=1, round=7, shard=3, segment=2)
    segments = [vector[at : at + SEGMENT] for at in range(0, len(vector), SEGMENT)]
    sent = [_message(header, segment) for segment in segments]

    def write() -> None:
        for segment in segments:
            _message(header, segment)

    def read() -> None:
        for data, segment in zip(sent, segments, strict=True):
            message = decode(data)
            assert isinstance(message, Contribution)
            decode_values(message.payload.encoded, Encoding.DENSE, len(segment))

    return write, read


def _message(header: Header, values: Vector) -> bytes:
    return encode(Contribution(header, 6, 1000, 1, Payload(encode_values(values))))


def measure(n: int, repeats: int, progress: Progress) -> Timings:
    """Time everything on n coordinates."""
    vector, other, pieces = (np.empty(n, np.float32) for _ in range(3))
    fill(vector, np.uint32(1))
    fill(other, np.uint32(2))
    pieces[:] = 0
    works: dict[str, Work] = {
        "copy": lambda: np.copyto(other, vector),
        "sweep a·x + y": lambda: sweep(other, vector, np.float32(1e-3)),
    }
    plans: dict[str, ShardPlan] = {
        "A = 2": RandomPlan(2),
        "A = 8": RandomPlan(8),
        "A = 50": RandomPlan(50),
        "weighted": WeightedPlan((1, 2, 3, 4, 5, 6, 7, 8)),
    }
    for name, plan in plans.items():
        route = plan.at(n, seed=1).stripe()
        works[f"split, {name}"] = partial(route.gather, vector, pieces)
        works[f"reassemble, {name}"] = partial(route.scatter, other, pieces)
    write, read = messages(vector)
    works |= {
        "combine, K = 8": lambda: combine(vector),
        "look, plain": lambda: examine(vector, 0, FixedPoint()),
        "look, shifted": lambda: examine(vector, 0, FixedPoint(), reference=pieces),
        "kept set, 5 %": lambda: fraction_kept(n, 0.05, Stream(1, "mask")),
        "kept set, exactly n/20": lambda: exactly_kept(n, n // 20, Stream(1, "mask")),
        "encode 1 MiB": write,
        "decode 1 MiB": read,
    }
    timings = Timings(n)
    timings.measure(works, repeats, progress)
    return timings


LIMITS = {"split": "copy", "reassemble": "copy", "encode": "copy", "decode": "copy",
          "combine": "sweep a·x + y", "look": "sweep a·x + y"}  # fmt: skip
GOALS = {
    "split, A = 8": "0.4",
    "reassemble, A = 8": "0.4",
    "split, A = 50": "0.35",
    "reassemble, A = 50": "0.35",
    "combine, K = 8": "0.5",
    "kept set, 5 %": "200 M/s",
}


def table(timings: Timings) -> Table:
    """The timings, and how each compares with its limit."""
    out = Table(title=f"{timings.coordinates:,} coordinates, one thread")
    out.add_column("work")
    for column in ("best ms", "median ms", "M/s", "GB/s", "of limit", "by medians", "goal"):
        out.add_column(column, justify="right")
    for name in timings.seconds:
        limit = LIMITS.get(name.replace(",", " ").split()[0])
        ratios = ["", ""]
        if limit is not None:
            by_median = timings.median(limit) / timings.median(name)
            ratios = [f"{timings.ratio(name, limit):.2f}", f"{by_median:.2f}"]
        out.add_row(
            name,
            f"{1e3 * timings.best(name):.1f}",
            f"{1e3 * timings.median(name):.1f}",
            f"{timings.rate(name):.0f}",
            f"{4e-3 * timings.rate(name):.2f}",
            *ratios,
            GOALS.get(name, ""),
        )
    return out


# -- 1.3·10⁹ coordinates ----------------------------------------------------------------------


def stream(n: int) -> dict[str, float]:
    """Split two updates, combine them and reassemble the mean, one stripe after another."""
    vectors = [np.empty(n, np.float32) for _ in range(3)]
    weights, precision = (300, 100), FixedPoint()
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("filling", total=None)
        for salt, vector in enumerate(vectors, 1):
            fill(vector, np.uint32(salt))
        *clients, result = vectors
        started = perf_counter()
        shard_map = RandomPlan(8).at(n, seed=1)
        largest = max(shard_map.size(shard) for shard in range(shard_map.shards))
        progress.update(task, description="streaming", total=largest)
        buffer = np.empty(shard_map.shards * SEGMENT, np.float32)
        for start in range(0, largest, SEGMENT):
            route = shard_map.stripe(start, start + SEGMENT)
            means = [ExactMean(length, precision) for length in route.lengths]
            for client, (vector, weight) in enumerate(zip(clients, weights, strict=True)):
                pieces = route.cut(route.gather(vector, out=buffer[: route.size]))
                for mean, piece in zip(means, pieces, strict=True):
                    mean.add(piece, weight, client)
            route.scatter(result, np.concatenate([mean.result() for mean in means]))
            progress.update(task, completed=min(start + SEGMENT, largest))
        seconds = perf_counter() - started
    check(clients, weights, result, precision)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"extra_gib": (peak - 12 * n) / GIB, "peak_gib": peak / GIB, "seconds": seconds}


def check(
    clients: list[Vector], weights: tuple[int, ...], result: Vector, precision: FixedPoint
) -> None:
    """Compare a sample of coordinates, the first and the last among them, with float64."""
    n = len(result)
    at = (Stream(1, "sample").uniform(0, 100_000) * n).astype(np.int64)
    at = np.concatenate([at, np.arange(min(n, 5_000)), np.arange(max(0, n - 5_000), n)])
    exact = np.zeros(len(at))
    for vector, weight in zip(clients, weights, strict=True):
        exact += weight * vector[at].astype(np.float64)
    exact /= sum(weights)
    error = np.abs(result[at] - exact)
    if not (error <= precision.resolution + 2.0**-24 * np.abs(exact)).all():
        raise SystemExit(f"the streamed mean is wrong: off by up to {error.max()}")


def billion() -> dict[str, float]:
    """:func:`stream` in a process of its own, so that its peak memory is its own."""
    needed = 12 * BILLION + GIB
    memory = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    available = 1024 * int(memory["MemAvailable"].split()[0])
    if available < needed:
        found = f"{available / GIB:.1f} GiB of {needed / GIB:.1f} are free"
        raise SystemExit(f"{found}: not enough for {BILLION:,} coordinates; use --quick")
    command = [sys.executable, str(Path(__file__).resolve()), "--stream", str(BILLION)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="10⁷ coordinates, no billion")
    parser.add_argument("--stream", type=int, metavar="N", help="only the last part, on N")
    wanted = parser.parse_args()
    if wanted.stream is not None:
        print(json.dumps(stream(wanted.stream)))
        return
    with Progress(console=Console(stderr=True)) as progress:
        n, repeats = (10**7, 3) if wanted.quick else (10**8, 7)
        timings = measure(n, repeats, progress)
    console = Console(width=110)
    console.print(table(timings))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    vectors = f"{12 * n / GIB:.2f} vectors and {4 * n / GIB:.2f} messages"
    console.print(f"peak memory {peak / GIB:.2f} GiB, of which {vectors}")
    extra = None
    if not wanted.quick:
        streamed = billion()
        extra = round(streamed["extra_gib"], 3)
        console.print(
            f"{BILLION:,} coordinates, 2 clients, A = 8: split, combined and reassembled in "
            f"{streamed['seconds']:.1f} s\npeak memory {streamed['peak_gib']:.2f} GiB, "
            f"{extra:.3f} beyond the three vectors (goal: below 1)"
        )
    figures = {
        "split_vs_copy": round(timings.ratio("split, A = 8", "copy"), 3),
        "combine_vs_sweep": round(timings.ratio("combine, K = 8", "sweep a·x + y"), 3),
        "reassemble_vs_copy": round(timings.ratio("reassemble, A = 8", "copy"), 3),
        "split50_vs_copy": round(timings.ratio("split, A = 50", "copy"), 3),
        "reassemble50_vs_copy": round(timings.ratio("reassemble, A = 50", "copy"), 3),
        "kept_set_mcoords_s": round(timings.rate("kept set, 5 %"), 1),
        "billion_extra_gib": extra,
    }
    print(json.dumps({"benchmark": "core", "figures": figures}))


if __name__ == "__main__":
    main()
