"""How a data set is split among clients: who holds which samples.

The order is a permutation from the stream named (seed, "partition"), the stable order of its
words: words and stable sort are specified, whereas the order of a library's shuffle may change
with its version. So the same seed gives the same split everywhere.
"""

from __future__ import annotations

from collections.abc import Sized

import numpy as np
from numpy.typing import NDArray

from eris.core.errors import InvalidSetting
from eris.core.streams import Stream

Indices = NDArray[np.int64]


def iid(
    labels_or_count: Sized | int, clients: int, samples_per_client: int | None, seed: int
) -> list[Indices]:
    """Disjoint uniform samples, one per client; ``None`` shares out the whole data set.

    Sharing out leaves clients whose sizes differ by at most one. A larger ``samples_per_client``
    or ``clients`` is not an extension of a smaller one.

    >>> [part.tolist() for part in iid(10, clients=2, samples_per_client=3, seed=0)]
    [[8, 0, 5], [9, 3, 4]]
    """
    count = labels_or_count if isinstance(labels_or_count, int) else len(labels_or_count)
    if clients < 1:
        raise InvalidSetting("clients", clients, "at least 1")
    if samples_per_client is None:
        if clients > count:
            raise InvalidSetting(
                "clients", clients, f"at most {count}, so that each has one of the {count} samples"
            )
        return np.array_split(_order(count, seed), clients)
    if samples_per_client < 1:
        raise InvalidSetting("samples_per_client", samples_per_client, "at least 1")
    if clients * samples_per_client > count:
        raise InvalidSetting(
            "samples_per_client",
            samples_per_client,
            f"at most {count // clients}: {clients} clients share {count} samples",
        )
    taken = _order(count, seed)[: clients * samples_per_client]
    return list(taken.reshape(clients, samples_per_client))


def _order(count: int, seed: int) -> Indices:
    order: Indices = Stream(seed, "partition").permutations(1, count)[0]
    return order
