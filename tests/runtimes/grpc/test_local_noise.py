"""Local noise of nodes: from a cipher, new for every training, and as the budget asks."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from eris.core.errors import InvalidSetting
from eris.methods.privacy import LocalPrivacy
from eris.runtimes.grpc.local_noise import CipherDraws, local_noise
from eris.testing.fixed_rows import FixedRows
from eris.testing.quadratic import Quadratic


def test_draws_are_normal_and_those_of_two_steps_have_nothing_in_common() -> None:
    source = CipherDraws(b"k" * 32)
    first, second = source.normal(0, 50_000), source.normal(50_000, 50_000)
    for draws in (first, second):
        assert stats.kstest(draws, "norm").pvalue > 1e-3
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.02
    assert np.array_equal(first, CipherDraws(b"k" * 32).normal(0, 50_000))


def test_every_training_has_a_key_of_its_own_whatever_its_round() -> None:
    noise = local_noise(LocalPrivacy(8.0), rounds=10, learner=FixedRows("anna", n=50))
    assert noise.sigma == LocalPrivacy(8.0).sigma(10)
    one, other = (noise.draws(3, 0).normal(0, 50) for _ in range(2))
    assert not np.isin(one, other).any()
    assert "key" not in repr(noise.draws(3, 0))


def test_a_trainer_that_sees_no_single_samples_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="the trainer is 'Quadratic'; expected one with"):
        local_noise(LocalPrivacy(8.0), rounds=10, learner=Quadratic("anna"))
