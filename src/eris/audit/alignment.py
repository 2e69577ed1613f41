"""White-box scores: how a client's observed update is aligned with a candidate's gradient.

A client that trained on a sample moved along its gradient, so ⟨∇ℓ(c), g_k⟩ on the coordinates that
an observer sees is larger for what is in than for what is out. An inner product is a sum over
coordinates: it is computed once a message, and an observer's score is the sum over the messages
that reached it, whoever and however many it is.

An observer that was sent no contribution of a client (a plain member) is left with what was
published: the mean, in which the client is one of many.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eris.audit import kernels
from eris.audit.candidates import Candidates
from eris.audit.heard import Pieces
from eris.audit.watch import Sight
from eris.core.vectors import Vector

Scores = NDArray[np.float64]

PAPER, ALIGNED, NORMALISED, COSINE = "paper", "aligned", "normalised", "cosine"
NAMES = (PAPER, ALIGNED, NORMALISED, COSINE)
"""Of the scores.

- ``paper``: the inner product with what was sent, as it was sent;
- ``aligned``: with the update, the shift undone;
- ``normalised``: ``aligned``, divided by the norm of the candidate's gradient there;
- ``cosine``: divided by the norm of the update as well.
"""


@dataclass(frozen=True, eq=False)
class Alignment:
    """The scores of a round, by observer and candidate, and how much of the updates was seen."""

    observers: tuple[int, ...]
    scores: Mapping[str, Scores]
    visible: NDArray[np.float64]
    """By observer and client: coordinates of the client's own update that it saw."""


class Aligner:
    """Scores candidates, each at its own client, for the observers of a round's sight.

    Gradients of the candidates at the sight's model are handed in one by one.
    """

    def __init__(self, candidates: Candidates, sight: Sight) -> None:
        self._sight, clients = sight, candidates.clients
        self._of = candidates.whose
        self._seen = np.stack([sight.seen(client) for client in clients], axis=1)
        blind = not self._seen.any(axis=2).all()
        self._pieces = [sight.pieces(client, published=blind) for client in clients]
        self._sent = int(sight.shifted)
        self._published = 1 + self._sent
        self._rows = [None if p is None else self._vectors(p) for p in self._pieces]
        size, width = len(candidates), self._seen.shape[2]
        self._products = np.zeros((size, self._published + blind, width))
        self._squares = np.zeros((size, width))

    def _vectors(self, pieces: Pieces) -> NDArray[np.float32]:
        """What gradients are multiplied with, as few rows as are needed: the update, what was sent
        if that is another thing, and what was published."""
        rows = [pieces.update, pieces.sent] if self._sent else [pieces.update]
        if pieces.published is not None:
            rows.append(pieces.published)
        return np.stack(rows) if len(rows) > 1 else pieces.update[None]

    def add(self, place: int, gradient: Vector) -> None:
        """Take in a candidate's gradient."""
        client = self._of[place]
        pieces, rows = self._pieces[client], self._rows[client]
        if pieces is not None and rows is not None:
            products, squares = self._products[place], self._squares[place]
            kernels.piece_products(
                products, squares, gradient, pieces.coordinates, pieces.edges, rows
            )

    def finish(self) -> Alignment:
        """The scores, once all gradients are in."""
        empty = np.zeros(self._products.shape[1:])
        pairs = zip(self._pieces, self._rows, strict=True)
        norms = [empty if p is None or rows is None else _lengths(p, rows) for p, rows in pairs]
        none = np.zeros(self._seen.shape[2])
        sizes = np.stack([none if p is None else p.sizes for p in self._pieces])
        visible = np.einsum("okp,kp->ok", self._seen, sizes)
        return Alignment(self._sight.observers, self._scores(np.stack(norms)), visible)

    def _scores(self, norms: NDArray[np.float64]) -> dict[str, Scores]:
        """From products by piece to scores by observer."""
        observers, products = self._sight.observers, self._products
        scores = {name: np.zeros((len(observers), len(self._of))) for name in NAMES}
        for row, mine in enumerate(self._seen):
            alone = ~mine.any(axis=1)
            chosen = mine | (alone[:, None] & self._sight.published)
            which = chosen[self._of]
            public = alone[self._of]
            update = _summed(products[:, 0], which)
            sent = _summed(products[:, self._sent], which)
            length = _summed(norms[:, 0], chosen)
            if public.any():
                guess = _summed(products[:, self._published], which)
                update, sent = np.where(public, guess, update), np.where(public, guess, sent)
                length = np.where(alone, _summed(norms[:, self._published], chosen), length)
            gradient = np.sqrt(_summed(self._squares, which))
            scores[PAPER][row], scores[ALIGNED][row] = sent, update
            scores[NORMALISED][row] = over(update, gradient)
            scores[COSINE][row] = over(update, gradient * np.sqrt(length[self._of]))
        return scores


def _lengths(pieces: Pieces, rows: NDArray[np.float32]) -> NDArray[np.float64]:
    """‖·‖² of every row and piece."""
    squares = np.zeros((len(rows), len(pieces.edges) - 1))
    kernels.piece_squares(squares, pieces.edges, rows)
    return squares


def _summed(values: NDArray[np.float64], chosen: NDArray[np.bool_]) -> NDArray[np.float64]:
    found: NDArray[np.float64] = np.einsum("cp,cp->c", values, chosen)
    return found


def over(scores: Scores, norms: Scores) -> Scores:
    """Scores by norms; 0 where there is nothing to divide by."""
    return np.divide(scores, norms, out=np.zeros_like(scores), where=norms > 0)
