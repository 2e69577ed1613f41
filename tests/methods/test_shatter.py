"""Shatter: the same as an oracle written from its description, the same as EL with one virtual
node, and nothing that travels tells whose a virtual node is."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from eris.core.chunks import Chunking, ChunkKind
from eris.core.graphs import regular_graph
from eris.core.vectors import Vector
from eris.federation import Federation
from eris.methods.assembling import simulated_secret
from eris.methods.epidemic import EpidemicLearning
from eris.methods.shatter import Shatter
from eris.protocol.gossip.virtual import EXCHANGE, HAND_BACK, HAND_OUT, VirtualNode, VirtualNodes
from eris.runtimes.faults import FaultPlan
from eris.testing.quadratic import Quadratic
from eris.testing.synthetic import assert_same_bits
from support.gossip import Gossip, Loss, gossip, updates, vector

NODES, K, R, N = 5, 4, 6, 50
METHOD = Shatter(virtual_nodes=K, degree=R, owner_secret=99)


def nobody_lost(sender: int, receiver: int, round: int) -> bool:
    return False


def third_lost(sender: int, receiver: int, round: int) -> bool:
    return (5 * sender + 2 * receiver + round) % 3 == 0


def slow_round(
    models: list[Vector], chunking: ChunkKind, round: int, full_sharing: bool, lost: Loss
) -> list[Vector]:
    """A round written from section 3 of the specification, coordinate by coordinate."""
    ownership = VirtualNodes(NODES, K, secret=99)
    virtuals = [ownership.virtual(node, s) for node in range(NODES) for s in range(K)]
    owner = {ownership.virtual(node, s): node for node in range(NODES) for s in range(K)}
    chunks = Chunking(K, chunking, N, seed=1)
    graph = regular_graph(NODES * K, R, seed=1, round=round)
    # Hop 1: virtual node s of a node holds (coordinate, value) pairs of chunk s.
    holds: dict[int, list[tuple[int, Vector]]] = {v: [] for v in virtuals}
    for virtual in virtuals:
        node, chunk = owner[virtual], (virtual - NODES) % K
        if not full_sharing and chunk != only_chunk(node, round):
            continue
        if not lost(node, virtual, round):
            places = chunks.places(round, chunk, virtual).tolist()
            holds[virtual] = [(place, models[node][place]) for place in places]
    # Hops 2 and 3: to the neighbours, and from there to their real nodes.
    received: list[list[list[float]]] = [[[] for _ in range(N)] for _ in range(NODES)]
    for virtual in virtuals:
        for index in graph.neighbours[virtual - NODES]:
            other = NODES + index
            if lost(virtual, other, round) or lost(other, owner[other], round):
                continue
            for place, value in holds[virtual]:
                received[owner[other]][place].append(float(value))
    return [
        np.array(
            [
                (float(models[node][i]) + sum(received[node][i])) / (len(received[node][i]) + 1)
                for i in range(N)
            ],
            np.float32,
        )
        for node in range(NODES)
    ]


def only_chunk(node: int, round: int) -> int:
    """The chunk that a node shares without full sharing, as its virtual nodes show it."""
    run = gossip(replace(METHOD, full_sharing=False), nodes=NODES, n=N)
    run.round = round - 1
    run.run()
    (chunk,) = {s.share.header.shard for s in run.sent if s.sender == node and s.phase == HAND_OUT}
    return chunk


@pytest.mark.parametrize("lost", [nobody_lost, third_lost])
@pytest.mark.parametrize("full_sharing", [True, False])
@pytest.mark.parametrize("chunking", ["static", "linear", "dynamic", "replacement"])
def test_shatter_is_its_description(chunking: ChunkKind, full_sharing: bool, lost: Loss) -> None:
    method = replace(METHOD, chunking=chunking, full_sharing=full_sharing)
    run = gossip(method, nodes=NODES, n=N, lost=lost)
    expected = run.models
    for round in (1, 2):
        given = updates(NODES, N, round)
        stepped = [expected[node] - np.float32(0.5) * given[node] for node in range(NODES)]
        expected = slow_round(stepped, chunking, round, full_sharing, lost)
        run.run(given)
        for found, wanted in zip(run.models, expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)
        assert not np.allclose(np.stack(run.models), np.stack(stepped), atol=1e-3)


def test_with_one_virtual_node_it_is_el_to_the_last_bit() -> None:
    """The graph joins virtual nodes, so EL's node i is the owner of virtual node i."""
    shatter = gossip(Shatter(virtual_nodes=1, degree=3, owner_secret=99), nodes=6, n=N)
    el = gossip(EpidemicLearning(degree=3), nodes=6, n=N)
    ownership = VirtualNodes(6, 1, secret=99)
    owners = [ownership.owner(6 + i) for i in range(6)]
    assert owners != sorted(owners)
    start = shatter.models
    el.set_models([start[owner] for owner in owners])
    for round in (1, 2, 3):
        given = updates(6, N, round)
        shatter.run(given)
        el.run({i: given[owner] for i, owner in enumerate(owners)})
        for i, owner in enumerate(owners):
            assert_same_bits(el.models[i], shatter.models[owner])


