"""How fast and how far ERIS with shifted compression (DSC) gets, by the older paper's appendix C.

Equations 20–30 there, for K equally weighted clients and L-smooth losses: with a step λ from
:func:`admissible_steps`, (1/T)Σ‖∇f‖² ≤ 2Φ₀/(λT) + 3βC₂/((1+ω)Lλ) in expectation.

The proof averages K independent masks, E‖v̂ − ḡ‖² = (ω/K²)Σ‖g_k − s_k‖². A mask that all clients
share gives ω‖ḡ − s‖² instead: the same proof for *one* client that holds ḡ and the common
reference s. So with shared masks 1 stands for K throughout, and ‖∇f(x⁰) − s⁰‖² for the mean over
clients in Φ₀. (The batch noise of ḡ is then C₂/K if clients draw batches independently; pass
that for C₂ to have the sharper bound.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from eris.core.errors import require
from eris.theory.leakage import MaskMode


@dataclass(frozen=True)
class EstimatorConstants:
    """C₁..C₄ and θ of a gradient estimator (Assumption A.2); the defaults are full gradients."""

    c1: float = 0.0
    c2: float = 0.0
    c3: float = 0.0
    c4: float = 0.0
    theta: float = 1.0

    def __post_init__(self) -> None:
        for name in ("c1", "c2", "c3", "c4"):
            value: float = getattr(self, name)
            require(0 <= value < math.inf, name, value, "a number not below 0")
        require(0 < self.theta <= 1, "theta", self.theta, "a number in (0, 1]")

    @classmethod
    def sgd(
        cls, samples: int, batch: int, gradient_bound: float, *, exact: bool = False
    ) -> EstimatorConstants:
        """SGD with batches of b of m samples: C₁=C₃=C₄=0, C₂=(m−b)G²/(mb), θ=1 (Corollary C.6).

        The paper's C₂ is too small by (m−1)/m for batches drawn without replacement, as it
        assumes: the finite-population variance is (m−b)G²/((m−1)b), which ``exact=True`` uses.

        >>> EstimatorConstants.sgd(samples=100, batch=20, gradient_bound=5.0).c2
        1.0
        """
        require(samples >= 1, "samples", samples, "at least 1")
        require(1 <= batch <= samples, "batch", batch, f"a whole number from 1 to {samples}")
        require(0 <= gradient_bound < math.inf, "gradient_bound", gradient_bound, "not below 0")
        population = samples - 1 if exact and batch < samples else samples
        return cls(c2=(samples - batch) * gradient_bound**2 / (population * batch))


@dataclass(frozen=True)
class ConvergenceSetting:
    """What the bounds depend on besides the step and the starting point.

    ``omega`` is the compressor's variance (1/p − 1 for rand-p), ``smoothness`` is L, ``beta`` the
    free β > 0 of the proof (see :func:`balancing_beta`).
    """

    clients: int
    omega: float
    smoothness: float
    beta: float
    masks: MaskMode
    constants: EstimatorConstants = field(default_factory=EstimatorConstants)

    def __post_init__(self) -> None:
        require(self.clients >= 1, "clients", self.clients, "at least 1")
        require(0 <= self.omega < math.inf, "omega", self.omega, "a number not below 0")
        for name in ("smoothness", "beta"):
            value: float = getattr(self, name)
            require(0 < value < math.inf, name, value, "a positive number")
        require(
            self.masks in ("independent", "shared"),
            "masks",
            self.masks,
            '"independent" or "shared"',
        )
        # Beyond these float64 has no numbers for the quotients below: 0 or ∞ would divide.
        require(
            0 < self._memory_weight < math.inf,
            "omega, smoothness",
            (self.omega, self.smoothness),
            "numbers of a size at which float64 can hold (1+ω)L²θ",
        )
        require(
            self.curvature_factor * self.smoothness < math.inf,
            "omega, smoothness, beta",
            (self.omega, self.smoothness, self.beta),
            "numbers of a size at which float64 can hold (1+2αC₄+4β(1+ω))L",
        )

    @property
    def _memory_weight(self) -> float:
        squared = self.smoothness * self.smoothness  # where ** would raise OverflowError
        return 2 * (1 + self.omega) * squared * self.constants.theta

    @property
    def averaged_masks(self) -> int:
        """Masks whose errors average out: K independent ones, or 1 that all share."""
        return self.clients if self.masks == "independent" else 1

    @property
    def alpha(self) -> float:
        """α = 3βC₁/(2(1+ω)L²θ), the weight of the estimator's memory in Φ (equation 48)."""
        return 3 * self.beta * self.constants.c1 / self._memory_weight

    @property
    def curvature_factor(self) -> float:
        """1 + 2αC₄ + 4β(1+ω), which both conditions on the step share (equation 20)."""
        return 1 + 2 * self.alpha * self.constants.c4 + 4 * self.beta * (1 + self.omega)


