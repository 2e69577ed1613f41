"""An eavesdropper on one client's uplink, and how far it stays from the client's model.

Maity and Chakrabarti, "On model protection in federated learning against eavesdropping attacks"
(FLIP and FLOP). In round t the client is sampled with probability p, trains from the server's model
x^s to x^c = x^s + ξ and sends the *increment* ξ (FLIP) or the *model* x^c (FLOP); what it sends is
intercepted with probability γ. The eavesdropper knows when the client is sampled. It adds up the
increments that it hears, and where it misses one it takes m times its last: equations (4) and (7),
with ξ^a where (4b) prints ζ (as (9) has it), ζ^a = 0 and M = m·I. *Protection* is E‖x^c − x^a‖².

The paper takes the increments ξ_t and the mismatches ζ_t = x^s_t − x^c_t as given and averages over
who is sampled and what is heard (:class:`Signals`). But ζ_t depends on when the client was sampled
last. :func:`protection` averages with that in it, over a given course of the server.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eris.core.errors import InvalidSetting, require
from eris.core.vectors import Vector
from eris.protocol.gossip.peer import Sends

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Tap:
    """``sampling`` is p, ``interception`` γ, and ``carry`` m: what of the last increment is taken
    for one that was missed."""

    sampling: float
    interception: float
    carry: float = 0.5

    def __post_init__(self) -> None:
        for name in ("sampling", "interception"):
            value = getattr(self, name)
            require(0 < value <= 1, name, value, "a probability above 0, at most 1")
        require(math.isfinite(self.carry), "carry", self.carry, "a finite number")


class Estimator:
    """The eavesdropper's estimate, moved in the rounds in which the client is sampled.

    >>> one = Estimator(np.zeros(2), carry=0.5)
    >>> one.hear(np.array([4.0, 0.0]))
    >>> one.miss()
    >>> one.model.tolist()
    [6.0, 0.0]
    """

    def __init__(self, start: Vector | Floats, carry: float = 0.5) -> None:
        self.model: Floats = np.array(start, np.float64)
        self.increment: Floats = np.zeros_like(self.model)
        self._carry = carry

    def hear(
        self,
        values: Vector | Floats,
        at: NDArray[np.bool_] | None = None,
        sends: Sends = "increments",
    ) -> None:
        """What was sent, on the coordinates ``at`` which it was heard; the others were missed."""
        heard = values - self.model if sends == "models" else values
        missed = self._carry * self.increment
        self.increment = np.array(heard, np.float64) if at is None else np.where(at, heard, missed)
        self.model = self.model + self.increment
        if sends == "models":  # exactly, not but for the rounding of a difference
            self.model = np.where(True if at is None else at, values, self.model)

    def miss(self) -> None:
        """A round in which the client was sampled, and nothing was heard."""
        self.hear(self.increment, np.zeros(len(self.model), np.bool_))


# -- the paper's analysis ---------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Signals:
    """What the paper's analysis takes as given, by round: ξ_t (T, n), r_t = ζ_t − ζ^a_t (T, n), and
    e_0 = x^c_0 − x^a_0."""

    increments: Floats
    mismatches: Floats
    offset: Floats

    def __post_init__(self) -> None:
        shape = np.shape(self.increments)
        if (
            len(shape) != 2
            or np.shape(self.mismatches) != shape
            or np.size(self.offset) != shape[1]
        ):
            found = [np.shape(one) for one in (self.increments, self.mismatches, self.offset)]
            raise InvalidSetting("shapes of signals", found, "(T, n), (T, n) and (n,)")


@dataclass(frozen=True, eq=False)
class Moments:
    """Of the error e_t, for t = 0 … T."""

    second: Floats
    """E‖e_t‖², the protection."""
    mean: Floats
    """‖E e_t‖²."""

    @property
    def variance(self) -> Floats:
        """E‖e_t − E e_t‖², the paper's tr Σ̃_11."""
        return self.second - self.mean


def moments(signals: Signals, tap: Tap) -> Moments:
    """The error's moments, exactly, if increments and mismatches are given numbers.

    >>> signals = Signals(np.zeros((1, 1)), np.ones((1, 1)), np.zeros(1))
    >>> moments(signals, Tap(0.25, 1.0)).second.tolist()
    [0.0, 0.25]
    """
    state = np.stack([signals.offset, np.zeros_like(signals.offset)])  # e, and the last ξ^a
    rounds = (
        (
            (np.diag([1.0, 0.0]), np.stack([r, increment])),
            (np.array([[1.0, -tap.carry], [0.0, tap.carry]]), np.stack([r + increment, 0 * r])),
        )
        for increment, r in zip(signals.increments, signals.mismatches, strict=True)
    )
    found = [(gram[0, 0], mean[0] @ mean[0]) for gram, mean in _averaged(state, rounds, tap)]
    return Moments(*np.array(found).T)


