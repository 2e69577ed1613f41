"""What secure sums cost on given links: bytes of every member, and the least time of a round.

The protocol is that of docs/secure-sums.md. On top of a plain round, words have ``ring_bytes``
instead of four, ``need`` helpers of every shard answer with a vector of its size, and escrows of
seeds go from clients to owners and on to the helpers. As everywhere in :mod:`eris.theory`, sizes
are in bytes, rates in bytes/s, and headers are not counted.
"""

from __future__ import annotations

from collections.abc import Sequence

from eris.core.errors import require
from eris.core.ring import check_ring_bytes
from eris.protocol.secure.escrow import MODEL, SEED
from eris.protocol.secure.seats import Threshold
from eris.theory.distribution_time import Links, central_round, eris_link_loads, slowest_link

RESULT_BYTES = 4
"""Of a coordinate of a result, which is a float32 as in a plain round."""
_BOX_TAG = 16


def escrow_bytes(threshold: Threshold) -> int:
    """What a client deposits for a shard and round: a model's name, commitments and boxes.

    >>> escrow_bytes(Threshold(2, 3)), escrow_bytes(Threshold(3, 4))
    (352, 656)
    """
    box = _BOX_TAG + SEED * len(threshold.known_to(0))
    return MODEL + SEED * len(threshold.parts) + threshold.seats * box


def link_loads(
    parameters: int,
    clients: int,
    aggregators: int,
    threshold: Threshold,
    ring_bytes: int = 8,
    *,
    shares: Sequence[float] | None = None,
    seats: Sequence[float] | None = None,
) -> list[tuple[float, float]]:
    """Bytes on each client's (uplink, downlink) in a round; the first A clients own a shard each.

    ``seats`` is how many each member holds: all alike if it is left out, as a directory spreads
    them at A = K. All seats of a shard answer equally often, and each is counted as if its shard
    were of the mean size. Escrows are counted once a client and shard. With shifted compression
    ``parameters`` are those that are kept. ``shares`` are the owners' shares of the model where
    they are not all 1/A.

    >>> up, down = link_loads(8_000_000, 8, 8, Threshold(2, 3), ring_bytes=4)[0]
    >>> round(up / 1e6, 2), round(down / 1e6, 2)
    (64.01, 64.01)
    """
    require(parameters >= 1, "parameters", parameters, "at least 1")
    check_ring_bytes(ring_bytes)
    members = threshold.seats + 1
    require(clients >= members, "clients", clients, f"at least {members} for {threshold}")
    words, results = float(ring_bytes * parameters), float(RESULT_BYTES * parameters)
    plain = eris_link_loads(words, results, clients, aggregators, shares=shares)
    escrow, others = escrow_bytes(threshold), clients - 1
    owned = [1 / aggregators] * aggregators if shares is None else shares
    all_seats = aggregators * threshold.seats
    passed_on = others * threshold.seats * escrow
    loads = []
    for member, (up, down) in enumerate(plain):
        owns = member < aggregators
        part = 1 / clients if seats is None else seats[member] / all_seats
        given = part * threshold.need * words
        held = part * passed_on * aggregators
        up += given + (aggregators - owns) * escrow + owns * passed_on
        answered = threshold.need * words * owned[member] if owns else 0.0
        down += answered + owns * others * escrow + held
        loads.append((up, down))
    return loads


def limit_seconds(
    parameters: int,
    clients: int,
    aggregators: int,
    links: Links,
    threshold: Threshold,
    ring_bytes: int = 8,
) -> float:
    """Least seconds of a round with secure sums: the most loaded direction of any link.

    At A = K with one rate that is n·((K−1)/K·(B + 4) + need·B/K)/rate, and some escrows.

    >>> links = Links.uniform(12.5e6)
    >>> round(limit_seconds(10_000_000, 8, 8, links, Threshold(2, 3), ring_bytes=8), 2)
    10.0
    >>> round(limit_seconds(10_000_000, 8, 8, links, Threshold(2, 3), ring_bytes=4), 2)
    6.4
    """
    loads = link_loads(parameters, clients, aggregators, threshold, ring_bytes)
    return slowest_link(loads, links)


def secagg_bound_seconds(
    parameters: int, clients: int, links: Links, *, word_bytes: int = 8
) -> float:
    """SecAgg or SecAgg+ with one server by equation 52: K masked vectors in, and K models out.

    Keys, shares and the order of its stages are not counted. As with FedAvg, a client that has the
    model early may send while others still fetch it, so that a round can come below.

    >>> round(secagg_bound_seconds(10_000_000, 8, Links.uniform(12.5e6)), 1)
    76.8
    """
    words, results = float(word_bytes * parameters), float(RESULT_BYTES * parameters)
    return central_round(words, results, clients, links).seconds
