"""The transcript of a run that may be stopped: a part with every checkpoint, joined at the end."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

from eris.files import replace
from eris.protocol.transcript import Record, Transcript, encoded_header, encoded_record


class TranscriptParts:
    """The messages since the last part go into the next; a part is written before its checkpoint
    counts, so one of a later round than the checkpoint's is left over from a kill."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._saved = self._round = 0

    def load(self, round: int) -> list[Record]:
        """The messages up to a round."""
        records: list[Record] = []
        for path in sorted(self._folder.glob("*.eris")):
            if int(path.stem) > round:
                path.unlink()
            else:
                records += Transcript.load(path).records
        self._saved, self._round = len(records), round
        return records

    def save(self, transcript: Transcript, round: int) -> None:
        """Write the messages since the last part; a second time in a round there are none."""
        if round == self._round:
            return
        new = transcript.records[self._saved :]
        write_transcript(
            Transcript(transcript.membership, transcript.settings, new),
            self._folder / f"{round:06}.eris",
        )
        self._saved, self._round = self._saved + len(new), round


def write_transcript(transcript: Transcript, path: Path) -> None:
    """Write a transcript whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    records = map(encoded_record, transcript.records)
    replace(path, chain([encoded_header(transcript)], records))
