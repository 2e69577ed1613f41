"""SCAFFOLD against the paper's algorithm written out, and against the drift it removes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from eris.core.combine import FixedPoint
from eris.core.errors import InvalidSetting
from eris.core.rules import server_rule
from eris.core.vectors import Vector
from eris.federation import Federation
from eris.methods.eris import ERIS
from eris.training.scaffold import ScaffoldTrainer, scaffold_initial, scaffold_model
from eris.training.torch import TorchTrainer
from eris.training.trainer import StatefulTrainer
from training.small import line, line_gradients, line_optimum

pytestmark = pytest.mark.usefixtures("one_thread")

RATE, STEPS, CLIENTS = 0.05, 10, 4
WIDE = FixedPoint(value_range=2.0**20)  # changes of c are divided by the rate
Wide = NDArray[np.float64]


def client_data(client: int) -> tuple[Tensor, Tensor]:
    """Clients that agree neither on the optimum nor on the curvature."""
    generator = torch.Generator().manual_seed(client)
    inputs = torch.randn(6, 2, generator=generator) * torch.tensor([0.3 + client, 1.5])
    return inputs, inputs @ torch.tensor([[1.0 - client], [float(client)]]) + 2 * client


def all_data() -> tuple[Tensor, Tensor]:
    parts = [client_data(client) for client in range(CLIENTS)]
    return torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])


def plain(client: int, **settings: Any) -> TorchTrainer:
    settings = {"learning_rate": RATE / 4, "steps": STEPS} | settings
    return TorchTrainer(
        line(), *client_data(client), loss=functional.mse_loss, client=client, **settings
    )


def gradient(client: int, model: Wide) -> Wide:
    each = line_gradients(model.astype(np.float32), *client_data(client))
    return np.asarray(each.mean(axis=0), np.float64)


def published(
    rounds: int, server: float, taking_part: list[list[int]]
) -> list[tuple[Wide, Wide, list[Wide]]]:
    """Algorithm 1 of Karimireddy et al. with option II; ``server`` is the global step size η_g."""
    rate = RATE / 4
    x, c = np.zeros(3), np.zeros(3)
    own = [np.zeros(3) for _ in range(CLIENTS)]
    seen = []
    for round in range(rounds):
        models, controls = [], []
        for client in taking_part[round]:
            y = x.copy()
            for _ in range(STEPS):
                y = y - rate * (gradient(client, y) - own[client] + c)
            renewed = own[client] - c + (x - y) / (STEPS * rate)
            models.append(y - x)
            controls.append(renewed - own[client])
            own[client] = renewed
        x = x + server * np.mean(models, axis=0)
        c = c + len(models) / CLIENTS * np.mean(controls, axis=0)
        seen.append((x, c, [control.copy() for control in own]))
    return seen


@pytest.mark.parametrize("server", [1.0, 0.5])
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_it_is_the_papers_algorithm(server: float, share: float) -> None:
    everyone = list(range(CLIENTS))
    parts = [everyone if share == 1 else everyone[round % 2 :: 2] for round in range(8)]
    rate = server * RATE / 4
    clients = [
        ScaffoldTrainer(plain(client), server_learning_rate=rate, participation=share)
        for client in everyone
    ]
    model = scaffold_initial(np.zeros(3, np.float32))
    for round, (x, c, own) in enumerate(published(8, server, parts)):
        updates = [clients[client].update(model, round).vector for client in parts[round]]
        model = model - np.float32(rate) * np.mean(updates, axis=0)
        np.testing.assert_allclose(scaffold_model(model), x, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(model[3:], c, rtol=1e-4, atol=1e-4)
        for client in parts[round]:
            kept = clients[client].state()["control"]
            np.testing.assert_allclose(kept, own[client], rtol=1e-4, atol=1e-4)


def distance(rounds: int, trainers: list[Any], start: Vector) -> float:
    """How far a sharded federation ends from the optimum of all data."""
    rule = server_rule("fedavg", learning_rate=RATE / 4)
    federation = Federation(trainers, start, ERIS(aggregators=3), rule=rule, precision=WIDE)
    end = federation.fit(rounds, progress=False).model[:3]
    return float(np.abs(end - line_optimum(*all_data())).max())


# At the optimum nothing is left to send, and less than the grid holds.
@pytest.mark.filterwarnings("ignore::eris.core.errors.PrecisionWarning")
def test_scaffold_reaches_the_optimum_where_fedavg_drifts() -> None:
    zeros = np.zeros(3, np.float32)
    drifted = distance(60, [plain(client) for client in range(CLIENTS)], zeros)
    reached = distance(
        60, [ScaffoldTrainer(plain(client)) for client in range(CLIENTS)], scaffold_initial(zeros)
    )
    assert reached < 1e-3
    assert drifted > 0.1


def test_without_controls_it_starts_as_fedavg() -> None:
    model = np.array([0.3, -0.2, 0.1], np.float32)
    update = ScaffoldTrainer(plain(1)).update(scaffold_initial(model), round=0)
    expected = plain(1).update(model, round=0)
    assert np.array_equal(update.vector[:3], expected.vector)
    assert (update.samples, update.steps) == (expected.samples, expected.steps)
    assert update.metrics == expected.metrics


def test_a_saved_state_continues_where_it_stopped() -> None:
    client, later = ScaffoldTrainer(plain(1)), ScaffoldTrainer(plain(1))
    assert isinstance(client, StatefulTrainer)
    assert client.state() == {}
    model = np.arange(6, dtype=np.float32)
    client.update(model, round=0)
    later.restore(client.state())
    expected = client.update(model, round=1).vector
    assert np.array_equal(later.update(model, round=1).vector, expected)
    later.restore({})
    fresh = ScaffoldTrainer(plain(1)).update(model, round=0).vector
    assert np.array_equal(later.update(model, round=0).vector, fresh)
    with pytest.raises(InvalidSetting, match=r"control variate .* expected float32 \(3,\)"):
        later.restore({"control": model})
    with pytest.raises(InvalidSetting, match="momentum"):
        later.restore({"momentum": model})


@pytest.mark.parametrize(
    "settings",
    [{"momentum": 0.9}, {"optimiser": "adam"}, {"estimator": "saga"}, {"proximal": 0.1}],
)
def test_what_is_not_a_plain_step_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting, match="under SCAFFOLD"):
        ScaffoldTrainer(plain(0, **settings))


def test_vectors_and_settings_out_of_range_are_refused() -> None:
    for odd in (np.zeros(3, np.float32), np.zeros((2, 2), np.float32)):
        with pytest.raises(InvalidSetting, match="start from scaffold_initial"):
            ScaffoldTrainer(plain(0)).update(odd, round=0)
        with pytest.raises(InvalidSetting, match="start from scaffold_initial"):
            scaffold_model(odd)
    with pytest.raises(InvalidSetting, match=r"participation is 0; expected a number in \(0, 1\]"):
        ScaffoldTrainer(plain(0), participation=0)
    with pytest.raises(InvalidSetting, match="server_learning_rate is nan"):
        ScaffoldTrainer(plain(0), server_learning_rate=float("nan"))
    assert ScaffoldTrainer(plain(0)).fast_path_obstacle == (
        "SCAFFOLD keeps a control variate per client"
    )
