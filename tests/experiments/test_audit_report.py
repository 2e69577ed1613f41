"""What an audit shows: the figures it found, on a screen, in JSON and in pictures."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import cache
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console, RenderableType

from eris.experiments.audits.auditing import Outcome
from eris.experiments.audits.pictures import COLOURS, draw
from eris.experiments.audits.report import (
    MEANINGS,
    WIDTH,
    document,
    observers,
    ranked,
    scores_document,
    shown,
    verdict,
    write,
)
from support import audits

PARAMETERS = 650


@cache
def outcome(method: str = "dsc") -> Outcome:
    return audits.audited(method)


def printed(*parts: RenderableType) -> str:
    console = Console(file=StringIO(), width=WIDTH)
    for part in parts:
        console.print(part)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def screen(method: str = "dsc") -> str:
    return printed(*shown(outcome(method), PARAMETERS))


def row(text: str, start: str) -> list[str]:
    return next(line.split() for line in text.splitlines() if line.startswith(start))


def test_every_figure_on_the_screen_is_the_one_that_was_found() -> None:
    text = screen()
    joint = outcome().report.finding("aggregator 0", "joint")
    assert joint.paper is not None
    assert joint.bound is not None
    assert joint.best_round is not None
    pooled, curve = joint.pooled, joint.roc
    assert row(text, "joint ")[1:] == [
        f"{100 * joint.paper.accuracy:.1f}",
        f"{100 * joint.paper.null_mean:.1f}",
        f"({100 * joint.paper.null_q95:.1f})",
        f"{joint.paper.p_value:.3f}",
        f"{100 * pooled.accuracy:.1f}",
        f"[{100 * pooled.low:.1f},",
        f"{100 * pooled.high:.1f}]",
        f"{curve.auc:.3f}",
        f"[{curve.low:.2f},",
        f"{curve.high:.2f}]",
        "–", "–",  # too few others for rates this small
        f"{joint.bound.epsilon:.2f}",
        f"{joint.bound.ceiling:.2f}",
        f"{joint.best_round.epsilon:.2f}",
    ]  # fmt: skip
    everyone = outcome().report.everyone[0]
    assert everyone.mean is not None
    assert everyone.worst is not None
    found = row(text.partition("every aggregator")[2], "paper ")
    assert found[1] == f"{100 * everyone.mean.accuracy:.1f}"
    assert found[5] == f"{100 * everyone.worst.accuracy:.1f}"
    assert found[9:11] == [f"{everyone.mean_auc:.3f}", f"{everyone.worst_auc:.3f}"]


def test_the_first_lines_say_what_was_audited() -> None:
    lines = screen().partition("aggregator 0")[0]
    about = outcome().about
    for key in ("data", "model", "method", "seed", "clients", "canaries", "rounds"):
        assert row(lines, key)[-1] in str(about[key]) + ")"
    assert "scikit-learn" in lines
    assert "all rounds, seed 0" in lines


def test_blocks_say_who_sees_how_much() -> None:
    text = screen()
    seen = outcome().report.finding("aggregator 0", "joint").visible
    share = f"{100 * seen / PARAMETERS:.1f} %"
    assert f"aggregator 0 sees {seen:.0f} of 650 coordinates" in text
    assert share in text
    assert "member 4 sees no client's update, only what is published" in text
    assert "final model, and no message" in text
    assert "aggregator 1 sees" not in text
    blocks, folded = observers(outcome())
    assert folded == ["aggregator 1", "aggregator 2", "aggregator 3"]
    assert list(blocks)[:2] == ["aggregator 0", "member 4"]
    assert "3 more than above" in text


def test_an_infinite_bound_is_a_word_and_noise_makes_it_a_number() -> None:
    without = screen()
    assert "infinite: none holds" in without
    assert "adds no noise" in without
    text = screen("soteria")
    assert "infinite" not in text
    spent = outcome("soteria").accounted
    assert spent is not None
    assert spent.epsilon_pld is not None
    assert row(text, "promised, PLD")[2:] == ["ε", "≤", f"{spent.epsilon_pld:.3g}"]
    assert row(text, "promised, RDP")[2:] == ["ε", "≤", f"{spent.epsilon_rdp:.3g}"]
    assert "for every client alike" in text


def test_of_a_node_nothing_is_known_of_noise() -> None:
    about = {**outcome().about, "view of": "anna (member 0)", "candidates": 80}
    text = printed(*shown(replace(outcome(), about=about), PARAMETERS))
    assert "not known: a transcript does not tell of noise" in text
    assert "adds no noise" not in text
    assert "80 candidates, 4 rounds" in text


def test_a_verdict_leaks_only_where_the_interval_is_above_chance() -> None:
    (found,) = (f for f in outcome().report.findings
                if (f.observer, f.score) == ("aggregator 0", "joint"))  # fmt: skip
    assert found.pooled.low > 0.5
    assert verdict([found]).endswith("membership leaks.")
    fair = replace(found, pooled=replace(found.pooled, low=0.5, high=0.9))
    assert verdict([fair]).endswith("no leak is shown.")
    assert MEANINGS["joint"] in verdict([found])


def test_why_there_is_no_bound_is_said() -> None:
    findings = tuple(
        replace(found, bound=None, best_round=None, no_bound="canaries is 6; expected at least 9")
        for found in outcome().report.findings
    )
    few = replace(outcome(), reports={"membership": replace(outcome().report, findings=findings)})
    text = printed(*shown(few, PARAMETERS))
    assert "No bound on ε: canaries is 6; expected at least 9." in text
    assert row(text, "joint ")[-3:] == ["–", "–", "–"]


def test_json_holds_all_findings_and_no_infinity(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "audit.json"
    write(document(outcome(), "r"), path)
    read = json.loads(path.read_text(encoding="utf-8"))
    assert read["run"] == "r"
    assert len(read["findings"]) == len(outcome().report.findings)
    assert math.isinf(outcome().report.exposed[0].honest)
    assert read["exposed"][0]["honest"] is None
    joint = outcome().report.finding("coalition of 2", "joint")
    (same,) = (f for f in read["findings"]
               if (f["observer"], f["score"]) == ("coalition of 2", "joint"))  # fmt: skip
    assert same["roc"]["auc"] == joint.roc.auc


def test_pictures_are_drawn_of_what_there_is(tmp_path: Path) -> None:
    candidates = audits.subject("dsc")[0].candidates
    made = draw(outcome(), candidates, tmp_path / "all")
    assert [path.name for path in made] == [
        "roc.png", "rounds.png", "weights.png", "updates.png", "bound.png",
    ]  # fmt: skip
    for path in made:
        assert path.read_bytes().startswith(b"\x89PNG")
    final = audits.audited("dsc", "final-model")
    assert [path.name for path in draw(final, candidates, tmp_path / "one")] == ["roc.png"]
    assert len(set(COLOURS.values())) == len(COLOURS)


def test_without_a_truth_the_highest_are_listed() -> None:
    subject, transcript = audits.subject("dsc")
    candidates = subject.candidates
    text = printed(*ranked(outcome(), candidates, transcript.membership.members))
    scores = outcome().report.scores["aggregator 0", "joint"]
    first = int(np.argmax(scores))
    assert f"aggregator 0, by joint regression: highest of {len(candidates)} candidates" in text
    client = str(candidates.client[first])
    expected = [str(first), client, f"(client-{client})", f"{scores[first]:.4g}"]
    assert expected in [line.split()[:4] for line in text.splitlines()]
    assert "leaks" not in text
    read = scores_document(outcome(), candidates, "r")
    json.dumps(read, allow_nan=False)
    (joint,) = (one for one in read["scores"]
                if (one["observer"], one["score"]) == ("aggregator 0", "joint"))  # fmt: skip
    assert joint["values"] == scores.tolist()
    assert joint["candidates"] == list(range(len(candidates)))
    assert set(read["exposed"][0]) == {"observer", "rounds", "coordinates", "share"}


@pytest.mark.parametrize("method", ["dsc", "soteria"])
def test_the_screen_fits_its_width(method: str) -> None:
    assert all(len(line) <= WIDTH for line in screen(method).splitlines())
    assert "…" not in screen(method)
