"""The ``eris`` command: as its user calls it, or in this process, which has the libraries."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from eris.cli.main import main


def eris(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    command = [str(Path(sys.executable).parent / "eris"), *map(str, arguments)]
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, encoding="utf-8", check=False
    )


def broken(folder: Path) -> None:
    """Put a module ``broken`` into a folder, whose function ``make`` fails."""
    text = 'def make(name):\n    raise RuntimeError("no patients today")\n'
    (folder / "broken.py").write_text(text, encoding="utf-8")


class Eris:
    """The command in this process: what it prints, what it complains of, and its exit code."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._patch, self._capture = monkeypatch, capsys
        self.out = self.err = ""

    def __call__(self, *arguments: str) -> int:
        self._patch.setattr(sys, "argv", ["eris", *arguments])
        self._patch.setattr(sys, "path", [*sys.path])
        try:
            main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        self.out, self.err = self._capture.readouterr()
        return code

    def refused(self, *arguments: str) -> str:
        """The one line that a refusal is."""
        assert self(*arguments) == 2, self.out
        assert self.err.startswith("error: ")
        assert self.err.count("\n") == 1, self.err
        return self.err
