"""Flower's server and clients for the benchmark: FedAvg on random arrays, no training.

Runs in Flower's own environment, as an app of its own; imports nothing of ours. Clients return
arrays drawn anew, for Flower stores objects by their hash and would not move an equal one twice.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import (  # type: ignore[import-not-found]
    Array,
    ArrayRecord,
    Context,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp  # type: ignore[import-not-found]
from flwr.serverapp import Grid, ServerApp  # type: ignore[import-not-found]
from flwr.serverapp.strategy import FedAvg  # type: ignore[import-not-found]

POLL_S = 0.2

client = ClientApp()
server = ServerApp()


def random_arrays(parameters: int) -> Any:
    """One array of new random values."""
    values = np.random.default_rng().random(parameters, np.float32)
    return ArrayRecord({"model": Array(values)})


@client.train()  # type: ignore[untyped-decorator]
def train(message: Message, context: Context) -> Message:
    """Return random arrays, and how long it took to make them."""
    given = message.content["arrays"]["model"].numpy()
    started = time.perf_counter()
    arrays = random_arrays(given.size)
    metrics = MetricRecord({"num-examples": 1, "training_s": time.perf_counter() - started})
    content = RecordDict({"arrays": arrays, "metrics": metrics})
    return Message(content=content, reply_to=message)


class Timed(FedAvg):  # type: ignore[misc]
    """FedAvg that times a round, from sending the model to having the mean, less the training."""

    def __init__(self, clients: int) -> None:
        super().__init__(
            fraction_train=1.0,
            fraction_evaluate=0.0,
            min_train_nodes=clients,
            min_available_nodes=clients,
        )
        self.clients = clients
        self.rounds: list[float] = []
        self._started = 0.0

    def configure_train(self, server_round: int, *rest: Any) -> Any:
        self._started = time.perf_counter()
        return super().configure_train(server_round, *rest)

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        replies = list(replies)
        failed = [reply for reply in replies if reply.has_error()]
        if failed or len(replies) != self.clients:
            raise RuntimeError(f"round {server_round}: {len(replies)} replies, {failed}")
        training = max(reply.content["metrics"]["training_s"] for reply in replies)
        found = super().aggregate_train(server_round, replies)
        self.rounds.append(time.perf_counter() - self._started - training)
        return found


@server.main()  # type: ignore[untyped-decorator]
def main(grid: Grid, context: Context) -> None:
    """Wait for all clients, run the rounds, and write their times to a file."""
    wanted = context.run_config
    while len(list(grid.get_node_ids())) < wanted["clients"]:
        time.sleep(POLL_S)
    strategy = Timed(wanted["clients"])
    arrays = random_arrays(wanted["parameters"])
    strategy.start(grid=grid, initial_arrays=arrays, num_rounds=wanted["rounds"], timeout=3600)
    unfinished = Path(wanted["report"] + ".part")
    unfinished.write_text(json.dumps(strategy.rounds), encoding="utf-8")
    unfinished.rename(wanted["report"])
