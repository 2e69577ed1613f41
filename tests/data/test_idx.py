"""The IDX reader: what it reads, and that no file can make it misread or over-allocate."""

from __future__ import annotations

import gzip
import io
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from eris.data.idx import MalformedData, decode_idx, encode_idx, read_idx

IMAGES = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)


@settings(derandomize=True)
@given(arrays.arrays(np.uint8, arrays.array_shapes(min_dims=1, max_dims=4, min_side=0)))
def test_what_is_encoded_is_decoded(array: NDArray[np.uint8]) -> None:
    decoded = decode_idx(io.BytesIO(encode_idx(array)), array.ndim, "array")
    assert decoded.shape == array.shape
    assert np.array_equal(decoded, array)


@settings(derandomize=True)
@given(st.binary(max_size=64), st.booleans())
def test_any_bytes_are_read_whole_or_refused(data: bytes, valid_start: bool) -> None:
    data = b"\x00\x00\x08\x01" + data if valid_start else data
    try:
        decoded = decode_idx(io.BytesIO(data), 1, "bytes")
    except MalformedData:
        return
    assert encode_idx(decoded) == data


def test_plain_and_gzipped_files_are_read_alike(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(encode_idx(IMAGES))
    (tmp_path / "packed.gz").write_bytes(gzip.compress(encode_idx(IMAGES)))
    for name in ("plain", "packed.gz"):
        assert np.array_equal(read_idx(tmp_path / name, dimensions=3), IMAGES)


def test_the_array_cannot_be_changed_by_accident() -> None:
    assert not decode_idx(io.BytesIO(encode_idx(IMAGES)), 3, "images").flags.writeable


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "has 0 bytes; expected an IDX header"),
        (b"\x89PNG\r\n", "begins with 89 50 4e 47; expected 00 00 08"),
        (b"\x00\x00\x0d\x03" + bytes(12), "begins with 00 00 0d 03; expected 00 00 08"),
        (b"\x00\x00\x08\x01" + bytes(4), "has 1 dimensions; expected 3"),
        (b"\x00\x00\x08\x03" + bytes(5), "ends after 9 bytes; its header needs 16"),
        (encode_idx(IMAGES)[:-1], "holds only 23 elements; its header (2, 3, 4) promises exactly"),
        (encode_idx(IMAGES) + b"\x00", "holds more than 24 elements"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, data: bytes, complaint: str) -> None:
    for name, written in (("images", data), ("images.gz", gzip.compress(data))):
        (tmp_path / name).write_bytes(written)
        with pytest.raises(MalformedData) as caught:
            read_idx(tmp_path / name, dimensions=3)
        assert complaint in str(caught.value)
        assert str(tmp_path / name) in str(caught.value)


@pytest.mark.parametrize("name", ["images", "images.gz"])
def test_a_header_that_promises_terabytes_reserves_nothing(tmp_path: Path, name: str) -> None:
    lie = b"\x00\x00\x08\x03" + struct.pack(">3I", 2**32 - 1, 2**32 - 1, 2**32 - 1) + bytes(100)
    (tmp_path / name).write_bytes(gzip.compress(lie) if name.endswith(".gz") else lie)
    tracemalloc.start()
    try:
        with pytest.raises(MalformedData, match="holds only 100 elements"):
            read_idx(tmp_path / name, dimensions=3)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * 2**20


@pytest.mark.parametrize("damage", [slice(0, -9), slice(5, None)])
def test_a_broken_gzip_file_is_named(tmp_path: Path, damage: slice) -> None:
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(encode_idx(IMAGES))[damage])
    with pytest.raises(MalformedData, match="is not a whole gzip file"):
        read_idx(path, dimensions=3)


def test_only_unsigned_bytes_are_written() -> None:
    with pytest.raises(MalformedData, match="holds float64; expected uint8"):
        encode_idx(np.zeros(3))  # type: ignore[arg-type]
