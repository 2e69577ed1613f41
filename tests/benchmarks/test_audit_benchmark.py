"""The benchmark of the audit: a run on few samples of a small data set."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from benchmarks.audit import AuditedRound, canaries, recipe

from eris.experiments.runs.assembly import assemble

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "audit.py"


def test_every_aggregator_is_audited_with_as_many_canaries_as_said() -> None:
    assembly = assemble(recipe(None, "digits", clients=6))
    found = canaries(assembly, 24)
    assert len(found) == 24
    np.testing.assert_array_equal(np.bincount(found.client), [4] * 6)
    audited = AuditedRound(assembly, 24)
    assert audited.train() > 0
    assert audited.audit() > 0
    assert audited.transcript.owners == set(range(6))


def test_a_quick_run_ends_with_its_figures() -> None:
    small = ["--data", "digits", "--clients", "6", "--canaries", "24", "--repeats", "2"]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *small], check=True, capture_output=True, text=True
    )
    *told, last = done.stdout.strip().splitlines()
    report = json.loads(last)
    assert report["benchmark"] == "audit"
    assert set(report["figures"]) == {"audit_vs_training", "audit_vs_training_dsc"}
    assert all(value > 0 for value in report["figures"].values())
    assert any("24 canaries" in line for line in told)
