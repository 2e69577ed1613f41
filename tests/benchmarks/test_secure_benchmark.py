"""The benchmark of secure sums: its ratios by hand, what it refuses, and its small parts."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from io import StringIO
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from benchmarks.hosts.cpu import CpuMeter, seconds_of_descendants
from benchmarks.hosts.engine import EngineRun, NotWhole
from benchmarks.hosts.flower import SECAGG, write_app
from benchmarks.hosts.secagg import SecAggRound, SecAggRun
from benchmarks.published_sizes import WrongSum, measured
from benchmarks.secure import CHARTERS, NOISE, Measuring, Plan, all_charters, parse
from benchmarks.secure_figures import (
    Found,
    Run,
    conditions,
    figures,
    limit_s,
    report,
    secagg_seconds,
)
from rich.console import Console

from benchmarks import published_sizes, secure
from eris.core.errors import InvalidSetting
from eris.core.vectors import Vector
from eris.protocol.secure.sums import plain_words

TERMS = {"version": "1.41.0", "clipping_range": 8.0, "levels": 2**22, "word_bytes": 8}
STEP = 16 / 2**22


def secagg(*rounds: tuple[float, int]) -> SecAggRun:
    """Rounds by their seconds and dropouts."""
    return SecAggRun(TERMS, tuple(SecAggRound(s, 70.0, 8 - d, STEP / 2) for s, d in rounds))


def measurements() -> Found:
    """A whole set: plain rounds of 6 s at ten million coordinates, and the rest in proportion."""
    found = Found()
    found.cpu = {
        "plain": Run(10**6, (1.0,), 2.0),
        "8b": Run(10**6, (1.0,), 4.0),
        "4b_noise": Run(10**6, (1.0,), 5.0),
    }
    found.engine = {"plain": 0.05, "4b": 0.1}
    found.links = {
        (10**7, "plain"): Run(10**7, (6.0, 5.6, 9.0), 3.0, 560e6),
        (10**7, "8b"): Run(10**7, (10.8,), 5.0, 1e9),
        (10**6, "plain"): Run(10**6, (0.6,), 0.4),
        (10**6, "4b"): Run(10**6, (0.72,), 0.5),
    }
    found.killed = {
        (1, "plain"): Run(10**7, (5.0,), 3.0, longest_s=17.0),
        (1, "4b"): Run(10**7, (6.0,), 3.5, longest_s=19.0),
    }
    found.secagg = {
        1000: secagg((60.0, 0), (50.0, 0)),
        10**7: secagg((300.0, 0), (160.0, 0), (158.0, 0), (120.0, 1)),
    }
    found.secagg_sent = {1000: 1e6, 10**7: 960e6}
    return found


# -- figures ----------------------------------------------------------------------------------


def test_figures_are_ratios_of_medians_and_those_of_the_largest_size_have_no_suffix() -> None:
    assert figures(measurements()) == pytest.approx(
        {
            "cpu_plain_s": 2.0,
            "cpu_over_plain_8b": 2.0,
            "cpu_over_plain_4b_noise": 2.5,
            "engine_cpu_plain_s": 0.05,
            "engine_cpu_over_plain_4b": 2.0,
            "vs_own_limit_plain": 6.0 / 5.6,
            "vs_own_limit_8b": 10.8 / 10.0,
            "time_over_plain_8b": 1.8,
            "vs_own_limit_plain_n1000000": 0.6 / 0.56,
            "vs_own_limit_4b_n1000000": 0.72 / 0.64,
            "time_over_plain_4b_n1000000": 1.2,
            "time_over_plain_4b_killed_1": 1.2,
            "longest_s_plain_killed_1": 17.0,
            "longest_s_4b_killed_1": 19.0,
            # Of three rounds without dropouts the first does not count.
            "secagg_vs_bound": 159.0 / 76.8,
            "secagg_over_plain": 159.0 / 6.0,
            "secagg_bound_over_plain": 76.8 / 6.0,
            "secagg_less_starts_over_plain": (159.0 - 50.0) / 6.0,
            "secagg_over_8b": 159.0 / 10.8,
            "secagg_bound_over_8b": 76.8 / 10.8,
            "secagg_less_starts_over_8b": (159.0 - 50.0) / 10.8,
            "secagg_over_ours": 159.0 / 10.8,
        },
        # An escrow more or less, and four places.
        rel=2e-3,
    )


def test_conditions_name_the_secagg_that_was_measured() -> None:
    said = conditions(measurements(), (1, 2))
    assert said["flower"] == {"version": "1.41.0", "api": None, "word_bytes": 8}
    assert said["share_killed"] == {"1": 0.125, "2": 0.25}
    assert "flower" not in conditions(Found(), ())


def test_what_was_not_measured_has_no_figure() -> None:
    assert figures(Found()) == {}
    assert figures(Found(cpu={"8b": Run(10**6, (1.0,), 4.0)})) == {}
    alone = Found(secagg={10**6: secagg((99.0, 0))})
    assert figures(alone) == {"secagg_vs_bound": round(99 / 7.68, 4)}


def test_limits_of_variants_are_those_of_theory() -> None:
    assert limit_s(10**7, "plain") == pytest.approx(5.6)
    assert limit_s(10**7, "8b") == pytest.approx(10.0, rel=1e-3)
    assert limit_s(10**7, "4b") == pytest.approx(6.4, rel=1e-3)


def test_rounds_with_dropouts_are_apart_from_those_without() -> None:
    run = secagg((300.0, 0), (160.0, 0), (120.0, 1), (90.0, 2))
    assert [secagg_seconds(run, dropouts) for dropouts in range(3)] == [160.0, 120.0, 90.0]
    assert secagg_seconds(secagg((300.0, 0))) == 300.0


def test_the_report_names_what_was_measured_and_what_was_refused() -> None:
    found, console = measurements(), Console(width=130, file=StringIO())
    found.refused = {"nodes on links: 4b": "no such word"}
    found.sizes = [measured(5, 300, 8)]
    report(found, console)
    assert isinstance(console.file, StringIO)
    said = console.file.getvalue()
    assert "Flower 1.41.0 SecAgg+" in said
    assert "word bytes: 8" in said
    assert "nodes on links: 4b: refused: no such word" in said
    row = next(line for line in said.splitlines() if "10,000,000" in line and "8b" in line)
    cells = [cell.strip() for cell in row.strip("│ ").split("│")]
    assert cells == ["100 Mbit/s", "10,000,000", "8b", "1", "10.80", "10.00", "1.080", "5.00",
                     "1000.0"]  # fmt: skip


# -- measuring --------------------------------------------------------------------------------


def test_a_round_of_the_engine_that_is_not_whole_is_no_measurement() -> None:
    run = EngineRun(5, 100, 3, CHARTERS["8b"])
    run.step()
    run._session.step = lambda: Mock(included=0.8)  # type: ignore[method-assign]
    with pytest.raises(NotWhole, match=r"round 2: 0.8 of the clients"):
        run.step()


def test_a_variant_that_is_refused_is_noted_and_the_others_are_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run(places: Any, n: int, rounds: int, charter: Mapping[str, Any], killed: int = 0) -> Run:
        if charter.get("ring_bytes") == 4:
            raise InvalidSetting("ring_bytes", 4, "8")
        return Run(n, (1.0,), float(len(charter)))

    monkeypatch.setattr(secure, "nodes_run", run)
    measuring = Measuring(Plan(), say=lambda text: None)
    measuring.cpu()
    assert set(measuring.found.cpu) == {"plain", "8b", "8b_noise"}
    assert {what.rpartition(" ")[2] for what in measuring.found.refused} == {"4b", "4b_noise"}


def test_plain_nodes_that_fail_end_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: Any, **__: Any) -> Run:
        raise InvalidSetting("shards", 8, "9")

    monkeypatch.setattr(secure, "nodes_run", run)
    with pytest.raises(InvalidSetting, match="shards is 8"):
        Measuring(Plan(), say=lambda text: None).cpu()


def test_charters_differ_in_nothing_but_their_words_of_secure_sums() -> None:
    plain = CHARTERS["plain"]
    for name, charter in all_charters().items():
        assert plain.items() <= charter.items()
        further = set(charter) - set(plain)
        expected = set() if name == "plain" else {"secure_sums", "ring_bytes"}
        assert further == (expected | set(NOISE) if name.endswith("noise") else expected)


def test_a_mean_that_is_off_by_more_than_the_grid_is_refused() -> None:
    secagg((99.0, 0)).check()
    wrong = SecAggRun(TERMS, (SecAggRound(99.0, 70.0, 8, 2 * STEP),))
    with pytest.raises(SystemExit, match=r"round 1: the mean is off by 7.63e-06.*allows 3.81e-06"):
        wrong.check()


def test_the_app_of_secagg_is_a_project_with_both_of_its_components(tmp_path: Path) -> None:
    app = write_app(tmp_path / "app", {"clients": 8, "dropouts": "[0, 1]"}, SECAGG)
    project = tomllib.loads((app / "pyproject.toml").read_text(encoding="utf-8"))
    source = (app / f"{SECAGG}.py").read_text(encoding="utf-8")
    for name in ("serverapp", "clientapp"):
        module, _, variable = project["tool"]["flwr"]["app"]["components"][name].partition(":")
        assert module == SECAGG
        assert f"\n{variable} = " in source


def test_children_and_theirs_count_after_they_have_ended() -> None:
    child = "import time\nwhile time.process_time() < 0.3: pass"
    parent = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {child!r}])\n{child}"
    before = seconds_of_descendants()
    subprocess.run([sys.executable, "-c", parent], check=True)
    # Two times 0.3 s, each counted in ticks of 10 ms and in two parts.
    assert seconds_of_descendants() - before >= 0.55


def test_a_meter_interpolates_between_what_it_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = count(100.0, 10.0)
    monkeypatch.setattr("benchmarks.hosts.cpu.time.time", lambda: next(clock))
    with CpuMeter(read=iter([5.0, 9.0]).__next__) as meter:
        pass
    assert meter.between(100.0, 110.0) == pytest.approx(4.0)
    assert meter.between(102.5, 105.0) == pytest.approx(1.0)


# -- published sizes --------------------------------------------------------------------------


@pytest.mark.parametrize("ring_bytes", [4, 8])
def test_bytes_of_a_round_are_those_of_its_messages(ring_bytes: int) -> None:
    clients, values = 6, 20_000  # two segments
    cost = measured(clients, values, ring_bytes).round
    nonce, head, escrow, digest, number = 16, 32, 352, 32, 4
    words = values * ring_bytes
    assert cost.sent["client"] == pytest.approx(words + 2 * (nonce + head + escrow))
    # Two of three seats answer, with a digest before the head.
    answers = 2 / 3 * (words + 2 * (digest + number + head))
    assert cost.sent["helper"] == pytest.approx(clients * (digest + number) + answers)
    assert set(cost.cpu_s) == {"client", "helper", "owner"}


def test_a_sum_that_is_off_by_one_is_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    def off(values: Vector, samples: int, fraction_bits: int) -> Any:
        words = plain_words(values, samples, fraction_bits)
        words[0] += 1
        return words

    monkeypatch.setattr(published_sizes, "plain_words", off)
    with pytest.raises(WrongSum, match="5 clients × 100 values, 8 bytes a word"):
        measured(5, 100, 8)


# -- the program ------------------------------------------------------------------------------


def test_arguments_choose_sizes_rounds_and_what_is_measured() -> None:
    plan, wanted = parse([])
    assert plan == Plan()
    assert wanted == ["cpu", "engine", "links", "killed", "secagg", "sizes"]
    assert plan.secagg_dropouts() == [0, 0, 0, 1, 2]
    plan, wanted = parse(["--sizes", "1e6", "--secagg-rounds", "2", "--only", "links", "secagg"])
    assert plan.sizes == (1_000_000,)
    assert plan.secagg_dropouts() == [0, 0, 1, 2]
    assert wanted == ["links", "secagg"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rounds", "1"], "--rounds is 1; expected at least 2"),
        (["--secagg-rounds", "0"], "--secagg-rounds is 0; expected at least 1"),
        (["--sizes", "10"], "--sizes has 10; expected at least 1000"),
        (["--only", "pfl"], "invalid choice: 'pfl'"),
    ],
)
def test_wrong_arguments_are_named(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse(arguments)
    assert said in capsys.readouterr().err


def test_a_run_ends_with_its_figures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["secure.py", "--quick", "--only", "engine", "sizes"])
    secure.main()
    said = capsys.readouterr().out
    found = json.loads(said.strip().splitlines()[-1])
    assert found["benchmark"] == "secure (other sizes)"
    assert found["figures"]["client_ms_k20_n16384_8b"] > 0
    assert found["figures"]["engine_cpu_over_plain_4b_noise"] > 0
    assert not found["refused"]
    assert found["conditions"]["secure_sums"] == "2 of 3"
    assert len(found["conditions"]["load"]) == 2
    assert "in-step engine, plain" in said
