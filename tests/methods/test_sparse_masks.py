"""Masks that all clients share and that keep little: a warning before training goes wrong."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from eris.core.compress import QSGD, Compressor, RandK, RandP
from eris.core.errors import TrainingWarning
from eris.federation import Federation
from eris.methods.eris import ERIS
from eris.testing.quadratic import Quadratic

N = 1000


def federate(method: ERIS) -> None:
    clients = [Quadratic(str(number), n=N) for number in range(4)]
    Federation(clients, np.zeros(N, np.float32), method, samples=[1] * 4)


@pytest.mark.parametrize("compressor", [RandP(0.006), RandP(0.0199), RandK(19)])
def test_a_share_below_two_percent_warns_and_names_the_papers_mode(compressor: Compressor) -> None:
    with pytest.warns(TrainingWarning, match=r"less than 2% .*masks=independent"):
        federate(ERIS(compressor=compressor))


@pytest.mark.parametrize(
    "method",
    [
        ERIS(),
        ERIS(kept_fraction=0.02),
        ERIS(compressor=RandK(20)),
        ERIS(compressor=QSGD(1)),
        ERIS.published("cifar10"),
    ],
)
def test_nothing_is_said_where_it_trains(method: ERIS) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        federate(method)
