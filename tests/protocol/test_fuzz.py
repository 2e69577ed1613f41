"""Damaged bytes: the codec, a live node and the reader of transcripts refuse them by name, allocate
little for them and keep what they had. The campaign is ``python -m eris.testing.fuzz``."""

from __future__ import annotations

import struct
import tracemalloc
from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from eris.core.compress import Encoded, Encoding
from eris.core.errors import ErisError, MalformedMessage
from eris.protocol import codec
from eris.protocol import eris_pb2 as pb
from eris.protocol.codec import Limits, decode, encode
from eris.protocol.messages import Header, Message, Outgoing, Payload, Result
from eris.protocol.round.roles import Node
from eris.protocol.settings import Settings
from eris.protocol.transcript import Transcript
from eris.testing import SyntheticTraining, agree, fuzz
from eris.testing.damage import TO_BYTES, TO_FIELDS, Damage, Dice, leave_alone, parse, serialise
from eris.testing.fuzz import Victim
from support.engines import in_step

CASES = 20_000
ALL_DAMAGE = (*TO_BYTES, *TO_FIELDS)


@pytest.fixture(scope="module")
def victims() -> list[Victim]:
    return fuzz.victims()


def test_no_damage_breaks_the_codec_or_a_node() -> None:
    tally = fuzz.run(CASES)
    assert not tally.findings, "\n".join(map(str, tally.findings))
    assert tally.cases == CASES
    # The campaign means something only if it gets everywhere.
    kinds = {"Contribution", "Result", "CatchUp", "Snapshot", "Refusal", "Share", "Holding"}
    assert all(tally.decoded[kind] > 100 for kind in kinds), tally.decoded
    assert len(tally.malformed) >= 14, tally.malformed
    assert tally.refused > 1_000
    assert tally.moved > 100


def test_the_corpus_is_valid_and_holds_every_kind(victims: list[Victim]) -> None:
    for victim in victims:
        kinds = Counter(type(decode(data)).__name__ for data in victim.corpus)
        everything = {
            "Contribution",
            "Result",
            "CatchUp",
            "Snapshot",
            "Refusal",
            "Share",
            "Holding",
        }
        assert set(kinds) == everything
        for data in victim.corpus:
            assert serialise(parse(data)) == data
            assert encode(decode(data)) == data


@pytest.mark.parametrize("damage", ALL_DAMAGE, ids=lambda damage: damage.__name__)
def test_each_kind_of_damage_does_harm(damage: Damage, victims: list[Victim]) -> None:
    corpus = victims[1].corpus
    changed = 0
    for number in range(100):
        dice = Dice(5, number)
        data = dice.pick(corpus)
        changed += damage(data, dice.pick(corpus), dice) != data
    assert changed == 0 if damage is leave_alone else changed > 80


def test_a_case_can_be_repeated_by_its_number(victims: list[Victim]) -> None:
    corpus = victims[0].corpus
    once = [fuzz.case(corpus, 3, number) for number in range(50)]
    assert [fuzz.case(corpus, 3, number) for number in reversed(range(50))] == once[::-1]
    assert [fuzz.case(corpus, 4, number) for number in range(50)] != once


# The fuzzer itself: each law it checks is broken once, and it says so.


def test_a_codec_that_raises_something_else_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def fragile(field: str, parsed: pb.Payload) -> Payload:
        return Payload(Encoded(Encoding(parsed.encoding), 0, b""))

    monkeypatch.setattr(codec, "_payload", fragile)
    problems = [finding.problem for finding in fuzz.run(2_000).findings]
    assert any("ValueError" in problem and "Encoding" in problem for problem in problems)


def test_a_codec_that_loses_something_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(message: Message) -> bytes:
        if isinstance(message, Result):
            header = Header(1, 1, 1, message.header.round, 0, 0)
            message = Result(header, message.previous, frozenset(), 0, 0, None)
        return encode(message)

    attacked = fuzz.victims()
    monkeypatch.setattr(fuzz, "victims", lambda: attacked)
    monkeypatch.setattr(fuzz, "encode", forgetful)
    findings = fuzz.run(2_000).findings
    assert any("does not survive" in finding.problem for finding in findings)


