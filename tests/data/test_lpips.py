"""LPIPS' weights: fetched without running code, read without trusting a pickle; and its values."""

from __future__ import annotations

import io
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load

from eris.audit.similarity import Lpips
from eris.data.idx import MalformedData
from eris.data.lpips import from_package, load_lpips
from eris.data.packages import download_package
from eris.data.sources import WEIGHTS, fetch
from eris.data.weights import MODEL
from support.lpips import pickled, tree

(LPIPS,) = (source for source in WEIGHTS if source.data == "lpips")


def test_kernels_are_turned_for_torch() -> None:
    given = tree()
    found = load(from_package(pickled(given))[MODEL])
    assert len(found) == 15
    kernel = given["AlexNet_0"]["Conv_1"]["kernel"]
    assert found["features.1.weight"].shape == (192, 64, 5, 5)
    assert found["features.1.weight"][7, 3, 1, 2] == kernel[1, 2, 3, 7]
    assert found["heads.4.weight"].shape == (1, 256, 1, 1)


class Runs:
    """What a hostile pickle would hold."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (exec, ("raise SystemExit('code ran')",))


def test_a_pickle_that_asks_for_more_than_arrays_is_refused() -> None:
    with pytest.raises(MalformedData, match=r"asks for builtins\.exec; expected arrays of numpy"):
        from_package(pickled({"AlexNet_0": Runs()}))
    with pytest.raises(MalformedData, match="is not LPIPS on AlexNet"):
        from_package(pickled({"AlexNet_0": {}}))
    with pytest.raises(MalformedData, match="is not LPIPS on AlexNet"):
        from_package({"alexnet.ckpt": b"no pickle"})


def test_an_sdist_is_downloaded_and_its_code_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker, shelf, folder = tmp_path / "ran", tmp_path / "shelf", tmp_path / "empty"
    shelf.mkdir()
    folder.mkdir()
    setup = f"open({str(marker)!r}, 'w').close()\nimport setuptools\nsetuptools.setup()\n"
    name = "eris_stand_in-0.1.0"
    with tarfile.open(shelf / f"{name}.tar.gz", "w:gz") as archive:
        for member, text in (("setup.py", setup), ("PKG-INFO", "Name: eris_stand_in\n")):
            info = tarfile.TarInfo(f"{name}/{member}")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    for variable, value in (
        ("NO_INDEX", "1"),
        ("FIND_LINKS", str(shelf)),
        ("CONFIG_FILE", "/dev/null"),
    ):
        monkeypatch.setenv(f"PIP_{variable}", value)
    source = replace(LPIPS, package="eris_stand_in", version="0.1.0")
    found = download_package(source, folder)
    assert found.read_bytes() == (shelf / f"{name}.tar.gz").read_bytes()
    assert not marker.exists()


@pytest.mark.slow
def test_the_published_values() -> None:
    """Four pairs by formula; their values come from a program that gives what the authors print."""
    fetch("lpips")
    lpips = Lpips(load_lpips().folder)
    y, x = np.mgrid[:64, :64]
    reference = np.stack([4 * x, 4 * y, x * y % 256])
    assert reference.sum() == 1_514_240
    chessboard = np.where((x // 8 + y // 8) % 2 == 0, 40, -40)
    changed = np.clip(reference + chessboard, 0, 255)
    assert changed.sum() == 1_520_288
    others = np.stack([changed, np.roll(reference, 4, axis=2), reference[:, ::-1], reference])
    first = np.broadcast_to(reference, others.shape)
    found = lpips(*((each / 255).astype(np.float32) for each in (first, others)))
    np.testing.assert_allclose(found, [0.430639, 0.054199, 0.489583, 0], atol=1e-4)
