"""Server rules: what a combined update does to the model, coordinate by coordinate.

A rule is a frozen dataclass of settings. Its state is a tuple of vectors (``slots``) that goes in
and comes out explicitly, so every node can replay it. Only float32 + − × ÷ √ are used, unfused,
so that a coordinate rounds alike wherever a shard or a segment begins: that is why the sharded
model equals the central one bit for bit.

Rules that need the whole vector of a client (Krum, norm clipping, geometric median) do not
decompose over shards and are refused by :func:`server_rule`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np

from eris.core.combine import ExactMean, FixedPoint, NonFinite, OrderStatistic, trimmed
from eris.core.errors import InvalidSetting, one_of, require
from eris.core.vectors import Vector

Slots = tuple[Vector, ...]
Next = tuple[Vector, Slots]


@dataclass(frozen=True)
class ServerRule:
    """What the protocol needs of a rule; unless it says otherwise, a mean without a state.

    ``learning_rate`` is the server's step.
    """

    learning_rate: float = 0.01

    name: ClassVar[str]
    initial: ClassVar[tuple[float, ...]] = ()
    """The value each slot starts with, everywhere."""
    works_compressed: ClassVar[bool] = True
    """Whether the combination makes sense on compressed values (means do, medians do not)."""
    counts_updates: ClassVar[bool] = False
    """Whether the step depends on how many results a segment has had (Adam's t)."""
    normalises_steps: ClassVar[bool] = False
    """Whether a client divides its update by its number of local steps (FedNova)."""

    def __post_init__(self) -> None:
        if not 0 < self.learning_rate < math.inf:
            raise InvalidSetting("learning_rate", self.learning_rate, "a positive finite number")

    def values_mixed(self, clients: int) -> int:
        """How many clients' values are mixed in one published value, of so many included."""
        return clients

    def collector(
        self, size: int, precision: FixedPoint, non_finite: NonFinite
    ) -> ExactMean | OrderStatistic:
        """What gathers the contributions to one segment."""
        return ExactMean(size, precision, non_finite)

    def step(self, x: Vector, v: Vector, slots: Slots, count: int, steps: float) -> Next:
        """The next model and slots. ``count`` numbers the segment's results from 1; ``steps`` is
        the weighted mean of the included clients' local steps."""
        return self._descend(x, v), slots

    def _descend(self, x: Vector, direction: Vector) -> Vector:
        return x - np.float32(self.learning_rate) * direction


@dataclass(frozen=True)
class FedAvg(ServerRule):
    """x ← x − λ v with v the mean weighted by samples (McMahan et al., 2017)."""

    name: ClassVar[str] = "fedavg"


@dataclass(frozen=True)
class FedNova(ServerRule):
    """Clients send g_k/τ_k; x ← x − λ τ v with τ the mean of the τ_k (Wang et al., 2020).

    It decomposes because its normalisation is one scalar per client.
    """

    name: ClassVar[str] = "fednova"
    normalises_steps: ClassVar[bool] = True

    def step(self, x: Vector, v: Vector, slots: Slots, count: int, steps: float) -> Next:
        """One descent step of τ times the normalised direction."""
        return self._descend(x, np.float32(steps) * v), slots


@dataclass(frozen=True)
class FedAvgM(ServerRule):
    """m ← β m + v, x ← x − λ m (Hsu et al., 2019)."""

    momentum: float = 0.9
    name: ClassVar[str] = "fedavgm"
    initial: ClassVar[tuple[float, ...]] = (0.0,)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.momentum < 1, "momentum", self.momentum, "a number in [0, 1)")

    def step(self, x: Vector, v: Vector, slots: Slots, count: int, steps: float) -> Next:
        """One step along the velocity."""
        velocity = np.float32(self.momentum) * slots[0] + v
        return self._descend(x, velocity), (velocity,)


@dataclass(frozen=True)
class _Adaptive(ServerRule):
    """m ← β₁m + (1−β₁)v, u from v², x ← x − λ m/(√u + τ) (Reddi et al., 2021, algorithm 2).

    As published there is no bias correction and u starts at τ². With ``bias_correction`` both
    start at zero and are divided by 1 − βᵗ, t counting the segment's own results, so that a round
    in which it had none is not counted.
    """

    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3
    bias_correction: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.beta1 < 1, "beta1", self.beta1, "a number in [0, 1)")
        require(0 <= self.beta2 < 1, "beta2", self.beta2, "a number in [0, 1)")
        require(0 < self.tau < math.inf, "tau", self.tau, "a positive finite number")

    @property
    def initial(self) -> tuple[float, ...]:  # type: ignore[override]
        """The value each slot starts with, everywhere."""
        return (0.0, 0.0 if self.bias_correction else self.tau * self.tau)

    @property
    def counts_updates(self) -> bool:  # type: ignore[override]
        """Whether the step depends on how many results a segment has had."""
        return self.bias_correction

    def _second(self, u: Vector, square: Vector) -> Vector:
        raise AssertionError("every adaptive rule says how its second moment moves")

    def step(self, x: Vector, v: Vector, slots: Slots, count: int, steps: float) -> Next:
        """One adaptive step."""
        m = np.float32(self.beta1) * slots[0] + np.float32(1 - self.beta1) * v
        u = self._second(slots[1], v * v)
        first, second = m, u
        if self.bias_correction:
            first = m / np.float32(1 - _power(self.beta1, count))
            second = u / np.float32(1 - _power(self.beta2, count))
        root: Vector = np.sqrt(second)
        return self._descend(x, first / (root + np.float32(self.tau))), (m, u)


