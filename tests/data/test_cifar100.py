"""CIFAR-100 from small files of its binary version; what is refused, pickles above all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from eris.core.errors import DataUnavailable
from eris.data import NAMES, load, load_cifar100
from eris.data.idx import MalformedData
from eris.data.sources import fetch
from eris.experiments.runs.holdings import holdings
from eris.experiments.runs.recipe import DataRecipe

PIXELS = np.random.Generator(np.random.Philox(key=3)).integers(0, 256, (7, 3, 32, 32), np.uint8)
COARSE, FINE = [19, 0, 4, 4, 1, 7, 18], [99, 0, 51, 50, 3, 42, 98]


def a_folder(folder: Path) -> Path:
    """Five images to train on, two to test on, as the published files have them."""
    folder.mkdir(parents=True)
    rows = [
        bytes([coarse, fine]) + image.tobytes()
        for coarse, fine, image in zip(COARSE, FINE, PIXELS, strict=True)
    ]
    (folder / "train.bin").write_bytes(b"".join(rows[:5]))
    (folder / "test.bin").write_bytes(b"".join(rows[5:]))
    return folder


@pytest.mark.parametrize("inner", ["", "cifar-100-binary"])
def test_fine_labels_and_planes_are_read(tmp_path: Path, inner: str) -> None:
    folder = a_folder(tmp_path / "own" / inner)
    data = load_cifar100(tmp_path / "own")
    assert data.name == "cifar100"
    assert data.source.startswith(f"folder {folder} (contents sha256 ")
    assert np.array_equal(data.train_images, PIXELS[:5])
    assert data.train_labels.tolist() == FINE[:5]
    assert np.array_equal(data.test_images, PIXELS[5:])
    assert data.test_labels.tolist() == FINE[5:]
    for array in (data.train_images, data.train_labels, data.test_images, data.test_labels):
        assert array.dtype == np.uint8
        assert not array.flags.writeable


def test_runs_take_it_by_name_and_path(tmp_path: Path) -> None:
    assert "cifar100" in NAMES
    folder = a_folder(tmp_path / "own")
    assert load("cifar100", folder).name == "cifar100"
    held = holdings(DataRecipe("cifar100", str(folder), clients=2), seed=0)
    assert held.inputs.shape == (5, 3, 32, 32)
    # The first pixel of a test image by the published mean and deviation of red.
    expected = (PIXELS[5, 0, 0, 0] / 255 - 0.5071) / 0.2673
    assert held.test_inputs[0, 0, 0, 0] == pytest.approx(expected, abs=1e-5)


def test_the_python_version_is_refused_and_never_opened(tmp_path: Path) -> None:
    for file in ("train", "test", "meta"):
        # As a pickle this would run; it is not looked at.
        (tmp_path / file).write_bytes(b"cbuiltins\nexit\n(tR.")
    with pytest.raises(DataUnavailable, match="Python version, which is pickles"):
        load_cifar100(tmp_path)


def test_without_a_path_the_error_says_what_is_expected(tmp_path: Path) -> None:
    with pytest.raises(DataUnavailable, match=r"your own copy as `path`, a folder with train\.bin"):
        load_cifar100()
    with pytest.raises(DataUnavailable, match=r"has no train\.bin, test\.bin"):
        load_cifar100(tmp_path)
    with pytest.raises(DataUnavailable, match="no package carries it"):
        fetch("cifar100", cache=tmp_path)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "has 0 bytes; expected rows of 3074"),
        (bytes(3073), "has 3073 bytes; expected rows of 3074"),
        (b"\x14" + bytes(3073), "has the label 20; expected 0 to 19"),
        (b"\x00\x64" + bytes(3072), "has the label 100; expected 0 to 99"),
    ],
)
def test_files_of_another_form_are_named(tmp_path: Path, data: bytes, complaint: str) -> None:
    (a_folder(tmp_path / "own") / "test.bin").write_bytes(data)
    with pytest.raises(MalformedData, match=rf"test\.bin: {complaint}"):
        load_cifar100(tmp_path / "own")
