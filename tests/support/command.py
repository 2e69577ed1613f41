"""The ``eris`` command in this process, which has its libraries already."""

from __future__ import annotations

import sys

import pytest

from eris.cli.main import main


class Eris:
    """The command: what it prints, what it complains of, and its exit code."""

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
