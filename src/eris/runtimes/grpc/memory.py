"""What a node remembers of its run's ledger: ``run.json`` beside its checkpoint.

It is on the disk before the node acts on an answer of the directory, so that whatever this node may
have published, its folder knows of the ledger that permitted it.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from eris.core.errors import ErisError
from eris.protocol.authority.history import Mark, newest
from eris.runtimes.grpc import storage

MEMORY = "run.json"
RUN = "run"
"""What a checkpoint calls the run it is of."""


class Memory:
    """The newest mark that a node has seen, if it has seen one."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / MEMORY
        about = storage.about(folder / storage.CHECKPOINT)
        self.mark = self._read()
        self.begun = about is not None or self.mark is not None
        """Whether the folder is of a run."""
        if self.mark is None and about and about.get(RUN):
            self.mark = Mark(about[RUN])  # the note is lost, but the checkpoint says it, too

    @property
    def run(self) -> str:
        """The identity of the run that the folder is of; empty if that is not known."""
        return "" if self.mark is None else self.mark.ledger

    def keep(self, told: Mark | None) -> None:
        """Note what was told; it is on the disk when this returns."""
        mark = newest(self.mark, told)
        if mark is not None and mark != self.mark:
            text = json.dumps(asdict(mark)).encode()
            storage.replace(self._path, [text], "this node acts on no answer that it cannot note")
            self.mark = mark

    def _read(self) -> Mark | None:
        try:
            if not self._path.exists():
                return None
            mark = Mark(**json.loads(self._path.read_text("utf-8")))
            mark.check()
            return mark
        except (OSError, ValueError, TypeError, ErisError) as damaged:
            raise ErisError(
                f"{self._path} is damaged ({damaged}); give this node an empty folder: it catches "
                f"up from its peers"
            ) from damaged
