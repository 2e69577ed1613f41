"""The front door for Python users: clients and a model in, a trained model and its record out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from safetensors.numpy import save_file

from eris.core.errors import InvalidSetting, PrivacyWarning
from eris.core.rules import ServerRule, server_rule
from eris.core.vectors import Vector
from eris.methods.eris import ERIS
from eris.methods.method import Method
from eris.protocol.agreement import Agreement
from eris.protocol.codec import MOST_SAMPLES, MOST_STEPS
from eris.protocol.settings import Settings, model_digest
from eris.protocol.transcript import Transcript
from eris.runtimes.faults import FaultPlan
from eris.runtimes.local import LocalRuntime, Traffic
from eris.training.trainer import LocalUpdate, StatefulTrainer, Trainer

OF_THE_METHOD = {"n", "plan", "compressor", "masks", "initial"}


class RefusedWarning(UserWarning):
    """Contributions were left out of the training."""


@dataclass(frozen=True)
class RoundRecord:
    """What happened in one round."""

    round: int
    traffic: Traffic
    """Encoded bytes, by member and kind of message."""
    included: float
    """Mean share of the clients in the round's results."""
    refused: tuple[str, ...] = ()
    """Contributions and messages that were refused, and why."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """What ``evaluate`` said of the model, in rounds in which it was asked."""


@dataclass(frozen=True)
class Fit:
    """The outcome of a training."""

    model: Vector
    history: tuple[RoundRecord, ...]
    runtime: LocalRuntime
    transcript: Transcript | None

    @property
    def metrics(self) -> Mapping[str, float]:
        """The last evaluation."""
        evaluated = [record.metrics for record in self.history if record.metrics]
        return evaluated[-1] if evaluated else {}

    def sent(self, *kinds: str) -> float:
        """Mean encoded bytes a client sends in a round; of all messages or those of some kinds
        ("Contribution": its update, "Result": what it publishes as an aggregator)."""
        return self._per_client([record.traffic.sent for record in self.history], kinds)

    def received(self, *kinds: str) -> float:
        """Mean encoded bytes a client is sent in a round."""
        return self._per_client([record.traffic.received for record in self.history], kinds)

    def busiest(self) -> float:
        """Mean encoded bytes a round at the busiest member, sent and received together."""
        members = range(len(self.runtime.agreement.view.members))
        load = dict.fromkeys(members, 0)
        for record in self.history:
            for traffic in (record.traffic.sent, record.traffic.received):
                for (member, _), size in traffic.items():
                    load[member] += size
        return max(load.values()) / len(self.history)

    def save(self, path: str | Path) -> None:
        """Write the model as safetensors: one flat float32 tensor ``model``, and what made it."""
        settings = self.runtime.agreement.settings.canonical
        about = {"settings": settings, "rounds": str(len(self.history))}
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        save_file({"model": self.model}, path, metadata=about)

    def _per_client(
        self, rounds: Sequence[Mapping[tuple[int, str], int]], kinds: Sequence[str]
    ) -> float:
        clients = set(self.runtime.agreement.view.clients)
        total = sum(
            size
            for traffic in rounds
            for (member, kind), size in traffic.items()
            if member in clients and (not kinds or kind in kinds)
        )
        return total / len(clients) / len(rounds)


class Federation:
    """Clients that train one model by a method.

    ``clients`` are trainers (see :mod:`eris.training`), ``initial`` is the flat model they start
    from, ``method`` says who aggregates what. ``rule`` is a server rule or its name. Any further
    field of :class:`~eris.protocol.settings.Settings` may be given by name.

    >>> class Quadratic:
    ...     "A client whose loss is ‖x − 1‖²/2."
    ...     def update(self, parameters, round):
    ...         return LocalUpdate(parameters - 1, samples=1)
    >>> from eris.training.trainer import LocalUpdate
    >>> federation = Federation([Quadratic() for _ in range(3)], np.zeros(4, np.float32),
    ...                         ERIS(aggregators=2), rule=server_rule("fedavg", learning_rate=0.5))
    >>> federation.fit(rounds=10, progress=False).model.round(3)
    array([0.999, 0.999, 0.999, 0.999], dtype=float32)
    """

    def __init__(
        self,
        clients: Sequence[Trainer],
        initial: Vector,
        method: Method | None = None,
        *,
        rule: ServerRule | str = "fedavg",
        names: Sequence[str] | None = None,
        samples: Sequence[int] | None = None,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        if not clients:
            raise InvalidSetting("clients", "none", "at least one trainer")
        self.clients, self.method = list(clients), method or ERIS()
        self.initial = np.array(initial, np.float32)
        if self.initial.ndim != 1 or not np.isfinite(self.initial).all():
            found = f"shape {self.initial.shape}"
            raise InvalidSetting("initial", found, "a flat vector of finite values")
        default = [f"client-{number}" for number in range(len(clients))]
        names = default if names is None else [str(name) for name in names]
        if len(names) != len(clients):
            raise InvalidSetting("names", len(names), f"one for each of {len(clients)} clients")
        weights = [1] * len(clients) if samples is None else [int(count) for count in samples]
        parts = self.method.compose(names, weights)
        if parts.masks == "independent" and samples is None:
            expected = "every client's number of samples: the paper's mode agrees on weights"
            raise InvalidSetting("samples", None, expected)
        _check_names(settings)
        self.settings = Settings(
            n=len(self.initial),
            plan=parts.plan,
            compressor=parts.compressor,
            masks=parts.masks,
            rule=server_rule(rule) if isinstance(rule, str) else rule,
            seed=seed,
            initial=model_digest(self.initial),
            **settings,
        )
        self.agreement = Agreement(self.settings, parts.view)
        _warn_of_exposure(self.settings)

    def fit(
        self,
        rounds: int,
        *,
        evaluate: Callable[[Vector], Mapping[str, float]] | None = None,
        evaluate_every: int = 1,
        record: bool = False,
        faults: FaultPlan | None = None,
        progress: bool | str = True,
    ) -> Fit:
        """Train for ``rounds`` rounds.

        ``evaluate(model)`` is asked every ``evaluate_every`` rounds and after the last;
        ``record`` keeps every message for an audit; ``faults`` injects failures. ``progress`` shows
        a bar, labelled with the method's name or the one given.
        """
        if rounds < 1:
            raise InvalidSetting("rounds", rounds, "at least 1")
        if evaluate_every < 1:
            raise InvalidSetting("evaluate_every", evaluate_every, "at least 1")
        view = self.agreement.view
        transcript = Transcript(view, self.settings.canonical) if record else None
        runtime = LocalRuntime(self.agreement, self.initial, faults=faults, transcript=transcript)
        history: list[RoundRecord] = []
        with self._states_kept(), _bar() if progress else nullcontext() as bar:
            label = progress if isinstance(progress, str) else self.method.name
            task = bar.add_task(label, total=rounds, note="") if bar else None
            for round in range(1, rounds + 1):
                traffic = runtime.run_round(self.train)
                metrics: Mapping[str, float] = {}
                if evaluate and (round % evaluate_every == 0 or round == rounds):
                    metrics = evaluate(self._model(runtime))
                refused, included = _refused(runtime), _included(runtime, round)
                if refused and not any(record.refused for record in history):
                    stalled = "" if included else "; nothing was published this round"
                    warnings.warn(RefusedWarning(f"{refused[0]}{stalled}"), stacklevel=2)
                history.append(RoundRecord(round, traffic, included, refused, metrics))
                if bar and task is not None:
                    bar.advance(task)
                    if metrics:
                        bar.update(task, note=_note(metrics))
        model = self._model(runtime).copy()
        if transcript is not None:
            transcript.final_model = model
        return Fit(model, tuple(history), runtime, transcript)

    @contextmanager
    def _states_kept(self) -> Iterator[None]:
        """A training starts from the initial model: what clients keep over rounds ends with it."""
        kept = [(c, c.state()) for c in self.clients if isinstance(c, StatefulTrainer)]
        try:
            yield
        finally:
            for client, state in kept:
                client.restore(state)

    def train(self, member: int, model: Vector, round: int) -> tuple[Vector, int, int]:
        """Ask a member's trainer for its update (what a runtime calls)."""
        client = self.agreement.view.clients.index(member)
        # A copy: a trainer must not be able to write into the replica.
        update = self.clients[client].update(model.copy(), round)
        _check_update(update, self.agreement.view.members[member], len(model))
        return update.vector, int(update.samples), int(update.steps)

    def _model(self, runtime: LocalRuntime) -> Vector:
        """The model of the first live node (all settled nodes hold the same)."""
        return runtime.nodes[runtime.live[0] if runtime.live else 0].model


