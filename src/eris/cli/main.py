"""The ``eris`` command: a thin layer that reads options, calls the package and explains errors."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from eris import __version__
from eris.cli import ca, directory, node, runs
from eris.cli.audit import audit
from eris.cli.dashboard import dashboard
from eris.cli.data import app as data_app
from eris.cli.exits import FAILED, REFUSED
from eris.cli.helping import let_help_flow
from eris.cli.local import local
from eris.cli.new import new
from eris.cli.output import JsonOption, output
from eris.cli.plan import plan
from eris.cli.report import of_nodes, report
from eris.cli.reproduce import reproduce
from eris.cli.run import command as run_command
from eris.cli.train_prior import train_prior
from eris.core.errors import ErisError, InvalidSetting

HELP = """Train one model across organisations, with nobody in the middle.

\b
eris new clinic                      # a small project of your own
eris run --data digits --name first  # simulate a federation, and keep the run
eris local 5                         # five real nodes on this machine
eris audit RUN                       # what a recorded run gave away
eris report first                    # one page about it

Exit codes: 0 done, 1 begun and failed, 2 refused, 130 interrupted. Completion of commands, runs and
methods by Tab: eris --install-completion.
"""

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("new")(new)
app.add_typer(data_app, name="data")
app.add_typer(ca.app, name="ca")
app.add_typer(node.app, name="node")
app.add_typer(directory.app, name="directory")
app.command("local")(local)
app.command("run")(run_command())
app.add_typer(runs.app, name="runs")
app.command("compare")(runs.compare)
app.command("report")(report)
app.command("dashboard")(dashboard)
app.command("methods")(runs.methods)
app.command("audit")(audit)
app.command("plan")(plan)
app.command("reproduce")(reproduce)
app.command("train-prior")(train_prior)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"eris {__version__}")
        raise typer.Exit


@app.callback(help=HELP)
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """See HELP."""


@app.command()
def demo(
    nodes: Annotated[int, typer.Option(min=4, help="How many nodes.")] = 5,
    samples: Annotated[int, typer.Option(min=1, help="Training images a node.")] = 500,
    rounds: Annotated[int, typer.Option(min=10, help="Rounds of training.")] = 40,
    kept: Annotated[float, typer.Option(help="Share of coordinates DSC sends, in (0, 1].")] = 0.1,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
    folder: Annotated[Path, typer.Option(help="Where the nodes' folders go.")] = Path("runs/demo"),
    picture: Annotated[Path, typer.Option(help="Where to draw the result.")] = Path(
        "runs/demo.png"
    ),
    as_json: JsonOption = False,
) -> None:
    """Train LeNet-5 on MNIST by node processes over TLS, one of which is killed and comes back.

    Fetches MNIST on first use. Shows rounds, shards, owners and bytes as they happen; then test
    accuracy, whether all nodes have the same model, what each saw of the others' updates, and
    whether a central server with the same updates would have ended with the same bits. A page
    about all of it is left in the folder.

    \b
    eris demo
    eris demo --rounds 12 --samples 100
    """
    from eris.experiments.federations.demo import Demo
    from eris.experiments.runs.extras import need

    need("torch")
    # Ended by SIGTERM as by Ctrl-C: the nodes are not left behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with output(as_json) as figures:
        done = Demo(
            nodes=nodes,
            samples=samples,
            rounds=rounds,
            kept=kept,
            seed=seed,
            folder=folder,
            picture=picture,
        ).run()
        of_nodes(folder)
        figures({"folder": str(folder), **done.document()})
    if not done.good:
        raise typer.Exit(FAILED)


let_help_flow(app)


def _check_not_empty(arguments: Sequence[str]) -> None:
    """Refuse what a shell makes of a variable that is not set; a path would become this folder."""
    if "" in arguments:
        place = arguments.index("")
        after = f" after {arguments[place - 1]}" if place else ""
        raise InvalidSetting(f"argument {place + 1}{after}", "", "a value")


def main() -> None:
    """Run the command; a refusal, or a file that cannot be written, is one line."""
    if threading.current_thread() is threading.main_thread():
        # A command in the background of a script is started with interrupts ignored; whoever sends
        # it one means it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        _check_not_empty(sys.argv[1:])
        app()
    except (ErisError, OSError) as error:
        Console(stderr=True, highlight=False).print(
            f"[red]error:[/red] {escape(str(error))}", soft_wrap=True
        )
        sys.exit(REFUSED)


if __name__ == "__main__":
    main()
