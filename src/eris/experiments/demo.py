"""The first vertical: FedAvg, ERIS and ERIS with shifted compression on the same MNIST clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from eris.core.errors import DataUnavailable
from eris.core.rules import server_rule
from eris.core.vectors import Vector
from eris.data import fetch, iid, load_mnist
from eris.federation import Federation
from eris.methods.eris import ERIS
from eris.methods.fedavg import FedAvg
from eris.methods.method import Method
from eris.models.lenet import lenet5
from eris.session import Fit
from eris.theory.leakage import gaussian_capacity_from_snr, leakage_bound, published_exposure
from eris.training.torch import (
    TorchTrainer,
    evaluate,
    flatten,
    normalise,
    single_threaded,
    torch_clients,
)

FEDAVG, ERIS_DENSE, ERIS_DSC = "FedAvg", "ERIS", "ERIS + DSC"


@dataclass(frozen=True)
class Demo:
    """Settings of the demonstration."""

    clients: int = 10
    samples: int = 500
    rounds: int = 20
    batch_size: int = 25
    learning_rate: float = 0.05
    kept_fraction: float = 0.1
    seed: int = 0
    picture: Path = Path("runs/demo.png")

    def methods(self) -> dict[str, Method]:
        """What is compared."""
        return {
            FEDAVG: FedAvg(),
            ERIS_DENSE: ERIS(),
            ERIS_DSC: ERIS(kept_fraction=self.kept_fraction),
        }

    def run(self, console: Console | None = None) -> dict[str, Fit]:
        """Train with every method on the same clients, report, and draw one picture."""
        console = console or Console()
        # Before anything else: a place that cannot be written to is an error at once.
        self.picture.parent.mkdir(parents=True, exist_ok=True)
        self.picture.touch()
        try:
            data = load_mnist()
        except DataUnavailable:
            fetch("mnist", progress=console.print)
            data = load_mnist()
        model = lenet5(self.seed)
        start = flatten(model)
        inputs, targets = normalise(data.train_images), _labels(data.train_labels)
        test, wanted = normalise(data.test_images), _labels(data.test_labels)
        parts = iid(len(inputs), self.clients, self.samples, self.seed)
        console.print(
            f"{data.name} ({data.source})\nLeNet-5, {len(start):,} parameters; {self.clients} "
            f"clients × {self.samples} samples, 1 local epoch of batch {self.batch_size}, "
            f"{self.rounds} rounds, seed {self.seed}; tested on {len(test):,} images\n"
        )

        def clients() -> list[TorchTrainer]:
            return torch_clients(
                model,
                inputs,
                targets,
                parts,
                learning_rate=self.learning_rate,
                epochs=1,
                batch_size=self.batch_size,
                seed=self.seed,
            )

        def score(parameters: Vector) -> Mapping[str, float]:
            found = evaluate(model, parameters, test, wanted, batch_size=256)
            return {"accuracy": found["accuracy"]}

        rule = server_rule("fedavg", learning_rate=self.learning_rate)
        # All of them before any trains: a bad setting is an error at once.
        federations = {
            name: Federation(clients(), start, method, rule=rule, seed=self.seed)
            for name, method in self.methods().items()
        }
        with single_threaded():
            fits = {
                name: federation.fit(self.rounds, evaluate=score, evaluate_every=4, progress=name)
                for name, federation in federations.items()
            }
        self.report(fits, console)
        draw(fits, self.picture)
        console.print(f"\nPicture: {self.picture}")
        return fits

    def report(self, fits: Mapping[str, Fit], console: Console) -> None:
        """Accuracy, bytes, equality and what is given away."""
        table = Table("", "accuracy", "update, up", "results, up", "down", "busiest")
        for name, fit in fits.items():
            up, published, down = client_traffic(fit)
            table.add_row(
                name,
                f"{fit.metrics['accuracy']:.2%}",
                f"{up / 1e3:,.1f} kB",
                f"{published / 1e3:,.1f} kB",
                f"{down / 1e3:,.1f} kB",
                f"{fit.busiest() / 1e3:,.1f} kB",
            )
        console.print(table)
        console.print(
            "Encoded bytes a round. Of a client: its update, the results it publishes as owner of "
            "a shard, all it is sent. Busiest: the member that sends and is sent most (FedAvg: the "
            "server)."
        )
        equal = same_bits(fits[FEDAVG].model, fits[ERIS_DENSE].model)
        console.print(
            f"\nERIS and central FedAvg end with the same model, bit for bit: "
            f"[bold]{'yes' if equal else 'NO'}[/bold]"
        )
        n = len(fits[ERIS_DENSE].model)
        capacity = gaussian_capacity_from_snr(1.0)
        console.print("\nWhat one aggregator sees of a client's update, and the bound on what it "
                      "learns (nats, signal-to-noise ratio 1):")  # fmt: skip
        for name, share, kept in (
            (FEDAVG, 1.0, 1.0),
            (ERIS_DENSE, 1 / self.clients, 1.0),
            (ERIS_DSC, 1 / self.clients, self.kept_fraction),
        ):
            bound = leakage_bound(
                coordinates=n, rounds=self.rounds, kept_fraction=kept, share=share,
                capacity=capacity,
            )  # fmt: skip
            console.print(f"  {name:10} {bound.seen_share:8.2%} a round   {bound.nats:12,.0f}")
        exposed = published_exposure(
            coordinates=n, clients=self.clients, kept_fraction=self.kept_fraction,
            masks="independent",
        )  # fmt: skip
        console.print(
            f"Shared masks publish means over all clients only. With a mask per client, as in the "
            f"paper, {exposed.share_of_kept:.0%} of what a client sends would be published with "
            f"nobody else's value in it."
        )


def client_traffic(fit: Fit) -> tuple[float, float, float]:
    """(contributions, results, download) in bytes per client and round, as encoded."""
    return fit.sent("Contribution"), fit.sent("Result"), fit.received()


def same_bits(one: Vector, other: Vector) -> bool:
    """Whether two models are the same, bit for bit.

    >>> same_bits(np.float32([0.0]), np.float32([-0.0]))
    False
    """
    return bool(np.array_equal(one.view(np.uint32), other.view(np.uint32)))


def draw(fits: Mapping[str, Fit], path: Path) -> None:
    """Accuracy over rounds, and bytes per client and round, in one picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for name, fit in fits.items():
        curve = [(r.round, r.metrics["accuracy"]) for r in fit.history if r.metrics]
        # The dense curves lie on each other: that is the point, so let both be seen.
        style = "--" if name == ERIS_DENSE else "-"
        left.plot(*zip(*curve, strict=True), style, label=name, linewidth=2)
    left.set(xlabel="round", ylabel="test accuracy", ylim=(0, 1), title="Accuracy")
    left.xaxis.get_major_locator().set_params(integer=True)
    left.grid(alpha=0.3)
    left.legend()
    names = list(fits)
    bars = {
        "a client": [sum(client_traffic(fit)) / 1e3 for fit in fits.values()],
        "the busiest member": [fit.busiest() / 1e3 for fit in fits.values()],
    }
    for offset, (label, heights) in zip((-0.2, 0.2), bars.items(), strict=True):
        shown = right.bar(np.arange(len(names)) + offset, heights, 0.4, label=label)
        right.bar_label(shown, [f"{height:,.0f}" for height in heights])
    right.set(ylabel="kB a round, up and down", title="Encoded bytes", yscale="log")
    right.set_xticks(np.arange(len(names)), names)
    right.margins(y=0.2)
    right.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _labels(labels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> torch.Tensor:
    return torch.from_numpy(labels.astype(np.int64))
