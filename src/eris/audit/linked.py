"""Membership where nodes gossip: which samples a neighbour can tell from what it is sent.

A candidate of a client of which nothing was seen in a round scores 0 in that round, by every score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from eris.audit import kernels
from eris.audit.alignment import ALIGNED, COSINE, NORMALISED, Scores, over
from eris.audit.attack import FinalModel
from eris.audit.candidates import Candidates
from eris.audit.gradients import SampleModel
from eris.audit.membership import LOSS, Judge, Levels, Membership
from eris.audit.neighbour import NeighbourSight, NeighbourWatch
from eris.audit.watch import Sight
from eris.core.errors import InvalidSetting
from eris.protocol.gossip.peer import Piece

LINKED, UNLINKED = "linked", "unlinked"
"""The attackers: one that knows which client is behind a sender, and one that does not.

Everywhere but in Shatter the sender is the client. There ``linked`` is told who is who, which is
more than a neighbour knows; ``unlinked`` takes the mean over all pieces of a round, without names.
"""
SCORES = (ALIGNED, NORMALISED, COSINE, LOSS)
"""Names as in :mod:`eris.audit.alignment`. ``loss`` is by how much a candidate's loss is lower at
the own average completed with what was received than at that average alone, so that a sample that
is hard for every model does not count as out."""


class NeighbourAudit(Membership):
    """Attacks what neighbours see, round by round, each for itself.

    ``owners`` says which client is behind a sender (Shatter: see
    :func:`eris.audit.linkability.true_owners`); without it virtual nodes have no names, and only
    the ``unlinked`` attacker is there. ``losses`` also scores by the completed model's loss: a
    forward pass of all candidates for every piece.

    Observers are called "neighbour 3, linked". A neighbour is not asked about its own samples.
    """

    def __init__(
        self,
        watches: Sequence[NeighbourWatch],
        samples: SampleModel,
        candidates: Candidates,
        levels: Levels | None = None,
        *,
        owners: Mapping[int, int] | None = None,
        losses: bool = True,
    ) -> None:
        super().__init__(samples, candidates, levels)
        if not watches:
            raise InvalidSetting("watches", "none", "at least one neighbour")
        nodes = watches[0].settings.nodes
        if strangers := [client for client in candidates.clients if not 0 <= client < nodes]:
            expected = f"a node that trains, 0 to {nodes - 1}"
            raise InvalidSetting("client of a candidate", strangers[0], expected)
        self._attacks = {
            one.observer: _Attack(one, samples, candidates, owners, losses) for one in watches
        }

    def see(self, sight: Sight | NeighbourSight | FinalModel) -> None:
        """Score every candidate by what a neighbour has of a round."""
        if isinstance(sight, NeighbourSight):
            if sight.observer not in self._attacks:
                return  # a tap: membership is asked of nodes
            attack = self._attacks[sight.observer]
            attack.take(sight)
            self.rounds = max(self.rounds, len(attack.visible))
        else:
            super().see(sight)

    def _judge(self, judge: Judge) -> None:
        for observer, attack in self._attacks.items():
            visible = float(np.mean(attack.visible))
            for (attacker, score), each in attack.scores.items():
                name = f"{observer.name}, {attacker}"
                judge.add(name, score, np.stack(each), attack.places, visible)


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
            (LINKED, NORMALISED): over(together, norm),
            (LINKED, COSINE): over(together, norm * length),
            (UNLINKED, ALIGNED): inner.mean(axis=1),
            (UNLINKED, NORMALISED): over(inner, norms).mean(axis=1),
            (UNLINKED, COSINE): over(inner, norms * each).mean(axis=1),
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
