"""The machines of gossip: what they refuse, and that nothing depends on the order in which messages
arrive, on what is lost elsewhere, or on an interruption."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from eris.core.compress import Encoded, Encoding, encode_values
from eris.core.errors import ErisError, InvalidSetting, MalformedMessage, RefusedContribution
from eris.core.graphs import connected_regular_graph
from eris.methods.dpsgd import DPSGD
from eris.methods.epidemic import EpidemicLearning
from eris.methods.muffliato import Muffliato
from eris.methods.qdpsgd import QDPSGD1
from eris.protocol.codec import decode
from eris.protocol.gossip.peer import GossipSettings
from eris.protocol.messages import Payload, Share
from eris.protocol.settings import model_digest, starting_model
from eris.testing.damage import TO_BYTES, TO_FIELDS, Dice
from eris.testing.synthetic import assert_same_bits
from support.gossip import METHODS, Gossip, Sent, compose, gossip, updates, vector

N, NODES = 40, 6
NOISY = {
    **METHODS,
    "muffliato-noise": Muffliato(sigma=0.3, steps=3, degree=3),
    "q-dpsgd-1-noise": QDPSGD1(sigma=0.3),
}


def some_lost(sender: int, receiver: int, round: int) -> bool:
    return (7 * sender + 3 * receiver + round) % 4 == 0


# What results do not depend on.


@pytest.mark.parametrize("name", NOISY)
def test_the_order_of_arrival_does_not_matter(name: str) -> None:
    runs = [gossip(NOISY[name], arrival=seed, lost=some_lost) for seed in (None, 1, 2)]
    # Large values that cancel, so that even a float64 sum depends on its order.
    huge = np.float32(2**60) * np.sign(vector(N, "sign"))
    big = {node: huge if node % 2 else -huge for node in range(4)}
    for run in runs:
        run.set_models([big.get(node, vector(N, "model", node)) for node in range(NODES)])
    for round in (1, 2, 3):
        for run in runs:
            run.run(updates(NODES, N, round) | big)
        for run in runs[1:]:
            for found, wanted in zip(run.models, runs[0].models, strict=True):
                assert_same_bits(found, wanted)


@pytest.mark.parametrize("name", NOISY)
def test_a_restored_run_continues_to_the_same_bits(name: str) -> None:
    whole, first, second = (gossip(NOISY[name]) for _ in range(3))
    for round in range(1, 6):
        whole.run(updates(NODES, N, round))
    for round in (1, 2):
        first.run(updates(NODES, N, round))
    states = [peer.state() for peer in first.peers]
    for peer, state in zip(second.peers, states, strict=True):
        peer.restore(state)
    first.run(updates(NODES, N, 3))  # what a state holds is a copy
    second.round = 2
    for round in range(3, 6):
        second.run(updates(NODES, N, round))
    for found, wanted in zip(second.models, whole.models, strict=True):
        assert_same_bits(found, wanted)
    for mine, theirs in zip(second.peers, whole.peers, strict=True):
        assert mine.state().keys() == theirs.state().keys()
        for key, value in mine.state().items():
            assert_same_bits(value, theirs.state()[key])


@pytest.mark.parametrize("name", NOISY)
def test_machines_do_not_share_what_they_hold(name: str) -> None:
    initial = vector(N, "initial")
    composition = compose(NOISY[name])
    peers = [composition.peer(node, initial) for node in range(NODES)]
    peers[0].begin(1, np.ones(N, np.float32))
    assert_same_bits(peers[1].model, initial)
    state = peers[0].state()
    state["model"][:] = 9
    assert not (peers[0].model == 9).any()


def test_a_missing_neighbours_weight_goes_to_the_node() -> None:
    graph = connected_regular_graph(NODES, 3, seed=1)
    silent = graph.neighbours[0][1]
    run = gossip(DPSGD(degree=3), lost=lambda sender, receiver, round: sender == silent)
    before = run.models
    run.run()
    heard = [other for other in graph.neighbours[0] if other != silent]
    wanted = before[0] * 0.5 + sum(0.25 * before[other].astype(float) for other in heard)
    np.testing.assert_allclose(run.models[0], wanted, rtol=0, atol=1e-6)


def test_a_mean_is_over_what_arrived() -> None:
    run = gossip(EpidemicLearning(degree=3), lost=lambda sender, receiver, round: sender >= 3)
    before = run.models
    run.run()
    for node in range(NODES):
        heard = [s.sender for s in run.sent if s.receiver == node and s.sender < 3]
        wanted = np.mean([before[node], *(before[other] for other in heard)], axis=0, dtype=float)
        np.testing.assert_allclose(run.models[node], wanted, rtol=0, atol=1e-6)


# What is refused.


class Scene:
    """A run with the messages of a phase on the way: the last of them, and its receiver."""

    def __init__(self, name: str, phase: int = 0) -> None:
        run = gossip(METHODS[name])
        under_way = run.phases(updates(NODES, N, 1))
        on_the_way = [next(under_way) for _ in range(phase + 1)][-1]
        self.sent = on_the_way[-1]
        self.share = self.sent.share
        self.peer = run.peers[self.sent.receiver]

    def refuses(self, share: Share, message: str, source: int | None = None) -> None:
        """The share is refused with a reason, and what is kept between rounds stays."""
        before = self.peer.state()
        with pytest.raises(ErisError, match=message):
            self.peer.receive(share, self.sent.sender if source is None else source)
        for key, value in before.items():
            assert_same_bits(self.peer.state()[key], value)


def changed(share: Share, **header: int) -> Share:
    return replace(share, header=replace(share.header, **header))


def with_values(share: Share, encoded: Encoded) -> Share:
    return replace(share, payload=Payload(encoded))


PLACES = [("d-psgd", 0), ("ako", 0), ("muffliato", 1), ("q-dpsgd-1", 0)]
PLACES += [("shatter", 0), ("shatter", 1), ("shatter", 2), ("shatter-replacement", 2)]


@pytest.mark.parametrize(("name", "phase"), PLACES)
def test_a_share_that_makes_no_sense_is_refused(name: str, phase: int) -> None:
    scene = Scene(name, phase)
    share, header = scene.share, scene.share.header
    count = share.payload.encoded.count
    scene.refuses(changed(share, federation=header.federation ^ 1), "with other settings")
    scene.refuses(changed(share, epoch=1), "is of epoch 1; this node is in 0")
    scene.refuses(changed(share, round=2), "is of round 2; this node is in 1")
    scene.refuses(changed(share, round=0), "is of round 0; this node is in 1")
    scene.refuses(changed(share, segment=9), "is of step 9")
    scene.refuses(changed(share, shard=header.shard + 1), "is of chunk")
    scene.refuses(changed(share, sender=99), "claims to be|no neighbour|no virtual")
    scene.refuses(changed(share, sender=scene.sent.receiver), "claims to be|no neighbour")
    scene.refuses(share, "claims to be|no virtual node of this one", source=99)
    scene.refuses(changed(share, sender=99), "no neighbour|no peer|does not hand|no virtual", 99)
    wrong = encode_values(np.ones(count + 1, np.float32))
    scene.refuses(with_values(share, wrong), "payload.(count|encoding)")
    scene.refuses(with_values(share, Encoded(Encoding.KEPT, count, bytes(4 * count))), "encoding")
    scene.refuses(
        with_values(share, replace(share.payload.encoded, data=b"123")), "payload.data: has 3 bytes"
    )
    scene.peer.receive(share, scene.sent.sender)
    scene.refuses(share, "has already sent this")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["el", "ako", "shatter"])
def test_values_that_are_not_finite_are_refused(name: str, bad: float) -> None:
    scene = Scene(name)
    values = np.ones(scene.share.payload.encoded.count, np.float32)
    values[-1] = bad
    with pytest.raises(MalformedMessage, match="holds a value that is not finite"):
        scene.peer.receive(with_values(scene.share, encode_values(values)), scene.sent.sender)


def test_a_share_that_comes_late_is_refused() -> None:
    run = gossip(Muffliato(sigma=0.0, steps=2, degree=3))
    run.run()
    before, late = run.models, run.sent[-1]
    with pytest.raises(ErisError, match="is of step 1; this node is past it"):
        run.peers[late.receiver].receive(late.share, late.sender)
    run.run()
    assert before is not run.models
    with pytest.raises(ErisError, match="is of round 1; this node is in 2"):
        run.peers[late.receiver].receive(late.share, late.sender)


def test_a_share_that_comes_early_waits_for_its_turn() -> None:
    """A neighbour that is one step ahead is heard, in any order of steps."""
    composition = compose(Muffliato(sigma=0.0, steps=2, degree=1), nodes=2)
    runs = []
    for early in (False, True):
        run = Gossip(composition, np.zeros(N, np.float32))
        run.set_models([vector(N, "model", node) for node in range(2)])
        said = [peer.begin(1, None)[0].message for peer in run.peers]
        assert isinstance(said[0], Share)
        assert isinstance(said[1], Share)
        run.peers[1].receive(said[0], 0)
        after = run.peers[1].turn(0)[0].message
        assert isinstance(after, Share)
        for share in (after, said[1]) if early else (said[1],):
            run.peers[0].receive(share, 1)
        run.peers[0].turn(0)
        if not early:
            run.peers[0].receive(after, 1)
        run.peers[0].turn(1)
        runs.append(run)
    assert_same_bits(runs[0].models[0], runs[1].models[0])


@pytest.mark.parametrize("name", ["d-psgd", "ako", "shatter"])
def test_rounds_and_phases_come_in_order(name: str) -> None:
    peer = compose(METHODS[name]).peer(0, np.zeros(N, np.float32))
    with pytest.raises(InvalidSetting, match="phase is 0; expected a round"):
        peer.turn(0)
    with pytest.raises(InvalidSetting, match="round is 0; expected a round after 0"):
        peer.begin(0, None)
    peer.begin(3, None)
    with pytest.raises(InvalidSetting, match="round is 3; expected a round after 3"):
        peer.begin(3, None)
    with pytest.raises(InvalidSetting, match="phase is 1; expected 0 of the round's"):
        peer.turn(1)
    peer.turn(0)
    with pytest.raises(InvalidSetting, match="phase is 0; expected 1 of the round's"):
        peer.turn(0)
    peer.restore(peer.state())
    peer.begin(1, None)


@pytest.mark.parametrize("name", [name for name in NOISY if name != "muffliato-noise"])
def test_an_update_that_leads_nowhere_changes_nothing(name: str) -> None:
    run = gossip(NOISY[name])
    peer, before = run.peers[0], run.peers[0].state()
    for wrong in (np.nan, np.inf):
        update = np.zeros(N, np.float32)
        update[3] = wrong
        with pytest.raises((RefusedContribution, InvalidSetting), match="not finite"):
            peer.begin(1, update)
    with pytest.raises(InvalidSetting, match=r"(update|vector) is 'float64 \(40,\)'"):
        peer.begin(1, np.zeros(N))  # type: ignore[arg-type]
    for key, value in before.items():
        assert_same_bits(peer.state()[key], value)
    peer.begin(1, None)


def test_a_step_beyond_float32_is_refused() -> None:
    peer = gossip(DPSGD(degree=3), rate=4.0).peers[0]
    with pytest.raises(RefusedContribution, match="client 0: its local step leads to values"):
        peer.begin(1, np.full(N, 3e38, np.float32))


@pytest.mark.parametrize("name", METHODS)
def test_states_and_models_of_another_shape_are_refused(name: str) -> None:
    composition = compose(METHODS[name])
    with pytest.raises(InvalidSetting, match=r"initial model is \(7,\); expected \(40,\)"):
        composition.peer(0, np.zeros(7, np.float32))
    with pytest.raises(InvalidSetting, match="initial model is 'with NaN or infinity'"):
        composition.peer(0, np.full(N, np.nan, np.float32))
    peer = composition.peer(0, np.zeros(N, np.float32))
    with pytest.raises(InvalidSetting, match=r"state is \['other'\]; expected the vectors"):
        peer.restore({"other": np.zeros(N, np.float32)})
    with pytest.raises(InvalidSetting, match=r"state model is 'float32 \(3,\)'; expected"):
        peer.restore(peer.state() | {"model": np.zeros(3, np.float32)})


def test_a_model_that_was_not_agreed_is_refused() -> None:
    model = vector(N, "model")
    agreed = GossipSettings(N, 2, "el", initial=model_digest(model))
    assert_same_bits(starting_model(agreed.n, agreed.initial, model), model)
    with pytest.raises(
        InvalidSetting, match=r"initial model is 'of SHA-256 .*; expected the agreed"
    ):
        starting_model(agreed.n, agreed.initial, model + 1)


@pytest.mark.parametrize("name", ["el", "ako", "q-dpsgd-1", "muffliato", "shatter"])
def test_no_damage_breaks_a_machine(name: str) -> None:
    """Damaged shares are malformed, refused or counted; models stay finite, and rounds go on."""
    run = gossip(METHODS[name])
    run.run(updates(NODES, N, 1))
    corpus = [sent.data for sent in run.sent]
    outcomes: Counter[str] = Counter()
    for round in (2, 3):
        for on_the_way in run.phases(updates(NODES, N, round)):
            for number, sent in enumerate(on_the_way * 6):
                dice = Dice(round, number)
                damage = dice.pick((*TO_BYTES, *TO_FIELDS, *TO_FIELDS))
                outcomes[fate(run, sent, damage(sent.data, dice.pick(corpus), dice))] += 1
            on_the_way.clear()
    assert {"counted", "MalformedMessage", "ErisError"} <= set(outcomes), outcomes
    for model in run.models:
        assert np.isfinite(model).all()
    run.run(updates(NODES, N, 4))


def fate(run: Gossip, sent: Sent, data: bytes) -> str:
    """What becomes of damaged bytes."""
    try:
        message = decode(data)
        if isinstance(message, Share):
            run.peers[sent.receiver].receive(message, sent.sender)
            return "counted"
    except ErisError as error:
        return type(error).__name__
    return "no share"
