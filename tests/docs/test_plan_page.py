"""docs/plan.md from top to bottom: its commands run, and print what the page shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.command import Eris

PAGE = (Path(__file__).parents[2] / "docs" / "plan.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"```sh\n(.*?)```(?:\n\n```text\n(.*?)```)?", PAGE, re.DOTALL)


def shown(text: str) -> str:
    """As a page has it: without spaces at the ends of lines."""
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def test_every_command_prints_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    (links,) = re.findall(r"```csv\n(.*?)```", PAGE, re.DOTALL)
    Path("links.csv").write_text(links, encoding="utf-8")
    eris = Eris(monkeypatch, capsys)
    assert len(COMMANDS) >= 7
    for command, expected in COMMANDS:
        program, *words = command.split()
        assert program == "eris"
        code = eris(*words)
        assert code == (2 if expected.startswith("error: ") else 0), eris.err
        printed, place = shown(eris.out + eris.err), 0
        for part in shown(expected).split("\n…\n"):  # what the page leaves out
            place = printed.find(part.removesuffix("\n…"), place)
            assert place >= 0, f"{command} does not print\n{part}\nbut\n{printed}"
    for written in ("charter.toml", "anna/node.toml", "epsilon.svg", "recipe.toml"):
        assert Path(written).is_file()
