"""A matrix of low rank through some of its entries: alternating least squares, from many starts.

Every pass solves a small least-squares problem for each row, then one for each column. Far from the
solution the passes crawl and settle in wrong minima, so a ridge is taken away slowly (annealed),
and a fit that stays behind is begun again from elsewhere, two ways in turn: *grow* adds one rank
after another, *anneal* begins with the leading singular vectors of the matrix filled up with zeros.
Where a few rows and columns hold a fit back, it goes on without them and takes them in again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from eris.audit.kernels import alternating_passes, refit_rows
from eris.core.errors import require
from eris.core.streams import Stream
from eris.core.vectors import Indices

Matrix = NDArray[np.float64]
Choice = NDArray[np.bool_]

SMALLEST_RIDGE = 1e-12
GROWING_RIDGE = 1e-3
ROUNDING = 5e-7
"""The residual of float32 values; a fit that is better fits rounding."""
PATIENCE, PROGRESS = 50, 0.97
"""A try ends if the residual falls by less than 3 % in so many passes."""
MOST_PASSES = 3000
NEAR, LEFT_OUT = 0.03, 0.1
"""A fit as near as this is loosened: the share of rows and of columns that fits worst is left out
for a while."""


def rms(values: NDArray[np.floating]) -> float:
    """The root mean square.

    >>> rms(np.array([3.0, 4.0, 0.0, 0.0]))
    2.5
    """
    return float(np.sqrt(np.mean(np.square(values, dtype=np.float64))))


@dataclass(frozen=True, eq=False)
class Entries:
    """Some entries of a matrix: where they are, and what is there.

    >>> some = Entries.of(np.eye(2), np.array([[True, True], [False, True]]))
    >>> some.values.tolist(), some.share
    ([1.0, 0.0, 1.0], 0.75)
    """

    rows: Indices
    columns: Indices
    values: Matrix
    shape: tuple[int, int]

    @classmethod
    def of(cls, matrix: NDArray[np.floating], seen: Choice) -> Entries:
        """The entries of a matrix that were seen."""
        require(matrix.ndim == 2, "layer", matrix.shape, "a matrix, one row an output")
        found = f"{seen.dtype} of shape {seen.shape}"
        right = seen.shape == matrix.shape and seen.dtype == np.bool_
        require(right, "mask", found, f"truth values of shape {matrix.shape}, as the layer")
        rows, columns = np.nonzero(seen)
        values = matrix[rows, columns].astype(np.float64)
        finite = bool(np.isfinite(values).all())
        require(finite, "layer", "not finite", "finite numbers wherever it was seen")
        height, width = matrix.shape
        return cls(rows, columns, values, (height, width))

    @classmethod
    def stacked(cls, parts: list[Entries]) -> Entries:
        """Matrices on top of each other: rounds of one layer whose inputs stay the same."""
        require(bool(parts), "rounds", "none", "at least one to stack")
        width = parts[0].shape[1]
        for part in parts:
            require(part.shape[1] == width, "width", part.shape[1], f"{width}, as the first's")
        heights = np.array([part.shape[0] for part in parts])
        offsets = np.cumsum(heights) - heights
        return cls(
            np.concatenate([part.rows + at for part, at in zip(parts, offsets, strict=True)]),
            np.concatenate([part.columns for part in parts]),
            np.concatenate([part.values for part in parts]),
            (int(heights.sum()), width),
        )

    def __len__(self) -> int:
        return len(self.values)

    @property
    def share(self) -> float:
        """Of all entries."""
        return len(self) / (self.shape[0] * self.shape[1])

    def within(self, rows: Choice, columns: Choice) -> Entries:
        """Those in chosen rows and columns, which are numbered anew."""
        kept = rows[self.rows] & columns[self.columns]
        return Entries(
            (np.cumsum(rows) - 1)[self.rows[kept]],
            (np.cumsum(columns) - 1)[self.columns[kept]],
            self.values[kept],
            (int(rows.sum()), int(columns.sum())),
        )

    @cached_property
    def by_row(self) -> csr_array:
        """Row by row."""
        return _compressed(self.rows, self.columns, self.values, self.shape)

    @cached_property
    def by_column(self) -> csr_array:
        """Column by column: the transpose, row by row."""
        return _compressed(self.columns, self.rows, self.values, self.shape[::-1])


def _compressed(
    rows: Indices, columns: Indices, values: Matrix, shape: tuple[int, ...]
) -> csr_array:
    """Built by hand: what is zero was seen, too, and stays."""
    order = np.lexsort((columns, rows))
    starts = np.zeros(shape[0] + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=shape[0]), out=starts[1:])
    return csr_array((values[order], columns[order], starts), shape=shape)


def passes(
    left: Matrix,
    right: Matrix,
    entries: Entries,
    ridge: float,
    count: int,
    *,
    decay: float = 1.0,
    tolerance: float = 0.0,
) -> float:
    """Alternating passes in place, from ``right``; the residual on the entries, relative."""
    rows, columns = entries.by_row, entries.by_column
    whole = float(entries.values @ entries.values)
    square = alternating_passes(
        left, right,
        rows.indptr, rows.indices, rows.data,
        columns.indptr, columns.indices, columns.data,
        ridge, decay, count, tolerance**2 * whole, SMALLEST_RIDGE, PATIENCE, PROGRESS,
    )  # fmt: skip
    return float(np.sqrt(square / whole)) if whole else 0.0


# -- tries ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Factors:
    """left·rightᵀ, and how far it is from the entries it was fitted to, relative to them."""

    left: Matrix
    right: Matrix
    residual: float


def fit(entries: Entries, rank: int, tolerance: float, tries: int, seed: int = 0) -> Factors:
    """The best of several tries; the first that reaches the tolerance ends them.

    A try goes on until it stands still, for under noise the tolerance is not yet the best.

    >>> left, right = np.arange(1.0, 31).reshape(15, 2) ** 0.5, np.arange(24.0).reshape(12, 2)
    >>> matrix = left @ right.T
    >>> seen = np.add.outer(np.arange(15), 3 * np.arange(12)) % 4 != 0
    >>> found = fit(Entries.of(matrix, seen), rank=2, tolerance=1e-9, tries=4)
    >>> bool(np.allclose(found.left @ found.right.T, matrix))
    True
    """
    best: Factors | None = None
    for number in range(tries):
        stream, goal = Stream(seed, "completion", round=number), min(tolerance, ROUNDING)
        if number % 2 == 0 and rank < 16:
            found = _grown(entries, rank, goal, stream)
        else:
            found = _annealed(entries, rank, goal, stream, 0.9 if number == 0 else 0.97)
        if tolerance <= found.residual < NEAR:
            found = min(found, _loosened(entries, found, goal), key=lambda one: one.residual)
        if best is None or found.residual < best.residual:
            best = found
        if best.residual < tolerance:
            break
    assert best is not None
    return best


def _grown(entries: Entries, rank: int, goal: float, stream: Stream) -> Factors:
    height, width = entries.shape
    left, right = np.zeros((height, 0)), np.zeros((width, 0))
    each = 30 if rank <= 8 else 10
    for now in range(1, rank + 1):
        off = _off(entries, left, right)
        new = stream.normal(now * width, width)
        for _ in range(10):
            new = off.T @ (off @ new)
            new /= max(float(np.linalg.norm(new)), 1e-300)
        right = np.column_stack([right, new * np.sqrt(width)])
        left = np.zeros((height, now))
        if now < rank:
            passes(left, right, entries, GROWING_RIDGE, each)
    residual = passes(left, right, entries, GROWING_RIDGE, MOST_PASSES, decay=0.9, tolerance=goal)
    return Factors(left, right, residual)


def _loosened(entries: Entries, found: Factors, goal: float) -> Factors:
    """A fit that went on without the rows and columns that fit worst, and then with them again."""
    left, right = found.left.copy(), found.right.copy()
    off = np.square(entries.values - _fitted(entries.rows, entries.columns, left, right))
    rows, columns = (
        _fitting(np.bincount(places, off, count) / np.bincount(places, minlength=count))
        for places, count in zip((entries.rows, entries.columns), entries.shape, strict=True)
    )
    some, these = left[rows], right[columns]
    passes(some, these, entries.within(rows, columns), SMALLEST_RIDGE, MOST_PASSES, tolerance=goal)
    left[rows], left[~rows] = some, _refitted(entries.within(~rows, columns).by_row, these)
    right = _refitted(entries.by_column, left)
    residual = passes(left, right, entries, SMALLEST_RIDGE, MOST_PASSES, tolerance=goal)
    return Factors(left, right, residual)


def _refitted(rows: csr_array, known: Matrix) -> Matrix:
    """Every row by least squares on what it shows of the known factor."""
    found = np.zeros((rows.shape[0], known.shape[1]))
    refit_rows(found, known, rows.indptr, rows.indices, rows.data, SMALLEST_RIDGE)
    return found


def _fitting(errors: Matrix) -> Choice:
    return np.asarray(errors <= np.quantile(errors, 1 - LEFT_OUT))


def _fitted(rows: Indices, columns: Indices, left: Matrix, right: Matrix) -> Matrix:
    return np.asarray(np.einsum("ij,ij->i", left[rows], right[columns]))


def _off(entries: Entries, left: Matrix, right: Matrix) -> csr_array:
    """What the product leaves of the entries."""
    rows = entries.by_row
    which = np.repeat(np.arange(entries.shape[0]), np.diff(rows.indptr))
    fitted = _fitted(which, rows.indices, left, right)
    return csr_array((rows.data - fitted, rows.indices, rows.indptr), shape=entries.shape)


def _annealed(entries: Entries, rank: int, goal: float, stream: Stream, decay: float) -> Factors:
    height, width = entries.shape
    filled = entries.by_row
    right = stream.normal(0, width * rank).reshape(width, rank)
    for _ in range(4):
        right, _ = np.linalg.qr(filled.T @ (filled @ right))
    right, left = right * np.sqrt(width), np.zeros((height, rank))
    residual = passes(left, right, entries, 1.0, MOST_PASSES, decay=decay, tolerance=goal)
    return Factors(left, right, residual)
