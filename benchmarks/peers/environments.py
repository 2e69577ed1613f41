"""A virtual environment for each peer, made on first use and kept in the cache.

PyTorch comes first and pinned: a peer's own requirement would pull another build.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from eris.data.cache import cache_root, write_atomically

FIRST = ("torch==2.13.0",)
MARK = "INSTALLED.json"


@dataclass(frozen=True)
class Peer:
    """Another simulator: its name here, and what to install."""

    name: str
    requirement: str

    @property
    def folder(self) -> Path:
        """Where its environment lies."""
        return cache_root() / "peers" / self.name

    @property
    def python(self) -> Path:
        """The environment's interpreter."""
        return self.folder / "bin" / "python"

    @property
    def wanted(self) -> list[str]:
        """What its environment holds, in the order of installation."""
        return [f"python {sys.version_info.major}.{sys.version_info.minor}", *FIRST,
                self.requirement]  # fmt: skip

    def ready(self) -> bool:
        """Whether the environment was made to the end, and for these requirements."""
        try:
            found = json.loads((self.folder / MARK).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        return bool(found == self.wanted)

    def prepare(self, say: Callable[[str], None]) -> None:
        """Make the environment unless it is there, and say what is installed."""
        if self.ready():
            say(f"{self.name}: {', '.join(self.wanted)} (from the cache)")
            return
        say(f"{self.name}: installing {', '.join(self.wanted)}; the first time takes minutes")
        shutil.rmtree(self.folder, ignore_errors=True)
        venv.create(self.folder, with_pip=True)
        for requirement in (*FIRST, self.requirement):
            pip = [str(self.python), "-m", "pip", "install", "--quiet", requirement]
            subprocess.run(pip, check=True)
        # Last, so that an interrupted installation is never taken for an environment.
        write_atomically(self.folder / MARK, json.dumps(self.wanted).encode())


PFL = Peer("pfl", "pfl[pytorch]==0.6.0")
FLOWER = Peer("flower", "flwr[simulation]==1.41.0")