def initial_potential(
    setting: ConvergenceSetting,
    *,
    gap: float,
    shift_errors: Sequence[float],
    estimator_error: float = 0.0,
) -> float:
    """Φ₀ = f(x⁰) − f* + αLΔ⁰ + (β/(KL))Σ‖∇f_k(x⁰) − s_k⁰‖² (equation 19 at t = 0).

    ``gap`` is f(x⁰) − f*, ``estimator_error`` is Δ⁰, ``shift_errors`` the K squared norms. With
    shared masks give the one value ‖∇f(x⁰) − s⁰‖²; K values, whose mean is never less, are
    accepted too.

    >>> setting = ConvergenceSetting(2, omega=3.0, smoothness=1.0, beta=0.5, masks="independent")
    >>> initial_potential(setting, gap=1.0, shift_errors=[2.0, 4.0])
    2.5
    """
    counts = {setting.averaged_masks, setting.clients}
    require(
        len(shift_errors) in counts and min(shift_errors) >= 0,
        "shift_errors",
        shift_errors,
        f"{' or '.join(str(count) for count in sorted(counts))} squared norms",
    )
    require(gap >= 0, "gap", gap, "f(x⁰) − f*, not below 0")
    require(estimator_error >= 0, "estimator_error", estimator_error, "Δ⁰, not below 0")
    mean_error = math.fsum(shift_errors) / len(shift_errors)
    memory = setting.alpha * setting.smoothness * estimator_error
    return gap + memory + setting.beta / setting.smoothness * mean_error


def variance_step(setting: ConvergenceSetting) -> float:
    """λ₁ = √(βK)/(√(1+2αC₄+4β(1+ω))·(1+ω)·L): keeps the compression error in check (eq. 49).

    With shared masks 1 stands for K.

    >>> setting = ConvergenceSetting(4, omega=0.0, smoothness=1.0, beta=0.75, masks="independent")
    >>> round(variance_step(setting), 4)
    0.866
    """
    averaged = setting.beta * setting.averaged_masks / setting.curvature_factor
    return math.sqrt(averaged) / ((1 + setting.omega) * setting.smoothness)


def sgd_descent_step(setting: ConvergenceSetting) -> float:
    """λ₂ = 1/((1+4β(1+ω))·L), the second condition when C₁ = C₃ = C₄ = 0 (Corollary C.6).

    Equation 25 prints it as 1/((1+4β(1+ω)L)), with L inside the bracket; λ₂ below equation 26 and
    the general condition (20) have it outside, which the proof needs.

    >>> sgd_descent_step(ConvergenceSetting(4, 0.0, smoothness=2.0, beta=0.75, masks="shared"))
    0.125
    """
    return 1 / ((1 + 4 * setting.beta * (1 + setting.omega)) * setting.smoothness)


@dataclass(frozen=True)
class StepInterval:
    """The admissible steps: lower ≤ λ ≤ upper (and λ > 0).

    >>> print(StepInterval(lower=0.0, upper=0.5))
    0 < λ ≤ 0.5
    """

    lower: float
    upper: float

    def __contains__(self, step: float) -> bool:
        # The ends are meant to belong to it by whichever formula they were found, rounding or not.
        return step > 0 and self.lower * (1 - 1e-12) <= step <= self.upper * (1 + 1e-12)

    def __str__(self) -> str:
        start = f"{self.lower:.6g} ≤" if self.lower > 0 else "0 <"
        return f"{start} λ ≤ {self.upper:.6g}"


