"""The workload run by this package, messages encoded and counted as on the network."""

from __future__ import annotations

import numpy as np
import torch
from benchmarks.peers.workload import BATCH, LEARNING_RATE, Stopwatch, read_task

from eris.core.rules import server_rule
from eris.federation import Federation
from eris.methods.fedavg import FedAvg
from eris.training.torch import flatten
from eris.training.vectorised import TorchPopulation


def main() -> None:
    task = read_task()
    torch.set_num_threads(task.threads)
    workload = task.workload
    network = workload.network()
    parts = np.arange(workload.clients * BATCH).reshape(workload.clients, BATCH)
    population = TorchPopulation(
        network,
        *workload.everything(),
        list(parts),
        threads=task.threads,
        learning_rate=LEARNING_RATE,
        steps=workload.steps,
    )
    rule = server_rule("fedavg", learning_rate=LEARNING_RATE)
    federation = Federation(population, flatten(network), FedAvg(), rule=rule)
    watch = Stopwatch()
    watch.start()
    session = federation.start(workload.rounds)
    for _ in range(workload.rounds):
        session.step()
        watch.lap()
    watch.report("eris", task, [session.model])


if __name__ == "__main__":
    main()
