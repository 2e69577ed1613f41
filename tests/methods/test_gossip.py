"""Laws of gossip: what mixing keeps, what stays fixed, what converges and what everything costs.
The methods run on encoded and decoded messages."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from eris.core.compress import UniformQuantiser
from eris.core.errors import InvalidSetting
from eris.core.graphs import (
    Graph,
    connected_random_graph,
    connected_regular_graph,
    regular_graph,
)
from eris.core.vectors import Vector
from eris.methods.ako import Ako
from eris.methods.assembling import simulated_secret
from eris.methods.dpsgd import DPSGD
from eris.methods.epidemic import EpidemicLearning
from eris.methods.method import GossipMethod
from eris.methods.muffliato import Muffliato
from eris.methods.qdpsgd import QDPSGD1
from eris.methods.shatter import Shatter
from eris.protocol.gossip.peer import GossipSettings
from eris.testing.synthetic import assert_same_bits
from support.gossip import (
    EXACT,
    METHODS,
    compose,
    gossip,
    metropolis_matrix,
    names,
    updates,
    vector,
)

N, NODES = 40, 6
SECRET = 0x1234_5678_9ABC_DEF0


def mixed(weights: NDArray[np.float64], models: list[Vector]) -> list[Vector]:
    """The oracle: one matrix product."""
    product = weights @ np.stack(models).astype(np.float64)
    return list(product.astype(np.float32))


# What one round does, beside a matrix product.


def test_d_psgd_is_a_product_with_the_mixing_matrix() -> None:
    run = gossip(DPSGD(degree=3))
    weights = metropolis_matrix(connected_regular_graph(NODES, 3, seed=1))
    expected = run.models
    for round in (1, 2, 3):
        given = updates(NODES, N, round)
        stepped = [expected[node] - np.float32(0.5) * given[node] for node in range(NODES)]
        expected = mixed(weights, stepped)
        run.run(given)
        for found, wanted in zip(run.models, expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)


def test_el_is_the_mean_over_fresh_neighbours() -> None:
    run = gossip(EpidemicLearning(degree=3))
    graphs = set()
    for round in (1, 2, 3):
        before = run.models
        run.run()
        graph = regular_graph(NODES, 3, seed=1, round=round)
        graphs.add(graph.neighbours)
        for node, others in enumerate(graph.neighbours):
            wanted = np.mean([before[node], *(before[j] for j in others)], axis=0, dtype=float)
            np.testing.assert_allclose(run.models[node], wanted, rtol=0, atol=1e-6)
    assert len(graphs) > 1


def test_muffliato_is_noise_and_a_fresh_mixing_matrix_in_each_gossip_step() -> None:
    run = gossip(Muffliato(sigma=0.5, steps=4, degree=3, noise_secret=77))
    before, given = run.models, updates(NODES, N, 1)
    run.run(given)
    noisy = [np.empty(0, np.float32)] * NODES
    for sent in run.sent:
        if sent.phase == 0:
            noisy[sent.sender] = np.frombuffer(sent.encoded.data, "<f4")
    noise = np.stack([noisy[i] - before[i] + np.float32(0.5) * given[i] for i in range(NODES)])
    assert 0.4 < noise.std() < 0.6
    assert abs(np.corrcoef(noise[0], noise[1])[0, 1]) < 0.5
    graphs = [regular_graph(NODES, 3, seed=1, round=1, step=step) for step in range(4)]
    expected = noisy
    for graph in graphs:
        expected = mixed(metropolis_matrix(graph), expected)
    for found, wanted in zip(run.models, expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-6)
    for step, graph in enumerate(graphs):
        told = {(s.sender, s.receiver) for s in run.sent if s.share.header.segment == step}
        assert told == {(one, other) for one in range(NODES) for other in graph.neighbours[one]}


def test_muffliato_gossips_on_a_graph_of_its_own_in_every_step_of_every_round() -> None:
    run = gossip(Muffliato(sigma=0.0, steps=4, degree=4), nodes=12)
    for _ in range(3):
        run.run()
    graphs: dict[tuple[int, int], set[tuple[int, int]]] = {}
    for sent in run.sent:
        graphs.setdefault((sent.round, sent.phase), set()).add((sent.sender, sent.receiver))
    assert len({frozenset(edges) for edges in graphs.values()}) == len(graphs) == 12


def test_muffliato_does_not_default_to_a_level_at_which_training_broke_down() -> None:
    # Shatter, section 3.1: with 0.05 training ended in NaN, with 0.1 it did not converge.
    assert 0 < Muffliato().sigma < 0.05


def test_muffliato_draws_noise_once_a_round_and_only_to_hide_a_step() -> None:
    run = gossip(Muffliato(sigma=0.5, steps=2, degree=3))
    first = run.mean
    run.run()
    np.testing.assert_allclose(run.mean, first, atol=1e-6)
    still = {node: np.zeros(N, np.float32) for node in range(NODES)}
    run.run(still)
    once = run.mean - first
    run.run(still)
    twice = run.mean - first - once
    assert 0.1 < once.std() < 0.35  # 0.5/√6 = 0.2
    assert abs(np.corrcoef(once, twice)[0, 1]) < 0.5


@pytest.mark.parametrize(
    "method", [Muffliato(sigma=0.3, degree=3, noise_secret=5), QDPSGD1(sigma=0.3, noise_secret=5)]
)
def test_noise_of_real_members_is_from_their_own_bytes_and_never_twice_the_same(
    method: Muffliato | QDPSGD1,
) -> None:
    settings = GossipSettings(N, NODES, method.name, method.parameters, seed=1, learning_rate=0.5)
    asked: list[int] = []

    def drawn(size: int) -> bytes:
        asked.append(size)
        return os.urandom(size)

    made, start = method.members(settings, drawn), np.zeros(N, np.float32)
    moved = []
    for _ in range(2):
        peer = made.build(0, start)
        peer.begin(1, np.zeros(N, np.float32))
        moved.append(peer.state()["model"])
        assert 0.15 * 0.5 < moved[-1].std() < 0.6
    assert asked == [32, 32]
    assert not np.isin(moved[0], moved[1]).any()
    simulated = method.nodes(settings).build(0, start)
    simulated.begin(1, np.zeros(N, np.float32))
    assert not np.isin(simulated.state()["model"], moved[0]).any()


def test_q_dpsgd_mixes_what_the_quantiser_sends() -> None:
    run = gossip(QDPSGD1(bits=6, pace=0.5, sigma=0.0))
    before = run.models
    run.run()
    graph = connected_random_graph(NODES, 0.4, seed=1)
    decoded = {sent.sender: UniformQuantiser(6).decode(sent.encoded, N) for sent in run.sent}
    for node in range(NODES):
        moves = zip(graph.neighbours[node], graph.metropolis(node), strict=True)
        step = sum(w * (decoded[j].astype(float) - before[node]) for j, w in moves)
        wanted = before[node] + 0.5 * step
        np.testing.assert_allclose(run.models[node], wanted, rtol=0, atol=1e-6)
        grid = 2 * np.abs(before[node]).max() / 63
        assert np.abs(decoded[node] - before[node]).max() <= grid * 1.001
        assert not np.array_equal(decoded[node], before[node])


def test_q_dpsgd_noise_is_on_the_update() -> None:
    quiet, noisy = (gossip(QDPSGD1(bits=24, sigma=s, noise_secret=5)) for s in (0.0, 2.0))
    still = {node: np.zeros(N, np.float32) for node in range(NODES)}
    for run in (quiet, noisy):
        run.run(still)
    # λ = 0.5, σ = 2: the nodes' mean moves by N(0, 1/6).
    assert 0.25 < (noisy.mean - quiet.mean).std() < 0.6


# What mixing keeps.


@pytest.mark.parametrize("name", ["d-psgd", "muffliato"])
def test_symmetric_mixing_keeps_the_mean(name: str) -> None:
    run = gossip(METHODS[name])
    before = np.mean(run.models, axis=0, dtype=np.float64)
    spread = np.std(run.models, axis=0).max()
    for _ in range(10):
        run.run()
        np.testing.assert_allclose(np.mean(run.models, axis=0, dtype=float), before, atol=1e-6)
    assert np.std(run.models, axis=0).max() < spread / 10


@pytest.mark.parametrize("name", EXACT)
def test_equal_models_stay_as_they_are(name: str) -> None:
    run = gossip(METHODS[name], lost=lambda sender, receiver, round: (sender + receiver) % 5 == 0)
    model = vector(N, "model")
    run.set_models([model] * NODES)
    for _ in range(4):
        run.run()
    for found in run.models:
        assert_same_bits(found, model)


@pytest.mark.parametrize("name", METHODS)
def test_only_what_differs_moves(name: str) -> None:
    """Without updates and with all messages lost, every node keeps its model."""
    run = gossip(METHODS[name], lost=lambda sender, receiver, round: True)
    before = run.models
    for _ in range(2):
        run.run()
    for found, wanted in zip(run.models, before, strict=True):
        assert_same_bits(found, wanted)


# What converges.


ACCURACY = {"d-psgd": 1e-3, "el": 1e-3, "muffliato": 1e-3, "ako": 1e-3, "q-dpsgd-1": 0.03}
"""Where weights are symmetric the nodes' mean follows the mean gradient. Shatter's weights are
symmetric on average only, and least so where a node shares little."""
ACCURACY |= dict.fromkeys(("shatter", "shatter-linear", "shatter-dynamic"), 0.05)
ACCURACY |= {"shatter-replacement": 0.25, "shatter-one-chunk": 0.25}


@pytest.mark.parametrize("name", METHODS)
def test_a_quadratic_is_minimised(name: str) -> None:
    """Node i pulls towards its own c_i; together they settle at the mean of all c."""
    centres = np.stack([vector(N, "centre", node) for node in range(NODES)])
    goal = centres.mean(axis=0, dtype=float)
    run = gossip(METHODS[name], rate=0.1)
    run.set_models([np.zeros(N, np.float32)] * NODES)
    late = np.zeros(N)
    for round in range(120):
        run.train(1, lambda node, model: model - centres[node])
        late += run.mean / 60 if round >= 60 else 0
    assert np.linalg.norm(late - goal) < ACCURACY[name] * np.linalg.norm(goal)
    apart = np.linalg.norm(np.stack(run.models) - run.mean)
    assert apart < 0.3 * np.linalg.norm(centres - goal)


# Ako.


@pytest.mark.parametrize("partitions", [1, 3, 5, 8])
@pytest.mark.parametrize("nodes", [2, 5, 7])
def test_ako_loses_nothing_and_is_only_late(partitions: int, nodes: int) -> None:
    run = gossip(Ako(partitions), nodes=nodes, n=23)
    start = vector(23, "start")
    run.set_models([start] * nodes)
    total = np.zeros(23)
    for round in range(1, 8):
        given = updates(nodes, 23, round)
        total += sum(update.astype(float) for update in given.values()) / nodes
        run.run(given)
    for _ in range(partitions - 1):
        run.run()
    for model in run.models:
        np.testing.assert_allclose(model, start - 0.5 * total, rtol=0, atol=1e-5)
    before = run.models
    run.run()
    for model, same in zip(run.models, before, strict=True):
        assert_same_bits(model, same)


def test_ako_sends_the_sum_of_the_last_v_updates_of_a_partition() -> None:
    nodes, v, n = 5, 3, 12
    run = gossip(Ako(v), nodes=nodes, n=n)
    history = {round: updates(nodes, n, round) for round in range(1, 8)}
    for round in range(1, 8):
        run.run(history[round])
    window = [sent for sent in run.sent if sent.round == 7]
    assert len(window) == nodes * (nodes - 1)
    for sent in window:
        place = (sent.receiver - sent.sender) % nodes
        partition = (7 + place) % v
        assert sent.share.header.shard == partition
        low, high = 4 * partition, 4 * partition + 4
        wanted = sum(history[round][sent.sender][low:high].astype(float) for round in (5, 6, 7))
        found = np.frombuffer(sent.encoded.data, "<f4")
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)
    # Every peer gets every partition of every sender within v rounds.
    seen = {(s.sender, s.receiver, s.share.header.shard) for s in run.sent if s.round > 7 - v}
    assert len(seen) == nodes * (nodes - 1) * v


def test_a_member_of_ako_that_is_away_sends_later() -> None:
    """A round it does not enter is made up for: its peers still get every update once."""
    nodes, v, n = 4, 2, 10
    method = Ako(v)
    composition = compose(method, nodes=nodes, n=n)
    peer = composition.peer(0, np.zeros(n, np.float32))
    received = {other: np.zeros(n) for other in range(1, nodes)}
    total = np.zeros(n)
    for round in (1, 2, 5, 6, 9, 10):
        update = vector(n, "update", 0, round) if round < 9 else None
        total += 0 if update is None else update
        for outgoing in peer.begin(round, update):
            share = outgoing.message
            low = 5 * share.header.shard
            for other in outgoing.to:
                values = np.frombuffer(share.payload.encoded.data, "<f4")  # type: ignore[union-attr]
                received[other][low : low + 5] += values
        peer.turn(0)
    for found in received.values():
        np.testing.assert_allclose(found, total, atol=1e-5)


# What it costs, counted in messages.


@pytest.mark.parametrize(
    ("method", "values", "messages"),
    [
        (DPSGD(degree=4), 4 * N, 4),
        (EpidemicLearning(degree=4), 4 * N, 4),
        (Muffliato(degree=4, steps=10), 40 * N, 40),
        (Ako(partitions=5), (NODES - 1) * N // 5, NODES - 1),
        (Shatter(virtual_nodes=4, degree=3), (1 + 2 * 3) * N, 4 + 2 * 4 * 3),
        (Shatter(virtual_nodes=4, degree=3, chunking="replacement"), 7 * N, 28),
        (Shatter(virtual_nodes=4, degree=3, full_sharing=False), 7 * N // 4, 7),
        (QDPSGD1(), None, None),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_costs(method: GossipMethod, values: int | None, messages: int | None) -> None:
    run = gossip(method)
    run.run(updates(NODES, N, 1))
    counts = [sent.encoded.count for sent in run.sent]
    if values is None or messages is None:
        # Six bits a coordinate to 0.4 of the peers on average, of 15 pairs 6.
        assert len(run.sent) == 2 * 6
        assert {len(sent.encoded.data) for sent in run.sent} == {N * 6 // 8}
    else:
        assert sum(counts) == NODES * values
        assert len(run.sent) == NODES * messages
        assert sum(len(sent.encoded.data) for sent in run.sent) == 4 * NODES * values
    for sent in run.sent:
        assert len(sent.data) <= len(sent.encoded.data) + 64


def test_the_tables_count_of_q_dpsgd() -> None:
    """Spec 1.6: upload 0.4·(K − 1)·(6/32)·b a node on average."""
    run = gossip(QDPSGD1(), nodes=50, n=320)
    run.run()
    assert sum(len(sent.encoded.data) for sent in run.sent) == 50 * 0.4 * 49 * 6 / 32 * 4 * 320


# Settings.


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: compose(DPSGD(degree=6)), "degree is 6; expected 1 to 5 for 6 nodes"),
        (lambda: compose(DPSGD(degree=1)), "degree is 1; expected at least 2"),
        (lambda: compose(DPSGD(degree=3), nodes=5), "degree is 3; expected an even number for 5"),
        (lambda: compose(EpidemicLearning(), nodes=8), "degree is 8; expected 1 to 7"),
        (lambda: compose(EpidemicLearning(degree=1), nodes=1), "nodes is 1; expected at least 2"),
        (lambda: Muffliato(sigma=float("nan")), "sigma is nan; expected a finite number"),
        (lambda: Muffliato(steps=0), "steps is 0; expected at least 1 gossip step"),
        (lambda: Muffliato(noise_secret=-1), "noise_secret is 'out of range'; expected an integer"),
        (lambda: QDPSGD1(bits=0), "bits is 0; expected 1 to 24"),
        (lambda: QDPSGD1(pace=0.0), r"pace is 0.0; expected a number in \(0, 1\]"),
        (lambda: QDPSGD1(density=1.1), r"density is 1.1; expected a number in \(0, 1\]"),
        (lambda: QDPSGD1(sigma=-1), "sigma is -1; expected a finite number"),
        (lambda: Ako(0), "partitions is 0; expected at least 1"),
        (lambda: compose(Ako(41)), "partitions is 41; expected 1 to n = 40"),
        (lambda: Shatter(virtual_nodes=0), "virtual_nodes is 0; expected at least 1"),
        (lambda: Shatter(chunking="odd"), "chunking is 'odd'; expected one of static"),  # type: ignore[arg-type]
        (lambda: Shatter(owner_secret=1 << 64), "owner_secret is 'out of range'"),
        (lambda: compose(Shatter(virtual_nodes=41)), "virtual_nodes is 41; expected 1 to n = 40"),
        (lambda: compose(Shatter(virtual_nodes=1, degree=6)), "degree is 6; expected 1 to 5"),
        (lambda: compose(Ako(), rate=0.0), "learning_rate is 0.0; expected a finite number"),
        (lambda: compose(Ako(1), n=0), "n is 0; expected at least 1"),
        (lambda: compose(Ako(), seed=-1), "seed is -1; expected an integer"),
        (
            lambda: Ako().compose_gossip(names(3), N, 0, 0.1, [1, 1]),
            r"samples is \(1, 1\); expected a positive number for every node",
        ),
        (
            lambda: Ako().compose_gossip(["a", "b", "a"], N, 0, 0.1, [1, 1, 1]),
            "members is 'a'; expected every member's name once",
        ),
        (
            lambda: compose(Ako()).peer(6, np.zeros(N, np.float32)),
            "member is 6; expected a member's number, 0 to 5",
        ),
    ],
)
def test_settings_that_cannot_be_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        make()


def test_every_public_setting_changes_the_fingerprint() -> None:
    base = Shatter(virtual_nodes=2, degree=2)
    methods: list[GossipMethod] = [
        base,
        replace(base, virtual_nodes=3),
        replace(base, degree=3),
        replace(base, chunking="linear"),
        replace(base, full_sharing=False),
        DPSGD(degree=2),
        EpidemicLearning(degree=2),
        DPSGD(degree=3),
        Muffliato(degree=3),
        Muffliato(degree=3, steps=9),
        Muffliato(degree=3, sigma=1),
        QDPSGD1(),
        QDPSGD1(bits=5),
        QDPSGD1(pace=0.5),
        Ako(),
        Ako(4),
    ]
    settings = [compose(method).settings for method in methods]
    settings += [compose(Ako(), n=41).settings, compose(Ako(), seed=2).settings]
    settings += [compose(Ako(), rate=0.1).settings, compose(Ako(), nodes=7).settings]
    settings += [replace(settings[-1], name="other"), replace(settings[-1], initial="00")]
    assert len({agreed.fingerprint for agreed in settings}) == len(settings)
    assert (
        compose(Ako(), rate=1).settings.fingerprint == compose(Ako(), rate=1.0).settings.fingerprint
    )


@pytest.mark.parametrize(
    ("method", "other"),
    [
        (Shatter(2, 2, owner_secret=SECRET), Shatter(2, 2, owner_secret=7)),
        (Muffliato(degree=3, noise_secret=SECRET), Muffliato(degree=3)),
        (QDPSGD1(noise_secret=SECRET), QDPSGD1()),
    ],
)
def test_secrets_are_not_in_what_is_agreed_or_shown(
    method: GossipMethod, other: GossipMethod
) -> None:
    agreed = compose(method).settings
    assert agreed == compose(other).settings
    purposes = ("shatter-owners", "muffliato-noise", "q-dpsgd-1-noise")
    for secret in (SECRET, *(simulated_secret(purpose, agreed.seed) for purpose in purposes)):
        assert str(secret) not in repr(method) + agreed.canonical


def test_graphs_differ_between_seeds() -> None:
    def kept(seed: int) -> Graph:
        return connected_regular_graph(20, 3, seed)

    assert kept(1) != kept(2)
