"""Where fetched data sets lie, and whether they are still what was fetched.

One folder per data set holds its files and ``SOURCE.json``, which says what package they came
from and the sha256 of the archive and of each file. Files are written to a temporary name and
renamed, ``SOURCE.json`` last: without it a folder does not count as fetched, so an interrupted
fetch is never taken for data.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eris.core.errors import DataUnavailable
from eris.files import SHARED, replace

MANIFEST = "SOURCE.json"
_RECORDED = ("registry", "package", "version", "archive_sha256", "licence")

Location = str | os.PathLike[str] | None
"""Where a cache or the user's own copy lies; None for the usual cache, and for no copy."""


class ChecksumMismatch(DataUnavailable):
    """Bytes are not the ones that were pinned; names what, the expected sha256 and the one got."""

    def __init__(self, what: str, expected: str, got: str, remedy: str) -> None:
        self.expected, self.got = expected, got
        super().__init__(f"{what}: sha256 is {got}; expected {expected}; {remedy}")


@dataclass(frozen=True)
class CachedData:
    """A data set in the cache: its folder, and where its files came from."""

    name: str
    folder: Path
    registry: str
    package: str
    version: str
    archive_sha256: str
    licence: str
    files: Mapping[str, str]
    """The sha256 of each file, by its name."""

    @property
    def source(self) -> str:
        """One line to print beside a result: what the data is, and its checksum."""
        return (
            f"{self.registry} {self.package} {self.version} (archive sha256 {self.archive_sha256})"
        )


def cache_root(cache: Location = None) -> Path:
    """The folder of all fetched data: ``cache``, ``$ERIS_CACHE``, or the XDG cache folder."""
    if cache is not None:
        return Path(cache)
    if own := os.environ.get("ERIS_CACHE"):
        return Path(own)
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says a relative path there is invalid and to be ignored.
    return (Path(xdg) if os.path.isabs(xdg) else Path.home() / ".cache") / "eris"


def fetch_command(name: str) -> str:
    """The command that brings a data set, as the errors print it."""
    return f"eris data fetch {name}"


def _ways_out(name: str) -> str:
    return f"run `{fetch_command(name)}` to fetch it, or give `path`, where your own copy lies"


def sha256_of(path: Path) -> str:
    """The sha256 of a file, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def verify(name: str, *, cache: Location = None) -> CachedData:
    """Check the cached files of a data set against its ``SOURCE.json`` and describe them.

    Raises ``DataUnavailable`` when the data set was not fetched and ``ChecksumMismatch`` when a
    file changed since; both say which command fetches it again.
    """
    cached = recorded(name, cache=cache)
    folder = cached.folder
    for file, expected in cached.files.items():
        try:
            got = sha256_of(folder / file)
        except OSError as missing:
            raise DataUnavailable(f"{missing}; {_ways_out(name)}") from missing
        if got != expected:
            raise ChecksumMismatch(f"{folder / file} is damaged", expected, got, _ways_out(name))
    return cached


def recorded(name: str, *, cache: Location = None) -> CachedData:
    """What ``SOURCE.json`` says of a cached data set, without reading its files."""
    folder = cache_root(cache) / name
    path = folder / MANIFEST
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        # Only plain names: a damaged record must not lead out of its folder.
        files = {Path(file).name: str(digest) for file, digest in record["files"].items()}
        said = {key: str(record[key]) for key in _RECORDED}
    except (FileNotFoundError, NotADirectoryError):
        raise DataUnavailable(f"{name} is not in the cache ({folder}); {_ways_out(name)}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as broken:
        raise DataUnavailable(f"{path} is damaged ({broken!r}); {_ways_out(name)}") from broken
    return CachedData(name, folder, **said, files=files)


def listed(name: str, files: Iterable[str], *, cache: Location = None) -> CachedData:
    """Check a cached data set like ``verify``, and that its record covers all of ``files``."""
    cached = verify(name, cache=cache)
    if unlisted := set(files) - set(cached.files):
        raise DataUnavailable(
            f"{cached.folder} does not list {', '.join(sorted(unlisted))}; "
            f"remove it and run `{fetch_command(name)}`"
        )
    return cached


def check_files(name: str, folder: Path, files: Iterable[str], expected: str) -> None:
    """Refuse a folder of the user's own that lacks one of ``files``."""
    if missing := [file for file in files if not (folder / file).is_file()]:
        raise DataUnavailable(
            f"{folder} has no {', '.join(missing)}; expected {expected}; or run "
            f"`{fetch_command(name)}` and leave `path` out"
        )


def located(
    name: str, files: Sequence[str], path: Location, cache: Location, expected: str
) -> tuple[Path, str]:
    """The folder with a data set's files, and one line on where they came from, with a checksum.

    It is the user's own ``path``, which ``expected`` describes, else the one in the cache.
    """
    if path is None:
        cached = listed(name, files, cache=cache)
        return cached.folder, cached.source
    folder, digest = Path(path), hashlib.sha256()
    check_files(name, folder, files, expected)
    for file in files:
        digest.update((folder / file).read_bytes())
    return folder, f"folder {folder} (contents sha256 {digest.hexdigest()})"


def store(cached: CachedData, contents: Mapping[str, bytes]) -> None:
    """Write a data set's files and then its ``SOURCE.json``, each whole or not at all.

    Files in its folder that nobody fetched are not written over.
    """
    cached.folder.mkdir(parents=True, exist_ok=True)
    if not (cached.folder / MANIFEST).exists():
        for file, data in contents.items():
            path = cached.folder / file
            if path.exists() and path.read_bytes() != data:
                raise DataUnavailable(
                    f"{path} is there and was not fetched; it is not written over: move it to "
                    "another place, or set ERIS_CACHE to another folder"
                )
    for file, data in contents.items():
        write_atomically(cached.folder / file, data)
    said = {key: getattr(cached, key) for key in _RECORDED}
    record = {"data": cached.name, **said, "files": dict(cached.files)}
    text = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
    write_atomically(cached.folder / MANIFEST, text.encode())


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that its name never leads to a part of it, even after a power cut."""
    replace(path, [data], SHARED)
