"""A tap on a client's links: how close it comes to the client's model, from messages alone.

Where members aggregate increments travel, and the tap follows the estimator of
:mod:`eris.theory.eavesdropper`; in Ako they travel in partitions, which the tap adds up as a node
does. Where models travel, what it intercepts it has. Beside the uplink a
tap may hear what comes back: published means, which move a model it must know the start of, or
snapshots, which say the model itself.

A tap that hears one link of several knows the coordinates of that link. What it never hears stays
where it started. Errors are over all coordinates of the model as it travels: in a rotated basis
those of its padding among them, which are no part of a client's model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from eris.audit.attack import FinalModel, Noting
from eris.audit.neighbour import NeighbourSight, NeighbourWatch, TapWatch
from eris.audit.watch import Sight, Watch
from eris.core.errors import InvalidSetting, require
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.methods.registry import agreed
from eris.protocol.gossip.peer import GossipSettings, Neighbour, Sends
from eris.protocol.observers import ANYBODY, Observer
from eris.protocol.schemes.halves import Tables
from eris.protocol.transcript import Record, Transcript
from eris.theory.eavesdropper import Estimator, Floats

INTERCEPTIONS = (0.5, 1.0)
"""The paper's γ, and a tap that misses nothing."""
CARRY = 0.5
"""The paper's m."""
NOTHING_LEFT = 1e-9
"""A share of ‖x‖² below which an error is the rounding of float32."""
Readers = Callable[[int], Neighbour]
"""What makes a node's model of its messages, for the node with a number."""
UPLINK, BOTH = "uplink", "both ways"
ZERO, FIRST = "zero", "first model"
"""Where the estimate starts: at 0, or at the model that everyone started from."""


class Truth(Noting, Protocol):
    """The tapped clients' models as they are."""

    def model(self, client: int) -> Vector | None:
        """A client's model after its training in the last noted round; None: it had no part."""


class AggregatedTruth:
    """Where members aggregate: a client's model is the one it got, moved by all that it sent.

    What a client trained and did not send (masks, pruning, a quantiser's rounding) is not in it.
    """

    def __init__(
        self, frame: Transcript, initial: Vector, clients: Sequence[int], *,
        tables: Tables | None = None,
    ) -> None:  # fmt: skip
        everyone = Observer("coalition", frozenset(range(len(frame.membership.members))))
        self._watch, self._clients = Watch(frame, initial, [everyone], tables=tables), clients
        self._models: dict[int, Vector] = {}

    def note(self, round: int, records: Sequence[Record]) -> None:
        """All messages of a round."""
        self._models.clear()
        for sight in self._watch.follow(round, records):
            for client in self._clients:
                if sight.pieces(client) is not None and sight.seen(client).any():
                    self._models[client] = sight.completed(0, client)

    def model(self, client: int) -> Vector | None:
        """See :class:`Truth`."""
        return self._models.get(client)


class GossipTruth:
    """Where nodes gossip: a client's model is what it sent first in a round.

    Behind a virtual node is its owner, which ``owners`` tells.
    """

    def __init__(
        self, settings: GossipSettings, initial: Vector, owners: Mapping[int, int]
    ) -> None:
        self._settings, self._initial, self._owners = settings, initial, owners
        self._now: tuple[int, Sequence[Record]] = 0, ()

    def note(self, round: int, records: Sequence[Record]) -> None:
        """All messages of a round."""
        self._now = round, records

    def model(self, client: int) -> Vector | None:
        """See :class:`Truth`."""
        wire = Observer("link", link=(self._owners.get(client, client), ANYBODY))
        sight = TapWatch(self._settings, self._initial, wire).follow(*self._now)
        return sight.completed(sight.fresh) if sight.pieces else None


