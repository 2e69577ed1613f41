"""The strongest attack here: explain an observed update by all candidates' gradients at once.

A full-batch update is the mean of its samples' gradients. Gradients of one class resemble each
other, so a single inner product mostly tells whether the client has such samples at all. A ridge
regression of the update on the gradients of *all* candidates, those of other clients among them as
examples of what is out, takes what they have in common out of the comparison:

    b = (G·Gᵀ + λI)⁻¹·G·g_k      on the visible coordinates;

b_c is the weight of candidate c in client k's update, about 1/S_k or 0. Rounds add up: the visible
coordinates of several rounds are rows of one regression. The attacker needs candidates of the right
kind and the model's architecture, and knows nothing of any membership.

Where clients clip every sample and add noise (:mod:`eris.protocol.secure.noise_terms`), all of that
but the draws is agreed in public, and the attacker goes by it: candidates are clipped as clients
clip, all coordinates of all rounds count, for noise averages out over them, and λ is what fits the
noise: its variance in what is regressed over that of a coin's b.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from eris.audit.alignment import Scores
from eris.audit.candidates import Candidates
from eris.audit.watch import Sight
from eris.core.streams import Stream
from eris.core.vectors import Indices, Vector
from eris.protocol.secure.noise_terms import SharedNoise

RIDGE = 0.1
"""λ as a share of the mean of G·Gᵀ's diagonal."""
ROUNDS = 10
"""How many rounds are taken in, the first ones: later a client's momentum carries what it computed
rounds ago, and the gradients of what it has learnt vanish. Fixed before membership is looked at.
"""
MOST_COORDINATES = 2048
"""Of a round, drawn by lot where more are visible: more add little and cost as much again."""
PRIOR = 4.0
"""One over the variance of b, in units of its largest value, if a fair coin put a sample in."""


class JointRegression:
    """One observer's regression, over the first rounds it is given.

    Clients are regressed one by one on the coordinates each of them sent, or together where all
    send the same ones. An observer that sees no contribution regresses the published mean.
    """

    def __init__(self, candidates: Candidates, *, seed: int, ridge: float = RIDGE) -> None:
        self.candidates, self._ridge, self._seed = candidates, ridge, seed
        m, clients = len(candidates), len(candidates.clients)
        self._sent = np.empty(0, np.int64)
        """Where what a client sends lies: with noise, what is clipped."""
        self._lot: tuple[tuple[int, int], Indices] = ((0, 0), np.empty(0, np.int64))
        self._rounds = 0
        self._noise: SharedNoise | None = None
        self._mixed = 1
        """Noises in what is regressed: a client's, or those of all that a mean is of."""
        self._gram: dict[int, NDArray[np.float64]] = {}
        self._right = np.zeros((m, clients))

    @property
    def full(self) -> bool:
        """Whether it has all the rounds it takes in."""
        return self._noise is None and self._rounds >= ROUNDS

    def begin(self, sight: Sight, observer: int) -> None:
        """Note what an observer saw in a round; the gradients at its model follow."""
        self._rounds += 1
        self._noise = sight.noise
        self._found = self._visible(sight, observer)
        at = [coordinates for _, coordinates, _ in self._found]
        self._taken = np.unique(np.concatenate(at)) if at else np.empty(0, np.int64)
        self._gradients = np.empty((len(self.candidates), len(self._taken)), np.float32)

    def add(self, place: int, gradient: Vector) -> None:
        """Take in a candidate's gradient."""
        scale = np.float32(1)
        if self._noise is not None:
            norm = float(np.linalg.norm(gradient[self._sent]))
            scale = np.float32(min(1.0, self._noise.clip / norm) if norm else 1)
        self._gradients[place] = scale * gradient[self._taken]

    def finish(self) -> None:
        """Add the round to the regression."""
        found, clients = self._found, self._right.shape[1]
        if not found:
            return
        if len(found) == clients and all(np.array_equal(at, found[0][1]) for _, at, _ in found):
            self._join(range(clients), self._gradients, np.stack([v for _, _, v in found]))
            return
        for client, at, values in found:
            columns = np.searchsorted(self._taken, at)
            self._join([client], self._gradients[:, columns], values[None])

    def scores(self) -> Scores:
        """The weight of every candidate in its own client's update."""
        found = np.zeros(len(self.candidates))
        for key, gram in self._gram.items():
            clients = range(self._right.shape[1]) if key < 0 else [key]
            ridge = self._ridge * np.trace(gram) / len(gram)
            if self._noise is not None:
                ridge = PRIOR * self._mixed * self._noise.std**2
            if ridge <= 0:
                continue
            regular = gram + ridge * np.eye(len(gram))
            weights = np.linalg.solve(regular, self._right[:, list(clients)])
            for column, client in enumerate(clients):
                mine = self.candidates.whose == client
                found[mine] = weights[mine, column]
        return found

    def _join(
        self, clients: Sequence[int], gradients: NDArray[np.float32], values: NDArray[np.float32]
    ) -> None:
        key = -1 if len(clients) == self._right.shape[1] else clients[0]
        product = (gradients @ gradients.T).astype(np.float64)
        self._gram[key] = product + self._gram.get(key, 0.0)
        self._right[:, list(clients)] += (gradients @ values.T).astype(np.float64)

    def _visible(
        self, sight: Sight, observer: int
    ) -> list[tuple[int, Indices, NDArray[np.float32]]]:
        """(number of a client, coordinates, values): its contributions, or what was published."""
        row = sight.observers.index(observer)
        found = []
        for number, client in enumerate(self.candidates.clients):
            seen = sight.seen(client)[row]
            pieces = sight.pieces(client, published=not seen.any())
            if pieces is None:
                continue
            chosen = seen if seen.any() else sight.published
            values = pieces.update if seen.any() else pieces.published
            assert values is not None
            at = self._drawn(sight.round, np.flatnonzero(np.repeat(chosen, pieces.sizes)))
            if len(at):
                self._sent = pieces.coordinates
                averaged = None if seen.any() else sight.averaged(observer)
                self._mixed = 1 if averaged is None else len(averaged.clients)
                at = at[np.argsort(pieces.coordinates[at])]
                found.append((number, pieces.coordinates[at], values[at]))
        return found

    def _drawn(self, round: int, places: Indices) -> Indices:
        if len(places) <= MOST_COORDINATES or self._noise is not None:
            return places
        drawn = (round, len(places))
        if self._lot[0] != drawn:
            words = Stream(self._seed, "joint-coordinates", round).words(0, len(places))
            self._lot = drawn, np.sort(np.argsort(words, kind="stable")[:MOST_COORDINATES])
        return places[self._lot[1]]
