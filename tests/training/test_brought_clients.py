"""Clients that people have already: scikit-learn's LogisticRegression, and those of Flower."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression, Perceptron, Ridge

import eris
from eris.core.errors import InvalidSetting
from eris.training.flower import FlowerTrainer
from eris.training.sklearn import SklearnTrainer, evaluate

INPUTS, LABELS = load_digits(return_X_y=True)
INPUTS = INPUTS / 16


def logistic(client: int, part: Any, **settings: Any) -> SklearnTrainer:
    model = LogisticRegression(**settings)
    return SklearnTrainer(model, INPUTS[part], LABELS[part], classes=10, client=client)


def test_a_federation_of_logistic_regressions_learns() -> None:
    clients = [logistic(k, slice(k, 1000, 20), max_iter=5) for k in range(20)]
    fit = eris.Federation(clients).fit(6, progress=False)
    test = INPUTS[1000:], LABELS[1000:]
    found = evaluate(LogisticRegression(), fit.model, *test, classes=10)["accuracy"]
    alone = LogisticRegression().fit(INPUTS[:1000:20], LABELS[:1000:20]).score(*test)
    assert found > alone + 0.03
    assert found > 0.85


def test_a_client_without_some_classes_minimises_its_own_objective() -> None:
    """By hand: the gradient of w²/2 + C·Σ cross-entropy over all ten classes is zero there."""
    few = np.flatnonzero(LABELS < 4)[:120]
    trainer = logistic(0, few, C=0.05, max_iter=2000, tol=1e-9)
    solution = (trainer.initial() - trainer.update(trainer.initial(), 1).vector).astype(np.float64)
    weights = solution[:640].reshape(10, 64)
    logits = INPUTS[few] @ weights.T + solution[640:]
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    error = odds / odds.sum(axis=1, keepdims=True) - np.eye(10)[LABELS[few]]
    assert np.abs(weights + 0.05 * error.T @ INPUTS[few]).max() < 1e-3


def test_other_linear_models_are_taken_or_refused() -> None:
    model = Perceptron(eta0=0.1)
    client = SklearnTrainer(model, INPUTS[:50], LABELS[:50], classes=10)
    assert client.update(client.initial(), 1).steps == 50
    assert client.evaluate(client.initial())["samples"] == 50
    for wrong, says in (
        (Ridge(), "expected an SGDClassifier, Perceptron or LogisticRegression"),
        (LogisticRegression(solver="liblinear"), "solver of the classifier is 'liblinear'"),
    ):
        with pytest.raises(InvalidSetting, match=says):
            SklearnTrainer(wrong, INPUTS[:50], LABELS[:50], classes=10)


# -- Flower -----------------------------------------------------------------------------------


class NumPyClientShaped:
    """A stand-in of the shape of flwr.client.NumPyClient, which is not a dependency here."""

    def __init__(self, mean: float, samples: int) -> None:
        self.mean, self.samples = mean, samples
        self.rounds: list[int] = []

    def get_parameters(self, config: dict[str, Any]) -> list[NDArray[Any]]:
        return [np.zeros((2, 3)), np.zeros((), np.int64)]

    def fit(
        self, parameters: list[NDArray[Any]], config: dict[str, Any]
    ) -> tuple[list[NDArray[Any]], int, dict[str, Any]]:
        assert [array.dtype for array in parameters] == [np.float64, np.int64]
        self.rounds.append(config["server_round"])
        moved = parameters[0] + config["share"] * (self.mean - parameters[0])
        return [moved, parameters[1] + 1], self.samples, {"loss": float(abs(moved).max())}

    def evaluate(
        self, parameters: list[NDArray[Any]], config: dict[str, Any]
    ) -> tuple[float, int, dict[str, Any]]:
        return float(abs(parameters[0] - self.mean).max()), self.samples, {"seen": parameters[1]}


def test_flower_s_clients_end_where_flower_s_fedavg_does() -> None:
    brought = [NumPyClientShaped(mean, n) for mean, n in ((1.0, 10), (2.0, 10), (6.0, 20))]
    clients = [FlowerTrainer(client, {"share": 0.5}) for client in brought]
    fit = eris.Federation(clients).fit(4, progress=False)
    model = np.zeros((2, 3))
    for _ in range(4):  # the mean of the clients' arrays, weighted by their samples
        trained = [model + 0.5 * (client.mean - model) for client in brought]
        model = np.average(trained, axis=0, weights=[client.samples for client in brought])
    assert fit.model[:6].reshape(2, 3) == pytest.approx(model, abs=1e-5)
    assert fit.model[6] == 4  # a counter: all clients count alike
    assert brought[0].rounds == [1, 2, 3, 4]
    assert clients[0].evaluate(fit.model)["samples"] == 10
    assert fit.layout == [("0", (2, 3)), ("1", ())]


def test_a_flower_client_may_lack_what_flower_does_not_ask_for() -> None:
    """Newer clients have no parameters of their own; who does not evaluate gives no sample, as
    Flower's default; and one may be wrapped."""

    class Bare(NumPyClientShaped):
        def get_parameters(self, config: Any) -> Any:
            return []

        def evaluate(self, parameters: Any, config: Any) -> Any:
            return 0.0, 0, {}

    start = [np.zeros((2, 3)), np.zeros((), np.int64)]
    with pytest.raises(InvalidSetting, match=r"the arrays to start from as initial=\[...\]"):
        FlowerTrainer(Bare(1, 1))
    wrapped = SimpleNamespace(numpy_client=Bare(2.0, 10))
    bare = [FlowerTrainer(client, {"share": 0.5}, initial=start) for client in (wrapped,) * 3]
    telling = FlowerTrainer(NumPyClientShaped(2.0, 10), {"share": 0.5})
    fit = eris.Federation([*bare, telling]).fit(2, evaluate="clients", progress=False)
    assert fit.model[:6] == pytest.approx(np.full(6, 1.5), abs=1e-5)
    assert list(fit.history[-1].evaluated) == [3]
    assert fit.metrics["loss"] == pytest.approx(0.5, abs=1e-5)


def test_what_is_no_flower_client_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="client is 'object'; expected a NumPyClient"):
        FlowerTrainer(object())  # type: ignore[arg-type]

    class Reshaping(NumPyClientShaped):
        def fit(self, parameters: Any, config: Any) -> Any:
            return parameters[:1], 1, {}

    trainer = FlowerTrainer(Reshaping(1, 1))
    with pytest.raises(InvalidSetting, match=r"what fit\(\) returned is 'float64 \(2, 3\)'"):
        trainer.update(trainer.initial(), 1)
