"""One false model for everyone: what masks do not prevent.

Clients agree on a model, not on that it is true. An owner publishes a false result of its shard,
once: biases of the first layer such that each of its units fires for about one sample of all. In
the next mean such a unit's row is that sample's gradient alone, and row over bias is the sample.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from eris.core.vectors import Indices, Vector
from eris.experiments.audits.choosing import (
    LIAR,
    PIXELS,
    RATE,
    DigitClients,
    digits,
    network,
)
from eris.experiments.audits.opened_sums import Lie, opened_rounds
from eris.federation import Federation
from eris.protocol.messages import Result
from eris.training.flat import flatten

NEAR = 0.05
"""A sample is read that is met to within this share of its length."""


@dataclass(frozen=True)
class Samples:
    """What was read of all clients' samples in one published mean."""

    biases: int
    """Of the first layer, in the owner's hands."""
    own: int
    """Samples read from the owner's units, by their rows in the mean of all shards."""
    all: int
    """The same from all units."""
    honest: int
    """From all units, in the same round of a run in which nobody lies."""


def read_samples(world: DigitClients) -> Samples:
    """The owner lies in round 1; the mean of round 2 is read by whoever is told of it."""
    federation = world.federation()
    mine = _biases(world, federation)
    lie = Lie(LIAR, says=_false(world, federation, mine))
    found = {
        name: list(opened_rounds(world.federation(), 2, planned=world.rounds, lie=told))[1].sums
        for name, told in (("lied", lie), ("honest", None))
    }
    units = np.arange(world.width)
    return Samples(
        len(mine), read(world, found["lied"], mine), read(world, found["lied"], units),
        read(world, found["honest"], units),
    )  # fmt: skip


def read(world: DigitClients, sums: Vector, units: Indices) -> int:
    """How many of the clients' samples some units of the first layer show."""
    size = world.width * PIXELS
    rows = sums[:size].reshape(world.width, PIXELS)[units].astype(np.float64)
    biases = sums[size : size + world.width][units].astype(np.float64)
    alive = biases != 0
    shown = rows[alive] / biases[alive, None]
    truth = digits()[0].numpy()[world.trained_on].astype(np.float64)
    apart = np.linalg.norm(shown[:, None] - truth[None], axis=2)
    return int((apart <= NEAR * np.linalg.norm(truth, axis=1)).any(axis=0).sum())


def _biases(world: DigitClients, federation: Federation) -> Indices:
    """The units of the first layer whose bias is in the lying owner's shard."""
    assert federation.agreement is not None
    (shard,) = federation.agreement.view.owned_by(LIAR)
    held = federation.agreement.coding.coordinates(1, (shard, 0), 0)
    first = world.width * PIXELS
    return held[(held >= first) & (held < first + world.width)] - first


def _false(
    world: DigitClients, federation: Federation, mine: Indices
) -> Callable[[Result], Result]:
    """A result that moves these units' biases to where about one sample of all makes them fire, as
    far as digits of nobody tell."""
    agreement = federation.agreement
    assert agreement is not None
    start, first = flatten(network(world.seed, world.width)), world.width * PIXELS
    weights = start[:first].reshape(world.width, PIXELS)
    public = digits()[0].numpy()[world.order[len(world.trained_on) :]]
    once = 1 - 1 / len(world.trained_on)
    wanted = -np.quantile(public @ weights[mine].T, once, axis=0)
    move = (start[first + mine] - wanted) / RATE

    def says(result: Result) -> Result:
        gauge = result.header.key == agreement.gauge
        if result.header.round != 1 or result.payload is None or gauge:
            return result
        segment = agreement.segments(1)[result.header.key]
        values = agreement.coding.published(result, segment).copy()
        places = agreement.coding.coordinates(1, result.header.key, 0)
        values[np.searchsorted(places, first + mine)] = move
        return replace(result, payload=agreement.coding.publish(values, 1))

    return says
