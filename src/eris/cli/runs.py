"""``eris runs``, ``eris compare`` and ``eris methods``: what was run, and what can be."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from eris.cli import completion
from eris.cli.output import JsonOption, output
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
    as_json: JsonOption = False,
) -> None:
    """List the runs that were kept, or show one in full.

    \b
    eris runs --sort accuracy
    eris runs --json
    eris runs show mnist-eris
    """
    context.obj = runs
    if context.invoked_subcommand is None:
        _list(sort, runs, as_json)


def _list(sort: str, runs: Path | None, as_json: bool) -> None:
    """All runs in a table; of those that cannot be read, why."""
    from eris.experiments.runs.documents import summarised
    from eris.experiments.runs.report import Summary, runs_table

    console = Console(highlight=False)
    root = kept_runs(runs)
    summaries, told, found = [], [], []
    for run in all_runs(root):
        try:
            if isinstance(run, ErisError):
                raise run
            summaries.append(Summary.of(run))
            found.append(summarised(run))
            if damage := run.damage():
                told.append(f"damaged: {damage}")
        except ErisError as broken:
            told.append(f"not readable: {broken}")
    with output(as_json) as figures:
        if summaries:
            console.print(runs_table(summaries, sort))
        elif not told:
            empty = f"No runs in {root}; `eris run --help` says how to make one."
            console.print(empty, markup=False)
        say(*told)
        figures({"folder": str(root), "runs": found, "problems": told})


@app.command("show")
def show_run(
    context: typer.Context,
    run: Annotated[
        str,
        typer.Argument(help="Name of a run, or its folder.", autocompletion=completion.runs),
    ],
    runs: RunsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a run: its settings, versions, checksums, last metrics and files.

    \b
    eris runs show mnist-eris
    eris runs show mnist-eris --json
    """
    from eris.experiments.runs.documents import in_full
    from eris.experiments.runs.report import shown

    found = find(run, kept_runs(runs or context.obj))
    with output(as_json) as figures:
        say(*shown(found))
        figures(in_full(found))


def compare(
    names: Annotated[
        list[str],
        typer.Argument(metavar="RUN…", help="Runs to compare.", autocompletion=completion.runs),
    ],
    picture: Annotated[Path | None, typer.Option(help="Draw the curves into this file.")] = None,
    metric: Annotated[
        str | None, typer.Option(help="What to draw; the first that all runs have.")
    ] = None,
    runs: RunsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put runs side by side; draw a metric against rounds and against bytes sent.

    \b
    eris compare mnist-fedavg mnist-eris --picture mnist.png --metric accuracy
    eris compare mnist-fedavg mnist-eris --json
    """
    from eris.experiments.runs.documents import compared
    from eris.experiments.runs.report import comparison, draw

    if metric is not None and picture is None:
        raise InvalidSetting("--metric", metric, "--picture beside it: the table shows them all")
    if picture is not None:
        check_picture("--picture", picture)
    found = [find(name, kept_runs(runs)) for name in names]
    for run in found:
        run.check(ROUNDS, CLIENTS, MODEL)
    drawn = None if picture is None else draw(found, picture, metric)
    with output(as_json) as figures:
        Console(highlight=False).print(comparison(found))
        if drawn is not None:
            say(f"Picture of {drawn}: {picture}")
        figures({**compared(found), "picture": None if picture is None else str(picture)})


def methods(
    name: Annotated[
        str | None,
        typer.Argument(help="One method, with its settings.", autocompletion=completion.methods),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the methods, or the settings of one.

    \b
    eris methods
    eris methods eris
    eris methods eris --json
    """
    from eris.methods.registry import METHODS

    if name is not None and name not in METHODS:
        raise InvalidSetting("method", name, one_of(METHODS, name))
    with output(as_json) as figures:
        if name is None:
            _show_methods()
            figures({"methods": [_document(known) for known in METHODS]})
        else:
            _show_method(name)
            figures(_document(name))


def _show_methods() -> None:
    from eris.methods.registry import METHODS, settings_of

    console = Console(highlight=False)
    for known, method in METHODS.items():
        listed = (f"{key}={_default(value)}" for key, value in settings_of(known).items())
        console.print(f"[bold]{known}[/bold]  {escape(_what(method))}")
        for line in (method.paper, ", ".join(listed) or "no settings"):
            console.print(Padding(Text(line, style="dim"), (0, 0, 0, 4)))
    console.print("\n`eris methods NAME` tells more of one.", markup=False)


def _show_method(name: str) -> None:
    from eris.methods.registry import METHODS

    console, kind = Console(highlight=False), METHODS[name]
    console.print(f"{name}: {kind.paper}\n{_paragraphs(kind)}", markup=False)
    settings = _document(name)["settings"]
    if not settings:
        return
    table = Table("setting", "what it takes", "if left out")
    for setting, told in settings.items():
        table.add_row(setting, Text(told["takes"]), Text(_default(told["default"])))
    console.print(table)
    console.print(f"eris run --method {name} --set SETTING=VALUE", markup=False)


def _document(name: str) -> dict[str, Any]:
    """A method and its settings."""
    from eris.methods.privacy import LocalPrivacy
    from eris.methods.registry import METHODS, compressor_words, settings_of

    kind = METHODS[name]
    hints = {**get_type_hints(LocalPrivacy), **get_type_hints(kind)}
    settings = {
        key: {
            "takes": compressor_words() if key == "compressor" else expected(hints[key]),
            "default": default,
        }
        for key, default in settings_of(name).items()
    }
    return {"name": name, "what": _what(kind), "paper": kind.paper, "settings": settings}


def _what(kind: type) -> str:
    """What the first line of a method's file says of it."""
    first = (sys.modules[kind.__module__].__doc__ or "").partition("\n")[0]
    return first.partition(": ")[2]


def _default(value: object) -> str:
    return "–" if value is None else str(value)


def _paragraphs(kind: type) -> str:
    """The docstring without its examples, and its references as the words that they are."""
    text = re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`", r"\1", kind.__doc__ or "")
    lines = [line.strip() for line in text.strip().splitlines()]
    examples = next((i for i, line in enumerate(lines) if line.startswith(">>>")), len(lines))
    paragraphs = "\n".join(lines[:examples]).strip().replace("``", "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
