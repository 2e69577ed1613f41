"""The benchmark of EncCluster: its figures by hand, what it refuses, and a run on few weights."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.enccluster import FORMS, Plan, Times, figures, law, over_law, segment

from benchmarks import enccluster
from eris.protocol.enccluster.opening import open_fully
from eris.protocol.messages import Contribution, Result, Reveal, RevealRequest
from eris.theory.enccluster_costs import RoundBytes

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "enccluster.py"
SMALL = Plan(500, 5, 4, fraction_bits=10, sample=10, paillier=(256,), paillier_sample=3, repeats=1)


def test_what_is_sampled_is_extrapolated_to_all_weights() -> None:
    times = Times(
        {"cluster": [0.06], "encrypt": [0.004, 0.006, 0.005], "pack": [0.01], "share": [0.001],
         "full": [2.0], "shortcut": [0.5], "detrust": [0.3], "sefl_256": [0.004]}
    )  # fmt: skip
    found = figures(Plan(paillier=(256,)), times, True)
    assert found["client_encrypt_detrust_extrapolated_s"] == pytest.approx(0.3 * 180)
    assert found["client_encrypt_detrust_over_ours"] == pytest.approx(54 / 0.005)
    assert found["client_encrypt_detrust_over_ours_with_clustering"] == pytest.approx(54 / 0.075)
    assert found["client_encrypt_sefl_256_extrapolated_s"] == pytest.approx(0.0001 * 81_000)
    assert found["server_s_270k_n10"] == 2.0
    assert found["server_shortcut_s_270k_n10"] == 0.5
    assert found["aggregate_exact"] == 1


def test_bytes_beside_the_law_count_a_header_a_message() -> None:
    plan = Plan(clients=2)
    expected = RoundBytes(1000, 100, 64, 4000)
    sizes = {Contribution: [1128] * 2, RevealRequest: [228] * 2, Reveal: [192] * 2,
             Result: [4128] * 2}  # fmt: skip
    assert over_law(plan, sizes, expected) == pytest.approx(1)
    sizes[Contribution] = [1128, 1128 + 5676]
    assert over_law(plan, sizes, expected) == pytest.approx(1.5)
    with pytest.raises(SystemExit, match="1 messages Result"):
        over_law(plan, {Result: [4128]}, expected)


def test_every_form_has_a_law() -> None:
    sizes = {form: law(SMALL, form).contribution for form in FORMS}
    assert sizes["sealed"] == sizes["packed"] + 28
    assert sizes["packed"] < sizes["filter8"] < sizes["filter16"]


def test_both_paths_are_held_against_the_plain_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert segment(SMALL, Times())

    def off(*about: Any) -> Any:
        found = open_fully(*about)
        found[3] += 1
        return found

    monkeypatch.setattr(enccluster, "open_fully", off)
    assert not segment(SMALL, Times())


def test_clients_differ_by_a_tenth_and_fit_the_range() -> None:
    plan = Plan(weights=20_000)
    one, other = enccluster.model(plan, 0), enccluster.model(plan, 1)
    assert float(np.std(one - other) / np.std(one)) == pytest.approx(0.14, abs=0.01)
    assert np.abs(one).max() < plan.scale.most


def test_a_quick_run_ends_with_its_figures() -> None:
    small = ["--weights", "500", "--clients", "5", "--clusters", "4", "--fraction-bits", "10",
             "--sample", "10", "--paillier", "256", "--paillier-sample", "3",
             "--repeats", "1"]  # fmt: skip
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *small], check=True, capture_output=True, text=True
    )
    *told, last = done.stdout.strip().splitlines()
    report = json.loads(last)
    assert report["benchmark"] == "enccluster"
    found = report["figures"]
    assert found["aggregate_exact"] == 1
    assert 0.5 < found["wire_bytes_over_law"] <= 1.05
    assert {"server_s_500_n5", "server_shortcut_s_500_n5"} <= set(found)
    assert found["client_encrypt_detrust_over_ours"] > 0
    assert any("extrapolated" in line for line in told)
