"""A client's answers about encrypted sums, on the disk before they leave: ``answers.jsonl``.

One JSON object a line, synced line by line. A member that starts again says the same or nothing;
rounds that are long over are left out when the file is read, or has grown. What is in it has left
anyway, or was about to: no scalar and no key is.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from eris.core.errors import ErisError
from eris.files import PRIVATE, synced
from eris.protocol.enccluster.answering import RevealKey
from eris.protocol.enccluster.sending import KEPT_ROUNDS, EncryptingSender
from eris.protocol.enccluster.shares import KeyShare
from eris.protocol.schemes.scheme import Sender
from eris.runtimes.grpc import journal, storage

ANSWERS = "answers.jsonl"
MOST_LINES = 4096
"""Lines beyond those of the kept rounds after which the file is written anew."""


def keep(sender: Sender, folder: Path) -> None:
    """Let a sender of encrypted sums know what it said before, and write down what it says."""
    if isinstance(sender, EncryptingSender):
        answers = AnswerFile(folder)
        sender.keep(answers.answers, answers.write)


class AnswerFile:
    """The answers of one node, in its folder.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     AnswerFile(Path(folder)).write(RevealKey(b"f", 3, 0, 1), KeyShare(b"s", b"share"))
    ...     [(key.round, share.data) for key, share in AnswerFile(Path(folder)).answers.items()]
    [(3, b'share')]
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / ANSWERS
        self.answers: dict[RevealKey, KeyShare] = {}
        try:
            lines = list(journal.read(self._path)) if self._path.exists() else []
            self.answers = dict(map(_read, lines))
        except (ErisError, LookupError, TypeError, ValueError) as damaged:
            raise ErisError(
                f"{self._path} is damaged ({damaged}); remove it: what this node has answered it "
                f"then does not say again"
            ) from damaged
        self._renew()

    def write(self, key: RevealKey, share: KeyShare) -> None:
        """Note an answer; it is on the disk when this returns."""
        self.answers[key] = share
        if self._lines >= self._most:
            self._renew()
            return
        try:
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, PRIVATE)
            try:
                line = _line(key, share)
                if os.write(file, line) < len(line):
                    raise OSError(0, "the disk took a part of the line only")
                os.fsync(file)
            finally:
                os.close(file)
        except OSError as failed:
            # A torn line must not be in front of others.
            self._renew()
            raise ErisError(f"{self._path} was not written: {failed.strerror}") from failed
        self._lines += 1

    def _renew(self) -> None:
        """Write the file anew, without rounds that are long over."""
        newest = max((key.round for key in self.answers), default=0)
        kept = {k: s for k, s in self.answers.items() if k.round >= newest - KEPT_ROUNDS}
        self.answers, self._lines, self._most = kept, len(kept), len(kept) + MOST_LINES
        otherwise = "this node gives no share that it cannot note"
        storage.replace(self._path, [_line(*one) for one in kept.items()], otherwise)
        synced(self._path.parent)


def _line(key: RevealKey, share: KeyShare) -> bytes:
    told = {
        "federation": key.federation.hex(), "round": key.round, "shard": key.shard,
        "segment": key.segment, "statement": share.statement.hex(), "share": share.data.hex(),
    }  # fmt: skip
    return json.dumps(told).encode() + b"\n"


def _read(line: dict[str, Any]) -> tuple[RevealKey, KeyShare]:
    place = (int(line[name]) for name in ("round", "shard", "segment"))
    key = RevealKey(bytes.fromhex(line["federation"]), *place)
    return key, KeyShare(bytes.fromhex(line["statement"]), bytes.fromhex(line["share"]))