def admissible_steps(setting: ConvergenceSetting) -> StepInterval:
    """All steps λ that meet equation 20, solved exactly.

    The condition λ ≤ 1/((a + 2αC₃/λ²)L) with a = 1+2αC₄+4β(1+ω) has λ on both sides; it reads
    aLλ² − λ + 2αC₃L ≤ 0, an interval that starts above 0 when αC₃ > 0 and is empty when
    8aαC₃L² > 1. Its intersection with λ ≤ λ₁ (:func:`variance_step`) is returned.

    >>> admissible_steps(ConvergenceSetting(8, 0.0, smoothness=1.0, beta=0.25, masks="independent"))
    StepInterval(lower=0.0, upper=0.5)
    """
    factor, smoothness = setting.curvature_factor, setting.smoothness
    memory = 2 * setting.alpha * setting.constants.c3 * smoothness
    discriminant = 1 - 4 * factor * smoothness * memory
    require(
        discriminant >= 0,
        "beta",
        setting.beta,
        "a smaller β, C₁ or C₃: no step is admissible, for 8·(1+2αC₄+4β(1+ω))·αC₃L² is "
        f"{1 - discriminant:.6g} and must not exceed 1",
    )
    root = 1 + math.sqrt(discriminant)
    lower, upper = 2 * memory / root, root / (2 * factor * smoothness)
    ceiling = variance_step(setting)
    require(
        lower <= ceiling,
        "beta",
        setting.beta,
        f"another β, or smaller C₁ or C₃: no step is admissible, for αC₃ asks for λ ≥ {lower:.6g} "
        f"and the compression error for λ ≤ {ceiling:.6g}",
    )
    upper = min(upper, ceiling)
    require(
        upper > 0,
        "omega, smoothness, beta",
        (setting.omega, setting.smoothness, setting.beta),
        "numbers of a size at which the largest step is above 0 in float64",
    )
    return StepInterval(lower=lower, upper=upper)


def largest_step(setting: ConvergenceSetting) -> float:
    """The largest admissible step, upper end of :func:`admissible_steps` (equation 20).

    >>> largest_step(ConvergenceSetting(8, 0.0, smoothness=1.0, beta=0.25, masks="shared"))
    0.3535533905932738
    """
    return admissible_steps(setting).upper


def balancing_beta(omega: float, clients: int, masks: MaskMode) -> float:
    """The β at which λ₁ = λ₂: below it λ₁ decides (Corollary C.6), and there the step is largest.

    The positive root of 4(1+ω)Kβ² + Kβ − (1+ω)² = 0 (1 for K with shared masks), for C₁ = 0.

    >>> beta = balancing_beta(omega=19.0, clients=50, masks="shared")
    >>> setting = ConvergenceSetting(50, 19.0, smoothness=1.0, beta=beta, masks="shared")
    >>> math.isclose(variance_step(setting), sgd_descent_step(setting))
    True
    """
    setting = ConvergenceSetting(clients, omega, smoothness=1.0, beta=1.0, masks=masks)
    averaged, spread = setting.averaged_masks, 1 + omega
    cubed = 16 * averaged * spread * spread * spread
    require(cubed < math.inf, "omega", omega, "a number whose cube float64 can hold")
    return 2 * spread * spread / (averaged + math.sqrt(averaged * averaged + cubed))


def residual(setting: ConvergenceSetting, step: float) -> float:
    """3βC₂/((1+ω)Lλ), what the batch noise leaves however long one trains (equation 23).

    Only for a ``step`` from :func:`admissible_steps`: for others the theorem says nothing.

    >>> noisy = EstimatorConstants(c2=1.0)
    >>> residual(ConvergenceSetting(4, 2.0, 1.0, 0.5, "shared", noisy), step=0.0625)
    8.0
    >>> residual(ConvergenceSetting(4, 2.0, 1.0, 0.5, "shared", noisy), step=0.25)
    Traceback (most recent call last):
    ...
    eris.core.errors.InvalidSetting: step is 0.25; expected an admissible step, 0 < λ ≤ 0.0890871
    """
    steps = admissible_steps(setting)
    require(step in steps, "step", step, f"an admissible step, {steps}")
    noise = 3 * setting.beta * setting.constants.c2
    return noise / ((1 + setting.omega) * setting.smoothness * step)


