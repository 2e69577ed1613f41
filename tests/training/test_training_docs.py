"""Every Python block of docs/training.md runs, and its tables name all there is."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from eris.training.options import LocalTraining

PAGE = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")


def test_the_examples_run_from_top_to_bottom(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    found = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(found) == 10
    for block in found:
        exec(compile(block, "training.md", "exec"), names)
    first, *figures, before, after = capsys.readouterr().out.splitlines()
    assert first == "20 8 (58,)"
    assert figures[:5] == ["(58,) FedAvg(learning_rate=0.1)", "1", "4", "(5,)", "(58,)"]
    assert figures[5:] == ["20", "20", "4 58", "40 [0, 1, 2]", "True", "8"]
    assert float(after) < float(before)


def test_the_table_has_every_option_with_its_default() -> None:
    table = PAGE.split("## Options")[1].split("## Optimisers")[0]
    for option in fields(LocalTraining):
        assert f"`{option.name}`" in table, option.name
