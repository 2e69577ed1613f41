"""What the visible entries of a matrix of low rank pin down, once factors fit them.

A residual at the noise does not say that every entry is right: the visible rows of a column may
miss a direction, for ReLU makes half of a layer's errors zero, and the ridge of the fit then picks
the same wrong answer every time. So what is determined is asked of the factors, column by column.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from eris.audit.low_rank import SMALLEST_RIDGE, Choice, Entries, Factors, Matrix, passes
from eris.core.streams import Stream

MOVED = 1e-3
"""What moves by more when the fit is shaken was not determined."""
SHAKEN = 0.1
SPANNED, SPANNED_ZERO = 3e-3, 1e-4
"""The smallest singular value of the rows that determine a column; where the column is zero,
relative to the largest."""
STEADY = 3 * MOVED
"""The smallest beside the largest: what is known to ``MOVED`` would be magnified by more than that
allows."""
LOOKED_AT = 512
"""Rows or columns that are compared to find what moved."""


def determined(entries: Entries, found: Factors, seed: int = 0) -> tuple[Choice, Choice]:
    """The rows and the columns of factors that the entries they were fitted to pin down."""
    rank = found.left.shape[1]
    rows, columns = _unmoved(entries, found, seed)
    left, right = _orthonormal(found.left), _orthonormal(found.right)
    for _ in range(2):
        columns &= _spanned(_singular(entries.by_column, left, rows))
        rows &= _spanned(_singular(entries.by_row, right, columns))
        if rows.sum() < rank or columns.sum() < rank:
            rows[:], columns[:] = False, False
    return rows, columns


def _spanned(singular: Matrix) -> Choice:
    smallest, largest = singular[:, 0], singular[:, -1]
    return np.asarray((smallest > SPANNED) & (smallest > STEADY * largest))


def call_zeros(entries: Entries, left: Matrix, right: Matrix) -> None:
    """Set to 0 those rows of factors, NaN so far, of which only zeros were seen, and enough.

    Zeros of a column may come from units that are dead. They say that the column is zero only
    where the rows that show them are determined and span all directions.
    """
    some = entries.values != 0
    for pattern, places, factor, other in (
        (entries.by_column, entries.columns, right, left),
        (entries.by_row, entries.rows, left, right),
    ):
        known: Choice = np.asarray(np.isfinite(other).all(axis=1))
        if known.sum() < other.shape[1]:
            return
        basis = np.zeros_like(other)
        basis[known] = _orthonormal(other[known])
        singular = _singular(pattern, basis, known)
        spanned = singular[:, 0] > SPANNED_ZERO * singular[:, -1]
        zero = np.bincount(places[some], minlength=len(factor)) == 0
        factor[zero & spanned] = 0.0


def _unmoved(entries: Entries, found: Factors, seed: int) -> tuple[Choice, Choice]:
    """What stays where it is when the fit is shaken and made anew.

    Medians, for one column that moves has an entry in every row.
    """
    left, right = found.left.copy(), found.right.copy()
    draws = Stream(seed, "completion shaken").normal(0, right.size).reshape(right.shape)
    right += SHAKEN * np.sqrt(np.mean(right**2, axis=0)) * draws
    passes(left, right, entries, SMALLEST_RIDGE, 300, tolerance=1.05 * found.residual)

    def still(now: Matrix, other: Matrix, was: Matrix, against: Matrix) -> Choice:
        step = -(-len(other) // LOOKED_AT)
        before = was @ against[::step].T
        shift = np.median(np.abs(now @ other[::step].T - before), axis=1)
        return np.asarray(shift <= MOVED * np.sqrt(np.mean(before**2, axis=1)))

    return (
        still(left, right, found.left, found.right),
        still(right, left, found.right, found.left),
    )


def _orthonormal(factor: Matrix) -> Matrix:
    """A basis of the same space, in columns of mean square 1."""
    return np.asarray(np.linalg.qr(factor)[0] * np.sqrt(len(factor)))


def _singular(pattern: csr_array, factor: Matrix, counted: Choice) -> Matrix:
    """For every row of a pattern: singular values, ascending, of the rows of ``factor`` at its
    places, as far as they are counted."""
    rank = factor.shape[1]
    shown = csr_array((np.ones(pattern.nnz), pattern.indices, pattern.indptr), shape=pattern.shape)
    products = np.einsum("ij,ik->ijk", factor, factor) * counted[:, None, None]
    grams = (shown @ products.reshape(len(factor), -1)).reshape(-1, rank, rank)
    return np.sqrt(np.maximum(np.linalg.eigvalsh(grams), 0.0))
