"""Whether a linear layer can be completed from a share of its entries: counting, for a planner.

A matrix m × n of rank b has b(m + n − b) unknowns. Who sees a share q = p/A of its entries (one of
A shards, of which p is kept) needs at least as many, in every row and column at least b. Real
layers are not generic: units that are inactive for all samples, and pixels that never vary, show
entries that say nothing. So rows and columns are counted as they are alive.

"no" is a statement about one attack (:mod:`eris.audit.completion`), never a promise: membership is
read from far less than a layer.
"""

from __future__ import annotations

import math
from typing import Literal

from eris.core.errors import require

Verdict = Literal["yes", "boundary", "no"]

MOST_COLUMNS, FEW_COLUMNS = 0.9, 0.3
"""Shares of the columns from which one sample counts as completed, and below which it does not."""
ENOUGH = 2.1
"""Entries over unknowns from which a layer nearly always completes (measured; docs/audit.md)."""
ACTIVE = 0.9
"""Of the units that a coin would leave alive, how many really are: units resemble each other."""


def redundancy(visible: int, rows: int, columns: int, samples: int) -> int:
    """Visible entries beyond the unknowns of a matrix of rank ``samples``; below 0 nothing helps.

    >>> redundancy(12_560, 256, 785, 4), redundancy(12_560, 256, 785, 16)
    (8412, -3840)
    """
    return visible - samples * (rows + columns - samples)


def share_of_columns(rows: float, columns: float, share: float, rounds: int = 1) -> float:
    """The columns that hang together with the rest where one sample is seen through ``share``.

    ``rows`` are those of active units. Rank 1 is connectivity alone: this is the giant component
    of a random bipartite graph.

    >>> [round(share_of_columns(128, 785, 1 / shards), 2) for shards in (16, 32, 50)]
    [1.0, 0.98, 0.92]
    """
    by_column, by_row = rounds * rows * share, columns * share
    outside = 0.0
    for _ in range(10_000):
        before, outside = outside, math.exp(-by_column * (1 - math.exp(-by_row * (1 - outside))))
        if abs(outside - before) < 1e-12:
            break
    return 1 - outside


def ratio(rows: float, columns: float, share: float, samples: int) -> float:
    """Entries seen over unknowns; from about 2 on layers complete, below about 1.2 none did.

    >>> round(ratio(256, 785, 1 / 16, 4), 1), round(ratio(215, 280, 1 / 16, 4), 1)
    (3.0, 1.9)
    """
    return share * rows * columns / (samples * (rows + columns - samples))


def completes(
    rows: int,
    columns: int,
    aggregators: int,
    kept: float,
    samples: int,
    *,
    rounds: int = 1,
    alive: float = 0.5,
    varying: float = 1.0,
    background: bool = False,
) -> Verdict:
    """Whether the owner of one shard completes a layer, which ``samples`` distinct samples made.

    ``columns`` counts the bias. ``rounds`` are those on the same samples, if the layer is the
    first; 1 for any other. ``alive`` is the share of the units that a sample activates (1 for a
    last layer), ``varying`` that of the columns that are no multiples of the bias column (1 if
    nothing is known: the attacker's best case), and ``background`` says that the others are
    constant and known, as in normalised images. Read "boundary" as "assume that it completes".

    >>> completes(256, 785, 16, 1.0, 2), completes(256, 785, 50, 0.033, 1, rounds=200)
    ('yes', 'yes')
    >>> completes(256, 785, 16, 1.0, 32)
    'no'
    """
    for name, value in (("rows", rows), ("columns", columns), ("aggregators", aggregators),
                        ("samples", samples), ("rounds", rounds)):  # fmt: skip
        require(value >= 1, name, value, "at least 1")
    for name, part in (("kept", kept), ("alive", alive), ("varying", varying)):
        require(0 < part <= 1, name, part, "a share in (0, 1]")
    share = kept / aggregators
    if samples == 1:
        found = share_of_columns(rows * alive, columns, share, rounds)
        return "yes" if found >= MOST_COLUMNS else "no" if found < FEW_COLUMNS else "boundary"
    active, several = ACTIVE * rows * (1 - (1 - alive) ** samples), varying * columns
    if samples >= min(active, several):
        return "no"
    by_column = rounds * active * share
    if rounds < rounds_needed(active, several, share, samples, background) or by_column < samples:
        return "no"
    enough = ratio(rounds * active, several, share, samples) >= ENOUGH
    return "yes" if enough and by_column >= 2 * samples else "boundary"


def rounds_needed(
    active: float, varying: float, share: float, samples: int, background: bool = False
) -> float:
    """The least rounds on the same samples for which counting allows the completion.

    A row with r visible entries has (r − b)⁺ equations for the b(n − b) unknowns of the row space;
    rows that show b or fewer say nothing, however many there are. A known background says one
    more of every row.

    >>> round(rounds_needed(0.9 * 256 * 15 / 16, 785, 1 / 50, 4), 1)
    1.2
    """
    spare = samples - background
    mean = sum(
        (count - spare) * _binomial(count, round(varying), share)
        for count in range(spare + 1, round(varying) + 1)
    )
    return samples * (varying - samples) / (active * mean) if mean > 0 else math.inf


def _binomial(count: int, of: int, share: float) -> float:
    """How likely so many heads are."""
    if share == 1:
        return float(count == of)
    ways = math.lgamma(of + 1) - math.lgamma(count + 1) - math.lgamma(of - count + 1)
    return math.exp(ways + count * math.log(share) + (of - count) * math.log1p(-share))
