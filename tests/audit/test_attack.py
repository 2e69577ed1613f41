"""Any attack: it is shown every sight of every round, and its report is printed and written."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.nn import functional

from eris.audit.attack import FinalModel
from eris.audit.linkability import Linking, PooledSamples, linkability, loss_mia, true_owners
from eris.audit.neighbour import NeighbourSight
from eris.audit.watch import Sight
from eris.core.errors import InvalidSetting
from eris.experiments.audits import auditing
from eris.experiments.audits.auditing import AuditOptions, audit_live, audit_transcript
from eris.experiments.runs import runner
from eris.experiments.runs.assembly import assemble
from eris.experiments.runs.progress import Progress
from eris.methods.shatter import Shatter
from support.audits import METHODS, ROUNDS, digits, subject
from support.command import Eris
from support.neighbours import learnt_by_heart, noise

PAGE = Path(__file__).parents[2] / "docs" / "audit.md"


@dataclass
class Counting:
    """An attack that notes what it was shown."""

    name: str = "counting"
    seen: Counter[tuple[str, int]] = field(default_factory=Counter)

    def see(self, sight: Sight | NeighbourSight | FinalModel) -> None:
        match sight:
            case Sight():
                for observer in sight.observers:
                    self.seen[f"observer {observer}", sight.round] += 1
            case NeighbourSight():
                self.seen[sight.observer.name, sight.round] += len(sight.pieces)
            case FinalModel():
                self.seen["final model", 0] += 1

    def report(self) -> Counting:
        return self

    def figures(self) -> dict[str, list[dict[str, Any]]]:
        rows = [{"who": who, "round": round, "sights": n} for (who, round), n in self.seen.items()]
        return {"what was shown": rows}


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> list[Counting]:
    """An attack more; every audit makes its own."""
    made: list[Counting] = []

    def make(audit: auditing.Audit) -> Counting:
        made.append(Counting())
        return made[-1]

    monkeypatch.setitem(auditing.ATTACKS, "counting", make)
    monkeypatch.setattr(auditing, "USUAL", [*auditing.USUAL, "counting"])
    return made


def test_every_observer_of_every_round_is_shown_once(counting: list[Counting]) -> None:
    found, transcript = subject("dsc")
    options = AuditOptions(("aggregator", "member", "final-model"), attacks=("counting",))
    stored = audit_transcript(found, transcript, options)
    rounds = {(f"observer {who}", round): 1 for who in range(5) for round in range(1, ROUNDS + 1)}
    assert counting[0].seen == {**rounds, ("final model", 0): 1}
    assert not stored.report.findings
    live = audit_live(assemble(digits("dsc")), options)
    assert counting[1].seen == counting[0].seen
    assert live.to_json()["what was shown"] == stored.to_json()["what was shown"]


def test_rounds_in_between_and_whom_nothing_reaches_are_not_shown(
    counting: list[Counting],
) -> None:
    found, transcript = subject("eris")
    options = AuditOptions(("member:7",), every=3, attacks=("counting",))
    audit_transcript(found, transcript, options)
    assert counting[0].seen == {("observer 0", 1): 1, ("observer 0", 4): 1}


def test_neighbours_are_shown_what_their_method_tells(
    counting: list[Counting], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS, "el", {"method.name": "el", "method.degree": 3})
    found, transcript = subject("el")
    audit_transcript(found, transcript, AuditOptions(("neighbour:2",), attacks=("counting",)))
    assert counting[0].seen == {("neighbour 2", round): 3 for round in range(1, ROUNDS + 1)}


def test_attacks_beside_each_other_find_what_each_finds_alone(counting: list[Counting]) -> None:
    found, transcript = subject("dsc")
    asked = AuditOptions(("aggregator:1",), draws=20, attacks=("membership", "counting"))
    both = audit_transcript(found, transcript, asked)
    alone = AuditOptions(("aggregator:1",), draws=20, attacks=("membership",))
    expected = audit_transcript(found, transcript, alone).to_json()
    assert {*both.to_json()} - {*expected} == {"what was shown"}
    assert {name: both.to_json()[name] for name in expected} == expected


def test_the_command_prints_and_writes_any_report(
    counting: list[Counting], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    runner.start(digits("eris", name="r"), tmp_path / "runs", Progress())
    eris = Eris(monkeypatch, capsys)
    asked = ("audit", "r", "--as", "aggregator:2", "--as", "final-model", "--attack", "counting")
    assert eris(*asked) == 0, eris.err
    written = json.loads((tmp_path / "runs" / "r" / "audit.json").read_text(encoding="utf-8"))
    rows = written["what was shown"]
    assert rows == [
        *({"who": "observer 0", "round": r, "sights": 1} for r in range(1, ROUNDS + 1)),
        {"who": "final model", "round": 0, "sights": 1},
    ]
    assert written["findings"] == []
    lines = [line.split() for line in eris.out.splitlines()]
    assert ["who", "round", "sights"] in lines
    for row in rows:
        assert f"{row['who']} {row['round']} {row['sights']}".split() in lines
    assert "Pictures" not in eris.out
    assert "did you mean 'counting'" in eris.refused("audit", "r", "--attack", "counted")


def test_an_attack_that_does_not_exist_is_refused_before_anything_is_read() -> None:
    with pytest.raises(InvalidSetting, match=r"attack is 'membersip'.*did you mean 'membership'"):
        AuditOptions(attacks=("membersip",))


def test_the_attack_that_the_documentation_shows_runs_as_it_says() -> None:
    text = PAGE.read_text(encoding="utf-8")
    shown = re.findall(r"```python\n(.*?)```", text.partition("### An attack of your own")[2], re.S)
    names: dict[str, Any] = {"np": np, "Sight": Sight, "ATTACKS": {}}
    exec("\n".join(shown[:2]), names)
    found, transcript = subject("eris")
    auditing.ATTACKS.update(names["ATTACKS"])
    try:
        options = AuditOptions(("aggregator:0", "aggregator:1"), attacks=("coverage",))
        figures = audit_transcript(found, transcript, options).to_json()
    finally:
        del auditing.ATTACKS["coverage"]
    (row,) = figures["coverage of client 0"]
    assert 0.4 * 650 < row["coordinates"] < 0.6 * 650, "two shards of four"


def test_linkability_is_an_attack_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told the training sets, which a command cannot know; the loop is the same."""
    run = learnt_by_heart(Shatter(3, 4), rounds=2)
    inputs, targets = run.candidates.inputs, run.candidates.targets
    mine = run.candidates.client
    parts = {node: (inputs[mine == node], targets[mine == node]) for node in range(6)}
    held = PooledSamples.of(run.module, functional.cross_entropy, parts, noise(20, "test"))

    def make(audit: auditing.Audit) -> Linking:
        return Linking(held, audit.owners, most=4)

    monkeypatch.setitem(auditing.ATTACKS, Linking.name, make)
    given = auditing.Subject(
        run.transcript, run.module, functional.cross_entropy, run.initial, run.candidates, {}
    )
    options = AuditOptions(("neighbour:1", "neighbour:3"), attacks=(Linking.name,))
    found = audit_transcript(given, run.transcript, options).reports[Linking.name]
    slow = Linking(held, true_owners(run.settings, run.transcript.records), most=4)
    for member in (1, 3):
        watch = run.watch(member)
        for round, records in run.rounds():
            slow.see(watch.follow(round, records))
    assert len(slow.trials) == 2 * 2 * 4
    figures = found.figures()
    assert figures["linkability"][0]["share"] == linkability(slow.trials).share
    by_node = loss_mia(slow.trials).by_node
    assert figures["loss attack"][0]["by_node"] == pytest.approx(by_node)