def utility_bound(
    setting: ConvergenceSetting, *, potential: float, step: float, rounds: float
) -> float:
    """(1/T)Σ‖∇f(xᵗ)‖² ≤ 2Φ₀/(λT) + 3βC₂/((1+ω)Lλ) (equation 22; with SGD constants 26).

    Only for a ``step`` from :func:`admissible_steps`; ``potential`` is Φ₀.

    >>> setting = ConvergenceSetting(4, 2.0, 1.0, 0.5, "shared")
    >>> utility_bound(setting, potential=1.0, step=0.0625, rounds=160)
    0.2
    """
    require(rounds > 0, "rounds", rounds, "a positive number")
    require(potential >= 0, "potential", potential, "Φ₀, not below 0")
    floor = residual(setting, step)
    return 2 * potential / (step * rounds) + floor


def rounds_to_reach(
    setting: ConvergenceSetting, *, potential: float, step: float, target: float
) -> float:
    """T ≥ 2Φ₀/(λ(ε − residual)): rounds until the bound is ε (equation 24); round it up.

    Only for a ``step`` from :func:`admissible_steps`.

    >>> setting = ConvergenceSetting(4, 2.0, 1.0, 0.5, "shared")
    >>> rounds_to_reach(setting, potential=1.0, step=0.0625, target=0.25)
    128.0
    """
    require(potential >= 0, "potential", potential, "Φ₀, not below 0")
    floor = residual(setting, step)
    require(
        target > floor,
        "target",
        target,
        f"more than the residual {floor:.6g}, below which no number of rounds leads",
    )
    return 2 * potential / (step * (target - floor))


def sgd_floor(setting: ConvergenceSetting) -> float:
    """3√β·C₂·√(1+4β(1+ω))/√K: the residual at λ = λ₁ (27, simplified to 28; 1 for K if shared).

    It holds only while λ₁ ≤ λ₂, that is for β up to :func:`balancing_beta`.

    >>> noisy = EstimatorConstants.sgd(samples=100, batch=20, gradient_bound=5.0)
    >>> setting = ConvergenceSetting(4, 0.0, 1.0, 0.125, "independent", noisy)
    >>> round(sgd_floor(setting), 4), round(residual(setting, variance_step(setting)), 4)
    (0.6495, 0.6495)
    """
    constants = setting.constants
    require(
        constants.c1 == constants.c3 == constants.c4 == 0,
        "constants",
        constants,
        "those of SGD: C₁ = C₃ = C₄ = 0",
    )
    limit = balancing_beta(setting.omega, setting.clients, setting.masks)
    require(
        setting.beta <= limit * (1 + 1e-12),  # the limit itself is meant to pass, rounding or not
        "beta",
        setting.beta,
        f"at most {limit:.6g}, so that λ₁ is an admissible step",
    )
    spread = setting.beta * setting.curvature_factor / setting.averaged_masks
    return 3 * constants.c2 * math.sqrt(spread)


def sgd_rate(setting: ConvergenceSetting) -> float:
    """C₂·√(1+ω)/√K, the order of :func:`sgd_floor` without its constants (equation 29).

    >>> noisy = EstimatorConstants.sgd(samples=100, batch=20, gradient_bound=5.0)
    >>> sgd_rate(ConvergenceSetting(4, 3.0, 1.0, 0.25, "independent", noisy))
    1.0
    """
    return setting.constants.c2 * math.sqrt((1 + setting.omega) / setting.averaged_masks)


def large_batch_rate(setting: ConvergenceSetting, *, samples: int, gradient_bound: float) -> float:
    """G²·√(1+ω)/(m·√K), the order of equation 29 for batches b = Θ(m) (equation 30).

    The scan prints the root over K·m; (m−b)/(mb) = Θ(1/m) and the paper's own comparison (C.5,
    √(1+ω)/(m√K)) say that it covers K alone.

    >>> setting = ConvergenceSetting(4, 3.0, 1.0, 0.25, "independent")
    >>> large_batch_rate(setting, samples=100, gradient_bound=5.0)
    0.25
    """
    require(samples >= 1, "samples", samples, "at least 1")
    require(0 <= gradient_bound < math.inf, "gradient_bound", gradient_bound, "not below 0")
    spread = math.sqrt((1 + setting.omega) / setting.averaged_masks)
    return gradient_bound**2 * spread / samples
