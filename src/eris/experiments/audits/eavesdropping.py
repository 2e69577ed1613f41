"""The experiments of the FLIP paper: what a tap on the first client's uplink makes of its model.

Colour LeNet-5 on CIFAR-10, 8 clients, 30 rounds, four settings; the first client is in the last
five rounds, over which all accuracies are means. The tap's estimates are made from the recorded
messages of one run by increments (FLIP), once for every start and interception; what it would have
if models travelled (FLOP) from the same. A second run adds NbAFL's noise to models (Wei et al.,
2020: weights clipped to C, σ = cL·2C/(mε) with c = √(2·ln(1.25/δ)), L exposures, m samples). Then
images are made from increments by DLG, and the tap's model is asked about them.

The paper says gradient descent with a step of 1e-3. Clients step by Adam here unless ``--optimiser
sgd`` is asked for; docs/eavesdropper.md says why.

``python -m eris.experiments.audits.eavesdropping --seed 0 --quick`` prints tables; every setting is
kept as JSON in ``runs/audits``, and what is there is not run again.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch.nn import functional

from eris.audit.eavesdropper import CARRY
from eris.audit.watch import Watch
from eris.core.combine import FixedPoint
from eris.core.rules import server_rule
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.experiments.audits.report import write
from eris.experiments.audits.tables import FOLDER
from eris.experiments.figures import parts, percent, say, widened
from eris.experiments.runs.assembly import Assembly, assemble
from eris.experiments.runs.checkpoint import RunDamaged
from eris.experiments.runs.printed import printed
from eris.experiments.runs.progress import bar
from eris.experiments.runs.recipe import Recipe
from eris.experiments.runs.store import runs_root
from eris.federation import Federation
from eris.methods.fedavg import FedAvg
from eris.protocol.observers import Observer
from eris.theory.eavesdropper import (
    Course,
    Estimator,
    best_sampling,
    errors,
    perfect_interception,
)
from eris.training.evaluation import evaluate
from eris.training.flat import FlatParameters
from eris.training.population import Models, Population
from eris.training.torch import single_threaded
from eris.training.trainer import LocalUpdate, PerSampleNoise

NAME = "eavesdropper"
FIGURES = "FLIP section IV"
FULL, QUICK = 6250, 100
"""Samples a client: all of CIFAR-10, or what a laptop has done in a minute or two."""
LAST = 5
"""Rounds at the end that the tapped client is in."""
TAPPED = 0


@dataclass(frozen=True)
class Setting:
    """One of the paper's four."""

    label: str
    sampled: int = 5
    epochs: int = 3
    batch_size: int = 128


SETTINGS = (
    Setting("(a) n 5, K 3, B 128"),
    Setting("(b) n 8, K 3, B 128", sampled=8),
    Setting("(c) n 5, K 10, B 128", epochs=10),
    Setting("(d) n 5, K 3, B 8", batch_size=8),
)


@dataclass(frozen=True)
class TapExperiment:
    """The federation, the tap, and NbAFL's budget."""

    samples: int = FULL
    clients: int = 8
    rounds: int = 30
    learning_rate: float = 1e-3
    optimiser: str = "adam"
    interception: float = 0.5
    epsilon: float = 100.0
    delta: float = 0.01
    clip: float = 70.0
    exposures: int = 10
    test_samples: int = 10_000
    images: int = 32
    """Made by DLG, in 100 iterations."""
    seed: int = 0

    @property
    def sigma(self) -> float:
        """The deviation of NbAFL's noise on every weight that is sent."""
        c = math.sqrt(2 * math.log(1.25 / self.delta))
        return c * self.exposures * 2 * self.clip / (self.samples * self.epsilon)

    def recipe(self, setting: Setting) -> Recipe:
        """What clients train, on what."""
        return Recipe().changed(
            {
                "data.name": "cifar10",
                "data.clients": self.clients,
                "data.samples": self.samples,
                "data.test_samples": self.test_samples,
                "model.name": "lenet5-colour",
                "method.name": "fedavg",
                "training.rounds": self.rounds,
                "training.epochs": setting.epochs,
                "training.batch_size": setting.batch_size,
                "training.learning_rate": self.learning_rate,
                "training.optimiser": self.optimiser,
                "training.keep_momentum": False,
                "seed": self.seed,
            }
        )


