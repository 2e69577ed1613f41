"""The updates that observers have, as what an inversion takes: values, and where they were seen.

*Contributions*: what was sent to an aggregator, a server, a coalition or a tapped link. *Means*:
all that a plain member gets. The mean of the updates of n clients after one step each is the
update of one client with all their samples. *Pieces* of neighbours' models, in gossip: in round
one everybody starts from the same public model, so what a neighbour has moved by is its update.
In later rounds a neighbour starts from an average of its own, which nobody else knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eris.audit.inversion.basis import OrthogonalBasis
from eris.audit.neighbour import NeighbourSight
from eris.audit.watch import Sight
from eris.core.vectors import Indices, Vector
from eris.protocol.schemes import Grouped, Independent, Pruned

FIRST = 1
"""The round that everybody begins with the same model."""


@dataclass(frozen=True, eq=False)
class ObservedUpdate:
    """An update as an observer has it; ``clients`` are those whose samples it is of."""

    observer: int
    round: int
    clients: tuple[int, ...]
    samples: int
    steps: int
    values: Vector
    seen: np.ndarray[Any, np.dtype[np.bool_]]
    model: Vector
    """What the clients trained from."""
    basis: OrthogonalBasis | None = None
    """What the coordinates are of, if not the model's own."""


def contributions(
    sight: Sight, observer: int, own: frozenset[int], clients: Sequence[int], *, sparse: bool
) -> Iterator[ObservedUpdate]:
    """Of each client, what reached an observer of its own contributions.

    Where ``sparse`` says that a zero stands for what was not sent, it counts as not seen.
    """
    row = sight.observers.index(observer)
    for client in clients:
        seen = sight.seen(client)[row]
        pieces = sight.pieces(client) if seen.any() and client not in own else None
        if pieces is None:
            continue
        told = sight.declared(client)
        chosen = np.repeat(seen, pieces.sizes)
        values = pieces.update[chosen] * np.float32(pieces.steps)
        yield _target(
            sight, observer, (client,), told.samples, told.steps, pieces.coordinates[chosen],
            values, sparse,
        )  # fmt: skip


def mean(sight: Sight, observer: int) -> ObservedUpdate | None:
    """The mean that was published of a round, if it can be taken for one update."""
    told = sight.averaged(observer)
    # Where clients have masks of their own, every coordinate is the mean of others of them.
    if told is None or isinstance(sight.scheme, Independent | Grouped | Pruned):
        return None
    pieces = sight.pieces(told.clients[0], published=True)
    if pieces is None or pieces.published is None:
        return None
    chosen = np.repeat(sight.published, pieces.sizes)
    values = pieces.published[chosen] * np.float32(pieces.mean_steps)
    return _target(
        sight, observer, told.clients, told.samples, told.steps, pieces.coordinates[chosen],
        values, False,
    )  # fmt: skip


def neighbours(
    sight: NeighbourSight,
    observer: int,
    owners: Mapping[int, int],
    told: Mapping[int, tuple[int, int]],
    *,
    sparse: bool,
) -> Iterator[ObservedUpdate]:
    """Of each node the first piece that came; several of one node cannot be told to be so.

    ``told`` are the samples and steps of clients: nothing in a share says them, so the attacker is
    told. ``owners`` is who is behind a sender, for the truth alone.
    """
    met: set[int] = set()
    for piece in sight.fresh if sight.round == FIRST else ():
        owner = owners.get(piece.sender, piece.sender)
        if owner in met or owner not in told or owner in sight.observer.members:
            continue
        met.add(owner)
        yield _target(
            sight, observer, (owner,), *told[owner], piece.coordinates, piece.update, sparse
        )


def _target(
    sight: Sight | NeighbourSight, observer: int, clients: tuple[int, ...], samples: int,
    steps: int, places: Indices, values: Vector, sparse: bool,
) -> ObservedUpdate:  # fmt: skip
    basis = sight.basis if isinstance(sight, Sight) else None
    size = len(sight.model if basis is None else basis.enter(sight.model))
    whole, seen = np.zeros(size, np.float32), np.zeros(size, bool)
    whole[places], seen[places] = values, values != 0 if sparse else True
    return ObservedUpdate(
        observer, sight.round, clients, samples, steps, whole, seen, sight.model, basis
    )
