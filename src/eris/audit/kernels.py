"""Compiled loops of the audit."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from eris.core.kernels import compiled
from eris.core.vectors import Indices, Vector


@compiled
def piece_products(
    products: NDArray[np.float64],
    squares: NDArray[np.float64],
    gradient: Vector,
    coordinates: Indices,
    edges: Indices,
    values: NDArray[np.float32],
) -> None:
    """Inner products of one gradient with several vectors, piece by piece.

    Piece p lies at ``edges[p]`` to ``edges[p + 1]`` of ``coordinates`` and of the rows of
    ``values``. ``products[v, p]`` becomes that of row v, ``squares[p]`` the gradient's own.
    """
    for piece in range(len(edges) - 1):
        start, stop = edges[piece], edges[piece + 1]
        product, square = 0.0, 0.0
        for at in range(start, stop):
            one = gradient[coordinates[at]]
            product += one * values[0, at]
            square += one * one
        products[0, piece], squares[piece] = product, square
        for row in range(1, len(values)):
            product = 0.0
            for at in range(start, stop):
                product += gradient[coordinates[at]] * values[row, at]
            products[row, piece] = product


@compiled
def piece_squares(
    squares: NDArray[np.float64], edges: Indices, values: NDArray[np.float32]
) -> None:
    """‖·‖² of every row and piece."""
    for row in range(len(values)):
        for piece in range(len(edges) - 1):
            total = 0.0
            for at in range(edges[piece], edges[piece + 1]):
                total += values[row, at] * values[row, at]
            squares[row, piece] = total


@compiled
def cholesky(gram: NDArray[np.float64], lift: float) -> None:
    """Cholesky in place, of the lower half with ``lift`` added to the diagonal."""
    rank = len(gram)
    for i in range(rank):
        for j in range(i + 1):
            total = gram[i, j]
            for k in range(j):
                total -= gram[i, k] * gram[j, k]
            if i == j:
                gram[i, i] = np.sqrt(max(total + lift, 1e-300))
            else:
                gram[i, j] = total / gram[j, j]


@compiled
def divide_lower(row: NDArray[np.float64], lower: NDArray[np.float64]) -> None:
    """A row becomes x with lower·x = row."""
    for i in range(len(row)):
        for j in range(i):
            row[i] -= lower[i, j] * row[j]
        row[i] /= lower[i, i]


@compiled
def refit_rows(
    found: NDArray[np.float64],
    known: NDArray[np.float64],
    starts: NDArray[np.int32],
    places: NDArray[np.int32],
    values: NDArray[np.float64],
    ridge: float,
) -> None:
    """Every row of ``found`` by least squares: its values on the rows of ``known`` they lie at."""
    rank = known.shape[1]
    gram, side = np.empty((rank, rank)), np.empty(rank)
    for one in range(len(found)):
        gram[:] = 0.0
        side[:] = 0.0
        for at in range(starts[one], starts[one + 1]):
            row, value = known[places[at]], values[at]
            for i in range(rank):
                side[i] += row[i] * value
                for j in range(i + 1):
                    gram[i, j] += row[i] * row[j]
        cholesky(gram, ridge * np.trace(gram) / rank)
        divide_lower(side, gram)
        for i in range(rank - 1, -1, -1):
            for j in range(i + 1, rank):
                side[i] -= gram[j, i] * side[j]
            side[i] /= gram[i, i]
        found[one] = side


@compiled
def whiten(factor: NDArray[np.float64]) -> None:
    """Another basis of the same column space: orthogonal columns of mean square 1."""
    gram = factor.T @ factor / len(factor)
    cholesky(gram, 1e-15 * np.trace(gram))
    for row in factor:
        divide_lower(row, gram)


@compiled
def residual_square(
    left: NDArray[np.float64],
    right: NDArray[np.float64],
    starts: NDArray[np.int32],
    places: NDArray[np.int32],
    values: NDArray[np.float64],
) -> float:
    """‖values − left·rightᵀ‖² on the entries."""
    total = 0.0
    for one in range(len(left)):
        for at in range(starts[one], starts[one + 1]):
            off = values[at]
            for i in range(left.shape[1]):
                off -= left[one, i] * right[places[at], i]
            total += off * off
    return total


@compiled
def alternating_passes(
    left: NDArray[np.float64],
    right: NDArray[np.float64],
    row_starts: NDArray[np.int32],
    row_places: NDArray[np.int32],
    row_values: NDArray[np.float64],
    column_starts: NDArray[np.int32],
    column_places: NDArray[np.int32],
    column_values: NDArray[np.float64],
    ridge: float,
    decay: float,
    count: int,
    enough: float,
    floor: float,
    patience: int,
    progress: float,
) -> float:
    """Alternating passes from ``right``; the last residual, squared, over the entries.

    ``enough`` is the squared residual at which they end.
    """
    square, before, since = np.inf, np.inf, 0
    for number in range(count):
        refit_rows(left, right, row_starts, row_places, row_values, ridge)
        whiten(left)
        refit_rows(right, left, column_starts, column_places, column_values, ridge)
        if number % 5 == 4 or number == count - 1:
            square = residual_square(left, right, row_starts, row_places, row_values)
            if square < enough:
                break
        if ridge <= floor:
            since += 1
            if since % patience == 0:
                if square > progress * progress * before:
                    break
                before = square
        ridge = max(ridge * decay, floor)
    return square


@compiled
def pair_counts(
    counts: NDArray[np.float64], one: NDArray[np.uint16], other: NDArray[np.uint16]
) -> None:
    """How often every cluster of one mapping meets every cluster of another: added up."""
    for at in range(len(one)):
        counts[one[at], other[at]] += 1.0


@compiled
def without_centroids(
    left: NDArray[np.float64],
    sums: NDArray[np.int64],
    mappings: NDArray[np.uint16],
    centroids: NDArray[np.float64],
) -> None:
    """``left`` becomes what the centroids of all clients leave of the sums."""
    for at in range(len(sums)):
        left[at] = sums[at]
    for client in range(len(mappings)):
        for at in range(len(sums)):
            left[at] -= centroids[client, mappings[client, at]]


@compiled
def cluster_sums(
    totals: NDArray[np.float64], values: NDArray[np.float64], mappings: NDArray[np.uint16]
) -> None:
    """Add the values up, cluster by cluster of every client."""
    for client in range(len(mappings)):
        for at in range(len(values)):
            totals[client, mappings[client, at]] += values[at]
