"""What attacks that reconstruct cost: ``python benchmarks/reconstruction.py``, figures as JSON.

``completion_ms``: CPU milliseconds (median) to complete a layer of 256 × 785 from one shard of 16
and four samples (MNIST, ReLU, one step), beside one dense singular value decomposition of the
layer, taken in turn on one thread.
"""

from __future__ import annotations

import os

os.environ["NUMBA_NUM_THREADS"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import json
import statistics
from time import process_time

import numpy as np
import torch
from rich.console import Console
from rich.progress import track

from eris.audit.completion import complete
from eris.experiments.audits.completion_cases import case

SHARDS, SAMPLES = 16, 4


def completion(repeats: int) -> dict[str, float]:
    """Milliseconds of completions and of decompositions; every one of another layer."""
    complete(case(0, SAMPLES, SHARDS).entries, samples=SAMPLES)  # compiles
    fits, decompositions, certified = [], [], 0
    for seed in track(range(1, repeats + 1), "completion"):
        one = case(seed, SAMPLES, SHARDS)
        before = process_time()
        found = complete(one.entries, samples=SAMPLES)
        fits.append(process_time() - before)
        certified += found.certified
        before = process_time()
        np.linalg.svd(one.truth, full_matrices=False)
        decompositions.append(process_time() - before)
    spent, beside = (1000 * statistics.median(times) for times in (fits, decompositions))
    Console(highlight=False).print(
        f"MNIST, 256 × 785, one shard of {SHARDS}, {SAMPLES} samples, seeds 1 to {repeats}: "
        f"{spent:.0f} ms of CPU, {certified} of {repeats} certified; a dense decomposition of the "
        f"layer {beside:.0f} ms (medians)",
        soft_wrap=True,
    )
    return {"completion_ms": round(spent, 1), "completion_svd_ms": round(beside, 1)}


FIGURES = {"completion": completion}
"""What is measured, by name: each takes how often, and gives figures."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--only", choices=list(FIGURES), help="one of the measurements")
    options = parser.parse_args()
    torch.set_num_threads(1)
    chosen = [options.only] if options.only else list(FIGURES)
    figures: dict[str, float] = {}
    for name in chosen:
        figures |= FIGURES[name](options.repeats)
    print(json.dumps({"benchmark": "reconstruction", "figures": figures}))


if __name__ == "__main__":
    main()
