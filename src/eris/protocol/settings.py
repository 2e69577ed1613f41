"""What the members of a federation agree on before the first round."""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.core.combine import FixedPoint, NonFinite
from eris.core.compress import COMPRESSORS
from eris.core.errors import InvalidSetting, TrainingWarning
from eris.core.prune import Prune
from eris.core.rules import RULES, FedAvg, ServerRule
from eris.core.shardmap import ShardMap
from eris.core.shards import PLANS, RandomPlan, ShardPlan, WeightedPlan, segment_length
from eris.core.vectors import Vector
from eris.protocol.schemes import SCHEMES, Dense, Scheme
from eris.protocol.secure.noise_terms import SharedNoise
from eris.protocol.secure.seats import Threshold
from eris.protocol.secure.terms import SecureSums


@dataclass(frozen=True)
class Settings:
    """The agreement of a federation: every member must hold the same.

    ``n`` is the number of coordinates of the model, ``plan`` cuts them into shards, ``scheme`` says
    how segments travel (:mod:`eris.protocol.schemes`), ``secure`` whether owners see sums alone,
    ``noise`` what every client adds to its part of them,
    ``rule`` what the server would have done with their mean. Times are in seconds.

    >>> from eris.core.compress import RandP
    >>> from eris.protocol.schemes import Masked
    >>> Settings(n=1000, plan=RandomPlan(4), scheme=Masked(RandP(1.5)))
    Traceback (most recent call last):
    ...
    eris.core.errors.InvalidSetting: kept_fraction is 1.5; expected a number in (0, 1]
    """

    n: int
    plan: ShardPlan = field(default_factory=lambda: RandomPlan(1))
    rule: ServerRule = field(default_factory=FedAvg)
    scheme: Scheme = field(default_factory=Dense)
    secure: SecureSums | None = None
    noise: SharedNoise | None = None
    precision: FixedPoint = field(default_factory=FixedPoint)
    non_finite: NonFinite = "refuse"
    segment_size: int | None = None
    min_included: int = 3
    quorum: int = 1
    close_after: float = 10.0
    catch_up_after: float = 15.0
    retry_every: float = 2.0
    history: int = 64
    seed: int = 0
    initial: str = ""
    """SHA-256 of the model everyone starts from, in hexadecimal; empty: not checked."""
    name: str = "federation"

    def __post_init__(self) -> None:
        self.shard_map()  # refuses a plan that does not fit n
        if self.non_finite not in ("refuse", "clip", "zero"):
            raise InvalidSetting("non_finite", self.non_finite, "one of refuse, clip, zero")
        for name in ("min_included", "quorum", "history"):
            if getattr(self, name) < 1:
                raise InvalidSetting(name, getattr(self, name), "at least 1")
        if self.segment_size is not None and self.segment_size < 1:
            raise InvalidSetting("segment_size", self.segment_size, "at least 1 coordinate")
        if not self.catch_up_after < math.inf:
            expected = "a finite number of seconds"
            raise InvalidSetting("catch_up_after", self.catch_up_after, expected)
        if not 0 < self.close_after < self.catch_up_after:
            allowed = f"above 0 and below catch_up_after = {self.catch_up_after}"
            raise InvalidSetting("close_after", self.close_after, allowed)
        if not 0 < self.retry_every < math.inf:
            raise InvalidSetting("retry_every", self.retry_every, "a positive number of seconds")
        if self.plan.rotate and self.rule.counts_updates:
            expected = "0 with bias correction: it counts results per segment"
            raise InvalidSetting("plan.rotate", self.plan.rotate, expected)
        self.scheme.check(self)
        if self.secure is not None:
            self.secure.check(self)
        if self.noise is not None:
            self.noise.check(self)

    @property
    def keyed(self) -> bool:
        """Whether members have keys that a view states."""
        return self.secure is not None or self.scheme.keyed

    @property
    def seats(self) -> int | None:
        """Helpers of a shard; None where members have no keys."""
        if self.secure is not None:
            return self.secure.threshold.seats
        return 0 if self.keyed else None

    @property
    def weighed(self) -> bool:
        """Whether views declare the samples of clients."""
        return self.scheme.weighed

    @property
    def least_clients(self) -> int:
        """Clients without which nothing can be published."""
        return max(self.quorum, self.min_included)

    @property
    def places(self) -> int:
        """The coordinates of what is cut, sent and replicated (:meth:`Scheme.places`)."""
        return self.scheme.places(self.n)

    def shard_map(self, round: int = 0) -> ShardMap:
        """Which of them lie in which shard, in the turn that begins after a round."""
        return self.plan.at(self.places, self.seed, round)

    def segment_length(self, shard: int) -> int:
        """Coordinates of a segment, where the largest shard has so many."""
        if self.segment_size is not None:
            return segment_length(shard, self.segment_size)
        length = segment_length(shard, shard if self.scheme.whole_shards else None)
        return min(length, self.scheme.longest_segment or length)

    @cached_property
    def canonical(self) -> str:
        """The agreement as text, the same for the same agreement."""
        return json.dumps(_plain(self), sort_keys=True)

    @cached_property
    def fingerprint(self) -> int:
        """64 bits of the agreement's hash; every message carries it."""
        return int.from_bytes(hashlib.sha256(self.canonical.encode()).digest()[:8], "little")

    @classmethod
    def from_canonical(cls, text: str) -> Settings:
        """The agreement that a text of :attr:`canonical` is of, as transcripts carry it.

        >>> from eris.core.compress import RandP
        >>> from eris.protocol.schemes import Masked
        >>> agreed = Settings(n=9, plan=RandomPlan(3), scheme=Masked(RandP(0.5)))
        >>> Settings.from_canonical(agreed.canonical) == agreed
        True
        """
        try:
            found: dict[str, Any] = json.loads(text)
            settings = cls(**{name: _made(value) for name, value in found.items()})
        except (ValueError, KeyError, TypeError, AttributeError) as broken:
            expected = f"the agreement of a federation of this version ({broken!r})"
            raise InvalidSetting("settings", f"{text[:40]}…", expected) from None
        if settings.canonical != text:
            raise InvalidSetting("settings", f"{text[:40]}…", "an agreement of this version")
        return settings


