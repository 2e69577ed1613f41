"""Files that a kill or a power cut leaves whole, and that only their owner may read.

A file is replaced as a whole, or grows by whole records; in both cases what is there after a crash
can be read, and the next write goes on from it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias

PRIVATE, SHARED = 0o600, 0o666
"""For the owner alone, from the first byte on; or for whom the umask allows."""
Buffer: TypeAlias = bytes | memoryview
_UNFINISHED = ".tmp"


def replace(path: Path, pieces: Iterable[Buffer], mode: int = PRIVATE) -> None:
    """Replace a file by one with these bytes, or leave the old one; on the disk on return.

    The bytes are synced before the name leads to them, and the folder after: a power cut leaves the
    old file or the new one, and once this has returned the new one.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     replace(Path(folder) / "model", [b"new ", b"bytes"])
    ...     (Path(folder) / "model").read_bytes()
    b'new bytes'
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{_UNFINISHED}")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        synced(path.parent)
    except BaseException:  # an interrupt, too, must not leave the temporary file behind
        with contextlib.suppress(OSError):  # a disk that has become read-only
            temporary.unlink(missing_ok=True)
        raise


def synced(path: Path) -> None:
    """Make sure that a file, or the names in a folder, would survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def tidy(folder: Path) -> None:
    """Remove what a kill in the middle of :func:`replace` left; for a folder with one writer."""
    for path in folder.glob(f".*{_UNFINISHED}"):
        path.unlink()


class Growing:
    """A file that grows by whole records.

    ``whole(descriptor, size)`` says where the last whole record ends. What a crash left behind that
    is cut off (:attr:`cut` bytes), for the next record would be glued to it.
    """

    def __init__(self, path: Path, whole: Callable[[int, int], int]) -> None:
        new = not path.exists()
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, PRIVATE)
        try:
            size = os.fstat(self._file).st_size
            end = whole(self._file, size)
            self.cut = size - end
            if self.cut:
                os.ftruncate(self._file, end)
                os.fsync(self._file)
            if new:
                synced(path.parent)
        except BaseException:
            os.close(self._file)
            raise

    def append(self, record: bytes) -> None:
        """Hand a record to the operating system: all of it, or an ``OSError`` and none of it.

        It then survives the death of the process; the latest may be lost with the power.
        """
        written = os.write(self._file, record)
        if written < len(record):
            try:
                written += os.write(self._file, record[written:])  # tells why, if it fails again
            finally:
                if written < len(record):
                    os.ftruncate(self._file, os.fstat(self._file).st_size - written)
        if written < len(record):
            raise OSError(0, "the disk took a part of the record only")

    def close(self) -> None:
        """Close the file; nothing is waiting."""
        os.close(self._file)