def test_what_nobody_sent_keeps_its_value() -> None:
    def chunk_zero_lost(sender: int, receiver: int, round: int) -> bool:
        return sender >= NODES and (sender - NODES) % K == 0 and receiver >= NODES

    run = gossip(METHOD, nodes=NODES, n=N, lost=chunk_zero_lost)
    before = run.models
    run.run()
    kept = Chunking(K, "static", N, seed=1).places(1, 0, NODES)
    moved = np.setdiff1d(np.arange(N), kept)
    for found, start in zip(run.models, before, strict=True):
        assert_same_bits(found[kept], start[kept])
        assert (found[moved] != start[moved]).mean() > 0.5


def test_every_chunk_of_every_node_is_carried_once() -> None:
    for secret in range(20):
        ownership = VirtualNodes(NODES, K, secret)
        carried = {
            (ownership.owner(virtual), ownership.chunk(virtual))
            for virtual in range(NODES, NODES + NODES * K)
        }
        assert len(carried) == NODES * K
        for node in range(NODES):
            for chunk in range(K):
                virtual = ownership.virtual(node, chunk)
                assert (ownership.owner(virtual), ownership.chunk(virtual)) == (node, chunk)


def test_forwarded_messages_are_the_bytes_that_were_received() -> None:
    run = gossip(METHOD, nodes=NODES, n=N)
    run.run()
    exchanged = Counter((s.receiver, s.data) for s in run.sent if s.phase == EXCHANGE)
    handed_back = Counter((s.sender, s.data) for s in run.sent if s.phase == HAND_BACK)
    assert exchanged == handed_back
    assert sum(exchanged.values()) == NODES * K * R


def test_chunks_travel_and_nothing_else() -> None:
    run = gossip(METHOD, nodes=NODES, n=N)
    models = run.models
    run.run()
    ownership = VirtualNodes(NODES, K, secret=99)
    chunking = Chunking(K, "static", N, seed=1)
    for sent in run.sent:
        header = sent.share.header
        node = header.sender if sent.phase == HAND_OUT else ownership.owner(header.sender)
        places = chunking.places(1, header.shard, 0)
        values = np.frombuffer(sent.encoded.data, "<f4")
        assert_same_bits(values.astype(np.float32), models[node][places])


# Owner secrecy.


def exchanged_bytes(run: Gossip) -> list[tuple[int, int, bytes]]:
    """All that passes between virtual nodes: from whom, to whom, what."""
    return [(s.sender, s.receiver, s.data) for s in run.sent if s.phase == EXCHANGE]


def test_with_equal_models_nothing_between_virtual_nodes_depends_on_the_owners() -> None:
    runs = []
    for secret in (1, 2, None):
        run = gossip(replace(METHOD, owner_secret=secret), nodes=NODES, n=N)
        run.set_models([vector(N, "equal")] * NODES)
        for _ in range(3):
            run.run()
        runs.append(run)
    assert exchanged_bytes(runs[0]) == exchanged_bytes(runs[1]) == exchanged_bytes(runs[2])
    hops = [[(s.sender, s.receiver) for s in run.sent if s.phase == HAND_OUT] for run in runs]
    assert hops[0] != hops[1] != hops[2] != hops[0]
    assert runs[0].composition.settings.canonical == runs[1].composition.settings.canonical
    assert runs[0].composition.members == runs[1].composition.members


