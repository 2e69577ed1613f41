"""What a node sent and received, kept for an audit: a transcript of its own view.

Messages are appended as they pass, so that a kill loses none; :meth:`Recorder.close` puts the
transcript's header in front of them.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from eris.core.vectors import Vector
from eris.protocol.membership import View
from eris.protocol.transcript import Record, Transcript, append, write_header

RECORDS, TRANSCRIPT = "records.bin", "transcript.eris"


class Recorder:
    """Appends to a file in the node's folder."""

    def __init__(self, folder: Path, me: int, settings: str) -> None:
        self._folder, self._me, self._settings = folder, me, settings
        self._file = (folder / RECORDS).open("ab")
        self._epochs: dict[int, View] = {}

    def sent(self, time: float, receivers: tuple[int, ...], data: bytes) -> None:
        """A message of this node; whom it reached, the receivers know."""
        append(self._file, Record(time, self._me, receivers, data, {self._me} & {*receivers}))

    def received(self, time: float, sender: int, data: bytes) -> None:
        """A message to this node."""
        append(self._file, Record(time, sender, (self._me,), data, {self._me}))

    def in_view(self, view: View) -> None:
        """Note a view, for who was who."""
        self._epochs[view.epoch] = view

    def close(self, model: Vector) -> None:
        """Write the transcript."""
        self._file.close()
        if not self._epochs:
            return
        newest = self._epochs[max(self._epochs)]
        about = Transcript(newest, self._settings, final_model=model, epochs=dict(self._epochs))
        with (self._folder / TRANSCRIPT).open("wb") as out:
            write_header(out, about)
            with (self._folder / RECORDS).open("rb") as records:
                shutil.copyfileobj(records, out)
