"""The least time one round takes on given links, and what a client sends and receives.

ERIS appendix F.2 (equations 52–55 and the communication tables), with rates in bytes/s and sizes
in bytes. Where a paper's equation and its table disagree, the table's rule is the default.
:func:`eris_physical_limit` is the limit of a round whose results leave as soon as they are
complete, so that collecting and publishing overlap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from eris.core.errors import InvalidSetting, require


def _check(clients: int, **sizes: float) -> None:
    for name, size in sizes.items():
        require(0 < size < math.inf, name, size, "a positive number of bytes")
    require(clients >= 1, "clients", clients, "at least 1")


def _expand(name: str, rate: float | Sequence[float], clients: int) -> tuple[float, ...]:
    if not isinstance(rate, Sequence):
        return (float(rate),) * clients
    require(len(rate) == clients, name, rate, f"one rate, or one for each of {clients} clients")
    return tuple(rate)


@dataclass(frozen=True)
class Links:
    """Rates in bytes/s: one for all clients or one each; the server's default to a single rate.

    In ERIS the first A clients are the aggregators, as in equation 53.

    >>> links = Links(up=[10e6, 5e6], down=20e6, server_up=1e9, server_down=1e9)
    >>> links.client_up(2), links.client_down(2)
    ((10000000.0, 5000000.0), (20000000.0, 20000000.0))
    """

    up: float | Sequence[float]
    down: float | Sequence[float]
    server_up: float | None = None
    server_down: float | None = None

    def __post_init__(self) -> None:
        for name in ("up", "down", "server_up", "server_down"):
            rate: float | Sequence[float] | None = getattr(self, name)
            rates = rate if isinstance(rate, Sequence) else () if rate is None else (rate,)
            positive = all(0 < one < math.inf for one in rates)
            require(positive, name, rate, "positive rates in bytes/s")

    @classmethod
    def uniform(cls, rate: float) -> Links:
        """Every direction of every node, the server included, at one rate (the papers' case).

        >>> Links.uniform(20e6).server_down_rate()
        20000000.0
        """
        return cls(up=rate, down=rate)

    def client_up(self, clients: int) -> tuple[float, ...]:
        """Upload rate u_k of each client."""
        return _expand("up", self.up, clients)

    def client_down(self, clients: int) -> tuple[float, ...]:
        """Download rate d_k of each client."""
        return _expand("down", self.down, clients)

    def server_up_rate(self) -> float:
        """Upload rate u_s of the server."""
        return self._server("server_up", self.server_up, self.up)

    def server_down_rate(self) -> float:
        """Download rate d_s of the server."""
        return self._server("server_down", self.server_down, self.down)

    @staticmethod
    def _server(name: str, given: float | None, clients: float | Sequence[float]) -> float:
        if given is not None:
            return given
        if isinstance(clients, Sequence):
            raise InvalidSetting(name, given, "the server's rate, as the clients' rates differ")
        return clients


@dataclass(frozen=True)
class RoundCost:
    """One round: what the busiest client sends and fetches (bytes), and the least time it takes.

    ``upload``, ``download`` and ``total`` are the columns of the papers' tables; they leave out
    what an ERIS aggregator receives and publishes as such (see :func:`eris_link_loads`).
    """

    upload: float
    download: float
    total: float
    seconds: float


def central_round(
    upload_bytes: float, download_bytes: float, clients: int, links: Links
) -> RoundCost:
    """Any method with one server: equation 52 with b′ up and d down.

    >>> central_round(5.2e7, 5.2e9, clients=10, links=Links.uniform(20e6)).seconds
    2626.0
    """
    _check(clients, upload_bytes=upload_bytes, download_bytes=download_bytes)

    def phase(size: float, server: float, members: Sequence[float]) -> float:
        return max(clients * size / server, size / min(members))

    collect = phase(upload_bytes, links.server_down_rate(), links.client_up(clients))
    publish = phase(download_bytes, links.server_up_rate(), links.client_down(clients))
    total = upload_bytes + download_bytes
    return RoundCost(upload_bytes, download_bytes, total, collect + publish)


def fedavg_round(model_bytes: float, clients: int, links: Links) -> RoundCost:
    """FedAvg: max(K·b/d_s, b/min u_k) + max(K·b/u_s, b/min d_k) (equation 52).

    >>> fedavg_round(5.2e9, clients=10, links=Links.uniform(20e6)).seconds
    5200.0
    """
    return central_round(model_bytes, model_bytes, clients, links)


def soteriafl_round(
    model_bytes: float, clients: int, links: Links, *, kept_fraction: float = 0.05
) -> RoundCost:
    """SoteriaFL: equation 52 with b′ = b/(1+ω) = p·b in the first term only.

    >>> soteriafl_round(5.2e9, clients=10, links=Links.uniform(20e6)).seconds
    2730.0
    """
    require(0 < kept_fraction <= 1, "kept_fraction", kept_fraction, "a number in (0, 1]")
    return central_round(kept_fraction * model_bytes, model_bytes, clients, links)


def priprune_round(
    model_bytes: float, clients: int, links: Links, *, kept_fraction: float
) -> RoundCost:
    """PriPrune: equation 52 with b′ = kept·b in the first term only (kept = 1 − pruned share).

    >>> priprune_round(5.2e9, clients=10, links=Links.uniform(20e6), kept_fraction=0.9).seconds
    4940.0
    """
    return soteriafl_round(model_bytes, clients, links, kept_fraction=kept_fraction)


def _own_shares(clients: int, aggregators: int, shares: Sequence[float] | None) -> list[float]:
    """Each client's share of the model as an aggregator; 0 for those that aggregate nothing."""
    require(
        1 <= aggregators <= clients, "aggregators", aggregators, f"a whole number, 1 to {clients}"
    )
    if shares is None:
        shares = [1 / aggregators] * aggregators
    require(
        len(shares) == aggregators and min(shares) >= 0 and math.isclose(math.fsum(shares), 1),
        "shares",
        shares,
        f"{aggregators} shares, not below 0, that add up to 1",
    )
    return [*shares, *[0.0] * (clients - aggregators)]


def eris_round(
    upload_bytes: float,
    download_bytes: float,
    clients: int,
    aggregators: int,
    links: Links,
    *,
    shares: Sequence[float] | None = None,
    own_share_stays: bool = True,
) -> RoundCost:
    """ERIS in two phases, b′ up and d down (equation 53, without each client's own shard).

    max((K−1)b′/(A·min d_a), max_k b′_k/u_k) + max((K−1)d/(A·min u_a), max_k d_k/d-rate_k), where
    an aggregator neither sends nor fetches its own share: the papers' tables (K = A) need that.
    ``own_share_stays=False`` is equation 53 as printed, whose worst client aggregates nothing.
    ``shares`` are the aggregators' shares of the model where they are not all 1/A.

    >>> eris_round(5.2e9, 5.2e9, clients=10, aggregators=10, links=Links.uniform(20e6))
    RoundCost(upload=4680000000.0, download=4680000000.0, total=9360000000.0, seconds=468.0)
    """
    _check(clients, upload_bytes=upload_bytes, download_bytes=download_bytes)
    own = _own_shares(clients, aggregators, shares)
    up, down = links.client_up(clients), links.client_down(clients)
    moved = [1 - share if own_share_stays else 1.0 for share in own]

    def phase(size: float, owners: Sequence[float], members: Sequence[float]) -> float:
        shards = zip(own, owners, strict=True)
        return max(
            max((clients - 1) * share * size / rate for share, rate in shards),
            max(part * size / rate for part, rate in zip(moved, members, strict=True)),
        )

    collect, publish = phase(upload_bytes, down, up), phase(download_bytes, up, down)
    upload, download = max(moved) * upload_bytes, max(moved) * download_bytes
    return RoundCost(upload, download, upload + download, collect + publish)


def eris_link_loads(
    upload_bytes: float,
    download_bytes: float,
    clients: int,
    aggregators: int,
    *,
    shares: Sequence[float] | None = None,
) -> list[tuple[float, float]]:
    """Bytes on each client's (uplink, downlink) in a round, its work as an aggregator included.

    An aggregator with share 1/A sends (A−1)/A·b′ + (K−1)/A·d and gets (K−1)/A·b′ + (A−1)/A·d; a
    client that aggregates nothing sends b′ and gets d.

    >>> eris_link_loads(8.0, 8.0, clients=3, aggregators=2)
    [(12.0, 12.0), (12.0, 12.0), (8.0, 8.0)]
    """
    _check(clients, upload_bytes=upload_bytes, download_bytes=download_bytes)
    others = clients - 1
    return [
        (
            (1 - share) * upload_bytes + others * share * download_bytes,
            others * share * upload_bytes + (1 - share) * download_bytes,
        )
        for share in _own_shares(clients, aggregators, shares)
    ]


def eris_physical_limit(
    upload_bytes: float,
    download_bytes: float,
    clients: int,
    aggregators: int,
    links: Links,
    *,
    shares: Sequence[float] | None = None,
) -> float:
    """Least seconds of a round in segments: the most loaded direction of any node's link.

    Results leave while later segments still arrive, so the two phases of :func:`eris_round`
    overlap. At A = K with equal rates both agree: 2(K−1)/K·b/rate, as for any all-reduce.

    >>> eris_physical_limit(40e6, 40e6, clients=8, aggregators=2, links=Links.uniform(20e6))
    8.0
    """
    loads = eris_link_loads(upload_bytes, download_bytes, clients, aggregators, shares=shares)
    return slowest_link(loads, links)


def slowest_link(loads: Sequence[tuple[float, float]], links: Links) -> float:
    """Seconds of the most loaded direction, for the bytes on each client's (uplink, downlink).

    >>> slowest_link([(8.0, 8.0), (4.0, 12.0)], Links(up=2.0, down=4.0))
    4.0
    """
    up, down = links.client_up(len(loads)), links.client_down(len(loads))
    return max(
        max(sent / u, fetched / d) for (sent, fetched), u, d in zip(loads, up, down, strict=True)
    )


def shatter_round(model_bytes: float, clients: int, neighbours: int, links: Links) -> RoundCost:
    """Shatter: max(b/min u, r·b/min d, r·b/Σu) (equation 55); total traffic (1+2r)·b.

    The tables' upload and download columns count the node's own model once each.

    >>> shatter_round(5.2e9, clients=10, neighbours=3, links=Links.uniform(20e6)).seconds
    780.0
    """
    _check(clients, model_bytes=model_bytes)
    require(neighbours >= 1, "neighbours", neighbours, "at least 1")
    up, down = links.client_up(clients), links.client_down(clients)
    received = neighbours * model_bytes
    seconds = max(model_bytes / min(up), received / min(down), received / math.fsum(up))
    return RoundCost(model_bytes, model_bytes, (1 + 2 * neighbours) * model_bytes, seconds)


def ako_round(model_bytes: float, clients: int, links: Links, *, partitions: int = 5) -> RoundCost:
    """Ako as the tables count it: (K−1)·b/v up and as much down, one after the other.

    Equation 54 (:func:`ako_seconds_as_printed`) does not give the tables.

    >>> ako_round(5.2e9, clients=10, links=Links.uniform(20e6)).seconds
    936.0
    """
    _check(clients, model_bytes=model_bytes)
    require(partitions >= 1, "partitions", partitions, "at least 1")
    sent = (clients - 1) * model_bytes / partitions
    return RoundCost(sent, sent, 2 * sent, _both_ways(sent, clients, links))


def ako_seconds_as_printed(model_bytes: float, clients: int, links: Links) -> float:
    """Ako by the text: max(b/min d_k, b/min u_k) (equation 54).

    >>> ako_seconds_as_printed(5.2e9, clients=10, links=Links.uniform(20e6))
    260.0
    """
    _check(clients, model_bytes=model_bytes)
    return model_bytes / min(*links.client_up(clients), *links.client_down(clients))


def qdpsgd_round(
    model_bytes: float, clients: int, links: Links, *, density: float = 0.4, bits: int = 6
) -> RoundCost:
    """Q-DPSGD-1 as the tables count it: density·(K−1)·(bits/32)·b up and as much down.

    ``total`` is the tables' "Tot." column, 2·density·(K−1)·b: there the quantisation is left out.

    >>> cost = qdpsgd_round(5.2e9, clients=10, links=Links.uniform(20e6))
    >>> f"{cost.upload / 1e9:.2f} GB, {cost.total / 1e9:.2f} GB, {cost.seconds:.1f} s"
    '3.51 GB, 37.44 GB, 351.0 s'
    """
    _check(clients, model_bytes=model_bytes)
    require(0 < density <= 1, "density", density, "a number in (0, 1]")
    require(1 <= bits <= 32, "bits", bits, "1 to 32 bits a coordinate")
    dense = density * (clients - 1) * model_bytes
    sent = dense * bits / 32
    return RoundCost(sent, sent, 2 * dense, _both_ways(sent, clients, links))


def _both_ways(sent: float, clients: int, links: Links) -> float:
    return sent / min(links.client_up(clients)) + sent / min(links.client_down(clients))
