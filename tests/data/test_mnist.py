"""The real MNIST, fetched once into the user's cache, and local copies of the same format."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from eris.core.errors import DataUnavailable
from eris.data.cache import CachedData
from eris.data.idx import MalformedData, encode_idx
from eris.data.images import IDX_FILES, ImageData
from eris.data.mnist import load_mnist
from eris.data.sources import fetch

# Of the unpacked files as first published, widely quoted; both registered packages give them.
PUBLISHED_MD5 = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}
PUBLISHED_SHA256 = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}


@pytest.fixture(scope="module")
def fetched() -> CachedData:
    return fetch("mnist")


@pytest.fixture(scope="module")
def whole(fetched: CachedData) -> ImageData:
    return load_mnist()


def test_the_files_are_the_published_ones_byte_for_byte(fetched: CachedData) -> None:
    assert fetched.files == PUBLISHED_SHA256
    for name, published in PUBLISHED_MD5.items():
        data = (fetched.folder / name).read_bytes()
        assert hashlib.md5(data, usedforsecurity=False).hexdigest() == published


def test_all_of_mnist_is_there(whole: ImageData) -> None:
    assert whole.train_images.shape == (60_000, 28, 28)
    assert whole.test_images.shape == (10_000, 28, 28)
    for array in (whole.train_images, whole.train_labels, whole.test_images, whole.test_labels):
        assert array.dtype == np.uint8
    train = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    test = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert np.bincount(whole.train_labels).tolist() == train
    assert np.bincount(whole.test_labels).tolist() == test


def test_images_and_labels_are_in_the_published_order(whole: ImageData) -> None:
    assert whole.train_labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert whole.test_labels[:5].tolist() == [7, 2, 1, 0, 4]
    # The constants everyone normalises MNIST with, from the pixels themselves.
    assert whole.train_images.mean() / 255 == pytest.approx(0.1307, abs=5e-5)
    assert whole.train_images.std() / 255 == pytest.approx(0.3081, abs=5e-5)


def test_the_source_is_named_with_its_checksum(whole: ImageData, fetched: CachedData) -> None:
    assert whole.name == "mnist"
    assert whole.source == fetched.source
    assert fetched.archive_sha256 in whole.source


def a_folder(folder: Path, *, suffix: str = "", dotted: bool = False) -> Path:
    """A few images of our own in the four files of the format."""
    folder.mkdir(exist_ok=True)
    for name in IDX_FILES:
        shape = (3, 28, 28) if "images" in name else (3,)
        data = encode_idx(np.full(shape, 4, dtype=np.uint8))
        name = name.replace("-idx", ".idx") if dotted else name
        (folder / f"{name}{suffix}").write_bytes(gzip.compress(data) if suffix else data)
    return folder


def test_a_local_folder_is_read_plain_or_packed_under_either_spelling(tmp_path: Path) -> None:
    sources = set()
    for number, (suffix, dotted) in enumerate(
        [("", False), (".gz", False), ("", True), (".gz", True)]
    ):
        folder = a_folder(tmp_path / str(number), suffix=suffix, dotted=dotted)
        data = load_mnist(folder)
        assert data.train_images.shape == (3, 28, 28)
        assert data.test_labels.tolist() == [4, 4, 4]
        assert data.source.startswith(f"folder {folder} (contents sha256 ")
        sources.add(data.source.removeprefix(f"folder {folder}"))
    assert len(sources) == 1


def test_without_data_the_error_names_the_command_and_the_option(tmp_path: Path) -> None:
    with pytest.raises(DataUnavailable) as caught:
        load_mnist(cache=tmp_path)
    assert "`eris data fetch mnist`" in str(caught.value)
    assert "`path`" in str(caught.value)


def test_an_incomplete_folder_says_what_it_lacks(tmp_path: Path) -> None:
    (a_folder(tmp_path / "own") / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(DataUnavailable, match="has neither t10k-labels-idx1-ubyte nor"):
        load_mnist(tmp_path / "own")


@pytest.mark.parametrize(
    ("name", "array", "complaint"),
    [
        ("train-labels-idx1-ubyte", np.zeros(2), "has 2 labels; train-images-idx3-ubyte has 3"),
        ("t10k-labels-idx1-ubyte", np.full(3, 10), "has the label 10; expected 0 to 9"),
        ("t10k-images-idx3-ubyte", np.zeros((3, 32, 32)), r"has images of \[32, 32\]"),
        ("train-images-idx3-ubyte", np.zeros((0, 28, 28)), "holds no images"),
    ],
)
def test_files_that_do_not_fit_together_are_refused(
    tmp_path: Path,
    name: str,
    array: NDArray[np.float64],
    complaint: str,
) -> None:
    folder = a_folder(tmp_path / "own")
    (folder / name).write_bytes(encode_idx(array.astype(np.uint8)))
    with pytest.raises(MalformedData, match=complaint) as caught:
        load_mnist(folder)
    assert name in str(caught.value)
