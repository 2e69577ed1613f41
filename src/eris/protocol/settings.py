"""What the members of a federation agree on before the first round."""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from eris.core.combine import FixedPoint, NonFinite
from eris.core.compress import QSGD, Compressor, Natural, RandK, RandP, TopK, UniformQuantiser
from eris.core.errors import InvalidSetting, TrainingWarning
from eris.core.prune import Prune
from eris.core.rules import RULES, FedAvg, ServerRule
from eris.core.shards import (
    ContiguousPlan,
    InterleavedPlan,
    RandomPlan,
    ShardPlan,
    WeightedPlan,
)

LEAST_SHARED = 0.02
"""The smallest share of kept coordinates with which shared masks have been seen to train."""


@dataclass(frozen=True)
class Settings:
    """The agreement of a federation: every member must hold the same.

    ``n`` is the number of coordinates of the model. With ``compressor`` the federation uses
    shifted compression, unless ``shift`` is off: then updates are compressed as they are.
    ``masks="independent"`` is the paper's mode (a mask and a reference per client; for
    simulation), in which ``estimate`` chooses between renormalising over the included
    clients and the unbiased K/|I| scaling. Times are in seconds.

    >>> Settings(n=1000, plan=RandomPlan(4), compressor=RandP(1.5))
    Traceback (most recent call last):
    ...
    eris.core.errors.InvalidSetting: kept_fraction is 1.5; expected a number in (0, 1]
    """

    n: int
    plan: ShardPlan = field(default_factory=lambda: RandomPlan(1))
    rule: ServerRule = field(default_factory=FedAvg)
    compressor: Compressor | Prune | None = None
    shift: bool = True
    masks: Literal["shared", "independent"] = "shared"
    estimate: Literal["renormalised", "unbiased"] = "renormalised"
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
        self.plan.at(self.n, self.seed)  # refuses a plan that does not fit n
        _one_of("masks", self.masks, ("shared", "independent"))
        _one_of("estimate", self.estimate, ("renormalised", "unbiased"))
        _one_of("non_finite", self.non_finite, ("refuse", "clip", "zero"))
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
        self._check_compressor()

    def _check_compressor(self) -> None:
        if isinstance(self.compressor, Prune) and self.shift:
            raise InvalidSetting("shift", True, "False: what is withheld cannot be tracked")
        if self.masks == "independent" and not self.shift:
            raise InvalidSetting("masks", "independent", "shared masks where nothing is shifted")
        if isinstance(self.compressor, TopK):
            expected = "an unbiased one: error feedback is for comparing compressors alone"
            raise InvalidSetting("compressor", "top-k", expected)
        if self.compressor is not None and not self.rule.works_compressed:
            expected = "a mean: order statistics of compressed values mean nothing"
            raise InvalidSetting("rule", self.rule.name, expected)
        if isinstance(self.compressor, RandK) and self.compressor.kept_count > self.n:
            expected = f"at most n = {self.n} coordinates"
            raise InvalidSetting("kept_count", self.compressor.kept_count, expected)
        if self.masks == "independent" and not self.masked:
            raise InvalidSetting("masks", "independent", "rand-p or rand-k as the compressor")
        if self.plan.rotate and self.rule.counts_updates:
            expected = "0 with bias correction: it counts results per segment"
            raise InvalidSetting("plan.rotate", self.plan.rotate, expected)

    @property
    def shifted(self) -> bool:
        """Whether differences to a reference travel."""
        return self.compressor is not None and self.shift

    @property
    def masked(self) -> bool:
        """Whether only kept coordinates travel."""
        return isinstance(self.compressor, RandP | RandK)

    @property
    def sparse(self) -> bool:
        """Whether masks that all clients share keep so little that training may diverge."""
        if not isinstance(self.compressor, RandP | RandK) or self.masks == "independent":
            return False
        return 1 / (1 + self.compressor.omega(self.n)) < LEAST_SHARED

    @cached_property
    def canonical(self) -> str:
        """The agreement as text, the same for the same agreement."""
        text = asdict(self)
        text["kinds"] = [type(part).__name__ for part in (self.plan, self.rule, self.compressor)]
        return json.dumps(_plain(text), sort_keys=True)

    @cached_property
    def fingerprint(self) -> int:
        """64 bits of the agreement's hash; every message carries it."""
        return int.from_bytes(hashlib.sha256(self.canonical.encode()).digest()[:8], "little")

    @classmethod
    def from_canonical(cls, text: str) -> Settings:
        """The agreement that a text of :attr:`canonical` is of, as transcripts carry it.

        >>> agreed = Settings(n=9, plan=RandomPlan(3), compressor=RandP(0.5))
        >>> Settings.from_canonical(agreed.canonical) == agreed
        True
        """
        try:
            found = json.loads(text)
            for part, kind in zip(_PARTS, found.pop("kinds"), strict=True):
                if kind != "NoneType":
                    found[part] = _made(_KINDS[kind], found[part])
            found["precision"] = _made(FixedPoint, found["precision"])
            settings = cls(**found)
        except (ValueError, KeyError, TypeError, AttributeError) as broken:
            expected = f"the agreement of a federation of this version ({broken!r})"
            raise InvalidSetting("settings", f"{text[:40]}…", expected) from None
        if settings.canonical != text:
            raise InvalidSetting("settings", f"{text[:40]}…", "an agreement of this version")
        return settings


_PARTS = ("plan", "rule", "compressor")
_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        *(RandomPlan, InterleavedPlan, ContiguousPlan, WeightedPlan),
        *(RandP, RandK, QSGD, UniformQuantiser, Natural, Prune),
        *RULES.values(),
    )
}


def _made(kind: type[Any], values: dict[str, Any]) -> Any:
    """A part of the settings; JSON has lists where the part has a tuple."""
    made = {key: tuple(v) if isinstance(v, list) else v for key, v in values.items()}
    settable = {item.name for item in fields(kind) if item.init}
    return kind(**{key: value for key, value in made.items() if key in settable})


def _plain(value: object) -> object:
    """Values as JSON has them, with one text for numbers that are equal (1, 1.0, a NumPy 1)."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
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


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidSetting(name, value, f"one of {', '.join(allowed)}")


def warn_of_sparse_masks(settings: Settings, stacklevel: int = 2) -> None:
    """Say so where shared masks keep less than has been seen to train.

    Masks that all clients share do not average out: their variance is that of one client's. With
    0.6 % kept LeNet-5 diverges on MNIST at the step at which the paper's mode trains.
    """
    if settings.sparse:
        text = (
            f"less than {LEAST_SHARED:.0%} of the coordinates are kept, by masks that all clients "
            "share: training may diverge; keep more, or use the paper's mode in a simulation "
            "(masks=independent), whose masks average out and whose results show single clients"
        )
        warnings.warn(TrainingWarning(text), stacklevel=stacklevel + 1)
