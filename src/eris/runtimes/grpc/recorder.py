"""What a node sent and received, kept for an audit: a transcript of its own view.

Messages are appended as they pass, each handed to the operating system before it is taken in or
sent, so that a kill loses none (a power cut may lose the latest). :meth:`Recorder.close` puts the
transcript's header in front of them. Records and views of an earlier start are gone on with.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

from eris.core.errors import ErisError
from eris.core.vectors import Vector
from eris.files import Growing, replace
from eris.protocol.transcript import (
    Record,
    Transcript,
    encoded_header,
    encoded_record,
    end_of_records,
)
from eris.protocol.view import View
from eris.runtimes.grpc.logs import event

RECORDS, VIEWS, TRANSCRIPT = "records.bin", "views.eris", "transcript.eris"
_BLOCK = 1 << 20
_log = logging.getLogger("eris.recorder")


class Recorder:
    """Appends to a file in the node's folder; a disk that takes no more costs records, which are
    counted in :attr:`lost`, but never stops the node."""

    def __init__(self, folder: Path, me: int, settings: str) -> None:
        self._folder, self._me, self._settings, self.lost = folder, me, settings, 0
        self._epochs: dict[int, View] = {}
        if (views := folder / VIEWS).exists():
            before = Transcript.load(views)
            if before.settings != settings:
                raise ErisError(
                    f"{views} belongs to a federation with other settings; move it and "
                    f"{folder / RECORDS} away to record this one"
                )
            self._epochs = before.epochs
        try:
            self._file = Growing(folder / RECORDS, _whole)
        except OSError as failed:
            why = f"{folder / RECORDS} cannot be opened: {failed.strerror}"
            raise ErisError(f"{why}; without it nothing can be recorded") from None
        if self._file.cut:
            told = "a torn record was cut off"
            event(_log, logging.WARNING, told, file=folder / RECORDS, bytes=self._file.cut)

    def sent(self, time: float, receivers: tuple[int, ...], data: bytes) -> None:
        """A message of this node; whom it reached, the receivers know."""
        self._append(Record(time, self._me, receivers, data, {self._me} & {*receivers}))

    def received(self, time: float, sender: int, data: bytes) -> None:
        """A message to this node."""
        self._append(Record(time, sender, (self._me,), data, {self._me}))

    def in_view(self, view: View) -> None:
        """Note a view, for who was who; it is on the disk before a message of it."""
        self._epochs[view.epoch] = view
        self._replace(VIEWS, iter([encoded_header(self._about())]))

    def close(self, model: Vector) -> None:
        """Write the transcript."""
        self._file.close()
        if self._epochs:
            self._replace(TRANSCRIPT, self._whole_transcript(model))

    def _about(self, model: Vector | None = None) -> Transcript:
        newest = self._epochs[max(self._epochs)]
        return Transcript(newest, self._settings, final_model=model, epochs=dict(self._epochs))

    def _whole_transcript(self, model: Vector) -> Iterator[bytes]:
        yield encoded_header(self._about(model))
        with (self._folder / RECORDS).open("rb") as records:
            while block := records.read(_BLOCK):
                yield block

    def _append(self, record: Record) -> None:
        try:
            self._file.append(encoded_record(record))
        except OSError as failed:
            if not self.lost:
                self._complain(RECORDS, failed)
            self.lost += 1

    def _replace(self, name: str, pieces: Iterator[bytes]) -> None:
        try:
            replace(self._folder / name, pieces)
        except OSError as failed:
            self._complain(name, failed)

    def _complain(self, name: str, failed: OSError) -> None:
        path, reason = self._folder / name, failed.strerror
        event(_log, logging.ERROR, "the recording is not complete", file=path, reason=reason)


def _whole(file: int, size: int) -> int:
    with os.fdopen(os.dup(file), "rb") as records:
        return end_of_records(records)
