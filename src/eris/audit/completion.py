"""Completion: a random part of a linear layer's gradient is the whole gradient.

Over b samples the gradient of a layer y = Wx + c is [∂W | ∂c] = Σ δ_i (x_i, 1)ᵀ: a matrix of rank
b, whatever its size m × n. It has b(m + n − b) unknowns; the owner of one shard of many often sees
more entries than that, and where they lie is public. So nothing is guessed and no gradient matched:
it is linear algebra, and entries beyond the unknowns certify what was found.

The parts are known: the rank and what ReLU does to it (SPEAR: Dimitrov, Baader, Müller and Vechev,
NeurIPS 2024), which patterns of entries complete (Singer and Cucuringu 2010; Király, Theran and
Tomioka 2015). What is ours is the view of an owner and of kept sets, and stacking over rounds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from eris.audit.determined import call_zeros, determined
from eris.audit.low_rank import ROUNDING, Choice, Entries, Matrix, fit
from eris.audit.rank_one import along_paths, connected
from eris.core.errors import require

FLOAT32, FLOAT16, BFLOAT16 = ROUNDING, 3e-4, 3e-3
"""Tolerances by what values were rounded to before they travelled. Between a fit that is solved and
one that is stuck lie orders of magnitude, so they are not delicate."""
ROUNDED_OFTEN = 30
FEWEST_CHECKS = 10
"""Entries beyond the unknowns without which nothing is certified."""
UNKNOWN_UP_TO = 16
"""Samples that are tried where nobody says how many there are."""


def precision_of_difference(models: float, update: float) -> float:
    """The tolerance for an update that is a difference of float32 models, by root mean squares.

    Every local step rounds, and rows that are small count in the fit as large ones do.

    >>> precision_of_difference(0.0, 1.0) == FLOAT32
    True
    """
    rounding = float(np.finfo(np.float32).eps) * models / update if update else 0.0
    return min(FLOAT32 + ROUNDED_OFTEN * rounding, BFLOAT16)


@dataclass(frozen=True, eq=False)
class CompletedLayer:
    """A layer's gradient as left·rightᵀ: a row of ``left`` an output, one of ``right`` an input.

    What the visible entries do not determine is NaN. ``why`` says why a layer is not certified:
    "count" if there are too few entries for so many samples, "stuck" if no fit was found (and "not
    tried" where samples are too many to be worth it).
    """

    samples: int
    """The rank that was fitted."""
    left: Matrix
    right: Matrix
    residual: float
    """Of the fit on the visible entries, relative; NaN if none was tried."""
    redundancy: int
    """Visible entries beyond the unknowns: so many independent checks."""
    visible: float
    """The share of the entries that was seen."""
    why: str = ""

    @property
    def certified(self) -> bool:
        """Whether the fit meets every visible entry, and enough of them are checks."""
        return not self.why

    @property
    def rows(self) -> Choice:
        """Which outputs are determined."""
        return np.asarray(np.isfinite(self.left).all(axis=1))

    @property
    def columns(self) -> Choice:
        """Which inputs are determined."""
        return np.asarray(np.isfinite(self.right).all(axis=1))

    @property
    def matrix(self) -> Matrix:
        """The whole layer, NaN where it is not determined."""
        return self.left @ self.right.T


def complete(
    layer: NDArray[np.floating] | Entries,
    seen: Choice | None = None,
    samples: int | None = None,
    *,
    tolerance: float = FLOAT32,
    tries: int | None = None,
    seed: int = 0,
) -> CompletedLayer:
    """Complete the gradient of a linear layer from the entries of it that were seen.

    ``layer`` is [∂W | ∂c], one row an output, the bias as last column if there is one; where
    ``seen`` is false its values do not matter. ``samples`` is how many the gradient is of. If it is
    None, 1, 2, 3 … are tried, and the smallest that certifies is kept. ``tolerance`` is the
    precision of the values, by which a fit is judged: ``FLOAT32``, ``FLOAT16``, ``BFLOAT16``, or
    1.5 times the noise, relative to the values.

    Rounds of a first layer on the same samples go on top of each other (:meth:`Entries.stacked`).

    >>> error, image = np.array([0.5, -1, 0, 2]), np.array([0.3, 0.2, 0.9, 0.4, 0.7, 1])
    >>> gradient = np.outer(np.tile(error, 5), image)  # 20 units, 5 pixels and the bias
    >>> seen = np.arange(120).reshape(20, 6) % 7 < 3
    >>> found = complete(gradient, seen)
    >>> found.samples, found.certified, bool(np.allclose(found.matrix, gradient))
    (1, True, True)
    >>> (found.right / found.right[-1]).ravel().round(6).tolist()  # the image, by the bias column
    [0.3, 0.2, 0.9, 0.4, 0.7, 1.0]
    """
    entries = _entries(layer, seen)
    require(0 < tolerance < 1, "tolerance", tolerance, "a relative precision between 0 and 1")
    if samples is not None:
        require(samples >= 1, "samples", samples, "at least 1, or None if nobody knows")
        return _of_rank(entries, samples, tolerance, tries or _tries(samples), seed)
    refused = None
    for effort in (1, None):  # most ranks are settled by one try, right or wrong
        for rank in range(1, UNKNOWN_UP_TO + 1):
            found = _of_rank(entries, rank, tolerance, effort or tries or _tries(rank), seed)
            if found.certified and found.columns.any():
                return found
            if found.why == "count":
                refused = refused or found
                break
            refused = replace(found, why="stuck")
    assert refused is not None
    return refused


def _entries(layer: NDArray[np.floating] | Entries, seen: Choice | None) -> Entries:
    if isinstance(layer, Entries):
        require(seen is None, "mask", "given", "none: entries say themselves where they are")
        return layer
    matrix = np.asarray(layer)
    return Entries.of(matrix, np.ones(matrix.shape, np.bool_) if seen is None else np.asarray(seen))


def _tries(samples: int) -> int:
    """How often a fit is begun anew: for eight and more it is stuck more often, then too dear."""
    return 4 if samples < 8 else 6 if samples < 16 else 2


def _of_rank(
    entries: Entries, rank: int, tolerance: float, tries: int, seed: int
) -> CompletedLayer:
    """The layer, if it is of this rank."""
    rows, columns = _core(entries, rank)
    inner = entries.within(rows, columns)
    redundancy = len(inner) - rank * (sum(inner.shape) - rank)
    height, width = entries.shape
    none = np.full((height, rank), np.nan), np.full((width, rank), np.nan)
    if min(inner.shape) < rank or redundancy < max(FEWEST_CHECKS, rank):
        return CompletedLayer(rank, *none, np.nan, redundancy, entries.share, "count")
    sizes = _row_sizes(inner, tolerance)
    scaled = replace(inner, values=inner.values / sizes[inner.rows])
    found = along_paths(scaled) if rank == 1 else fit(scaled, rank, tolerance, tries, seed)
    if found.residual >= tolerance:
        return CompletedLayer(rank, *none, found.residual, redundancy, entries.share, "stuck")
    kept_rows, kept_columns = np.ones(inner.shape[0], np.bool_), np.ones(inner.shape[1], np.bool_)
    if rank > 1:
        kept_rows, kept_columns = determined(scaled, found, seed)
    left, right = none
    left[rows] = np.where(kept_rows[:, None], found.left * sizes[:, None], np.nan)
    right[columns] = np.where(kept_columns[:, None], found.right, np.nan)
    call_zeros(entries, left, right)
    return CompletedLayer(rank, left, right, found.residual, redundancy, entries.share)


def _core(entries: Entries, rank: int) -> tuple[Choice, Choice]:
    """Rows and columns that are not zero throughout and have enough entries among themselves."""
    rows, columns = (np.zeros(size, np.bool_) for size in entries.shape)
    some = entries.values != 0
    rows[entries.rows[some]], columns[entries.columns[some]] = True, True
    while True:
        among = rows[entries.rows] & columns[entries.columns]
        new_rows = rows & (np.bincount(entries.rows[among], minlength=len(rows)) >= rank)
        new_columns = columns & (
            np.bincount(entries.columns[among], minlength=len(columns)) >= rank
        )
        if (new_rows == rows).all() and (new_columns == columns).all():
            break
        rows, columns = new_rows, new_columns
    if rank == 1 and rows.any():
        one_rows, one_columns = connected(entries.within(rows, columns))
        rows[rows], columns[columns] = one_rows, one_columns
    return rows, columns


def _row_sizes(entries: Entries, tolerance: float) -> Matrix:
    """What rows are divided by, so that small ones carry weight, too.

    Rounds on top of each other differ in size as the loss falls. But noise is as large in a small
    row as in a large one: the coarser the values, the less rows are told apart.
    """
    height = entries.shape[0]
    squares = np.bincount(entries.rows, entries.values**2, minlength=height)
    sizes = np.sqrt(squares / np.bincount(entries.rows, minlength=height))
    typical = np.sqrt(np.mean(entries.values**2))
    return np.asarray(np.maximum(sizes, min(1.0, 100 * tolerance) * typical))
