"""ERIS: shards aggregated by different clients (FSA), with shifted compression (DSC) if wanted.

"Federated Shard Aggregation" and its older text "ERIS". The model is exactly the one a central
server would have produced from the same updates; no member ever holds another's whole update.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from eris.core.compress import Compressor, MaskCompressor, RandP
from eris.core.errors import InvalidSetting, PrivacyWarning, one_of
from eris.core.shards import PLANS, ShardPlan, WeightedPlan
from eris.methods.method import Composition
from eris.methods.privacy import LocalPrivacy
from eris.protocol.schemes import Basis, Independent, Scheme, scheme_for
from eris.protocol.secure.noise_terms import Level
from eris.protocol.secure.terms import SecureSums
from eris.protocol.view import View

KEPT_SHARES = {"mnist": 0.033, "cifar10": 0.006, "imdb": 0.00012, "summaries": 0.01}
"""What the ERIS authors keep on each of their data sets: 1/(c·log₂ T) with c = 4 on MNIST, 24 on
CIFAR-10 and 2,000 on IMDB, for the T of their own trainings; 1 % for summaries (tables 3 and 4)."""


@dataclass(frozen=True)
class ERIS:
    """``aggregators`` of the clients own one shard each (default: all of them).

    ``kept_fraction`` turns on shifted compression with rand-p; ``compressor`` chooses another.
    ``basis`` is what shared masks act in: the model's ``"coordinates"``, or ``"rotated"`` ones
    without a shift, which is the default below 3 % and trains down to 0.6 %. For less, leave the
    momentum to the server rule fedavgm: ``limit`` is about the greatest length of its steps (0:
    any; rotated, if left out, 3.4 % of the initial model's norm). ``mask_groups`` of at least five
    clients have a rotated kept set each: more is published, of smaller crowds.
    ``plan`` is random, interleaved or contiguous, or comes from ``capacities`` (one number an
    aggregator, say its bandwidth). ``rotate`` draws the shards anew every that many rounds.
    ``masks="independent"`` is the paper's mode; its download is dense. ``privacy`` adds local
    differential privacy. ``secure``, such as ``"2 of 3"``, has helpers of every shard open sums, so
    that its owner sees no single contribution; their words have ``ring_bytes``, and besides the
    owner ``colluders`` may pool what they know. With both, the noise of ``privacy`` is one that
    clients share: ε is that of the sums, for one sample or, as ``protects`` says, one ``client``;
    a round then takes each sample with probability ``sampling_rate``, by a coin of its client's.

    The authors keep 3.3 % on MNIST, 0.6 % on CIFAR-10, 0.012 % on IMDB and 1 % for summaries
    (:meth:`published`), counting the upload alone: with a mask each, results are much larger.

    >>> ERIS(aggregators=2, kept_fraction=0.05).compose(["anna", "ben", "cleo"], [1, 1, 1]).plan
    RandomPlan(shards=2, rotate=0)
    """

    aggregators: int | None = None
    kept_fraction: float | None = None
    compressor: Compressor | None = None
    plan: Literal["random", "interleaved", "contiguous"] = "random"
    capacities: tuple[float, ...] | None = None
    rotate: int = 0
    masks: Literal["shared", "independent"] = "shared"
    basis: Basis | None = None
    limit: float | None = None
    mask_groups: int = 1
    privacy: LocalPrivacy | None = None
    secure: str = "none"
    ring_bytes: int = 8
    colluders: int | None = None
    protects: Level = "sample"
    sampling_rate: float = 1.0
    name: ClassVar[str] = "eris"
    paper: ClassVar[str] = "ERIS: Federated Shard Aggregation"

    @classmethod
    def published(cls, data: str) -> ERIS:
        """ERIS with DSC as its authors ran it: their share for a data set, and the paper's mode.

        >>> ERIS.published("cifar10").kept_fraction
        0.006
        """
        if data not in KEPT_SHARES:
            raise InvalidSetting("data", data, one_of(KEPT_SHARES, data))
        return cls(kept_fraction=KEPT_SHARES[data], masks="independent")

    def compose(self, names: Sequence[str], samples: Sequence[int]) -> Composition:
        """The parts for these clients."""
        count = len(names) if self.aggregators is None else self.aggregators
        view = View.serverless(list(names), aggregators=count, samples=tuple(samples))
        secure = SecureSums.parse(self.secure, self.ring_bytes, self.colluders)
        parts = Composition(view, self._plan(count), self._scheme(), self.privacy, secure)
        if secure is None or self.privacy is None:
            if self.protects != "sample":
                expected = "'sample', or noise that is shared: with epsilon and secure sums"
                raise InvalidSetting("protects", self.protects, expected)
            if self.sampling_rate != 1:
                expected = "1, or noise that is shared: with epsilon and secure sums"
                raise InvalidSetting("sampling_rate", self.sampling_rate, expected)
            return parts
        if self.privacy.calibration != "composed":
            expected = "'composed': what is shared is a budget for all rounds"
            raise InvalidSetting("calibration", self.privacy.calibration, expected)
        return replace(parts, shares=self.protects, sampling_rate=self.sampling_rate)

    def _plan(self, count: int) -> ShardPlan:
        if self.plan == "contiguous":
            warnings.warn(
                PrivacyWarning(
                    "contiguous shards can be whole layers: what an aggregator learns depends on "
                    "which of them it owns; the random plan treats all alike"
                ),
                stacklevel=4,
            )
        if self.capacities is not None:
            if self.plan != "random":
                both = (self.plan, self.capacities)
                raise InvalidSetting("plan, capacities", both, "the random plan with capacities")
            if len(self.capacities) != count:
                found = f"{len(self.capacities)} numbers"
                raise InvalidSetting("capacities", found, f"one for each of {count} aggregators")
            return WeightedPlan(self.capacities, self.rotate)
        if self.plan not in PLANS:
            raise InvalidSetting("plan", self.plan, one_of(PLANS, self.plan))
        return PLANS[self.plan](count, self.rotate)

    def _scheme(self) -> Scheme:
        compressor = self.compressor
        if self.kept_fraction is not None:
            if compressor is not None:
                found = (self.kept_fraction, compressor.name)
                raise InvalidSetting("kept_fraction, compressor", found, "one of the two")
            compressor = RandP(self.kept_fraction)
        if self.masks not in ("shared", "independent"):
            raise InvalidSetting("masks", self.masks, "one of shared, independent")
        if self.masks == "independent":
            if not isinstance(compressor, MaskCompressor):
                raise InvalidSetting("masks", "independent", "rand-p or rand-k as the compressor")
            wanted = {"basis": self.basis, "limit": self.limit, "mask_groups": self.mask_groups}
            for name, value in wanted.items():
                if value not in (None, "coordinates", 1):
                    raise InvalidSetting(name, value, "none: it is of masks that clients share")
            return Independent(compressor)
        if self.mask_groups != 1 and self.privacy is not None:
            expected = "1 beside epsilon: noise is of the mean over all clients, not over a group"
            raise InvalidSetting("mask_groups", self.mask_groups, expected)
        return scheme_for(
            compressor, basis=self.basis, limit=self.limit, mask_groups=self.mask_groups
        )