@pytest.mark.parametrize(
    ("harm", "problem"),
    [
        (lambda node: node.model.__setitem__(3, np.nan), "not finite"),
        (lambda node: node.model.__iadd__(np.float32(1)), "coordinates of another segment"),
        (lambda node: node.refused.append("no"), "that was refused or asks moved the state"),
        (lambda node: node.replica.versions.update({(0, 0): 0}), "a version went back"),
        (lambda node: node.replica.versions.update({(1, 1): 9}), "the version of another segment"),
        (lambda node: node.nothing, "AttributeError"),
    ],
)
def test_a_node_that_breaks_a_law_is_found(
    harm: object, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert callable(harm)
    honest = Node.receive
    attacked = fuzz.victims()[:1]
    monkeypatch.setattr(fuzz, "victims", lambda: attacked)

    def harmed(node: Node, message: Message, source: int) -> list[Outgoing]:
        before = node.model.copy()
        out = honest(node, message, source)
        if (node.model != before).any():
            harm(node)
        return out

    monkeypatch.setattr(Node, "receive", harmed)
    findings = fuzz.run(4_000).findings
    assert any(problem in finding.problem for finding in findings), findings


def test_the_command_counts_and_fails_on_findings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["fuzz", "--count", "70", "--seed", "2"])
    assert fuzz.main() == 0
    assert capsys.readouterr().out.strip().splitlines()[-1].startswith("70 cases: ")
    attacked = fuzz.victims()
    monkeypatch.setattr(fuzz, "victims", lambda: attacked)
    monkeypatch.setattr(Node, "receive", lambda *_: 1 / 0)
    monkeypatch.setattr("sys.argv", ["fuzz", "--count", "640"])
    assert fuzz.main() == 1
    assert "ZeroDivisionError" in capsys.readouterr().out


# Memory.


def peak_of_decoding(data: bytes, limits: Limits) -> int:
    """Bytes that decoding holds at its height, beyond what was held before."""
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    with suppress(MalformedMessage):
        decode(data, limits)
    return tracemalloc.get_traced_memory()[1] - before


def test_decoding_allocates_in_proportion(victims: list[Victim]) -> None:
    sample = [fuzz.case(victim.corpus, 9, n)[1] for victim in victims for n in range(300)]
    long = encode(Result(Header(1, 1, 1, 2, 0, 0), 1, frozenset(), 0, 0, None))
    sample += [long + bytes(n) for n in (1_000, 100_000)]
    sample += [long + b"\x7a" + struct.pack("<B", 0x7F) + bytes(n) for n in (127, 10_000)]
    sample += [data for victim in victims for data in victim.corpus]
    tracemalloc.start()
    try:
        for data in sample:
            assert peak_of_decoding(data, Limits()) <= 8 * len(data) + (64 << 10), data.hex()
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("members", [100, 10_000])
def test_an_included_set_costs_in_proportion_to_the_members(members: int) -> None:
    """A bit on the wire is a number in a set here, so a receiver says how many it will read."""
    payload = Payload(Encoded(Encoding.DENSE, 0, b""))
    everyone = frozenset(range(members))
    data = encode(Result(Header(1, 1, 1, 2, 0, 0), 1, everyone, members, members, payload))
    tracemalloc.start()
    try:
        whole = peak_of_decoding(data, Limits(members=members))
        refused = peak_of_decoding(data, Limits(members=members // 2))
    finally:
        tracemalloc.stop()
    assert whole <= 8 * len(data) + (64 << 10) + 128 * members
    assert refused <= 8 * len(data) + (64 << 10)


# Transcripts.


def test_a_damaged_transcript_is_refused_or_read(tmp_path: Path) -> None:
    agreement = agree(Settings(n=9), clients=3)
    engine = in_step(agreement, SyntheticTraining(9))
    transcript = Transcript(agreement.view, "{}", engine.run_round(1).records, engine.models()[0])
    path = tmp_path / "run.transcript"
    transcript.save(path)
    whole = path.read_bytes()
    assert Transcript.load(path).records == transcript.records
    outcomes: Counter[str] = Counter()
    for number in range(2_000):
        dice = Dice(11, number)
        path.write_bytes(dice.pick(TO_BYTES)(whole, whole, dice))
        try:
            loaded = Transcript.load(path)
        except ErisError as error:
            outcomes[type(error).__name__] += 1
            continue
        outcomes["read"] += 1
        for record in loaded.records:
            try:
                record.message  # noqa: B018
            except MalformedMessage:
                outcomes["a record is malformed"] += 1
    assert {"read", "MalformedMessage", "a record is malformed"} <= set(outcomes), outcomes


def test_a_final_model_cut_inside_a_value_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cut.transcript"
    header = pb.TranscriptHeader(
        version=1, members=["anna"], clients=[0], owners=[0], final_model=b"12345"
    ).SerializeToString()
    path.write_bytes(b"ERIS-TRANSCRIPT\n" + len(header).to_bytes(8, "little") + header)
    with pytest.raises(MalformedMessage, match="final model: is not made of float32 values"):
        Transcript.load(path)