@dataclass(frozen=True)
class FedAdam(_Adaptive):
    """u ← β₂u + (1−β₂)v² (Reddi et al., 2021)."""

    name: ClassVar[str] = "fedadam"

    def _second(self, u: Vector, square: Vector) -> Vector:
        return np.float32(self.beta2) * u + np.float32(1 - self.beta2) * square


@dataclass(frozen=True)
class FedYogi(_Adaptive):
    """u ← u − (1−β₂)·v²·sign(u − v²) (Reddi et al., 2021)."""

    name: ClassVar[str] = "fedyogi"

    def _second(self, u: Vector, square: Vector) -> Vector:
        sign: Vector = np.sign(u - square)
        return u - np.float32(1 - self.beta2) * square * sign


@dataclass(frozen=True)
class FedAdagrad(_Adaptive):
    """u ← u + v², without momentum by default (Reddi et al., 2021)."""

    beta1: float = 0.0
    name: ClassVar[str] = "fedadagrad"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bias_correction:
            raise InvalidSetting("bias_correction", True, "False: Adagrad's sum has no bias")

    def _second(self, u: Vector, square: Vector) -> Vector:
        return u + square


@dataclass(frozen=True)
class CoordinateMedian(ServerRule):
    """x ← x − λ · median of the clients, coordinate by coordinate (Yin et al., 2018).

    A median of an odd number *is* one client's value, and everyone is sent it.
    """

    name: ClassVar[str] = "coordinate-median"
    works_compressed: ClassVar[bool] = False

    def values_mixed(self, clients: int) -> int:
        """One or two: the middle."""
        return 2 - clients % 2

    def collector(
        self, size: int, precision: FixedPoint, non_finite: NonFinite
    ) -> ExactMean | OrderStatistic:
        """What gathers the contributions to one segment."""
        return OrderStatistic(size, precision, None, non_finite)


@dataclass(frozen=True)
class TrimmedMean(ServerRule):
    """x ← x − λ · mean without the share ``trim`` at either end (Yin et al., 2018)."""

    trim: float = 0.1
    name: ClassVar[str] = "trimmed-mean"
    works_compressed: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.trim < 0.5, "trim", self.trim, "a share in [0, 0.5)")

    def values_mixed(self, clients: int) -> int:
        """What is left when both ends are cut."""
        return clients - 2 * trimmed(clients, self.trim)

    def collector(
        self, size: int, precision: FixedPoint, non_finite: NonFinite
    ) -> ExactMean | OrderStatistic:
        """What gathers the contributions to one segment."""
        return OrderStatistic(size, precision, self.trim, non_finite)


RULES: dict[str, type[ServerRule]] = {
    rule.name: rule
    for rule in (
        FedAvg, FedAvgM, FedAdam, FedYogi, FedAdagrad, FedNova, CoordinateMedian, TrimmedMean,
    )
}  # fmt: skip

NOT_DECOMPOSABLE = {
    "krum": "it compares whole updates by their distance",
    "multi-krum": "it compares whole updates by their distance",
    "geometric-median": "it weighs whole updates by their distance",
    "norm-clipping": "the norm of an update is not known to any aggregator",
}


OF_THE_CLIENTS = {
    "fedprox": "FedProx is a term in the clients' loss, their option proximal=μ (in `eris run` "
    "--proximal), beside any rule",
    "scaffold": "SCAFFOLD corrects the clients' steps: wrap trainers in ScaffoldTrainer (in `eris "
    "run` --scaffold), beside fedavg",
}
"""Methods by a name under which people look for a rule, and where they are."""


def server_rule(name: str, **settings: object) -> ServerRule:
    """The rule of that name, with its settings checked.

    >>> server_rule("fedavgm", learning_rate=0.1).name
    'fedavgm'
    >>> server_rule("fedprox")
    Traceback (most recent call last):
    ...
    eris.core.errors.InvalidSetting: rule is 'fedprox'; expected a rule of the server: FedProx is \
a term in the clients' loss, their option proximal=μ (in `eris run` --proximal), beside any rule
    >>> server_rule("krum")
    Traceback (most recent call last):
    ...
    eris.core.errors.InvalidSetting: rule is 'krum'; expected a coordinate-wise rule: it compares \
whole updates by their distance, and under sharding no aggregator holds a whole update
    """
    if name in NOT_DECOMPOSABLE:
        raise InvalidSetting(
            "rule",
            name,
            f"a coordinate-wise rule: {NOT_DECOMPOSABLE[name]}, and under sharding no aggregator "
            "holds a whole update",
        )
    if name in OF_THE_CLIENTS:
        raise InvalidSetting("rule", name, f"a rule of the server: {OF_THE_CLIENTS[name]}")
    if name not in RULES:
        raise InvalidSetting("rule", name, one_of(RULES, name))
    kind = RULES[name]
    known = {item.name for item in fields(kind)}
    for key in settings:
        if key not in known:
            raise InvalidSetting(f"{name} setting", key, one_of(sorted(known), key))
    return kind(**settings)  # type: ignore[arg-type]


def _power(base: float, exponent: int) -> float:
    """base**exponent by multiplication alone: the C library's pow differs between platforms."""
    result, square = 1.0, base
    while exponent:
        if exponent & 1:
            result *= square
        square *= square
        exponent >>= 1
    return result
