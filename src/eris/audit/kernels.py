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
