"""What if: a plan for each value of one quantity."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from eris.core.errors import InvalidSetting, one_of
from eris.planning.plan import MBIT, FederationPlan, planned
from eris.planning.question import ImpossiblePlan, Question
from eris.theory.distribution_time import Links

Quantity = Literal["aggregators", "kept", "epsilon", "rate", "clients"]
WHOLE: Sequence[str] = ("aggregators", "clients")
MOST_VALUES = 200


@dataclass(frozen=True)
class WhatIf:
    """One value of a quantity, and its plan or why there is none."""

    value: float
    plan: FederationPlan | None
    refusal: str = ""


def parse_sweep(text: str) -> tuple[Quantity, list[float]]:
    """A quantity and its values: ``kept=0.01,0.05,0.2``, or ``clients=10:50:10`` in steps.

    >>> parse_sweep("clients=10:50:20"), parse_sweep("rate=10,100")
    (('clients', [10, 30, 50]), ('rate', [10.0, 100.0]))
    """
    name, equals, words = text.partition("=")
    if name not in get_args(Quantity):
        raise InvalidSetting("--what-if", name, one_of(get_args(Quantity), name))
    expected = "values such as 0.01,0.05,0.2, or FIRST:LAST:STEP"
    try:
        if ":" in words:
            first, last, step = (float(one) for one in words.split(":"))
            count = math.floor((last - first) / step * (1 + 1e-12)) + 1 if step > 0 else 0
            if not 1 <= count <= MOST_VALUES:
                raise InvalidSetting("--what-if", text, f"1 to {MOST_VALUES} values")
            values = [first + number * step for number in range(count)]
        else:
            values = [float(one) for one in words.split(",")]
    except (ValueError, OverflowError) as wrong:
        if isinstance(wrong, InvalidSetting):
            raise
        raise InvalidSetting("--what-if", text, expected) from None
    if not equals or not all(math.isfinite(one) for one in values):
        raise InvalidSetting("--what-if", text, expected)
    if len(values) > MOST_VALUES:
        raise InvalidSetting("--what-if", text, f"1 to {MOST_VALUES} values")
    if name in WHOLE:
        for value in values:
            if value != round(value):
                raise InvalidSetting("--what-if", value, f"whole numbers of {name}")
        values = [round(value) for value in values]
    return name, values  # type: ignore[return-value]


def swept(question: Question, quantity: Quantity, values: Sequence[float]) -> list[WhatIf]:
    """The question with each value, everything else as it was asked."""
    found = []
    for value in values:
        try:
            found.append(WhatIf(value, planned(_changed(question, quantity, value))))
        except ImpossiblePlan as impossible:
            found.append(WhatIf(value, None, str(impossible)))
    return found


def _changed(question: Question, quantity: Quantity, value: float) -> Question:
    links = question.links
    if quantity == "rate":
        if isinstance(links.up, Sequence) or isinstance(links.down, Sequence):
            raise InvalidSetting("--what-if", "rate", "one rate for all, and no file of rates")
        uniform = Links(value * MBIT, value * MBIT, links.server_up, links.server_down)
        return replace(question, links=uniform)
    if quantity == "clients":
        if isinstance(links.up, Sequence) or isinstance(links.down, Sequence):
            raise InvalidSetting("--what-if", "clients", "one rate for all, and no file of rates")
        return replace(question, clients=int(value), names=())
    if quantity == "aggregators":
        return replace(question, aggregators=int(value))
    if quantity == "kept":
        return replace(question, kept=value)
    return replace(question, epsilon=value)
