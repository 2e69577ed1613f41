"""What an observer of sharded updates can learn about one client: bounds, in nats.

Two ways lead to a client's data, and the papers bound only the first:

* what reaches an aggregator or a coalition of them, I(D_k; view) ≤ n·T·(p/A)·C_max (ERIS
  theorem 3.3, which is 3.7 in the older text, and corollary D.2): :func:`leakage_bound`;
* what the aggregators *publish* to every member. With independent masks a kept coordinate often
  has a single contributor, whose value is then public whatever A is: :func:`published_exposure`.

The bound adds the coordinates up, which holds when they are independent given the client's data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from eris.core.errors import require

MaskMode = Literal["independent", "shared"]


def _require_kept_fraction(kept_fraction: float) -> None:
    require(0 < kept_fraction <= 1, "kept_fraction", kept_fraction, "a number in (0, 1]")


def gaussian_capacity(variance: float, conditional_variance: float) -> float:
    """C_max = ½·ln(σ²/σ_cond²) nats per coordinate and round (ERIS Remark D.1, Gaussian weights).

    ``variance`` is that of a weight as the observer sees it, ``conditional_variance`` what is left
    of it once the client's data are known; knowing more cannot leave more variance.

    >>> round(gaussian_capacity(variance=2.0, conditional_variance=1.0), 4)
    0.3466
    """
    require(
        0 < conditional_variance < math.inf,
        "conditional_variance",
        conditional_variance,
        "a positive number",
    )
    require(
        conditional_variance <= variance < math.inf,
        "variance",
        variance,
        f"a number not below conditional_variance = {conditional_variance!r}",
    )
    return 0.5 * (math.log(variance) - math.log(conditional_variance))


def gaussian_capacity_from_snr(snr: float) -> float:
    """C_max = ½·ln(1 + SNR), with SNR = (σ² − σ_cond²)/σ_cond² (ERIS Remark D.1).

    >>> gaussian_capacity_from_snr(1.0) == gaussian_capacity(2.0, 1.0)
    True
    """
    require(0 <= snr < math.inf, "snr", snr, "a number not below 0")
    return 0.5 * math.log1p(snr)


def coalition_share(aggregators: int, colluders: int = 1) -> float:
    """Share of the coordinates that reaches A_c of A equal shards: A_c/A, at most 1 (Cor. D.2).

    >>> coalition_share(aggregators=50, colluders=5)
    0.1
    """
    require(aggregators >= 1, "aggregators", aggregators, "at least 1")
    require(colluders >= 1, "colluders", colluders, "at least 1")
    return min(1.0, colluders / aggregators)


def weighted_share(shard_sizes: Sequence[int], members: Sequence[int] | None = None) -> float:
    """Share of the coordinates that a coalition sees when shards differ in size.

    ``members`` are the shards the coalition owns (each counts once). Without them: the largest
    shard, which takes the place of 1/A in the bound (ERIS section 5, heterogeneous shards).

    >>> weighted_share([600, 300, 100])
    0.6
    >>> weighted_share([600, 300, 100], members=[1, 2])
    0.4
    """
    total = sum(shard_sizes)
    require(
        total > 0 and min(shard_sizes) >= 0,
        "shard_sizes",
        shard_sizes,
        "sizes not below 0 with at least one coordinate",
    )
    if members is None:
        return max(shard_sizes) / total
    coalition = set(members)
    require(
        all(0 <= shard < len(shard_sizes) for shard in coalition),
        "members",
        members,
        f"shard numbers from 0 to {len(shard_sizes) - 1}",
    )
    return sum(shard_sizes[shard] for shard in coalition) / total


@dataclass(frozen=True)
class LeakageBound:
    """An upper bound on I(D_k; view): how much of an update is seen, and what that can tell."""

    seen_share: float
    """Expected share of a client's coordinates seen in a round: p times the coalition's share."""
    nats_per_round: float
    """Bound for one round."""
    nats: float
    """Bound over all rounds."""


def leakage_bound(
    *, coordinates: int, rounds: int, kept_fraction: float, share: float, capacity: float
) -> LeakageBound:
    """I(D_k; view) ≤ n·T·p·share·C_max (ERIS theorem 3.3; share = 1/A, or Corollary D.2's A_c/A).

    ``share`` comes from :func:`coalition_share` or :func:`weighted_share`, ``capacity`` (C_max,
    nats per coordinate) from :func:`gaussian_capacity`. What the published results add is not in
    this bound: see :func:`published_exposure`.

    >>> leakage_bound(
    ...     coordinates=1000, rounds=10, kept_fraction=0.5, share=coalition_share(50), capacity=0.1
    ... )
    LeakageBound(seen_share=0.01, nats_per_round=1.0, nats=10.0)
    """
    require(coordinates >= 1, "coordinates", coordinates, "at least 1")
    require(rounds >= 1, "rounds", rounds, "at least 1")
    _require_kept_fraction(kept_fraction)
    require(0 <= share <= 1, "share", share, "a number in [0, 1]")
    require(0 <= capacity < math.inf, "capacity", capacity, "nats, not below 0")
    seen = kept_fraction * share
    per_round = coordinates * seen * capacity
    return LeakageBound(seen_share=seen, nats_per_round=per_round, nats=rounds * per_round)


def aggregators_against_collusion(aggregators: int, colluders: int) -> int:
    """Aggregators that leak to A_c colluders what A leak to one: A·A_c (ERIS Remark D.3).

    >>> aggregators_against_collusion(aggregators=10, colluders=3)
    30
    """
    require(aggregators >= 1, "aggregators", aggregators, "at least 1")
    require(colluders >= 1, "colluders", colluders, "at least 1")
    return aggregators * colluders


def kept_fraction_against_collusion(kept_fraction: float, colluders: int) -> float:
    """Kept fraction that leaks to A_c colluders what p leaks to one: p/A_c (ERIS Remark D.3).

    >>> kept_fraction_against_collusion(kept_fraction=0.06, colluders=3)
    0.02
    """
    _require_kept_fraction(kept_fraction)
    require(colluders >= 1, "colluders", colluders, "at least 1")
    return kept_fraction / colluders


@dataclass(frozen=True)
class PublishedExposure:
    """What one round's published results hand to *every* member, across all shards."""

    share_of_kept: float
    """Share of a client's kept coordinates that nobody else kept: published unmixed."""
    share_of_update: float
    """Expected share of a client's whole update that is published unmixed."""
    coordinates: float
    """Expected number of coordinates, over all clients, published with a single contributor."""


def published_exposure(
    *,
    coordinates: int,
    clients: int,
    kept_fraction: float,
    masks: MaskMode,
    min_included: int = 3,
) -> PublishedExposure:
    """Single-contributor coordinates published per round, which the p/A bound does not cover.

    Independent masks: nobody else keeps a kept coordinate with probability (1−p)^(K−1), so
    n·K·p·(1−p)^(K−1) coordinates are published unmixed, whatever A is. ``min_included`` is no
    help there: it counts the contributions to a segment, not those to a coordinate.
    Shared masks: each kept coordinate has all included clients as contributors, at least
    ``min_included`` of them; only ``min_included=1`` lets a lone contributor be published (the
    worst case is returned). With fewer clients than ``min_included`` nothing is published.

    >>> exposure = published_exposure(
    ...     coordinates=1_000_000, clients=50, kept_fraction=0.033, masks="independent"
    ... )
    >>> f"{exposure.share_of_kept:.0%} of the kept, {exposure.share_of_update:.2%} of the update"
    '19% of the kept, 0.64% of the update'
    >>> published_exposure(coordinates=1000, clients=50, kept_fraction=0.033, masks="shared")
    PublishedExposure(share_of_kept=0.0, share_of_update=0.0, coordinates=0.0)
    """
    require(coordinates >= 1, "coordinates", coordinates, "at least 1")
    require(clients >= 1, "clients", clients, "at least 1")
    _require_kept_fraction(kept_fraction)
    require(masks in ("independent", "shared"), "masks", masks, '"independent" or "shared"')
    require(min_included >= 1, "min_included", min_included, "at least 1")

    exposed_clients = clients
    if clients < min_included:
        alone = 0.0
    elif masks == "independent":
        alone = (1.0 - kept_fraction) ** (clients - 1)
    else:
        alone = 1.0 if min_included == 1 else 0.0
        exposed_clients = 1  # a segment has one result: at most one lone contributor per coordinate
    of_update = kept_fraction * alone
    return PublishedExposure(
        share_of_kept=alone,
        share_of_update=of_update,
        coordinates=coordinates * exposed_clients * of_update,
    )
