"""The audit of a neighbour in gossip: what it is sent, and which samples that gives away.

Its own model and what others tell of theirs are read as its method says
(:class:`~eris.protocol.gossip.Neighbour`), and candidates are scored by that. A candidate of a
client of which nothing was seen in a round scores 0 in that round, by every score.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from eris.audit import kernels
from eris.audit.alignment import ALIGNED, COSINE, NORMALISED, Scores
from eris.audit.candidates import Candidates
from eris.audit.gradients import SampleModel
from eris.audit.membership import LOSS, Judge, MembershipReport
from eris.core.errors import ErisError, InvalidSetting
from eris.core.vectors import Vector
from eris.methods.registry import agreed
from eris.protocol.gossip import Arrived, GossipSettings, Piece
from eris.protocol.messages import Share
from eris.protocol.observers import Observer
from eris.protocol.transcript import Record

LINKED, UNLINKED = "linked", "unlinked"
"""The attackers: one that knows which client is behind a sender, and one that does not.

Everywhere but in Shatter the sender is the client. There ``linked`` is told who is who, which is
more than a neighbour knows; ``unlinked`` takes the mean over all pieces of a round, without names.
"""
SCORES = (ALIGNED, NORMALISED, COSINE, LOSS)
"""Names as in :mod:`eris.audit.alignment`. ``loss`` is by how much a candidate's loss is lower at
the own average completed with what was received than at that average alone, so that a sample that
is hard for every model does not count as out."""


@dataclass(frozen=True, eq=False)
class NeighbourSight:
    """A round as a neighbour has it: its own last average, and what others sent it."""

    round: int
    observer: Observer
    model: Vector = field(repr=False)
    pieces: tuple[Piece, ...]

    @property
    def fresh(self) -> tuple[Piece, ...]:
        """The pieces of the first gossip step: later ones hold more of others and less of who
        sends them."""
        first = min((piece.step for piece in self.pieces), default=0)
        return tuple(piece for piece in self.pieces if piece.step == first)

    def completed(self, pieces: Iterable[Piece]) -> Vector:
        """The own average with these pieces written over it."""
        model = self.model.copy()
        for piece in pieces:
            model[piece.coordinates] = piece.values
        return model


class NeighbourWatch:
    """One node of a gossiping federation that looks at what it is sent.

    ``settings`` are the public ones (``GossipSettings.from_canonical(transcript.settings)``),
    ``initial`` is the model everyone started from.

    >>> settings = GossipSettings(n=2, nodes=3, method="el", parameters=(("degree", 2),))
    >>> NeighbourWatch(settings, np.zeros(2, np.float32), Observer("neighbour", frozenset({3})))
    Traceback (most recent call last):
    ...
    eris.core.errors.InvalidSetting: observer is 'neighbour 3'; expected a node that trains, 0 to 2
    """

    def __init__(self, settings: GossipSettings, initial: Vector, observer: Observer) -> None:
        if observer.kind != "neighbour" or len(observer.members) != 1:
            raise InvalidSetting("observer", observer.name, "one neighbour")
        self.settings, self.observer = settings, observer
        self.me = min(observer.members)
        if not 0 <= self.me < settings.nodes:
            expected = f"a node that trains, 0 to {settings.nodes - 1}"
            raise InvalidSetting("observer", observer.name, expected)
        self._machine = agreed(settings).neighbour(settings, self.me, initial)

    @property
    def model(self) -> Vector:
        """The own average after the rounds so far."""
        return self._machine.model

    @property
    def names_clients(self) -> bool:
        """Whether the sender of a piece is the client it comes from."""
        return self._machine.names_clients

    def follow(self, round: int, records: Iterable[Record]) -> NeighbourSight:
        """Take in a round's messages, of which those in the observer's view are looked at."""
        own: list[Arrived] = []
        came: list[Arrived] = []
        for record in filter(self.observer.sees, records):
            try:
                share = record.message
            except ErisError:
                continue  # what a node would have refused tells it nothing
            if not isinstance(share, Share):
                continue
            if (share.header.federation, share.header.round) != (self.settings.fingerprint, round):
                continue
            one = Arrived(record.sender, record.receivers, share)
            (own if record.sender == self.me else came).append(one)
        before = self.model
        found = self._machine.overhear(round, own, came)
        ordered = sorted(found, key=lambda piece: (piece.step, piece.sender))
        return NeighbourSight(round, self.observer, before, tuple(ordered))


class NeighbourAudit:
    """Attacks what neighbours see, round by round, each for itself.

    ``owners`` says which client is behind a sender (Shatter: see
    :func:`eris.audit.linkability.true_owners`); without it virtual nodes have no names, and only
    the ``unlinked`` attacker is there. ``losses`` also scores by the completed model's loss: a
    forward pass of all candidates for every piece.
    """

    def __init__(
        self,
        watches: Sequence[NeighbourWatch],
        samples: SampleModel,
        candidates: Candidates,
        *,
        owners: Mapping[int, int] | None = None,
        losses: bool = True,
        seed: int = 0,
    ) -> None:
        if not watches:
            raise InvalidSetting("watches", "none", "at least one neighbour")
        strangers = [c for c in candidates.clients if not 0 <= c < watches[0].settings.nodes]
        if strangers:
            expected = f"a node that trains, 0 to {watches[0].settings.nodes - 1}"
            raise InvalidSetting("client of a candidate", strangers[0], expected)
        self.watches, self.candidates = tuple(watches), candidates
        self._seed = seed
        self._attacks = [_Attack(one, samples, candidates, owners, losses) for one in watches]

    @property
    def rounds(self) -> int:
        """How many rounds have been taken in."""
        return len(self._attacks[0].visible)

    def take(self, round: int, records: Iterable[Record]) -> None:
        """Attack a round."""
        given = tuple(records)
        for attack in self._attacks:
            attack.take(attack.watch.follow(round, given))

    def skip(self, round: int, records: Iterable[Record]) -> None:
        """Follow a round without attacking it."""
        given = tuple(records)
        for watch in self.watches:
            watch.follow(round, given)

    def report(
        self, *, draws: int = 1000, delta: float = 1e-5, confidence: float = 0.95
    ) -> MembershipReport:
        """Compare the guesses with the truth; observers are called "neighbour 3, linked".

        A neighbour is not asked about its own samples.
        """
        if not self.rounds:
            raise InvalidSetting("rounds", 0, "at least one round to audit")
        judge = Judge(self.candidates, self._seed, draws, delta, confidence)
        for attack in self._attacks:
            visible = float(np.mean(attack.visible))
            for attacker, score in attack.scores:
                name = f"{attack.watch.observer.name}, {attacker}"
                each = np.stack(attack.scores[attacker, score])
                judge.add(name, score, each, attack.places, visible)
        return judge.report(())


class _Attack:
    """One neighbour's scores (rounds, candidates) by attacker and score."""

    def __init__(
        self,
        watch: NeighbourWatch,
        samples: SampleModel,
        candidates: Candidates,
        owners: Mapping[int, int] | None,
        losses: bool,
    ) -> None:
        self.watch, self._samples, self._client = watch, samples, candidates.client
        self.places = np.flatnonzero(candidates.client != watch.me)
        self._owners, self._losses = owners, losses
        named = owners is not None or watch.names_clients
        attackers = (LINKED, UNLINKED) if named else (UNLINKED,)
        names = SCORES if losses else SCORES[:-1]
        self.scores: dict[tuple[str, str], list[Scores]] = {
            (attacker, name): [] for attacker in attackers for name in names
        }
        self.visible: list[float] = []

    def take(self, sight: NeighbourSight) -> None:
        """Score every candidate by a round's pieces."""
        pieces = sight.fresh
        behind = np.array([self._behind(piece) for piece in pieces], np.int64)
        others = self.watch.settings.nodes - 1
        self.visible.append(sum(len(piece.coordinates) for piece in pieces) / others)
        linked = self._client[:, None] == behind
        found = self._aligned(sight, pieces, linked) if pieces else {}
        if pieces and self._losses:
            found |= self._lowered(sight, pieces, linked)
        for key, rounds in self.scores.items():
            rounds.append(found.get(key, np.zeros(len(self._client))))

    def _behind(self, piece: Piece) -> int:
        if self._owners is None:
            return piece.sender if self.watch.names_clients else -1
        return self._owners.get(piece.sender, -1)

    def _aligned(
        self, sight: NeighbourSight, pieces: Sequence[Piece], linked: NDArray[np.bool_]
    ) -> dict[tuple[str, str], Scores]:
        """Inner products with the gradients at the own average, the one model that is known."""
        shape = len(self._client), len(pieces)
        products, squares = np.zeros((shape[0], 1, shape[1])), np.zeros(shape)
        coordinates = np.concatenate([piece.coordinates for piece in pieces])
        edges = np.cumsum([0, *(len(piece.coordinates) for piece in pieces)])
        updates = np.concatenate([piece.update for piece in pieces])[None]
        for place, gradient in self._samples.gradients(sight.model, self.places):
            kernels.piece_products(
                products[place], squares[place], gradient, coordinates, edges, updates
            )
        inner = products[:, 0]
        lengths = np.array([np.square(piece.update, dtype=np.float64).sum() for piece in pieces])
        together = (inner * linked).sum(axis=1)
        norm = np.sqrt((squares * linked).sum(axis=1))
        length = np.sqrt((lengths * linked).sum(axis=1))
        norms, each = np.sqrt(squares), np.sqrt(lengths)
        return {
            (LINKED, ALIGNED): together,
            (LINKED, NORMALISED): _over(together, norm),
            (LINKED, COSINE): _over(together, norm * length),
            (UNLINKED, ALIGNED): inner.mean(axis=1),
            (UNLINKED, NORMALISED): _over(inner, norms).mean(axis=1),
            (UNLINKED, COSINE): _over(inner, norms * each).mean(axis=1),
        }

    def _lowered(
        self, sight: NeighbourSight, pieces: Sequence[Piece], linked: NDArray[np.bool_]
    ) -> dict[tuple[str, str], Scores]:
        """ℓ at the own average − ℓ at the completed model: of all a client's pieces, or of each."""
        found = {key: np.zeros(len(self._client)) for key in ((LINKED, LOSS), (UNLINKED, LOSS))}
        before = np.zeros(len(self._client))
        before[self.places] = self._samples.losses(sight.model, self.places)
        for piece in pieces:
            after = self._samples.losses(sight.completed([piece]), self.places)
            found[UNLINKED, LOSS][self.places] += (before[self.places] - after) / len(pieces)
        for client in sorted(set(self._client[linked.any(axis=1)].tolist())):
            mine = np.flatnonzero(self._client == client)
            chosen = linked[mine[0]]
            model = sight.completed(
                piece for piece, ours in zip(pieces, chosen, strict=True) if ours
            )
            found[LINKED, LOSS][mine] = before[mine] - self._samples.losses(model, mine)
        return found


def _over(scores: Scores, norms: Scores) -> Scores:
    return np.divide(scores, norms, out=np.zeros_like(scores), where=norms > 0)
