"""A training under way, one round at a time, and its outcome."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from eris.core.errors import InvalidSetting, PrecisionWarning, PrivacyWarning
from eris.core.noise import PrivacyClaim
from eris.core.vectors import Vector
from eris.files import SHARED
from eris.files import replace as replace_file
from eris.frames import history_frame
from eris.model_file import check_suffix, model_bytes
from eris.protocol.transcript import Record, Transcript
from eris.protocol.view import View
from eris.runtimes.station import Report, Traffic
from eris.training.trainer import Layout

if TYPE_CHECKING:
    from torch import Tensor, nn

REMEDY = (
    " on the grid of the agreed precision; with a smaller range of values, "
    "precision=FixedPoint(value_range=...), the grid is finer"
)


class Engine(Protocol):
    """What carries a federation through a round."""

    def run_round(self, round: int) -> Report:
        """One round."""

    def models(self) -> dict[int, Vector]:
        """The models of the members by number; a single one where all hold the same."""

    def state(self) -> Mapping[str, Vector]:
        """Everything that is needed to continue from the end of a round."""

    def restore(self, round: int, state: Mapping[str, Vector]) -> None:
        """Continue from a ``state()`` after a round."""

    def close(self) -> None:
        """Give back what the engine holds."""


@dataclass(frozen=True)
class Budget:
    """What a training with noise spends in total of every sample's privacy."""

    claim: PrivacyClaim
    epsilon: float
    """Over all rounds, at ``delta``."""
    delta: float
    openers: float | None = None
    """Of noise that clients share: ε towards an owner that has its helpers on its side."""


@dataclass(frozen=True, repr=False)
class RoundRecord:
    """What happened in one round."""

    round: int
    traffic: Traffic
    """Encoded bytes, by member and kind of message."""
    included: float | None
    """Mean share of the clients in the round's results; None where nothing is published."""
    refused: tuple[str, ...] = ()
    """Contributions and messages that were refused, and why."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """What ``evaluate`` said of the model, in rounds in which it was asked."""
    clients: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    """What clients said of their own training."""
    noise: str = ""
    """What is wrong with the noise of the round's sums, if anything."""
    evaluated: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    """What clients said of the model, in rounds in which they were asked."""

    def __repr__(self) -> str:
        sent = sum(self.traffic.sent.values())
        told = [
            f"round={self.round}",
            *(f"{name}={value:.4g}" for name, value in self.metrics.items()),
        ]
        if self.included is not None:
            told.append(f"included={self.included:.2g}")
        told.append(f"sent={sent:,} bytes")
        told += [f"refused={len(self.refused)}"] if self.refused else []
        return f"RoundRecord({', '.join(told)})"


def payers(view: View) -> frozenset[int]:
    """Whose bytes are the clients'; in gossip the other members are their own virtual nodes."""
    return frozenset(view.clients if view.owners else range(len(view.members)))


class Session:
    """A training that can be moved on round by round, stopped and continued.

    ``model`` is the federation's model or, where every node has its own, their mean. ``views`` says
    who takes part in a round, where clients are sampled. ``rounds`` is for how many the noise was
    made, where there is noise.
    """

    def __init__(
        self,
        engine: Engine,
        view: View,
        settings: str,
        *,
        record: bool = False,
        privacy: Budget | None = None,
        views: Callable[[int], View] | None = None,
        rounds: int | None = None,
        layout: Layout | None = None,
    ) -> None:
        self.engine, self.view, self.settings, self.privacy = engine, view, settings, privacy
        self.round, self._views, self._rounds, self._layout = 0, views, rounds, layout
        self._told = False
        """Whether it was said that updates are too small."""
        self.transcript = Transcript(view, settings) if record else None

    @property
    def model(self) -> Vector:
        """The current model."""
        models = self.models()
        if len(models) == 1:
            return models[0]
        total = np.zeros(len(models[0]), np.float64)
        for model in models:
            total += model
        return (total / len(models)).astype(np.float32)

    def models(self) -> list[Vector]:
        """The nodes' models in their order, as copies; a single one where all hold the same."""
        models = self.engine.models()
        return [models[member].copy() for member in sorted(models)]

    def step(self) -> RoundRecord:
        """One more round; refused where it would spend more privacy than is stated."""
        if self.privacy is not None and self._rounds is not None and self.round >= self._rounds:
            expected = f"at most {self._rounds}, for which the noise was made"
            raise InvalidSetting("rounds", self.round + 1, expected)
        report = self.engine.run_round(self.round + 1)
        self.round += 1
        if report.faint and not self._told:
            self._told = True
            warnings.warn(PrecisionWarning(f"{report.faint}{REMEDY}"), stacklevel=2)
        if report.noise:
            warnings.warn(PrivacyWarning(report.noise), stacklevel=2)
        if self.transcript is not None:
            self.transcript.records += report.records
            self.note_views(self.round)
        return RoundRecord(
            self.round,
            report.traffic,
            report.included,
            tuple(report.refused),
            clients=report.clients,
            noise=report.noise,
        )

    def rounds_seen(self, rounds: int) -> Iterator[tuple[int, list[Record]]]:
        """Rounds up to a last one, each with its messages, which are then no longer kept."""
        assert self.transcript is not None
        while self.round < rounds:
            self.step()
            records, self.transcript.records = self.transcript.records, []
            yield self.round, records

    def note_views(self, *rounds: int) -> None:
        """Who takes part in rounds belongs to the transcript, where it differs between them."""
        if self.transcript is not None and self._views is not None:
            self.transcript.epochs.update({round: self._views(round) for round in rounds})

    def state(self) -> dict[str, Vector]:
        """Everything that is needed to continue after this round, as copies."""
        return {name: np.array(value) for name, value in self.engine.state().items()}

    def restore(self, round: int, state: Mapping[str, Vector]) -> None:
        """Continue from a ``state()`` after a round."""
        self.engine.restore(round, state)
        self.round = round
        self.note_views(*range(1, round + 1))

    def outcome(
        self,
        history: Sequence[RoundRecord],
        kept: Mapping[int, Mapping[str, Vector]] | None = None,
    ) -> Fit:
        """What the training has come to, with its rounds so far, and what clients keep."""
        model, models, seen = self.model, tuple(self.models()), self.transcript
        if seen is not None:
            seen.final_model = model
        return Fit(
            model, tuple(history), self.view, self.settings, models, seen, self.privacy,
            self._layout, kept or {},
        )  # fmt: skip

    def close(self) -> None:
        """Give back what the engine holds."""
        self.engine.close()