KIND = "kind"
"""In the text: the name of a part's class."""

_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        *(*PLANS.values(), WeightedPlan),
        *(*COMPRESSORS.values(), Prune, FixedPoint),
        *RULES.values(),
        *(*SCHEMES, SecureSums, Threshold, SharedNoise),
    )
}


def _made(value: object) -> Any:
    """A value of the settings from its text; JSON has lists where a part has a tuple."""
    if isinstance(value, list):
        return tuple(map(_made, value))
    if not isinstance(value, dict):
        return value
    kind = _KINDS[value[KIND]]
    settable = {item.name for item in fields(kind) if item.init}
    return kind(**{name: _made(item) for name, item in value.items() if name in settable})


def _plain(value: object) -> object:
    """Values as JSON has them, with one text for numbers that are equal (1, 1.0, a NumPy 1)."""
    if is_dataclass(value):
        inside = {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
        return inside if isinstance(value, Settings) else {KIND: type(value).__name__, **inside}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value


def model_digest(model: NDArray[np.float32]) -> str:
    """The name of a model to start from, for :attr:`Settings.initial`."""
    return hashlib.sha256(np.ascontiguousarray(model, "<f4").data).hexdigest()


def starting_model(n: int, agreed: str, initial: Vector) -> Vector:
    """A member's own copy of the model to start from, if it is the agreed one.

    >>> starting_model(2, "", np.ones(3, np.float32))
    Traceback (most recent call last):
    ...
    eris.core.errors.InvalidSetting: initial model is (3,); expected (2,) coordinates
    """
    if initial.shape != (n,):
        raise InvalidSetting("initial model", initial.shape, f"({n},) coordinates")
    if not np.isfinite(initial).all():
        raise InvalidSetting("initial model", "with NaN or infinity", "finite values")
    if agreed and model_digest(initial) != agreed:
        found = f"of SHA-256 {model_digest(initial)[:16]}…"
        raise InvalidSetting("initial model", found, f"the agreed {agreed[:16]}…")
    return np.array(initial, np.float32)


def warn_of_sparse_masks(settings: Settings, stacklevel: int = 2) -> None:
    """Say so where a scheme keeps less than has been seen to train."""
    if text := settings.scheme.caution(settings):
        warnings.warn(TrainingWarning(text), stacklevel=stacklevel + 1)
