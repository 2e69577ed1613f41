"""Node processes killed at random moments: three of the runs that `make kills` has thirty of."""

from __future__ import annotations

from pathlib import Path

import pytest

from eris.testing.kills import Plan, carry_out

SEEDS = (3, 15, 22)


@pytest.mark.parametrize(
    "seed", [15, *(pytest.param(seed, marks=pytest.mark.slow) for seed in SEEDS if seed != 15)]
)
def test_all_end_with_one_model_and_nothing_is_lost(seed: int, tmp_path: Path) -> None:
    outcome = carry_out(seed, tmp_path / "run")
    assert not outcome.findings, str(outcome) + "\n" + "\n".join(outcome.findings)
    assert outcome.counted > outcome.made / 2


def test_these_runs_have_every_role_and_every_fate() -> None:
    incidents = [incident for seed in SEEDS for incident in Plan.drawn(seed).incidents]
    assert {incident.role for incident in incidents} == {"client", "owner", "directory"}
    assert {incident.fate for incident in incidents} == {"killed", "killed without disk", "frozen"}


def test_with_secure_sums_an_owner_and_one_that_only_helps_are_killed() -> None:
    for seed in range(20):
        plan = Plan.drawn(seed, secure=True)
        assert sorted(incident.role for incident in plan.incidents) == ["helper", "owner"]
        assert {i.victim for i in plan.incidents if i.role == "helper"} == plan.clients_only
        assert all("killed" in incident.fate for incident in plan.incidents)
