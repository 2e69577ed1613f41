"""Training with scikit-learn: a real federation on digits, and no PyTorch anywhere."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import eris
from eris.core.errors import InvalidSetting
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.data.digits import load_digits
from eris.training.sklearn import (
    SklearnTrainer,
    evaluate,
    flatten,
    parameter_count,
    sgd_classifier,
    unflatten,
)
from eris.training.trainer import Trainer

RATE = 0.2
CLASSES, PIXELS = 10, 64
COUNT = 650
START = np.zeros(COUNT, np.float32)


@cache
def digits() -> tuple[NDArray[np.float64], NDArray[np.uint8], NDArray[np.float64], NDArray[Any]]:
    data = load_digits()
    train, test = (part.reshape(-1, PIXELS) / 16 for part in (data.train_images, data.test_images))
    return train, data.train_labels, test, data.test_labels


def trainer(client: int = 0, **settings: Any) -> SklearnTrainer:
    inputs, targets, _, _ = digits()
    mine = slice(client, None, 10)
    model = sgd_classifier(RATE, **settings.pop("model", {}))
    return SklearnTrainer(
        model, inputs[mine], targets[mine], classes=CLASSES, client=client, **settings
    )


def some_parameters(count: int = COUNT) -> Vector:
    return Stream(3, "parameters").normal(0, count).astype(np.float32)


def train(method: eris.ERIS | eris.FedAvg, rounds: int) -> eris.Fit:
    clients = [trainer(client) for client in range(10)]
    rule = eris.server_rule("fedavg", learning_rate=RATE)
    return eris.Federation(clients, START, method, rule=rule).fit(rounds, progress=False)


def test_a_federation_learns_digits_and_equals_central_fedavg_bit_for_bit() -> None:
    central, sharded = train(eris.FedAvg(), 15), train(eris.ERIS(), 15)
    assert sharded.model.tobytes() == central.model.tobytes()
    _, _, inputs, targets = digits()
    result = evaluate(sgd_classifier(RATE), sharded.model, inputs, targets, classes=CLASSES)
    assert result["accuracy"] > 0.85
    assert result["samples"] == 359


def test_it_is_fedavg_as_published() -> None:
    # With the server's step equal to the clients' rate, the new model is the mean of theirs.
    clients = [trainer(client) for client in range(10)]
    updates = [client.update(START, 1) for client in clients]
    weights = np.array([update.samples for update in updates], np.float64)
    models = np.stack([START - RATE * update.vector.astype(np.float64) for update in updates])
    expected = np.average(models, axis=0, weights=weights)
    assert np.allclose(train(eris.ERIS(aggregators=3), 1).model, expected, atol=1e-6)


@pytest.mark.parametrize("classes", [2, 10])
@pytest.mark.parametrize("settings", [{}, {"loss": "hinge", "penalty": "l1"}])
def test_the_update_is_the_pseudo_gradient_of_plain_partial_fit(
    classes: int, settings: dict[str, Any]
) -> None:
    inputs, targets, _, _ = digits()
    chosen = targets < classes
    inputs, targets = inputs[chosen][:100], targets[chosen][:100]
    start = some_parameters(parameter_count(PIXELS, classes))
    model = sgd_classifier(RATE, **settings)
    client = SklearnTrainer(
        model, inputs, targets, classes=classes, epochs=3, seed=4, client=7
    ).update(start, 2)

    rows = 1 if classes == 2 else classes
    plain = sgd_classifier(RATE, shuffle=False, random_state=9, **settings)
    plain.partial_fit(inputs, targets, classes=np.arange(classes))
    plain.coef_ = start[:-rows].reshape(rows, PIXELS).astype(np.float64)
    plain.intercept_ = start[-rows:].astype(np.float64)
    for order in Stream(4, "batches", round=2, client=7).permutations(3, 100):
        plain.partial_fit(inputs[order], targets[order])
    trained = np.concatenate([plain.coef_.ravel(), plain.intercept_])
    assert np.array_equal(client.vector, ((start - trained) / RATE).astype(np.float32))
    assert (client.samples, client.steps) == (100, 300)
    assert client.vector.dtype == np.float32


def test_an_update_depends_on_seed_client_and_round_alone() -> None:
    one: Trainer = trainer(0)
    first = one.update(START, 1).vector
    one.update(some_parameters(), 2)
    assert np.array_equal(one.update(START, 1).vector, first)
    assert np.array_equal(trainer(0).update(START, 1).vector, first)
    assert not np.array_equal(one.update(START, 2).vector, first)
    assert not np.array_equal(trainer(0, seed=1).update(START, 1).vector, first)


def test_what_it_is_given_is_left_as_it_was() -> None:
    before = np.random.get_state()[1].copy()  # type: ignore[index]  # noqa: NPY002
    model, parameters = sgd_classifier(RATE), some_parameters()
    inputs, targets, _, _ = digits()
    SklearnTrainer(model, inputs, targets, classes=CLASSES).update(parameters, 1)
    assert np.array_equal(parameters, some_parameters())
    assert not hasattr(model, "coef_")
    assert model.get_params() == sgd_classifier(RATE).get_params()
    assert np.array_equal(before, np.random.get_state()[1])  # type: ignore[index]  # noqa: NPY002


def test_a_client_without_some_of_the_classes_trains_too() -> None:
    inputs, targets, _, _ = digits()
    few = targets < 2
    client = SklearnTrainer(sgd_classifier(RATE), inputs[few], targets[few], classes=CLASSES)
    assert client.update(START, 1).vector.shape == (COUNT,)


@pytest.mark.parametrize("classes", [2, 10])
def test_flatten_undoes_unflatten_and_the_classifier_predicts(classes: int) -> None:
    vector = some_parameters(parameter_count(PIXELS, classes))
    fitted = unflatten(vector, sgd_classifier(RATE), classes)
    assert np.array_equal(flatten(fitted), vector)
    assert fitted.predict_proba(digits()[2]).shape == (359, classes)


@pytest.mark.parametrize(
    "parameters",
    [np.zeros(649, np.float32), np.zeros(660, np.float32), np.zeros((10, 65), np.float32)],
)
def test_parameters_of_a_wrong_size_are_refused(parameters: Vector) -> None:
    _, _, inputs, targets = digits()
    with pytest.raises(InvalidSetting, match=r"expected \(650,\), for 64 features and 10 classes"):
        trainer().update(parameters, 1)
    with pytest.raises(InvalidSetting, match=r"\(650,\)"):
        evaluate(sgd_classifier(RATE), parameters, inputs, targets, classes=CLASSES)


def test_parameters_of_a_wrong_type_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="float32"):
        trainer().update(START.astype(np.float64), 1)


@pytest.mark.parametrize("size", [0, 10, 15])
def test_a_vector_that_fits_no_number_of_features_is_refused(size: int) -> None:
    with pytest.raises(InvalidSetting, match="10 × "):
        unflatten(np.zeros(size, np.float32), sgd_classifier(RATE), CLASSES)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "epochs"),
        ({"seed": -1}, "seed"),
        ({"model": {"average": True}}, "average"),
        ({"model": {"early_stopping": True}}, "early_stopping"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        trainer(**settings)


@pytest.mark.parametrize(
    ("inputs", "targets", "message"),
    [
        (np.zeros((3, 2)), np.zeros(2, int), "targets"),
        (np.zeros(3), np.zeros(3, int), "inputs"),
        (np.zeros((0, 2)), np.zeros(0, int), "inputs"),
        (np.zeros((3, 2)), np.zeros(3), "integers"),
        (np.zeros((3, 2)), np.array([0, 1, 10]), "from 0 to 9"),
        (np.zeros((3, 2)), np.array([0, 1, -1]), "from 0 to 9"),
    ],
)
def test_data_that_do_not_fit_together_are_refused(
    inputs: NDArray[Any], targets: NDArray[Any], message: str
) -> None:
    with pytest.raises(InvalidSetting, match=message):
        SklearnTrainer(sgd_classifier(RATE), inputs, targets, classes=CLASSES)


def test_a_classifier_without_one_rate_is_refused() -> None:
    inputs, targets, _, _ = digits()
    varying = sgd_classifier(RATE).set_params(learning_rate="optimal")
    with pytest.raises(InvalidSetting, match="'constant'"):
        SklearnTrainer(varying, inputs, targets, classes=CLASSES)
    endless = sgd_classifier(RATE).set_params(eta0=0.0)
    with pytest.raises(InvalidSetting, match="eta0"):
        SklearnTrainer(endless, inputs, targets, classes=CLASSES)
    with pytest.raises(InvalidSetting, match="SGDClassifier"):
        SklearnTrainer(object(), inputs, targets, classes=CLASSES)
    with pytest.raises(InvalidSetting, match="learning_rate"):
        sgd_classifier(0.0)
    with pytest.raises(InvalidSetting, match="classes"):
        SklearnTrainer(sgd_classifier(RATE), inputs, targets, classes=1)


def test_without_scikit_learn_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.linear_model", None)
    with pytest.raises(ImportError, match=r"pip install 'eris-fl\[sklearn\]'"):
        sgd_classifier(RATE)


WITHOUT_TORCH = """
import sys
class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ImportError("torch is not to be imported")
sys.meta_path.insert(0, NoTorch())
import numpy as np
import eris
from eris.training.sklearn import SklearnTrainer, sgd_classifier
inputs, targets = np.eye(6), np.arange(6) % 3
clients = [
    SklearnTrainer(sgd_classifier(0.5), inputs, targets, classes=3, client=k) for k in range(3)
]
rule = eris.server_rule("fedavg", learning_rate=0.5)
fit = eris.Federation(clients, np.zeros(21, np.float32), rule=rule).fit(2, progress=False)
print(int(np.isfinite(fit.model).all() and fit.model.any()))
"""


def test_a_federation_runs_where_torch_cannot_be_imported() -> None:
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True, check=False
    )
    assert run.stdout.strip() == "1", run.stderr
