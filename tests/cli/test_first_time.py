"""What a newcomer does: every step is a command that exists, and all of them work in order."""

from __future__ import annotations

from pathlib import Path

import pytest

from eris.testing.first_time import PROJECT, STEPS, FirstTime, main
from support.commands import options_of


def test_its_steps_can_be_typed() -> None:
    for _, line in STEPS:
        options_of(line)


def test_a_step_that_fails_ends_it_and_shows_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = FirstTime(tmp_path)
    with pytest.raises(SystemExit, match="failed with code 3"):
        first.step("wrong", ["sh", "-c", "echo why; exit 3"], "wrong", tmp_path)
    assert "why" in capsys.readouterr().out


@pytest.mark.slow
def test_a_newcomer_comes_to_a_federation_an_audit_and_reports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["--here", "--folder", str(tmp_path)])
    said = capsys.readouterr().out
    assert "in all" in said
    for page in (
        f"runs/{PROJECT}/report.html",
        f"runs/{PROJECT}/audit.json",
        "runs/local/report.html",
    ):
        assert (tmp_path / PROJECT / page).is_file()
