"""The convergence bounds: their algebra, and runs of shifted compression that must obey them."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from eris.core.errors import InvalidSetting
from eris.theory.convergence import (
    ConvergenceSetting,
    EstimatorConstants,
    admissible_steps,
    balancing_beta,
    initial_potential,
    large_batch_rate,
    largest_step,
    residual,
    rounds_to_reach,
    sgd_descent_step,
    sgd_floor,
    sgd_rate,
    utility_bound,
    variance_step,
)
from eris.theory.leakage import MaskMode

Array = NDArray[np.float64]

mask_modes = st.sampled_from(["independent", "shared"])
sgd_settings = st.builds(
    ConvergenceSetting,
    clients=st.integers(1, 200),
    omega=st.floats(0, 500),
    smoothness=st.floats(0.01, 100),
    beta=st.floats(1e-4, 100),
    masks=mask_modes,
    constants=st.builds(EstimatorConstants, c2=st.just(0.0) | st.floats(1e-3, 10)),
)
memory_settings = st.builds(
    ConvergenceSetting,
    clients=st.integers(1, 50),
    omega=st.floats(0, 20),
    smoothness=st.floats(0.1, 5),
    beta=st.floats(1e-3, 1),
    masks=mask_modes,
    constants=st.builds(
        EstimatorConstants,
        c1=st.floats(0.01, 1),
        c3=st.floats(0.001, 0.1),
        c4=st.floats(0, 1),
        theta=st.floats(0.05, 1),
    ),
)
many = settings(max_examples=150, deadline=None, derandomize=True)


def meets_equation_20(setting: ConvergenceSetting, step: float, slack: float = 1e-12) -> bool:
    """Equation 20 as printed, with λ on both sides."""
    c, omega, smoothness = setting.constants, setting.omega, setting.smoothness
    alpha = 3 * setting.beta * c.c1 / (2 * (1 + omega) * c.theta * smoothness**2)
    factor = 1 + 2 * alpha * c.c4 + 4 * setting.beta * (1 + omega)
    masks = setting.clients if setting.masks == "independent" else 1
    descent = 1 / ((factor + 2 * alpha * c.c3 / step**2) * smoothness)
    variance = math.sqrt(setting.beta * masks) / (math.sqrt(factor) * (1 + omega) * smoothness)
    return step <= min(descent, variance) * (1 + slack)


@many
@given(sgd_settings)
def test_the_largest_step_is_admissible_and_no_larger_one_is(setting: ConvergenceSetting) -> None:
    step = largest_step(setting)
    assert meets_equation_20(setting, step)
    assert not meets_equation_20(setting, 1.0001 * step)
    assert meets_equation_20(setting, 1e-6 * step), "without C₃ every smaller step will do"
    assert step == pytest.approx(min(variance_step(setting), sgd_descent_step(setting)))


@many
@given(memory_settings)
def test_with_memory_the_steps_are_an_interval_with_two_ends(setting: ConvergenceSetting) -> None:
    try:
        steps = admissible_steps(setting)
    except InvalidSetting:
        candidates = np.geomspace(1e-9, 10 / setting.smoothness, 2000)
        assert not any(meets_equation_20(setting, step, slack=-1e-9) for step in candidates)
        return
    assert 0 < steps.lower <= steps.upper
    for part in (0.0, 0.3, 1.0):
        inside = steps.lower + part * (steps.upper - steps.lower)
        assert meets_equation_20(setting, inside, slack=1e-9)
    assert not meets_equation_20(setting, 1.0001 * steps.upper)
    # Around a double root the condition is flat, so the lower end is only sharp away from one.
    if steps.lower < 0.9 * steps.upper:
        assert not meets_equation_20(setting, 0.9999 * steps.lower)


def test_both_ways_of_having_no_admissible_step_say_why() -> None:
    memory = EstimatorConstants(c1=1.0, c3=1.0)
    setting = ConvergenceSetting(4, 0.0, smoothness=1.0, beta=1.0, masks="shared", constants=memory)
    # α = 1.5, a = 5: 8·5·1.5 = 60 > 1.
    with pytest.raises(InvalidSetting, match=r"no step is admissible.* is 60 and must not exceed"):
        largest_step(setting)
    # α = 0.003, a = 5: the interval starts at about 2αC₃L = 1.5e-4, but a compressor this coarse
    # asks for λ ≤ λ₁ = √(0.001/5)/1000 = 1.4e-5.
    coarse = replace(
        setting, omega=999.0, beta=1e-3, constants=EstimatorConstants(c1=2000.0, c3=0.025)
    )
    with pytest.raises(InvalidSetting, match=r"αC₃ asks for λ ≥ .* compression error for λ ≤"):
        largest_step(coarse)


@many
@given(sgd_settings)
def test_shared_masks_never_allow_a_larger_step(setting: ConvergenceSetting) -> None:
    shared = largest_step(replace(setting, masks="shared"))
    independent = largest_step(replace(setting, masks="independent"))
    assert shared <= independent
    alone = replace(setting, clients=1)
    assert largest_step(replace(alone, masks="shared")) == largest_step(
        replace(alone, masks="independent")
    )


@many
@given(sgd_settings)
def test_balancing_beta_gives_the_largest_step_of_all(setting: ConvergenceSetting) -> None:
    beta = balancing_beta(setting.omega, setting.clients, setting.masks)
    best = replace(setting, beta=beta)
    assert variance_step(best) == pytest.approx(sgd_descent_step(best))
    assert largest_step(setting) <= largest_step(best) * (1 + 1e-12)


@many
@given(sgd_settings)
def test_floor_is_the_residual_at_the_variance_step(setting: ConvergenceSetting) -> None:
    limit = balancing_beta(setting.omega, setting.clients, setting.masks)
    small = replace(setting, beta=min(setting.beta, limit))
    step = variance_step(small)
    masks = small.clients if small.masks == "independent" else 1
    # Equation 27 as printed, before 28 cancels (1+ω)L.
    printed = (
        (3 * small.beta * small.constants.c2 / ((1 + small.omega) * small.smoothness))
        * math.sqrt(1 + 4 * small.beta * (1 + small.omega))
        * ((1 + small.omega) * small.smoothness)
        / math.sqrt(small.beta * masks)
    )
    assert sgd_floor(small) == pytest.approx(printed)
    assert sgd_floor(small) == pytest.approx(residual(small, step))
    assert utility_bound(small, potential=1.0, step=step, rounds=1e15) == pytest.approx(
        sgd_floor(small) + 2e-15 / step
    )


def test_floor_is_refused_where_its_step_is_not_admissible() -> None:
    limit = balancing_beta(3.0, 10, "independent")
    noisy = EstimatorConstants(c2=1.0)
    with pytest.raises(InvalidSetting, match="so that λ₁ is an admissible step"):
        sgd_floor(ConvergenceSetting(10, 3.0, 1.0, 1.01 * limit, "independent", noisy))
    with pytest.raises(InvalidSetting, match="those of SGD"):
        sgd_floor(ConvergenceSetting(10, 3.0, 1.0, 0.5 * limit, "shared", replace(noisy, c1=1.0)))


@many
@given(sgd_settings, st.floats(0.01, 100), st.floats(0.01, 1), st.floats(1.001, 100))
def test_the_rounds_to_a_target_give_the_target(
    setting: ConvergenceSetting, potential: float, part: float, above: float
) -> None:
    step = part * largest_step(setting)
    floor = residual(setting, step)
    target = above * floor if floor > 0 else above
    rounds = rounds_to_reach(setting, potential=potential, step=step, target=target)
    reached = utility_bound(setting, potential=potential, step=step, rounds=rounds)
    assert reached == pytest.approx(target)
    one_more = utility_bound(setting, potential=potential, step=step, rounds=math.ceil(rounds) + 1)
    assert one_more <= target * (1 + 1e-12)


def test_a_target_at_or_below_the_residual_is_refused_with_the_residual() -> None:
    setting = ConvergenceSetting(4, 2.0, 1.0, 0.5, "shared", EstimatorConstants(c2=1.0))
    for target in (8.0, 1.0, math.nan):
        with pytest.raises(InvalidSetting, match="more than the residual 8,"):
            rounds_to_reach(setting, potential=1.0, step=0.0625, target=target)


def refused(setting: ConvergenceSetting, step: float, complaint: str) -> None:
    """By the residual and by both bounds that contain it."""
    with pytest.raises(InvalidSetting, match=complaint):
        residual(setting, step)
    with pytest.raises(InvalidSetting, match=complaint):
        utility_bound(setting, potential=1.0, step=step, rounds=10)
    with pytest.raises(InvalidSetting, match=complaint):
        rounds_to_reach(setting, potential=1.0, step=step, target=1e9)


@many
@given(sgd_settings | memory_settings)
def test_steps_for_which_the_theorem_does_not_hold_are_refused(setting: ConvergenceSetting) -> None:
    try:
        steps = admissible_steps(setting)
    except InvalidSetting:
        refused(setting, 0.1, "no step is admissible")
        return
    for step in (steps.lower or steps.upper / 2, steps.upper):
        assert residual(setting, step) >= 0
    for step in (1.0001 * steps.upper, 0.9999 * steps.lower, 0.0, -0.1, math.inf, math.nan):
        refused(setting, step, f"expected an admissible step, {steps}$")


def test_a_refused_step_names_the_interval() -> None:
    setting = ConvergenceSetting(8, 0.0, smoothness=1.0, beta=0.25, masks="independent")
    refused(setting, 0.51, "^step is 0.51; expected an admissible step, 0 < λ ≤ 0.5$")
    memory = EstimatorConstants(c1=0.5, c3=0.1)
    # α = 3·0.25·0.5/2 = 0.1875, a = 2: 2λ² − λ + 0.0375 ≤ 0 from (1 − √0.7)/4 to (1 + √0.7)/4.
    setting = replace(setting, constants=memory)
    refused(setting, 0.04, "^step is 0.04; expected an admissible step, 0.040835 ≤ λ ≤ 0.459165$")


@pytest.mark.parametrize(
    ("omega", "smoothness", "beta", "names"),
    [
        (1e300, 1e-300, 0.5, "omega, smoothness is"),  # L² is 0
        (0.0, 1e-200, 0.5, "omega, smoothness is"),
        (0.0, 1e200, 0.5, "omega, smoothness is"),  # L² is infinite
        (1e300, 1.0, 1e300, "omega, smoothness, beta is"),  # 4β(1+ω) is infinite
        (1e300, 1.0, 1e-300, "omega, smoothness, beta is"),  # λ₁ is 0
    ],
)
def test_settings_beyond_float64_are_refused_by_name(
    omega: float, smoothness: float, beta: float, names: str
) -> None:
    with pytest.raises(InvalidSetting, match=names):
        largest_step(ConvergenceSetting(4, omega, smoothness, beta, "shared"))


def test_no_beta_balances_a_variance_whose_cube_is_infinite() -> None:
    assert balancing_beta(1e100, 50, "shared") == pytest.approx(0.5e50)
    with pytest.raises(InvalidSetting, match=r"omega is 1e\+300; expected a number whose cube"):
        balancing_beta(1e300, 50, "shared")


def test_rates_follow_the_floor_in_clients_and_the_batch_share() -> None:
    noisy = EstimatorConstants.sgd(samples=400, batch=100, gradient_bound=2.0)
    one = ConvergenceSetting(1, 8.0, 1.0, 1e-3, "independent", noisy)
    many_clients = replace(one, clients=100)
    assert sgd_rate(one) / sgd_rate(many_clients) == pytest.approx(10)
    assert sgd_floor(one) / sgd_floor(many_clients) == pytest.approx(10)
    assert sgd_rate(replace(many_clients, masks="shared")) == sgd_rate(one)
    # b = m/4: (m−b)/(mb) = 3/m, so equation 29 is three times equation 30.
    rate = large_batch_rate(many_clients, samples=400, gradient_bound=2.0)
    assert sgd_rate(many_clients) == pytest.approx(3 * rate)


@pytest.mark.parametrize(("samples", "batch"), [(2, 1), (5, 2), (6, 5), (4, 4)])
def test_batch_noise_of_sgd_by_enumeration(samples: int, batch: int) -> None:
    """Every batch of gradients ±G, mean 0 or nearly: the exact C₂ holds, the paper's may not."""
    bound = 3.0
    gradients = np.array([bound if i % 2 else -bound for i in range(samples)])
    batches = itertools.combinations(gradients, batch)
    noise = float(np.mean([(np.mean(chosen) - gradients.mean()) ** 2 for chosen in batches]))
    exact = EstimatorConstants.sgd(samples, batch, bound, exact=True)
    paper = EstimatorConstants.sgd(samples, batch, bound)
    assert noise <= exact.c2 * (1 + 1e-12)
    assert paper.c2 == pytest.approx(exact.c2 * (samples - 1) / samples)
    if samples % 2 == 0 and batch < samples:
        assert noise == pytest.approx(exact.c2)
        assert noise > paper.c2
    assert (paper.c1, paper.c3, paper.c4, paper.theta) == (0, 0, 0, 1)


