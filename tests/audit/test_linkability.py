"""Shatter's measures: pieces of nodes that learn by heart are laid to them, others are not."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch.nn import functional

from eris.audit.linkability import (
    TEST,
    Distribution,
    Linking,
    PooledSamples,
    Trial,
    linkability,
    loss_mia,
    true_owners,
)
from eris.core.errors import InvalidSetting
from eris.methods.epidemic import EpidemicLearning
from eris.methods.method import GossipMethod
from eris.methods.shatter import Shatter
from eris.protocol.gossip.virtual import VirtualNodes
from support.levels import hoeffding
from support.neighbours import NODES, Run, learnt_by_heart, noise

EL, SHATTER = EpidemicLearning(degree=3), Shatter(4, 3, owner_secret=8)
STRANGERS = 40
TRIAL = Trial(1, observer=0, sender=3, owner=3, coordinates=10, auc=0.5, guess=3, options=5)


@cache
def learnt(method: GossipMethod) -> Run:
    return learnt_by_heart(method, rounds=4, steps=10)


def holdings(run: Run) -> PooledSamples:
    data, trained = run.candidates, run.candidates.included
    parts = {}
    for node in range(NODES):
        places = torch.from_numpy(np.flatnonzero(trained & (data.client == node)))
        parts[node] = (data.inputs[places], data.targets[places])
    return PooledSamples.of(run.module, functional.cross_entropy, parts, noise(80, "unseen"))


def tried(
    run: Run, member: int = 1, most: int = 16, held: PooledSamples | None = None
) -> list[Trial]:
    owners, watch = true_owners(run.settings, run.transcript.records), run.watch(member)
    attack = Linking(held or holdings(run), owners, most, seed=2)
    for round, records in run.rounds():
        attack.see(watch.follow(round, records))
    return attack.trials


def test_whole_models_of_overfitting_nodes_are_laid_to_them() -> None:
    trials = tried(learnt(EL))
    found, leak = linkability(trials), loss_mia(trials)
    assert len(trials) == found.pieces == 4 * 3
    assert found.chance == pytest.approx(1 / 5)
    assert found.share == 1
    assert found.low > 0.7 > found.shuffled
    assert leak.pieces.lowest > 0.95
    assert set(found.by_round) == set(leak.by_round) == {1, 2, 3, 4}
    assert set(found.by_node) == {trial.owner for trial in trials} <= {0, 2, 3, 4, 5}


def test_chunks_say_less_than_whole_models() -> None:
    whole, chunks = tried(learnt(EL)), tried(learnt(SHATTER))
    assert linkability(chunks).share < linkability(whole).share - 0.2
    assert loss_mia(chunks).pieces.mean < loss_mia(whole).pieces.mean - 0.05
    assert {trial.coordinates for trial in chunks} <= {45, 46}


def test_pieces_laid_at_random_are_found_by_chance_only() -> None:
    """The same pieces, with nodes' training sets that nobody trained on, drawn again and again:
    what is found with one draw hangs together, draws do not."""
    run = learnt(EL)
    shares, areas = [], []
    for draw in range(STRANGERS):
        inputs, targets = noise(20 * NODES, f"strangers {draw}")
        parts = {node: (inputs[20 * node : 20 * node + 20], targets[20 * node : 20 * node + 20])
                 for node in range(NODES)}  # fmt: skip
        held = PooledSamples.of(
            run.module, functional.cross_entropy, parts, noise(80, f"new {draw}")
        )
        trials = tried(run, held=held)
        found = linkability(trials)
        shares.append(found.share)
        areas.append(loss_mia(trials).nodes.mean)
    assert abs(np.mean(shares) - found.chance) < hoeffding(STRANGERS)
    assert abs(np.mean(areas) - 0.5) < hoeffding(STRANGERS)
    trials = tried(run)
    assert linkability(trials).share - found.chance > hoeffding(STRANGERS)
    assert loss_mia(trials).nodes.mean - 0.5 > hoeffding(STRANGERS)


def test_a_trial_is_what_plain_loops_find() -> None:
    run = learnt(SHATTER)
    held, watch = holdings(run), run.watch(1)
    owners = true_owners(run.settings, run.transcript.records)
    records = dict(run.rounds())[1]
    sight = watch.follow(1, records)
    attack = Linking(held, owners, most=1000)
    attack.see(sight)
    trials = attack.trials
    assert [trial.sender for trial in trials] == [piece.sender for piece in sight.pieces]
    for trial, piece in zip(trials, sight.pieces, strict=True):
        losses = held.samples.losses(sight.completed([piece]))
        means = {n: np.mean([loss for loss, holder in zip(losses, held.holder, strict=True)
                             if holder == n]) for n in range(NODES) if n != 1}  # fmt: skip
        assert trial.guess == min(means, key=lambda node: means[node])
        assert trial.owner == owners[piece.sender] != 1
        assert trial.options == 5
        asked = np.isin(held.holder, [trial.owner, TEST])
        expected = roc_auc_score(held.holder[asked] == trial.owner, -losses[asked])
        assert trial.auc == pytest.approx(expected, abs=1e-12)


def test_so_many_pieces_are_drawn_by_lot() -> None:
    run = learnt(SHATTER)
    few, again, all_of_them = tried(run, most=2), tried(run, most=2), tried(run, most=1000)
    assert len(few) == 4 * 2 < len(all_of_them)
    assert few == again
    assert set(few) < set(all_of_them)
    first = [[t for t in all_of_them if t.round == round][:2] for round in range(1, 5)]
    assert few != [trial for some in first for trial in some]


def test_the_owners_are_those_of_the_run() -> None:
    run = learnt(SHATTER)
    ownership = VirtualNodes(NODES, 4, secret=8)
    expected = {node: node for node in range(NODES)}
    expected |= {virtual: ownership.owner(virtual) for virtual in range(NODES, 5 * NODES)}
    assert true_owners(run.settings, run.transcript.records) == expected
    plain = learnt(EL)
    assert true_owners(plain.settings, []) == {node: node for node in range(NODES)}


def test_shares_and_areas_by_node_and_round() -> None:
    trials = [
        TRIAL,
        replace(TRIAL, guess=2, auc=0.7, round=2),
        replace(TRIAL, owner=4, guess=4, auc=0.9),
        replace(TRIAL, owner=4, guess=4, auc=1.0, round=2),
    ]
    found, leak = linkability(trials, confidence=0.9), loss_mia(trials)
    assert (found.right, found.pieces, found.share) == (3, 4, 0.75)
    assert found.by_node == {3: 0.5, 4: 1.0}
    assert found.by_round == {1: 1.0, 2: 0.5}
    assert found.nodes == Distribution(2, 0.75, 0.5, 0.625, 0.75, 0.875, 1.0)
    # Guesses 3, 2, 4, 4 dealt at random to owners 3, 3, 4, 4: (1 + 1 + 2 + 2)/16.
    assert found.shuffled == pytest.approx(6 / 16)
    assert found.low == pytest.approx(0.2486, abs=1e-4)
    assert found.high == pytest.approx(0.9873, abs=1e-4)
    assert leak.by_node == pytest.approx({3: 0.6, 4: 0.95})
    assert leak.pieces.mean == pytest.approx(0.775)
    assert leak.nodes.count == 2


def test_bad_input_is_named() -> None:
    run = learnt(EL)
    held, sight = holdings(run), run.watch(1).follow(1, dict(run.rounds())[1])
    owners = true_owners(run.settings, [])
    for measure in (linkability, loss_mia):
        with pytest.raises(InvalidSetting, match="pieces is 'none'"):
            measure([])
    with pytest.raises(InvalidSetting, match="most is 0"):
        Linking(held, owners, most=0)
    with pytest.raises(InvalidSetting, match="one for each of"):
        PooledSamples(held.samples, held.holder[1:])
    with pytest.raises(InvalidSetting, match="test samples is 'none'"):
        PooledSamples(held.samples, np.zeros_like(held.holder))
    alone = np.where(held.holder == TEST, TEST, 1)
    with pytest.raises(InvalidSetting, match="nodes other than the observer"):
        Linking(PooledSamples(held.samples, alone), owners).see(sight)
