"""What an observer is given: the messages sent by it and to it, cut from the record of a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eris.core.compress import RandP
from eris.core.errors import ErisError, InvalidSetting, MalformedMessage
from eris.core.rules import FedAvg
from eris.core.shards import RandomPlan
from eris.protocol import eris_pb2 as pb
from eris.protocol.messages import Contribution, Result
from eris.protocol.schemes import Masked
from eris.protocol.settings import Settings
from eris.protocol.transcript import Observation, Transcript
from eris.protocol.view import View
from eris.runtimes.faults import FaultPlan
from eris.testing import SyntheticTraining, agree, assert_same_bits, on_the_clock
from support.plans import random_faults

N, CLIENTS, ROUNDS = 40, 5, 3


def transcript(*, servers: int = 0, faults: int | None = None, shards: int = 3) -> Transcript:
    """A run of five clients, three of whom own a shard unless there are servers."""
    settings = Settings(
        n=N, plan=RandomPlan(shards), rule=FedAvg(0.1), scheme=Masked(RandP(0.5)), segment_size=8
    )
    agreement = agree(settings, clients=CLIENTS, servers=servers)
    plan = None if faults is None else random_faults(faults)
    engine = on_the_clock(agreement, SyntheticTraining(N, 1), faults=plan)
    found = Transcript(agreement.view, settings.canonical)
    for round in range(1, ROUNDS + 1):
        found.records += engine.run_round(round).records
    found.final_model = engine.models()[0].copy()
    return found


@pytest.fixture(scope="module", params=[None, 4, 7], ids=["clean", "faults", "other faults"])
def run(request: pytest.FixtureRequest) -> Transcript:
    return transcript() if request.param is None else transcript(faults=request.param)


def names(results: Observation) -> set[tuple[int, tuple[int, int]]]:
    return {(result.header.round, result.header.key) for result in results.results()}


# -- who sees what --------------------------------------------------------------------------------


def test_an_aggregator_sees_others_contributions_to_its_shards_alone(run: Transcript) -> None:
    for owner in range(3):
        seen = run.as_aggregator(owner)
        for contribution in seen.contributions():
            assert run.membership.owners[contribution.header.shard] == owner
            assert contribution.header.sender != owner
        reached_it = {
            record.data
            for record in run.records
            if owner in record.arrived
            and record.sender != owner
            and isinstance(record.message, Contribution)
        }
        assert reached_it == {
            record.data
            for record in seen.records
            if record.sender != owner and isinstance(record.message, Contribution)
        }
        assert reached_it


def test_every_contribution_is_seen_by_one_aggregator(run: Transcript) -> None:
    views = [set(run.as_aggregator(owner).contributions()) for owner in range(3)]
    everything = {
        r.message
        for r in run.records
        if isinstance(r.message, Contribution) and r.arrived - {r.sender}
    }
    assert set().union(*views) == everything
    assert sum(map(len, views)) == len(everything)


def test_a_plain_member_sees_all_results_and_no_foreign_contribution() -> None:
    run = transcript()
    seen = run.as_member(4)
    assert list(seen.contributions()) == []
    assert names(seen) == {(round, key) for round in range(1, ROUNDS + 1) for key in keys()}
    own = [m for m in seen.messages() if isinstance(m, Contribution)]
    assert {message.header.sender for message in own} == {4}
    assert len(own) == len(keys()) * ROUNDS


def keys() -> list[tuple[int, int]]:
    return [(shard, segment) for shard in range(3) for segment in range(2)]


def test_as_plain_members_owners_see_no_foreign_contribution_either(run: Transcript) -> None:
    for member in range(CLIENTS):
        seen = run.as_member(member)
        assert list(seen.contributions()) == []
        assert names(seen) >= names(run.as_coalition([member]))


def test_every_member_makes_or_gets_every_result_of_a_clean_run() -> None:
    run = transcript()
    for member in range(CLIENTS):
        assert len(names(run.as_member(member))) == ROUNDS * len(keys())
    for owner in range(3):
        assert names(run.as_aggregator(owner)) == names(run.as_member(owner))


def test_a_coalition_sees_the_union(run: Transcript) -> None:
    for group in ([0], [0, 1], [1, 2, 4], [3, 4], range(CLIENTS)):
        members = list(group)
        seen = run.as_coalition(members)
        parts = [set(run.as_coalition([m]).records) for m in members]
        assert set(seen.records) == set().union(*parts)
        assert seen.members == frozenset(members)
        # Contributions from inside the group are no news to it.
        assert all(c.header.sender not in members for c in seen.contributions())
    assert run.as_coalition([0]).records == run.as_aggregator(0).records
    assert list(run.as_coalition(range(CLIENTS)).contributions()) == []


def test_a_coalition_of_owners_completes_the_others_updates() -> None:
    run = transcript()
    for size, colluders in ((1, [0]), (2, [0, 1]), (3, [0, 1, 2])):
        seen = run.as_coalition(colluders)
        shards = {c.header.shard for c in seen.contributions() if c.header.sender == 4}
        assert len(shards) == size


def test_a_link_carries_one_direction_of_one_pair(run: Transcript) -> None:
    seen = run.as_link(4, 0)
    assert seen.records
    for record in seen.records:
        assert record.sender == 4
        assert 0 in record.receivers
    contributions = list(seen.contributions())
    assert {c.header.shard for c in contributions} == {0}
    assert {c.header.sender for c in contributions} == {4}
    back = run.as_link(0, 4)
    assert all(record.sender == 0 for record in back.records)
    assert list(back.contributions()) == []


def test_records_keep_their_order(run: Transcript) -> None:
    for seen in (run.as_aggregator(1), run.as_member(4), run.as_coalition([0, 3])):
        times = [record.time for record in seen.records]
        assert times == sorted(times)


def test_a_server_sees_every_whole_update() -> None:
    run = transcript(servers=1, shards=1)
    seen = run.as_server()
    assert {c.header.sender for c in seen.contributions()} == set(range(CLIENTS))
    every = [r.message for r in run.records if isinstance(r.message, Contribution)]
    assert list(seen.contributions()) == every
    assert seen.observer == "server"


def test_there_is_no_server_where_many_own() -> None:
    with pytest.raises(InvalidSetting, match=r"observer is 'server'; expected one owner; .* had 3"):
        transcript().as_server()


def test_the_final_model_alone() -> None:
    run = transcript()
    seen = run.as_final_model()
    assert seen.records == ()
    assert seen.final_model is not None
    assert run.final_model is not None
    assert_same_bits(seen.final_model, run.final_model)
    assert run.as_member(0).final_model is None
    with pytest.raises(InvalidSetting, match="'final model'; expected a transcript of a finished"):
        Transcript(run.membership).as_final_model()


@pytest.mark.parametrize(
    ("look", "message"),
    [
        (lambda t: t.as_aggregator(4), r"observer is 4; expected a member that owns .*: 0, 1, 2"),
        (lambda t: t.as_aggregator(99), r"observer is 99; expected a member that owns"),
        (lambda t: t.as_member(5), r"observer is 5; expected a member's number, 0 to 4"),
        (lambda t: t.as_member(-1), r"observer is -1; expected a member's number, 0 to 4"),
        (lambda t: t.as_coalition([0, 7]), r"observer is 7; expected a member's number"),
        (lambda t: t.as_link(9, 0), r"observer is 9; expected a member's number"),
        (lambda t: t.as_link(0, 9), r"observer is 9; expected a member's number"),
    ],
)
def test_observers_that_do_not_exist(look: Callable[[Transcript], object], message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        look(transcript())


# -- files ----------------------------------------------------------------------------------------


def test_a_transcript_survives_its_file(tmp_path: Path, run: Transcript) -> None:
    path = tmp_path / "run.eris"
    run.save(path)
    again = Transcript.load(path)
    assert again.records == run.records
    assert again.settings == run.settings
    assert again.membership.members == run.membership.members
    assert again.membership.clients == run.membership.clients
    assert again.membership.owners == run.membership.owners
    assert again.final_model is not None
    assert run.final_model is not None
    assert_same_bits(again.final_model, run.final_model)
    assert again.as_aggregator(1).records == run.as_aggregator(1).records


def test_an_empty_transcript_survives_too(tmp_path: Path) -> None:
    path = tmp_path / "empty.eris"
    empty = Transcript(View.serverless(["anna", "ben", "cleo"], aggregators=2), "text")
    empty.save(path)
    assert Transcript.load(path) == empty


def saved(tmp_path: Path) -> tuple[Path, bytes]:
    path = tmp_path / "run.eris"
    transcript().save(path)
    return path, path.read_bytes()


def test_another_file_is_not_a_transcript(tmp_path: Path) -> None:
    for content in (b"", b"PK\x03\x04 something else", b"ERIS-TRANSCRIP"):
        path = tmp_path / "other"
        path.write_bytes(content)
        with pytest.raises(MalformedMessage, match=r"other: is not a transcript of this package"):
            Transcript.load(path)


def test_a_transcript_of_a_later_version(tmp_path: Path) -> None:
    path = tmp_path / "future.eris"
    header = pb.TranscriptHeader(version=9, members=["a"], clients=[0], owners=[0])
    data = header.SerializeToString()
    path.write_bytes(b"ERIS-TRANSCRIPT\n" + len(data).to_bytes(8, "little") + data)
    message = r"future\.eris: version: is 9; this package reads 1"
    with pytest.raises(MalformedMessage, match=message):
        Transcript.load(path)


def test_a_transcript_that_was_cut_off(tmp_path: Path) -> None:
    path, data = saved(tmp_path)
    path.write_bytes(data[:-3])
    with pytest.raises(MalformedMessage, match=r"run\.eris: ends in the middle of a record"):
        Transcript.load(path)
    path.write_bytes(data + b"\x05\x00\x00")
    with pytest.raises(MalformedMessage, match=r"a record's length is cut off or too large"):
        Transcript.load(path)


def test_a_record_longer_than_any(tmp_path: Path) -> None:
    path, data = saved(tmp_path)
    path.write_bytes(data + (1 << 62).to_bytes(8, "little") + b"x")
    with pytest.raises(MalformedMessage, match=r"a record's length is cut off or too large"):
        Transcript.load(path)


def test_a_damaged_record(tmp_path: Path) -> None:
    path, data = saved(tmp_path)
    path.write_bytes(data + (4).to_bytes(8, "little") + b"\xff\xff\xff\xff")
    with pytest.raises(MalformedMessage, match=r"run\.eris: is damaged"):
        Transcript.load(path)


def test_a_final_model_that_is_not_made_of_floats(tmp_path: Path) -> None:
    path = tmp_path / "odd.eris"
    header = pb.TranscriptHeader(
        version=1, members=["a"], clients=[0], owners=[0], final_model=b"12345"
    )
    data = header.SerializeToString()
    path.write_bytes(b"ERIS-TRANSCRIPT\n" + len(data).to_bytes(8, "little") + data)
    with pytest.raises(MalformedMessage, match="final model"):
        Transcript.load(path)


@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.data())
def test_damage_is_an_error_of_the_package_or_harmless(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "run.eris"
    if not path.exists():
        transcript().save(path)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        # Most of what can go wrong is in the header.
        at = data.draw(st.integers(0, 400) | st.integers(0, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255))
    broken = tmp_path / "broken.eris"
    broken.write_bytes(content)
    try:
        loaded = Transcript.load(broken)
    except ErisError:
        return
    for record in loaded.records:
        try:
            assert record.message.header.round >= 0
        except MalformedMessage:
            continue


def test_a_record_that_is_no_message_is_an_error_when_it_is_read() -> None:
    run = Transcript(View.serverless(["anna", "ben"], aggregators=1))
    run.record(0.0, 1, (0,), b"\xff\xff").arrived.add(0)
    seen = run.as_aggregator(0)
    assert len(seen.records) == 1
    with pytest.raises(MalformedMessage):
        list(seen.messages())


# -- what views are for ---------------------------------------------------------------------------


def test_an_aggregators_view_holds_its_share_of_each_update() -> None:
    # With A shards and the fraction p kept, an aggregator sees about p/A of a client's update.
    run = transcript()
    for owner in range(3):
        seen = [
            c
            for c in run.as_aggregator(owner).contributions()
            if c.header.round == 1 and c.header.sender == 4
        ]
        count = sum(c.payload.encoded.count for c in seen)
        assert 0 < count < N / 3


def test_results_are_the_same_to_every_observer() -> None:
    run = transcript()
    first = {(r.header.round, r.header.key): r for r in run.as_member(0).results()}
    for member in range(1, CLIENTS):
        other = {(r.header.round, r.header.key): r for r in run.as_member(member).results()}
        assert other == first
    assert all(isinstance(result, Result) for result in first.values())


def test_a_saved_transcript_keeps_agreed_weights_and_epoch(tmp_path: Path) -> None:
    view = View(("a", "b", "c"), (0, 1, 2), (1,), samples=(5, 7, 9), epoch=4)
    Transcript(view).save(tmp_path / "run.eris")
    assert Transcript.load(tmp_path / "run.eris").membership == view


def test_what_never_arrived_is_in_nobodys_view_but_the_links() -> None:
    agreement = agree(Settings(n=N, plan=RandomPlan(3), rule=FedAvg(0.1)), clients=3)
    engine = on_the_clock(agreement, SyntheticTraining(N, 1), faults=FaultPlan(link=1.0))
    cut = Transcript(agreement.view, records=engine.run_round(1).records)
    assert not list(cut.as_aggregator(0).contributions())
    assert not [r for r in cut.as_member(0).results() if r.header.sender != 0]
    assert list(cut.as_link(1, 0).contributions())


def test_a_members_own_update_is_wholly_in_its_view(tmp_path: Path) -> None:
    run = transcript()
    run.save(tmp_path / "run")
    for known in (run, Transcript.load(tmp_path / "run")):
        for member in range(CLIENTS):
            for seen in (known.as_member(member), known.as_coalition([member])):
                own = {(c.header.round, c.header.key) for c in seen.own()}
                assert own == {(round, key) for round in range(1, ROUNDS + 1) for key in keys()}
                assert {c.header.sender for c in seen.own()} == {member}
    # Nobody else sees what stayed at home.
    assert all(c.header.shard != 0 for c in run.as_link(0, 1).contributions())