def test_initial_potential_weighs_each_part() -> None:
    memory = EstimatorConstants(c1=0.5, theta=0.5)
    setting = ConvergenceSetting(3, 1.0, smoothness=2.0, beta=0.8, masks="shared", constants=memory)
    # α = 3·0.8·0.5/(2·2·4·0.5) = 0.15.
    assert setting.alpha == pytest.approx(0.15)
    potential = initial_potential(setting, gap=1.0, shift_errors=[5.0], estimator_error=10.0)
    assert potential == pytest.approx(1.0 + 0.15 * 2 * 10 + 0.8 / 2 * 5)
    independent = replace(setting, masks="independent")
    assert initial_potential(independent, gap=0.0, shift_errors=[3.0, 5.0, 7.0]) == pytest.approx(2)
    with pytest.raises(InvalidSetting, match="3 squared norms"):
        initial_potential(independent, gap=0.0, shift_errors=[5.0])
    with pytest.raises(InvalidSetting, match="1 or 3 squared norms"):
        initial_potential(setting, gap=0.0, shift_errors=[])


def test_bad_settings_are_refused_by_name() -> None:
    good = ConvergenceSetting(4, 2.0, 1.0, 0.5, "shared")
    for name, value in (
        ("clients", 0),
        ("omega", -0.1),
        ("smoothness", 0.0),
        ("beta", math.nan),
        ("masks", "common"),
    ):
        with pytest.raises(InvalidSetting, match=f"{name} is {value!r}"):
            replace(good, **{name: value})  # type: ignore[arg-type]
    with pytest.raises(InvalidSetting, match="theta is 0"):
        EstimatorConstants(theta=0.0)
    with pytest.raises(InvalidSetting, match="c2 is -1"):
        EstimatorConstants(c2=-1.0)
    with pytest.raises(InvalidSetting, match="batch is 11"):
        EstimatorConstants.sgd(samples=10, batch=11, gradient_bound=1.0)
    with pytest.raises(InvalidSetting, match="step is 0"):
        residual(good, 0.0)
    with pytest.raises(InvalidSetting, match="rounds is 0"):
        utility_bound(good, potential=1.0, step=0.05, rounds=0)


