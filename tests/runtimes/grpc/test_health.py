"""When training is a problem, when it is enough, and what is said at the end."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from eris.core.vectors import Vector
from eris.runtimes.grpc.health import Health, TrainingFails
from eris.runtimes.grpc.learner import evaluated
from eris.training.trainer import LocalUpdate


def test_failures_in_a_row_are_shown_and_end_with_the_stated_number() -> None:
    health = Health(most_failures=3)
    for round in (1, 2):
        health.failed(round, "no data")
    assert health.problem(0.0) == (
        "training failed 2 times in a row, the last time in round 2: no data"
    )
    health.gave()
    assert health.problem(0.0) == ""
    for round in (4, 5):
        health.failed(round, "no data")
    assert health.failures == 4
    with pytest.raises(TrainingFails, match="3 times in a row, the last time in round 6: no data"):
        health.failed(6, "no data")


def test_a_long_training_is_told_less_and_less_often_up_to_its_limit() -> None:
    health = Health(slow_after=10.0, time_limit=100.0)
    health.began(1000.0)
    now = 1000.0
    looks: list[float] = []
    while not looks or looks[-1] < 100.0:
        now += health.wait(7, now)
        looks.append(now - 1000.0)
        assert health.problem(now) == f"training for {now - 1000:.0f} s"
    with pytest.raises(TrainingFails, match=r"training\.time_limit \(100 s\) in round 7"):
        health.wait(7, now)
    assert looks == [10.0, 20.0, 40.0, 80.0, 100.0]
    health.gave()
    assert health.problem(5000.0) == ""


def test_the_verdict_on_a_training_as_a_whole() -> None:
    health = Health()
    assert health.verdict() == ""  # a member without data
    health.failed(1, "no data")
    assert health.verdict().startswith("none of 1 trainings gave an update, the last failed in")
    health.gave()
    assert health.verdict() == ""
    health.refusal = "value nan"
    assert health.verdict() == "none of 1 updates was taken: value nan"
    health.included = True
    assert health.verdict() == ""


class Learner:
    def __init__(self, evaluate: object) -> None:
        if evaluate is not None:
            self.evaluate = evaluate

    def initial(self) -> Vector:
        return np.zeros(2, np.float32)

    def update(self, parameters: Vector, round: int) -> LocalUpdate:
        raise AssertionError


def leaves(parameters: Vector) -> Mapping[str, float]:
    raise SystemExit(1)


@pytest.mark.parametrize(
    ("evaluate", "metrics", "problem"),
    [
        (None, {}, ""),
        (lambda model: {"loss": 0.5}, {"loss": 0.5}, ""),
        (lambda model: {"loss": float("inf")}, {"loss": float("inf")}, "evaluate() gives loss inf"),
        (lambda model: None, {}, "evaluate() failed: TypeError: it returned NoneType"),
        (lambda model: {"loss": "low"}, {}, "evaluate() failed: ValueError"),
        (leaves, {}, "evaluate() failed: SystemExit: 1"),
    ],
)
def test_an_evaluation_that_says_nothing_is_a_problem(
    evaluate: object, metrics: dict[str, float], problem: str
) -> None:
    found, said = evaluated(Learner(evaluate), np.zeros(2, np.float32))
    assert found == metrics
    assert said.startswith(problem)
    assert bool(said) == bool(problem)


def test_a_model_that_is_not_finite_is_the_first_problem() -> None:
    model = np.array([0.0, np.nan], np.float32)
    assert evaluated(Learner(lambda model: {"loss": float("nan")}), model)[1] == (
        "1 of 2 values of the model are not finite"
    )
