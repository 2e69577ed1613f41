"""The journal: what was written is there, whatever happened to the process or to the disk."""

from __future__ import annotations

import json
import logging
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from eris.core.errors import ErisError
from eris.runtimes.grpc.journal import LOST, Journal, read
from support.killed import killed_while_writing


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


@contextmanager
def no_file_beyond(size: int) -> Iterator[None]:
    """A disk with so much room: the kernel takes a part of what goes beyond, then refuses."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def rounds(path: Path) -> list[int]:
    return [line["round"] for line in read(path) if "round" in line]


def test_lines_are_read_as_they_were_written(path: Path) -> None:
    with Journal(path) as journal:
        journal.write("joined", name="anna", epoch=np.int64(1))
        journal.write("round closed", round=1, included={4, 0, 2}, loss=float("inf"), file=path)
        lines = list(read(path))  # while it is open
    assert all(datetime.fromisoformat(line.pop("time")).tzinfo == UTC for line in lines)
    assert lines == [
        {"event": "joined", "name": "anna", "epoch": 1},
        {"event": "round closed", "round": 1, "included": [0, 2, 4], "loss": "inf",
         "file": str(path)},
    ]  # fmt: skip
    with Journal(path) as journal:
        journal.write("joined", name="anna")
    assert [line["event"] for line in read(path)] == ["joined", "round closed", "joined"]


def test_values_of_an_update_have_no_place(path: Path) -> None:
    with Journal(path) as journal:
        for update in (np.zeros(3, np.float32), b"123"):
            with pytest.raises(TypeError, match="has no place in a journal"):
                journal.write("sent", update=update)
    assert path.read_bytes() == b""


def test_every_line_survives_the_kill_of_its_process(path: Path) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from eris.runtimes.grpc.journal import Journal\n"
        "journal = Journal(Path(sys.argv[1]))\n"
        "for round in range(10**9):\n"
        "    journal.write('round closed', round=round)\n"
        "    sys.stdout.write(f'{round}\\n'); sys.stdout.flush()\n"
    )
    acknowledged = killed_while_writing(program, path)
    found = rounds(path)
    assert found == list(range(len(found)))
    assert len(found) > acknowledged


@pytest.mark.parametrize("torn", [b'{"event": "clos', b"\0\0\0\0", b"{}}\n", b"3\n", b"\xff\n"])
def test_a_torn_last_line_is_left_out_and_cut_off(
    path: Path, torn: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with Journal(path) as journal:
        journal.write("round closed", round=1)
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    assert rounds(path) == [1]
    with Journal(path) as journal:
        assert path.read_bytes() == whole
        journal.write("round closed", round=2)
    assert rounds(path) == [1, 2]
    assert "torn line" in caplog.text


def test_a_line_torn_at_any_length_is_cut_off(path: Path) -> None:
    with Journal(path) as journal:
        journal.write("round closed", round=1)
        first = path.read_bytes()
        journal.write("round closed", round=2)
    whole = path.read_bytes()
    for length in range(len(first), len(whole)):
        path.write_bytes(whole[:length])
        with Journal(path) as journal:
            journal.write("round closed", round=3)
        assert rounds(path) == [1, 3]


def test_a_torn_line_longer_than_a_block_is_cut_off_whole(path: Path) -> None:
    with Journal(path) as journal:
        journal.write("round closed", round=1, included=list(range(50_000)))
    whole = path.read_bytes()
    assert len(whole) > 1 << 17
    path.write_bytes(whole + whole[:-1])
    Journal(path).close()
    assert path.read_bytes() == whole
    path.write_bytes(whole[:-1])
    Journal(path).close()
    assert path.read_bytes() == b""


def test_damage_before_the_end_is_told_with_its_line(path: Path) -> None:
    path.write_bytes(b'{"round": 1}\n{"rou\n{"round": 3}\n')
    lines = read(path)
    assert next(lines) == {"round": 1}
    with pytest.raises(ErisError, match=rf"journal {path}: line 2 is damaged"):
        next(lines)


def test_a_full_disk_costs_lines_that_are_counted_and_told_once(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "eris")
    with Journal(path) as journal:
        journal.write("round closed", round=1)
        size = path.stat().st_size
        for room in (0, 7, 200):  # none, a part of a line, a part of the second line
            caplog.clear()
            with no_file_beyond(size + room):
                for round in range(2, 10):
                    journal.write("round closed", round=round, filler="x" * 100)
                assert path.read_bytes().endswith(b"\n")
            assert [r.message for r in caplog.records] == ["journal is not written"]
            assert "File too large" in str(caplog.records[0].__dict__["fields"])
            lost = journal.lost
            assert lost == (7 if room == 200 else 8)
            journal.write("round closed", round=10)
            assert caplog.records[-1].message == "journal goes on"
            assert journal.lost == 0
            size = path.stat().st_size
            *_, note, last = read(path)
            assert (note["event"], note["count"], last["round"]) == (LOST, lost, 10)
    assert rounds(path) == [1, 10, 10, 2, 10]


def test_a_device_without_room_does_not_stop_the_node(caplog: pytest.LogCaptureFixture) -> None:
    with Journal(Path("/dev/full")) as journal:
        for round in range(5):
            journal.write("round closed", round=round)
        assert journal.lost == 5
    assert [record.message for record in caplog.records] == ["journal is not written"]
    assert os.strerror(28) in str(caplog.records[0].__dict__["fields"])


def test_a_nearly_full_disk_is_not_filled_with_notes(path: Path) -> None:
    with Journal(path) as journal:
        with no_file_beyond(150):
            for round in range(20):
                journal.write("round closed", round=round, filler="x" * 200)
        assert path.read_bytes() == b""
        assert journal.lost == 20


def test_threads_write_whole_lines(path: Path) -> None:
    with Journal(path) as journal:

        def write(thread: int) -> None:
            for number in range(50):
                journal.write("step", thread=thread, number=number, filler="x" * thread * 100)

        threads = [threading.Thread(target=write, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = [(line["thread"], line["number"]) for line in read(path)]
    assert sorted(found) == [(i, j) for i in range(4) for j in range(50)]


def test_a_journal_that_cannot_be_opened_or_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ErisError, match=r"journal .*missing.* cannot be opened: No such file"):
        Journal(tmp_path / "missing" / "journal.jsonl")
    with pytest.raises(ErisError, match=r"cannot be opened: Is a directory"):
        Journal(tmp_path)
    with pytest.raises(ErisError, match=r"cannot be read: No such file"):
        list(read(tmp_path / "none.jsonl"))


def test_lines_are_json_for_any_reader(path: Path) -> None:
    with Journal(path) as journal:
        journal.write("said", text='ä "\n\u2028', loss=[float("nan")])
    (line,) = path.read_bytes().split(b"\n")[:-1]
    assert line.isascii()

    def refuse(word: str) -> float:
        raise AssertionError(f"{word} is not JSON")

    assert json.loads(line, parse_constant=refuse)["text"] == 'ä "\n\u2028'