# --- Runs of shifted compression on quadratics, whose L, f* and batch noise are known exactly ---


@dataclass(frozen=True)
class Quadratics:
    """f_k(x) = mean over samples of ½(x − c_ks)ᵀ H_k (x − c_ks); the batch noise is free of x."""

    hessians: Array  # K × n × n
    centres: Array  # K × m × n

    @classmethod
    def draw(cls, clients: int, dimension: int, samples: int, seed: int) -> Quadratics:
        rng = np.random.default_rng(seed)
        factors = rng.normal(size=(clients, dimension, dimension))
        hessians = factors @ factors.transpose(0, 2, 1) / dimension
        clients_centres = rng.normal(0, 2, size=(clients, 1, dimension))
        return cls(hessians, clients_centres + rng.normal(size=(clients, samples, dimension)))

    @property
    def smoothness(self) -> float:
        return float(np.linalg.eigvalsh(self.hessians).max())

    def gradients(self, x: Array, centres: Array) -> Array:
        """Of every client (runs × K × n) at every run's x, for the mean centre of its batch."""
        gradients: Array = np.einsum("kij,rkj->rki", self.hessians, x[:, None, :] - centres)
        return gradients

    def gap(self, x: Array) -> float:
        """f(x) − f*: a quadratic, so ½·∇fᵀ·H⁻¹·∇f."""
        mean = self.gradients(x[None], self.centres.mean(axis=1))[0].mean(axis=0)
        return float(0.5 * mean @ np.linalg.solve(self.hessians.mean(axis=0), mean))

    def batch_noise(self, batch: int) -> float:
        """(1/K)ΣE‖g̃_k − ∇f_k‖² for batches drawn without replacement: C₂, exactly."""
        samples = self.centres.shape[1]
        off = self.centres - self.centres.mean(axis=1, keepdims=True)
        spread = np.einsum("kij,ksj->ksi", self.hessians, off)
        per_sample = float((spread**2).sum(axis=2).mean())
        return float(per_sample * (samples - batch) / (batch * (samples - 1)))


