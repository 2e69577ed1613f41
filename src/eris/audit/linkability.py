"""Shatter's measures: whose is a received piece, and does it give away what its owner trained on?

Biswas et al., "Noiseless privacy-preserving decentralized learning", 2025, section 6. The observer
completes a received piece with its own last average.

- *Loss attack*: AUC of −loss at the completed model, the owner's training samples against test
  samples.
- *Linkability*: the piece is laid at the door of the node whose training set has the lowest mean
  loss at the completed model.

Both are told the training sets, and the loss attack the owner too: they measure how much a piece
says, not what one attacker can do. Where nodes hold different classes, the first also counts that
a node's samples are of its classes and test samples are not; canaries drawn from the node's own
data (:mod:`eris.audit.neighbour`) do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from eris.audit.attack import FinalModel
from eris.audit.gradients import SampleModel
from eris.audit.neighbour import NeighbourSight
from eris.audit.roc import roc
from eris.audit.statistics import clopper_pearson
from eris.audit.watch import Sight
from eris.core.errors import InvalidSetting, require
from eris.core.streams import Stream
from eris.core.vectors import Indices
from eris.protocol.gossip.overheard import alias, handed_out
from eris.protocol.gossip.peer import GossipSettings, Piece
from eris.protocol.messages import Share
from eris.protocol.transcript import Record
from eris.training.gradients import Loss

TEST = -1
"""The holder of the test samples."""
MOST_PIECES = 16
"""Of a round that are tried, drawn by lot where more were received."""


@dataclass(frozen=True, eq=False)
class PooledSamples:
    """All training sets and the test samples as one, and who holds which (``TEST``: nobody).

    >>> inputs, targets = torch.eye(4), torch.zeros(4, dtype=torch.int64)
    >>> parts = {0: (inputs[:2], targets[:2]), 2: (inputs[2:3], targets[2:3])}
    >>> test = inputs[3:], targets[3:]
    >>> held = PooledSamples.of(nn.Linear(4, 2), nn.functional.cross_entropy, parts, test)
    >>> held.holder.tolist(), held.nodes
    ([0, 0, 2, -1], [0, 2])
    """

    samples: SampleModel
    holder: Indices

    def __post_init__(self) -> None:
        if len(self.holder) != len(self.samples):
            expected = f"one for each of {len(self.samples)} samples"
            raise InvalidSetting("holders", f"{len(self.holder)} of them", expected)
        if not (self.holder == TEST).any():
            raise InvalidSetting("test samples", "none", "at least one, which nobody trained on")

    @classmethod
    def of(
        cls,
        module: nn.Module,
        loss: Loss,
        training: Mapping[int, tuple[Tensor, Tensor]],
        test: tuple[Tensor, Tensor],
    ) -> PooledSamples:
        """From every node's inputs and targets, and those of the test samples."""
        sets = {**{node: training[node] for node in sorted(training)}, TEST: test}
        inputs, targets = (torch.cat([given[i] for given in sets.values()]) for i in (0, 1))
        samples = SampleModel(module, loss, inputs, targets)
        return cls(samples, np.repeat(list(sets), [len(given[0]) for given in sets.values()]))

    @property
    def nodes(self) -> list[int]:
        """Who holds training samples."""
        return sorted(set(self.holder.tolist()) - {TEST})


@dataclass(frozen=True)
class Trial:
    """One piece, tried: how far it gives its owner's samples away, and whom it is laid to."""

    round: int
    observer: int
    sender: int
    owner: int
    coordinates: int
    auc: float
    guess: int
    options: int
    """Among how many nodes was guessed."""


def true_owners(settings: GossipSettings, records: Iterable[Record]) -> dict[int, int]:
    """Which node is behind a sender, from *all* messages of a run: for evaluation alone.

    A node is behind itself; a virtual node's owner is the one real node that speaks to it or, where
    members carry for each other, that hands out its name.
    """
    found = {node: node for node in range(settings.nodes)}
    for record in records:
        if isinstance(share := record.message, Share) and share.names:
            names = handed_out(share)
            found |= {alias(settings.nodes, name): record.sender for name in names}
            continue
        if record.sender < settings.nodes:
            virtual = (one for one in record.receivers if one >= settings.nodes)
            found |= dict.fromkeys(virtual, record.sender)
    return found


@dataclass(frozen=True)
class Distribution:
    """How values are spread.

    >>> Distribution.of([1.0, 2.0, 3.0]).median
    2.0
    """

    count: int
    mean: float
    lowest: float
    quarter: float
    median: float
    three_quarters: float
    highest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Distribution:
        """Of at least one value."""
        points = np.quantile(values, [0, 0.25, 0.5, 0.75, 1]).tolist()
        return cls(len(values), float(np.mean(values)), *points)


@dataclass(frozen=True)
class LossAttack:
    """AUC of the loss attack: over all pieces, and of the means of each node and each round."""

    pieces: Distribution
    nodes: Distribution
    by_node: Mapping[int, float]
    by_round: Mapping[int, float]