# -- training ---------------------------------------------------------------------------------


class NoisyModels:
    """Clients that clip the model they have trained, and add noise to it (NbAFL)."""

    def __init__(self, plain: Population, settings: TapExperiment) -> None:
        self._plain, self._settings = plain, settings

    def __len__(self) -> int:
        return len(self._plain)

    def updates(
        self,
        clients: Sequence[int],
        models: Models,
        round: int,
        noise: PerSampleNoise | None = None,
    ) -> Iterator[LocalUpdate]:
        """Updates that lead to the noisy models."""
        assert isinstance(models, np.ndarray)
        rate, clip = self._settings.learning_rate, self._settings.clip
        plain = self._plain.updates(clients, models, round, noise)
        for client, update in zip(clients, plain, strict=True):
            after = models - rate * update.vector.astype(np.float64)
            after /= max(1.0, float(np.linalg.norm(after)) / clip)
            drawn = Stream(self._settings.seed, "nbafl", round, client).normal(0, len(after))
            after += self._settings.sigma * drawn
            yield replace(update, vector=((models - after) / rate).astype(np.float32))

    def state(self) -> Mapping[str, Vector]:
        """What the clients keep."""
        return self._plain.state()

    def restore(self, state: Mapping[str, Vector]) -> None:
        """Continue from a ``state()``."""
        self._plain.restore(state)


@dataclass(frozen=True, eq=False)
class Taped:
    """What the messages of a run say of the tapped client: x^s_t, ξ_t and δ_t."""

    server: Vector
    increments: Vector
    sampled: tuple[bool, ...]
    initial: Vector


def taped(
    settings: TapExperiment,
    setting: Setting,
    assembly: Assembly,
    noisy: bool,
    advance: Callable[[], None],
) -> Taped:
    """Train, and read the client's course off the messages."""
    plain = assembly.federation.population
    federation = Federation(
        NoisyModels(plain, settings) if noisy else plain,
        assembly.initial,
        FedAvg(),
        rule=server_rule("fedavg", learning_rate=settings.learning_rate),
        samples=[len(part) for part in assembly.samples.parts],
        seed=settings.seed,
        sampled=setting.sampled,
        precision=FixedPoint(2.0**16),  # of moves divided by a small step, noise among them
    )
    federation.force(TAPPED, range(settings.rounds - LAST + 1, settings.rounds + 1))
    server, increments, sampled = [], [], []
    with single_threaded():
        session = federation.start(settings.rounds, record=True)
        assert session.transcript is not None
        session.note_views(*range(1, settings.rounds + 1))
        everyone = Observer("coalition", frozenset(range(settings.clients + 1)))
        watch = Watch(session.transcript, assembly.initial, [everyone])
        for round, records in session.rounds_seen(settings.rounds):
            (sight,) = watch.follow(round, records)
            there = sight.pieces(TAPPED) is not None
            trained = sight.completed(0, TAPPED) if there else sight.model
            server.append(sight.model)
            increments.append(trained - sight.model)
            sampled.append(there)
            advance()
    return Taped(np.array(server), np.array(increments), tuple(sampled), assembly.initial)


# -- what the tap makes of it -----------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Estimates:
    """The tap's models after the last rounds, and the client's."""

    client: list[Vector]
    by_name: dict[str, list[Vector]]


def estimates(settings: TapExperiment, course: Taped) -> Estimates:
    """Every tap beside the client: two starts, the paper's γ and 1, and where models travel."""
    zero = np.zeros_like(course.initial)
    taps = {
        "zero": (zero, settings.interception, False),
        "first": (course.initial, settings.interception, False),
        "zero, all heard": (zero, 1.0, False),
        "first, all heard": (course.initial, 1.0, False),
        "models": (zero, settings.interception, True),
    }
    made = {name: Estimator(start, CARRY) for name, (start, _, _) in taps.items()}
    client: list[Vector] = []
    found: dict[str, list[Vector]] = {name: [] for name in taps}
    for t, there in enumerate(course.sampled):
        model = course.server[t] + course.increments[t]
        draw = float(Stream(settings.seed, "eavesdrop", t + 1, TAPPED).uniform(0, 1)[0])
        for name, (_, gamma, models) in taps.items():
            if there and draw < gamma:
                made[name].hear(
                    model if models else course.increments[t],
                    sends="models" if models else "increments",
                )
            elif there:
                made[name].miss()
        if t >= len(course.sampled) - LAST:
            client.append(model)
            for name, one in made.items():
                found[name].append(one.model.astype(np.float32))
    return Estimates(client, found)


