"""Secret batches in the simulator: who is taken, what a mean is divided by, and what is said."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from eris.core.errors import InvalidSetting, PrivacyWarning
from eris.core.rules import server_rule
from eris.federation import Federation
from eris.methods.eris import ERIS
from eris.methods.privacy import LocalPrivacy
from eris.methods.registry import create
from eris.protocol.secure.noise import NoiseKeys, batch_coins
from eris.protocol.secure.noising import SharedNoising
from eris.protocol.secure.sending import SecureSender
from eris.testing import assert_same_bits
from eris.training.flat import flatten
from eris.training.vectorised import TorchPopulation

CLIENTS, SAMPLES, RATE = 6, 20, 0.25


DRAWN = torch.Generator().manual_seed(1)
INPUTS = torch.randn(CLIENTS * SAMPLES, 5, generator=DRAWN)
LABELS = torch.randint(0, 3, (CLIENTS * SAMPLES,), generator=DRAWN)


def population() -> tuple[TorchPopulation, nn.Module]:
    model = nn.Linear(5, 3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.1)
    parts = list(np.arange(CLIENTS * SAMPLES).reshape(CLIENTS, SAMPLES))
    return TorchPopulation(model, INPUTS, LABELS, parts, path="loop", learning_rate=1.0), model


def federation(rate: float = RATE, **method: Any) -> Federation:
    clients, model = population()
    usual: dict[str, Any] = {"aggregators": 2, "secure": "2 of 3", "sampling_rate": rate}
    made = ERIS(privacy=LocalPrivacy(1.0, clip=0.5), **(usual | method))
    return Federation(
        clients, flatten(model), made, samples=[SAMPLES] * CLIENTS, seed=4,
        rule=server_rule("fedavg", learning_rate=1.0),
    )  # fmt: skip


def without_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    def add(self: NoiseKeys, content: Any, std: float, fine_bits: int) -> Any:
        return content >> fine_bits

    monkeypatch.setattr(NoiseKeys, "add", add)
    monkeypatch.setattr(SharedNoising, "_examine", lambda *_: None)


def test_a_mean_is_of_the_chosen_samples_over_the_share_that_is_expected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without_noise(monkeypatch)
    seen: dict[int, Any] = {}
    batch = SecureSender.batch

    def noted(self: SecureSender, round: int, slots: int) -> Any:
        seen[self.me] = batch(self, round, slots)
        return seen[self.me]

    monkeypatch.setattr(SecureSender, "batch", noted)
    made = federation()
    with pytest.warns(PrivacyWarning, match="the noise of round 1 is .* too small"):
        model = made.fit(1, progress=False).model
    assert sorted(seen) == list(range(CLIENTS))
    chosen = np.concatenate([seen[client] for client in range(CLIENTS)])
    assert 0 < chosen.sum() < len(chosen)
    _, module = population()
    total = np.zeros(len(model))
    for number in np.flatnonzero(chosen):
        loss = nn.functional.cross_entropy(
            module(INPUTS[number : number + 1]), LABELS[number : number + 1]
        )
        pieces = torch.autograd.grad(loss, list(module.parameters()))
        gradient = np.concatenate([piece.flatten().numpy() for piece in pieces]).astype(float)
        total += gradient * min(1.0, 0.5 / float(np.linalg.norm(gradient)))
    expected = made.initial - total / (RATE * CLIENTS * SAMPLES)
    assert np.allclose(model, expected, atol=1e-6)


def test_rounds_and_clients_have_batches_of_their_own_and_runs_repeat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[bytes] = []

    def noted(key: bytes, federation: str, round: int, slots: int, rate: float) -> Any:
        found = batch_coins(key, federation, round, slots, rate)
        seen.append(found.tobytes())
        return found

    monkeypatch.setattr("eris.protocol.secure.noising.batch_coins", noted)
    first = federation().fit(3, progress=False).model
    assert len(seen) == len(set(seen)) == 3 * CLIENTS
    assert_same_bits(federation().fit(3, progress=False).model, first)
    assert seen[3 * CLIENTS :] == seen[: 3 * CLIENTS]


def test_what_is_sent_is_as_long_whoever_is_chosen() -> None:
    lengths = []
    for rate in (RATE, 1.0):
        transcript = federation(rate).fit(2, progress=False, record=True).transcript
        assert transcript is not None
        lengths.append([len(record.data) for record in transcript.records])
    assert lengths[0] == lengths[1]


def test_both_figures_are_said_and_less_noise_is_drawn() -> None:
    some, whole = federation().start(20), federation(1.0).start(20)
    assert some.privacy is not None
    assert whole.privacy is not None
    assert some.privacy.openers is not None
    assert 0.99 < some.privacy.epsilon <= 1.0 < some.privacy.openers < math.inf
    assert some.privacy.claim.sampling_rate == RATE
    assert some.privacy.claim.sigma < 0.5 * whole.privacy.claim.sigma


def test_public_draws_local_noise_and_whole_clients_are_refused() -> None:
    clients, model = population()
    start = flatten(model)
    with pytest.raises(
        InvalidSetting, match=r"sampling_rate is 0\.25; expected 1 beside `sampled`"
    ):
        Federation(
            clients, start, create("eris", secure="2of3", epsilon=8, sampling_rate=0.25), sampled=5
        )
    with pytest.raises(InvalidSetting, match=r"sampling_rate is 0\.25; expected 1, or noise that"):
        Federation(clients, start, create("eris", epsilon=8, sampling_rate=0.25))
    with pytest.raises(InvalidSetting, match=r"sampling_rate is 0\.25; expected 1 where whole"):
        federation(protects="client").start(3)
