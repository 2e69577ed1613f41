"""What attacking many images at once gains: ``python benchmarks/reconstruction.py``.

The same images are attacked by our own loop one after another and in one pass, in turn, for the
same number of iterations, by DLG and iDLG on MNIST and by cosine on CIFAR-10 (the networks of
``eris.experiments.audits.inversions``). The ratio is of CPU seconds on one thread.
"""

from __future__ import annotations

import os

os.environ["NUMBA_NUM_THREADS"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import json
import statistics
from time import process_time

import torch
from rich.console import Console

from eris.audit.inversion import SearchBudget
from eris.experiments.audits.inversions import InversionRow, Victims

ATTACKS = ("idlg", "dlg", "cosine")


def seconds(victims: Victims, attack: str, iterations: int, at_once: int) -> float:
    """CPU seconds of one start of every image and of its control."""
    before = process_time()
    budget = SearchBudget(iterations, at_once=at_once)
    victims.inverted(InversionRow(attack, 1.0), budget, 0, lambda share: None)
    return process_time() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--images", type=int, default=16)
    parser.add_argument("--iterations", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--attacks", nargs="+", default=list(ATTACKS), choices=ATTACKS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    console = Console(highlight=False)
    figures: dict[str, float] = {}
    for attack in options.attacks:
        victims = Victims.of(attack, options.images, seed=0)
        seconds(victims, attack, 2, 32)  # what is set up once does not count
        pairs = [
            [seconds(victims, attack, options.iterations, at_once) for at_once in (1, 32)]
            for _ in range(options.repeats)
        ]
        alone, together = (statistics.median(column) for column in zip(*pairs, strict=True))
        rate = 60 * 2 * options.images / together
        console.print(
            f"{attack}: {victims.source}; {options.images} images and their controls, seed 0, "
            f"{options.iterations} iterations: one by one {alone:.2f} s, at once {together:.2f} s "
            f"of CPU, median of {options.repeats}; {rate:.0f} starts a minute",
            soft_wrap=True,
        )
        figures[f"{attack}_images_per_minute_over_one_by_one"] = round(alone / together, 3)
    print(json.dumps({"benchmark": "reconstruction", "figures": figures}))


if __name__ == "__main__":
    main()
