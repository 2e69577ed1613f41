"""The other half of the worlds of ``test_world.py``, and the campaign that runs them."""

from __future__ import annotations

import pytest

from eris.testing import soak
from eris.testing.soak import Tally, main, run_seeds
from eris.testing.weather import Trouble

CHUNK = 50


@pytest.mark.parametrize("first", range(250, 500, CHUNK))
def test_the_laws_hold_in_more_worlds(first: int) -> None:
    tally = run_seeds(first, first + CHUNK - 1)
    assert tally.findings == []
    assert [kind for kind in Trouble if not tally.struck[kind]] == []


def test_a_campaign_ends_after_enough_faulted_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--rounds", "100", "--first-seed", "7", "--jobs", "1"]) == 0
    said = capsys.readouterr().out
    assert "a message is lost: " in said
    assert "seeds 7 to 26; 0 findings" in said


def test_a_finding_is_named_by_its_seed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("eris.testing.world.PATIENCE", -12.0)  # nobody is through that soon
    monkeypatch.setattr(soak, "BATCH", 2)
    assert main(["--rounds", "1", "--first-seed", "3", "--jobs", "1"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("seed 3: LawBroken: no progress although enough are connected")
    assert said[-1].endswith("findings")


def test_two_processes_count_alike() -> None:
    def worth(tally: Tally) -> tuple[object, ...]:
        return tally.first, tally.last, tally.rounds, tally.faulted, tally.struck, tally.saw

    assert worth(soak.soak(60, 40, jobs=2)) == worth(soak.soak(60, 40, jobs=1))
