"""What a node has answered about encrypted sums is on its disk before it leaves, and bounded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eris.core.errors import ErisError
from eris.protocol.enccluster.answering import RevealKey
from eris.protocol.enccluster.sending import KEPT_ROUNDS
from eris.protocol.enccluster.shares import KeyShare
from eris.runtimes.grpc import answers
from eris.runtimes.grpc.answers import ANSWERS, AnswerFile
from support.killed import killed_while_writing

PROGRAM = """
import sys
from pathlib import Path
from eris.protocol.enccluster.answering import RevealKey
from eris.protocol.enccluster.shares import KeyShare
from eris.runtimes.grpc.answers import AnswerFile

file = AnswerFile(Path(sys.argv[1]))
for number in range(100_000):
    file.write(RevealKey(bytes(32), 1, 0, number), KeyShare(bytes(32), number.to_bytes(32, "big")))
    print(number, flush=True)
"""


def answer(round: int, segment: int = 0) -> tuple[RevealKey, KeyShare]:
    return RevealKey(bytes(32), round, 0, segment), KeyShare(bytes(32), round.to_bytes(32, "big"))


def test_a_node_that_starts_again_has_what_it_answered(tmp_path: Path) -> None:
    file = AnswerFile(tmp_path)
    for round in (1, 2, 3):
        file.write(*answer(round))
    assert AnswerFile(tmp_path).answers == dict(answer(round) for round in (1, 2, 3))


def test_what_was_answered_survives_a_kill(tmp_path: Path) -> None:
    last = killed_while_writing(PROGRAM, tmp_path)
    found = {key.segment for key in AnswerFile(tmp_path).answers}
    assert found >= set(range(last + 1))


def test_a_line_that_was_torn_did_not_leave(tmp_path: Path) -> None:
    AnswerFile(tmp_path).write(*answer(1))
    with (tmp_path / ANSWERS).open("ab") as file:
        file.write(b'{"federation": "00')
    again = AnswerFile(tmp_path)
    assert again.answers == dict([answer(1)])
    again.write(*answer(2))
    assert AnswerFile(tmp_path).answers == dict(map(answer, (1, 2)))


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    AnswerFile(tmp_path).write(*answer(1))
    path = tmp_path / ANSWERS
    path.write_bytes(b"nonsense\n" + path.read_bytes())
    with pytest.raises(ErisError, match=r"answers.jsonl is damaged .* remove it"):
        AnswerFile(tmp_path)


def test_rounds_that_are_long_over_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "MOST_LINES", 40)
    file = AnswerFile(tmp_path)
    for round in range(1, 200):
        file.write(*answer(round))
        lines = (tmp_path / ANSWERS).read_bytes().count(b"\n")
        assert lines <= 2 * (40 + KEPT_ROUNDS)
    assert max(key.round for key in AnswerFile(tmp_path).answers) == 199
    assert len(AnswerFile(tmp_path).answers) == KEPT_ROUNDS + 1


def test_what_cannot_be_written_is_not_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = AnswerFile(tmp_path)
    file.write(*answer(1))

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as now:
        now.setattr(os, "fsync", full)
        with pytest.raises(ErisError, match=r"answers\.jsonl"):
            file.write(*answer(2))
    file.write(*answer(2))
    assert AnswerFile(tmp_path).answers.keys() >= {answer(2)[0]}
