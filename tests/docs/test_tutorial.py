"""Every Python block of the tutorial and the README runs."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def blocks(path: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)


def test_the_tutorial_runs_from_top_to_bottom(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    found = blocks(ROOT / "docs" / "tutorial.md")
    assert len(found) >= 6
    for block in found:
        exec(compile(block, "tutorial.md", "exec"), names)
    said = capsys.readouterr().out
    assert "is the weighted mean 4.125" in said
    assert "kept_fraction is 1.5; expected a number in (0, 1]" in said


def test_the_readme_example_runs_and_is_short(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = blocks(ROOT / "README.md")
    assert len([line for line in block.splitlines() if line.strip()]) <= 15
    # The same program on two rounds: what it shows is in the demo's own test.
    exec(compile(block.replace("fit(20,", "fit(2,"), "README.md", "exec"), {})
    said = capsys.readouterr().out
    assert "accuracy" in said
    assert "aggregator 0" in said


def test_the_readme_names_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "make demo" in text
    assert "make test" in text


def test_the_picture_is_what_its_script_draws() -> None:
    script = ROOT / "docs" / "site" / "picture.py"
    drawing = runpy.run_path(str(script))
    assert drawing["PLACE"].read_text(encoding="utf-8") == drawing["drawn"]()
    assert "docs/pictures/round.svg" in (ROOT / "README.md").read_text(encoding="utf-8")
