"""Gossip averaging: a node sends its model to its neighbours and moves towards what it receives.

x_i ← x_i + ε·Σ_j w_ij (x_j − x_i), once or several times a round. D-PSGD, EL, Muffliato and
Q-DPSGD-1 are this machine with different graphs, weights, noise and encodings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from eris.core.compress import Encoding, Quantiser, decode_values, encode_values
from eris.core.errors import ErisError
from eris.core.graphs import Graph
from eris.core.mixing import add_difference, settled
from eris.core.noise import Draws, gaussian
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.protocol.gossip.peer import (
    Arrived,
    GossipSettings,
    Piece,
    Sends,
    Turns,
    direction,
    expect_chunk,
    stepped,
    taken,
)
from eris.protocol.messages import Outgoing, Payload, Share
from eris.protocol.settings import starting_model


@dataclass(frozen=True)
class Noise:
    """N(0, σ²) on every coordinate of the model or the update, once a round.

    ``draws(round, member)`` is where it comes from.
    """

    sigma: float
    draws: Callable[[int, int], Draws]
    on: Literal["model", "update"]

    def onto(self, vector: Vector, round: int, member: int) -> Vector:
        """The vector with a member's noise of a round."""
        return gaussian(vector, self.sigma, self.draws(round, member))


@dataclass(frozen=True)
class Mixing:
    """How models are mixed: ``graph(round, step)`` says who is whose neighbour in a gossip step.

    ``metropolis`` weights belong to the graph, so a neighbour that is not heard leaves its weight
    to the node itself; ``uniform`` is the plain mean of what arrived and the node's own model.
    ``quantiser`` compresses what is sent, with draws from ``secret``; ``pace`` is ε.
    """

    graph: Callable[[int, int], Graph]
    weights: Literal["metropolis", "uniform"] = "metropolis"
    steps: int = 1
    noise: Noise | None = None
    quantiser: Quantiser | None = None
    secret: int = 0
    pace: float = 1.0


class MixingPeer:
    """One member that mixes its model with its neighbours'.

    From a node's own messages its model follows to the bit or, where models are quantised, as they
    were sent.
    """

    names_clients: ClassVar[bool] = True
    sends: ClassVar[Sends] = "models"

    def __init__(self, settings: GossipSettings, me: int, initial: Vector, mixing: Mixing) -> None:
        self.settings, self.me, self.mixing = settings, me, mixing
        self.model = starting_model(settings.n, settings.initial, initial)
        self._turns = Turns(settings, me, mixing.steps)

    def begin(self, round: int, update: Vector | None) -> list[Outgoing]:
        """Take the local step, add the round's noise and send the model."""
        self._turns.check_next(round)
        if update is not None:
            model = self._step(round, update)
            self._turns.begin(round)
            self.model = model
        else:
            self._turns.begin(round)
        return self._send(0)

    def receive(self, message: Share, source: int) -> None:
        """Note a neighbour's model."""
        header = message.header
        self._turns.check(message, header.segment)
        if header.sender != source:
            raise ErisError(f"claims to be from member {header.sender}")
        if source not in self._neighbours(header.segment):
            where = f"step {header.segment} of round {header.round}"
            raise ErisError(f"member {source} is no neighbour in {where}")
        expect_chunk(message, 0)
        self._turns.hold(message, source, header.segment, self._read)

    def awaited(self, phase: int) -> frozenset[int]:
        """The neighbours of a step whose models are not here yet."""
        return frozenset(self._neighbours(phase)) - self._turns.sources(phase)

    def turn(self, phase: int) -> list[Outgoing]:
        """Mix what was received into the model, then send it on if there is another step."""
        received = self._turns.advance(phase)
        neighbours = self._neighbours(phase)
        weight, parts = dict.fromkeys(neighbours, 1.0), 1 + len(received)
        if self.mixing.weights == "metropolis":
            own = self.mixing.graph(self._turns.round, phase).metropolis(self.me)
            weight, parts = dict(zip(neighbours, own, strict=True)), 1
        total = np.zeros(self.settings.n)
        for sender, payload in received:
            share = self.mixing.pace * weight[sender]
            add_difference(total, self._read(payload), self.model, share)
        self.model = settled(self.model, total / parts)
        return self._send(phase + 1) if phase + 1 < self.mixing.steps else []

    def overhear(self, round: int, own: Sequence[Arrived], came: Sequence[Arrived]) -> list[Piece]:
        """Go through a round from the model that the node sent, with what reached it."""
        first = [one.share.payload for one in own if one.share.header.segment == 0]
        if not first:
            return []  # away in this round
        before = self.model
        self.restore({"model": self._read(first[0])})
        self.begin(round, None)
        pieces = []
        for one in came:
            try:
                self.receive(one.share, one.source)
            except ErisError:
                continue
            pieces.append(self._piece(one, before))
        for step in range(self.mixing.steps):
            self.turn(step)
        return pieces

    def tapped(self, one: Arrived) -> Piece:
        """A whole model."""
        return self._piece(one, self.model)

    def _piece(self, one: Arrived, before: Vector) -> Piece:
        values = self._read(one.share.payload)
        update = direction(before, values, self.settings)
        step = one.share.header.segment
        return Piece(one.source, step, np.arange(self.settings.n), values, update)

    def state(self) -> dict[str, Vector]:
        """The model."""
        return {"model": self.model.copy()}

    def restore(self, state: Mapping[str, Vector]) -> None:
        """Continue from a model."""
        self.model = taken(state, {"model": self.settings.n})["model"]
        self._turns.forget()

    def _step(self, round: int, update: Vector) -> Vector:
        # Noise hides a local step; without one there is nothing new to hide.
        noise, rate = self.mixing.noise, self.settings.learning_rate
        if noise is not None and noise.on == "update":
            update = noise.onto(update, round, self.me)
        model = stepped(self.me, self.model, update, rate)
        if noise is not None and noise.on == "model":
            model = noise.onto(model, round, self.me)
        return model

    def _neighbours(self, step: int) -> tuple[int, ...]:
        return self.mixing.graph(self._turns.round, step).neighbours[self.me]

    def _send(self, step: int) -> list[Outgoing]:
        quantiser, round = self.mixing.quantiser, self._turns.round
        if quantiser is None:
            encoded = encode_values(self.model)
        else:
            draw = Stream(self.mixing.secret, "gossip-quantise", round, self.me, step)
            encoded = quantiser.encode(self.model, draw)
        header = self.settings.header(self.me, round, 0, step)
        return [Outgoing(self._neighbours(step), Share(header, Payload(encoded)))]

    def _read(self, payload: Payload) -> Vector:
        if self.mixing.quantiser is None:
            return decode_values(payload.encoded, Encoding.DENSE, self.settings.n)
        return self.mixing.quantiser.decode(payload.encoded, self.settings.n)