class AccumulatedTruth:
    """Where nodes gossip increments (Ako): what a node's own messages and those that reached it
    make of its model, after each round.

    It is the node's but for rounding, if there are fewer partitions than nodes.
    """

    def __init__(self, settings: GossipSettings, initial: Vector, clients: Sequence[int]) -> None:
        self._watches = {
            one: NeighbourWatch(settings, initial, Observer("neighbour", frozenset({one})))
            for one in clients
        }

    def note(self, round: int, records: Sequence[Record]) -> None:
        """All messages of a round."""
        for watch in self._watches.values():
            watch.follow(round, records)

    def model(self, client: int) -> Vector | None:
        """See :class:`Truth`."""
        return self._watches[client].model


def gossiping(
    settings: GossipSettings, initial: Vector, owners: Mapping[int, int], clients: Sequence[int]
) -> tuple[Truth, Readers | None]:
    """The truth about these nodes' models, and readers where what they send are increments."""
    method = agreed(settings)

    def reader(node: int) -> Neighbour:
        return method.neighbour(settings, node, initial)

    if reader(0).sends == "models":
        return GossipTruth(settings, initial, owners), None
    return AccumulatedTruth(settings, initial, clients), reader


@dataclass(frozen=True)
class Moment:
    """One round in which the tapped client took part."""

    round: int
    protection: float
    """‖x^c − x^a‖²."""
    norm: float
    """‖x^c‖²."""
    moved: float
    """‖x^c − x_0‖²: the error of who hears nothing, and takes the first model for the client's."""
    left: float | None
    """The error where something was heard, as a share of ‖x^c‖² there; None: it was missed."""


@dataclass(eq=False)
class Listener:
    """One way to listen on one tap, and what came of it."""

    tap: Observer
    client: int
    sends: Sends
    hears: str
    start: str
    interception: float
    estimate: Estimator = field(repr=False)
    server: Floats = field(repr=False)
    """The model that the client gets, as far as this listener knows."""
    initial: Floats = field(repr=False)
    moments: list[Moment] = field(default_factory=list, repr=False)

    @property
    def label(self) -> str:
        """Of a column."""
        return f"{self.hears}, from {self.start}"

    def note(self, round: int, truth: Floats, heard: NDArray[np.bool_]) -> None:
        """How far the estimate is from the truth."""
        error, left = truth - self.estimate.model[: len(truth)], None
        if heard.any():
            norm = float(truth[heard] @ truth[heard])
            left = float(error[heard] @ error[heard]) / norm if norm else 0.0
        moved = truth - self.initial[: len(truth)]
        protection, norm, far = (float(one @ one) for one in (error, truth, moved))
        self.moments.append(Moment(round, protection, norm, far, left))

    def figures(self, share: float) -> dict[str, Any]:
        """One line of the report."""
        last, lefts = self.moments[-1], [m.left for m in self.moments if m.left is not None]
        worst = max(lefts, default=None)
        return {
            "tap": self.tap.name,
            "sends": self.sends,
            "hears": self.hears,
            "starts at": self.start,
            "γ": self.interception,
            "rounds": len(self.moments),
            "heard": len(lefts),
            "coordinates, %": 100 * share,
            "‖x^c − x^a‖²": last.protection,
            "of ‖x^c‖², %": 100 * last.protection / last.norm if last.norm else None,
            "of ‖x^c − x_0‖², %": 100 * last.protection / last.moved if last.moved else None,
            "left where heard, %": None if worst is None else 100 * worst,
            "0 when heard": None if worst is None else _yes(worst <= NOTHING_LEFT),
        }


def _yes(true: bool) -> str:
    return "yes" if true else "no"


@dataclass(frozen=True, eq=False)
class EavesdropReport:
    """What every listener came to."""

    listeners: tuple[Listener, ...]
    shares: Mapping[str, float]
    """Of a model's coordinates, those that a tap has had on its wire, by the tap's name."""

    def figures(self) -> dict[str, list[dict[str, Any]]]:
        """A line a listener, at the end; and a line a round, of those that miss some."""
        there = [one for one in self.listeners if one.moments]
        lines = [one.figures(self.shares[one.tap.name]) for one in there]
        rounds = list(self._rounds([one for one in there if one.interception < 1]))
        return {"eavesdropper": lines, "eavesdropper, ‖x^c − x^a‖² by round": rounds}

    @staticmethod
    def _rounds(listeners: Sequence[Listener]) -> Iterator[dict[str, Any]]:
        for tap in dict.fromkeys((one.tap, one.interception) for one in listeners):
            mine = [one for one in listeners if (one.tap, one.interception) == tap]
            for each in zip(*(one.moments for one in mine), strict=True):
                heard = _yes(each[0].left is not None)
                row = {"tap": tap[0].name, "γ": tap[1], "round": each[0].round, "heard": heard}
                labelled = zip(mine, each, strict=True)
                yield row | {one.label: moment.protection for one, moment in labelled}


