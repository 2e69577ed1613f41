"""The benchmark of the inversions: a run on two images."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "reconstruction.py"


def test_a_quick_run_ends_with_its_figures() -> None:
    small = ["--attacks", "idlg", "--images", "2", "--iterations", "3", "--repeats", "1"]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *small], check=True, capture_output=True, text=True
    )
    *told, last = done.stdout.strip().splitlines()
    report = json.loads(last)
    assert report["benchmark"] == "reconstruction"
    assert report["figures"]["idlg_images_per_minute_over_one_by_one"] > 0
    assert any("2 images" in line for line in told)
