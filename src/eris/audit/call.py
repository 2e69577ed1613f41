"""One observed update, and which samples it gives away: the attacks as a plain call.

Nothing of this package need have run: a model, a loss, what was seen of a client's update and some
samples to ask about are enough. It is what an audit of a run does in every round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from eris.audit.alignment import NAMES, Scores
from eris.audit.candidates import Candidates
from eris.audit.gradients import SampleModel
from eris.audit.heard import Pieces
from eris.audit.membership import (
    JOINT,
    LOSS,
    Finding,
    Levels,
    MembershipAudit,
    MembershipReport,
)
from eris.audit.statistics import checked_clients, checked_truth
from eris.audit.watch import Sight
from eris.core.errors import InvalidSetting, require
from eris.core.vectors import Indices, Vector
from eris.protocol.observers import Observer
from eris.training.flat import FlatParameters
from eris.training.gradients import Loss
from eris.training.options import RunningStatistics

Values = ArrayLike | Tensor | Mapping[str, Any]
"""One value a parameter: flat in the order of ``model.parameters()``, or tensors by their names."""
ByClient = Mapping[int, Values]
"""The same for several clients."""

SHOWN = 10
YOU = Observer("aggregator", frozenset({0}))
ONLY = 0
"""The number of the client where there is one."""


@dataclass(frozen=True, eq=False)
class Attacked:
    """Scores of every candidate, higher for what looks more like a member.

    ``findings`` compares them with the truth, where it was given.
    """

    scores: Mapping[str, Scores]
    visible: float
    """Coordinates that were seen of a client's update, on average over clients."""
    share: float
    """Of all coordinates."""
    findings: Mapping[str, Finding] = field(default_factory=dict)

    def highest(self, score: str = JOINT, count: int = SHOWN) -> Indices:
        """The places of the candidates that score highest, the highest first."""
        require(score in self.scores, "score", score, f"one of {', '.join(self.scores)}")
        return np.argsort(-self.scores[score], kind="stable")[:count]


def attack(
    model: nn.Module,
    loss: Loss,
    update: Values | ByClient,
    inputs: Tensor,
    targets: Tensor,
    *,
    mask: Values | ByClient | None = None,
    sent: Literal["update", "weights"] = "update",
    learning_rate: float | None = None,
    reference: Values | ByClient | None = None,
    client: ArrayLike | None = None,
    included: ArrayLike | None = None,
    coins: bool = False,
    running_statistics: RunningStatistics = "refuse",
    seed: int = 0,
) -> Attacked:
    """Score candidate samples by what was seen of a client's update.

    ``model`` is at the weights that the client started from, and is not changed. ``update`` is the
    direction that it sent, as a gradient is one, or with ``sent="weights"`` its new weights. Of a
    mapping by parameters' names, what is not named was not seen; nor what ``mask`` has as false.
    Under shifted compression ``reference`` is what the client's update was the difference to.

    Updates of several clients come as a mapping from their numbers (``mask`` and ``reference`` may
    too), and ``client`` says at whose update each candidate is asked about.

    Scores are those of :mod:`eris.audit.alignment`, ``joint`` (:mod:`eris.audit.joint`) and, where
    it is known how far the update moves the model (``learning_rate``, or weights), ``loss``: how
    well the completed model does on a candidate. With ``included``, the truth, they are judged;
    a bound on ε needs truths that are fair coins, which ``coins`` confirms.

    ``running_statistics`` is about batch norm: ``"ignore"`` takes those in the model, ``"batch"``
    those of every batch (:data:`eris.training.options.RunningStatistics`).

    >>> import torch
    >>> model, loss = nn.Linear(3, 2), nn.functional.cross_entropy
    >>> inputs, targets = torch.eye(3), torch.tensor([0, 1, 1])
    >>> loss(model(inputs[:1]), targets[:1]).backward()  # a client that has the first sample only
    >>> update = {"weight": model.weight.grad}  # of which the bias was not seen
    >>> found = attack(model, loss, update, inputs, targets)
    >>> found.visible, found.highest(count=1).tolist()
    (6.0, [0])
    """
    samples = SampleModel(model, loss, inputs, targets, running_statistics=running_statistics)
    count = len(inputs)
    if numbered(update) != (client is not None):
        found = "by client" if client is None else "of one client"
        expected = (
            "with `client`, whose each candidate is, a mapping by number; without, one update"
        )
        raise InvalidSetting("update", found, expected)
    whose = np.full(count, ONLY) if client is None else checked_clients(client, count)
    truth = np.zeros(count, np.bool_) if included is None else _some_in(included, count)
    candidates = Candidates(inputs, targets, whose, truth, coins)
    given = Given(samples.flat, sent, learning_rate)
    check_fit(samples, given.start)
    pieces = {
        one: given.pieces(
            of_client(update, one),
            None if mask is None else of_client(mask, one),
            None if reference is None else of_client(reference, one),
        )
        for one in candidates.clients
    }
    sight = _OneSight.of(given, pieces, shifted=reference is not None)
    losses = () if given.step is None else (0,)
    membership = MembershipAudit(
        [YOU], samples, candidates, Levels(seed=seed), joint=(0,), losses=losses
    )
    membership.see(sight)
    return _judged(sight, membership.report())


def check_fit(samples: SampleModel, model: Vector) -> None:
    """Refuse samples that the model or the loss does not take, or whose loss is no number."""
    about = f"{samples.inputs.dtype} of shape {tuple(samples.inputs.shape)}"
    try:
        losses = samples.losses(model)
    except InvalidSetting:
        raise
    except (RuntimeError, ValueError, IndexError, TypeError) as refused:
        reason = str(refused).strip().partition("\n")[0]
        expected = f"what the model and the loss take ({reason})"
        raise InvalidSetting("candidates", about, expected) from refused
    if not np.isfinite(losses).all():
        place = int(np.flatnonzero(~np.isfinite(losses))[0])
        found = float(losses[place])
        raise InvalidSetting(f"loss of candidate {place}", found, "a finite number")


