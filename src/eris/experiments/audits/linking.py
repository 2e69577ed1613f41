"""Whose is a chunk that others carry? ``python -m eris.experiments.audits.linking``.

Members of a Shatter federation as on a network, moved in memory. Some of them put together what
they get over all rounds, and lay every chunk that comes under a name at somebody's door:

- by *contents*, told everybody's training set: the lowest mean loss at the own average with the
  chunk written over it, or the gradient that points most as the chunk moves it;
- by *memory*, told nothing: what they carry has its owner's name on it, so they keep of every
  member the chunk that they last carried, and take the one that is nearest in values;
- by *names*, *places* on the roll, and *bytes* of the message: as the guest, of all rounds so far,
  that is nearest in that.

Who they are, the chunk's carrier and members whose chunk of that number they carry are no
candidates. Messages of a hop leave together, so that timing tells nothing here.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from eris.audit.gradients import SampleModel
from eris.audit.statistics import clopper_pearson
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.data import iid, load_digits
from eris.methods.shatter import Shatter
from eris.models.softmax import softmax
from eris.protocol.codec import encode
from eris.protocol.gossip.carried import EXCHANGE, HAND_BACK, HAND_OUT, HOPS, LEAST, CarriedNode
from eris.protocol.gossip.overheard import CarriedNeighbour, alias
from eris.protocol.gossip.peer import Arrived, GossipSettings, Piece
from eris.protocol.gossip.roll import Roll
from eris.protocol.messages import Share
from eris.training.torch import flatten, normalise, torch_clients

ATTACKS = ("loss", "gradient", "memory", "names", "places", "bytes")
RATE = 0.5


@dataclass(frozen=True, eq=False)
class Clue:
    """A virtual node as it was met: what is outside of its chunk, and whose it is."""

    chunk: int
    owner: int
    values: Vector = field(repr=False)
    outside: Mapping[str, float]
    """Its name, place on the roll and bytes, as numbers."""


@dataclass(frozen=True)
class Linked:
    """How often one attack was right."""

    attack: str
    right: int
    tries: int
    chance: float

    def __str__(self) -> str:
        low, high = (100 * end for end in clopper_pearson(self.right, self.tries))
        share = 100 * self.right / self.tries
        return (
            f"{self.attack:10} {share:5.1f} % [{low:.1f}, {high:.1f}] of {self.tries:,}; "
            f"chance {100 * self.chance:.1f} %"
        )


@dataclass
class Digits:
    """Members that train on digits, each with a machine of its own."""

    method: Shatter
    nodes: int
    samples: int
    seed: int

    def __post_init__(self) -> None:
        data, module = load_digits(), softmax(seed=self.seed)
        images, labels = normalise(data.train_images), torch.tensor(data.train_labels).long()
        parts = iid(len(images), self.nodes, self.samples, self.seed)
        self.trainers = torch_clients(
            module, images, labels, parts, learning_rate=RATE, epochs=1, batch_size=self.samples
        )
        places = np.concatenate(parts)
        self.held = SampleModel(
            module, functional.cross_entropy, images[torch.tensor(places)],
            labels[torch.tensor(places)],
        )  # fmt: skip
        self.initial = flatten(module)
        self.settings = GossipSettings(
            len(self.initial), self.nodes, self.method.name, self.method.parameters, self.seed,
            RATE, least_clients=LEAST,
        )  # fmt: skip
        self.known: list[tuple[Roll, dict[bytes, tuple[int, int]]]] = []
        self._drawn = 0
        made = self.method.members(self.settings, self._draw)
        self.members = [made.build(me, self.initial) for me in range(self.nodes)]

    def directions(self, model: Vector) -> NDArray[np.float64]:
        """By member: the mean gradient of its samples at a model."""
        found = np.stack([gradient for _, gradient in self.held.gradients(model)])
        means: NDArray[np.float64] = found.reshape(self.nodes, self.samples, -1).mean(
            1, dtype=np.float64
        )
        return means

    def _draw(self, size: int) -> bytes:
        self._drawn += 1
        return Stream(self.seed, "drawn", self._drawn).words(0, -(-size // 4)).tobytes()[:size]

    def run(self, round: int) -> list[Arrived]:
        """A round: everything that was said; ``known`` is what members knew before they forgot."""
        said, members = [], [one for one in self.members if isinstance(one, CarriedNode)]
        out = [
            member.begin(round, trainer.update(member.model.copy(), round).vector)
            for member, trainer in zip(members, self.trainers, strict=True)
        ]
        for hop in range(HOPS):
            for sender, sent in enumerate(out):
                for one in sent:
                    assert isinstance(one.message, Share)
                    said += [Arrived(sender, (receiver,), one.message) for receiver in one.to]
                    for receiver in one.to:
                        members[receiver].receive(one.message, sender)
            if hop == HAND_BACK:
                self.known = [(member._roll, dict(member._own)) for member in members]
            out = [member.turn(hop) for member in members]
        return said


class Linker:
    """Members that put together what they get, and what they make of it."""

    def __init__(self, federation: Digits, members: Sequence[int]) -> None:
        self.federation, self.members = federation, members
        carrying = federation.method.carrying(federation.settings)
        self.eyes = {me: CarriedNeighbour(carrying, me, federation.initial) for me in members}
        self.clues: list[Clue] = []
        self.tries: Counter[str] = Counter()
        self.right: Counter[str] = Counter()
        self.chances: list[float] = []

    def look(self, round: int, said: Sequence[Arrived]) -> None:
        """Guess whose the chunks of a round are."""
        nodes, (roll, _) = self.federation.nodes, self.federation.known[0]
        names = {alias(nodes, name): name for name in roll.carriers}
        owners = {name: me for me, (_, own) in enumerate(self.federation.known) for name in own}
        outside = self._outside(roll, said)
        guests: dict[bytes, Clue] = {}
        met: dict[bytes, tuple[int, Piece]] = {}
        means = {me: self.federation.directions(eye.model) for me, eye in self.eyes.items()}
        befores = {me: eye.model for me, eye in self.eyes.items()}
        for me, eye in self.eyes.items():
            came = [one for one in said if me in one.receivers]
            for one in came:
                for _, (name, chunk), values in eye.chunks(one.share):
                    if one.share.header.segment == HAND_OUT:
                        guests[name] = Clue(chunk, one.source, values, outside[name])
            own = [one for one in said if one.source == me]
            for piece in eye.overhear(round, own, came):
                if piece.sender >= nodes:
                    met[names[piece.sender]] = me, piece
        self.clues += guests.values()
        for name, (me, piece) in met.items():
            if name in guests or owners[name] in self.members:
                continue
            carrier, chunk = roll.carriers[name]
            out = {guest.owner for guest in guests.values() if guest.chunk == chunk}
            options = sorted({*range(nodes)} - {*self.members, carrier} - out)
            scores = self._by_contents(piece, befores[me], means[me])
            scores |= self._by_clues(piece, chunk, outside[name])
            self._note(scores, owners[name], options)

    def _outside(self, roll: Roll, said: Sequence[Arrived]) -> dict[bytes, dict[str, float]]:
        """What there is of a virtual node beside its chunk."""
        lengths: dict[bytes, float] = {}
        eye = next(iter(self.eyes.values()))
        for one in said:
            if one.share.header.segment == EXCHANGE:
                size = float(len(encode(one.share)))
                lengths |= {name: size for _, (name, _), _ in eye.chunks(one.share)}
        return {
            name: {
                "names": float(int.from_bytes(name, "big")),
                "places": float(place),
                "bytes": lengths.get(name, 0.0),
            }
            for place, name in enumerate(roll.carriers)
        }

    def _by_contents(
        self, piece: Piece, before: Vector, directions: NDArray[np.float64]
    ) -> dict[str, dict[int, float]]:
        held, completed = self.federation.held, before.copy()
        completed[piece.coordinates] = piece.values
        losses = held.losses(completed).reshape(self.federation.nodes, -1).mean(1)
        means = directions[:, piece.coordinates]
        cosines = means @ piece.update / (np.linalg.norm(means, axis=1) + 1e-12)
        return {
            "loss": dict(enumerate((-losses).tolist())),
            "gradient": dict(enumerate(cosines.tolist())),
        }

    def _by_clues(
        self, piece: Piece, chunk: int, outside: Mapping[str, float]
    ) -> dict[str, dict[int, float]]:
        scores: dict[str, dict[int, float]] = {way: {} for way in ("memory", *outside)}
        for clue in self.clues:  # the last one of a member stands
            if clue.chunk == chunk:
                scores["memory"][clue.owner] = -float(np.linalg.norm(clue.values - piece.values))
            for way, value in outside.items():
                near = -abs(clue.outside[way] - value)
                scores[way][clue.owner] = max(near, scores[way].get(clue.owner, -np.inf))
        return scores

    def _note(
        self, scores: Mapping[str, Mapping[int, float]], owner: int, options: Sequence[int]
    ) -> None:
        self.chances.append(1 / len(options))
        for attack, of in scores.items():
            best = max(options, key=lambda one: of.get(one, -np.inf))
            self.tries[attack] += 1
            self.right[attack] += best == owner

    def report(self) -> list[Linked]:
        """All attacks, with what lots would have given."""
        chance = float(np.mean(self.chances))
        return [Linked(a, self.right[a], self.tries[a], chance) for a in ATTACKS]


def measure(
    *, nodes: int, rounds: int, chunks: int, degree: int, samples: int, together: int,
    seed: int = 0, tell: Callable[[str], object] = print,
) -> list[Linked]:  # fmt: skip
    """Train for some rounds while some members look, and print how often they are right."""
    method = Shatter(virtual_nodes=chunks, degree=degree)
    federation = Digits(method, nodes, samples, seed)
    linker = Linker(federation, range(together))
    for round in range(1, rounds + 1):
        linker.look(round, federation.run(round))
    found = linker.report()
    tell(
        f"digits, softmax regression ({federation.settings.n} parameters), {nodes} nodes of "
        f"{samples} samples, {chunks} chunks, degree {degree}, {rounds} rounds, seed {seed}; "
        f"{together} members look together"
    )
    for one in found:
        tell(str(one))
    return found


def main(arguments: list[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m eris.experiments.audits.linking")
    for name, usual in {"nodes": 30, "rounds": 20, "chunks": 4, "degree": 4, "samples": 16,
                        "together": 1, "seed": 0}.items():  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=usual)
    measure(**vars(parser.parse_args(arguments)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
