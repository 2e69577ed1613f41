"""Flower's SecAgg+ for the benchmark: its legacy API on random arrays, no training.

Runs in Flower's own environment, as an app of its own; imports nothing of ours. Clients that are
told to drop out fail after the keys are shared and before anything masked has left them, so that
the server has to rebuild their masks.
"""

from __future__ import annotations

import inspect
import json
import time
from pathlib import Path
from typing import Any

import flwr  # type: ignore[import-not-found]
import numpy as np
from flwr.client import ClientApp, NumPyClient  # type: ignore[import-not-found]
from flwr.client.mod import secaggplus_mod  # type: ignore[import-not-found]
from flwr.common import (  # type: ignore[import-not-found]
    Context,
    FitIns,
    ndarrays_to_parameters,
    parameters_to_ndarrays,
)
from flwr.common.secure_aggregation.secaggplus_utils import (  # type: ignore[import-not-found]
    pseudo_rand_gen,
)
from flwr.server import (  # type: ignore[import-not-found]
    Grid,
    LegacyContext,
    ServerApp,
    ServerConfig,
)
from flwr.server.strategy import FedAvg  # type: ignore[import-not-found]
from flwr.server.workflow import (  # type: ignore[import-not-found]
    DefaultWorkflow,
    SecAggPlusWorkflow,
)

POLL_S = 0.2
SHARES, NEEDED = 5, 3
"""Of a client's keys: the fewest that survive any two dropouts among eight clients."""
WEIGHT = 1000
"""Samples of a client: Flower's largest weight. A smaller one would coarsen its grid."""


def drawn(round: int, node: int, parameters: int) -> Any:
    """A client's values of a round in ±1, which the server can draw again to check the mean."""
    return 2 * np.random.default_rng([round, node]).random(parameters, np.float32) - 1


class Dropout(Exception):
    """A client that goes away in the middle of a round, as it was told to."""


class Random(NumPyClient):  # type: ignore[misc]
    """Returns random arrays, and how long it took to make them."""

    def __init__(self, node: int) -> None:
        self.node = node

    def fit(self, parameters: Any, config: dict[str, Any]) -> Any:
        """What is masked and sent."""
        if config["drops"]:
            raise Dropout
        started = time.perf_counter()
        values = drawn(config["round"], self.node, parameters[0].size)
        return [values], WEIGHT, {"training_s": time.perf_counter() - started}


def make_client(context: Context) -> Any:
    """The client of a node."""
    return Random(context.node_id).to_client()


class Noted(FedAvg):  # type: ignore[misc]
    """FedAvg that says who drops out, and keeps what a round gave."""

    def __init__(self, clients: int, parameters: int, dropouts: list[int]) -> None:
        initial = ndarrays_to_parameters([drawn(0, 0, parameters)])
        super().__init__(
            fraction_fit=1.0,
            fraction_evaluate=0.0,
            min_fit_clients=clients,
            min_available_clients=clients,
            initial_parameters=initial,
        )
        self.dropouts = dropouts
        self.mean: Any = None
        self.nodes: list[int] = []
        self.training_s = 0.0

    def configure_fit(self, server_round: int, parameters: Any, client_manager: Any) -> Any:
        """The same parameters for all, and for some of them that they drop out."""
        chosen = super().configure_fit(server_round, parameters, client_manager)
        dropping = {proxy.node_id for proxy, _ in chosen[: self.dropouts[server_round - 1]]}
        return [
            (proxy, FitIns(parameters, {"round": server_round, "drops": proxy.node_id in dropping}))
            for proxy, _ in chosen
        ]

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
        """The mean, as float32: Flower would publish 64 bits a value from the second round on."""
        found, metrics = super().aggregate_fit(server_round, results, failures)
        self.mean = parameters_to_ndarrays(found)[0].astype(np.float32)
        self.nodes = [proxy.node_id for proxy, _ in results]
        self.training_s = max(result.metrics["training_s"] for _, result in results)
        return ndarrays_to_parameters([self.mean]), metrics

    def worst_error(self, server_round: int) -> float:
        """How far the mean is off at most."""
        expected = sum(
            drawn(server_round, node, self.mean.size).astype(np.float64) / len(self.nodes)
            for node in self.nodes
        )
        return float(np.abs(self.mean - expected).max())


class TimedRounds:
    """SecAgg+ as the fit workflow; notes every round."""

    def __init__(self, strategy: Noted) -> None:
        self.strategy = strategy
        self.secagg = SecAggPlusWorkflow(num_shares=SHARES, reconstruction_threshold=NEEDED)
        self.rounds: list[dict[str, float]] = []

    def __call__(self, grid: Grid, context: LegacyContext) -> None:
        """One round, from sending the keys' settings to having the mean."""
        number, self.strategy.mean = len(self.rounds) + 1, None
        began = time.time()
        self.secagg(grid, context)
        ended = time.time()
        if self.strategy.mean is None:
            raise RuntimeError(f"round {number} was halted")
        self.rounds.append({
            "began": began,
            "ended": ended,
            "seconds": ended - began - self.strategy.training_s,
            "included": len(self.strategy.nodes),
            "worst_error": self.strategy.worst_error(number),
        })  # fmt: skip


def terms(secagg: SecAggPlusWorkflow) -> dict[str, Any]:
    """What was measured, as the installed package has it."""
    generator = "NumPy's Mersenne Twister, its seed folded to 32 bits"
    if "RandomState" not in inspect.getsource(pseudo_rand_gen):
        generator = "not NumPy's Mersenne Twister; see pseudo_rand_gen"
    return {
        "version": flwr.__version__,
        "api": "legacy: flwr.server.workflow.SecAggPlusWorkflow, flwr.client.mod.secaggplus_mod",
        "word_bytes": pseudo_rand_gen(bytes(32), secagg.modulus_range, [(1,)])[0].itemsize,
        "modulus": secagg.modulus_range,
        "clipping_range": secagg.clipping_range,
        "levels": secagg.quantization_range,
        "max_weight": secagg.max_weight,
        "shares": SHARES,
        "needed": NEEDED,
        "mask_generator": generator,
    }


client = ClientApp(client_fn=make_client, mods=[secaggplus_mod])
server = ServerApp()


@server.main()  # type: ignore[untyped-decorator]
def main(grid: Grid, context: Context) -> None:
    """Wait for all clients, run the rounds, and write what was seen to a file."""
    wanted = context.run_config
    while len(list(grid.get_node_ids())) < wanted["clients"]:
        time.sleep(POLL_S)
    dropouts = json.loads(wanted["dropouts"])
    strategy = Noted(wanted["clients"], wanted["parameters"], dropouts)
    timed = TimedRounds(strategy)
    legacy = LegacyContext(
        context=context, config=ServerConfig(num_rounds=len(dropouts)), strategy=strategy
    )
    DefaultWorkflow(fit_workflow=timed)(grid, legacy)
    report = {"terms": terms(timed.secagg), "rounds": timed.rounds}
    unfinished = Path(wanted["report"] + ".part")
    unfinished.write_text(json.dumps(report), encoding="utf-8")
    unfinished.rename(wanted["report"])