def _judged(sight: _OneSight, report: MembershipReport) -> Attacked:
    """Every score of every candidate, whether or not there is a truth to judge it by."""
    known = {score: values.astype(np.float64) for (_, score), values in report.scores.items()}
    scores = {name: known[name] for name in (*NAMES, JOINT, LOSS) if name in known}
    found = {one.score: replace(one, observer="you") for one in report.findings}
    visible = float(np.mean([len(pieces.coordinates) for pieces in sight.by_client.values()]))
    return Attacked(
        scores,
        visible,
        visible / len(sight.model),
        {name: found[name] for name in scores if name in found},
    )


@dataclass(frozen=True, eq=False)
class _OneSight(Sight):
    """A sight that comes from no messages: of each client one piece, which was seen."""

    by_client: Mapping[int, Pieces] = field(default_factory=dict)
    differences: bool = False

    @classmethod
    def of(cls, given: Given, by_client: Mapping[int, Pieces], *, shifted: bool) -> _OneSight:
        none: Any = None  # where a run's sight keeps the run's messages
        return cls(1, (0,), given.start, given.rate, none, none, by_client, shifted)

    @property
    def published(self) -> NDArray[np.bool_]:
        return np.zeros(1, np.bool_)

    @property
    def shifted(self) -> bool:
        return self.differences

    def left(self, model: Vector) -> Vector:
        return model

    @property
    def noise(self) -> None:
        """Nobody agreed on any."""

    def placed(self, vector: Vector) -> Vector:
        return vector

    def pieces(self, client: int, *, published: bool = False) -> Pieces:
        return self.by_client[client]

    def seen(self, client: int) -> NDArray[np.bool_]:
        return np.ones((1, 1), np.bool_)


class Given:
    """Reads what the caller saw into flat vectors."""

    def __init__(
        self, flat: FlatParameters, sent: Literal["update", "weights"], rate: float | None
    ) -> None:
        require(sent in ("update", "weights"), "sent", sent, "update or weights")
        if rate is not None and not 0 < rate < np.inf:
            raise InvalidSetting("learning_rate", rate, "a finite number above 0, or None")
        self._flat, self._sent = flat, sent
        self.start: Vector = flat.read().cpu().numpy()
        # Of weights, the step only scales the direction that is read off them.
        self.step = 1.0 if rate is None and sent == "weights" else rate
        self.rate = 1.0 if self.step is None else self.step

    def pieces(self, update: Values, mask: Values | None, reference: Values | None) -> Pieces:
        """What was seen of one client."""
        values, seen = self._vector("update", update)
        if mask is not None:
            seen = seen & self._vector("mask", mask, np.bool_)[0]
        at = np.flatnonzero(seen)
        values = values[at]
        if not np.isfinite(values).all():
            raise InvalidSetting("update", "not finite", "finite numbers wherever it was seen")
        if self._sent == "weights":
            values = (self.start[at] - values) / np.float32(self.rate)
        whole = values
        if reference is not None:
            whole = values + self._vector("reference", reference)[0][at]
        return Pieces(at, np.array([0, len(at)]), values, whole)

    def _vector(
        self, what: str, given: Values, kind: type[np.generic] = np.float32
    ) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Values as one flat vector, and which of them were given."""
        size = len(self._flat)
        if not isinstance(given, Mapping):
            return _checked(what, given, (size,), kind), np.ones(size, np.bool_)
        names = self._flat.names
        if strange := [name for name in given if name not in names]:
            expected = f"names of the model's trainable parameters: {', '.join(names)}"
            raise InvalidSetting(f"name in the {what}", strange[0], expected)
        values, named, start = np.zeros(size, kind), np.zeros(size, np.bool_), 0
        for name, parameter in zip(names, self._flat.parameters, strict=True):
            end = start + parameter.numel()
            if name in given:
                found = _checked(f"{what} of {name}", given[name], tuple(parameter.shape), kind)
                values[start:end], named[start:end] = found.reshape(-1), True
            start = end
        return values, named


def _checked(what: str, given: Any, shape: tuple[int, ...], kind: type[np.generic]) -> NDArray[Any]:
    array = given.detach().cpu().numpy() if isinstance(given, Tensor) else np.asarray(given)
    wanted = "truth values" if kind is np.bool_ else "numbers"
    right = array.dtype == np.bool_ if kind is np.bool_ else array.dtype.kind in "fiu"
    if array.shape != shape or not right:
        found = f"{array.dtype} of shape {array.shape}"
        raise InvalidSetting(what, found, f"{wanted} of shape {shape}, one a parameter")
    return array.astype(kind)


def numbered(given: Values | ByClient) -> bool:
    """Whether something was given by client."""
    return isinstance(given, Mapping) and all(isinstance(key, int) for key in given)


def of_client(given: Values | ByClient, client: int) -> Values:
    """What was given for one client: its own, or the one for all."""
    if not numbered(given):
        return cast(Values, given)
    by_number = cast(ByClient, given)
    if client not in by_number:
        known = ", ".join(map(str, sorted(by_number))) or "none"
        raise InvalidSetting("client of a candidate", client, f"one that was observed: {known}")
    return by_number[client]


def _some_in(included: ArrayLike, count: int) -> NDArray[np.bool_]:
    truth = checked_truth(included, count)
    if truth.all() or not truth.any():
        found = f"{int(truth.sum())} of {count} in"
        raise InvalidSetting("included", found, "some in and some out, or None")
    return truth
