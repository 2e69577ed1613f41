"""What attacks that reconstruct cost: ``python benchmarks/reconstruction.py``, figures as JSON.

``completion_ms``: CPU milliseconds (median) to complete a layer of 256 × 785 from one shard of 16
and four samples (MNIST, ReLU, one step), beside one dense singular value decomposition of the
layer, taken in turn. ``…_images_per_minute_over_one_by_one``: what attacking many images at once
gains. The same images are attacked by our own loop one after another and in one pass, in turn, for
the same number of iterations, by DLG, iDLG and GGL (with 32 principal components) on MNIST and by
cosine and ROG (without its enhancement network) on CIFAR-10 (the networks of
``eris.experiments.audits.inversions``). All times are CPU seconds on one thread.
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
from eris.audit.inversion import SearchBudget
from eris.experiments.audits.completion_cases import case
from eris.experiments.audits.inversions import InversionRow, Victims

SHARDS, SAMPLES = 16, 4
INVERSIONS = {
    "idlg": InversionRow("idlg", 1.0),
    "dlg": InversionRow("dlg", 1.0),
    "cosine": InversionRow("cosine", 1.0),
    "rog": InversionRow("rog", 1.0, factor=2),
    "ggl": InversionRow("ggl", 1.0, components=32, dataset="mnist"),
}
CONSOLE = Console(highlight=False, soft_wrap=True)


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
    CONSOLE.print(
        f"MNIST, 256 × 785, one shard of {SHARDS}, {SAMPLES} samples, seeds 1 to {repeats}: "
        f"{spent:.0f} ms of CPU, {certified} of {repeats} certified; a dense decomposition of the "
        f"layer {beside:.0f} ms (medians)"
    )
    return {"completion_ms": round(spent, 1), "completion_svd_ms": round(beside, 1)}


def seconds(victims: Victims, attack: str, iterations: int, at_once: int) -> float:
    """CPU seconds of one start of every image and of its control."""
    before = process_time()
    budget = SearchBudget(iterations, at_once=at_once)
    victims.inverted(INVERSIONS[attack], budget, 0, lambda share: None)
    return process_time() - before


def inversion(attack: str, images: int, iterations: int, repeats: int) -> dict[str, float]:
    """How many times as many images a minute an attack takes on at once as one by one."""
    victims = Victims.of(attack, images, 0, INVERSIONS[attack].dataset)
    seconds(victims, attack, 2, 32)  # what is set up once does not count
    pairs = [
        [seconds(victims, attack, iterations, at_once) for at_once in (1, 32)]
        for _ in range(repeats)
    ]
    alone, together = (statistics.median(column) for column in zip(*pairs, strict=True))
    CONSOLE.print(
        f"{attack}: {victims.source}; {images} images and their controls, seed 0, {iterations} "
        f"iterations: one by one {alone:.2f} s, at once {together:.2f} s of CPU, median of "
        f"{repeats}; {60 * 2 * images / together:.0f} starts a minute"
    )
    return {f"{attack}_images_per_minute_over_one_by_one": round(alone / together, 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--images", type=int, default=16)
    parser.add_argument("--iterations", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=3, help="of inversions; five times of fits")
    chosen = ("completion", *INVERSIONS)
    parser.add_argument("--attacks", nargs="+", default=list(chosen), choices=chosen)
    options = parser.parse_args()
    torch.set_num_threads(1)
    figures: dict[str, float] = {}
    for attack in options.attacks:
        if attack == "completion":
            figures |= completion(5 * options.repeats)
        else:
            figures |= inversion(attack, options.images, options.iterations, options.repeats)
    print(json.dumps({"benchmark": "reconstruction", "figures": figures}))


if __name__ == "__main__":
    main()
