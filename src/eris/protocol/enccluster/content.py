"""What a codebook says, in one digest: to it a client's scalars are bound."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from eris.core.errors import require
from eris.protocol.enccluster.labels import DOM
from eris.protocol.secure.labels import digest


def content(messages: Sequence[int], mapping: bytes = b"") -> bytes:
    """The digest of a book's integers and its own packed mapping; DeTrust-FL has no mapping."""
    require(len(messages) >= 2, "clusters", len(messages), "at least 2")
    numbers = struct.pack(f">I{len(messages)}q", len(messages), *messages)
    return digest(DOM, b"/content", numbers, mapping)
