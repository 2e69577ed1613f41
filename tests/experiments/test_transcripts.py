"""Transcripts in parts: joined, they are what was recorded, whatever was left over."""

from __future__ import annotations

from pathlib import Path

from eris.experiments.runs.checkpoint import TranscriptParts, write_transcript
from eris.protocol.transcript import Transcript
from eris.protocol.view import View

VIEW = View.serverless(["anna", "ben", "cleo"], aggregators=1)


def recorded(rounds: int) -> Transcript:
    transcript = Transcript(VIEW, "{}")
    for round in range(1, rounds + 1):
        for sender in (1, 2):
            data = b"round %d" % round
            transcript.record(round, sender, (0,), data).arrived.add(0)
    return transcript


def test_parts_hold_what_came_since_the_last(tmp_path: Path) -> None:
    parts = TranscriptParts(tmp_path)
    assert parts.load(0) == []
    for round in (2, 4, 4):  # the last one twice: a checkpoint, and then a stop
        parts.save(recorded(round), round)
    assert [len(Transcript.load(tmp_path / f"00000{n}.eris").records) for n in (2, 4)] == [4, 4]
    assert TranscriptParts(tmp_path).load(4) == recorded(4).records


def test_a_part_whose_checkpoint_was_never_written_is_forgotten(tmp_path: Path) -> None:
    first = TranscriptParts(tmp_path)
    first.save(recorded(2), 2)
    first.save(recorded(3), 3)  # killed here: the checkpoint is still that of round 2
    second = TranscriptParts(tmp_path)
    assert second.load(2) == recorded(2).records
    second.save(recorded(4), 4)
    assert TranscriptParts(tmp_path).load(4) == recorded(4).records


def test_a_transcript_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "transcript.eris"
    write_transcript(recorded(1), path)
    write_transcript(recorded(2), path)
    assert Transcript.load(path).records == recorded(2).records
    assert [path.name for path in tmp_path.iterdir()] == ["transcript.eris"]