def protections(settings: TapExperiment, setting: Setting, course: Taped) -> dict[str, Any]:
    """‖x^c − x^a‖² of a tap that starts at zero and hears all, beside equation (18)."""
    start = course.initial.astype(np.float64)
    server, increments = (one.astype(np.float64) for one in (course.server, course.increments))
    given = Course(server, increments, start, 0 * start)
    heard = [True] * len(course.sampled)
    signals = given.signals(course.sampled)
    last = course.server[-1] + course.increments[-1]
    return {
        "measured": float(errors(given, course.sampled, heard, CARRY)[-1]),
        "of (18)": perfect_interception(signals, setting.sampled / settings.clients),
        "best p": best_sampling(signals),
        "norm": float(last @ last),
    }


def inverted(
    assembly: Assembly, model: Vector, gradient: Vector, settings: TapExperiment
) -> tuple[torch.Tensor, torch.Tensor]:
    """Images and labels by DLG (Zhu, Liu and Han, 2019): 100 iterations of L-BFGS from noise."""
    flat = FlatParameters(assembly.module)
    flat.write(torch.from_numpy(model))
    wanted, size = torch.from_numpy(gradient), (settings.images, 3, 32, 32)
    draw = Stream(settings.seed, "dlg").normal(0, settings.images * (3 * 32 * 32 + 10))
    noise = torch.from_numpy(draw.astype(np.float32))
    images = noise[: math.prod(size)].reshape(size).clone().requires_grad_()
    labels = noise[math.prod(size) :].reshape(-1, 10).clone().requires_grad_()
    optimiser = torch.optim.LBFGS([images, labels], max_iter=100, line_search_fn="strong_wolfe")

    def distance() -> torch.Tensor:
        optimiser.zero_grad()
        loss = functional.cross_entropy(assembly.module(images), labels.softmax(dim=1))
        found = torch.autograd.grad(loss, flat.parameters, create_graph=True)
        gap = (torch.cat([one.reshape(-1) for one in found]) - wanted).square().sum()
        gap.backward(inputs=[images, labels])  # type: ignore[no-untyped-call]
        return gap.detach()

    optimiser.step(distance)  # type: ignore[no-untyped-call]
    return images.detach(), labels.detach().argmax(dim=1)


# -- rows -------------------------------------------------------------------------------------


def row(settings: TapExperiment, setting: Setting, advance: Callable[[], None]) -> dict[str, Any]:
    """All figures of one setting."""
    assembly = assemble(settings.recipe(setting))
    data, module = assembly.samples, assembly.module
    inputs, targets = torch.from_numpy(data.test_inputs), torch.from_numpy(data.test_targets)

    def accuracy(models: Sequence[Vector]) -> float:
        each = [evaluate(module, one, inputs, targets)["accuracy"] for one in models]
        return float(np.mean(each))

    plain = taped(settings, setting, assembly, False, advance)
    noisy = taped(settings, setting, assembly, True, advance)
    with single_threaded():
        found = estimates(settings, plain)
        steps = setting.epochs * math.ceil(settings.samples / setting.batch_size)
        scale = np.float32(-1 / (settings.learning_rate * steps))
        # In FLIP the tap has the last increment and its estimate; in DP-FL two models.
        guess = found.by_name["first"][-1]
        theirs = inverted(assembly, guess, scale * plain.increments[-1], settings)
        sent = noisy.server[-2:] + noisy.increments[-2:]
        dp = inverted(assembly, sent[0], scale * (sent[1] - sent[0]), settings)
        return {
            "setting": setting.label,
            "sampled rounds": sum(plain.sampled),
            "client": accuracy(found.client),
            "taps": {name: accuracy(models) for name, models in found.by_name.items()},
            "protection": protections(settings, setting, plain),
            "client, NbAFL": accuracy(list(noisy.server[-LAST:] + noisy.increments[-LAST:])),
            "sigma": settings.sigma,
            "reconstructed, FLIP": evaluate(module, guess, *theirs)["accuracy"],
            "reconstructed, NbAFL": evaluate(module, sent[0], *dp)["accuracy"],
            "apart": float((theirs[0] - dp[0]).square().mean()),
        }


