"""What may be asked after every round of ``fit``: stop early, or log to where one looks.

A callback is anything that can be called with a round's record and the training under way
(:class:`~eris.session.Session`, which has ``model``); if it returns True, training ends. If it has
``close()``, that is called at the end, however it ends; if it has ``failed(error)``, that is called
before it where training ends by an error.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from eris.core.errors import InvalidSetting, library
from eris.core.vectors import Vector
from eris.session import RoundRecord, Session

Callback = Callable[[RoundRecord, Session], object]
"""Called after a round; True ends the training."""


def check_callbacks(callbacks: Sequence[Callback], *, evaluated: bool) -> None:
    """Refuse what cannot be called, and early stopping where nothing is ever evaluated.

    >>> check_callbacks([EarlyStopping("loss")], evaluated=False)
    Traceback (most recent call last):
    ...
    eris.core.errors.InvalidSetting: evaluate is None; expected 'clients' or a function of the \
model: EarlyStopping waits for loss
    """
    if not isinstance(callbacks, Sequence):
        raise InvalidSetting("callbacks", type(callbacks).__name__, "a list of them")
    for callback in callbacks:
        if not callable(callback):
            expected = "something to call with a round's record and the training"
            raise InvalidSetting("callback", type(callback).__name__, expected)
        if isinstance(callback, EarlyStopping) and not evaluated:
            expected = (
                f"'clients' or a function of the model: EarlyStopping waits for {callback.metric}"
            )
            raise InvalidSetting("evaluate", None, expected)


class EarlyStopping:
    """Ends training when a metric has not become better for ``patience`` evaluations.

    Better is smaller or, with ``rises``, larger by more than ``least``; without ``rises`` larger is
    better for a metric called accuracy, smaller for all others. What is no number is never better.
    ``best`` is the best value, ``round`` its round and ``model`` the model of then.

    >>> from eris.runtimes.station import Traffic
    >>> stop = EarlyStopping("accuracy", patience=2)
    >>> class Training:
    ...     model = None
    >>> rounds = [(1, 0.5), (2, 0.8), (3, 0.7), (4, 0.8)]
    >>> records = [RoundRecord(n, Traffic(), 1.0, metrics={"accuracy": a}) for n, a in rounds]
    >>> [stop(record, Training()) for record in records]
    [False, False, False, True]
    >>> stop.best, stop.round
    (0.8, 2)
    """

    def __init__(
        self,
        metric: str = "loss",
        *,
        patience: int = 5,
        least: float = 0.0,
        rises: bool | None = None,
    ) -> None:
        if patience < 1:
            raise InvalidSetting("patience", patience, "at least 1")
        if not 0 <= least < math.inf:
            raise InvalidSetting("least", least, "a finite number, 0 or more")
        self.metric, self._patience, self._least = metric, patience, least
        self._sign = 1.0 if (metric.endswith("accuracy") if rises is None else rises) else -1.0
        self.best: float | None = None
        self.model: Vector | None = None
        self.round, self._waited = 0, 0

    def __call__(self, record: RoundRecord, training: Session) -> bool:
        """Whether it has waited long enough."""
        if not record.metrics:
            return False
        if self.metric not in record.metrics:
            expected = f"one of {', '.join(record.metrics)}, which evaluate gives"
            raise InvalidSetting("metric to stop by", self.metric, expected)
        value = float(record.metrics[self.metric])
        known = -self._sign * math.inf if self.best is None else self.best
        if self._sign * (value - known) > self._least:
            self.best, self.round, self.model = value, record.round, training.model
            self._waited = 0
        else:
            self._waited += 1
        return self._waited >= self._patience


class TensorBoardLogger:
    """Writes a round's metrics and bytes where TensorBoard finds them; extra ``tensorboard``."""

    def __init__(self, folder: str | Path) -> None:
        writer = library("tensorboardX", "tensorboardX", "tensorboard").SummaryWriter
        self._writer = writer(str(folder))

    def __call__(self, record: RoundRecord, training: Session) -> None:
        """Write a round."""
        for name, value in figures(record).items():
            self._writer.add_scalar(name, value, record.round)

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()


class MLflowLogger:
    """A run of MLflow with the agreed settings and a round's figures; extra ``mlflow``.

    ``run`` are arguments of ``mlflow.start_run``, such as ``run_name``; where it is tracked is
    MLflow's own setting.
    """

    def __init__(self, **run: Any) -> None:
        self._mlflow = library("mlflow", "mlflow-skinny", "mlflow")
        self._run, self._begun, self._status = run, False, "FINISHED"

    def __call__(self, record: RoundRecord, training: Session) -> None:
        """Log a round."""
        if not self._begun:
            self._mlflow.start_run(**self._run)
            self._begun = True
            self._mlflow.log_params(_parameters(training.settings))
        self._mlflow.log_metrics(figures(record), step=record.round)

    def failed(self, error: BaseException) -> None:
        """Note how the run ends: stopped by its user, or failed."""
        self._status = "KILLED" if isinstance(error, KeyboardInterrupt) else "FAILED"

    def close(self) -> None:
        """End the run; the next training is another one."""
        if self._begun:
            self._mlflow.end_run(self._status)
        self._begun, self._status = False, "FINISHED"


def figures(record: RoundRecord) -> dict[str, float]:
    """What is logged of a round: metrics, bytes, who was included, and each client's metrics."""
    found = {name: float(value) for name, value in record.metrics.items()}
    found["bytes_sent"] = float(sum(record.traffic.sent.values()))
    if record.included is not None:
        found["included"] = record.included
    for what, said in (("training", record.clients), ("evaluation", record.evaluated)):
        for client, metrics in said.items():
            for name, value in metrics.items():
                with suppress(TypeError, ValueError):  # a client may say what is no number
                    found[f"{what}/{name}/{client}"] = float(value)
    return found


def _parameters(settings: str) -> Mapping[str, str]:
    """Agreed settings, one level deep; MLflow takes no longer values."""
    return {name: str(value)[:250] for name, value in json.loads(settings).items()}
