"""k-means of weights in one dimension: a model as κ centroids and one index a weight.

Clusters of a line are intervals, so the best ones are found by a dynamic programme over where to
cut. It runs on the sorted values, gathered into at most :data:`BINS` bins: first into coarse ones,
half of them equally wide and half with equally many distinct values, then into fine ones inside
the clusters of the first pass, so that neither outliers nor narrow peaks leave too few bins where
cuts matter. Lloyd's steps on the values themselves follow each pass, to their end. Up to
:data:`BINS` distinct values each have a bin of their own, and the result is the optimum.

Sums are of doubles, in the order of the sorted values; nothing depends on the machine or on the
order of the values. Of cuts that are equally good the lowest is taken, and a value midway between
two centroids belongs to the lower one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from eris.core import kernels
from eris.core.books import Clusters
from eris.core.errors import InvalidSetting, require
from eris.core.kernels import compiled
from eris.core.vectors import Indices, Vector

BINS = 8192
"""Among whose edges the cuts are sought; of more than 256 clusters 32 for each."""
COARSE = 2048
"""Bins of the first pass, or four a cluster."""
MOST = 1024
"""Clusters of one codebook."""
LLOYD_STEPS = 1000
"""Where Lloyd's steps end at the latest; a few tens reach the end."""
_LARGEST = float(np.finfo(np.float32).max)
_Doubles = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Codebook:
    """Centroids in ascending order, and of each weight the index of its centroid."""

    centroids: Vector
    assignment: Clusters

    @property
    def clusters(self) -> int:
        """κ."""
        return len(self.centroids)

    def values(self) -> Vector:
        """The weights as their centroids."""
        return self.centroids[self.assignment]


def clustered(
    values: Vector, clusters: int, *, fewer: Literal["refuse", "allow"] = "refuse"
) -> Codebook:
    """Near-optimal k-means of a vector.

    Fewer distinct values than clusters are refused or, where ``fewer`` allows it, get a centroid
    each. Two centroids are the least that a codebook has: a constant vector gets its value twice,
    and all weights the first.

    >>> book = clustered(np.array([5, 0, 1, 6, 0], np.float32), 2)
    >>> book.centroids, book.assignment
    (array([0.33333334, 5.5       ], dtype=float32), array([1, 0, 0, 1, 0], dtype=uint16))
    """
    require(2 <= clusters <= MOST, "clusters", clusters, f"2 to {MOST}")
    if fewer not in ("refuse", "allow"):
        raise InvalidSetting("fewer", fewer, "refuse or allow")
    if values.dtype != np.float32 or values.ndim != 1 or not len(values):
        found = f"{values.dtype} of shape {values.shape}"
        raise InvalidSetting("values", found, "a float32 vector of at least 1 coordinate")
    refused, first = kernels.beyond(values, None, None, _LARGEST)
    if refused:
        raise InvalidSetting(f"values[{first}]", float(values[first]), "a finite number")
    ordered = np.sort(values)
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    if len(starts) < clusters:
        if fewer == "refuse":
            expected = f"at most the {len(starts)} distinct values, or fewer='allow'"
            raise InvalidSetting("clusters", clusters, expected)
        clusters = len(starts)
    if clusters == 1:
        return Codebook(np.repeat(ordered[:1] + np.float32(0), 2), np.zeros(len(values), np.uint16))
    cuts = _cut(ordered, starts, clusters)
    assignment = np.empty(len(values), np.uint16)
    _assign(assignment, values, ordered[cuts[1:-1]])
    centroids = np.empty(clusters, np.float32)
    _centroids(centroids, ordered, cuts)
    return Codebook(centroids, assignment)


