"""Parameters that stay with their client."""

from __future__ import annotations

import numpy as np
import pytest
from torch import nn

import eris
from eris.core.errors import InvalidSetting
from eris.core.vectors import Vector
from eris.training.personal import PersonalTrainer
from eris.training.torch import TorchTrainer, flatten, with_statistics
from training.small import RATE, network, some_data

HEAD = 9 * 3
"""Weights and biases of the last layer, which is the end of the flat model."""


def clients(count: int = 3) -> list[PersonalTrainer]:
    found = []
    for k in range(count):
        inputs, targets = some_data(seed=k + 1)
        plain = TorchTrainer(network(), inputs, targets, client=k, learning_rate=RATE, steps=2)
        found.append(PersonalTrainer(plain, "3.*"))
    return found


def test_the_rest_is_averaged_and_heads_follow_their_own_steps() -> None:
    """Against the same by hand: whole models, whose heads are put back after the mean."""
    mine = clients()
    federation = eris.Federation(mine)
    assert federation.initial.tobytes() == flatten(network())[:-HEAD].tobytes()
    session = federation.start(3)
    plain = [
        TorchTrainer(network(), *some_data(seed=k + 1), client=k, learning_rate=RATE, steps=2)
        for k in range(3)
    ]
    shared, heads = flatten(network())[:-HEAD], [flatten(network())[-HEAD:]] * 3
    for round in (1, 2, 3):
        session.step()
        trained: list[Vector] = []
        for k, client in enumerate(plain):
            whole = np.concatenate([shared, heads[k]])
            trained.append(whole - np.float32(RATE) * client.update(whole, round).vector)
        shared = np.mean([one[:-HEAD] for one in trained], axis=0, dtype=np.float32)
        heads = [one[-HEAD:] for one in trained]
    assert session.model == pytest.approx(shared, abs=1e-5)
    for own, head in zip(mine, heads, strict=True):
        assert own.whole(session.model)[-HEAD:] == pytest.approx(head, abs=1e-5)
    session.close()
    assert not np.allclose(heads[0], heads[1])


def test_nobody_is_sent_a_head_and_a_state_brings_it_back() -> None:
    mine = clients()
    fit = eris.Federation(mine).fit(2, progress=False, record=True)
    assert len(fit.model) == len(flatten(network())) - HEAD
    assert fit.layout == [("0.weight", (8, 6)), ("0.bias", (8,))]
    state = fit.state_dict(network())
    assert (state["3.weight"] == network().state_dict()["3.weight"]).all()  # the module's own
    client = clients(1)[0]
    first = client.update(client.initial(), 1)
    kept = client.state()
    onward = client.update(client.initial(), 2)
    again = clients(1)[0]
    again.restore(kept)
    assert again.update(client.initial(), 2).vector.tobytes() == onward.vector.tobytes()
    again.restore({})
    assert again.update(client.initial(), 1).vector.tobytes() == first.vector.tobytes()


def test_after_a_training_every_head_is_there_to_be_used() -> None:
    """What clients said of their own models in the last round, they say again with what was kept;
    without it they are as they were before, and so a second training repeats the first."""
    mine = clients()
    federation = eris.Federation(mine, network())  # of the module what travels is taken, by name
    fit = federation.fit(3, evaluate="clients", progress=False)
    assert federation.fit(3, progress=False).model.tobytes() == fit.model.tobytes()
    for k, client in enumerate(mine):
        last = fit.history[-1].evaluated[k]
        assert client.evaluate(fit.model)["loss"] > last["loss"]
        client.restore(fit.kept[k])
        assert dict(client.evaluate(fit.model)) == last
        module = network()
        module.load_state_dict(client.state_dict(fit.model))
        assert flatten(module).tobytes() == client.whole(fit.model).tobytes()
    assert not np.allclose(fit.kept[0]["local"], fit.kept[1]["local"])


def test_heads_that_train_in_other_processes_come_back() -> None:
    here, there = (
        eris.Federation(clients()).fit(2, evaluate="clients", progress=False, engine=engine)
        for engine in ("local", "ray")
    )
    assert there.metrics == here.metrics
    for k in range(3):
        assert there.kept[k]["local"].tobytes() == here.kept[k]["local"].tobytes()


def test_norms_with_their_statistics_may_stay() -> None:
    """FedBN: scale, shift and running statistics of batch norm are each client's own."""
    normed = with_statistics(
        nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3)), "averaged"
    )
    client = PersonalTrainer(TorchTrainer(normed, *some_data(), learning_rate=RATE), "1.*")
    assert [name for name, _ in client.layout] == ["0.weight", "0.bias", "3.weight", "3.bias"]
    before = client.whole(client.initial())
    client.update(client.initial(), 1)
    moved = client.whole(client.initial()) != before
    assert moved.sum() >= 24  # of 8 scales, 8 shifts, 8 means and 8 variances


@pytest.mark.parametrize("names", [("4.*",), ("*",), ()])
def test_names_that_leave_nothing_to_share_or_to_keep_are_refused(names: tuple[str, ...]) -> None:
    plain = TorchTrainer(network(), *some_data(), learning_rate=RATE)
    with pytest.raises(InvalidSetting, match="local parameters is"):
        PersonalTrainer(plain, *names)
