"""Node processes killed at random moments: three of the runs that `make kills` has thirty of."""

from __future__ import annotations

from pathlib import Path

import pytest

from eris.testing.kills import Plan, carry_out

SEEDS = (3, 15, 22)


@pytest.mark.parametrize("seed", SEEDS)
def test_all_end_with_one_model_and_nothing_is_lost(seed: int, tmp_path: Path) -> None:
    outcome = carry_out(seed, tmp_path / "run")
    assert not outcome.findings, str(outcome) + "\n" + "\n".join(outcome.findings)
    assert outcome.counted > outcome.made / 2


def test_these_runs_have_every_role_and_every_fate() -> None:
    incidents = [incident for seed in SEEDS for incident in Plan.drawn(seed).incidents]
    assert {incident.role for incident in incidents} == {"client", "owner", "directory"}
    assert {incident.fate for incident in incidents} == {"killed", "killed without disk", "frozen"}
