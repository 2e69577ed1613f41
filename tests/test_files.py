"""Files on the way to the disk: in which order, for whose eyes, and what a failure leaves."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from eris.data.cache import write_atomically
from eris.experiments.runs import checkpoint as runs
from eris.files import Growing, replace, tidy
from eris.protocol.transcript import Transcript
from eris.protocol.view import View
from eris.runtimes.grpc import pem, storage
from eris.runtimes.grpc.authority import write_ledger
from eris.runtimes.grpc.journal import Journal
from eris.runtimes.grpc.ledger import Ledger
from eris.runtimes.grpc.recorder import Recorder

MODEL = np.ones(8, np.float32)
VIEW = View(("anna", "ben"), (0, 1), (0,), None, 1)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Path]]:
    """What the system is asked to put on the disk, and under which name."""
    seen: list[tuple[str, Path]] = []
    fsync, rename = os.fsync, os.replace

    def synced(descriptor: int) -> None:
        seen.append(("sync", Path(os.readlink(f"/proc/self/fd/{descriptor}"))))
        fsync(descriptor)

    def renamed(source: Path, target: Path) -> None:
        seen.append(("rename", Path(source)))
        seen.append(("to", Path(target)))
        rename(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    return seen


@pytest.fixture
def lax() -> Iterator[None]:
    """A process that hides nothing of what it makes."""
    before = os.umask(0)
    yield
    os.umask(before)


def record(folder: Path) -> None:
    recorder = Recorder(folder, 0, "settings")
    recorder.in_view(VIEW)
    recorder.received(1.0, 1, b"message")
    recorder.close(MODEL)


WRITTEN: dict[str, Callable[[Path], None]] = {
    "checkpoint.safetensors": lambda at: storage.save(at / storage.CHECKPOINT, {"m": MODEL}, {}),
    "ledger.json": lambda at: write_ledger(at, 7),
    "transcript.eris": record,
    "ca.pem": lambda at: pem.replace(at / "ca.pem", b"certificate"),
    "SOURCE.json": lambda at: write_atomically(at / "SOURCE.json", b"{}"),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_bytes_are_on_the_disk_before_the_name_and_the_name_before_the_return(
    name: str, tmp_path: Path, calls: list[tuple[str, Path]]
) -> None:
    WRITTEN[name](tmp_path)
    at = calls.index(("to", tmp_path / name))
    (what, under), (_, temporary) = calls[at - 2], calls[at - 1]
    assert what == "sync"
    assert under == temporary
    assert temporary.parent == tmp_path
    assert calls[at + 1 :] == [("sync", tmp_path)]
    assert {path.name for path in tmp_path.iterdir()} >= {name}
    assert not list(tmp_path.glob(".*"))


@pytest.mark.usefixtures("lax")
def test_only_the_owner_reads_models_updates_journals_and_ledgers(tmp_path: Path) -> None:
    storage.save(tmp_path / storage.CHECKPOINT, {"m": MODEL}, {})
    write_ledger(tmp_path, 7)
    record(tmp_path)
    Transcript(VIEW).save(tmp_path / "saved.eris")
    with Journal(tmp_path / "journal.jsonl") as journal:
        journal.write("began", round=1)
    ledger = Ledger(tmp_path / "directory.sqlite")
    beside = {path.name for path in tmp_path.glob("directory.sqlite*")}
    state = runs.Checkpoint(1, {"model": MODEL}, {})
    runs.save(tmp_path / "checkpoint", state)
    found = {path: path.stat().st_mode for path in tmp_path.iterdir() if path.is_file()}
    found[tmp_path / "state"] = (
        (tmp_path / "checkpoint" / "round-000001" / runs.STATE).stat().st_mode
    )
    ledger.close()
    assert len(beside) >= 2
    assert len(found) >= 9
    assert {path.name: stat.S_IMODE(mode) for path, mode in found.items()} == {
        path.name: 0o600 for path in found
    }


@pytest.mark.usefixtures("lax")
def test_a_file_is_closed_to_others_from_its_first_byte(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(b"open to all")
    (tmp_path / "model").chmod(0o644)
    modes = []

    def pieces() -> Iterator[bytes]:
        for piece in (b"first", b"last"):
            (temporary,) = tmp_path.glob(".model.*")
            modes.append(stat.S_IMODE(temporary.stat().st_mode))
            yield piece

    replace(tmp_path / "model", pieces())
    assert modes == [0o600, 0o600]
    assert stat.S_IMODE((tmp_path / "model").stat().st_mode) == 0o600


def test_what_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    replace(tmp_path / "model", [b"old"])

    def broken() -> Iterator[bytes]:
        yield b"ne"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replace(tmp_path / "model", broken())
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"model": b"old"}


def test_what_a_kill_left_in_a_folder_is_removed(tmp_path: Path) -> None:
    replace(tmp_path / "model", [b"whole"])
    (tmp_path / ".model.1234abcd.tmp").write_bytes(b"ha")
    tidy(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_new_file_that_grows_has_its_name_on_the_disk(
    tmp_path: Path, calls: list[tuple[str, Path]]
) -> None:
    for expected in ([("sync", tmp_path)], []):
        calls.clear()
        Growing(tmp_path / "records", lambda file, size: size).close()
        assert calls == expected


def test_a_kill_at_any_moment_leaves_a_whole_file_no_older_than_what_was_told(
    tmp_path: Path,
) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from eris.files import replace\n"
        "path = Path(sys.argv[1])\n"
        "for number in range(10**9):\n"
        "    replace(path, [b'%012d' % number] * 50_000)\n"
        "    sys.stdout.write(f'{number}\\n'); sys.stdout.flush()\n"
    )
    path = tmp_path / "model"
    for patience in range(1, 6):
        process = subprocess.Popen(
            [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        with process.stdout as told:
            for _ in range(patience):
                assert told.readline()
            process.send_signal(signal.SIGKILL)
            acknowledged = [patience - 1, *map(int, told.read().split("\n")[:-1])][-1]
        assert process.wait() == -signal.SIGKILL
        found = path.read_bytes()
        assert found == found[:12] * 50_000
        assert int(found[:12]) >= acknowledged
    tidy(tmp_path)
    assert list(tmp_path.iterdir()) == [path]
