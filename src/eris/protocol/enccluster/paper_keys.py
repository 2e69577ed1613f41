"""INSECURE ON PURPOSE: keys as the paper has them, for attacks and verdicts, never for a run.

A client's two scalars are for all rounds and its key share knows no label. So the key of one round
opens every later round of the same set, and the keys of two sets subtract to a client's own.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from eris.protocol.enccluster.encrypt import ClientScalars
from eris.protocol.enccluster.group import ORDER
from eris.protocol.enccluster.labels import DOM, extracted, scalar
from eris.protocol.enccluster.shares import masks
from eris.protocol.secure.keys import MemberKeys
from eris.protocol.secure.labels import digest


@dataclass(frozen=True)
class InsecurePaperKeys:
    """A client's long-term pair; it encrypts under any label with :attr:`scalars`."""

    client: int
    keys: MemberKeys = field(repr=False)

    @property
    def scalars(self) -> ClientScalars:
        """The same in every round."""
        key = extracted(self.keys.process_secret)
        return ClientScalars([scalar(key, DOM + b"/paper" + bytes([a])) for a in range(2)])

    def share(self, members: Sequence[tuple[int, int, bytes]]) -> tuple[int, ...]:
        """y·s under masks of the set alone; ``members`` are (number, weight, X25519 key)."""
        rows = (struct.pack(">II", number, y) + key for number, y, key in sorted(members))
        name = digest(DOM, b"/paper-set", *rows)
        weights = {number: y for number, y, _ in members}
        others = [(number, key) for number, _, key in members if number != self.client]
        return tuple(
            (weights[self.client] * s + masks(self.keys, self.client, others, b"", name, a)) % ORDER
            for a, s in enumerate(self.scalars.values())
        )


def insecure_key(shares: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """dk = Σ y·s, for all rounds."""
    return tuple(sum(column) % ORDER for column in zip(*shares, strict=True))
