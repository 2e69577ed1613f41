"""``eris train-prior``: the networks that some attacks bring along."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from eris.cli.output import JsonOption, output
from eris.data import cache_root
from eris.experiments.figures import say
from eris.experiments.runs.extras import need
from eris.experiments.runs.progress import bar, duration

if TYPE_CHECKING:
    from eris.audit.inversion.trained import PriorRecipe, TrainedPrior


def train_prior(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND", help="The attack: rog (an enhancement network) or ggl (a generator)."
        ),
    ],
    data: Annotated[str, typer.Argument(metavar="DATA", help="mnist, cifar10 or faces.")],
    force: Annotated[
        bool, typer.Option("--force", help="Train anew, also where the network is there.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Train the network that an attack brings along, on data that no client trains on.

    ROG finds a small picture and enlarges it; its network has learnt what enlarged pictures of
    this kind looked like before. GGL looks among the pictures that its network can make, which are
    of this kind. The attacker's own data is the test part of the data set, so that no network has
    seen a client's sample. Training takes minutes, once: the network is kept in the cache, under
    the hash of all that it follows from.

    \b
    eris data fetch cifar10
    eris data fetch lpips
    eris train-prior rog cifar10
    eris audit RUN --attack rog
    """
    need("torch")
    from eris.audit.inversion.trained import load, store
    from eris.experiments.audits.priors import recipe_of, trained
    from eris.training.torch import single_threaded

    recipe, cache = recipe_of(kind, data), cache_root()
    with output(as_json) as figures:
        if recipe.path(cache).exists() and not force:
            made, path = load(recipe, cache), recipe.path(cache)
            _describe(recipe, made)
            say(f"There already (train it anew with --force): {path}")
        else:
            began = time.process_time()
            with single_threaded(), _telling(Console(), f"{kind} on {data}") as tell:
                made = trained(recipe, tell)
            path = store(recipe, made, cache)
            _describe(recipe, made)
            say(f"Trained in {duration(time.process_time() - began)} of CPU: {path}")
        figures({"kind": kind, "data": data, "path": str(path), "recipe": recipe.digest(),
                 "figures": dict(made.figures)})  # fmt: skip


def _describe(recipe: PriorRecipe, made: TrainedPrior) -> None:
    weights = sum(tensor.numel() for tensor in made.tensors.values())
    say(
        f"{recipe.kind} on {recipe.data}: {weights:,} weights, the {recipe.samples} part of "
        f"{made.source}, {recipe.epochs} epochs, seed {recipe.seed}, recipe {recipe.digest()[:12]}"
    )
    for name, value in made.figures.items():
        say(f"  {name}: {value:.4g}")


@contextmanager
def _telling(console: Console, name: str) -> Iterator[Callable[[float], None]]:
    """A bar on a terminal, else a line a tenth, with the time that is left."""
    began, said = time.monotonic(), [0.0]

    def line(share: float) -> None:
        # The first line soon, so that one knows how long it will take.
        if share >= said[0] + (0.1 if said[0] else 0.01) and share < 1:
            said[0] = share
            left = (time.monotonic() - began) * (1 - share) / share
            say(f"{name}: {share:.0%}, about {duration(left)} left", console=console)

    if not console.is_terminal:
        yield line
        return
    with bar(console) as shown:
        task = shown.add_task(name, total=1000)
        yield lambda share: shown.update(task, completed=round(1000 * share))
