"""The span test: membership from inputs alone.

The gradient of a linear layer is Σ δ_i (x_i, 1)ᵀ, so its row space is spanned by the inputs of the
samples it is of. A candidate was among them if it lies in there: no model, no label and no gradient
of the candidate is needed. Of a published mean nothing needs to be completed either: it is spanned
by the samples of all clients, through any secure sum. Past the width of the layer the test does not
stop but fades. (DAGER has it for the tokens of transformers: Petrov et al., NeurIPS 2024.)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from eris.audit.low_rank import Matrix
from eris.core.errors import require

NEGLIGIBLE = 1e-6
"""Singular values below this share of the largest are rounding."""


def row_space(layer: NDArray[np.floating], rank: int | None = None) -> Matrix:
    """An orthonormal basis, in columns, of the rows of a layer's gradient; of its leading ``rank``
    directions where noise fills all others.

    >>> row_space(np.array([[2.0, 0, 0], [0, 0, 3.0]])).shape
    (3, 2)
    """
    require(bool(np.isfinite(layer).all()), "layer", "not finite", "finite numbers throughout")
    _, sizes, rows = np.linalg.svd(np.asarray(layer, np.float64), full_matrices=False)
    found = int((sizes > NEGLIGIBLE * sizes[0]).sum()) if sizes[0] > 0 else 0
    return np.asarray(rows[: found if rank is None else min(rank, found)].T)


def span_scores(
    basis: Matrix, inputs: NDArray[np.floating], columns: NDArray[np.bool_] | None = None
) -> NDArray[np.float64]:
    """How near every input is to the row space, from −1 to 0: higher for what was trained on.

    ``inputs`` are rows as the layer takes them, with a 1 at the end if it has a bias. Of a
    completed layer ``columns`` says which are determined; ``basis`` is then of those.

    >>> basis = row_space(np.outer([1.0, 2.0], [0.5, 0.0, 1.0]))
    >>> span_scores(basis, np.array([[0.5, 0.0, 1.0], [0.0, 0.5, 1.0]])).round(2).tolist()
    [-0.0, -0.6]
    """
    given = np.asarray(inputs, np.float64)
    given = given if columns is None else given[:, columns]
    expected = f"{len(basis)} columns, as the layer's that are known"
    require(given.shape[1] == len(basis), "inputs", given.shape, expected)
    beside = given - (given @ basis) @ basis.T
    sizes = np.linalg.norm(given, axis=1)
    return np.asarray(-np.linalg.norm(beside, axis=1) / np.where(sizes > 0, sizes, 1.0))
