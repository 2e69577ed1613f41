"""One defence at work: a recorded round of clients with one image each, and what is seen of it.

Everything an attacker gets comes out of recorded messages. A defence is a method of the registry
or, where none has it, a mechanism on the client's own update before a plain method sends it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from eris.audit.candidates import Candidates
from eris.audit.inversion import Ggl
from eris.audit.inversion.matching import Mode
from eris.audit.inversion.recorded import Shown
from eris.audit.inversion.search import Inversion, SearchBudget, Tell
from eris.core.noise import clip, gaussian
from eris.core.prune import Prune
from eris.core.rules import server_rule
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.experiments.audits.altered import Alteration, Altered
from eris.experiments.audits.auditing import Audit, AuditOptions, Subject, reconstruction
from eris.federation import Federation
from eris.methods.registry import create
from eris.training.options import LocalTraining
from eris.training.population import Population, Trainers
from eris.training.torch import flatten, torch_clients

STEP = 0.1
"""Of clients and of the server; a round's update does not depend on it."""


class Mechanism(Protocol):
    """What a client does to its update before it is sent."""

    def __call__(self, update: Vector, stream: Stream) -> Vector:
        """What is sent instead."""


@dataclass(frozen=True)
class TopK:
    """The share ``kept`` of largest magnitudes, and zeros.

    >>> TopK(0.5)(np.array([4, -3, 1, 2], np.float32), Stream(0, "unused")).tolist()
    [4.0, -3.0, 0.0, 0.0]
    """

    kept: float

    def __call__(self, update: Vector, stream: Stream) -> Vector:
        """What :class:`~eris.core.prune.Prune` would withhold, and nothing else."""
        return np.where(Prune(rate=self.kept).withheld(update), update, np.float32(0))

    def __str__(self) -> str:
        return "the support is core.prune's; on the update"


@dataclass(frozen=True)
class ClippedNoise:
    """Cut to the norm ``bound``, then N(0, (σ·bound)²) on every coordinate (σ as Opacus has it)."""

    bound: float
    sigma: float

    def __call__(self, update: Vector, stream: Stream) -> Vector:
        """The mechanism of :mod:`eris.core.noise`."""
        return gaussian(clip(update, self.bound)[0], self.sigma * self.bound, stream)

    def __str__(self) -> str:
        return "core.noise's clip and gaussian; on the update"


@dataclass(frozen=True)
class Printed:
    """What the ERIS papers print of a line: ROG's LPIPS, SNR and SSIM, and GGL's LPIPS."""

    rog: str
    snr: str
    ssim: str
    ggl: str


@dataclass(frozen=True)
class Defence:
    """A line of the table: what protects, who looks, and what the papers print.

    ``settings`` are the method's. With ``sparse`` a zero that was sent stands for what was not.
    ``together`` clients are in one run where the mean alone is seen; else all are. ``extra`` ones
    take part where not everybody's messages come to the one who looks. ``segment`` is how many
    coordinates are quantised together, if not all.
    """

    label: str
    method: str = "fedavg"
    settings: Mapping[str, Any] = field(default_factory=dict)
    observer: str = "server"
    mechanism: Mechanism | None = None
    sparse: bool = False
    together: int = 0
    extra: int = 0
    segment: int = 0
    paper: Printed | None = None

    @property
    def partial(self) -> bool:
        """Whether something is hidden, so that it matters what an attacker takes it for."""
        cut = self.method in ("priprune", "shatter") or self.settings.get("aggregators", 1) > 1
        return cut or self.sparse

    @property
    def clips(self) -> bool:
        """Whether updates are cut to a length and get noise, which GGL models."""
        return isinstance(self.mechanism, ClippedNoise) or self.method == "fedavg-ldp"

    @property
    def how(self) -> str:
        """How it is had."""
        chosen = ", ".join(f"{name} {value}" for name, value in self.settings.items())
        named = f"{self.method}, {chosen}" if chosen else self.method
        named += f", segments of {self.segment}" if self.segment else ""
        return f"{named}; {self.mechanism}" if self.mechanism else named


