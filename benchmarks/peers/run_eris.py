"""The workload run by this package, messages encoded and counted as on the network."""

from __future__ import annotations

import numpy as np
import torch
from benchmarks.peers.workload import Stopwatch, read_task

from eris.core.rules import server_rule
from eris.federation import Federation
from eris.methods.fedavg import FedAvg
from eris.training.torch import flatten
from eris.training.vectorised import TorchPopulation

SEED = 0
"""Of who is sampled and of batches: ``benchmarks.simulation`` draws the others' lists with it."""


def main() -> None:
    task = read_task()
    torch.set_num_threads(task.threads)
    workload = task.workload
    network = workload.network()
    parts = np.arange(workload.clients * workload.samples).reshape(workload.clients, -1)
    population = TorchPopulation(
        network,
        *workload.everything(),
        list(parts),
        threads=task.threads,
        learning_rate=workload.learning_rate,
        epochs=workload.epochs,
        batch_size=workload.batch,
        seed=SEED,
    )
    rule = server_rule("fedavg", learning_rate=workload.learning_rate)
    federation = Federation(
        population,
        flatten(network),
        FedAvg(),
        rule=rule,
        seed=SEED,
        sampled=workload.sampled or None,
    )
    watch = Stopwatch()
    watch.start()
    session = federation.start(workload.rounds)
    for _ in range(workload.rounds):
        session.step()
        watch.lap()
    watch.report("eris", task, [session.model])


if __name__ == "__main__":
    main()
