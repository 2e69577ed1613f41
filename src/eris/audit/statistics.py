"""From scores to guesses, and how many of them are right when all clients' canaries are pooled.

The rule of the guesses is fixed before the truth is looked at: the third with the highest scores
is guessed "in", the third with the lowest "out", the rest is not judged (the rule of the ERIS
papers, and one that the one-run audit allows). Thresholds chosen afterwards would make noise look
like a leak.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eris.core.errors import library, require

special = library("scipy.special", "scipy", "audit")

FEWEST = 3
"""Canaries without which there is no third to guess."""


@dataclass(frozen=True)
class Pooled:
    """Thirds over the canaries of all clients at once: v of r guesses right, and the interval.

    ``low`` and ``high`` are Clopper and Pearson's exact interval for the share of right guesses.
    Without a leak right guesses are fair coins, whatever the scores, so the interval covers ½ at
    the ``confidence`` named, for all ``looks`` together. The counts are those that
    :func:`eris.audit.one_run.bound` takes.
    """

    accuracy: float
    low: float
    high: float
    confidence: float
    canaries: int
    guesses: int
    right: int
    looks: int


def checked_scores(scores: ArrayLike) -> NDArray[np.float64]:
    """The scores as float64, canaries last; refused if one of them is not a number."""
    values = np.asarray(scores, np.float64)
    require(values.ndim >= 1, "scores", values.shape, "an array whose last axis is the canaries")
    wrong = np.isnan(values)
    if wrong.any():
        where = tuple(int(axis[0]) for axis in np.nonzero(wrong))
        require(False, f"scores{list(where)}", float("nan"), "a number for every canary")
    return values


def checked_truth(included: ArrayLike, canaries: int) -> NDArray[np.bool_]:
    """Whether each of so many canaries was in."""
    return _one_each("included", included, "b", "a truth value", canaries)


def checked_clients(client: ArrayLike, canaries: int) -> NDArray[np.int64]:
    """Whose each of so many canaries is."""
    whose = _one_each("client", client, "iu", "a client's number", canaries)
    return whose.astype(np.int64)


def _one_each(name: str, given: ArrayLike, kinds: str, what: str, canaries: int) -> NDArray[Any]:
    values = np.asarray(given)
    fits = values.dtype.kind in kinds and values.shape == (canaries,)
    found = f"{values.dtype} of shape {values.shape}"
    require(fits, name, found, f"{what} for each of {canaries} canaries")
    return values


def thirds(scores: ArrayLike) -> NDArray[np.int8]:
    """+1 for the ⌊m/3⌋ highest along the last axis, −1 for the ⌊m/3⌋ lowest, 0 for the rest.

    Of equal scores the one that comes later counts as higher. That is fair: the coins were thrown
    without regard to place, so place says nothing about them.

    >>> thirds([0.3, -1.0, 2.0, 0.1, 5.0, 0.2, 0.0])
    array([ 0, -1,  1,  0,  1,  0, -1], dtype=int8)
    """
    values = checked_scores(scores)
    canaries = values.shape[-1]
    third = canaries // 3
    order = np.argsort(values, axis=-1, kind="stable")
    guesses = np.zeros(values.shape, np.int8)
    np.put_along_axis(guesses, order[..., :third], np.int8(-1), axis=-1)
    np.put_along_axis(guesses, order[..., canaries - third :], np.int8(1), axis=-1)
    return guesses


def client_thirds(scores: ArrayLike, client: ArrayLike) -> NDArray[np.int8]:
    """Thirds within every client's canaries; a client with fewer than 3 guesses nothing.

    >>> client_thirds([0.3, 0.1, 0.2, 9.0, 8.0], client=[4, 4, 4, 7, 7])
    array([ 1, -1,  0,  0,  0], dtype=int8)
    """
    values = checked_scores(scores)
    whose = checked_clients(client, values.shape[-1])
    guesses = np.zeros(values.shape, np.int8)
    for places in guessing_places(whose):
        guesses[..., places] = thirds(values[..., places])
    return guesses


def guessing_places(client: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Where the canaries of each client lie that has 3 or more: a row a client.

    Clients with equally many canaries come together, so that they are sorted in one pass.
    """
    order = np.argsort(client, kind="stable")
    _, starts, counts = np.unique(client[order], return_index=True, return_counts=True)
    for count in np.unique(counts[counts >= FEWEST]):
        yield order[starts[counts == count][:, None] + np.arange(count)]


def pooled(
    scores: ArrayLike, included: ArrayLike, confidence: float = 0.95, looks: int = 1
) -> Pooled:
    """Thirds of one score for each canary, whoever owns it: of one round, or summed over rounds.

    Scores of different clients must be on one scale. ``looks`` is how many such results the
    caller compares: each interval is widened (Bonferroni) so that all hold together.

    >>> found = pooled([0.1, 0.9, 0.2, 0.8, 0.5, 0.4], [False, True, False, True, True, False])
    >>> found.right, found.guesses, found.accuracy, round(found.low, 4), found.high
    (4, 4, 1.0, 0.3976, 1.0)
    """
    values = checked_scores(scores)
    require(values.ndim == 1, "scores", values.shape, "one score for each canary")
    canaries = len(values)
    truth = checked_truth(included, canaries)
    require(canaries >= FEWEST, "canaries", canaries, "at least 3, so that a third is 1")
    require(0 < confidence < 1, "confidence", confidence, "a number in (0, 1)")
    require(looks >= 1, "looks", looks, "at least 1")
    guesses = 2 * (canaries // 3)
    right = int(np.count_nonzero(thirds(values) == np.where(truth, 1, -1)))
    low, high = clopper_pearson(right, guesses, (1 - confidence) / looks)
    return Pooled(right / guesses, low, high, confidence, canaries, guesses, right, looks)


def clopper_pearson(right: int, guesses: int, significance: float = 0.05) -> tuple[float, float]:
    """The exact interval for a share of which ``right`` of ``guesses`` were seen.

    >>> low, high = clopper_pearson(0, 10)
    >>> low, round(high, 4)
    (0.0, 0.3085)
    """
    require(guesses >= 1, "guesses", guesses, "at least 1")
    require(0 <= right <= guesses, "right", right, f"a whole number from 0 to {guesses} guesses")
    require(0 < significance < 1, "significance", significance, "a number in (0, 1)")
    wrong, side = guesses - right, significance / 2
    low = float(special.betaincinv(right, wrong + 1, side)) if right else 0.0
    high = float(special.betaincinv(right + 1, wrong, 1 - side)) if wrong else 1.0
    return low, high
