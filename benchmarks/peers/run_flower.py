"""The workload run by Flower's simulation: ``python -m benchmarks.peers.run_flower TASK``.

Clients are tasks of one core each on a Ray instance with as many cores as the task says.
"""

from __future__ import annotations

import os

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_DEDUP_LOGS"] = "0"

from typing import Any

import torch
from benchmarks.peers.workload import BATCH, LEARNING_RATE, Stopwatch, Task, Workload, read_task
from flwr.app import (  # type: ignore[import-not-found]
    ArrayRecord,
    Context,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp  # type: ignore[import-not-found]
from flwr.serverapp import Grid, ServerApp  # type: ignore[import-not-found]
from flwr.serverapp.strategy import FedAvg  # type: ignore[import-not-found]
from flwr.simulation import run_simulation  # type: ignore[import-not-found]
from torch.nn import functional


class Timed(FedAvg):  # type: ignore[misc]
    """FedAvg that stops the time from one round's beginning to the next one's."""

    def __init__(self, watch: Stopwatch, clients: int) -> None:
        super().__init__(
            fraction_train=1.0,
            fraction_evaluate=0.0,
            min_train_nodes=clients,
            min_available_nodes=clients,
        )
        self.watch = watch

    def configure_train(self, server_round: int, *rest: Any) -> Any:
        if server_round == 1:
            self.watch.start()
        else:
            self.watch.lap()
        return super().configure_train(server_round, *rest)


def client_app(workload: Workload) -> Any:
    """What a client does in a round."""
    app = ClientApp()

    @app.train()  # type: ignore[untyped-decorator]
    def train(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        network = workload.network()
        network.load_state_dict(message.content["arrays"].to_torch_state_dict())
        arrays = workload.client_data(int(context.node_config["partition-id"]))
        inputs, targets = (torch.from_numpy(array) for array in arrays)
        optimiser = torch.optim.SGD(network.parameters(), lr=LEARNING_RATE)
        for _ in range(workload.steps):
            optimiser.zero_grad()
            loss = functional.cross_entropy(network(inputs), targets)
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        metrics = MetricRecord({"num-examples": BATCH, "loss": float(loss)})
        record = RecordDict({"arrays": ArrayRecord(network.state_dict()), "metrics": metrics})
        return Message(content=record, reply_to=message)

    return app


def server_app(task: Task) -> Any:
    """The server: all rounds, and the report at their end."""
    app = ServerApp()

    @app.main()  # type: ignore[untyped-decorator]
    def main(grid: Grid, context: Context) -> None:
        watch = Stopwatch()
        strategy = Timed(watch, task.workload.clients)
        initial = ArrayRecord(task.workload.network().state_dict())
        rounds = task.workload.rounds
        done = strategy.start(grid=grid, initial_arrays=initial, num_rounds=rounds)
        watch.lap()
        weights = done.arrays.to_torch_state_dict().values()
        watch.report("flower", task, [weight.numpy() for weight in weights])

    return app


def main() -> None:
    task = read_task()
    run_simulation(
        server_app=server_app(task),
        client_app=client_app(task.workload),
        num_supernodes=task.workload.clients,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0},
            "init_args": {"num_cpus": task.threads, "include_dashboard": False},
        },
    )


if __name__ == "__main__":
    main()
