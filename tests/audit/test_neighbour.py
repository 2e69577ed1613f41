"""A neighbour in gossip: it replays its own model, sees what it was sent and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from eris.audit.alignment import ALIGNED, COSINE, NORMALISED
from eris.audit.attack import show
from eris.audit.candidates import Candidates
from eris.audit.linkability import true_owners
from eris.audit.linked import LINKED, SCORES, UNLINKED, NeighbourAudit
from eris.audit.membership import LOSS
from eris.audit.neighbour import Neighbourhood, NeighbourWatch
from eris.core.chunks import Chunking
from eris.core.compress import Encoding, decode_values
from eris.core.errors import InvalidSetting
from eris.core.rules import server_rule
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.federation import Federation
from eris.methods import registry
from eris.methods.ako import Ako
from eris.methods.epidemic import EpidemicLearning
from eris.methods.eris import ERIS
from eris.methods.method import GossipMethod
from eris.methods.muffliato import Muffliato
from eris.methods.shatter import Shatter
from eris.protocol.codec import encode
from eris.protocol.gossip.mixing import Mixing
from eris.protocol.gossip.peer import GossipSettings
from eris.protocol.messages import Payload, Share
from eris.protocol.observers import Observer
from eris.protocol.transcript import Record, Transcript
from eris.runtimes.faults import FaultPlan
from eris.session import Session
from eris.testing.synthetic import assert_same_bits
from support.crowd import Crowd
from support.gossip import METHODS
from support.levels import tells
from support.neighbours import FEW, NODES, RATE, audited, by_round, learnt_by_heart, share_of

N, ROUNDS = 42, 5
EXACT = ("d-psgd", "el", "shatter", "shatter-linear", "shatter-dynamic")
CASES: dict[str, GossipMethod] = METHODS | {"muffliato": Muffliato(0.05, steps=3, degree=3)}


def start(method: GossipMethod, faults: FaultPlan | None = None) -> tuple[Session, Crowd]:
    crowd = Crowd(NODES, N)
    rule = server_rule("fedavg", learning_rate=RATE)
    federation = Federation(crowd, initial(), method, rule=rule, seed=1)
    return federation.start(ROUNDS, record=True, faults=faults), crowd


def initial() -> Vector:
    return Stream(2, "test-initial").normal(0, N).astype(np.float32)


def recorded(session: Session) -> Transcript:
    assert session.transcript is not None
    return session.transcript


def watches(session: Session) -> list[NeighbourWatch]:
    settings = GossipSettings.from_canonical(session.settings)
    seen = recorded(session)
    return [NeighbourWatch(settings, initial(), seen.neighbour(node)) for node in range(NODES)]


def stepped(session: Session) -> list[Record]:
    """The messages of one more round."""
    before = len(recorded(session).records)
    session.step()
    return recorded(session).records[before:]


# The own model


@pytest.mark.parametrize("faults", [{}, {"link": 0.2, "churn": 0.2}], ids=["calm", "faults"])
@pytest.mark.parametrize("name", [*EXACT, "muffliato"])
def test_the_own_average_is_the_nodes_model_to_the_bit(name: str, faults: dict[str, float]) -> None:
    session, _ = start(CASES[name], FaultPlan(seed=3, **faults))
    neighbours = watches(session)
    before = [initial()] * NODES
    for round in range(1, ROUNDS + 1):
        records = stepped(session)
        for node, watch in enumerate(neighbours):
            sight = watch.follow(round, records)
            assert_same_bits(sight.model, before[node])
            assert_same_bits(watch.model, session.models()[node])
        before = session.models()
        assert not np.array_equal(before[0], before[1])


def test_what_ako_sends_late_adds_up_to_what_it_trained() -> None:
    session, _ = start(Ako(partitions=3), FaultPlan(seed=3, link=0.2, churn=0.2))
    neighbours = watches(session)
    for round in range(1, ROUNDS + 1):
        records = stepped(session)
        for node, watch in enumerate(neighbours):
            watch.follow(round, records)
            np.testing.assert_allclose(watch.model, session.models()[node], rtol=0, atol=1e-6)


def test_a_quantised_own_model_is_known_to_the_grid() -> None:
    session, _ = start(CASES["q-dpsgd-1"])
    neighbours = watches(session)
    for round in range(1, ROUNDS + 1):
        records = stepped(session)
        for node, watch in enumerate(neighbours):
            watch.follow(round, records)
            reach = max(share_of(r).payload.encoded.parameter for r in records)
            off = np.abs(watch.model - session.models()[node]).max()
            assert 0 < off <= 2 * reach / (2**6 - 1)


def test_of_one_chunk_a_round_the_rest_of_the_own_step_is_unknown() -> None:
    session, _ = start(CASES["shatter-one-chunk"])
    watch = watches(session)[2]
    records = stepped(session)
    watch.follow(1, records)
    (chunk,) = [share_of(record).header.shard for record in records if record.sender == 2]
    handed = Chunking(3, "static", N, seed=1).places(1, chunk, 0)
    exact = np.flatnonzero(watch.model == session.models()[2])
    assert set(handed.tolist()) <= set(exact.tolist())
    assert len(exact) < N


# The pieces


@pytest.mark.parametrize("name", [*EXACT, "muffliato", "shatter-replacement"])
def test_pieces_are_what_others_sent(name: str) -> None:
    session, _ = start(CASES[name])
    records = stepped(session)
    owners = true_owners(GossipSettings.from_canonical(session.settings), records)
    sent: dict[int, set[float]] = {}
    for share in map(share_of, records):
        values = decode_values(share.payload.encoded, Encoding.DENSE, share.payload.encoded.count)
        sent.setdefault(share.header.sender, set()).update(values.tolist())
    for node, watch in enumerate(watches(session)):
        sight = watch.follow(1, records)
        assert sight.fresh
        for piece in sight.pieces:
            assert owners[piece.sender] != node
            assert len(set(piece.coordinates.tolist())) == len(piece.values)
            assert set(piece.values.tolist()) <= sent[piece.sender]
            moved = (initial()[piece.coordinates].astype(np.float64) - piece.values) / RATE
            np.testing.assert_array_equal(piece.update, moved.astype(np.float32))
            completed = sight.completed([piece])
            assert_same_bits(completed[piece.coordinates], piece.values)
            others = np.setdiff1d(np.arange(N), piece.coordinates)
            assert_same_bits(completed[others], sight.model[others])


@pytest.mark.parametrize("name", EXACT)
def test_from_a_common_start_the_direction_is_the_senders_update(name: str) -> None:
    session, crowd = start(CASES[name])
    records = stepped(session)
    owners = true_owners(GossipSettings.from_canonical(session.settings), records)
    for watch in watches(session):
        for piece in watch.follow(1, records).pieces:
            _, update = crowd.given[owners[piece.sender], 1]
            np.testing.assert_allclose(piece.update, update[piece.coordinates], atol=1e-6)


def test_later_gossip_steps_are_seen_and_not_scored() -> None:
    session, _ = start(CASES["muffliato"])
    sight = watches(session)[0].follow(1, stepped(session))
    assert sorted({piece.step for piece in sight.pieces}) == [0, 1, 2]
    assert {piece.step for piece in sight.fresh} == {0}
    assert len(sight.fresh) == 3


def test_akos_pieces_are_sums_of_updates() -> None:
    session, crowd = start(Ako(partitions=3))
    watch = watches(session)[1]
    for round in range(1, ROUNDS + 1):
        sight = watch.follow(round, stepped(session))
        assert {piece.sender for piece in sight.pieces} == {0, 2, 3, 4, 5}
        for piece in sight.pieces:
            since = range(max(1, round - 2), round + 1)
            total = sum(crowd.given[piece.sender, t][1].astype(np.float64) for t in since)
            expected = np.asarray(total)[piece.coordinates]
            np.testing.assert_allclose(piece.update, expected, atol=1e-5)
            wanted = sight.model[piece.coordinates] - RATE * piece.update
            np.testing.assert_allclose(piece.values, wanted, atol=1e-6)


def test_what_a_node_refuses_changes_nothing() -> None:
    for name in ("el", "ako", "shatter"):
        session, _ = start(CASES[name])
        good, bad = watches(session)[1], watches(session)[1]
        records = stepped(session)
        came = [r for r in records if 1 in r.arrived and r.sender != 1]
        share = share_of(came[0])
        data = share.payload.encoded
        infinite = replace(data, data=np.full(data.count, np.inf, "<f4").tobytes())
        zero = replace(share, payload=Payload(replace(data, data=bytes(len(data.data)))))
        wrong = [
            replace(share, payload=Payload(infinite)),
            replace(share, payload=Payload(replace(data, count=data.count + 1))),
            *(headed(zero, shard=(share.header.shard + by) % 3) for by in (1, 2)),
            headed(zero, shard=99),
            headed(zero, round=2),
            headed(zero, federation=1),
            headed(zero, sender=1),
        ]
        broken = [replace(came[0], data=b"no message")]
        broken += [replace(came[0], data=encode(one)) for one in wrong]
        expected = good.follow(1, records)
        found = bad.follow(1, broken + records)
        assert_same_bits(bad.model, good.model)
        assert [p.sender for p in found.pieces] == [p.sender for p in expected.pieces]


def headed(share: Share, **changes: int) -> Share:
    return replace(share, header=replace(share.header, **changes))


# Scores


@pytest.mark.parametrize(
    "method", [EpidemicLearning(degree=3), Shatter(3, 4), Ako(partitions=3)], ids=lambda m: m.name
)
def test_scores_are_those_of_plain_loops(method: GossipMethod) -> None:
    run = learnt_by_heart(method, rounds=2)
    owners = true_owners(run.settings, run.transcript.records)
    found = audited(run)
    watch, samples, m = run.watch(1), run.samples, len(run.candidates)
    slow = {(a, s): np.zeros(m) for a in (LINKED, UNLINKED) for s in SCORES}
    for round, records in run.rounds():
        sight = watch.follow(round, records)
        gradients = dict(samples.gradients(sight.model))
        before = samples.losses(sight.model)
        for c in range(m):
            groups = {UNLINKED: [[piece] for piece in sight.pieces], LINKED: []}
            mine = [p for p in sight.pieces if owners[p.sender] == run.candidates.client[c]]
            groups[LINKED] = [mine] if mine else []
            for attacker, parts in groups.items():
                for part in parts:
                    seen = np.concatenate([p.update for p in part]).astype(np.float64)
                    mask = np.concatenate([p.coordinates for p in part])
                    gradient = gradients[c][mask].astype(np.float64)
                    inner, norm = gradient @ seen, np.linalg.norm(gradient)
                    after = samples.losses(sight.completed(part), np.array([c]))[0]
                    for score, value in (
                        (ALIGNED, inner),
                        (NORMALISED, inner / norm),
                        (COSINE, inner / norm / np.linalg.norm(seen)),
                        (LOSS, before[c] - after),
                    ):
                        slow[attacker, score][c] += value / len(parts)
    others = np.flatnonzero(run.candidates.client != 1)
    for (attacker, score), expected in slow.items():
        name = f"neighbour 1, {attacker}"
        np.testing.assert_array_equal(found.judged[name], others)
        np.testing.assert_allclose(found.scores[name, score], expected[others], atol=1e-5)


@pytest.mark.parametrize(
    "method", [EpidemicLearning(degree=3), Shatter(3, 4)], ids=lambda m: m.name
)
def test_the_view_is_honest(method: GossipMethod) -> None:
    """All messages the neighbour never saw are deleted, and nothing changes."""
    run = learnt_by_heart(method, rounds=3)
    seen = list(run.transcript.as_neighbour(1).records)
    assert 0 < len(seen) < len(run.transcript.records)
    reports = [audited(run, records=records) for records in (run.transcript.records, seen)]
    assert len(reports[0].scores) == 8
    for key, scores in reports[0].scores.items():
        np.testing.assert_array_equal(reports[1].scores[key], scores)


def test_a_planted_leak_is_found_by_who_knows_the_sender() -> None:
    """One full step from a common start: what is sent is the mean of the samples' gradients."""
    found = audited(learnt_by_heart(EpidemicLearning(degree=5)))
    for score in SCORES:
        linked = found.finding("neighbour 1, linked", score)
        unlinked = found.finding("neighbour 1, unlinked", score)
        assert linked.roc.auc > 0.95
        assert linked.pooled.accuracy > 0.95
        assert unlinked.roc.auc < linked.roc.auc - 0.05
        assert linked.visible == 60 * 3 + 3


