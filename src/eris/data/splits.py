"""What a client does with its samples: hold some out, and audit itself with canaries."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from eris.core.errors import InvalidSetting
from eris.core.streams import Stream
from eris.core.vectors import Indices
from eris.data.partition import Partition


@dataclass(frozen=True, eq=False)
class HoldoutSplit:
    """Of each client, the samples it trains on and those it keeps back, in the order dealt."""

    train: tuple[Indices, ...]
    held_out: tuple[Indices, ...]


@dataclass(frozen=True, eq=False)
class CanarySplit:
    """Of each client, which samples are canaries and which of them it trains on.

    ``included[k][i]`` says whether ``canaries[k][i]`` is in: the truth a membership attack is
    scored against, one independent fair coin each. ``train[k]`` is what client k trains on: all
    samples that are no canaries and the canaries that are in, in the order dealt.
    """

    train: tuple[Indices, ...]
    canaries: tuple[Indices, ...]
    included: tuple[NDArray[np.bool_], ...]

    def inside(self, client: int) -> Indices:
        """The canaries that a client trains on."""
        return self.canaries[client][self.included[client]]

    def outside(self, client: int) -> Indices:
        """The canaries that a client leaves out."""
        return self.canaries[client][~self.included[client]]


def holdout(partition: Partition, share: float, seed: int) -> HoldoutSplit:
    """Each client keeps back a share of its samples, drawn by lot, and rounded down.

    >>> split = holdout([np.arange(10)], share=0.3, seed=0)
    >>> split.train[0].tolist(), split.held_out[0].tolist()
    ([0, 1, 2, 3, 4, 7, 9], [5, 6, 8])
    """
    _check_share(share)
    chosen = [
        _chosen(part, share, Stream(seed, "holdout", client=k)) for k, part in _each(partition)
    ]
    return HoldoutSplit(
        train=tuple(part[~held] for part, held in zip(partition, chosen, strict=True)),
        held_out=tuple(part[held] for part, held in zip(partition, chosen, strict=True)),
    )


def canaries(partition: Partition, share: float, seed: int) -> CanarySplit:
    """A share of each client's samples, drawn by lot and rounded down, become canaries.

    Each is put in or out by a fair coin of its own. The one-run audit (Steinke, Nasr and Jagielski,
    NeurIPS 2023) needs exactly that: with half of them in, no more and no less, the coins would
    depend on each other and its theorem would be void. So the number trained on varies.

    >>> split = canaries([np.arange(8)], share=0.5, seed=0)
    >>> split.canaries[0].tolist(), split.included[0].tolist()
    ([1, 5, 6, 7], [True, False, False, False])
    >>> split.train[0].tolist()
    [0, 1, 2, 3, 4]
    """
    _check_share(share)
    train, chosen, included = [], [], []
    for client, part in _each(partition):
        canary = _chosen(part, share, Stream(seed, "canaries", client=client))
        # The highest bit of a word each; `> 0` rather than a cast, to stay with booleans.
        coins = Stream(seed, "canary coins", client=client).words(0, int(canary.sum())) >> 31 > 0
        trained = ~canary
        trained[canary] = coins
        train.append(part[trained])
        chosen.append(part[canary])
        included.append(coins)
    return CanarySplit(tuple(train), tuple(chosen), tuple(included))


def samples_to_deal(trained: int, *, held_out: float = 0.0, canary_share: float = 0.0) -> int:
    """How many samples a client needs so that it trains on ``trained``, on average over the coins.

    The papers' "samples per client" is the number trained on, after the hold-out and without the
    canaries that are out.

    >>> samples_to_deal(16, held_out=0.3, canary_share=0.5)
    29
    """
    if trained < 1:
        raise InvalidSetting("trained", trained, "at least 1")
    _check_share(held_out)
    _check_share(canary_share)
    dealt = trained
    while True:
        kept = dealt - _part_of(dealt, held_out)
        # Twice the mean, to stay with whole numbers: half of the canaries are out.
        if 2 * kept - _part_of(kept, canary_share) >= 2 * trained:
            return dealt
        dealt += 1


def _each(partition: Partition) -> list[tuple[int, Indices]]:
    for client, part in enumerate(partition):
        if len(part) == 0:
            raise InvalidSetting(f"samples of client {client}", 0, "at least 1")
    return list(enumerate(partition))


def _chosen(part: Indices, share: float, stream: Stream) -> NDArray[np.bool_]:
    mask = np.zeros(len(part), np.bool_)
    mask[stream.permutations(1, len(part))[0][: _part_of(len(part), share)]] = True
    return mask


def _part_of(count: int, share: float) -> int:
    # Of the number as it is written: 0.29 of 100 is 29, but 0.29 * 100 is 28.999999999999996.
    return int(Fraction(str(share)) * count)


def _check_share(share: float) -> None:
    # Less than 1, so that rounding down leaves every client something to train on.
    if not 0 <= share < 1:
        raise InvalidSetting("share", share, "a number in [0, 1)")
