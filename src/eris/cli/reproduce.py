"""``eris reproduce``: the papers' experiments, ours beside theirs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from eris.cli.run import RunsOption
from eris.experiments.store import runs_root


def reproduce(
    name: Annotated[str, typer.Argument(help="mnist, cifar10, dropout or links.")],
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds, from 0 up.")] = 3,
    picture: Annotated[
        Path | None, typer.Option(help="Where to draw a curve (default: beside the runs).")
    ] = None,
    runs: RunsOption = None,
) -> None:
    """Run an experiment of the papers and print its figures beside the paper's.

    Every row is kept as a run of its own; what is finished is not run again, and after Ctrl-C or a
    kill the same command goes on.

    \b
    eris data fetch mnist
    eris reproduce mnist --seeds 3
    """
    from eris.experiments import reproduce as experiments
    from eris.experiments.progress import shown_on

    console = Console(highlight=False)
    root, experiment = runs_root(runs), experiments.named(name)
    numbers = list(range(seeds))
    done = experiments.reproduce(experiment, numbers, root, shown_on(console))
    console.print(experiments.table(experiment, done))
    base = ", ".join(f"{key} {value}" for key, value in experiment.base.items())
    console.print(f"Seeds 0 to {seeds - 1}; {base}. Mean ± deviation over the seeds.", markup=False)
    if done:
        about = next(iter(done.values()))[0].about
        data, model = about["data"], about["model"]
        console.print(
            f"{data['source']}, tested on {data['test samples']:,} samples; {model['name']}, "
            f"{model['parameters']:,} parameters.",
            markup=False,
        )
    missing = len(experiment.rows) - len(done)
    if missing:
        console.print(f"{missing} rows are not finished; the same command goes on.", markup=False)
    elif experiment.curve is not None:
        path = picture or root / f"{name}.png"
        experiments.draw(experiment, done, path)
        console.print(f"Picture: {path}", markup=False)
