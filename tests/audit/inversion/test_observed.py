"""What observers have of updates: a server, an aggregator, a member, neighbours in gossip."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from eris.audit.inversion.observed import ObservedUpdate, contributions, mean, neighbours
from eris.audit.linkability import true_owners
from eris.audit.neighbour import Neighbourhood, NeighbourSight
from eris.audit.watch import Sight, Watch
from eris.core.vectors import Vector
from eris.experiments.audits.auditing import Subject, subject_of
from eris.experiments.audits.observers import named
from eris.experiments.runs.assembly import assemble
from eris.protocol.gossip.peer import GossipSettings
from eris.protocol.transcript import Record
from support.audits import digits

CLIENTS = 6
FEW = {"data.clients": CLIENTS, "data.samples": 2, "data.canaries": 0.67, "training.rounds": 1}


def recorded(method: str, **settings: Any) -> tuple[Subject, dict[int, list[Record]]]:
    """A run of clients with one sample or two, and its messages by round."""
    rounds = settings.pop("rounds", 1)
    changes = {f"method.{name}": value for name, value in settings.items()}
    recipe = digits(
        "fedavg", **{**FEW, "training.rounds": rounds, "method.name": method, **changes}
    )
    assembly = assemble(recipe)
    with assembly.training(record=True) as training:
        records = dict(training.rounds_seen(rounds))
        assert training.transcript is not None
        return subject_of(assembly, training.transcript), records


def gradient(subject: Subject, clients: tuple[int, ...]) -> Vector:
    """What these clients would have sent, had they been one."""
    assert subject.trained is not None
    truths = [subject.trained(client) for client in clients]
    inputs, labels = (torch.cat([truth[part] for truth in truths]) for part in (0, 1))
    loss = subject.loss(subject.module(inputs), labels)
    pieces = torch.autograd.grad(loss, list(subject.module.parameters()))
    return torch.cat([piece.flatten() for piece in pieces]).numpy()


def sight_of(subject: Subject, records: dict[int, list[Record]], name: str) -> Sight:
    watch = Watch(subject.frame, subject.initial, named(name, subject.frame))
    (sight,) = watch.follow(1, records[1])
    return sight


def neighbour_sight(
    subject: Subject, records: dict[int, list[Record]], round: int = 1
) -> NeighbourSight:
    settings = GossipSettings.from_canonical(subject.frame.settings)
    watch = Neighbourhood.of(settings, subject.initial, [subject.frame.neighbour(0)])
    for number in range(1, round + 1):
        (sight,) = watch.follow(number, records[number])
    return sight


def check_gradients(subject: Subject, targets: list[ObservedUpdate]) -> None:
    assert targets
    for target in targets:
        found = np.where(target.seen, gradient(subject, target.clients), 0)
        assert np.allclose(target.values, found, atol=1e-5)


def test_an_aggregator_has_its_share_of_others_gradients() -> None:
    subject, records = recorded("eris", aggregators=2)
    sight = sight_of(subject, records, "aggregator:0")
    targets = list(contributions(sight, 0, frozenset({0}), range(CLIENTS), sparse=False))
    assert [target.clients[0] for target in targets] == [1, 2, 3, 4, 5]
    assert {int(target.seen.sum()) for target in targets} == {sight.model.size // 2}
    check_gradients(subject, targets)
    assert mean(sight, 0) is not None  # which it need not look at


def test_where_zeros_stand_for_what_was_withheld_they_are_not_seen() -> None:
    subject, records = recorded("priprune", rate=0.5)
    sight = sight_of(subject, records, "server")
    targets = list(contributions(sight, 0, frozenset(), range(CLIENTS), sparse=True))
    for target in targets:
        largest = np.argsort(-np.abs(gradient(subject, target.clients)))[: sight.model.size // 2]
        assert not target.seen[largest[:100]].any()
        assert 0 < target.seen.mean() <= 0.5
    check_gradients(subject, targets)


def test_a_member_has_the_gradient_of_everybodys_samples() -> None:
    subject, records = recorded("fedavg")
    sight = sight_of(subject, records, "member")
    assert not list(contributions(sight, 0, frozenset(), range(CLIENTS), sparse=False))
    found = mean(sight, 0)
    assert found is not None
    assert found.clients == tuple(range(CLIENTS))
    assert found.seen.all()
    assert np.allclose(found.values, gradient(subject, found.clients), atol=1e-5)


def test_in_a_rotated_basis_updates_and_means_are_turned_gradients() -> None:
    subject, records = recorded("eris", aggregators=1, kept_fraction=0.5, basis="rotated")
    sight = sight_of(subject, records, "aggregator:0")
    targets = list(contributions(sight, 0, frozenset({0}), range(CLIENTS), sparse=False))
    published = mean(sight_of(subject, records, "member:5"), 0)
    assert published is not None
    for target in (*targets, published):
        assert target.basis is not None
        whole = target.basis.enter(gradient(subject, target.clients))
        assert np.allclose(target.values, np.where(target.seen, whole, 0), atol=1e-5)
    assert len(targets) == CLIENTS - 1


def test_means_of_masks_that_differ_are_no_update() -> None:
    subject, records = recorded("eris", aggregators=1, masks="independent", kept_fraction=0.5)
    assert mean(sight_of(subject, records, "member:5"), 0) is None


@pytest.mark.parametrize("method", ["el", "shatter", "ako"])
def test_a_neighbour_has_what_others_computed_on_what_it_was_sent(method: str) -> None:
    settings = {
        "el": {"degree": 5},
        "shatter": {"virtual_nodes": 2, "degree": 9},
        "ako": {"partitions": 2},
    }[method]
    subject, records = recorded(method, **settings)
    sight = neighbour_sight(subject, records)
    owners = true_owners(GossipSettings.from_canonical(subject.frame.settings), records[1])
    told = dict.fromkeys(range(CLIENTS), (1, 1))
    targets = list(neighbours(sight, 0, owners, told, sparse=False))
    names = [target.clients[0] for target in targets]
    assert len(set(names)) == len(names)
    assert set(names) <= {1, 2, 3, 4, 5}
    assert len(names) >= 3
    share = 1.0 if method == "el" else 0.5
    assert all(target.seen.mean() == pytest.approx(share, abs=0.01) for target in targets)
    check_gradients(subject, targets)


def test_after_round_one_nobody_knows_what_a_neighbour_started_from() -> None:
    subject, records = recorded("el", degree=5, rounds=2)
    told = dict.fromkeys(range(CLIENTS), (1, 1))
    sight = neighbour_sight(subject, records, round=2)
    assert sight.fresh
    assert not list(neighbours(sight, 0, {}, told, sparse=False))
