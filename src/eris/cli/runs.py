"""``eris runs``, ``eris compare`` and ``eris methods``: what was run, and what can be."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, get_type_hints

import typer
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from eris.cli.run import RunsOption
from eris.core.errors import ErisError, InvalidSetting, one_of
from eris.data.outputs import check_picture
from eris.experiments.figures import say
from eris.experiments.runs.store import CLIENTS, MODEL, ROUNDS, all_runs, find, kept_runs
from eris.tables import expected

app = typer.Typer()


@app.callback(invoke_without_command=True)
def list_runs(
    context: typer.Context,
    sort: Annotated[
        str, typer.Option(help="started, name, accuracy or another column; the best first.")
    ] = "started",
    runs: RunsOption = None,
) -> None:
    """List the runs that were kept, or show one in full.

    \b
    eris runs --sort accuracy
    eris runs show mnist-eris
    """
    context.obj = runs
    if context.invoked_subcommand is not None:
        return
    from eris.experiments.runs.report import Summary, runs_table

    console = Console(highlight=False)
    root = kept_runs(runs)
    summaries, told = [], []
    for run in all_runs(root):
        try:
            if isinstance(run, ErisError):
                raise run
            summaries.append(Summary.of(run))
            if damage := run.damage():
                told.append(f"damaged: {damage}")
        except ErisError as broken:
            told.append(f"not readable: {broken}")
    if summaries:
        console.print(runs_table(summaries, sort))
    elif not told:
        console.print(f"No runs in {root}; `eris run --help` says how to make one.", markup=False)
    say(*told)


@app.command("show")
def show_run(
    context: typer.Context,
    run: Annotated[str, typer.Argument(help="Name of a run, or its folder.")],
    runs: RunsOption = None,
) -> None:
    """Show a run: its settings, versions, checksums, last metrics and files.

    \b
    eris runs show mnist-eris
    """
    from eris.experiments.runs.report import shown

    say(*shown(find(run, kept_runs(runs or context.obj))))


def compare(
    names: Annotated[list[str], typer.Argument(metavar="RUN…", help="Runs to compare.")],
    picture: Annotated[Path | None, typer.Option(help="Draw the curves into this file.")] = None,
    metric: Annotated[
        str | None, typer.Option(help="What to draw; the first that all runs have.")
    ] = None,
    runs: RunsOption = None,
) -> None:
    """Put runs side by side; draw a metric against rounds and against bytes sent.

    \b
    eris compare mnist-fedavg mnist-eris --picture mnist.png --metric accuracy
    """
    from eris.experiments.runs.report import comparison, draw

    if metric is not None and picture is None:
        raise InvalidSetting("--metric", metric, "--picture beside it: the table shows them all")
    if picture is not None:
        check_picture("--picture", picture)
    found = [find(name, kept_runs(runs)) for name in names]
    for run in found:
        run.check(ROUNDS, CLIENTS, MODEL)
    drawn = None if picture is None else draw(found, picture, metric)
    console = Console(highlight=False)
    console.print(comparison(found))
    if drawn is not None:
        say(f"Picture of {drawn}: {picture}")


def methods(
    name: Annotated[str | None, typer.Argument(help="One method, with its settings.")] = None,
) -> None:
    """List the methods, or the settings of one.

    \b
    eris methods
    eris methods eris
    """
    from eris.methods.privacy import LocalPrivacy
    from eris.methods.registry import METHODS, settings_of

    console = Console(highlight=False)
    if name is None:
        for known, method in METHODS.items():
            listed = (f"{key}={_default(value)}" for key, value in settings_of(known).items())
            console.print(f"[bold]{known}[/bold]  {escape(_what(method))}")
            for line in (method.paper, ", ".join(listed) or "no settings"):
                console.print(Padding(Text(line, style="dim"), (0, 0, 0, 4)))
        console.print("\n`eris methods NAME` tells more of one.", markup=False)
        return
    if name not in METHODS:
        raise InvalidSetting("method", name, one_of(METHODS, name))
    kind, settings = METHODS[name], settings_of(name)
    console.print(f"{name}: {kind.paper}\n{_paragraphs(kind)}", markup=False)
    if not settings:
        return
    hints = {**get_type_hints(LocalPrivacy), **get_type_hints(kind)}
    table = Table("setting", "what it takes", "if left out")
    for setting, default in settings.items():
        table.add_row(setting, Text(expected(hints[setting])), Text(_default(default)))
    console.print(table)
    console.print(f"eris run --method {name} --set SETTING=VALUE", markup=False)


def _what(kind: type) -> str:
    """What the first line of a method's file says of it."""
    first = (sys.modules[kind.__module__].__doc__ or "").partition("\n")[0]
    return first.partition(": ")[2]


def _default(value: object) -> str:
    return "–" if value is None else str(value)


def _paragraphs(kind: type) -> str:
    """The docstring without its examples."""
    lines = [line.strip() for line in (kind.__doc__ or "").strip().splitlines()]
    examples = next((i for i, line in enumerate(lines) if line.startswith(">>>")), len(lines))
    paragraphs = "\n".join(lines[:examples]).strip().replace("``", "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
