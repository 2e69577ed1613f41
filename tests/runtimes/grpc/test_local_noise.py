"""Local noise of nodes: from a cipher, new for every training, and as the budget asks."""

from __future__ import annotations

import numpy as np
import pytest

from eris.core.errors import InvalidSetting
from eris.methods.privacy import LocalPrivacy
from eris.runtimes.grpc.local_noise import local_noise
from eris.testing.fixed_rows import FixedRows
from eris.testing.quadratic import Quadratic


def test_every_training_has_a_key_of_its_own_whatever_its_round() -> None:
    noise = local_noise(LocalPrivacy(8.0), rounds=10, learner=FixedRows("anna", n=50))
    assert noise.sigma == LocalPrivacy(8.0).sigma(10)
    one, other = (noise.draws(3, 0).normal(0, 50) for _ in range(2))
    assert not np.isin(one, other).any()
    assert "key" not in repr(noise.draws(3, 0))


def test_a_trainer_that_sees_no_single_samples_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="the trainer is 'Quadratic'; expected one with"):
        local_noise(LocalPrivacy(8.0), rounds=10, learner=Quadratic("anna"))
