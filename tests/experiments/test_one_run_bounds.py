"""Audits of single runs: within what noise promises, and beyond it where noise lacks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from eris.core.errors import InvalidSetting
from eris.experiments.audits import one_run_bounds
from eris.experiments.audits.one_run_bounds import (
    ATTACKERS,
    AuditedRun,
    BoundsCampaign,
    audited,
    canaries,
    summary,
)

SMALL = AuditedRun(rounds=4, canaries=128)


@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_bounds_stay_within_the_promise_and_what_openers_see_tells_more(rate: float) -> None:
    found = [audited(replace(SMALL, seed=seed, sampling_rate=rate)) for seed in range(5)]
    readers, openers = (summary(found, who) for who in ATTACKERS)
    assert readers["above"] == openers["above"] == 0
    assert 0.99 < readers["promised"] <= 1.0 < openers["promised"]
    assert readers["promised"] < readers["ceiling"], "or no bound could ever exceed it"
    assert openers["right"] > max(readers["right"], 0.55)


def test_too_little_noise_is_found() -> None:
    found = [audited(replace(SMALL, seed=seed, shrunk=0.1)) for seed in range(3)]
    assert summary(found, "readers")["above"] == 3


def test_what_is_done_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_run_bounds, "AuditedRun", lambda seed=0, rate=1.0: SMALL)
    monkeypatch.setattr(one_run_bounds, "RATES", (1.0,))
    campaign = BoundsCampaign(runs=str(tmp_path))
    first = campaign.kept(SMALL)
    monkeypatch.setattr(one_run_bounds, "audited", None)
    assert campaign.kept(SMALL) == json.loads(json.dumps(first))
    lines = (tmp_path / "one-run-bounds" / "figures.jsonl").read_text().splitlines()
    assert len(lines) == 1
    one_run_bounds.main(["--seeds", "2", "--runs", str(tmp_path)])


def test_shares_have_exact_intervals() -> None:
    below = {"promised": {"readers": 1.0}, "readers": {"epsilon": 0.5, "ceiling": 4.0, "right": 6,
             "guesses": 10}}  # fmt: skip
    above = {**below, "readers": {**below["readers"], "epsilon": 1.5}}
    one = summary([below] * 19 + [above], "readers")
    # Clopper and Pearson's, of one in twenty.
    assert (one["above"], one["seeds"]) == (1, 20)
    assert one["least share"] == pytest.approx(0.00127, abs=1e-5)
    assert one["most share"] == pytest.approx(0.24873, abs=1e-5)
    assert summary([below], "readers")["least share"] == 0


def test_more_canaries_than_there_are_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="canaries is 641; expected 1 to 640"):
        canaries(641)
