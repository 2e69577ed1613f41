"""What the protocol asks of a client's training code, whatever framework it is written in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from eris.core.combine import MOST_SAMPLES
from eris.core.errors import InvalidSetting
from eris.core.exact_clip import Content
from eris.core.noise import Draws
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.protocol.codec import MOST_STEPS


@dataclass(frozen=True)
class LocalUpdate:
    """What one client computed in one round.

    ``vector`` is the update direction g_k: a gradient, or for several local steps the
    pseudo-gradient (x − x_k)/λ. ``samples`` is the client's integer weight, ``steps`` the number
    of local steps behind the vector (FedNova divides by it). ``metrics`` stay with the client.

    Where samples were clipped for noise that is added when it is sent, ``content`` is what is sent,
    in integers on a fine grid (:class:`PerSampleClip`), and the vector is 0: what has no noise yet
    leaves nobody by mistake.
    """

    vector: Vector
    samples: int
    steps: int = 1
    metrics: Mapping[str, float] = field(default_factory=dict)
    content: Content | None = None


Layout = Sequence[tuple[str, tuple[int, ...]]]
"""Name and shape of each parameter of a model, in the order of its flat vector."""


class Trainer(Protocol):
    """One client's training code: what a user's ``make_trainer`` returns, for a federation in
    Python, ``eris run``, ``eris local`` and nodes.

    More than ``update`` is optional, and taken where it is there (:class:`Learner` for nodes):

    - ``initial()``: the flat model everyone starts from, where none is given otherwise;
    - ``evaluate(parameters)``: metrics of a model; like all metrics they stay with the client;
    - ``samples``: a number, where a method weighs clients by what they declare; no update then may
      claim more;
    - ``layout``: (name, shape) of the model's parameters, for the files it is written to;
    - ``learning_rate``: its own step, by which a server's step is usually made;
    - ``state()`` and ``restore(state)``: what it keeps between rounds.
    """

    def update(self, parameters: Vector, round: int) -> LocalUpdate:
        """Train from ``parameters`` (the flat model) and return the update of this round; a plain
        ``(update, samples, metrics)`` is taken, too (:func:`as_update`)."""


@runtime_checkable
class Learner(Trainer, Protocol):
    """What a node trains with: a trainer that knows the model everyone starts from."""

    def initial(self) -> Vector:
        """The flat model all members start from, the same bits at each."""


def starting_model(trainer: Learner) -> Vector:
    """The model a trainer starts from, checked."""
    model = np.asarray(trainer.initial())
    if model.ndim != 1 or model.dtype != np.float32 or not np.isfinite(model).all():
        found = f"{model.dtype} array of shape {model.shape}"
        raise InvalidSetting("what initial() returned", found, "a flat float32 array, all finite")
    return model


def as_update(
    made: object, client: str, n: int, notice: Callable[[str], None] = lambda text: None
) -> LocalUpdate:
    """What ``update`` returned, as it can be sent: a :class:`LocalUpdate`, or (update, samples,
    metrics), whose update has n values.

    Numbers of other kinds than float32 are cast, which ``notice`` is told; whole numbers only if
    float32 holds them exactly. Anything else is refused.

    >>> as_update((np.zeros(2), 10, {"loss": 0.5}), "anna", 2, print).samples
    update of anna is float64; it is cast to float32
    10
    """
    if isinstance(made, LocalUpdate):
        update = made
    elif isinstance(made, tuple) and len(made) in (2, 3):
        update = LocalUpdate(made[0], made[1], metrics=made[2] if len(made) == 3 else {})
    else:
        expected = "a LocalUpdate, or (update, samples, metrics)"
        raise InvalidSetting(f"what update() of {client} returned", type(made).__name__, expected)
    if not (isinstance(update.vector, np.ndarray) and update.vector.dtype == np.float32):
        update = replace(update, vector=_as_float32(update.vector, client, n, notice))
    check_update(update, client, n)
    return update


def _as_float32(given: object, client: str, n: int, notice: Callable[[str], None]) -> Vector:
    expected = f"{n} float32 values"
    try:
        values = np.asarray(given)
    except Exception as error:  # a tensor that still needs its gradient, a ragged list
        found = f"{type(given).__name__} ({error})"
        raise InvalidSetting(f"update of {client}", found, expected) from None
    if values.dtype.kind not in "fiub":
        raise InvalidSetting(f"update of {client}", type(given).__name__, expected)
    with np.errstate(over="ignore"):  # what becomes infinite is refused as such
        cast: Vector = values.astype(np.float32)
    if values.dtype.kind != "f" and not np.array_equal(cast.astype(np.float64), values):
        found = f"{values.dtype} values that float32 does not hold"
        raise InvalidSetting(f"update of {client}", found, expected)
    if values.dtype != np.float32:
        notice(f"update of {client} is {values.dtype}; it is cast to float32")
    return cast


@dataclass(frozen=True)
class PerSampleNoise:
    """Local differential privacy inside a step: clip every sample's gradient, add noise to the sum.

    A step's gradient becomes (Σ clip(gᵢ, ``clip``) + N(0, ``sigma``²))/batch. The noise of client k
    in round t is drawn from the stream (``seed``, "noise", t, k), one vector after another for
    several steps: simulations repeat. A node has other :meth:`draws`.
    """

    clip: float
    sigma: float
    seed: int = 0

    def draws(self, round: int, client: int) -> Draws:
        """The noise of one training."""
        return Stream(self.seed, "noise", round, client)


@runtime_checkable
class PrivateTrainer(Trainer, Protocol):
    """A trainer that can see single samples, and so protect them."""

    def private_update(self, parameters: Vector, round: int, noise: PerSampleNoise) -> LocalUpdate:
        """As ``update``, with clipping and noise in every step."""


Rows = NDArray[np.float32]
"""Gradients, one a row."""


Batch = Callable[[int], NDArray[np.bool_] | None]
"""Which of a client's so many slots are in the round's batch, by coins of its own; None: all."""


@dataclass(frozen=True)
class PerSampleClip:
    """Exact clipping of single samples, for noise that clients share: Σ clip(select(gᵢ), ``clip``)
    in multiples of 2^−``places``.

    ``select`` gives what is sent of every gradient, in the order in which it is sent. ``slots`` is
    the client's public weight, of which samples that are gone leave some empty; without it, as many
    as it has samples. ``batch`` says which of them the round takes; nothing else may depend on it.
    """

    clip: float
    places: int
    select: Callable[[Rows], Rows]
    slots: int | None = None
    batch: Batch | None = None


@runtime_checkable
class ClippingTrainer(Trainer, Protocol):
    """A trainer that can bound what every single sample contributes, exactly."""

    def check_clipping(self, parameters: Vector, *, packed: bool = False) -> None:
        """Refuse, before the first round, training whose samples cannot be bounded one by one or,
        if they are to be ``packed``, of whom a gradient depends on its place in a pass."""

    def clipped_update(self, parameters: Vector, round: int, clip: PerSampleClip) -> LocalUpdate:
        """The sum of the samples' clipped gradients, as ``content``."""


@runtime_checkable
class StatefulTrainer(Trainer, Protocol):
    """A trainer that keeps something between rounds, say its momentum."""

    def state(self) -> Mapping[str, Vector]:
        """What is kept."""

    def restore(self, state: Mapping[str, Vector]) -> None:
        """Continue from a ``state()``."""


def check_update(update: LocalUpdate, client: str, n: int) -> None:
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
        if not _whole(count) or not 1 <= count <= most:
            raise InvalidSetting(f"{name} of {client}", count, f"a whole number from 1 to {most}")


def _whole(count: object) -> bool:
    """Whether something is a whole number, if only in value."""
    return isinstance(count, int | np.integer | float | np.floating) and count % 1 == 0
