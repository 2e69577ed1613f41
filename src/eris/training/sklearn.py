"""One client's training with scikit-learn's linear classifiers: a federation without PyTorch.

The flat model is ``coef_`` row by row and then ``intercept_``. A round starts from the given
parameters, makes passes of stochastic gradient descent over the client's data, one step a sample,
and returns the pseudo-gradient (x − x_k)/λ, λ being the classifier's constant rate ``eta0``. It is
formed in double precision, in which scikit-learn trains here, and only then rounded.

That is for ``SGDClassifier`` and ``Perceptron``. A ``LogisticRegression`` makes as many iterations
of its own solver as its ``max_iter`` says, from the given parameters; λ is then 1. Classes that a
client has no sample of are told to it by samples of weight 0.

A server that steps by the same λ, ``server_rule("fedavg", learning_rate=eta0)``, sets the model to
the weighted mean of the clients' models: FedAvg as it was published.
"""

from __future__ import annotations

import warnings
from typing import Any, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eris.core.errors import InvalidSetting, library
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.training.trainer import LocalUpdate

Classifier = Any
"""A linear classifier of ``sklearn.linear_model``; scikit-learn has no types to name it by."""
_SKLEARN = "scikit-learn", "sklearn"


def sgd_classifier(learning_rate: float, *, loss: str = "log_loss", **settings: Any) -> Classifier:
    """An ``SGDClassifier`` with the constant rate that ``SklearnTrainer`` needs.

    ``settings`` are further arguments of scikit-learn's constructor, such as ``alpha``.
    """
    if not 0 < learning_rate < float("inf"):
        raise InvalidSetting("learning_rate", learning_rate, "a finite number above 0")
    models = library("sklearn.linear_model", *_SKLEARN)
    return models.SGDClassifier(loss=loss, learning_rate="constant", eta0=learning_rate, **settings)


def parameter_count(features: int, classes: int) -> int:
    """The length of the flat model: one row for two classes, else one a class, and an intercept.

    >>> parameter_count(features=64, classes=10), parameter_count(features=64, classes=2)
    (650, 65)
    """
    return _rows(classes) * (features + 1)


def flatten(model: Classifier) -> Vector:
    """The parameters of a fitted classifier: ``coef_`` row by row, then ``intercept_``."""
    joined = np.concatenate([np.ravel(model.coef_), np.ravel(model.intercept_)])
    return joined.astype(np.float32)


def unflatten(vector: Vector, model: Classifier, classes: int) -> Classifier:
    """A copy of ``model`` with these parameters, ready to predict labels 0 … ``classes`` − 1."""
    rows = _rows(classes)
    if vector.dtype != np.float32:
        raise InvalidSetting("parameter vector's type", str(vector.dtype), "float32")
    if vector.ndim != 1 or len(vector) % rows or len(vector) < 2 * rows:
        expected = f"({rows} × (features + 1),), the parameters for {classes} classes"
        raise InvalidSetting("shape of the parameter vector", vector.shape, expected)
    fitted = library("sklearn.base", *_SKLEARN).clone(model)
    # The fixed state keeps scikit-learn from reading NumPy's global one; without shuffling it is
    # drawn from but decides nothing.
    fitted.set_params(**({"warm_start": True} if _solves(model) else {"shuffle": False}))
    fitted.set_params(random_state=0)
    wide = vector.astype(np.float64)
    fitted.coef_ = wide[:-rows].reshape(rows, -1).copy()
    fitted.intercept_ = wide[-rows:].copy()
    fitted.classes_ = np.arange(classes)
    fitted.n_features_in_ = fitted.coef_.shape[1]
    return fitted


