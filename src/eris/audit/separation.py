"""From a completed layer to the inputs behind it, one by one.

A layer of rank b is known as left·rightᵀ, up to an invertible b × b matrix Q: the errors are
left·Q, the inputs Q⁻¹·rightᵀ. For one sample Q is a number, which the bias column says. For
several, ReLU gives Q away: the errors of a sample are exactly zero wherever its unit was not
active, so its column of Q is a direction in which many rows are zero, and that is no accident
(SPEAR: Dimitrov, Baader, Müller and Vechev, NeurIPS 2024).

SPEAR draws b − 1 rows and takes their null vector, which is right once in 2^(b−1) draws. Here every
start walks to a direction with many zeros: Σ log(ε² + (u·q)²) over the rows u is made small by
reweighted least squares while ε falls. Of 16 samples a start in ten finds one.
"""

from __future__ import annotations

import numpy as np

from eris.audit.low_rank import Matrix
from eris.core.errors import require
from eris.core.streams import Stream

ZERO = 1e-3
"""A row counts as zero below this, relative to its length."""
FEWEST_ZEROS = 0.10
SAME, INDEPENDENT = 0.999, 1e-3
STARTS, MOST_STARTS, AT_ONCE = 512, 8192, 256
STEPS, WIDEST = 40, 0.3
"""Of a walk, and the ε it begins with; it ends at a tenth of what counts as zero."""


def separate(
    left: Matrix, right: Matrix, *, residual: float = 0.0, starts: int = MOST_STARTS, seed: int = 0
) -> Matrix | None:
    """The inputs as rows, each up to its scale; None if ReLU does not tell them apart.

    ``left`` and ``right`` are those of :class:`~eris.audit.completion.CompletedLayer`, of which
    what is NaN is left out here and stays NaN there. ``residual`` is that of the fit: under
    noise zeros are not exact. ``starts`` bounds the search.

    >>> units = np.arange(40.0)
    >>> errors = np.maximum(0, np.column_stack([np.sin(units), np.cos(2.3 * units)]))
    >>> inputs = np.array([[0.5, 0.1, 1], [0.2, 0.25, 1]])
    >>> mixed = np.array([[1.0, 2], [3, 4]])  # what a completion does not know
    >>> found = separate(errors @ mixed, inputs.T @ np.linalg.inv(mixed).T)
    >>> with_bias(found).round(6).tolist()
    [[0.5, 0.1, 1.0], [0.2, 0.25, 1.0]]
    """
    samples = left.shape[1]
    require(right.shape[1] == samples, "right", right.shape, f"{samples} columns, as left")
    known = np.isfinite(left).all(axis=1)
    if known.sum() < samples:
        return None
    basis, triangle = np.linalg.qr(left[known])
    inputs = right @ triangle.T
    if samples == 1:
        return np.asarray(inputs.T)
    lengths = np.linalg.norm(basis, axis=1)
    alive = lengths > 1e-9 * lengths.max()
    search = _Directions(basis[alive] / lengths[alive, None], max(ZERO, 2 * residual))
    mixing = search.found(starts, Stream(seed, "separation"))
    return None if mixing is None else np.linalg.solve(mixing.T, inputs.T)


def with_bias(inputs: Matrix) -> Matrix:
    """Inputs with scale and sign, from the last column: that of the bias, whose input is 1."""
    return inputs / inputs[:, -1:]


class _Directions:
    """Directions in which many rows are zero."""

    def __init__(self, rows: Matrix, zero: float) -> None:
        self._rows, self._zero = rows, zero
        self._samples = rows.shape[1]
        self._squares = np.einsum("ij,ik->ijk", rows, rows).reshape(len(rows), -1)
        self._fewest = max(self._samples + 2, FEWEST_ZEROS * len(rows))
        self._kept = np.zeros((0, self._samples))
        self._zeros = np.zeros(0, np.int64)

    def found(self, most: int, stream: Stream) -> Matrix | None:
        """One direction a sample, as rows; None if there are not so many.

        To stop as soon as there are enough would let in mixtures of two samples, which are zero
        in fewer rows: the search goes on until its second half has changed nothing.
        """
        begun, settled = 0, 0
        chosen = np.zeros((0, self._samples))
        while begun < most:
            start = stream.normal(begun * self._samples, AT_ONCE * self._samples)
            begun += AT_ONCE
            self._try(self._walked(start.reshape(AT_ONCE, self._samples)))
            now = self._selected()
            if now.shape != chosen.shape or not np.array_equal(now, chosen):
                chosen, settled = now, begun
            if len(chosen) == self._samples and begun >= max(min(most, STARTS), 2 * settled):
                break
        return chosen if len(chosen) == self._samples else None

    def _walked(self, at: Matrix) -> Matrix:
        """From every start to a direction near it in which many rows are zero."""
        at = at / np.linalg.norm(at, axis=1, keepdims=True)
        for width in np.geomspace(WIDEST, self._zero / 10, STEPS):
            weights = 1 / (width**2 + (at @ self._rows.T) ** 2)
            grams = (weights @ self._squares).reshape(-1, self._samples, self._samples)
            at = np.linalg.eigh(grams)[1][:, :, 0]
        return np.asarray(at)

    def _try(self, directions: Matrix) -> None:
        """Keep directions, as far as they make more rows zero than those alike."""
        zeros = (np.abs(self._rows @ directions.T) < self._zero).sum(axis=0)
        for place in np.argsort(-zeros, kind="stable"):
            if zeros[place] < self._fewest:
                break
            if not (self._zeros[self._alike(directions[place])] >= zeros[place]).any():
                self._add(directions[place])

    def _alike(self, direction: Matrix) -> np.ndarray:
        return np.abs(self._kept @ direction) > SAME

    def _add(self, direction: Matrix) -> None:
        """Refine a direction by all rows that it makes zero, and keep the best of those alike."""
        inactive = np.abs(self._rows @ direction) < self._zero
        direction = np.linalg.svd(self._rows[inactive])[2][-1]
        zeros = int((np.abs(self._rows @ direction) < self._zero).sum())
        alike = self._alike(direction)
        if (self._zeros[alike] >= zeros).any():
            return
        self._kept = np.vstack([self._kept[~alike], direction])
        self._zeros = np.append(self._zeros[~alike], zeros)

    def _selected(self) -> Matrix:
        """Most zeros first, each only if it is no mixture of those before it."""
        chosen = np.zeros((0, self._samples))
        for place in np.argsort(-self._zeros, kind="stable"):
            more = np.vstack([chosen, self._kept[place]])
            if np.linalg.svd(more, compute_uv=False)[-1] > INDEPENDENT:
                chosen = more
            if len(chosen) == self._samples:
                break
        return chosen
