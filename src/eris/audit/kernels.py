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
        for row in range(len(values)):
            total = 0.0
            for at in range(start, stop):
                total += gradient[coordinates[at]] * values[row, at]
            products[row, piece] = total
        total = 0.0
        for at in range(start, stop):
            one = gradient[coordinates[at]]
            total += one * one
        squares[piece] = total