def _check_names(settings: Mapping[str, object]) -> None:
    """Refuse settings that are none, or that the method has to say."""
    for name, value in settings.items():
        if name in OF_THE_METHOD:
            raise InvalidSetting(name, value, "a setting of the method: set it there")
        if name not in Settings.__dataclass_fields__:
            known = sorted(set(Settings.__dataclass_fields__) - OF_THE_METHOD)
            raise InvalidSetting("setting", name, f"one of {', '.join(known)}")


def _warn_of_exposure(settings: Settings) -> None:
    """Say so where a published value need not mix as many clients as ``min_included`` promises."""
    least = settings.min_included
    mixed = settings.rule.values_mixed(least)
    if mixed < least:
        text = (
            f"{settings.rule.name} may publish values that only {mixed} of {least} clients are in, "
            "to every member and of every shard"
        )
        warnings.warn(PrivacyWarning(text), stacklevel=3)


def _check_update(update: LocalUpdate, client: str, n: int) -> None:
    """Say whose update it is that cannot be sent."""
    vector = update.vector
    if not isinstance(vector, np.ndarray) or vector.shape != (n,) or vector.dtype != np.float32:
        kind = (
            f"{vector.dtype} array of shape {vector.shape}" if hasattr(vector, "dtype") else vector
        )
        raise InvalidSetting(f"update of {client}", kind, f"{n} float32 values")
    for name, count, most in (
        ("samples", update.samples, MOST_SAMPLES),
        ("steps", update.steps, MOST_STEPS),
    ):
        if count != int(count) or not 1 <= count <= most:
            raise InvalidSetting(f"{name} of {client}", count, f"a whole number from 1 to {most}")


def _included(runtime: LocalRuntime, round: int) -> float:
    """Mean share of clients in a round's results, as the first live node knows them."""
    replica = runtime.nodes[runtime.live[0] if runtime.live else 0].replica
    results = [replica.result_of(key, round) for key in runtime.agreement.keys]
    clients = len(runtime.agreement.view.clients)
    return float(np.mean([len(r.included) / clients if r else 0.0 for r in results]))


def _refused(runtime: LocalRuntime) -> tuple[str, ...]:
    """What nodes refused since this was last asked."""
    found: list[str] = []
    for node in runtime.nodes:
        found += node.refused
        node.refused.clear()
    return tuple(found)


def _note(metrics: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {value:.4g}" for name, value in metrics.items())


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description:>16}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