def perfect_interception(signals: Signals, sampling: float) -> float:
    """Equation (18), what is left if everything is heard: p(1−p)·Σ‖r_k‖² + ‖e_0 + p·Σ r_k‖².

    (The paper's two sums end one round apart; here both are over all rounds.)
    """
    spread, total = _sums(signals)
    mean = signals.offset + sampling * total
    return float(sampling * (1 - sampling) * spread + mean @ mean)


def best_sampling(signals: Signals) -> float:
    """The p in [0, 1] that makes (18) largest; it is quadratic in p.

    >>> best_sampling(Signals(np.zeros((2, 1)), np.array([[1.0], [-1.0]]), np.zeros(1)))
    0.5
    """
    spread, total = _sums(signals)
    square, linear = total @ total - spread, spread + 2 * signals.offset @ total
    if square < 0:
        return float(np.clip(-linear / (2 * square), 0, 1))
    return 1.0 if square + linear > 0 else 0.0


def _sums(signals: Signals) -> tuple[float, Floats]:
    """Σ‖r_k‖² and Σ r_k."""
    r = np.asarray(signals.mismatches, np.float64)
    return float(np.vdot(r, r)), r.sum(axis=0)


def step_17(signals: Signals, tap: Tap) -> Floats:
    """What (17) says the variance of e_t is at least, for t = 0 … T.

    It can exceed what :func:`moments` has. Proposition 2 leaves out M before ξ_τ, which overstates
    V where |m| < 1; and (16) rests on E[A σ̃ vᵀ] = 0, which does not hold: v has ξ_τ in it, and so
    has σ̃.
    """
    kept = 1 - tap.sampling * (1 - tap.interception)
    bounds = [0.0]
    for terms in _terms(signals, tap):
        bounds.append(kept * bounds[-1] + tap.sampling * (1 - tap.interception) * terms.fresh)
    return np.array(bounds)


def theorem_1(signals: Signals, tap: Tap) -> Floats:
    """What is under the limit inferior of Theorem 1, for t = 0 … T − 1.

    The theorem is about t → ∞; at a given t the protection may be below it.
    """
    return np.array([terms.fresh + terms.mean @ terms.mean for terms in _terms(signals, tap)])


@dataclass(frozen=True, eq=False)
class _Terms:
    """Of the theorem, in one round: tr V_t/(p(1−γ)), and g_t."""

    fresh: float
    mean: Floats


def _terms(signals: Signals, tap: Tap) -> Iterable[_Terms]:
    p, gamma, m = tap.sampling, tap.interception, tap.carry
    require(gamma < 1, "interception", gamma, "below 1; at 1 there is equation (18)")
    require((1 - gamma) * m != 1, "carry", m, "a number other than 1/(1−γ)")
    expected, square = np.zeros(signals.offset.shape), 0.0  # of ξ_τ, the last that was sent
    carried, total_r, total_h = (np.zeros(signals.offset.shape) for _ in range(3))
    for increment, r in zip(signals.increments, signals.mismatches, strict=True):
        s, total_r = increment - m * carried, total_r + r
        total_h = total_h + increment - m * expected
        both = s + r
        fresh = (
            (1 - p) * (both @ both)
            + p * gamma * (s @ s)
            + (1 - p) * gamma / (1 - gamma) * (r @ r)
            + (square - expected @ expected)
        )
        gain = p * (1 - gamma) / (1 - (1 - gamma) * m)
        yield _Terms(float(fresh), signals.offset + p * total_r + gain * total_h)
        carried = (1 - p) * carried + p * (gamma * increment + (1 - gamma) * m * carried)
        expected = (1 - p) * expected + p * increment
        square = (1 - p) * square + p * float(increment @ increment)


# -- stability --------------------------------------------------------------------------------


def paper_threshold(sampling: float, interception: float) -> float:
    """Lemma 1: |m| must be below (p(1−γ)·max{γ, 1−γ})^(−1/2). Necessary, not sufficient.

    >>> round(paper_threshold(5 / 8, 0.5), 3)
    2.53
    """
    tap = Tap(sampling, interception)
    missed = 1 - tap.interception
    product = tap.sampling * missed * max(tap.interception, missed)
    return math.inf if product == 0 else product**-0.5


def stability_threshold(interception: float) -> float:
    """|m| must be below (1−γ)^(−1/2), and that is enough: whatever p is, ξ^a has a bounded second
    moment exactly then, for it is multiplied by (1−p) + p(1−γ)m² a round.

    >>> round(stability_threshold(0.5), 3)
    1.414
    """
    missed = 1 - Tap(1.0, interception).interception
    return math.inf if missed == 0 else missed**-0.5


