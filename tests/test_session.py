"""A training under way: moved on, stopped, written to a file and continued."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from eris.core.errors import InvalidSetting
from eris.core.rules import FedAvg as FedAvgRule
from eris.core.vectors import Vector
from eris.federation import Federation
from eris.methods.registry import METHODS, create
from eris.protocol.view import View
from eris.runtimes.faults import FaultPlan
from eris.runtimes.station import Report, Traffic
from eris.session import Fit, RoundRecord, Session
from eris.testing import assert_same_bits, initial_model
from support.crowd import Crowd

N, CLIENTS = 40, 8
START = initial_model(N)
SETTINGS: dict[str, dict[str, object]] = {
    "eris": {"kept_fraction": 0.5, "aggregators": 3},
    "d-psgd": {"degree": 4},
    "el": {"degree": 4},
    "muffliato": {"degree": 4, "steps": 3},
    "shatter": {"virtual_nodes": 2, "degree": 4},
    "priprune": {"adaptive": True},
    "fedavg-wc": {"clusters": 4},
    "enccluster": {"clusters": 2, "weight_range": 64.0, "fraction_bits": 8},
    "detrust": {"weight_range": 64.0, "fraction_bits": 8},
    "sefl": {"key_bits": 256},
}
FAULTS = FaultPlan(seed=3, link=0.3, churn=0.2)


def session(name: str, rounds: int = 8, faults: FaultPlan | None = FAULTS) -> Session:
    crowd = Crowd(CLIENTS, N, momentum=0.5)
    federation = Federation(
        crowd, START, create(name, **SETTINGS.get(name, {})), rule=FedAvgRule(0.1),
        samples=[crowd.samples(client) for client in range(CLIENTS)], seed=7,
    )  # fmt: skip
    return federation.start(rounds, record=True, faults=faults)


@pytest.mark.filterwarnings("ignore:EncCluster does not hide", "ignore:SEFL's clients have one")
@pytest.mark.parametrize("name", METHODS)
def test_a_state_survives_its_file_and_a_training_goes_on_from_it(
    name: str, tmp_path: Path
) -> None:
    whole = session(name)
    for _ in range(4):
        whole.step()
    save_file(whole.state(), tmp_path / "state.safetensors")
    read = load_file(tmp_path / "state.safetensors")
    assert read.keys() == whole.state().keys()
    again = session(name)
    again.restore(4, read)
    for found, expected in zip(again.models(), whole.models(), strict=True):
        assert_same_bits(found, expected)
    for _ in range(4):
        ours, theirs = again.step(), whole.step()
        assert ours == theirs
    assert again.round == whole.round == 8
    for found, expected in zip(again.models(), whole.models(), strict=True):
        assert_same_bits(found, expected)
    assert again.transcript is not None
    assert whole.transcript is not None
    late = [r for r in whole.transcript.records if r.time >= 5]
    assert again.transcript.records == late


@pytest.mark.parametrize("name", ["eris", "soteriafl", "d-psgd"])
def test_what_is_given_out_does_not_change_afterwards_nor_changes_anything(name: str) -> None:
    training, quiet = session(name), session(name)
    training.step()
    quiet.step()
    state, model, models = training.state(), training.model, training.models()
    kept = {key: value.copy() for key, value in state.items()}, model.copy()
    training.step()
    quiet.step()
    assert all(np.array_equal(kept[0][key], value) for key, value in state.items())
    assert_same_bits(model, kept[1])
    for given in (*state.values(), model, *models, training.model, *training.models()):
        given[:] = 0
    training.step()
    quiet.step()
    assert_same_bits(training.model, quiet.model)


def test_the_model_of_nodes_that_differ_is_their_mean() -> None:
    training = session("d-psgd")
    training.step()
    models = training.models()
    assert len(models) == CLIENTS
    assert not np.array_equal(models[0], models[1])
    assert np.allclose(training.model, np.mean(models, axis=0, dtype=np.float64), atol=1e-7)


@pytest.mark.parametrize("missing", ["model", "reference", "versions", "client/3/reference"])
def test_a_state_of_another_training_is_refused_and_changes_nothing(missing: str) -> None:
    other, training = session("soteriafl", faults=None), session("soteriafl", faults=None)
    other.step()
    state = other.state()
    before = training.model
    broken = {key: value for key, value in state.items() if key != missing}
    with pytest.raises(InvalidSetting, match=f"checkpoint is .*{missing.split('/')[-1]}"):
        training.restore(1, broken)
    with pytest.raises(InvalidSetting, match="checkpoint"):
        training.restore(1, state | {missing: state[missing][:-1]})
    assert training.round == 0
    if not missing.startswith("client"):
        assert_same_bits(training.model, before)


# -- what a training is said to have cost ---------------------------------------------------------


class Scripted:
    """An engine that reports what it is told."""

    def __init__(self, reports: list[Report]) -> None:
        self.reports, self.closed = reports, False

    def run_round(self, round: int) -> Report:
        return self.reports[round - 1]

    def models(self) -> dict[int, Vector]:
        return {1: np.full(2, 3, np.float32), 0: np.ones(2, np.float32)}

    def state(self) -> Mapping[str, Vector]:
        return {}

    def restore(self, round: int, state: Mapping[str, Vector]) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def report(*sent: tuple[int, int, str, int], included: float = 1.0) -> Report:
    traffic = Traffic()
    for message in sent:
        traffic.note(*message)
    return Report(traffic, included, ["no"], {0: {"loss": 2.0}})


def test_a_round_record_is_what_the_engine_reports() -> None:
    engine = Scripted([report((0, 2, "Contribution", 10)), report(included=0.5)])
    training = Session(engine, View.central(["a", "b"]), "agreed")
    first, second = training.step(), training.step()
    assert (first.round, first.included, first.refused) == (1, 1.0, ("no",))
    assert first.clients == {0: {"loss": 2.0}}
    assert (second.round, second.included) == (2, 0.5)
    assert training.model.tolist() == [2, 2]
    assert [model.tolist() for model in training.models()] == [[1, 1], [3, 3]]
    training.close()
    assert engine.closed


def test_costs_are_means_over_clients_and_rounds() -> None:
    rounds = [
        report((0, 2, "Contribution", 10), (1, 2, "Contribution", 30), (2, 0, "Result", 5),
               (2, 1, "Result", 5)),
        report((0, 2, "Contribution", 20), (2, 0, "Result", 5)),
    ]  # fmt: skip
    history = tuple(RoundRecord(i + 1, r.traffic, r.included) for i, r in enumerate(rounds))
    one = np.ones(1, np.float32)
    fit = Fit(one, history, View.central(["a", "b"]), "", (one,), None)
    # The server's traffic is nobody's among the clients, but it is the busiest.
    assert fit.sent() == fit.sent("Contribution") == (10 + 30 + 20) / 4
    assert fit.received() == fit.received("Result") == (5 + 5 + 5) / 4
    assert fit.sent("Result") == fit.received("Contribution") == 0
    assert fit.busiest() == (10 + 30 + 20 + 5 + 5 + 5) / 2
    assert fit.metrics == {}
