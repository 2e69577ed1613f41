"""``eris run``: run a recipe, keep it, and go on after a stop. Its options are the recipe's."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, Field
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from rich.console import Console
from rich.markup import escape

from eris.cli.exits import FAILED, INTERRUPTED
from eris.cli.output import Figures, JsonOption, output
from eris.core.errors import InvalidSetting
from eris.core.toml import Kind, unwrapped
from eris.experiments.figures import say
from eris.experiments.runs.extras import need_for
from eris.experiments.runs.recipe import Recipe
from eris.experiments.runs.store import Run, find, kept_runs, runs_root
from eris.tables import Table, parsed, settings_of, subtables

RunsOption = Annotated[
    Path | None, typer.Option("--runs", help="Folder of all runs; $ERIS_RUNS, else runs.")
]

HELP = """Train by a recipe, from a TOML file or from options, and keep the run.

The run is a folder: recipe, versions and checksums, a line a round and client, checkpoints, model.
Stop it with Ctrl-C, or kill it, and go on with --resume to the same bits.

\b
eris run --data mnist --clients 50 --samples 16 --set kept_fraction=0.05 \\
  --rounds 120 --momentum 0.9 --name mnist-eris
eris run --data digits --set compressor=qsgd:16 --name quantised
eris run --trainer my_training:make_trainer --clients 5 \\
  --set trainer.learning_rate=0.2
eris run recipe.toml --seed 1 --name second
eris run --resume mnist-eris
eris run --data digits --rounds 5 --json | jq .metrics.accuracy
"""


def keys() -> Iterator[tuple[str, str, Field[Any], Kind]]:
    """Every option of a recipe: its key, its flag, the field and its type."""
    tables: dict[str, type[Table]] = {"": Recipe, **subtables(Recipe)}
    for name, table in tables.items():
        for item, kind in settings_of(table):
            key = f"{name}.{item.name}" if name else item.name
            flag = item.metadata["flag"] or item.name
            yield key, flag.replace("_", "-"), item, kind


def command() -> Callable[..., None]:
    """The command, with an option for every field of a recipe."""
    own = inspect.signature(run, eval_str=True).parameters
    recipes = [
        inspect.Parameter(
            key.replace(".", "__"),
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=_annotation(flag, key, item, kind),
        )
        for key, flag, item, kind in keys()
    ]
    given = [p for p in own.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]

    def made(*positional: Any, **named: Any) -> None:
        run(*positional, **named)

    made.__signature__ = inspect.Signature([*given, *recipes])  # type: ignore[attr-defined]
    made.__annotations__ = {p.name: p.annotation for p in [*given, *recipes]}
    made.__doc__ = HELP
    return made


def run(
    recipe: Annotated[Path | None, typer.Argument(help="Recipe in TOML.")] = None,
    *,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="A setting of the method, or TABLE.KEY=VALUE, say model.norm=none."
        ),
    ] = None,
    resume: Annotated[str | None, typer.Option(help="Go on with this run.")] = None,
    runs: RunsOption = None,
    as_json: JsonOption = False,
    **given: Any,
) -> None:
    """What ``eris run`` does."""
    with output(as_json) as figures:
        _tell(_trained(recipe, set_ or [], resume, runs, given), figures)


def _trained(
    recipe: Path | None, settings: list[str], resume: str | None, runs: Path | None,
    given: dict[str, Any],
) -> Run:  # fmt: skip
    """The run, after as many rounds as it came to."""
    console = Console(markup=False, highlight=False)
    root = runs_root(runs)
    values = _values(given, settings)
    wanted = _recipe(recipe, values)
    found = None if resume is None else find(resume, kept_runs(runs))
    need_for(wanted if found is None else found.recipe)
    with _warnings_told():
        from eris.experiments.runs import runner
        from eris.experiments.runs.progress import shown_on

        if found is None:
            return runner.start(wanted, root, shown_on(console))
        else:
            changed = None if recipe is None and not values else wanted
            if changed is not None and recipe is None:
                changed = found.recipe.changed(values)
            return runner.resume(found, shown_on(console), changed)


def _recipe(path: Path | None, values: dict[str, Any]) -> Recipe:
    """The recipe of the file, if there is one, with what the options say."""
    if path is None:
        return Recipe().changed(values)
    found = Recipe.load(path)
    # The same file leads to the same folder, so that a second call goes on with the run.
    return found.changed({"name": found.name or path.stem, **values})


def _values(given: dict[str, Any], settings: list[str]) -> dict[str, Any]:
    """What was given on the command line, by the keys of the recipe."""
    kinds = {key: kind for key, _, _, kind in keys()}
    values = {}
    for name, value in given.items():
        key = name.replace("__", ".")
        if value is not None:
            values[key] = parsed(value, kinds[key]) if isinstance(value, str) else value
    for setting in settings:
        key, equals, text = setting.partition("=")
        key = key.strip()
        if not equals or not key:
            raise InvalidSetting("--set", setting, "KEY=VALUE")
        key = key if "." in key or key in ("name", "seed") else f"method.{key}"
        values[key] = parsed(text.strip(), kinds.get(key))
    return values


def _annotation(flag: str, key: str, item: Field[Any], kind: Kind) -> Any:
    """How typer is told of an option; text is read by the recipe, so that errors are alike."""
    inner, _ = unwrapped(kind)
    default = item.default if item.default is not MISSING else None
    told: dict[str, Any] = {
        "help": item.metadata["meaning"],
        "show_default": item.metadata["empty"] or str(default).lower(),
        "rich_help_panel": (key.partition(".")[0] if "." in key else "run").capitalize(),
    }
    if inner is bool:
        return Annotated[bool | None, typer.Option(f"--{flag}/--no-{flag}", **told)]
    metavar = {int: "WHOLE", float: "NUMBER", str: "TEXT"}.get(inner)
    if metavar is None:
        metavar = "|".join(get_args(inner))
    return Annotated[str | None, typer.Option(f"--{flag}", metavar=metavar, **told)]


def _tell(run: Run, figures: Figures) -> None:
    """How it ended; a run that was stopped says how to go on."""
    from eris.experiments.runs.documents import summarised
    from eris.experiments.runs.progress import described
    from eris.experiments.runs.report import Summary

    summary = Summary.of(run)
    resuming = {} if run.over else {"resume": run.resuming()}
    figures({**summarised(run), **resuming})
    if run.state == "finished":
        last = described(summary.metrics)
        say(f"{run.path}: finished, {summary.done} rounds  {last}")
        return
    if run.state == "failed":
        say(f"{run.path}: failed, {summary.done} rounds: {run.about['error']}")
        raise typer.Exit(FAILED)
    so_far = f"stopped after round {summary.done} of {summary.asked}"
    say(f"{run.path}: {so_far}; go on with\n  {run.resuming()}")
    raise typer.Exit(INTERRUPTED)


@contextmanager
def _warnings_told() -> Iterator[None]:
    """Warnings of the package as one line each, without the place in the code."""
    console = Console(stderr=True, highlight=False)

    def tell(message: Warning | str, *_: object, **__: object) -> None:
        console.print(f"[yellow]warning:[/yellow] {escape(str(message))}", soft_wrap=True)

    with warnings.catch_warnings():
        warnings.simplefilter("once", UserWarning)
        warnings.showwarning = tell
        yield
