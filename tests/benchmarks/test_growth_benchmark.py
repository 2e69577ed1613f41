"""The benchmark of growth: its pure parts, and a run on few coordinates."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks.growth import (
    METHODS,
    PIECE,
    Cost,
    Point,
    PreparedUpdates,
    exponent,
    figures,
    lines,
    prepared,
)

from eris.core.streams import Stream
from eris.methods.eris import ERIS
from eris.methods.fedavg import FedAvg

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "growth.py"


def cost(seconds: float) -> Cost:
    return Cost(2 * seconds, seconds, 1.0, rounds=3, sent_mb=1.0, peak_mib=10 * seconds)


def test_the_exponent_of_a_power_law_is_found() -> None:
    assert exponent([(x, 3e-4 * x**1.7) for x in (10, 100, 1000)]) == pytest.approx(1.7)


def test_the_exponent_of_other_points_is_the_best_line_through_their_logarithms() -> None:
    pairs = [(1.0, 1.0), (10.0, 100.0), (100.0, 1000.0)]
    x, y = np.log10(np.array(pairs)).T
    slope = ((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum()
    assert exponent(pairs) == pytest.approx(slope)


def test_lines_join_points_that_differ_in_one_number() -> None:
    grid = [(10, 100), (20, 100), (10, 400), (30, 900)]
    costs = {Point("eris", k, n): cost(k * n) for k, n in grid}
    costs[Point("fedavg", 40, 100)] = cost(1)
    assert lines(costs, "eris") == {
        "K, n=1e+02": [(10, 1_000), (20, 2_000)],
        "n, K=10": [(100, 1_000), (400, 4_000)],
    }


def test_figures_take_exponents_from_cpu_time_and_speed_from_the_clock() -> None:
    costs = {
        Point(method, k, n): cost(1e-6 * k * n**0.5)
        for method in METHODS
        for k in (10, 50)
        for n in (100, 10_000)
    }
    found = figures(costs)
    for method in ("fedavg", "eris", "eris_dsc"):
        assert found[f"{method}_exponent_K_at_n_1e4"] == 1
        assert found[f"{method}_exponent_n_at_K_50"] == 0.5
        assert found[f"{method}_largest_rounds_s"] == 100  # 50 · 100 µs of CPU, twice that in all


def test_points_name_the_methods() -> None:
    assert Point("fedavg", 10, 100).composition() == FedAvg()
    assert Point("eris", 10, 100).composition() == ERIS(aggregators=10)
    compressed = Point("eris + dsc", 1000, 100).composition()
    assert compressed == ERIS(aggregators=50, kept_fraction=0.05)


def test_clients_hand_out_prepared_vectors_in_turn() -> None:
    population = PreparedUpdates(5, 100)
    updates = list(population.updates([0, 1, 4], np.zeros(100, np.float32), round=1))
    assert updates[0].vector is updates[2].vector
    assert updates[0].vector.dtype == np.float32
    assert (updates[0].vector != updates[1].vector).any()
    assert 0 < np.abs(updates[0].vector).max() <= 0.01


def test_vectors_made_in_pieces_are_one_stream() -> None:
    n = 2 * PIECE + 10
    whole = (Stream(0, "growth", client=1).uniform(0, n) - 0.5) / 50
    np.testing.assert_array_equal(prepared(n, 1), whole.astype(np.float32))


def test_a_quick_run_ends_with_its_figures_and_a_plot(tmp_path: Path) -> None:
    picture = tmp_path / "new" / "growth.png"
    command = [sys.executable, str(SCRIPT), "--quick", "--plot", str(picture)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    *table, last = done.stdout.strip().splitlines()
    report = json.loads(last)
    assert report["benchmark"] == "growth"
    assert all(np.isfinite(value) for value in report["figures"].values())
    assert "eris_dsc_exponent_n_at_K_50" in report["figures"]
    assert sum("eris + dsc" in line for line in table) == 6
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_one_point_is_measured_in_a_process_of_its_own() -> None:
    point = json.dumps({"method": "eris", "clients": 3, "n": 1000})
    command = [sys.executable, str(SCRIPT), "--point", point]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    measured = Cost(**json.loads(done.stdout))
    # Three clients send two shards of 1333 bytes each to the others, and two get each result.
    assert measured.sent_mb == pytest.approx(12 * 4 * 1000 / 3 / 1e6, rel=0.1)
    assert measured.rounds >= 2
    assert measured.cpu_s > 0
    assert measured.peak_mib > 50
