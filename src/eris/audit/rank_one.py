"""A matrix of rank 1 through some of its entries: what hangs together is known.

Visible entries that are not zero are the edges of a graph between rows and columns. An entry is
determined if and only if its row and its column are connected: along a path, values divided by
each other lead from one to the other. Nothing is searched, and there are no wrong minima.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import breadth_first_order, connected_components, minimum_spanning_tree

from eris.audit.low_rank import SMALLEST_RIDGE, Choice, Entries, Factors, Matrix, passes

AVERAGING = 10
"""Passes that average the rounding along the paths."""


def connected(entries: Entries) -> tuple[Choice, Choice]:
    """The rows and columns of the part that hangs together and has most columns.

    >>> seen = np.array([[True, True, False], [False, True, False], [False, False, True]])
    >>> rows, columns = connected(Entries.of(np.ones((3, 3)), seen))
    >>> rows.tolist(), columns.tolist()
    ([True, True, False], [True, True, False])
    """
    height = entries.shape[0]
    _, part = connected_components(_graph(entries, np.ones(len(entries))), directed=False)
    largest = np.bincount(part[height:]).argmax()
    return part[:height] == largest, part[height:] == largest


def along_paths(entries: Entries) -> Factors:
    """Factors of entries that hang together; the paths lead over the largest values there are.

    >>> left, right = np.array([1.0, 2, 4]), np.array([1.0, 3, 5])
    >>> seen = np.array([[True, True, False], [False, True, True], [True, False, True]])
    >>> found = along_paths(Entries.of(np.outer(left, right), seen))
    >>> (found.left @ found.right.T).round(9)[0].tolist()
    [1.0, 3.0, 5.0]
    """
    height, width = entries.shape
    steps = np.log(np.maximum(np.abs(entries.values), np.finfo(np.float64).tiny))
    tree = minimum_spanning_tree(_graph(entries, 1 + steps.max() - steps))
    start = int(entries.rows[np.argmax(steps)])
    order, before = breadth_first_order(tree, start, directed=False)
    nodes, parents = order[1:], before[order[1:]]
    rows, columns = np.minimum(nodes, parents), np.maximum(nodes, parents) - height
    ratios = np.ones(height + width)
    values = entries.by_row[rows, columns]
    for node, parent, value in zip(nodes, parents, values, strict=True):
        ratios[node] = value / ratios[parent]
    left, right = _column(ratios[:height]), _column(ratios[height:])
    residual = passes(left, right, entries, SMALLEST_RIDGE, AVERAGING)
    return Factors(left, right, residual)


def _column(values: Matrix) -> Matrix:
    return np.ascontiguousarray(values[:, None])


def _graph(entries: Entries, lengths: Matrix) -> coo_array:
    """Rows first, then columns; an edge for every entry that is not zero."""
    height, width = entries.shape
    some = entries.values != 0
    places = entries.rows[some], height + entries.columns[some]
    return coo_array((lengths[some], places), shape=(height + width, height + width)).tocsr()
