"""A learner whose process ends between its ciphertext and its share, once."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from eris.protocol.enccluster.sending import EncryptingSender
from eris.protocol.messages import RevealRequest
from eris.testing.quadratic import Quadratic


class Vanishing(Quadratic):
    """Trains a quadratic. In the round it ``vanishes`` in, its process kills itself when it is
    asked for a share of a key, before anything is written down; the file ``marker`` says that it
    has."""

    def __init__(
        self, name: str, *, vanishes: int = 0, marker: str = "", **options: Any
    ) -> None:  # fmt: skip
        super().__init__(name, **options)
        if vanishes:
            _vanish(vanishes, Path(marker))


def _vanish(round: int, marker: Path) -> None:
    reveal = EncryptingSender.reveal

    def gone(self: EncryptingSender, request: RevealRequest, permitted: bool = True) -> bytes:
        if request.header.round == round and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return reveal(self, request, permitted)

    setattr(EncryptingSender, "reveal", gone)  # noqa: B010
