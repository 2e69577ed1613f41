"""What the planner cites is what the pages print; its seconds are those that were measured."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import eris.planning
from eris.experiments.audits.tables import AUDITS
from eris.planning.evidence import beside_noise, facts, noisy_trainings, overhead
from eris.planning.plan import planned
from eris.planning.question import Question
from eris.theory.distribution_time import Links

DOCS = Path(__file__).parents[2] / "docs"
STORED = tomllib.loads((Path(eris.planning.__file__).parent / "evidence.toml").read_text("utf-8"))
PROGRAMS = {"audit-visible", "audit-completion", "audit-choosing", "audit-secure"}


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", facts())
def test_every_figure_of_a_fact_stands_on_its_page(name: str) -> None:
    fact = facts()[name]
    text = page(fact.page)
    for figure in fact.figures:
        assert figure in text, f"{name}: {figure} is not in {fact.page}"
    numbers = set(re.findall(r"\d+\.\d+", fact.says))
    quoted = set(re.findall(r"\d+\.\d+", " ".join(fact.figures)))
    assert numbers - quoted <= {"3.3", "0.07"}, "a figure is said that is not held against the page"
    assert fact.setting


@pytest.mark.parametrize("name", facts())
def test_every_command_is_one_that_there_is(name: str) -> None:
    words = re.findall(r"audit-[a-z0-9-]+", facts()[name].source)
    assert words
    assert set(words) <= set(AUDITS) | PROGRAMS


@pytest.mark.parametrize("one", STORED["round"], ids=lambda one: one["source"])
def test_rounds_that_were_measured_are_predicted_within_a_fifth(one: dict[str, Any]) -> None:
    assert f"{one['ratio']:.3f}" in page("benchmarks.md")
    a, c = overhead(one["kind"])
    assert (a * one["limit"] + c) / (one["limit"] * one["ratio"]) == pytest.approx(1, abs=0.2)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        # docs/benchmarks.md, eight nodes on two cores, 100 Mbit/s: s a round.
        ({"secure": "none"}, 6.04),
        ({"secure": "none", "aggregators": 2}, 14.23),
        ({"secure": "none", "parameters": 10**6}, 0.66),
        ({"secure": "none", "kept": 0.05}, 4.74 * 0.28),
        ({"secure": "2 of 3"}, 11.86),
        ({"secure": "2 of 3", "ring_bytes": 4}, 7.73),
        ({"secure": "2 of 3", "parameters": 10**6}, 1.25),
        ({"secure": "2 of 3", "parameters": 10**6, "ring_bytes": 4}, 0.86),
    ],
)
def test_plans_of_the_benchmarks_are_predicted_within_a_fifth(
    given: dict[str, Any], seconds: float
) -> None:
    usual: dict[str, Any] = {"parameters": 10**7}
    asked = Question(clients=8, links=Links.uniform(100e6 / 8), members_per_core=4, **usual | given)
    assert planned(asked).seconds / seconds == pytest.approx(1, abs=0.2)


def test_trainings_with_noise_are_those_of_their_page() -> None:
    text = page("shared-noise.md")
    for one in noisy_trainings():
        assert f"| {one.std:g} |" in text
        assert f"{one.accuracy:.1f}" in text
        assert f"{one.clipped:.1f}" in text
        assert f"({one.parameters:,} parameters" in text
    ratios = [one.ratio for one in noisy_trainings()]
    assert ratios == sorted(ratios)
    assert beside_noise(ratios[-1]) == noisy_trainings()[-1]
    assert beside_noise(ratios[-1] * 1.01) is None
