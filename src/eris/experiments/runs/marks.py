"""Folders that a command may remove again: only what it made there itself, and marked.

A mark lists the files that were made. What is not on the list, and keys and certificates that are
not the ones that were made, are somebody else's: then nothing is removed at all.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

from eris.core.errors import ErisError
from eris.data.cache import sha256_of, write_atomically

MARK = ".made-by-eris.json"
OWN = ("state/", "log.txt")
"""What a node writes while it runs, in its own folder."""
NAMED = 3
"""How many strange files a refusal names."""


def mark(folder: Path, maker: str) -> None:
    """Note that ``maker``, a command, has made everything that is in a folder now."""
    made = {
        str(path.relative_to(folder)): sha256_of(path) if path.suffix in (".pem", ".key") else None
        for path in _files(folder)
    }
    text = json.dumps({"maker": maker, "made": made}, indent=1)
    write_atomically(folder / MARK, f"{text}\n".encode())


def removable(folder: Path, maker: str) -> list[Path]:
    """The files that ``maker`` made in a folder; refused, and named, if others are there."""
    if not os.path.lexists(folder) or (folder.is_dir() and not any(folder.iterdir())):
        return []
    made, files = _made(folder, maker), list(_files(folder))
    if strange := [path for path in files if not _is_made(path, folder, made)]:
        named = ", ".join(map(str, strange[:NAMED]))
        more = f" and {len(strange) - NAMED} more" if len(strange) > NAMED else ""
        raise ErisError(
            f"{folder} is not removed: `{maker}` did not make {named}{more}; move what you need "
            "to another place, or give another --folder"
        )
    return [*files, folder / MARK]


def remove(folder: Path, maker: str) -> None:
    """Remove what ``maker`` made in a folder, and the folder; refused as :func:`removable` is."""
    if files := removable(folder, maker):
        for path in files:
            path.unlink()
        for parent, _, _ in os.walk(folder, topdown=False):
            os.rmdir(parent)


def is_marked(folder: Path, maker: str) -> bool:
    """Whether ``maker`` made a folder, whatever has come into it since."""
    return _read(folder)[0] == maker


def _made(folder: Path, maker: str) -> dict[str, str | None]:
    """What a folder's mark lists, if it is the maker's."""
    whose, made = _read(folder)
    if whose == maker:
        return made
    by = f"`{whose}` made it" if whose else f"it has no mark ({MARK}) of `{maker}`"
    raise ErisError(f"{folder} is not removed: {by}; give another --folder, or remove it yourself")


def _read(folder: Path) -> tuple[str, dict[str, str | None]]:
    """Who made a folder, and what; nobody, if there is no mark that can be read."""
    try:
        found = json.loads((folder / MARK).read_text(encoding="utf-8"))
        return str(found["maker"]), dict(found["made"])
    except (OSError, ValueError, LookupError, TypeError):
        return "", {}


def _is_made(path: Path, folder: Path, made: dict[str, str | None]) -> bool:
    name = path.relative_to(folder)
    if path.is_symlink():
        return False
    if str(name) not in made:
        node, own = name.parts[0], "/".join(name.parts[1:])
        return f"{node}/node.toml" in made and own.startswith(OWN)
    return made[str(name)] in (None, sha256_of(path))


def _files(folder: Path) -> Iterator[Path]:
    """All files but the mark; a link is one, wherever it leads."""
    for parent, folders, files in os.walk(folder):
        links = (name for name in folders if Path(parent, name).is_symlink())
        for name in (*files, *links):
            path = Path(parent, name)
            if path != folder / MARK:
                yield path
