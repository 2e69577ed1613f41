"""docs/driver.md: its driver trains, and what it says of a member's calls is true of the class."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from eris.protocol.round.member import Member

PAGE = (Path(__file__).parents[2] / "docs" / "driver.md").read_text(encoding="utf-8")


def test_the_driver_on_the_page_trains_a_model() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, list[Member]] = {}
    exec(compile(code, "docs/driver.md", "exec"), names)
    members = names["members"]
    assert all(member.finished for member in members)
    for member in members:  # the first step leads to the mean, where the gradients cancel out
        assert np.array_equal(member.model, np.full(12, 2.0, np.float32))


def test_the_calls_on_the_page_are_a_members() -> None:
    calls = re.findall(r"^\| `(\w+)\(", PAGE, re.MULTILINE)
    assert len(calls) == 10
    assert [call for call in calls[1:] if not callable(getattr(Member, call))] == []
    for attribute in ("job", "renewal_due", "wakes_at", "finished", "exhausted"):
        assert f"`{attribute}`" in PAGE
