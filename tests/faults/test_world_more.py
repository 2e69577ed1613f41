"""The other half of the worlds of ``test_world.py``, and the campaign that runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

from eris.testing import soak
from eris.testing.found import kept
from eris.testing.shape import Shape
from eris.testing.soak import OPEN, Tally, main, run_seeds
from eris.testing.weather import Trouble
from eris.testing.world import World

CHUNK = 50


@pytest.mark.parametrize("first", range(250, 300, CHUNK))
def test_the_laws_hold_in_more_worlds(first: int) -> None:
    tally = run_seeds(first, first + CHUNK - 1)
    assert tally.findings == {}
    assert [kind for kind in OPEN if not tally.struck[kind]] == []


def test_the_laws_hold_where_one_member_alone_may_aggregate() -> None:
    """Whatever goes wrong, nobody takes over from it and training comes to its end."""
    served = Shape(members=4, clients_only=3, shards=1, max_share=1.0, rounds=12)
    for seed in range(12):
        World(seed, kinds=frozenset(Trouble), shape=served).run()


def test_a_campaign_ends_after_enough_faulted_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--rounds", "100", "--first-seed", "7", "--jobs", "1"]) == 0
    said = capsys.readouterr().out
    assert "a message is lost: " in said
    assert "seeds 7 to 26; 0 findings" in said


def test_a_finding_is_named_by_its_seed_shrunk_kept_and_replayed_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("eris.testing.realm.PATIENCE", -12.0)  # nobody is through that soon
    monkeypatch.setattr(soak, "BATCH", 2)
    found = tmp_path / "found.jsonl"
    found.touch()
    campaign = ["--rounds", "1", "--first-seed", "3", "--jobs", "1", "--found", str(found)]
    assert main(campaign) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("seed 3: LawBroken: no progress although enough are connected")
    assert said[-1].endswith("findings")
    first, *_ = kept(found)
    assert said[1] == f"  shrunk: {first.line()}"
    assert (first.seed, first.incidents, first.kinds) == (3, (), frozenset())
    assert main(campaign) == 1
    assert capsys.readouterr().out.startswith("found 1: LawBroken: no progress although")


def test_a_list_that_makes_no_sense_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    found = tmp_path / "found.jsonl"
    with pytest.raises(SystemExit, match="2"):
        main(["--found", str(found)])
    found.write_text('{"seed": 3, "kinds": ["RAIN"], "why": ""}\n', encoding="utf-8")
    with pytest.raises(SystemExit, match="2"):
        main(["--found", str(found)])
    said = capsys.readouterr().err
    assert "cannot be read: No such file or directory" in said
    assert "line 1: no world (KeyError('RAIN'))" in said


def test_two_processes_count_alike() -> None:
    def worth(tally: Tally) -> tuple[object, ...]:
        return tally.first, tally.last, tally.rounds, tally.faulted, tally.struck, tally.saw

    assert worth(soak.soak(60, 40, jobs=2)) == worth(soak.soak(60, 40, jobs=1))


def test_a_campaign_that_is_interrupted_says_what_it_has_seen() -> None:
    def interrupted(faulted: int) -> None:
        raise KeyboardInterrupt

    tally = soak.soak(1_000_000, 40, advance=interrupted)
    assert (tally.first, tally.last) == (40, 49)
    assert tally.rounds >= tally.faulted > 0
