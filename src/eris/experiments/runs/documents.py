"""What reports say of runs, as documents for programs: plain values that JSON can hold."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from eris.experiments.runs.recipe import identity
from eris.experiments.runs.report import Summary, best_values
from eris.experiments.runs.store import Run

Document = dict[str, Any]


def summarised(run: Run) -> Document:
    """A run in a few figures, where it is, and why it failed if it did."""
    found = {"path": str(run.path), **asdict(Summary.of(run))}
    error = run.about.get("error")
    return {**found, "error": error} if error else found


def in_full(run: Run) -> Document:
    """The same with its recipe, versions and checksums."""
    recipe = tomllib.loads(run.recipe.to_toml())
    return {**summarised(run), "recipe": recipe, "about": dict(run.about)}


def compared(runs: Sequence[Run]) -> Document:
    """Runs with the best value of every metric, and the settings in which they differ."""
    each = [
        {
            **summarised(run),
            "best": {
                name: {"value": value, "round": round}
                for name, (value, round) in best_values(run).items()
            },
        }
        for run in runs
    ]
    settings = [identity(run.recipe) for run in runs]
    keys = dict.fromkeys(itertools.chain.from_iterable(settings))
    values = {key: [one.get(key) for one in settings] for key in keys}
    differing = {key: some for key, some in values.items() if any(x != some[0] for x in some)}
    return {"runs": each, "differing": differing}
