"""The workload run by pfl's simulated backend: ``python -m benchmarks.peers.run_pfl TASK``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from benchmarks.peers.workload import Stopwatch, Workload, read_task
from pfl.aggregate.simulate import SimulatedBackend  # type: ignore[import-not-found]
from pfl.aggregate.weighting import WeightByDatapoints  # type: ignore[import-not-found]
from pfl.algorithm.base import NNAlgorithmParams  # type: ignore[import-not-found]
from pfl.algorithm.federated_averaging import (  # type: ignore[import-not-found]
    FederatedAveraging,
)
from pfl.callback.base import TrainingProcessCallback  # type: ignore[import-not-found]
from pfl.data.dataset import Dataset  # type: ignore[import-not-found]
from pfl.data.federated_dataset import FederatedDataset  # type: ignore[import-not-found]
from pfl.hyperparam import (  # type: ignore[import-not-found]
    NNEvalHyperParams,
    NNTrainHyperParams,
)
from pfl.metrics import Metrics, Weighted  # type: ignore[import-not-found]
from pfl.model.pytorch import PyTorchModel  # type: ignore[import-not-found]
from torch import nn
from torch.nn import functional


class Network(nn.Module):
    """A network with the loss and the metrics that pfl asks a model for."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def loss(self, x: torch.Tensor, y: torch.Tensor, **_: Any) -> torch.Tensor:
        return functional.cross_entropy(self.network(x), y)

    @torch.no_grad()
    def metrics(self, x: torch.Tensor, y: torch.Tensor, **_: Any) -> dict[str, Any]:
        loss = functional.cross_entropy(self.network(x), y, reduction="sum")
        return {"loss": Weighted(loss.item(), len(y))}


class Laps(TrainingProcessCallback):  # type: ignore[misc]
    """Stops the time of each central iteration."""

    def __init__(self, watch: Stopwatch) -> None:
        self.watch = watch

    def on_train_begin(self, *, model: Any) -> Any:
        self.watch.start()
        return Metrics()

    def after_central_iteration(self, *_: Any, **__: Any) -> tuple[bool, Any]:
        self.watch.lap()
        return False, Metrics()


def federated(workload: Workload) -> Any:
    """The clients' data as pfl wants them."""
    data = {
        client: [torch.from_numpy(array) for array in workload.client_data(client)]
        for client in range(workload.clients)
    }

    def dataset(turn: tuple[int, int, int]) -> Any:
        round, place, client = turn
        raw = data[client]
        if workload.sampled:
            order = torch.from_numpy(workload.order(round, place))
            raw = [tensor[order] for tensor in raw]
        return Dataset(raw_data=raw, user_id=str(client))

    return FederatedDataset(dataset, turns(workload).__next__)


def turns(workload: Workload) -> Iterator[tuple[int, int, int]]:
    """Whose turn it is: round, place in the round, and client."""
    for round in range(1, workload.rounds + 1):
        for place, client in enumerate(workload.taking_part(round)):
            yield round, place, client


def main() -> None:
    task = read_task()
    workload = task.workload
    torch.set_num_threads(task.threads)
    network = Network(workload.network())
    model = PyTorchModel(
        model=network,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(network.parameters(), 1.0),
    )
    data = federated(workload)
    backend = SimulatedBackend(
        training_data=data, val_data=data, postprocessors=[WeightByDatapoints()]
    )
    watch = Stopwatch()
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=workload.rounds,
            evaluation_frequency=10**9,
            train_cohort_size=workload.updates,
            val_cohort_size=0,
        ),
        backend=backend,
        model=model,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=workload.epochs,
            local_learning_rate=workload.learning_rate,
            local_batch_size=workload.batch,
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=workload.batch),
        callbacks=[Laps(watch)],
    )
    watch.report("pfl", task, [p.detach().numpy() for p in network.parameters()])


if __name__ == "__main__":
    main()