class Eavesdrop:
    """The eavesdropper on some taps; whether a round is heard is drawn from a named stream.

    ``observers`` are those of the audit, of which the links are taps; the client that is tapped is
    the first of a link's ends. ``initial`` is the model that everyone started from. ``parameters``
    is how many of its coordinates are the model's, if there are others after them (SCAFFOLD's
    control variates). Where nodes gossip increments, ``readers`` make a model of them.
    """

    name = "eavesdrop"

    def __init__(
        self,
        observers: Sequence[Observer],
        initial: Vector,
        truth: Truth,
        *,
        parameters: int | None = None,
        interceptions: Sequence[float] = INTERCEPTIONS,
        carry: float = CARRY,
        seed: int = 0,
        readers: Readers | None = None,
    ) -> None:
        self._taps = {n: one for n, one in enumerate(observers) if one.link is not None}
        if not self._taps:
            found = ", ".join(one.name for one in observers) or "none"
            expected = "a link to tap: link:3-7, or link:3-all for all links of member 3"
            raise InvalidSetting("observer", found, expected)
        for gamma in interceptions:
            require(0 < gamma <= 1, "interception", gamma, "a probability above 0, at most 1")
        self._initial, self._truth, self._counted = initial, truth, parameters
        self._gammas, self._carry, self._seed = tuple(interceptions), carry, seed
        self._readers = readers
        self._reading: dict[Listener, Neighbour] = {}
        self._listeners: dict[Observer, list[Listener]] = {}
        self._covered: dict[Observer, NDArray[np.bool_]] = {}
        self._before: dict[Observer, Floats] = {}

    def see(self, sight: Sight | NeighbourSight | FinalModel) -> None:
        """Move every estimate of the taps that this sight is of."""
        match sight:
            case Sight():
                for position, number in enumerate(sight.observers):
                    if number in self._taps:
                        self._increments(sight, position, self._taps[number])
            case NeighbourSight() if sight.observer in self._taps.values():
                if self._readers is None:
                    self._models(sight, sight.observer)
                else:
                    self._partitions(sight, sight.observer, self._readers)

    def report(self) -> EavesdropReport:
        """What came of all that was seen."""
        listeners = tuple(one for some in self._listeners.values() for one in some)
        shares = {tap.name: float(seen.mean()) for tap, seen in self._covered.items()}
        return EavesdropReport(listeners, shares)

    # -- where increments travel --------------------------------------------------------------

    def _increments(self, sight: Sight, position: int, tap: Observer) -> None:
        """Where members aggregate: what the client sent, and what came back to it."""
        client = _tapped(tap)
        server = sight.placed(sight.model).astype(np.float64)
        initial = sight.placed(self._initial).astype(np.float64)
        hears = (UPLINK, BOTH) if tap.both_ways else (UPLINK,)
        listeners = self._made(tap, "increments", hears, initial)
        pieces, model = sight.pieces(client), self._truth.model(client)
        stated = np.zeros(len(server), np.bool_)
        if pieces is not None:
            stated[pieces.coordinates] = np.repeat(sight.stated, pieces.sizes)
        moved = np.where(stated, 0.0, server - self._before.get(tap, initial))
        self._before[tap] = server
        for one in listeners:
            if self._heard(one, sight.round - 1):
                one.server = one.server + moved
            if self._heard(one, sight.round):
                one.server = np.where(stated, server, one.server)
        if pieces is None or model is None:
            return
        seen = np.repeat(sight.seen(client)[position], pieces.sizes)
        at = np.zeros(len(server), np.bool_)
        at[pieces.coordinates[seen]] = True
        for one in listeners:
            # The reference of shifted compression follows from what came back.
            values = pieces.update if one.hears == BOTH else pieces.sent
            sent = np.zeros(len(server))
            sent[pieces.coordinates[seen]] = -sight.rate * pieces.steps * values[seen]
            if one.hears == BOTH:
                one.estimate.model = one.server
            self._listen(one, sight.round, sent, at, sight.placed(model))

    # -- where models travel ------------------------------------------------------------------

    def _models(self, sight: NeighbourSight, tap: Observer) -> None:
        """Where nodes gossip: what the tapped member sent of its own."""
        initial = self._initial.astype(np.float64)
        listeners = self._made(tap, "models", (UPLINK,), initial)
        model = self._truth.model(_tapped(tap))
        if model is None:
            return
        sent, at = np.zeros(len(initial)), np.zeros(len(initial), np.bool_)
        for piece in sight.fresh:
            if piece.sender == _tapped(tap):
                sent[piece.coordinates], at[piece.coordinates] = piece.values, True
        for one in listeners:
            self._listen(one, sight.round, sent, at, model)

    # -- where nodes gossip increments --------------------------------------------------------

    def _partitions(self, sight: NeighbourSight, tap: Observer, readers: Readers) -> None:
        """What a node sends is the sum of its updates since a peer's last turn, and a reader knows
        how those add up; of what was missed it makes nothing."""
        client, initial = _tapped(tap), self._initial.astype(np.float64)
        model = self._truth.model(client)
        assert model is not None
        at = np.zeros(len(initial), np.bool_)
        for piece in sight.pieces:
            if piece.sender == client:
                at[piece.coordinates] = True
        hears = (UPLINK, BOTH) if tap.both_ways else (UPLINK,)
        for one in self._made(tap, "increments", hears, initial):
            reader = self._reading.setdefault(one, readers(client))
            heard = sight.shares if self._heard(one, sight.round) else ()
            own = [share for share in heard if share.source == client]
            came = [share for share in heard if share.source != client and one.hears == BOTH]
            reader.overhear(sight.round, own, came)
            offset = 0 if one.start == FIRST else initial
            one.estimate.model = reader.model.astype(np.float64) - offset
            self._covered[tap] |= at
            one.note(sight.round, model.astype(np.float64), at if heard else np.zeros_like(at))

    # -- both ---------------------------------------------------------------------------------

    def _made(
        self, tap: Observer, sends: Sends, hears: Sequence[str], initial: Floats
    ) -> list[Listener]:
        """The listeners of a tap, made when it is first seen."""
        if tap not in self._listeners:
            self._covered[tap] = np.zeros(len(initial), np.bool_)
            self._listeners[tap] = [
                Listener(tap, _tapped(tap), sends, way, name, gamma,
                         Estimator(start, self._carry), np.array(start), initial)
                for gamma in self._gammas
                for way in hears
                for name, start in ((ZERO, np.zeros(len(initial))), (FIRST, initial))
            ]  # fmt: skip
        return self._listeners[tap]

    def _listen(
        self, one: Listener, round: int, sent: Floats, at: NDArray[np.bool_], model: Vector
    ) -> None:
        """A round in which the client took part."""
        self._covered[one.tap] |= at
        if self._heard(one, round):
            one.estimate.hear(sent, at, one.sends)
        else:
            at = np.zeros_like(at)
            one.estimate.miss()
        counted = slice(self._counted)
        one.note(round, model.astype(np.float64)[counted], at[counted])

    def _heard(self, one: Listener, round: int) -> bool:
        draw = Stream(self._seed, "eavesdrop", round, one.client).uniform(0, 1)
        return bool(draw[0] < one.interception)


def _tapped(tap: Observer) -> int:
    assert tap.link is not None
    return tap.link[0]
