"""What an audit costs beside the training it audits: ``python benchmarks/audit.py``.

One round of MNIST/LeNet-5: 50 clients with 16 samples each train by the fast path; then the round's
recorded messages are attacked as every one of the 50 aggregators, with 400 canaries. Both are
repeated in turn on one thread, and the medians of their CPU seconds are compared. Reading the
messages is part of the audit, keeping them is not.
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

from eris.audit.attack import show
from eris.audit.candidates import Candidates
from eris.audit.gradients import SampleModel
from eris.audit.membership import MembershipAudit
from eris.audit.watch import Watch
from eris.experiments.runs.assembly import Assembly, assemble
from eris.experiments.runs.holdings import canaries_of
from eris.experiments.runs.recipe import UNBIASED, Recipe

CLIENTS, SAMPLES, CANARIES = 50, 16, 400


def recipe(kept: float | None, data: str = "mnist", clients: int = CLIENTS) -> Recipe:
    """One round of ERIS with as many aggregators as clients."""
    changes = {
        "data.name": data,
        "data.clients": clients,
        "data.samples": SAMPLES,
        "data.canaries": 0.5,
        "training.rounds": 1,
        "training.learning_rate": 0.01,
        "training.momentum": 0.9,
        **UNBIASED,
        "method.name": "eris",
    }
    return Recipe().changed(changes | ({} if kept is None else {"method.kept_fraction": kept}))


def canaries(assembly: Assembly, count: int) -> Candidates:
    """The first canaries of every client, ``count`` in all."""
    found = canaries_of(assembly.recipe.data.resolved(), assembly.recipe.seed)
    each = count // assembly.clients
    chosen = np.concatenate([found.of(client)[:each] for client in found.clients])
    taken = torch.from_numpy(chosen)
    return Candidates(
        found.inputs[taken], found.targets[taken], found.client[chosen], found.included[chosen]
    )


class AuditedRound:
    """A round to train and to audit, again and again."""

    def __init__(self, assembly: Assembly, count: int) -> None:
        self.assembly, self.candidates = assembly, canaries(assembly, count)
        asked = self.candidates.inputs, self.candidates.targets
        self.samples = SampleModel(assembly.module, assembly.samples.loss, *asked)
        with assembly.training(record=True) as training:
            training.step()
            assert training.transcript is not None
            self.transcript = training.transcript

    def train(self) -> float:
        """CPU seconds of all clients' training."""
        population = self.assembly.federation.population
        before = process_time()
        # Not the first round, in which passes are held against the loop.
        for _ in population.updates(range(self.assembly.clients), self.assembly.initial, 2):
            pass
        return process_time() - before

    def audit(self) -> float:
        """CPU seconds of the attack as every aggregator."""
        transcript = self.transcript
        observers = [transcript.aggregator(owner) for owner in sorted(transcript.owners)]
        watch = Watch(transcript, self.assembly.initial, observers)
        attack = MembershipAudit(observers, self.samples, self.candidates)
        before = process_time()
        show(watch, 1, transcript.records, [attack])
        return process_time() - before


def measured(assembly: Assembly, count: int, repeats: int, label: str) -> tuple[float, float]:
    """Median CPU seconds of training and of audit, taken in turn; the first ones do not count."""
    round = AuditedRound(assembly, count)
    round.train()
    round.audit()
    pairs = [(round.train(), round.audit()) for _ in track(range(repeats), label)]
    training, audit = zip(*pairs, strict=True)
    return statistics.median(training), statistics.median(audit)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--canaries", type=int, default=CANARIES)
    parser.add_argument("--data", default="mnist")
    options = parser.parse_args()
    torch.set_num_threads(1)
    console = Console(highlight=False)
    figures: dict[str, float] = {}
    for name, kept in (("audit_vs_training", None), ("audit_vs_training_dsc", 0.05)):
        assembly = assemble(recipe(kept, options.data, options.clients))
        training, audit = measured(assembly, options.canaries, options.repeats, name)
        about = f"{options.data}, {assembly.recipe.model.name}, seed {assembly.recipe.seed}"
        console.print(
            f"{about}: {options.clients} clients × {SAMPLES} samples, {options.canaries} canaries,"
            f" {options.clients} aggregators, kept {kept or 1:g}:"
            f" training {1000 * training:.0f} ms, audit {1000 * audit:.0f} ms of CPU,"
            f" median of {options.repeats}",
            soft_wrap=True,
        )
        figures[name] = round(audit / training, 4)
    print(json.dumps({"benchmark": "audit", "figures": figures}))


if __name__ == "__main__":
    main()
