"""What a user sees of a run that is under way."""

from __future__ import annotations

import io

from rich.console import Console

from eris.experiments.runs.progress import Bar, Lines, Progress, shown_on, size

LINE = {
    "round": 10,
    "metrics": {"accuracy": 0.875, "loss": None},
    "clients": 4,
    "clients_sent": 4 * 12_345,
    "clients_received": 4 * 2_000_000,
    "client_loss": 0.5,
}


def told(terminal: bool) -> str:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=150, record=True)
    progress: Progress = shown_on(console)
    assert isinstance(progress, Bar if terminal else Lines)
    if not terminal:
        ticks = iter(range(0, 1000, 3))
        progress = Lines(console, lambda: next(ticks))
    for name in ("first", "[second]"):  # one after another, as `eris reproduce` does
        progress.begin(name, 9, 20)
        progress.round(LINE)
        progress.round({**LINE, "round": 11, "metrics": {}})
        progress.round({**LINE, "round": 20, "metrics": {}, "client_loss": None})
        progress.end()
    return console.export_text()


def test_lines_for_files_come_with_every_round_and_say_how_long_it_will_take() -> None:
    rounds = [
        "round 10/20  accuracy 0.875  loss nan  a client: 12.3 kB up, 2.0 MB down  30 s left",
        "round 11/20  clients' loss 0.5  a client: 12.3 kB up, 2.0 MB down  27 s left",
        "round 20/20  a client: 12.3 kB up, 2.0 MB down",
    ]
    assert told(terminal=False).splitlines() == [
        "first goes on after round 9 of 20 rounds",
        *rounds,
        "[second] goes on after round 9 of 20 rounds",
        *rounds,
    ]


def test_a_terminal_gets_a_bar_with_round_metrics_and_bytes() -> None:
    shown = told(terminal=True)
    assert "12/20" in shown
    assert "[second]" in shown
    assert "accuracy 0.875  loss nan  a client: 12.3 kB up, 2.0 MB down" in shown


def test_sizes_are_short() -> None:
    assert [size(count) for count in (0, 999, 1000, 99_949, 247_000, 5e8, 1.2e12)] == [
        "0 B", "999 B", "1.0 kB", "99.9 kB", "247 kB", "500 MB", "1,200 GB",
    ]  # fmt: skip