def test_shatters_chunks_leak_less_without_names() -> None:
    run = learnt_by_heart(Shatter(3, 6), rounds=4)
    found = audited(run)
    linked = found.finding("neighbour 1, linked", COSINE)
    assert linked.roc.auc > 0.9
    assert found.finding("neighbour 1, unlinked", COSINE).roc.auc < linked.roc.auc - 0.05
    nameless = audited(run, told=False)
    assert {finding.observer for finding in nameless.findings} == {"neighbour 1, unlinked"}


def test_permuted_membership_gives_no_signal() -> None:
    run = learnt_by_heart(EpidemicLearning(degree=5))
    shuffle = Stream(3, "test-shuffle").permutations(1, len(run.candidates))[0]
    truth = run.candidates
    permuted = Candidates(truth.inputs, truth.targets, truth.client, truth.included[shuffle])
    found = audited(replace(run, candidates=permuted))
    assert len(found.scores) == 8
    for key, scores in found.scores.items():
        places = found.judged[key[0]]
        assert not tells(scores, permuted.included[places]), key
    assert any(tells(scores, truth.included[found.judged[key[0]]])
               for key, scores in found.scores.items())  # fmt: skip


def test_of_whom_nothing_was_seen_nothing_is_scored() -> None:
    run = learnt_by_heart(EpidemicLearning(degree=2))
    senders = {p.sender for _, r in run.rounds() for p in run.watch(1).follow(1, r).pieces}
    found = audited(run)
    client = run.candidates.client[found.judged["neighbour 1, linked"]]
    for score in SCORES:
        scores = found.scores["neighbour 1, linked", score]
        assert len(senders) == 2
        np.testing.assert_array_equal(scores != 0, np.isin(client, list(senders)))