def _cut(ordered: Vector, starts: Indices, clusters: int) -> Indices:
    """Where clusters begin among the sorted values, and their end."""
    # From the middle of the range: what is lost of small differences is least there.
    centre = (float(ordered[0]) + float(ordered[-1])) / 2
    sums = np.empty(len(ordered) + 1, np.float64)
    _running_sums(sums, ordered, centre)
    bins = max(BINS, 32 * clusters)
    if len(starts) <= bins:
        return _improved(ordered, np.append(starts, len(ordered)), sums, centre, clusters)
    cuts = np.array([0, len(ordered)])
    # Of many clusters the first pass may be far off, and the second then ends in its bins.
    fine = [bins // clusters] * (1 if clusters <= 256 else 2)
    for parts in (max(COARSE, 4 * clusters), *fine):
        edges = _split(ordered, starts, cuts, parts)
        cuts = _improved(ordered, edges, sums, centre, clusters)
    return cuts


def _improved(
    ordered: Vector, edges: Indices, sums: _Doubles, centre: float, clusters: int
) -> Indices:
    """The best cuts at edges of bins, and what Lloyd's steps make of them."""
    cuts = edges[_best_cuts(edges.astype(np.float64), sums[edges], clusters)]
    _lloyd(cuts, ordered, sums, centre)
    return cuts


def _split(ordered: Vector, starts: Indices, cuts: Indices, parts: int) -> Indices:
    """Edges of bins that split every cell: into ``parts``/2 of equal width and as many of equally
    many distinct values. Equal values stay together."""
    half = np.arange(parts // 2)
    low, high = ordered[cuts[:-1]].astype(np.float64), ordered[cuts[1:] - 1].astype(np.float64)
    levels = low[:, None] + (high - low)[:, None] * half / len(half)
    even = np.searchsorted(ordered, levels.astype(np.float32).ravel())
    ranks = np.searchsorted(starts, cuts)
    places = ranks[:-1, None] + np.diff(ranks)[:, None] * half // len(half)
    return np.unique(np.concatenate([even, starts[places].ravel(), cuts]))


@compiled
def _running_sums(out: _Doubles, ordered: Vector, centre: float) -> None:
    """out[i] = the sum of the first i values, each less ``centre``."""
    out[0] = 0.0
    for i in range(ordered.shape[0]):
        out[i + 1] = out[i] + (np.float64(ordered[i]) - centre)


@compiled
def _best_cuts(counts: _Doubles, sums: _Doubles, clusters: int) -> Indices:
    """Cut bins into runs so that the sum of (sum of a run)² / (its count) is largest.

    That sum is what the runs' means take away of the sum of squares, so the rest, the inertia, is
    least. ``counts`` and ``sums`` are running totals at the edges. The best last cut for the first
    j bins never falls as j grows: so half of all j are settled, then half of the others between
    their neighbours, and so on, about bins · log bins steps a cluster.
    """
    bins = counts.shape[0] - 1
    table = np.zeros((clusters, bins + 1), np.uint16)
    before, now = np.zeros(bins + 1), np.zeros(bins + 1)
    for j in range(1, bins + 1):
        before[j] = sums[j] * sums[j] / counts[j]
    for k in range(1, clusters):
        first = k + 1  # bins that k + 1 runs need at least
        stride = 1
        while 2 * stride <= bins - k:
            stride *= 2
        while stride >= 1:
            for j in range(first + stride - 1, bins + 1, 2 * stride):
                low = k if j - stride < first else np.int64(table[k, j - stride])
                high = np.int64(j - 1)
                if j + stride <= bins and table[k, j + stride] < high:
                    high = np.int64(table[k, j + stride])
                best, at = -1.0, low
                for i in range(low, high + 1):
                    gain = sums[j] - sums[i]
                    gain = before[i] + gain * gain / (counts[j] - counts[i])
                    if gain > best:
                        best, at = gain, i
                now[j], table[k, j] = best, at
            stride //= 2
        before, now = now, before
    cuts = np.empty(clusters + 1, np.int64)
    cuts[clusters] = bins
    for k in range(clusters - 1, -1, -1):
        cuts[k] = table[k, cuts[k + 1]]
    return cuts


@compiled
def _lloyd(cuts: Indices, ordered: Vector, sums: _Doubles, centre: float) -> None:
    """Move each cut to the middle between the means beside it, until none moves.

    A step that would leave a cluster without values is not taken.
    """
    clusters = cuts.shape[0] - 1
    means, moved = np.empty(clusters), cuts.copy()
    for _ in range(LLOYD_STEPS):
        for k in range(clusters):
            total = sums[cuts[k + 1]] - sums[cuts[k]]
            means[k] = total / (cuts[k + 1] - cuts[k])
        for k in range(1, clusters):
            middle = (means[k - 1] + means[k]) / 2
            low, high = cuts[k - 1], cuts[k + 1]
            while low < high:
                at = (low + high) // 2
                if np.float64(ordered[at]) - centre <= middle:
                    low = at + 1
                else:
                    high = at
            moved[k] = low
        changed = False
        for k in range(1, clusters + 1):
            if moved[k] <= moved[k - 1]:
                return
            changed |= moved[k] != cuts[k]
        if not changed:
            return
        cuts[:] = moved


@compiled
def _centroids(out: Vector, ordered: Vector, cuts: Indices) -> None:
    """The mean of each cluster, from its least value on: exact where all are equal."""
    for k in range(out.shape[0]):
        least = np.float64(ordered[cuts[k]])
        total = 0.0
        for i in range(cuts[k], cuts[k + 1]):
            total += np.float64(ordered[i]) - least
        out[k] = np.float32(least + total / (cuts[k + 1] - cuts[k]))


@compiled
def _assign(out: Clusters, values: Vector, bounds: Vector) -> None:
    """Of each value how many of the ascending ``bounds`` are not above it."""
    step = 1
    while 2 * step <= bounds.shape[0]:
        step *= 2
    for i in range(values.shape[0]):
        below, jump = 0, step
        while jump:
            if below + jump <= bounds.shape[0] and bounds[below + jump - 1] <= values[i]:
                below += jump
            jump >>= 1
        out[i] = below
