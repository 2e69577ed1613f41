"""Callbacks, evaluation by the clients, and a history as a data frame."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eris
from eris.callbacks import EarlyStopping, MLflowLogger, TensorBoardLogger
from eris.core.errors import InvalidSetting, MissingExtra
from eris.core.vectors import Vector

START = np.zeros(12, np.float32)


class Pulling:
    """Pulls the model towards a value, and says how far it is."""

    def __init__(self, mean: float, samples: int) -> None:
        self.mean, self.samples = np.float32(mean), samples

    def update(self, parameters: Vector, round: int) -> eris.LocalUpdate:
        return eris.LocalUpdate(parameters - self.mean, self.samples, metrics={"loss": 0.5})

    def evaluate(self, parameters: Vector) -> dict[str, float]:
        return {"far": float(abs(parameters[0] - self.mean)), "samples": self.samples}


CLIENTS = [Pulling(1, 10), Pulling(2, 10), Pulling(3, 20)]


def federation() -> eris.Federation:
    return eris.Federation(CLIENTS, START, rule=eris.server_rule("fedavg", learning_rate=0.5))


def test_clients_evaluate_and_their_mean_is_by_samples() -> None:
    fit = federation().fit(3, evaluate="clients", evaluate_every=2, progress=False)
    assert [sorted(record.evaluated) for record in fit.history] == [[], [0, 1, 2], [0, 1, 2]]
    each = [client.evaluate(fit.model)["far"] for client in CLIENTS]
    assert fit.history[-1].evaluated[2]["far"] == each[2]
    assert fit.metrics["far"] == pytest.approx((each[0] + each[1] + 2 * each[2]) / 4)


def test_a_callback_sees_every_round_and_may_end_the_training() -> None:
    seen: list[int] = []
    closed: list[bool] = []

    class Watching:
        def __call__(self, record: eris.RoundRecord, training: Any) -> bool:
            seen.append(record.round)
            return record.round == 3 and training.model[0] > 1

        def close(self) -> None:
            closed.append(True)

    late: list[int] = []
    fit = federation().fit(
        9, progress=False, callbacks=[Watching(), lambda record, _: late.append(record.round)]
    )
    assert seen == late == [1, 2, 3]
    assert len(fit.history) == 3
    assert fit.model.tobytes() == federation().fit(3, progress=False).model.tobytes()

    def failing(record: eris.RoundRecord, training: Any) -> None:
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        federation().fit(2, progress=False, callbacks=[failing, Watching()])
    assert closed == [True, True]


def test_early_stopping_keeps_the_best_model() -> None:
    stop = EarlyStopping("off", patience=2)
    fit = federation().fit(
        20, evaluate=lambda model: {"off": abs(float(model[0]) - 1.5)}, progress=False,
        callbacks=[stop],
    )  # fmt: skip
    values = [record.metrics["off"] for record in fit.history]
    assert stop.best == min(values)
    assert len(fit.history) == stop.round + 2 < 20
    assert stop.model is not None
    assert abs(float(stop.model[0]) - 1.5) == stop.best
    wrong = EarlyStopping("accuracy")
    with pytest.raises(InvalidSetting, match="to stop by is 'accuracy'; expected one of far"):
        federation().fit(1, evaluate="clients", progress=False, callbacks=[wrong])


def test_early_stopping_knows_accuracy_and_what_is_no_number() -> None:
    rising = iter([0.2, 0.5, float("nan"), 0.6, 0.6, 0.6])
    stop = EarlyStopping("accuracy", patience=2)
    fit = federation().fit(
        9, evaluate=lambda model: {"accuracy": next(rising)}, progress=False, callbacks=[stop]
    )
    assert (stop.best, stop.round, len(fit.history)) == (0.6, 4, 6)
    lost = EarlyStopping("off", patience=3)
    fit = federation().fit(
        9, evaluate=lambda model: {"off": float("nan")}, progress=False, callbacks=[lost]
    )
    assert (lost.best, lost.model, len(fit.history)) == (None, None, 3)


def test_what_cannot_be_asked_after_a_round_is_refused_before_the_first() -> None:
    never: Any
    for never, says in (
        ({"callbacks": [EarlyStopping("far")]}, "evaluate is None; expected 'clients' or a func"),
        ({"callbacks": EarlyStopping("far")}, "callbacks is 'EarlyStopping'; expected a list"),
        ({"callbacks": [3]}, "callback is 'int'; expected something to call"),
        ({"evaluate": "client"}, "evaluate is 'client'; expected 'clients', or a function"),
        ({"evaluate": lambda model: 0.5}, "what evaluate() returned is 'float'; expected a map"),
    ):
        with pytest.raises(InvalidSetting, match=re.escape(says)):
            federation().fit(2, progress=False, **never)


def test_the_history_is_a_data_frame_and_a_round_a_line() -> None:
    fit = federation().fit(3, evaluate="clients", progress=False)
    frame = fit.frame()
    assert list(frame.index) == [1, 2, 3]
    assert frame["far"].tolist() == [record.metrics["far"] for record in fit.history]
    assert frame["sent"].sum() == sum(sum(r.traffic.sent.values()) for r in fit.history)
    by_client = fit.frame(clients=True)
    assert by_client.loc[(3, 2), "evaluated_far"] == fit.history[2].evaluated[2]["far"]
    assert (by_client["loss"] == 0.5).all()
    assert len(repr(fit.history[-1])) < 100
    assert repr(fit.history[-1]).startswith("RoundRecord(round=3, far=")
    assert repr(fit).startswith("Fit(rounds=3, parameters=12, far=")
    assert len(repr(fit)) < 60


def test_tensorboard_finds_what_was_logged(tmp_path: Path) -> None:
    federation().fit(2, evaluate="clients", progress=False,
                     callbacks=[TensorBoardLogger(tmp_path)])  # fmt: skip
    (file,) = tmp_path.iterdir()
    written = file.read_bytes()
    for tag in (b"far", b"bytes_sent", b"training/loss/0", b"evaluation/far/2"):
        assert tag in written


@pytest.mark.filterwarnings("ignore")  # those of MLflow's own libraries
def test_mlflow_has_settings_rounds_and_how_it_ended(tmp_path: Path) -> None:
    import mlflow

    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/runs.db")
    mlflow.create_experiment("here", artifact_location=str(tmp_path))
    mlflow.set_experiment("here")
    logger = MLflowLogger(run_name="whole")
    fit = federation().fit(2, evaluate="clients", progress=False, callbacks=[logger])

    def failing(record: eris.RoundRecord, training: Any) -> None:
        raise ArithmeticError

    broken: list[Any] = [MLflowLogger(run_name="broken"), failing]
    with pytest.raises(ArithmeticError):
        federation().fit(2, progress=False, callbacks=broken)
    federation().fit(1, progress=False, callbacks=[logger])  # again: another run
    runs = mlflow.search_runs(output_format="list", order_by=["attributes.start_time"])
    assert [(run.info.run_name, run.info.status) for run in runs] == [
        ("whole", "FINISHED"), ("broken", "FAILED"), ("whole", "FINISHED"),
    ]  # fmt: skip
    assert runs[0].data.params["n"] == "12"
    told = mlflow.MlflowClient().get_metric_history(runs[0].info.run_id, "evaluation/far/0")
    assert [(one.step, one.value) for one in told] == [
        (record.round, record.evaluated[0]["far"]) for record in fit.history
    ]


def test_a_missing_library_is_named_with_the_line_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("pandas", "tensorboardX", "mlflow"):
        monkeypatch.setitem(sys.modules, name, None)
    fit = federation().fit(1, progress=False)
    for what, extra in (
        (fit.frame, "frames"),
        (lambda: TensorBoardLogger("x"), "tensorboard"),
        (MLflowLogger, "mlflow"),
    ):
        with pytest.raises(MissingExtra, match=rf"pip install 'eris-fl\[{extra}\]'"):
            what()