def test_several_neighbours_are_judged_each_for_itself() -> None:
    run = learnt_by_heart(EpidemicLearning(degree=3), rounds=2)
    both = audited(run, (0, 4))
    for member in (0, 4):
        alone = audited(run, (member,))
        for (observer, score), scores in alone.scores.items():
            assert observer.startswith(f"neighbour {member}, ")
            np.testing.assert_array_equal(both.scores[observer, score], scores)


def test_rounds_that_are_skipped_are_followed() -> None:
    run = learnt_by_heart(EpidemicLearning(degree=3), rounds=3)
    looking, rounds = run.watch(1), dict(run.rounds())
    audit = NeighbourAudit([looking], run.samples, run.candidates, FEW, losses=False)
    show(Neighbourhood((looking,)), 1, rounds[1])
    show(Neighbourhood((looking,)), 2, rounds[2], [audit])
    whole = run.watch(1)
    whole.follow(1, rounds[1])
    whole.follow(2, rounds[2])
    assert audit.rounds == 1
    assert_same_bits(looking.model, whole.model)
    assert LOSS not in {finding.score for finding in audit.report().findings}


# Bad input


def test_observers_that_are_no_neighbours_are_refused() -> None:
    session, _ = start(CASES["shatter"])
    settings, seen = GossipSettings.from_canonical(session.settings), recorded(session)
    with pytest.raises(InvalidSetting, match="observer is 24; expected a member's number, 0 to 23"):
        seen.neighbour(24)
    with pytest.raises(InvalidSetting, match="'neighbour 6'; expected a node that trains, 0 to 5"):
        NeighbourWatch(settings, initial(), seen.neighbour(6))  # a virtual node
    with pytest.raises(InvalidSetting, match="'coalition of 2'; expected one neighbour"):
        NeighbourWatch(settings, initial(), seen.coalition([0, 1]))
    with pytest.raises(InvalidSetting, match="initial model is"):
        NeighbourWatch(settings, initial()[1:], seen.neighbour(0))


