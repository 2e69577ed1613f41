"""The IDX format of MNIST: big-endian header, then unsigned bytes.

Two zero bytes, the element type, the number of dimensions, one 32-bit size per dimension, and
the elements with the last dimension fastest. Only unsigned bytes (type 0x08) are read here.
"""

from __future__ import annotations

import gzip
import io
import math
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eris.core.errors import ErisError

_UNSIGNED_BYTE = 0x08
_CHUNK = 1 << 20


class MalformedData(ErisError, ValueError):
    """A data file is not in the format its name promises; names the file and what was expected."""

    def __init__(self, where: object, reason: str) -> None:
        self.where, self.reason = str(where), reason
        super().__init__(f"{where}: {reason}")


@contextmanager
def whole_gzip(where: object) -> Iterator[None]:
    """Inside the block, gzip's complaints name the file they are about."""
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error) as broken:
        raise MalformedData(where, f"is not a whole gzip file ({broken})") from broken


def encode_idx(array: NDArray[np.uint8]) -> bytes:
    """The IDX file of an array of unsigned bytes.

    >>> encode_idx(np.array([5, 0, 4], dtype=np.uint8)).hex(" ")
    '00 00 08 01 00 00 00 03 05 00 04'
    """
    if array.dtype != np.uint8:
        raise MalformedData("array to encode", f"holds {array.dtype}; expected uint8")
    header = struct.pack(f">HBB{array.ndim}I", 0, _UNSIGNED_BYTE, array.ndim, *array.shape)
    return header + array.tobytes()


def read_idx(path: Path, *, dimensions: int) -> NDArray[np.uint8]:
    """The array in the IDX file at ``path``, plain or gzipped (``.gz``); read-only."""
    opened = gzip.open if path.suffix == ".gz" else open
    with whole_gzip(path), opened(path, "rb") as stream:
        return decode_idx(stream, dimensions, path)


def decode_idx(stream: io.BufferedIOBase, dimensions: int, where: object) -> NDArray[np.uint8]:
    """The array in a stream, read-only; ``where`` is the name to use in an error.

    >>> decode_idx(io.BytesIO(bytes.fromhex("00 00 08 01 00 00 00 03 05 00 04")), 1, "labels")
    array([5, 0, 4], dtype=uint8)
    """
    start = stream.read(4)
    if len(start) < 4:
        raise MalformedData(where, f"has {len(start)} bytes; expected an IDX header of at least 4")
    zeros, element, count = struct.unpack(">HBB", start)
    if zeros != 0 or element != _UNSIGNED_BYTE:
        raise MalformedData(
            where, f"begins with {start.hex(' ')}; expected 00 00 08, an IDX file of unsigned bytes"
        )
    if count != dimensions:
        raise MalformedData(where, f"has {count} dimensions; expected {dimensions}")
    sizes = stream.read(4 * dimensions)
    if len(sizes) < 4 * dimensions:
        raise MalformedData(
            where, f"ends after {4 + len(sizes)} bytes; its header needs {4 + 4 * dimensions}"
        )
    shape = struct.unpack(f">{dimensions}I", sizes)
    body = _exactly(stream, math.prod(shape), shape, where)
    return np.frombuffer(body, dtype=np.uint8).reshape(shape)


def _exactly(
    stream: io.BufferedIOBase, expected: int, shape: tuple[int, ...], where: object
) -> bytes:
    # In chunks: `stream.read(expected)` may reserve what a lying header claims before reading.
    chunks: list[bytes] = []
    got = 0
    while got <= expected:
        chunk = stream.read(min(_CHUNK, expected + 1 - got))
        if not chunk:
            break
        chunks.append(chunk)
        got += len(chunk)
    if got != expected:
        held = f"only {got}" if got < expected else f"more than {expected}"
        raise MalformedData(
            where, f"holds {held} elements; its header {shape} promises exactly {expected}"
        )
    return b"".join(chunks)
