"""What a codebook says, as bytes and in one digest: to it a client's scalars are bound."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from eris.core import kernels
from eris.core.errors import require
from eris.protocol.enccluster.labels import DOM
from eris.protocol.secure.labels import digest

Clusters = NDArray[np.uint32]
"""The cluster of each coordinate."""


def index_bits(clusters: int) -> int:
    """Bits of a cluster's number.

    >>> index_bits(2), index_bits(128), index_bits(129)
    (1, 7, 8)
    """
    require(clusters >= 2, "clusters", clusters, "at least 2")
    return (clusters - 1).bit_length()


def packed(mapping: Clusters, clusters: int) -> bytes:
    """Numbers of clusters from bit 0 of a little-endian string, without gaps.

    >>> packed(np.array([0, 1, 2, 3, 3, 0, 1], np.uint32), 4).hex()
    'e413'
    """
    width = index_bits(clusters)
    out = np.zeros(-(-len(mapping) * width // 8), np.uint8)
    kernels.pack_codes(out, np.ascontiguousarray(mapping, np.uint32), width)
    return out.tobytes()


def content(messages: Sequence[int], mapping: bytes = b"") -> bytes:
    """The digest of a book's integers and its own packed mapping; DeTrust-FL has no mapping."""
    require(len(messages) >= 2, "clusters", len(messages), "at least 2")
    numbers = struct.pack(f">I{len(messages)}q", len(messages), *messages)
    return digest(DOM, b"/content", numbers, mapping)
