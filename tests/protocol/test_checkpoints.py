"""States of replicas and clients: what continues, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eris.core.compress import RandP
from eris.core.errors import InvalidSetting
from eris.core.prune import Prune
from eris.core.rules import FedAdam
from eris.protocol.round.client import Client
from eris.protocol.round.replica import Replica
from eris.protocol.round.roles import Node
from eris.protocol.schemes import Independent, Masked, Pruned
from eris.testing import assert_same_bits, initial_model
from support.machines import TRAINING, N, federation, play, result_at

MODES: dict[str, dict[str, Any]] = {
    "plain": {},
    "adam": {"rule": FedAdam(bias_correction=True)},
    "dsc": {"scheme": Masked(RandP(0.5))},
    "paper mode": {"scheme": Independent(RandP(0.5))},
    "pseudo-pruning": {"scheme": Pruned(Prune(energy=0.5, pseudo=True))},
}


def restored(nodes: list[Node]) -> list[Node]:
    """Machines made anew from the states of others."""
    fresh = [Node(node.agreement, node.me, initial_model(N, 1)) for node in nodes]
    for new, old in zip(fresh, nodes, strict=True):
        new.replica.restore({key: value.copy() for key, value in old.replica.state().items()})
        new.client.sender.restore(
            {key: value.copy() for key, value in old.client.sender.state().items()}
        )
    return fresh


@pytest.mark.parametrize("mode", MODES)
def test_machines_go_on_from_their_states(mode: str) -> None:
    nodes = federation(**MODES[mode])
    for round in (1, 2, 3):
        play(nodes, round)
    again = restored(nodes)
    for new, old in zip(again, nodes, strict=True):
        assert new.replica.versions == old.replica.versions
        assert new.replica.updates == old.replica.updates
        model = old.client.sender.training_model(old.model)
        assert_same_bits(new.client.sender.training_model(new.model), model)
        for key in old.replica.versions:
            assert new.replica.digest(key) == old.replica.digest(key)
    for round in (4, 5):
        play(nodes, round)
        play(again, round)
    for new, old in zip(again, nodes, strict=True):
        assert_same_bits(new.model, old.model)
        assert new.client.sender.state().keys() == old.client.sender.state().keys()
        for name, value in old.client.sender.state().items():
            assert np.array_equal(new.client.sender.state()[name], value, equal_nan=True)


def test_a_restored_machine_does_not_share_what_it_was_given() -> None:
    nodes = federation(**MODES["paper mode"])
    play(nodes, 1)
    replica, client = nodes[0].replica.state(), nodes[0].client.sender.state()
    kept = {key: value.copy() for key, value in {**replica, **client}.items()}
    fresh = Node(nodes[0].agreement, 0, initial_model(N, 1))
    fresh.replica.restore(kept)
    fresh.client.sender.restore({"reference": kept["reference"]})
    for value in kept.values():
        value[:] = 0
    assert_same_bits(fresh.model, nodes[0].model)


@pytest.mark.parametrize("name", ["model", "reference", "versions"])
@pytest.mark.parametrize("damage", ["missing", "shorter", "longer"])
def test_a_state_that_does_not_fit_changes_nothing(name: str, damage: str) -> None:
    nodes = federation(**MODES["dsc"])
    play(nodes, 1)
    state = nodes[0].replica.state()
    value = state.pop(name)
    if damage != "missing":
        state[name] = value[:-1] if damage == "shorter" else np.concatenate([value, value[:1]])
    fresh = Replica(nodes[0].agreement, initial_model(N, 1))
    with pytest.raises(InvalidSetting, match=f"no fitting '{name}'"):
        fresh.restore(state)
    assert_same_bits(fresh.model, initial_model(N, 1))
    assert set(fresh.versions.values()) == {0}


@pytest.mark.parametrize(
    "state", [{}, {"reference": np.zeros(N - 1, np.float32)}], ids=["no", "short"]
)
def test_the_papers_mode_needs_a_clients_own_reference(state: dict[str, Any]) -> None:
    client = federation(**MODES["paper mode"])[2].client
    with pytest.raises(InvalidSetting, match="reference of member 2"):
        client.sender.restore(state)


def test_results_are_forgotten_up_to_a_round_and_remembered_without_being_applied() -> None:
    nodes = federation()
    for round in (1, 2, 3):
        play(nodes, round)
    replica, key = nodes[0].replica, (0, 0)
    second, third = result_at(nodes[0], 2), result_at(nodes[0], 3)
    before = replica.digest(key)
    replica.forget(key, before=2)
    assert replica.results_after(key, 2) == [third]
    assert replica.results_after(key, 1) is None
    replica.remember(second)
    assert replica.results_after(key, 1) == [second, third]
    assert replica.digest(key) == before
    assert replica.versions[key] == 3
    # The other segments' results are still there.
    assert len(replica.results_after((1, 0), 0) or []) == 3


def test_unshifted_masks_leave_coordinates_that_nobody_kept_where_they_are() -> None:
    nodes = federation(scheme=Masked(RandP(0.5), shift=False))
    assert nodes[0].replica.reference is None
    play(nodes, 1)
    kept = np.zeros(N, bool)
    agreement = nodes[0].agreement
    for key, segment in agreement.segments(1).items():
        mask = np.zeros(segment.size, np.float32)
        mask[np.isin(segment.coordinates, agreement.coding.coordinates(1, key, 0))] = 1
        whole = np.zeros(N, np.float32)
        segment.scatter(whole, mask)
        kept |= whole == 1
    moved = nodes[0].model != initial_model(N, 1)
    assert moved.tolist() == kept.tolist()
    # Where it moved: by the mean, made unbiased by 1/p.
    updates = [TRAINING.given[client, 1] for client in range(4)]
    weights = np.array([TRAINING.samples(client) for client in range(4)], float)
    step = 0.5 * 2 * np.average(updates, axis=0, weights=weights)
    assert np.allclose(nodes[0].model[kept], (initial_model(N, 1) - step)[kept], atol=1e-5)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"shift": False}, "shift is False; expected True"),
        ({"estimate": "best"}, "estimate is 'best'; expected one of renormalised, unbiased"),
    ],
)
def test_independent_masks_that_cannot_be(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        Independent(RandP(0.5), **wrong)
    assert says in str(refused.value)


def test_a_client_that_keeps_nothing_trains_from_the_federations_model() -> None:
    nodes = federation()
    client = Client(nodes[0].agreement, 0, nodes[0].replica)
    model = initial_model(N, 5)
    assert client.sender.training_model(model) is model
    assert client.sender.state() == {}
