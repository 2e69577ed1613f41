"""The workload run by Flower's simulation: ``python -m benchmarks.peers.run_flower TASK``.

Clients are tasks of one core each on a Ray instance with as many cores as the task says.
"""

from __future__ import annotations

import os

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_DEDUP_LOGS"] = "0"

from collections.abc import Iterable
from typing import Any

import torch
from benchmarks.peers.workload import Stopwatch, Task, Workload, read_task
from flwr.app import (  # type: ignore[import-not-found]
    ArrayRecord,
    ConfigRecord,
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
    """FedAvg that stops the time from one round's beginning to the next one's.

    Which nodes it draws does not matter: each is told which client it is in the round.
    """

    def __init__(self, watch: Stopwatch, workload: Workload) -> None:
        super().__init__(
            fraction_train=workload.updates / workload.clients,
            fraction_evaluate=0.0,
            min_train_nodes=workload.updates,
            min_available_nodes=workload.clients,
        )
        self.watch, self.workload = watch, workload

    def configure_train(
        self, server_round: int, arrays: Any, config: Any, grid: Any
    ) -> Iterable[Message]:
        if server_round == 1:
            self.watch.start()
        else:
            self.watch.lap()
        drawn = super().configure_train(server_round, arrays, config, grid)
        clients = self.workload.taking_part(server_round)
        for place, (client, message) in enumerate(zip(clients, drawn, strict=True)):
            told = ConfigRecord({"client": client, "place": place, "round": server_round})
            yield Message(
                content=RecordDict({"arrays": arrays, "config": told}),
                message_type=message.metadata.message_type,
                dst_node_id=message.metadata.dst_node_id,
            )


def client_app(workload: Workload) -> Any:
    """What a client does in a round."""
    app = ClientApp()

    @app.train()  # type: ignore[untyped-decorator]
    def train(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        network = workload.network()
        network.load_state_dict(message.content["arrays"].to_torch_state_dict())
        told = message.content["config"]
        arrays = workload.client_data(int(told["client"]))
        inputs, targets = (torch.from_numpy(array) for array in arrays)
        order = torch.from_numpy(workload.order(int(told["round"]), int(told["place"])))
        optimiser = torch.optim.SGD(network.parameters(), lr=workload.learning_rate)
        for _ in range(workload.epochs):
            for batch in torch.split(order, workload.batch):
                optimiser.zero_grad()
                loss = functional.cross_entropy(network(inputs[batch]), targets[batch])
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
        metrics = MetricRecord({"num-examples": workload.samples, "loss": float(loss)})
        record = RecordDict({"arrays": ArrayRecord(network.state_dict()), "metrics": metrics})
        return Message(content=record, reply_to=message)

    return app


def server_app(task: Task) -> Any:
    """The server: all rounds, and the report at their end."""
    app = ServerApp()

    @app.main()  # type: ignore[untyped-decorator]
    def main(grid: Grid, context: Context) -> None:
        watch = Stopwatch()
        strategy = Timed(watch, task.workload)
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
