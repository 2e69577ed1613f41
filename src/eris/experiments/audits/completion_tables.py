"""Completion where it works and where it fails: ``eris reproduce audit-completion``, of which
``--only`` runs one table.

*grid*: the first layer (256 × 785) of a perceptron against aggregators, samples, kept share and
rounds; *layers*: LeNet-5's and ResNet-9's linear layers; *precision*: values that are rounded or
noised on their way; *training*: what clients do, convolutions and sums; *means*: the span test on
what is published. MNIST, one owner's view. Network, batch and plan are new in every instance.
*Success*: certified, 90 % of the columns that are not zero determined, these right to 10⁻³.
"""

from __future__ import annotations

from collections.abc import Callable

from eris.core.errors import InvalidSetting, one_of
from eris.experiments.audits.completion_grid import (
    GRID,
    LAYERS,
    CompletionSettings,
    against_counting,
    means,
)
from eris.experiments.audits.completion_limits import precision, training
from eris.experiments.audits.programs import asked
from eris.training.torch import single_threaded

TABLES: dict[str, Callable[[CompletionSettings], None]] = {
    "grid": lambda settings: against_counting(GRID, settings),
    "layers": lambda settings: against_counting(LAYERS, settings),
    "precision": precision,
    "training": training,
    "means": means,
}


def main(given: list[str] | None = None) -> None:
    """Print the tables."""
    names = ("seed", "instances", "only")
    settings = asked(CompletionSettings, __name__, __doc__, names, given)
    known = ["all", *TABLES]
    if settings.only not in known:
        raise InvalidSetting("only", settings.only, one_of(known, settings.only))
    with single_threaded():
        for name, table in TABLES.items():
            if settings.only in ("all", name):
                table(settings)


if __name__ == "__main__":
    main()