@dataclass(frozen=True)
class Linkability:
    """The share of pieces that were laid to their owner, and its exact interval.

    ``chance`` is that of a blind guess. ``shuffled`` is the share to be expected if the same
    guesses were dealt to the pieces at random. The interval takes pieces for independent; those of
    one round and observer share its average, so it is too narrow where there are few rounds.
    """

    share: float
    low: float
    high: float
    confidence: float
    right: int
    pieces: int
    chance: float
    shuffled: float
    nodes: Distribution
    by_node: Mapping[int, float]
    by_round: Mapping[int, float]


def loss_mia(trials: Sequence[Trial]) -> LossAttack:
    """The loss attack over all tried pieces, by the node they come from and by round."""
    _check(trials)
    areas = [trial.auc for trial in trials]
    by_node, by_round = (_means(trials, by, areas) for by in ("owner", "round"))
    nodes = Distribution.of(list(by_node.values()))
    return LossAttack(Distribution.of(areas), nodes, by_node, by_round)


def linkability(trials: Sequence[Trial], confidence: float = 0.95) -> Linkability:
    """How often pieces were laid to their owner.

    >>> right, wrong = (Trial(1, 0, 3, 3, 10, 0.5, guess, 4) for guess in (3, 2))
    >>> found = linkability([right, right, wrong, right])
    >>> found.share, found.chance, round(found.low, 3)
    (0.75, 0.25, 0.194)
    """
    _check(trials)
    hits = [float(trial.guess == trial.owner) for trial in trials]
    right = int(sum(hits))
    low, high = clopper_pearson(right, len(trials), 1 - confidence)
    by_node, by_round = (_means(trials, by, hits) for by in ("owner", "round"))
    guesses = np.array([trial.guess for trial in trials])
    return Linkability(
        share=right / len(trials),
        low=low,
        high=high,
        confidence=confidence,
        right=right,
        pieces=len(trials),
        chance=float(np.mean([1 / trial.options for trial in trials])),
        shuffled=float(np.mean([np.mean(guesses == trial.owner) for trial in trials])),
        nodes=Distribution.of(list(by_node.values())),
        by_node=by_node,
        by_round=by_round,
    )


@dataclass(frozen=True)
class LinkReport:
    """Both measures of all tried pieces."""

    loss: LossAttack
    link: Linkability

    def figures(self) -> dict[str, list[dict[str, Any]]]:
        """A row for each."""
        return {"loss attack": [asdict(self.loss)], "linkability": [asdict(self.link)]}


@dataclass(eq=False)
class Linking:
    """Tries the pieces that neighbours are sent, ``most`` of a round: each takes a forward pass of
    all samples. ``owners`` is whose each sender is.

    An observer does not lay a piece to itself: it knows what it sent.
    """

    held: PooledSamples
    owners: Mapping[int, int]
    most: int = MOST_PIECES
    seed: int = 0
    trials: list[Trial] = field(default_factory=list)
    name: ClassVar[str] = "linkability"

    def __post_init__(self) -> None:
        require(self.most >= 1, "most", self.most, "at least 1 piece a round")

    def see(self, sight: Sight | NeighbourSight | FinalModel) -> None:
        """Try the pieces of a neighbour's round."""
        if not isinstance(sight, NeighbourSight):
            return
        observer = min(sight.observer.members)
        nodes = [node for node in self.held.nodes if node != observer]
        if not nodes:
            raise InvalidSetting("training sets", "none", "those of nodes other than the observer")
        known = [piece for piece in sight.fresh if self.owners.get(piece.sender) in nodes]
        lot = Stream(self.seed, "pieces to try", sight.round, observer)
        chosen = np.sort(lot.permutations(1, len(known))[0][: self.most]).tolist()
        self.trials += [self._trial(sight, known[at], nodes) for at in chosen]

    def report(self) -> LinkReport:
        """How much pieces say, and how often they were laid to their owner."""
        return LinkReport(loss_mia(self.trials), linkability(self.trials))

    def _trial(self, sight: NeighbourSight, piece: Piece, nodes: Sequence[int]) -> Trial:
        holder, owner = self.held.holder, self.owners[piece.sender]
        losses = self.held.samples.losses(sight.completed([piece]))
        means = [losses[holder == node].mean() for node in nodes]
        asked = (holder == owner) | (holder == TEST)
        return Trial(
            sight.round,
            min(sight.observer.members),
            piece.sender,
            owner,
            len(piece.coordinates),
            roc(-losses[asked], holder[asked] == owner).auc,
            nodes[int(np.argmin(means))],
            len(nodes),
        )


def _check(trials: Sequence[Trial]) -> None:
    if not trials:
        raise InvalidSetting("pieces", "none", "at least one received piece whose owner is known")


def _means(trials: Sequence[Trial], by: str, values: Sequence[float]) -> dict[int, float]:
    keys, each = np.array([getattr(trial, by) for trial in trials]), np.array(values)
    return {key: float(np.mean(each[keys == key])) for key in np.unique(keys).tolist()}
