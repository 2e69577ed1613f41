"""How a data set is split among clients: who holds which samples.

Every split is a function of its arguments and a seed, the same on every machine: orders are the
stable order of the words of a named stream, and weighted draws need only sums, products and
comparisons, whose results IEEE 754 fixes. A library's shuffle or gamma sampler may change with its
version; these may not. Clients never share a sample, and none is left without: that is an error
which names the client.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized

import numpy as np
from numpy.typing import ArrayLike

from eris.core.errors import InvalidSetting
from eris.core.streams import Stream
from eris.core.vectors import Indices

Partition = Sequence[Indices]
"""Of each client, the places of its samples in the data set."""

_ALPHAS = (1e-9, 1e9)
_FINE = 1 << 40


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
    _check_sizes(count, clients, samples_per_client)
    order = _order(count, seed, "partition")
    if samples_per_client is None:
        return np.array_split(order, clients)
    return list(order[: clients * samples_per_client].reshape(clients, samples_per_client))


def dirichlet(
    labels: ArrayLike,
    clients: int,
    alpha: float,
    seed: int,
    samples_per_client: int | None = None,
) -> list[Indices]:
    """Label skew: class proportions drawn from a symmetric Dirichlet(alpha); small is skewed.

    With ``samples_per_client``, each client in turn draws its own proportions over the classes
    and then that many samples; a class that has run out drops out of the later draws (Hsu et al.,
    arXiv:1909.06335). With ``None``, the whole data set is shared out: for each class, proportions
    over the clients (Yurochkin et al., ICML 2019), so that sizes differ as well.

    The draws are Pólya's urn, which starts with ``alpha`` balls of each colour and returns every
    drawn ball with one more of its colour: the same law as Dirichlet proportions followed by
    independent draws, without logarithms or powers.

    >>> parts = dirichlet([0, 1] * 8, clients=3, alpha=0.1, seed=0, samples_per_client=4)
    >>> [(part % 2).tolist() for part in parts]
    [[0, 0, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0]]
    """
    names, classes = _classes(labels)
    _check_sizes(len(classes), clients, samples_per_client)
    if not _ALPHAS[0] <= alpha <= _ALPHAS[1]:
        raise InvalidSetting("alpha", alpha, "a number from 1e-9 to 1e9")
    order = _order(len(classes), seed, "partition/dirichlet")
    pools = [order[classes[order] == c] for c in range(len(names))]
    if samples_per_client is not None:
        return _deal(pools, clients, alpha, seed, samples_per_client)
    owners = np.empty(len(classes), np.int64)
    for c, pool in enumerate(pools):
        owners[pool] = _urn(len(pool), clients, alpha, Stream(seed, "partition/urn", shard=c))
    parts = [order[owners[order] == client] for client in range(clients)]
    for client, part in enumerate(parts):
        if len(part) == 0:
            raise InvalidSetting(
                "alpha",
                alpha,
                f"a larger one: client {client} of {clients} would have no sample; fewer clients, "
                "another seed or samples_per_client help too",
            )
    return parts


def by_class(labels: ArrayLike, clients: int, classes_per_client: int, seed: int) -> list[Indices]:
    """Label skew: every client holds samples of exactly ``classes_per_client`` classes.

    Each client in turn gets the classes that the fewest have so far, ties by lot; the holders of a
    class share all of it evenly. With fewer than one place for each class, some are left out.

    >>> [part.tolist() for part in by_class([0, 0, 0, 1, 1, 1], 2, classes_per_client=1, seed=0)]
    [[5, 3, 4], [1, 2, 0]]
    """
    names, classes = _classes(labels)
    _check_sizes(len(classes), clients, None)
    if not 1 <= classes_per_client <= len(names):
        raise InvalidSetting(
            "classes_per_client", classes_per_client, f"1 to {len(names)}, the number of classes"
        )
    holders: list[list[int]] = [[] for _ in names]
    for client in range(clients):
        lots = Stream(seed, "partition/by-class", client=client).words(0, len(names))
        fewest_first = np.lexsort((lots, np.array([len(held) for held in holders])))
        for c in sorted(fewest_first[:classes_per_client].tolist()):
            holders[c].append(client)
    order = _order(len(classes), seed, "partition/by-class")
    parts: list[list[Indices]] = [[] for _ in range(clients)]
    for c, held in enumerate(holders):
        pool = order[classes[order] == c]
        if len(pool) < len(held):
            raise InvalidSetting(
                "clients",
                clients,
                f"fewer, or fewer classes_per_client: client {held[len(pool)]} would have no "
                f"sample of class {names[c]}, whose {len(pool)} samples {len(held)} clients share",
            )
        if held:
            for client, share in zip(held, np.array_split(pool, len(held)), strict=True):
                parts[client].append(share)
    return [np.concatenate(shares) for shares in parts]


def by_user(users: ArrayLike, clients: int | None = None, seed: int = 0) -> list[Indices]:
    """Natural clients: all samples of a user stay together.

    With ``None`` each user is a client, in ascending order; else the users are dealt out by lot,
    to each client the same number of users, give or take one.

    >>> [part.tolist() for part in by_user([7, 3, 7, 5])]
    [[1], [3], [0, 2]]
    """
    names, numbers = _classes(users, "users")
    ends = np.cumsum(np.bincount(numbers, minlength=len(names)))
    grouped = np.split(np.argsort(numbers, kind="stable"), ends[:-1])
    if clients is None:
        return grouped
    if not 1 <= clients <= len(names):
        raise InvalidSetting(
            "clients", clients, f"1 to {len(names)}, so that each has one of the users"
        )
    dealt = np.array_split(_order(len(names), seed, "partition/by-user"), clients)
    return [np.concatenate([grouped[user] for user in hand]) for hand in dealt]


def quantity_skew(
    labels_or_count: Sized | int, clients: int, exponent: float, seed: int
) -> list[Indices]:
    """Size skew: the whole data set, with sizes as 1, 1/2ᵉ, 1/3ᵉ, … of each other; labels IID.

    Which client is how large is drawn by lot. An ``exponent`` of 0 makes them equal, 1 is Zipf's
    law.

    >>> sorted(len(part) for part in quantity_skew(110, clients=3, exponent=1.0, seed=0))
    [20, 30, 60]
    """
    count = labels_or_count if isinstance(labels_or_count, int) else len(labels_or_count)
    _check_sizes(count, clients, None)
    if not 0 <= exponent < float("inf"):
        raise InvalidSetting("exponent", exponent, "a number of at least 0")
    # In whole numbers: the last bit of a power differs between C libraries, its first 40 do not.
    weights = [round(_FINE * rank**-exponent) for rank in range(1, clients + 1)]
    total = sum(weights)
    sizes = [count * weight // total for weight in weights]
    # What rounding down left over goes to those who lost most by it.
    lost = sorted(range(clients), key=lambda rank: -(count * weights[rank] % total))
    for rank in lost[: count - sum(sizes)]:
        sizes[rank] += 1
    ranks = _order(clients, seed, "partition/quantity")
    own = [sizes[rank] for rank in ranks]
    if 0 in own:
        raise InvalidSetting(
            "exponent",
            exponent,
            f"a smaller one, or fewer clients: client {own.index(0)} of {clients} would have none "
            f"of the {count} samples",
        )
    return np.split(_order(count, seed, "partition"), np.cumsum(own)[:-1])


def _deal(
    pools: Sequence[Indices], clients: int, alpha: float, seed: int, samples: int
) -> list[Indices]:
    taken = [0] * len(pools)
    parts: list[Indices] = []
    for client in range(clients):
        weights = np.array(
            [alpha if t < len(p) else 0.0 for t, p in zip(taken, pools, strict=True)]
        )
        part = np.empty(samples, np.int64)
        uniform = Stream(seed, "partition/urn", client=client).uniform(0, samples)
        for i, point in enumerate(uniform.tolist()):
            # `accumulate` adds from left to right; `sum` may add in another order.
            ends = np.add.accumulate(weights)
            c = int(np.searchsorted(ends, point * ends[-1], side="right"))
            part[i] = pools[c][taken[c]]
            taken[c] += 1
            weights[c] = weights[c] + 1.0 if taken[c] < len(pools[c]) else 0.0
        parts.append(part)
    return parts


def _urn(count: int, colours: int, alpha: float, stream: Stream) -> Indices:
    """The colours of ``count`` draws from Pólya's urn with ``alpha`` balls of each at the start."""
    place = np.arange(count)
    first = alpha * colours
    point = stream.uniform(0, count) * (first + place)
    # Of the balls in the urn at draw i, the first ones are fresh and the others repeat draws
    # 0 to i − 1, one each; so a draw either has a colour of its own or points to an earlier draw.
    fresh = point < first
    colour = np.minimum(np.floor(point / alpha), colours - 1).astype(np.int64)
    earlier = np.clip(np.floor(point - first), 0, np.maximum(place - 1, 0)).astype(np.int64)
    origin = np.where(fresh, place, earlier)
    while not fresh[origin].all():
        origin = origin[origin]
    return colour[origin]


def _order(count: int, seed: int, purpose: str) -> Indices:
    order: Indices = Stream(seed, purpose).permutations(1, count)[0]
    return order


def _classes(labels: ArrayLike, what: str = "labels") -> tuple[list[object], Indices]:
    """The distinct labels in ascending order, and of each sample the place of its label there."""
    array = np.asarray(labels)
    if array.ndim != 1 or array.size == 0:
        raise InvalidSetting(
            f"shape of {what}", array.shape, "one dimension with an entry a sample"
        )
    names, numbers = np.unique(array, return_inverse=True)
    return names.tolist(), numbers.astype(np.int64)


def _check_sizes(count: int, clients: int, samples_per_client: int | None) -> None:
    if clients < 1:
        raise InvalidSetting("clients", clients, "at least 1")
    if samples_per_client is None:
        if clients > count:
            raise InvalidSetting(
                "clients", clients, f"at most {count}, so that each has one of the {count} samples"
            )
    elif samples_per_client < 1:
        raise InvalidSetting("samples_per_client", samples_per_client, "at least 1")
    elif clients * samples_per_client > count:
        raise InvalidSetting(
            "samples_per_client",
            samples_per_client,
            f"at most {count // clients}: {clients} clients share {count} samples",
        )