def test_messages_between_virtual_nodes_name_no_real_member() -> None:
    run = gossip(METHOD, nodes=NODES, n=N)
    run.run(updates(NODES, N, 1))
    for sent in run.sent:
        if sent.phase in (EXCHANGE, HAND_BACK):
            header = sent.share.header
            assert NODES <= header.sender < NODES + NODES * K
            assert header.shard == (header.sender - NODES) % K
            assert header.segment == EXCHANGE
            assert sent.share.payload.stream == 0
            assert sent.encoded.parameter == 0
    for name in run.composition.members[NODES:]:
        assert not any(real in name for real in run.composition.members[:NODES])


def test_guesses_from_the_number_are_right_at_chance_rate() -> None:
    """The public code's ids give the owner as id mod N; blocks of k would give it as id div k."""
    nodes, k, secrets = 10, 8, 300
    right: Counter[str] = Counter()
    for secret in range(secrets):
        ownership = VirtualNodes(nodes, k, secret)
        for index in range(nodes * k):
            owner = ownership.owner(nodes + index)
            right["mod N"] += owner == index % nodes
            right["div k"] += owner == index // k
            right["id mod N"] += owner == (nodes + index) % nodes
            right["as before"] += index > 0 and owner == ownership.owner(nodes + index - 1)
    trials = nodes * k * secrets
    deviation = np.sqrt(trials * 0.1 * 0.9)
    for guess, count in right.items():
        assert abs(count - trials / nodes) < 4.5 * deviation, guess


def test_owners_of_two_chunks_are_independent() -> None:
    """Knowing whose one virtual node is tells nothing about a node with another chunk."""
    counts: Counter[tuple[int, int]] = Counter()
    for secret in range(2_000):
        ownership = VirtualNodes(4, 2, secret)
        counts[ownership.owner(4), ownership.owner(5)] += 1
    assert len(counts) == 16
    assert max(counts.values()) < 125 + 5 * np.sqrt(125)
    assert min(counts.values()) > 125 - 5 * np.sqrt(125)


def test_the_default_secret_follows_from_the_seed_and_repeats() -> None:
    def owners(seed: int) -> list[int]:
        run = gossip(Shatter(virtual_nodes=K, degree=R), nodes=NODES, n=N, seed=seed)
        return [run.peers[v]._owner for v in range(NODES, NODES + NODES * K)]  # type: ignore[attr-defined]

    assert owners(1) == owners(1) != owners(2)
    expected = VirtualNodes(NODES, K, simulated_secret("shatter-owners", 1))
    assert owners(1) == [expected.owner(v) for v in range(NODES, NODES + NODES * K)]


def test_a_virtual_node_keeps_nothing() -> None:
    run = gossip(METHOD, nodes=NODES, n=N)
    run.run()
    for virtual in run.peers[NODES:]:
        assert isinstance(virtual, VirtualNode)
        assert virtual.state() == {}
        assert virtual.model.shape == (0,)


def test_without_full_sharing_the_shared_chunk_changes_and_differs() -> None:
    run = gossip(replace(METHOD, full_sharing=False), nodes=NODES, n=N)
    for _ in range(40):
        run.run()
    shared = [(s.sender, s.share.header.shard) for s in run.sent if s.phase == HAND_OUT]
    assert len(shared) == 40 * NODES
    counts = Counter(shared)
    assert len(counts) == NODES * K
    assert max(counts.values()) < 10 + 4 * np.sqrt(10)


@pytest.mark.parametrize("stations", [1, 3])
def test_virtual_nodes_are_away_whenever_their_real_node_is(stations: int) -> None:
    nodes, each, rounds = 10, 4, 12
    method = Shatter(virtual_nodes=each, degree=4)
    clients = [Quadratic(str(client), n=40) for client in range(nodes)]
    federation = Federation(clients, np.zeros(40, np.float32), method, seed=2)
    faults = FaultPlan(seed=5, churn=0.33)
    with closing(federation.start(rounds, record=True, faults=faults, stations=stations)) as run:
        there = {done.round: set(done.clients) for done in (run.step() for _ in range(rounds))}
    secret = simulated_secret("shatter-owners", 2)
    ownership = VirtualNodes(nodes, each, secret)
    virtuals = range(nodes, nodes * (1 + each))
    active: dict[int, set[int]] = {round: set() for round in there}
    assert run.transcript is not None
    for record in run.transcript.records:
        active[record.message.header.round] |= {record.sender, *record.arrived}
    for round, present in there.items():
        expected = {virtual for virtual in virtuals if ownership.owner(virtual) in present}
        assert active[round] & set(virtuals) == expected
    assert any(len(present) < nodes for present in there.values())
