"""Clients' clustered models from what EncCluster's server must know: mappings and opened sums.

Coordinate t of the sum is v_t = Σ_i m_{i,P_i(t)}: the server looked up the clusters P_i(t) itself
and has opened v_t. The centroids m_ij are the unknowns of a linear system, and no encryption of
them changes it. Its rank is N(κ−1)+1 at most, for a constant may move from one client to another.
If the rank is reached, every difference of two centroids of a client follows, exactly. Below it,
some clusters are *tied*: all their coordinates lie in such clusters of the others, too. Which ones,
the kernel says. The constant of a client is found by setting the mean of its model to the
aggregate's.

Where cells are wider than what a client changed, the aggregate is the better guess; clipped to the
cell of every coordinate, which the mapping tells, it is better than both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eris.audit.kernels import cluster_sums, pair_counts, without_centroids
from eris.audit.low_rank import Choice, Matrix
from eris.core.errors import InvalidSetting, require
from eris.core.vectors import Indices, Vector

KERNEL = 1e-9
"""Eigenvalues below this are zero, of a Gram matrix whose diagonal is 1: rounding leaves 1e-15, the
least that was seen above it is 5e-6."""
TIED = 1e-6
"""What of a difference may lie in the kernel, relative, before it counts as undetermined: rounding
leaves 2e-12, a tied cluster of one coordinate among 2²⁴ at least 2e-4."""
REFINED = 1
"""Further solutions, each of what the last one left: takes out what rounding did."""
MOST_UNKNOWNS = 1 << 13
"""Centroids of all clients: the eigenvectors of so many take half a gigabyte."""

Mappings = NDArray[np.uint16]
"""The cluster of every coordinate, a row a client."""


@dataclass(frozen=True, eq=False)
class ReadCentroids:
    """What mappings and sums say about every client."""

    rank: int
    bound: int
    """N(κ−1)+1, the most that the rank can be."""
    sizes: Indices
    """Coordinates of every cluster, a row a client."""
    references: Indices
    """Each client's most populous cluster, from which differences are taken."""
    differences: Indices
    """m_ij − m_i,reference, rounded; those that are not determined are guesses."""
    determined: Choice
    """Differences that every solution shares; those to the reference itself are none."""
    residual: float
    """What the solution leaves of the sums, relative to their deviation: near 1 if the mappings
    are not of these sums."""
    centroids: Matrix
    """As the clients have them, offset included; NaN where a cluster is empty."""
    aggregate: Vector
    mappings: Mappings
    weights: Matrix
    """The clients' samples."""

    def model(self, client: int) -> Vector:
        """First estimate: every coordinate is its centroid."""
        return np.asarray(self.centroids[client].astype(np.float32)[self.mappings[client]])

    def clipped(self, client: int) -> Vector:
        """Second estimate: the aggregate, clipped to the client's cells."""
        return clipped_to_cells(self.aggregate, self.mappings[client], self.centroids[client])


def read_centroids(
    sums: NDArray[np.int64],
    mappings: Mappings,
    samples: Sequence[int],
    clusters: int,
    *,
    fraction_bits: int = 20,
    eligible: int | None = None,
) -> ReadCentroids:
    """Solve the opened sums of one segment for the centroids of its clients.

    A client's integers are its centroids times 2^``fraction_bits`` and its share of the samples
    of all clients that could have taken part; ``eligible`` is that number if it is not the sum of
    ``samples``.

    >>> mappings = np.array([[0, 0, 1, 1, 1], [0, 1, 0, 1, 2]], np.uint16)
    >>> found = read_centroids(np.array([12, 13, 22, 23, 29]), mappings, [1, 1], 3, fraction_bits=0)
    >>> found.rank, found.bound, found.references.tolist()
    (4, 5, [1, 0])
    >>> found.differences[0].tolist(), found.determined[0].tolist()
    ([-10, 0, 0], [True, False, False])
    >>> found.differences[1].tolist(), found.determined[1].tolist()
    ([0, 1, 7], [False, True, True])
    """
    weights = _checked(sums, mappings, samples, clusters, eligible)
    count, width = mappings.shape
    sums = np.ascontiguousarray(sums)
    mappings = np.ascontiguousarray(mappings)
    shares = weights / weights.sum()
    sizes = np.array([np.bincount(row, minlength=clusters) for row in mappings])
    present = sizes.ravel() > 0
    scales = 1 / np.sqrt(sizes.ravel()[present])
    values, vectors = np.linalg.eigh(_gram(mappings, clusters, present, scales))
    kernel = int(np.searchsorted(values, KERNEL))
    spanned, inverse = vectors[:, kernel:], 1 / values[kernel:]

    # What the kernel leaves open stays at the start, so that has to be near.
    totals = np.zeros((count, clusters))
    cluster_sums(totals, sums.astype(np.float64), mappings)
    found = shares[:, None] * totals / np.maximum(sizes, 1)
    left = np.empty(width)
    without_centroids(left, sums, mappings, found)
    for _ in range(1 + REFINED):
        totals[:] = 0.0
        cluster_sums(totals, left, mappings)
        along = spanned.T @ (scales * totals.ravel()[present])
        found.ravel()[present] += scales * (spanned @ (inverse * along))
        without_centroids(left, sums, mappings, found)
    deviation = float(sums.std())

    references = sizes.argmax(axis=1)
    rows, own = np.zeros((count * clusters, kernel)), np.ones(count * clusters)
    rows[present], own[present] = scales[:, None] * vectors[:, :kernel], scales
    determined = _determined(rows, own, references, clusters) & (sizes > 0)
    from_reference = found - np.take_along_axis(found, references[:, None], axis=1)
    from_reference[sizes == 0] = 0.0
    differences = np.rint(from_reference).astype(np.int64)
    exact = np.where(determined, differences, from_reference)
    offsets = shares * sums.mean() - (sizes * exact).sum(axis=1) / width
    unit = (weights.sum() if eligible is None else eligible) * 2.0**-fraction_bits
    return ReadCentroids(
        rank=len(values) - kernel,
        bound=count * (clusters - 1) + 1,
        sizes=sizes,
        references=references,
        differences=differences,
        determined=determined,
        residual=float(np.sqrt(np.mean(left**2))) / deviation if deviation else 0.0,
        centroids=np.where(sizes > 0, exact + offsets[:, None], np.nan) * unit / weights[:, None],
        aggregate=(sums * (unit / weights.sum())).astype(np.float32),
        mappings=mappings,
        weights=weights,
    )


