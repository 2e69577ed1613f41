"""Keys for sums over changing sets of clients: when do they give away a single client's key?

In EncCluster as its paper has it, a client's key lasts for all rounds, and the server gets the sum
of the keys of every round's clients. Sums over sets are vectors of zeros and ones; as soon as they
span a client's unit vector, its own key is a difference of sums. Known weights change nothing: they
scale columns, and rank stays.
"""

from __future__ import annotations

import numpy as np

from eris.audit.low_rank import Choice
from eris.core.errors import require
from eris.core.streams import Stream
from eris.core.vectors import Indices

PRIME = (1 << 31) - 1
"""Ranks are taken modulo this prime: products fit 64 bits, and nothing rounds. Full rank modulo
a prime is full rank; that a determinant is a multiple of it has a chance of 2⁻³¹."""


def rounds_to_keys(subsets: Choice) -> Indices:
    """The round after which each client's own key follows from the sums so far; 0 is never.

    ``subsets`` has a row a round and a column a client.

    >>> rounds_to_keys(np.array([[1, 1, 0], [0, 1, 1], [0, 1, 0]], bool)).tolist()
    [3, 3, 3]
    >>> rounds_to_keys(np.array([[1, 1, 1], [1, 1, 0]], bool)).tolist()
    [0, 0, 2]
    """
    rounds, clients = subsets.shape
    fallen = np.zeros(clients, np.int64)
    # Reduced to echelon form: a unit vector is spanned where it is a row.
    basis, pivots = np.zeros((clients, clients), np.int64), np.zeros(0, np.int64)
    for number in range(rounds):
        rank = len(pivots)
        row = subsets[number].astype(np.int64)
        row = (row - (row[pivots][:, None] * basis[:rank] % PRIME).sum(axis=0)) % PRIME
        if not row.any():
            continue
        pivot = int(np.flatnonzero(row)[0])
        row = row * pow(int(row[pivot]), -1, PRIME) % PRIME
        basis[:rank] = (basis[:rank] - basis[:rank, pivot][:, None] * row % PRIME) % PRIME
        basis[rank], pivots = row, np.append(pivots, pivot)
        alone = pivots[(basis[: rank + 1] != 0).sum(axis=1) == 1]
        fallen[alone[fallen[alone] == 0]] = number + 1
        if fallen.all():
            break
    return fallen


def sampled_subsets(stream: Stream, rounds: int, clients: int, chosen: int) -> Choice:
    """Sets of so many clients each, by lot.

    >>> sampled_subsets(Stream(0, "example"), 4, 10, 3).sum(axis=1).tolist()
    [3, 3, 3, 3]
    """
    require(1 <= chosen <= clients, "chosen", chosen, f"1 to {clients}, the clients")
    subsets = np.zeros((rounds, clients), np.bool_)
    lots = stream.permutations(rounds, clients)[:, :chosen]
    np.put_along_axis(subsets, lots, True, axis=1)
    return subsets


def sampled_rounds_to_keys(
    seed: int, runs: int, rounds: int, clients: int, chosen: int
) -> tuple[Indices, Indices]:
    """After how many rounds the first key and the last has fallen, in runs that sample by lot; 0
    where that is never, within ``rounds``."""
    first, last = np.zeros((2, runs), np.int64)
    for run in range(runs):
        stream = Stream(seed, "sampled keys", client=run)
        fallen = rounds_to_keys(sampled_subsets(stream, rounds, clients, chosen))
        first[run] = fallen[fallen > 0].min(initial=rounds + 1) % (rounds + 1)
        last[run] = fallen.max() if fallen.all() else 0
    return first, last
