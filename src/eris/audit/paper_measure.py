"""The ERIS papers' membership measure, and what the same measure gives when nothing leaks.

Each round the canaries of each client are guessed by thirds; the share of right guesses is
averaged over the clients; the maximum over the rounds is reported. The maximum of many rounds of
noise lies far above ½, so the number means nothing without its null: the same measure with the
membership *permuted within each client* (as many of its canaries stay in). If nothing leaks every
such permutation was as likely as the truth, and the p-value is exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eris.audit.statistics import (
    checked_clients,
    checked_scores,
    checked_truth,
    client_thirds,
    guessing_places,
)
from eris.core.errors import require
from eris.core.streams import Stream

BLOCK_BYTES = 16 << 20
"""About how much each of the large arrays of a block of permutations may take."""

TIE = 1e-9
"""Sums that differ by rounding alone count as equal: accuracies are fractions, far coarser."""


@dataclass(frozen=True)
class PaperMeasure:
    """The largest accuracy over the rounds, and its null.

    ``p_value`` is the share of the permutations, the truth among them, that reach ``accuracy``.
    ``round`` is the first row of the scores that does; ``clients`` is how many clients guess.
    """

    accuracy: float
    round: int
    null_mean: float
    null_q95: float
    p_value: float
    clients: int
    draws: int
    by_round: tuple[float, ...]


@dataclass(frozen=True)
class PaperMeasures:
    """The measure of several observers, each with a null from the same permutations.

    ``mean`` is the maximum over the rounds of the accuracy averaged over the observers (the
    papers' average over the aggregators). ``worst`` is the maximum over observers and rounds: its
    null has as many chances as it had. ``worst_observer`` reached it first.
    """

    each: tuple[PaperMeasure, ...]
    mean: PaperMeasure
    worst: PaperMeasure
    worst_observer: int


def paper_measure(
    scores: ArrayLike, client: ArrayLike, included: ArrayLike, *, seed: int, draws: int = 1000
) -> PaperMeasure:
    """The measure of one observer's scores (rounds, canaries).

    >>> included = np.array([True, False, True, False] * 10)
    >>> found = paper_measure([included], np.repeat(np.arange(10), 4), included, seed=1)
    >>> found.accuracy, round(found.null_mean, 1), round(found.p_value, 3)
    (1.0, 0.5, 0.001)
    """
    values = checked_scores(scores)
    require(values.ndim == 2, "scores", values.shape, "shape (rounds, canaries)")
    return paper_measures(values[None], client, included, seed=seed, draws=draws).each[0]


def paper_measures(
    scores: ArrayLike, client: ArrayLike, included: ArrayLike, *, seed: int, draws: int = 1000
) -> PaperMeasures:
    """The measure of several observers' scores (observers, rounds, canaries)."""
    values = checked_scores(scores)
    require(
        values.ndim == 3 and values.size > 0,
        "scores",
        values.shape,
        "shape (observers, rounds, canaries), none of them 0",
    )
    canaries = values.shape[-1]
    whose = checked_clients(client, canaries)
    truth = checked_truth(included, canaries)
    require(draws >= 1, "draws", draws, "at least 1")
    weights, clients = _weights(whose)
    guesses = np.stack([client_thirds(each, whose) for each in values])
    seen = _accuracies(guesses, weights, np.where(truth, 1.0, -1.0)[:, None])
    by_round = np.stack([each[:, 0] for each in seen])
    null = _null(guesses, weights, whose, truth, seed, draws)
    each = tuple(
        _measure(rounds, maxima, clients)
        for rounds, maxima in zip(by_round, null[:-2], strict=True)
    )
    mean = _measure(by_round.mean(axis=0), null[-2], clients)
    worst = _measure(by_round.max(axis=0), null[-1], clients)
    highest = int(np.argmax([one.accuracy >= worst.accuracy - TIE for one in each]))
    return PaperMeasures(each, mean, worst, highest)


def _weights(client: NDArray[np.int64]) -> tuple[NDArray[np.float64], int]:
    """1/(clients that guess · guesses of its client) for each canary, and the number of the former.

    With guesses g and truths s of ±1 the accuracy averaged over clients is ½ + ½·Σ w·g·s.
    """
    weights = np.zeros(client.shape)
    clients = 0
    for places in guessing_places(client):
        weights[places] = 1 / (2 * (places.shape[1] // 3))
        clients += len(places)
    most = int(np.unique(client, return_counts=True)[1].max())
    expected = "a client with at least 3; pool the canaries of all clients instead"
    require(clients > 0, "the largest number of canaries of a client", most, expected)
    return weights / clients, clients


def _accuracies(
    guesses: NDArray[np.int8], weights: NDArray[np.float64], truths: NDArray[np.float64]
) -> Iterator[NDArray[np.float64]]:
    """For each observer the accuracy (rounds, draws) under truths (canaries, draws) of ±1."""
    weighted = weights[:, None] * truths
    for each in guesses:
        yield 0.5 + 0.5 * (each.astype(np.float64) @ weighted)


def _null(
    guesses: NDArray[np.int8],
    weights: NDArray[np.float64],
    client: NDArray[np.int64],
    included: NDArray[np.bool_],
    seed: int,
    draws: int,
) -> NDArray[np.float64]:
    """Maxima over rounds of each draw: a row an observer, then of their mean, then of the worst."""
    observers, rounds, canaries = guesses.shape
    block = max(1, BLOCK_BYTES // (8 * (rounds + canaries)))
    found = np.empty((observers + 2, draws))
    for start in range(0, draws, block):
        some = slice(start, min(start + block, draws))
        permuted = permuted_within_clients(included, client, seed, start, some.stop - start)
        truths = np.where(permuted, 1.0, -1.0).T
        total = np.zeros((rounds, some.stop - start))
        for observer, accuracy in enumerate(_accuracies(guesses, weights, truths)):
            found[observer, some] = accuracy.max(axis=0)
            total += accuracy
        found[-2, some] = total.max(axis=0) / observers
    found[-1] = found[:-2].max(axis=0)
    return found


def permuted_within_clients(
    included: NDArray[np.bool_], client: NDArray[np.int64], seed: int, start: int, count: int
) -> NDArray[np.bool_]:
    """Draws ``start`` to ``start + count`` of the membership, shuffled within each client."""
    canaries = len(included)
    by_client = np.argsort(client, kind="stable")
    _, rank = np.unique(client, return_inverse=True)
    stream = Stream(seed, "permuted membership")
    words = stream.words(start * canaries, count * canaries).reshape(count, canaries)
    keys = (rank.astype(np.uint64) << np.uint64(32)) | words
    permuted = np.empty((count, canaries), np.bool_)
    permuted[:, by_client] = included[np.argsort(keys, axis=1, kind="stable")]
    return permuted


def _measure(
    by_round: NDArray[np.float64], null: NDArray[np.float64], clients: int
) -> PaperMeasure:
    accuracy = float(by_round.max())
    reached = int(np.count_nonzero(null >= accuracy - TIE))
    return PaperMeasure(
        accuracy=accuracy,
        round=int(np.argmax(by_round >= accuracy - TIE)),
        null_mean=float(null.mean()),
        null_q95=float(np.quantile(null, 0.95)),
        p_value=(1 + reached) / (1 + len(null)),
        clients=clients,
        draws=len(null),
        by_round=tuple(by_round.tolist()),
    )