def rows(
    settings: TapExperiment, root: Path, advance: Callable[[], None] = lambda: None
) -> Iterator[dict[str, Any]]:
    """Every setting: from its file if it is there, or run and kept."""
    for setting in SETTINGS:
        size = f"{settings.samples}-{settings.optimiser}-{settings.seed}"
        path = root / FOLDER / f"{NAME}-{setting.label[1]}-{size}.json"
        if not path.is_file():
            found = row(settings, setting, advance)
            write({"run": path.stem, "about": asdict(settings), **found}, path)
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            if kept["about"] != asdict(settings):
                raise ValueError("it is of other settings")
        except (ValueError, KeyError, TypeError) as broken:
            remedy = "remove it, and the same command makes it again"
            raise RunDamaged(path, f"is damaged ({broken})", remedy) from broken
        yield kept


def tables(found: Sequence[Mapping[str, Any]]) -> tuple[Table, Table]:
    """Figure 1, and figures 2 to 4 with (18), ours beside the paper's."""
    first = Table("", "client", "paper", "from zero", "paper", "from the first model", "paper",
                  "zero, all heard", "paper", "first, all heard", "if models travel",
                  title="FLIP figure 1: test accuracy, %")  # fmt: skip
    second = Table("", "x^a on DLG's images", "paper", "x^c under NbAFL", "paper",
                   "their MSE", "client under NbAFL", "‖x^c − x^a‖², all heard", "of (18)",
                   "best p", title="FLIP figures 2 to 4, and equation (18)")  # fmt: skip
    for one in found:
        taps, kept = one["taps"], one["protection"]
        paper = {name: printed(FIGURES, name, "accuracy") for name in (
            "client", "from zero", "from the first model", "all heard", "DLG, FLIP", "DLG, DP-FL"
        )}  # fmt: skip
        first.add_row(
            one["setting"], percent(one["client"]), paper["client"], percent(taps["zero"]),
            paper["from zero"], percent(taps["first"]), paper["from the first model"],
            percent(taps["zero, all heard"]), paper["all heard"],
            percent(taps["first, all heard"]), percent(taps["models"]),
        )  # fmt: skip
        second.add_row(
            one["setting"], percent(one["reconstructed, FLIP"]), paper["DLG, FLIP"],
            percent(one["reconstructed, NbAFL"]), paper["DLG, DP-FL"], f"{one['apart']:.2f}",
            percent(one["client, NbAFL"]), f"{kept['measured']:.1f}", f"{kept['of (18)']:.1f}",
            f"{kept['best p']:.2f}",
        )  # fmt: skip
    return first, second


def main(arguments: list[str] | None = None) -> int:
    """Run what is not there yet, and print it."""
    parser = argparse.ArgumentParser(
        prog="python -m eris.experiments.audits.eavesdropping", description=__doc__
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--samples", type=int, default=FULL, help="a client's")
    parser.add_argument("--optimiser", choices=("adam", "sgd"), default="adam")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} samples a client")
    parser.add_argument("--runs", type=Path, default=None)
    given = parser.parse_args(arguments)
    samples, test = (QUICK, 1000) if given.quick else (given.samples, 10_000)
    settings = TapExperiment(
        samples=samples, test_samples=test, optimiser=given.optimiser, seed=given.seed
    )
    with bar(Console(stderr=True)) as shown:
        task = shown.add_task(NAME, total=2 * settings.rounds * len(SETTINGS))
        found = list(rows(settings, runs_root(given.runs), lambda: shown.advance(task)))
    wide = widened(Console(highlight=False), 150)
    for table in tables(found):
        wide.print(*parts(table, wide))
    whole = "all 50,000 images" if samples == FULL else f"{samples} of the paper's {FULL} samples"
    say(
        f"CIFAR-10 ({whole} a client), LeNet-5 (colour, 62,006 parameters), "
        f"{settings.clients} clients, {settings.rounds} rounds, {settings.optimiser} "
        f"{settings.learning_rate:g}, γ = {settings.interception}, m = {CARRY}; means over "
        f"the last {LAST} rounds on {test:,} test images; NbAFL σ = {settings.sigma:.4f}; "
        f"{settings.images} images by DLG; seed {settings.seed}."
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