def clipped_to_cells(
    values: Vector, mapping: NDArray[np.uint16], centroids: NDArray[np.floating]
) -> Vector:
    """Values, each moved into the cell of its cluster: what is nearest to that centroid.

    >>> centroids = np.array([0.0, 1.0, 4.0])
    >>> clipped_to_cells(np.full(3, 2.0, np.float32), np.array([0, 1, 2], np.uint16), centroids)
    array([0.5, 2. , 2.5], dtype=float32)
    """
    known = np.flatnonzero(np.isfinite(centroids))
    order = known[np.argsort(centroids[known], kind="stable")]
    between = (centroids[order[1:]] + centroids[order[:-1]]) / 2
    lowest, highest = np.full((2, len(centroids)), [[-np.inf], [np.inf]], np.float32)
    lowest[order[1:]], highest[order[:-1]] = between, between
    return np.clip(values, lowest[mapping], highest[mapping])


def _checked(
    sums: NDArray[np.int64],
    mappings: Mappings,
    samples: Sequence[int],
    clusters: int,
    eligible: int | None,
) -> Matrix:
    """The samples as weights, if all of it is of one segment."""
    right = sums.dtype == np.int64 and sums.ndim == 1 and len(sums) > 0
    require(right, "sums", f"{sums.dtype} of shape {sums.shape}", "one 64-bit integer a coordinate")
    right = mappings.dtype == np.uint16 and mappings.shape == (len(samples), len(sums))
    expected = f"uint16 of shape {(len(samples), len(sums))}: a row a client, as the sums"
    require(right, "mappings", f"{mappings.dtype} of shape {mappings.shape}", expected)
    weights = np.asarray(samples, np.float64)
    require(bool((weights > 0).all()), "samples", list(samples), "numbers above 0")
    if eligible is not None:
        require(eligible >= weights.sum(), "eligible", eligible, "the clients' samples or more")
    most = int(mappings.max())
    if most >= clusters:
        raise InvalidSetting("mappings", f"cluster {most}", f"clusters 0 to {clusters - 1}")
    unknowns = len(samples) * clusters
    expected = f"clients times clusters up to {MOST_UNKNOWNS}"
    require(unknowns <= MOST_UNKNOWNS, "unknowns", unknowns, expected)
    return weights


def _gram(mappings: Mappings, clusters: int, present: Choice, scales: Matrix) -> Matrix:
    """How often clusters meet, scaled to a diagonal of 1."""
    count = len(mappings)
    gram = np.zeros((count, clusters, count, clusters))
    block = np.empty((clusters, clusters))
    for one in range(count):
        for other in range(one + 1):
            block[:] = 0.0
            pair_counts(block, mappings[one], mappings[other])
            gram[one, :, other, :], gram[other, :, one, :] = block, block.T
    whole = gram.reshape(count * clusters, count * clusters)
    whole = whole if present.all() else whole[np.ix_(present, present)]
    whole *= scales
    whole *= scales[:, None]
    return whole


def _determined(rows: Matrix, own: Matrix, references: Indices, clusters: int) -> Choice:
    """Where no vector of the kernel moves a centroid against its client's reference."""
    by_client = rows.reshape(len(references), clusters, -1)
    lengths = own.reshape(len(references), clusters)
    everyone = np.arange(len(references))
    moved = np.linalg.norm(by_client - by_client[everyone, references][:, None], axis=2)
    size = np.hypot(lengths, lengths[everyone, references][:, None])
    found: Choice = moved <= TIED * size
    found[everyone, references] = False
    return found
