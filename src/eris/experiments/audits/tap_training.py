"""The federations of the FLIP paper, trained once each; their messages say what a tap could hear.

A tap does not change training: what a tapped client did, its *course*, serves every estimate, start
and interception. It is kept as safetensors in ``runs/audits``; what is there is not trained again.
NbAFL (Wei et al., 2020) adds noise to models, so it is a federation of its own: weights are clipped
to C, and σ = cL·2C/(mε) with c = √(2·ln(1.25/δ)), L exposures and m samples.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from eris.audit.watch import Watch
from eris.core.combine import FixedPoint
from eris.core.rules import server_rule
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.data.cache import write_atomically
from eris.experiments.audits.altered import Alteration, Altered
from eris.experiments.runs.assembly import Assembly
from eris.experiments.runs.checkpoint import RunDamaged
from eris.experiments.runs.recipe import Recipe
from eris.federation import Federation
from eris.methods.fedavg import FedAvg
from eris.protocol.observers import Observer
from eris.training.torch import single_threaded

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

    @property
    def letter(self) -> str:
        """The paper's name for it."""
        return self.label[1]


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
    images: int = 128
    """Made by DLG, in batches of the clients' size."""
    iterations: int = 100
    """Of DLG."""
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

    def trained(self, setting: Setting, noisy: bool) -> dict[str, float | str]:
        """What a course depends on."""
        names = ("samples", "clients", "rounds", "learning_rate", "optimiser", "seed")
        about = {name: getattr(self, name) for name in names} | asdict(setting)
        return about | ({"sigma": self.sigma, "clip": self.clip} if noisy else {})


def noisy_models(settings: TapExperiment) -> Alteration:
    """Clients clip the model they have trained, and add noise to it (NbAFL)."""

    def alter(update: Vector, model: Vector, round: int, client: int) -> Vector:
        after = model - settings.learning_rate * update.astype(np.float64)
        after /= max(1.0, float(np.linalg.norm(after)) / settings.clip)
        after += settings.sigma * Stream(settings.seed, "nbafl", round, client).normal(
            0, len(after)
        )
        return ((model - after) / settings.learning_rate).astype(np.float32)

    return alter


@dataclass(frozen=True, eq=False)
class Taped:
    """What the messages of a run say of the tapped client: x^s_t, ξ_t and δ_t."""

    server: Vector
    increments: Vector
    sampled: tuple[bool, ...]
    initial: Vector

    @property
    def client(self) -> Vector:
        """x^c after the rounds in which the client was sampled; x^s in the others."""
        return self.server + self.increments


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
        Altered(plain, noisy_models(settings)) if noisy else plain,
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


def kept_course(
    settings: TapExperiment,
    setting: Setting,
    assembly: Assembly,
    noisy: bool,
    folder: Path,
    advance: Callable[[], None],
) -> Taped:
    """The course in its file; trained and written first if it is not there."""
    about = json.dumps(settings.trained(setting, noisy), sort_keys=True)
    size = f"{settings.samples}-{settings.optimiser}-{settings.seed}"
    kind = "nbafl" if noisy else "flip"
    path = folder / f"eavesdropper-{setting.letter}-{size}-{kind}.safetensors"
    if not path.is_file():
        made = taped(settings, setting, assembly, noisy, advance)
        tensors = {
            "server": made.server,
            "increments": made.increments,
            "sampled": np.array(made.sampled),
            "initial": made.initial,
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, save(tensors, {"about": about}))
        return made
    try:
        with safe_open(path, framework="numpy") as file:
            if (file.metadata() or {}).get("about") != about:
                raise ValueError("it is of other settings")
            found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            sampled = tuple(found["sampled"].tolist())
            return Taped(found["server"], found["increments"], sampled, found["initial"])
    except (SafetensorError, ValueError, KeyError) as broken:
        remedy = "remove it, and the same command trains it again"
        raise RunDamaged(path, f"is damaged ({broken})", remedy) from broken
