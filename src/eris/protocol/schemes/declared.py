"""Weights of clients that are inside what they send: samples that a view declares, or all alike.

Where sums are of integers that are scaled by S_i/S_ref, S_ref must be known before any is sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from eris.core.errors import InvalidSetting
from eris.core.grid import MOST_SAMPLES

if TYPE_CHECKING:
    from eris.protocol.view import View

Average = Literal["samples", "plain"]


def check_average(average: str) -> None:
    """Refuse what is no way to weigh clients."""
    if average not in ("samples", "plain"):
        raise InvalidSetting("average", average, "one of samples, plain")


def why_lasting(average: Average) -> str:
    """Why clients must be the same in all rounds, if they must."""
    if average == "plain":
        return ""
    return "a client's part of the sum follows from the view's samples (average=plain has none)"


def check_samples(average: Average, view: View) -> None:
    """Refuse a view in which clients have no weights."""
    if average == "plain":
        return
    if view.samples is None:
        expected = "one for each client: they scale what is sent (or average=plain)"
        raise InvalidSetting("samples", None, expected)
    if max(view.samples) > MOST_SAMPLES:
        raise InvalidSetting("samples", max(view.samples), f"at most {MOST_SAMPLES} of a client")


def weight_of(average: Average, samples: int) -> int:
    """S_i: what a client counts with this many samples."""
    return samples if average == "samples" else 1


def reference_of(average: Average, view: View) -> int:
    """S_ref: what all clients of a view count together."""
    return sum(view.samples or (1,)) if average == "samples" else len(view.clients)


def check_declared(average: Average, view: View, client: int, samples: int) -> None:
    """Refuse more samples than the view declares: sums have room for those."""
    if average == "plain" or view.samples is None:
        return
    declared = view.samples[view.clients.index(client)]
    if samples > declared:
        expected = f"at most the {declared} that were declared"
        raise InvalidSetting(f"samples of {view.members[client]}", samples, expected)
