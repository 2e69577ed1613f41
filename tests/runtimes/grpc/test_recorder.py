"""A node's recording: every message that passed is in it, whatever happened to the process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from eris.core.errors import ErisError
from eris.protocol.transcript import Record, Transcript, encoded_record
from eris.protocol.view import View
from eris.runtimes.grpc.recorder import RECORDS, TRANSCRIPT, Recorder
from support.killed import killed_while_writing
from support.limits import files_of_at_most

NAMES = ("anna", "ben", "cleo")
MODEL = np.arange(4, dtype=np.float32)


def view(epoch: int, *owners: int) -> View:
    return View(NAMES, (0, 1, 2), owners, None, epoch)


def closed(recorder: Recorder, folder: Path) -> Transcript:
    recorder.close(MODEL)
    return Transcript.load(folder / TRANSCRIPT)


def test_views_and_messages_of_all_starts_are_in_the_transcript(tmp_path: Path) -> None:
    for epoch, owners in ((1, (0, 1)), (2, (1, 2)), (4, (0, 2))):
        recorder = Recorder(tmp_path, 0, "settings")
        recorder.in_view(view(epoch, *owners))
        recorder.received(float(epoch), 1, b"from ben")
        if epoch == 2:
            continue  # it was killed: nothing is closed, and nothing is lost
        transcript = closed(recorder, tmp_path)
    assert {e: known.owners for e, known in transcript.epochs.items()} == {
        1: (0, 1),
        2: (1, 2),
        4: (0, 2),
    }
    assert [record.time for record in transcript.records] == [1.0, 2.0, 4.0]
    assert transcript.membership == view(4, 0, 2)
    assert transcript.final_model is not None


def test_a_torn_end_of_any_length_is_cut_off(tmp_path: Path) -> None:
    first, second = (
        encoded_record(Record(time, 1, (0,), b"message of ben", {0})) for time in (1.0, 2.0)
    )
    torn = [second[:length] for length in range(len(second))]
    torn += [bytes(length) for length in range(1, 40)]  # zeros, where data had no time
    torn += [second + b"\xff" * length for length in range(1, 12)]
    for number, rest in enumerate(torn):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / RECORDS).write_bytes(first + rest)
        recorder = Recorder(folder, 0, "settings")
        recorder.in_view(view(1, 0, 1))
        recorder.received(3.0, 2, b"message of cleo")
        times = [record.time for record in closed(recorder, folder).records]
        assert times == ([1.0, 2.0, 3.0] if rest.startswith(second) else [1.0, 3.0]), rest


def test_every_message_survives_the_kill_of_its_process(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from eris.protocol.view import View\n"
        "from eris.runtimes.grpc.recorder import Recorder\n"
        "recorder = Recorder(Path(sys.argv[1]), 0, 'settings')\n"
        "recorder.in_view(View(('anna', 'ben', 'cleo'), (0, 1, 2), (0, 1), None, 1))\n"
        "for number in range(10**9):\n"
        "    recorder.received(float(number), 1, b'message')\n"
        "    sys.stdout.write(f'{number}\\n'); sys.stdout.flush()\n"
    )
    acknowledged = killed_while_writing(program, tmp_path)
    recorder = Recorder(tmp_path, 0, "settings")
    times = [record.time for record in closed(recorder, tmp_path).records]
    assert times == list(range(len(times)))
    assert len(times) > acknowledged


def test_a_full_disk_costs_messages_that_are_counted_and_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder(tmp_path, 0, "settings")
    recorder.in_view(view(1, 0, 1))
    recorder.received(1.0, 1, b"first")
    with files_of_at_most((tmp_path / RECORDS).stat().st_size + 9):
        for time in (2.0, 3.0):
            recorder.received(time, 1, b"lost")
    assert recorder.lost == 2
    recorder.received(4.0, 1, b"last")
    assert [record.time for record in closed(recorder, tmp_path).records] == [1.0, 4.0]
    assert [record.message for record in caplog.records] == ["the recording is not complete"]


def test_a_recording_of_another_federation_is_not_added_to(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 0, "settings")
    recorder.in_view(view(1, 0, 1))
    recorder.close(MODEL)
    with pytest.raises(ErisError, match=r"views\.eris belongs to a federation with other settings"):
        Recorder(tmp_path, 0, "other settings")
