"""The floor: one batch of all clients' images forward and backward, and nothing else.

No client has a gradient of its own here and nothing is sent; no simulation can be faster by much.
"""

from __future__ import annotations

import torch
from benchmarks.peers.workload import Stopwatch, read_task
from torch.nn import functional


def main() -> None:
    task = read_task()
    torch.set_num_threads(task.threads)
    network = task.workload.network()
    inputs, targets = task.workload.everything()
    optimiser = torch.optim.SGD(network.parameters(), lr=task.workload.learning_rate)
    watch = Stopwatch()
    watch.start()
    for _ in range(task.workload.rounds):
        for _ in range(task.workload.epochs):
            optimiser.zero_grad()
            functional.cross_entropy(network(inputs), targets).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        watch.lap()
    watch.report("floor", task, [p.detach().numpy() for p in network.parameters()])


if __name__ == "__main__":
    main()
