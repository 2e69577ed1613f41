"""The benchmark of the core runs and reports; its timings are nobody's test."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "core.py"


def run(*arguments: str) -> list[str]:
    command = [sys.executable, str(SCRIPT), *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout.strip().splitlines()


def test_the_quick_run_ends_with_its_figures() -> None:
    *table, last = run("--quick")
    report = json.loads(last)
    assert report["benchmark"] == "core"
    figures = report["figures"]
    assert figures.pop("billion_extra_gib") is None
    assert set(figures) == {
        "split_vs_copy",
        "combine_vs_sweep",
        "reassemble_vs_copy",
        "split50_vs_copy",
        "reassemble50_vs_copy",
        "kept_set_mcoords_s",
    }
    assert all(value > 0 for value in figures.values())
    for work in ("copy", "split, A = 50", "reassemble, weighted", "encode 1 MiB"):
        assert any(work in line for line in table)


def test_streaming_is_checked_against_double_precision() -> None:
    """Three million coordinates make two stripes, of which the last is ragged."""
    (line,) = run("--stream", "3000001")
    assert set(json.loads(line)) == {"extra_gib", "peak_gib", "seconds"}
