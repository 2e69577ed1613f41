"""Read named members of an archive into memory: a wheel, an npm tarball, a Debian package.

Members are looked up by exact names: whatever else an archive holds (links, absolute paths, ..)
is never touched and nothing is unpacked to disk.
"""

from __future__ import annotations

import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import IO

from eris.data.idx import MalformedData

_AR_MAGIC = b"!<arch>\n"
_AR_HEADER = 60


def read_members(archive: Path, members: Iterable[str]) -> dict[str, bytes]:
    """The contents of ``members``; a ``KeyError`` names one that is no regular file in there."""
    wanted = list(members)
    reader = {".whl": _from_zip, ".deb": _from_deb}.get(archive.suffix, _from_tgz)
    try:
        found = reader(archive, set(wanted))
    except (tarfile.TarError, zipfile.BadZipFile, lzma.LZMAError, zlib.error, EOFError) as broken:
        raise MalformedData(archive.name, f"is damaged ({broken})") from broken
    for member in wanted:
        if member not in found:
            raise KeyError(member)
    return {member: found[member] for member in wanted}


def by_name(members: Mapping[str, bytes]) -> dict[str, bytes]:
    """The members by their plain names, where they are the data set's files already.

    >>> by_name({"package/model/vocab.txt": b"[PAD]"})
    {'vocab.txt': b'[PAD]'}
    """
    return {PurePosixPath(member).name: data for member, data in members.items()}


def _from_zip(archive: Path, wanted: set[str]) -> dict[str, bytes]:
    with zipfile.ZipFile(archive) as opened:
        return {member: opened.read(member) for member in wanted & opened.NameToInfo.keys()}


def _from_tgz(archive: Path, wanted: set[str]) -> dict[str, bytes]:
    with tarfile.open(archive, "r:gz") as opened:
        return _from_tar(opened, wanted)


def _from_deb(archive: Path, wanted: set[str]) -> dict[str, bytes]:
    # A .deb is an `ar` archive of debian-binary, control.tar.* and data.tar.*; deb(5).
    with archive.open("rb") as stream:
        for name, data in _ar(stream, archive.name):
            if name.startswith("data.tar"):
                if name.endswith(".zst"):
                    raise MalformedData(
                        archive.name, f"holds {name}; expected data.tar.xz, .gz, .bz2 or plain"
                    )
                with tarfile.open(fileobj=io.BytesIO(data), mode="r:*") as opened:
                    return _from_tar(opened, wanted)
    raise MalformedData(archive.name, "holds no data.tar; expected a Debian package")


def _ar(stream: IO[bytes], where: str) -> Iterator[tuple[str, bytes]]:
    if stream.read(len(_AR_MAGIC)) != _AR_MAGIC:
        raise MalformedData(where, "is no `ar` archive; expected a Debian package")
    while header := stream.read(_AR_HEADER):
        # Name, time, owner, group, mode, size, all as text padded with blanks; then "`\n".
        name, size = header[:16].rstrip(b" /"), header[48:58].strip()
        if header[58:] != b"`\n" or not size.isdigit():
            raise MalformedData(where, f"has a damaged header {header!r}")
        data = stream.read(int(size))
        if len(data) != int(size):
            raise MalformedData(where, f"ends inside {name!r}")
        yield name.decode("ascii", "replace"), data
        if int(size) % 2:
            stream.read(1)  # members begin at even places


def _from_tar(opened: tarfile.TarFile, wanted: set[str]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    # One pass: looking members up one by one would unpack the whole archive for each of them.
    for info in opened:
        # `extractfile` follows links; only a regular file is what the name promises.
        if info.name in wanted and info.isreg():
            stream = opened.extractfile(info)
            if stream is not None:
                found[info.name] = stream.read()
    return found