# -- with the mismatch as it is ---------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Course:
    """A server's models x^s_t (T, n), the increments ξ_t (T, n) with which the client would answer
    them, and where client and eavesdropper start."""

    server: Floats
    increments: Floats
    client: Floats
    adversary: Floats

    def __post_init__(self) -> None:
        shape = np.shape(self.server)
        found = [np.shape(one) for one in (self.increments, self.client, self.adversary)]
        if len(shape) != 2 or found != [shape, shape[1:], shape[1:]]:
            raise InvalidSetting("shapes of a course", [shape, *found], "(T, n) twice, (n,) twice")

    def signals(self, sampled: Sequence[bool] | NDArray[np.bool_]) -> Signals:
        """What the paper's analysis takes from a run in which the client was sampled so."""
        client, mismatches = np.asarray(self.client, np.float64), []
        for server, increment, there in zip(self.server, self.increments, sampled, strict=True):
            mismatches.append(server - client)
            client = server + increment if there else client
        offset = np.asarray(self.client, np.float64) - self.adversary
        return Signals(np.asarray(self.increments), np.array(mismatches), offset)


def errors(
    course: Course,
    sampled: Sequence[bool] | NDArray[np.bool_],
    heard: Sequence[bool] | NDArray[np.bool_],
    carry: float = 0.5,
    sends: Sends = "increments",
) -> Floats:
    """‖x^c_t − x^a_t‖² for t = 0 … T, in one run: who was sampled, what was heard.

    >>> still = Course(np.ones((2, 1)), np.ones((2, 1)), np.zeros(1), np.zeros(1))
    >>> errors(still, [True, True], [False, True], sends="models").tolist()
    [0.0, 4.0, 0.0]
    """
    client, adversary = np.asarray(course.client, np.float64), Estimator(course.adversary, carry)
    found = [client - adversary.model]
    rounds = zip(course.server, course.increments, sampled, heard, strict=True)
    for server, increment, there, intercepted in rounds:
        if there:
            client = server + increment
            if intercepted:
                adversary.hear(client if sends == "models" else increment, sends=sends)
            else:
                adversary.miss()
        found.append(client - adversary.model)
    return np.array([one @ one for one in found])


def protection(course: Course, tap: Tap, sends: Sends = "increments") -> Floats:
    """E‖x^c_t − x^a_t‖² for t = 0 … T, exactly: over sampling and interception, of this course.

    >>> still = Course(np.ones((2, 1)), np.ones((2, 1)), np.zeros(1), np.zeros(1))
    >>> protection(still, Tap(1.0, 0.5), "models").tolist()
    [0.0, 2.0, 1.25]
    """
    models, m = sends == "models", tap.carry
    # The client's model, the estimate, and its last increment.
    state = np.stack([course.client, course.adversary, np.zeros(np.shape(course.client))])
    # Of a model heard, the increment is its difference to the estimate.
    hear = np.diag([0.0, 0.0, 0.0]) if models else np.diag([0.0, 1.0, 0.0])
    hear[2, 1] = -1.0 if models else 0.0
    miss = np.array([[0.0, 0.0, 0.0], [0.0, 1.0, m], [0.0, 0.0, m]])
    rounds = (
        (
            (hear, np.stack([model, *((model, model) if models else (increment, increment))])),
            (miss, np.stack([model, 0 * model, 0 * model])),
        )
        for model, increment in zip(
            course.server + course.increments, course.increments, strict=True
        )
    )
    away = np.array([1.0, -1.0, 0.0])
    # Not below 0: where it is 0, rounding may leave it on either side.
    return np.array([max(away @ gram @ away, 0.0) for gram, _ in _averaged(state, rounds, tap)])


Move = tuple[Floats, Floats]
"""F and G of z ← F·z + G, the state z being a few vectors of n coordinates."""


def _averaged(
    state: Floats, rounds: Iterable[tuple[Move, Move]], tap: Tap
) -> Iterable[tuple[Floats, Floats]]:
    """E[z zᵀ] (summed over coordinates) and E[z], before the first and after every round, of which
    each says how z moves where the client is sampled and heard, and where sampled and missed."""
    mean = np.asarray(state, np.float64)
    gram = mean @ mean.T
    yield gram, mean
    p, gamma = tap.sampling, tap.interception
    for heard, missed in rounds:
        next_mean, next_gram = (1 - p) * mean, (1 - p) * gram
        for chance, (matrix, added) in ((p * gamma, heard), (p * (1 - gamma), missed)):
            cross = matrix @ mean @ added.T
            next_mean = next_mean + chance * (matrix @ mean + added)
            next_gram = next_gram + chance * (
                matrix @ gram @ matrix.T + cross + cross.T + added @ added.T
            )
        mean, gram = next_mean, next_gram
        yield gram, mean