def test_a_run_with_aggregators_has_no_neighbours() -> None:
    federation = Federation(Crowd(3, N), initial(), ERIS(aggregators=2))
    transcript = federation.fit(1, record=True, progress=False).transcript
    assert transcript is not None
    with pytest.raises(InvalidSetting, match="a run in which nodes gossip"):
        transcript.neighbour(0)
    with pytest.raises(InvalidSetting, match="the agreement of members that gossip"):
        GossipSettings.from_canonical(transcript.settings)


def test_settings_that_say_too_little_are_refused() -> None:
    observer = Observer("neighbour", frozenset({0}))
    with pytest.raises(InvalidSetting, match=r"method is 'elf'.*did you mean 'el'"):
        NeighbourWatch(GossipSettings(N, 3, "elf"), initial(), observer)
    with pytest.raises(InvalidSetting, match="settings is 'without partitions'"):
        NeighbourWatch(GossipSettings(N, 3, "ako"), initial(), observer)


@dataclass(frozen=True)
class Whisper(EpidemicLearning):
    """A method that the audit has never heard of: half a step towards the neighbours."""

    name: ClassVar[str] = "whisper"

    def mixing(self, settings: GossipSettings) -> Mixing:
        return replace(super().mixing(settings), pace=0.5)


def test_a_new_method_says_itself_what_its_neighbours_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "METHODS", {**registry.METHODS, Whisper.name: Whisper})
    session, _ = start(Whisper(degree=3))
    session.step()
    session.step()
    watch = watches(session)[4]
    for round, some in by_round(recorded(session).records):
        pieces = watch.follow(round, some).pieces
    assert len(pieces) == 3
    assert_same_bits(watch.model, session.models()[4])


def test_an_audit_needs_neighbours_rounds_and_clients_that_exist() -> None:
    run = learnt_by_heart(EpidemicLearning(degree=3))
    samples, some = run.samples, run.candidates
    with pytest.raises(InvalidSetting, match="at least one neighbour"):
        NeighbourAudit([], samples, some)
    with pytest.raises(InvalidSetting, match="rounds is 0"):
        NeighbourAudit([run.watch(0)], samples, some).report()
    strange = Candidates(some.inputs, some.targets, some.client + 1, some.included)
    with pytest.raises(InvalidSetting, match="client of a candidate is 6"):
        NeighbourAudit([run.watch(0)], samples, strange)