def mechanised(mechanism: Mechanism, seed: int) -> Alteration:
    """A mechanism as what clients do to their updates."""

    def alter(update: Vector, model: Vector, round: int, client: int) -> Vector:
        return mechanism(update, Stream(seed, "mechanism", round=round, client=client))

    return alter


@dataclass(frozen=True, eq=False)
class ImageClients:
    """Images in [0, 1], one a client, with their labels, and the model they are trained on."""

    model: nn.Module
    images: Tensor
    labels: Tensor

    def some(self, places: slice) -> ImageClients:
        """Some of them."""
        return ImageClients(self.model, self.images[places], self.labels[places])


def attacked(
    defence: Defence,
    victims: ImageClients,
    attack: Inversion,
    mode: Mode,
    budget: SearchBudget | None,
    seed: int,
    tell: Tell,
) -> list[Shown]:
    """What the observer makes of all images, in as many recorded runs as the defence takes."""
    count = len(victims.images)
    size = defence.together or count
    starts = range(0, count, size)
    found: list[Shown] = []
    for number, start in enumerate(starts):
        part = victims.some(slice(start, start + size))
        found += _run(
            defence, part, attack, mode, budget, seed,
            lambda share, number=number: tell((number + share) / len(starts)),  # type: ignore[misc]
        )  # fmt: skip
    return found


def _run(
    defence: Defence, victims: ImageClients, attack: Inversion, mode: Mode,
    budget: SearchBudget | None, seed: int, tell: Tell,
) -> tuple[Shown, ...]:  # fmt: skip
    subject, records = record(defence, victims, seed)
    if defence.clips and isinstance(attack, Ggl):
        attack = replace(attack, defence="noisy")
    audit = Audit(
        subject, AuditOptions((defence.observer,), seed=seed), lambda done, of: tell(done / of),
        [lambda audit: reconstruction(attack, audit, mode=mode, sparse=defence.sparse,
                                      budget=budget)],
    )  # fmt: skip
    audit.take(1, records)
    report = audit.outcome(None).reports[attack.name]
    return report.shown  # type: ignore[attr-defined, no-any-return]


def record(defence: Defence, victims: ImageClients, seed: int) -> tuple[Subject, list[Any]]:
    """A round of real messages, and what an audit has beside them."""
    count = len(victims.images)
    parts = [np.array([number]) for number in range(count)]
    trainers = torch_clients(
        victims.model, victims.images, victims.labels, parts, learning_rate=STEP
    )
    population: Population = Trainers(trainers)
    if defence.mechanism is not None:
        population = Altered(population, mechanised(defence.mechanism, seed))
    initial = flatten(victims.model)
    settings = dict(defence.settings)
    if "degree" in settings:  # a node has at most all others for neighbours
        settings["degree"] = min(settings["degree"], count * settings.get("virtual_nodes", 1) - 1)
    method = create(defence.method, **settings)
    # A mean of two is published only where members agree to it.
    agreed: dict[str, Any] = {"min_included": count} if 0 < defence.together < 3 else {}
    if defence.segment:
        agreed["segment_size"] = defence.segment
    federation = Federation(
        population, initial, method, rule=server_rule("fedavg", learning_rate=STEP),
        samples=[1] * count, seed=seed, **agreed,
    )  # fmt: skip
    with closing(federation.start(1, record=True)) as session:
        ((_, records),) = session.rounds_seen(1)
        frame = session.transcript
    assert frame is not None
    whose = np.arange(count)
    candidates = Candidates(victims.images, victims.labels, whose, np.ones(count, bool), False)
    subject = Subject(
        frame, victims.model, functional.cross_entropy, initial, candidates, {},
        local=LocalTraining(learning_rate=STEP),
        trained=lambda client: (victims.images[[client]], victims.labels[[client]]),
    )  # fmt: skip
    return subject, records


def as_images(pixels: np.ndarray[Any, np.dtype[np.uint8]]) -> Tensor:
    """Bytes as (count, channels, height, width) in [0, 1]."""
    found = torch.from_numpy(pixels.astype(np.float32) / 255)
    return found[:, None] if found.dim() == 3 else found
