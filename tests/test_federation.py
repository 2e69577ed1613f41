"""The front door: clients and a model in, a trained model and its record out."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors import safe_open

import eris
from eris.core.errors import CastWarning, InvalidSetting, PrivacyWarning
from eris.federation import RefusedWarning

Vector = NDArray[np.float32]


class Pull:
    """A client that pulls the model towards its own target."""

    def __init__(self, target: float, samples: int = 10) -> None:
        self.target, self.samples = np.float32(target), samples

    def update(self, parameters: Vector, round: int) -> eris.LocalUpdate:
        update = parameters - self.target
        parameters[:] = 0  # a trainer may scribble on what it is given
        return eris.LocalUpdate(update, samples=self.samples)


class Broken(Pull):
    def update(self, parameters: Vector, round: int) -> eris.LocalUpdate:
        return eris.LocalUpdate(np.full_like(parameters, np.nan), samples=self.samples)


CLIENTS = [Pull(1), Pull(2), Pull(3, samples=20), Pull(6, samples=40)]
START = np.zeros(100, np.float32)
HALF = eris.server_rule("fedavg", learning_rate=0.5)


def test_eris_equals_the_central_model_and_finds_the_weighted_mean() -> None:
    central = eris.Federation(CLIENTS, START, eris.FedAvg(), rule=HALF).fit(30, progress=False)
    for method in (
        eris.ERIS(),
        eris.ERIS(aggregators=2),
        eris.ERIS(plan="interleaved", rotate=2),
        eris.ERIS(capacities=(1, 2, 3, 4)),
    ):
        sharded = eris.Federation(CLIENTS, START, method, rule=HALF).fit(30, progress=False)
        assert sharded.model.tobytes() == central.model.tobytes()
    assert np.allclose(central.model, (10 + 20 + 60 + 240) / 80, atol=1e-6)


def test_history_counts_encoded_bytes_and_keeps_metrics() -> None:
    asked: list[int] = []

    def score(model: Vector) -> dict[str, float]:
        asked.append(len(model))
        return {"first": float(model[0])}

    fit = eris.Federation(CLIENTS, START, eris.ERIS(), rule=HALF).fit(
        5, evaluate=score, evaluate_every=2, progress=False
    )
    assert [record.round for record in fit.history if record.metrics] == [2, 4, 5]
    assert len(asked) == 3
    assert fit.metrics["first"] == fit.model[0]
    assert all(record.included == 1 for record in fit.history)
    # Three quarters of 400 bytes leave as an update, a quarter to each of three others as a result.
    assert 300 < fit.sent("Contribution") < 300 + 3 * 128
    assert 300 < fit.sent("Result") < 300 + 3 * 128
    assert fit.sent() == fit.received() <= fit.busiest() / 2 < 1.1 * fit.sent()


def test_record_keeps_what_was_sent() -> None:
    fit = eris.Federation(CLIENTS, START, eris.FedAvg(), rule=HALF).fit(
        2, record=True, progress=False
    )
    assert fit.transcript is not None
    seen = fit.transcript.as_server()
    assert {c.header.sender for c in seen.contributions()} == {0, 1, 2, 3}
    final = fit.transcript.as_final_model().final_model
    assert final is not None
    assert final.tobytes() == fit.model.tobytes()


def test_a_broken_client_is_left_out_and_named() -> None:
    federation = eris.Federation(
        [*CLIENTS, Broken(0)], START, rule=HALF, names=["a", "b", "c", "d", "doctor-evil"]
    )
    with pytest.warns(RefusedWarning, match="doctor-evil"):
        fit = federation.fit(3, progress=False)
    healthy = eris.Federation(CLIENTS, START, rule=HALF).fit(3, progress=False)
    assert fit.model.tobytes() == healthy.model.tobytes()
    assert all(record.included == 4 / 5 and record.refused for record in fit.history)


def test_the_model_is_saved_with_what_made_it(tmp_path: Path) -> None:
    fit = eris.Federation(CLIENTS, START, rule=HALF).fit(2, progress=False)
    fit.save(tmp_path / "new" / "model.safetensors")
    with safe_open(tmp_path / "new" / "model.safetensors", framework="numpy") as file:
        assert file.get_tensor("model").tobytes() == fit.model.tobytes()
        assert json.loads(file.metadata()["settings"])["n"] == 100


def test_the_same_seed_gives_the_same_bits_and_another_does_not() -> None:
    def model(seed: int) -> bytes:
        method = eris.ERIS(kept_fraction=0.3)
        federation = eris.Federation(CLIENTS, START, method, rule=HALF, seed=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RefusedWarning)
            return federation.fit(3, progress=False).model.tobytes()

    assert model(1) == model(1) != model(2)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: eris.Federation([], START), "at least one trainer"),
        (lambda: eris.Federation(CLIENTS[:2], START), "min_included is 3; expected at most 2"),
        (lambda: eris.Federation(CLIENTS, START, quorum=5), "quorum is 5; expected at most 4"),
        (lambda: eris.Federation(CLIENTS, START, eris.ERIS(aggregators=9)), "1 to 4"),
        (lambda: eris.Federation(CLIENTS, START[:2]), "1 to n = 2"),
        (lambda: eris.Federation(CLIENTS, START, names=["a", "a", "b", "c"]), "name once"),
        (lambda: eris.Federation(CLIENTS, START, names=["a"]), "one for each of 4"),
        (lambda: eris.Federation(CLIENTS, START, rule="fedadm"), "did you mean 'fedadam'"),
        (lambda: eris.Federation(CLIENTS, START, rule="krum"), "no aggregator holds a whole"),
        (lambda: eris.Federation(CLIENTS, START, min_inclded=2), "min_included"),
        (lambda: eris.Federation(CLIENTS, START, masks="shared"), "a setting of the method"),
        (lambda: eris.Federation(CLIENTS, START.reshape(2, 50)), "a flat vector"),
        (lambda: eris.Federation(CLIENTS, START + np.float32("nan")), "of finite values"),
        (
            lambda: eris.Federation(
                CLIENTS, START, eris.ERIS(kept_fraction=0.5, masks="independent")
            ),
            "every client's number of samples",
        ),
        (
            lambda: eris.Federation(
                CLIENTS, START, eris.ERIS(plan="interleaved", capacities=(1, 1, 1, 1))
            ),
            "the random plan with capacities",
        ),
        (lambda: eris.Federation(CLIENTS, START, rule="trimmed-mean"), "of 4 clients it cuts none"),
        (lambda: eris.Federation(CLIENTS, START).fit(0), "rounds is 0"),
        (lambda: eris.Federation(CLIENTS, START, eris.ERIS(capacities=(1, 2))), "aggregators"),
        (lambda: eris.Federation(CLIENTS, START, eris.ERIS(capacities=(1, 0, 1, 1))), "weights[1]"),
        (lambda: eris.Federation(CLIENTS, START, eris.ERIS(kept_fraction=0.0)), "(0, 1]"),
    ],
)
def test_bad_input_is_named(make: object, says: str) -> None:
    assert callable(make)
    with pytest.raises(InvalidSetting) as refused:
        make()
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("update", "says"),
    [
        (eris.LocalUpdate(START[:-1], 1), "update of client-4 is 'float32 array of shape (99,)'"),
        (eris.LocalUpdate(None, 1), "update of client-4 is 'NoneType'"),  # type: ignore[arg-type]
        (eris.LocalUpdate(START, 0), "samples of client-4 is 0"),
        (eris.LocalUpdate(START, 1.5), "samples of client-4 is 1.5"),  # type: ignore[arg-type]
        (eris.LocalUpdate(START, 1 << 47), "from 1 to 140737488355327"),
        (
            eris.LocalUpdate(START, 1 << 46),
            "samples of client-4 is 70368744177664; expected at most",
        ),
        (eris.LocalUpdate(START, 1, steps=1 << 32), "steps of client-4"),
    ],
)
def test_an_update_that_is_none_is_refused_and_says_whose(
    update: eris.LocalUpdate, says: str
) -> None:
    class Odd:
        def update(self, parameters: Vector, round: int) -> eris.LocalUpdate:
            return update

    with pytest.raises(InvalidSetting) as refused:
        eris.Federation([*CLIENTS, Odd()], START).fit(1, progress=False)
    assert says in str(refused.value)


def test_choices_that_give_more_away_are_warned_about() -> None:
    with pytest.warns(PrivacyWarning, match="whole layers"):
        eris.Federation(CLIENTS, START, eris.ERIS(plan="contiguous"))
    with pytest.warns(PrivacyWarning, match="median may publish values that only 1 of 3"):
        eris.Federation(CLIENTS, START, rule="coordinate-median")


def test_numpy_numbers_and_arrays_are_welcome_and_equal_settings_agree() -> None:
    plain = eris.Federation(
        CLIENTS, START, eris.ERIS(aggregators=2, kept_fraction=0.5), seed=3,
        rule=eris.server_rule("fedavg", learning_rate=1.0), samples=[1, 2, 3, 4],
    )  # fmt: skip
    numpy = eris.Federation(
        CLIENTS, START, eris.ERIS(aggregators=np.int64(2), kept_fraction=np.float32(0.5)),  # type: ignore[arg-type]
        rule=eris.server_rule("fedavg", learning_rate=1), seed=np.int64(3),  # type: ignore[arg-type]
        samples=np.array([1, 2, 3, 4]), names=np.array([f"client-{k}" for k in range(4)]),  # type: ignore[arg-type]
    )  # fmt: skip
    assert plain.settings.fingerprint == numpy.settings.fingerprint
    other = eris.Federation(CLIENTS, START + 1, eris.ERIS(aggregators=2, kept_fraction=0.5), seed=3)
    assert other.settings.fingerprint != plain.settings.fingerprint


def test_what_trainers_keep_ends_with_a_training() -> None:
    class Counting(Pull):
        rounds = 0

        def update(self, parameters: Vector, round: int) -> eris.LocalUpdate:
            self.rounds += 1
            return eris.LocalUpdate(parameters * 0 + np.float32(self.rounds), samples=1)

        def state(self) -> dict[str, Vector]:
            return {"rounds": np.array([self.rounds], np.float32)}

        def restore(self, state: Mapping[str, Vector]) -> None:
            self.rounds = int(state["rounds"][0])

    federation = eris.Federation([Counting(0) for _ in range(3)], START, rule=HALF)
    first, second = (federation.fit(3, progress=False).model for _ in range(2))
    assert first.tobytes() == second.tobytes()


def test_a_federation_of_a_billion_samples_has_its_weighted_mean_in_any_order() -> None:
    clients = [Pull(1, 5 * 10**8), Pull(2, 3 * 10**8), Pull(3, 2 * 10**8)]
    rule = eris.server_rule("fedavg", learning_rate=1.0)
    for order in (clients, clients[::-1]):
        fit = eris.Federation(order, START, eris.ERIS(), rule=rule).fit(1, progress=False)
        assert fit.history[-1].included == 1
        assert fit.model.tobytes() == np.full_like(START, 1.7).tobytes()


def test_what_a_node_trains_with_is_a_client_as_it_is() -> None:
    class Plain:
        samples = 3

        def initial(self) -> Vector:
            return START

        def update(self, parameters: Vector, round: int) -> tuple[Any, int, dict[str, float]]:
            return parameters.astype(np.float64) - 1, 3, {"loss": 0.5}

        def evaluate(self, parameters: Vector) -> dict[str, float]:
            return {"first": float(parameters[0])}

    plain: Any = [Plain(), Plain(), Plain()]
    with pytest.warns(CastWarning, match="update of client-0 is float64; it is cast") as told:
        fit = eris.Federation(plain, rule=HALF).fit(2, progress=False)
    assert len(told) == 1
    assert fit.history[0].clients[2] == {"loss": 0.5}
    assert fit.model == pytest.approx(1 + (START - 1) / 4, abs=1e-6)
    with pytest.raises(InvalidSetting, match=r"model is None; .* clients that have initial\(\)"):
        eris.Federation(CLIENTS)


def test_refusals_say_where_to_go() -> None:
    with pytest.raises(InvalidSetting, match=r"min_included=2 allows it\. What that gives away"):
        eris.Federation(CLIENTS[:2], START)
    assert eris.Federation(CLIENTS[:2], START, min_included=2).fit(1, progress=False).history
    with pytest.raises(InvalidSetting, match=r"ScaffoldTrainer \(in `eris run` --scaffold\)"):
        eris.Federation(CLIENTS, START, rule="scaffold")
    fit = eris.Federation(CLIENTS, START).fit(1, progress=False)
    with pytest.raises(InvalidSetting, match=r"file of the model is 'm\.pt'; expected .*safetens"):
        fit.save("m.pt")
