"""Masks that all clients share and that keep little: their basis, and a warning before it fails."""

from __future__ import annotations

import warnings
from typing import Any, cast

import numpy as np
import pytest

from eris.core.compress import QSGD, Compressor, RandK, RandP
from eris.core.errors import InvalidSetting, TrainingWarning
from eris.core.rules import FedAvg, FedAvgM, ServerRule
from eris.federation import Federation
from eris.methods.eris import ERIS
from eris.protocol.schemes import Masked, Rotated, Scheme
from eris.testing.quadratic import Quadratic

N = 1000


def federate(method: ERIS, rule: ServerRule | None = None) -> Scheme:
    clients = [Quadratic(str(number), n=N) for number in range(4)]
    initial = np.full(N, 0.1, np.float32)
    made = Federation(clients, initial, method, samples=[1] * 4, rule=rule or FedAvg(0.1))
    assert made.agreement is not None
    return made.agreement.settings.scheme


def test_below_three_percent_the_basis_is_rotated_and_there_is_no_reference() -> None:
    assert federate(ERIS(kept_fraction=0.03)) == Masked(RandP(0.03))
    assert federate(ERIS(kept_fraction=0.0299)) == Rotated(RandP(0.0299))
    assert federate(ERIS(kept_fraction=0.006), FedAvgM(0.1)) == Rotated(RandP(0.006), limit=0.11)
    assert federate(ERIS(kept_fraction=0.5, basis="rotated")) == Rotated(RandP(0.5))
    limited = ERIS(kept_fraction=0.006, basis="coordinates", limit=0.4)
    assert federate(limited, FedAvgM(0.1)) == Masked(RandP(0.006), shift=False, limit=0.4)


@pytest.mark.parametrize("compressor", [RandP(0.006), RandP(0.0199), RandK(19)])
def test_in_coordinates_a_share_below_two_percent_warns_and_names_the_other_basis(
    compressor: Compressor,
) -> None:
    with pytest.warns(TrainingWarning, match=r"less than 2% .*basis=rotated"):
        federate(ERIS(compressor=compressor, basis="coordinates"))


def test_a_share_that_was_seen_to_diverge_rotated_warns_and_names_the_limit() -> None:
    with pytest.warns(TrainingWarning, match=r"less than 0.5% .*fedavgm with a limit"):
        federate(ERIS(kept_fraction=0.0012))


@pytest.mark.parametrize(
    ("method", "rule"),
    [
        (ERIS(), FedAvg()),
        (ERIS(kept_fraction=0.02), FedAvg()),
        (ERIS(kept_fraction=0.006), FedAvg()),
        (ERIS(kept_fraction=0.0012), FedAvgM()),
        (ERIS(kept_fraction=0.006, basis="coordinates", limit=0.4), FedAvgM()),
        (ERIS(compressor=RandK(20)), FedAvg()),
        (ERIS(compressor=QSGD(1)), FedAvg()),
        (ERIS.published("cifar10"), FedAvg()),
    ],
)
def test_nothing_is_said_where_it_trains(method: ERIS, rule: ServerRule) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        federate(method, rule)


@pytest.mark.parametrize(
    ("method", "says"),
    [
        (
            ERIS(kept_fraction=0.1, basis=cast(Any, "spectral")),
            "basis is 'spectral'; expected one of coord",
        ),
        (ERIS(basis="rotated"), "basis is 'rotated'; expected none: it is of masks"),
        (ERIS(compressor=QSGD(4), basis="rotated"), "basis is 'rotated'; expected none: it is of"),
        (ERIS(compressor=QSGD(4), limit=0.3), "limit is 0.3; expected none: it is of masks"),
        (ERIS(kept_fraction=0.1, masks="independent", basis="rotated"), "that clients share"),
        (ERIS(kept_fraction=0.1, masks="independent", limit=0.3), "that clients share"),
        (ERIS(kept_fraction=0.01, limit=0.3), "limit is 0.3; expected none: it bounds the steps"),
    ],
)
def test_what_has_no_basis_or_limit_is_named(method: ERIS, says: str) -> None:
    with pytest.raises(InvalidSetting, match=says):
        federate(method)
