"""The ``eris`` command: a thin layer that reads options, calls the package and explains errors."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from eris import __version__
from eris.cli import ca, node, runs
from eris.cli.data import app as data_app
from eris.cli.local import local
from eris.cli.reproduce import reproduce
from eris.cli.run import command as run_command
from eris.core.errors import ErisError

app = typer.Typer(
    help="Train one model across organisations, with nobody in the middle.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(data_app, name="data")
app.add_typer(ca.app, name="ca")
app.add_typer(node.app, name="node")
app.command("local")(local)
app.command("run")(run_command())
app.add_typer(runs.app, name="runs")
app.command("compare")(runs.compare)
app.command("methods")(runs.methods)
app.command("reproduce")(reproduce)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"eris {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Train one model across organisations, with nobody in the middle."""


@app.command()
def demo(
    clients: Annotated[int, typer.Option(min=3, help="How many clients.")] = 10,
    samples: Annotated[int, typer.Option(min=1, help="Training samples a client.")] = 500,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of training.")] = 20,
    kept: Annotated[float, typer.Option(help="Share of coordinates DSC sends, in (0, 1].")] = 0.1,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
    picture: Annotated[Path, typer.Option(help="Where to draw the result.")] = Path(
        "runs/demo.png"
    ),
) -> None:
    """Train LeNet-5 on MNIST with FedAvg, ERIS and ERIS + DSC, and compare them.

    Fetches MNIST on first use. Shows test accuracy, whether ERIS equals the central model bit for
    bit, the bytes really encoded, and what an aggregator gets to see.
    """
    from eris.experiments.demo import Demo

    Demo(
        clients=clients,
        samples=samples,
        rounds=rounds,
        kept_fraction=kept,
        seed=seed,
        picture=picture,
    ).run()


def main() -> None:
    """Run the command; a refusal, or a file that cannot be written, is one line."""
    try:
        app()
    except (ErisError, OSError) as error:
        Console(stderr=True, highlight=False).print(
            f"[red]error:[/red] {escape(str(error))}", soft_wrap=True
        )
        sys.exit(2)


if __name__ == "__main__":
    main()