@dataclass(frozen=True, repr=False)
class Fit:
    """The outcome of a training."""

    model: Vector
    history: tuple[RoundRecord, ...]
    view: View
    settings: str
    """The agreed settings as text."""
    models: tuple[Vector, ...]
    """The nodes' models in their order; a single one where all hold the same."""
    transcript: Transcript | None
    privacy: Budget | None = None
    layout: Layout | None = None
    """Names and shapes of the model's parameters, where they are known."""
    kept: Mapping[int, Mapping[str, Vector]] = field(default_factory=dict)
    """What clients keep at home, by their numbers: ``trainer.restore(fit.kept[0])`` gives the first
    its own again, as :meth:`Federation.fit` leaves trainers as they were."""

    def __repr__(self) -> str:
        told = [f"rounds={len(self.history)}", f"parameters={len(self.model):,}"]
        told += [f"{name}={value:.4g}" for name, value in self.metrics.items()]
        return f"Fit({', '.join(told)})"

    @property
    def metrics(self) -> Mapping[str, float]:
        """The last evaluation."""
        evaluated = [record.metrics for record in self.history if record.metrics]
        return evaluated[-1] if evaluated else {}

    def sent(self, *kinds: str) -> float:
        """Mean encoded bytes a client sends in a round it takes part in.

        Of all messages or those of some kinds ("Contribution": its update, "Result": what it
        publishes as an aggregator); what its virtual nodes send is its own.
        """
        return self._per_client(lambda traffic: traffic.sent, kinds)

    def received(self, *kinds: str) -> float:
        """Mean encoded bytes a client is sent in a round it takes part in."""
        return self._per_client(lambda traffic: traffic.received, kinds)

    def busiest(self) -> float:
        """Mean encoded bytes a round at the busiest member, sent and received together."""
        load: Counter[int] = Counter()
        for record in self.history:
            for (member, _), size in (record.traffic.sent + record.traffic.received).items():
                load[member] += size
        return max(load.values(), default=0) / len(self.history)

    def save(self, path: str | Path) -> None:
        """Write the model as safetensors, with what made it.

        Its tensors are the module's parameters where the clients know them; otherwise it is one
        flat tensor ``model``. :func:`eris.model_file.read_model` reads either as a flat vector.
        """
        about = {"settings": self.settings, "rounds": str(len(self.history))}
        place = check_suffix(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        replace_file(place, model_bytes(self.model, self.layout, about), SHARED)

    def frame(self, *, clients: bool = False) -> Any:
        """The history as a pandas data frame: a row a round, or a round and client."""
        return history_frame(self.history, clients=clients)

    def state_dict(self, module: nn.Module) -> dict[str, Tensor]:
        """The ``state_dict`` of a module with the trained parameters; the module is not changed.

        What does not travel (frozen parameters, layers that stay local) is the module's own.
        """
        from eris.training.flat import state_with

        return state_with(module, self.model, self.layout)

    def _per_client(
        self, way: Callable[[Traffic], Mapping[tuple[int, str], int]], kinds: Sequence[str]
    ) -> float:
        paying = payers(self.view)
        means = [
            sum(
                size
                for (member, kind), size in way(record.traffic).items()
                if member in paying and (not kinds or kind in kinds)
            )
            / (len(record.clients) or len(self.view.clients))
            for record in self.history
        ]
        return sum(means) / len(means)
