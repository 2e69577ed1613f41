"""Real nodes of this package, in the places they are given: seconds of a round.

A node is started in each place with a trainer that returns a random update at once, so that a round
is its messages; the times come from the nodes' journals.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.hosts.places import Place

from eris.core.errors import ErisError


class NodesUnavailable(ErisError):
    """The nodes cannot be started."""


def eris_round_times(
    hosts: Sequence[Place],
    parameters: int,
    aggregators: int,
    kept_fraction: float | None,
    rounds: int,
) -> list[float]:
    """Seconds of each round: from the first member's start to the last one's last result.

    ``kept_fraction`` is DSC's p, None for dense updates. Everything is stopped before it returns.
    """
    raise NodesUnavailable("`eris node start` is not part of this version; leave `eris` out")
