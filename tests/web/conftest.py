"""The command, in an empty folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.command import Eris


@pytest.fixture
def eris(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Eris:
    """The command, with nothing run before."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ERIS_RUNS", raising=False)
    return Eris(monkeypatch, capsys)
