"""Worlds that once broke a law hold today, and how they are found, shrunk and shown."""

from __future__ import annotations

from typing import Any

import pytest

from eris.testing.found import Case, kept, shrunk, smaller
from eris.testing.shape import Shape
from eris.testing.trace import main
from faults.test_network_bugs import Forgetful, count_twice

SMALL = Shape(members=3, shards=2, rounds=6, min_included=2)


@pytest.mark.parametrize("case", kept(), ids=lambda case: case.seed)
def test_a_world_that_once_broke_a_law_holds(case: Case) -> None:
    case.world().run()


def test_a_list_is_read_as_it_was_written() -> None:
    assert [Case.read(case.line()) for case in kept()] == kept()


# -- shrinking --------------------------------------------------------------------------------


def least(seed: int, **machines: Any) -> Case:
    """What is left of a world in which nothing can be done without."""
    case = Case(seed, SMALL)
    law, drawn = case.breaks(**machines), case.world().weather.incidents
    assert law
    left = shrunk(case, **machines)
    assert left.breaks(**machines) == law == left.why
    assert [less for less in smaller(left) if less.breaks(**machines) == law] == []
    assert left.incidents is not None
    assert len(drawn) > 5
    assert len(left.incidents) + len(left.kinds) < 4
    return left


def test_what_is_left_of_an_owner_that_does_not_abstain_is_that_it_starts_again() -> None:
    assert least(2, member=Forgetful).incidents


def test_what_is_left_of_a_duplicate_that_counts_twice_is_no_incident(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count_twice(monkeypatch)
    assert not least(0).incidents


# -- showing ----------------------------------------------------------------------------------


def test_a_world_gives_a_verdict_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "3"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("seed 3: ")
    assert line.endswith(": all laws held")


def test_a_trace_tells_what_happened_to_whom(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "2", "--trace", "--kinds", "crash"]) == 0
    *events, verdict = capsys.readouterr().out.splitlines()
    assert verdict.endswith("all laws held")
    assert all(float(event[:6]) >= 0 for event in events)
    said = "\n".join(events)
    for word in (
        "a node stops and comes back with its disk",
        "directory",
        "epoch 1 from round 1",
        "joins, abstains up to round",
        "trains",
        "→",
        "←",
        "contribution 0.0 of round 1 (on 0)",
        "is through",
    ):
        assert word in said


@pytest.mark.parametrize("seed", [7008, 7011])
def test_a_trace_names_members_that_not_all_know(
    seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """One is in the view before it is told so; one is named by a member that has an older view."""
    main(["--seed", str(seed)])
    verdict = capsys.readouterr().out
    assert main(["--seed", str(seed), "--trace"]) == 0
    assert capsys.readouterr().out.endswith("\n" + verdict)


def test_a_world_that_breaks_a_law_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("eris.testing.realm.PATIENCE", -12.0)  # nobody is through that soon
    assert main(["--seed", "3"]) == 1
    assert "LawBroken: no progress although enough are connected" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--seed", "1", "--kinds", "rain"], "--kinds names rain; expected some of drop, dup"),
        (["--found", "1000"], "--found is 1000; expected 1 to "),
        ([], "one of the arguments --seed --found is required"),
    ],
)
def test_a_world_that_there_is_not(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert why in capsys.readouterr().err