def run_dsc(
    problem: Quadratics,
    masks: MaskMode,
    *,
    kept_fraction: float,
    step: float,
    rounds: int,
    batch: int,
    start: Array,
    runs: int = 40,
) -> float:
    """Average of ‖∇f(xᵗ)‖² over rounds and independent runs of DSC with rand-p."""
    rng = np.random.default_rng(2)
    clients, samples, dimension = problem.centres.shape
    omega = 1 / kept_fraction - 1
    shift = math.sqrt((1 + 2 * omega) / (2 * (1 + omega) ** 3))
    x = np.tile(start, (runs, 1))
    references = np.zeros((runs, clients, dimension))
    full = problem.centres.mean(axis=1)
    squared = 0.0
    for _ in range(rounds):
        true = problem.gradients(x, full).mean(axis=1)
        squared += float((true**2).sum(axis=1).mean())
        chosen = rng.random((runs, clients, samples)).argsort(axis=2)[:, :, :batch]
        centres = problem.centres[np.arange(clients)[None, :, None], chosen].mean(axis=2)
        drawn = clients if masks == "independent" else 1
        kept = rng.random((runs, drawn, dimension)) < kept_fraction
        sent = kept * (problem.gradients(x, centres) - references) / kept_fraction
        x = x - step * (references + sent).mean(axis=1)
        if masks == "shared":  # one reference for all
            sent = sent.mean(axis=1, keepdims=True)
        references = references + shift * sent
    return squared / rounds