class SklearnTrainer:
    """One client: its data and a classifier that gives the settings (it is not changed).

    ``inputs`` are (samples, features) and ``targets`` labels from 0 to ``classes`` − 1; a client
    need not have all of them. A round makes ``epochs`` passes, each in an order drawn from the
    stream named by (seed, client, round), so an update does not depend on who trained before.
    """

    def __init__(
        self,
        model: Classifier,
        inputs: ArrayLike,
        targets: ArrayLike,
        *,
        classes: int,
        epochs: int = 1,
        seed: int = 0,
        client: int = 0,
        test: tuple[ArrayLike, ArrayLike] | None = None,
    ) -> None:
        _check_settings(model)
        if _solves(model) and epochs != 1:
            expected = "1: of LogisticRegression, max_iter says how long a round is"
            raise InvalidSetting("epochs", epochs, expected)
        self._test = None if test is None else _checked_data(*test, classes)
        if epochs < 1:
            raise InvalidSetting("epochs", epochs, "at least 1")
        self._inputs, self._targets = _checked_data(inputs, targets, classes)
        self._model, self._classes, self._epochs = model, classes, epochs
        self._seed, self._client = seed, client
        Stream(seed, "batches", client=client)  # refuses bad numbers now, not in the first round

    def update(self, parameters: Vector, round: int) -> LocalUpdate:
        """Train from ``parameters`` and return the update."""
        _check_size(parameters, self._inputs.shape[1], self._classes)
        model = unflatten(parameters, self._model, self._classes)
        if _solves(model):
            return self._solved(model, parameters)
        stream = Stream(self._seed, "batches", round=round, client=self._client)
        for order in stream.permutations(self._epochs, len(self._inputs)):
            model.partial_fit(self._inputs[order], self._targets[order])
        trained = np.concatenate([model.coef_.ravel(), model.intercept_])
        return LocalUpdate(
            vector=((parameters - trained) / self.learning_rate).astype(np.float32),
            samples=len(self._inputs),
            steps=self._epochs * len(self._inputs),
        )

    def _solved(self, model: Classifier, parameters: Vector) -> LocalUpdate:
        """The step of a solver that takes all samples at once."""
        missing = np.setdiff1d(np.arange(self._classes), self._targets)
        absent = np.zeros((len(missing), self._inputs.shape[1]))
        weights = np.repeat([1.0, 0.0], [len(self._inputs), len(missing)])
        with warnings.catch_warnings():
            # A few iterations a round are meant.
            warnings.simplefilter(
                "ignore", library("sklearn.exceptions", *_SKLEARN).ConvergenceWarning
            )
            model.fit(np.concatenate([self._inputs, absent]),
                      np.concatenate([self._targets, missing]), sample_weight=weights)  # fmt: skip
        trained = np.concatenate([model.coef_.ravel(), model.intercept_])
        return LocalUpdate((parameters - trained).astype(np.float32), samples=len(self._inputs))

    @property
    def learning_rate(self) -> float:
        """The step λ that updates are divided by."""
        return 1.0 if _solves(self._model) else float(self._model.eta0)

    @property
    def samples(self) -> int:
        """How many the client has."""
        return len(self._inputs)

    @property
    def layout(self) -> list[tuple[str, tuple[int, ...]]]:
        """``coef_`` and ``intercept_``."""
        rows = _rows(self._classes)
        return [("coef_", (rows, self._inputs.shape[1])), ("intercept_", (rows,))]

    def initial(self) -> Vector:
        """Zeros, where scikit-learn's linear models start."""
        return np.zeros(parameter_count(self._inputs.shape[1], self._classes), np.float32)

    def evaluate(self, parameters: Vector) -> Accuracy:
        """Accuracy on ``test`` or, without it, on the client's own samples."""
        inputs, targets = self._test or (self._inputs, self._targets)
        return evaluate(self._model, parameters, inputs, targets, classes=self._classes)


class Accuracy(TypedDict):
    """How well a classifier does on some data."""

    accuracy: float
    samples: int


def evaluate(
    model: Classifier, parameters: Vector, inputs: ArrayLike, targets: ArrayLike, *, classes: int
) -> Accuracy:
    """Accuracy of ``model`` with these parameters; ``model`` itself is not changed."""
    images, labels = _checked_data(inputs, targets, classes)
    _check_size(parameters, images.shape[1], classes)
    predicted = unflatten(parameters, model, classes).predict(images)
    return {"accuracy": float(np.mean(predicted == labels)), "samples": len(labels)}


def _rows(classes: int) -> int:
    if classes < 2:
        raise InvalidSetting("classes", classes, "at least 2")
    return 1 if classes == 2 else classes


def _solves(model: Classifier) -> bool:
    """Whether a model is fitted by a solver that goes on from where it is, not step by step."""
    return type(model).__name__ == "LogisticRegression"


def _check_settings(model: Classifier) -> None:
    if _solves(model):
        for name, right, expected in (
            ("solver", model.solver != "liblinear", "lbfgs or another that goes on from a model"),
            ("fit_intercept", model.fit_intercept, "True: the intercept is part of the model"),
        ):
            if not right:
                raise InvalidSetting(f"{name} of the classifier", getattr(model, name), expected)
        return
    if not hasattr(model, "partial_fit") or not hasattr(model, "eta0"):
        expected = "an SGDClassifier, Perceptron or LogisticRegression of scikit-learn"
        raise InvalidSetting("model", type(model).__name__, expected)
    constant = "'constant': the update is divided by the one rate eta0"
    for name, right, expected in (
        ("learning_rate", model.learning_rate == "constant", constant),
        ("eta0", 0 < model.eta0 < float("inf"), "a finite number above 0"),
        ("average", not model.average, "False: the server averages the models"),
        ("early_stopping", not model.early_stopping, "False: a round has a fixed number of passes"),
    ):
        if not right:
            raise InvalidSetting(f"{name} of the classifier", getattr(model, name), expected)


def _checked_data(
    inputs: ArrayLike, targets: ArrayLike, classes: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    _rows(classes)
    samples, labels = np.ascontiguousarray(inputs, np.float64), np.asarray(targets)
    if samples.ndim != 2 or 0 in samples.shape:
        raise InvalidSetting(
            "shape of the inputs", samples.shape, "(samples, features), at least one of each"
        )
    if labels.shape != (len(samples),):
        raise InvalidSetting(
            "shape of the targets", labels.shape, f"({len(samples)},), one per input"
        )
    if not np.issubdtype(labels.dtype, np.integer):
        raise InvalidSetting("type of the targets", str(labels.dtype), "integers")
    if labels.min() < 0 or labels.max() >= classes:
        found = f"from {labels.min()} to {labels.max()}"
        raise InvalidSetting("targets", found, f"labels from 0 to {classes - 1}")
    return samples, labels.astype(np.int64)


def _check_size(parameters: Vector, features: int, classes: int) -> None:
    expected = parameter_count(features, classes)
    if parameters.shape != (expected,):
        raise InvalidSetting(
            "shape of the parameter vector",
            parameters.shape,
            f"({expected},), for {features} features and {classes} classes",
        )
