"""What a federation will not do, said before any client trains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from eris.core.errors import InvalidSetting
from eris.federation import Federation
from eris.methods.dpsgd import DPSGD
from eris.methods.eris import ERIS
from eris.methods.fedavg import FedAvg
from eris.methods.priprune import PriPrune
from eris.methods.soteria import SoteriaFL
from eris.runtimes.faults import PER_MESSAGE, FaultPlan
from eris.testing import initial_model
from support.crowd import Crowd

N, CLIENTS = 20, 8
START = initial_model(N)
PAPER = ERIS(kept_fraction=0.5, masks="independent")
WEIGHTS = [1] * CLIENTS
SPARK: Any = "spark"


def make(method: Any = None, **settings: Any) -> Federation:
    return Federation(Crowd(CLIENTS, N), START, method, **settings)


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: make(PAPER, sampled=4, samples=WEIGHTS), "sampled is 4; expected nothing"),
        (lambda: make(SoteriaFL(), sampled=4, samples=WEIGHTS), "a lasting membership"),
        (lambda: make(PriPrune(adaptive=True), sampled=4), "a lasting membership"),
        (lambda: make(sampled=9), "sampled is 9; expected 1 to 8, the clients"),
        (lambda: make(sampled=0), "sampled is 0; expected 1 to 8"),
        (lambda: make(sampled=2), "min_included is 3; expected at most 2"),
        (lambda: make(FedAvg(), sampled=-1), "sampled is -1"),
        (lambda: make(DPSGD(degree=4), sampled=4), "in gossip everyone has a model of its own"),
        (lambda: make(DPSGD(degree=4), rule="fedadam"), "rule is 'fedadam'; expected fedavg"),
        (lambda: make(DPSGD(degree=4), min_included=2), "d-psgd does not aggregate"),
        (lambda: make(DPSGD(degree=4), segment_size=2), "no such setting"),
        (lambda: make(shift=False), "shift is False; expected a setting of the method"),
    ],
)
def test_federations_that_cannot_be(build: Callable[[], Federation], says: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        build()
    assert says in str(refused.value)


class Untrained:
    """What is no trainer, though it has a method of something that could be made one."""

    def __init__(self, method: str) -> None:
        setattr(self, method, print)


@pytest.mark.parametrize(
    ("method", "says"),
    [
        ("state_dict", "TorchTrainer(module, inputs, targets, learning_rate=…) makes one of it"),
        ("get_parameters", "FlowerTrainer(client) makes one of it"),
        ("predict", "SklearnTrainer(model, inputs, targets, classes=…) makes one of it"),
        (
            "train",
            "trainer of ben is 'Untrained'; expected an object with update(parameters, round",
        ),
    ],
)
def test_what_is_no_trainer_is_told_what_makes_one(method: str, says: str) -> None:
    trainers: Any = [Crowd(1, N), Untrained(method), Untrained(method)]
    trainers[0].update = print
    with pytest.raises(InvalidSetting) as refused:
        Federation(trainers, START, names=["anna", "ben", "cleo"])
    assert says in str(refused.value)


def test_a_method_may_be_named_and_a_model_must_fit() -> None:
    assert make("fedavg").method == FedAvg()
    assert make().method == ERIS()
    with pytest.raises(InvalidSetting, match="method is 'fedprox'; expected one of fedavg"):
        make("fedprox")
    with pytest.raises(InvalidSetting, match="method is 'int'; expected a method, such as eris"):
        make(3)
    crowd: Any = Crowd(CLIENTS, N)
    crowd.layout = [("weight", (N - 1,))]
    with pytest.raises(InvalidSetting, match="model is 'a vector of 20 values'; expected 19"):
        Federation(crowd, START)


def gossip(**how: Any) -> object:
    return make(DPSGD(degree=4)).start(2, **how)


@pytest.mark.parametrize(
    ("start", "says"),
    [
        (lambda: make().start(0), "rounds is 0; expected at least 1"),
        (lambda: make().start(1, engine=SPARK), "engine is 'spark'; expected 'local' or 'ray'"),
        (lambda: make().start(1, stations=0), "stations is 0; expected at least 1"),
        (lambda: make().start(1, stations=-2), "stations is -2"),
        (lambda: gossip(faults=FaultPlan(straggle=0.1)), "straggle is 0.1; expected 0"),
        (lambda: gossip(faults=FaultPlan(dropout=0.1)), "dropout is 0.1; expected 0"),
        (lambda: make().fit(1, evaluate_every=0), "evaluate_every is 0"),
    ],
)
def test_trainings_that_cannot_be(start: Callable[[], object], says: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        start()
    assert says in str(refused.value)


@pytest.mark.parametrize("kind", PER_MESSAGE)
def test_faults_in_mid_round_need_the_virtual_clock(kind: str) -> None:
    faults = FaultPlan(**{kind: 0.5})  # type: ignore[arg-type]
    with pytest.raises(InvalidSetting, match="the local engine and no sampling"):
        make().start(1, engine="ray", faults=faults)
    with pytest.raises(InvalidSetting, match="the local engine and no sampling"):
        make(sampled=4).start(1, faults=faults)
    with pytest.raises(InvalidSetting, match="a round of gossip goes wrong as a whole"):
        gossip(faults=faults)
    make().start(1, faults=faults).close()


def test_faults_once_a_round_are_welcome_everywhere() -> None:
    for kind in ("link", "churn"):
        gossip(faults=FaultPlan(**{kind: 0.5}))  # type: ignore[arg-type]
    for kind in ("link", "churn", "straggle", "dropout"):
        make(sampled=4).start(1, faults=FaultPlan(**{kind: 0.5}))  # type: ignore[arg-type]