@pytest.mark.parametrize("masks", ["independent", "shared"])
@pytest.mark.parametrize("kept_fraction", [1.0, 0.25, 0.05])
@pytest.mark.parametrize("batch", [6, 2])
def test_runs_stay_under_the_bound(masks: MaskMode, kept_fraction: float, batch: int) -> None:
    clients, dimension, samples = 8, 10, 6
    problem = Quadratics.draw(clients, dimension, samples, seed=1)
    omega = 1 / kept_fraction - 1
    noise = problem.batch_noise(batch)
    # With shared masks the proof is that of one client holding the mean: C₂/K is its batch noise.
    if masks == "shared":
        noise /= clients
    setting = ConvergenceSetting(
        clients,
        omega,
        problem.smoothness,
        beta=balancing_beta(omega, clients, masks),
        masks=masks,
        constants=EstimatorConstants(c2=noise),
    )
    step = largest_step(setting)
    start = np.full(dimension, 4.0)
    at_start = problem.gradients(start[None], problem.centres.mean(axis=1))[0]
    errors = at_start if masks == "independent" else at_start.mean(axis=0, keepdims=True)
    potential = initial_potential(
        setting, gap=problem.gap(start), shift_errors=[float(e @ e) for e in errors]
    )
    for rounds in (5, 200):
        bound = utility_bound(setting, potential=potential, step=step, rounds=rounds)
        measured = run_dsc(
            problem,
            masks,
            kept_fraction=kept_fraction,
            step=step,
            rounds=rounds,
            batch=batch,
            start=start,
        )
        assert measured <= bound
    assert bound < 12 * measured, "over many rounds the bound is not vacuous either"


@pytest.mark.parametrize("masks", ["independent", "shared"])
def test_one_round_of_masks_has_the_variance_the_step_bound_assumes(masks: MaskMode) -> None:
    """(ω/K²)Σ‖g_k − s_k‖² for independent masks, ω‖ḡ − s‖² for shared ones: 1 in place of K."""
    rng = np.random.default_rng(3)
    clients, dimension, kept_fraction, runs = 6, 8, 0.2, 40_000
    omega = 1 / kept_fraction - 1
    deviations = rng.normal(1, 1, size=(clients, dimension))
    drawn = clients if masks == "independent" else 1
    kept = rng.random((runs, drawn, dimension)) < kept_fraction
    estimates = (kept * deviations / kept_fraction).mean(axis=1)
    measured = ((estimates - deviations.mean(axis=0)) ** 2).sum(axis=1).mean()
    expected = (
        omega / clients**2 * (deviations**2).sum()
        if masks == "independent"
        else omega * (deviations.mean(axis=0) ** 2).sum()
    )
    assert measured == pytest.approx(expected, rel=0.02)
