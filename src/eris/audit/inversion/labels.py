"""Labels read off the last layer's gradient, before anything is optimised.

The gradient of a class's row of the last linear layer is (p_c − 1[c = y])·h summed over the
samples. Behind a sigmoid or a ReLU, h is not negative, so only rows of classes that the client has
are negative. iDLG (Zhao, Mopuri and Bilen, 2020) takes the smallest row of a single sample; for
several, every negative row is a label, and then the smallest again and again, each time after what
one label adds was taken off (as Wainakh et al., "User-level label leakage", 2022, count them).
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from eris.audit.inversion.matching import Matching
from eris.core.errors import InvalidSetting

MOST_TRIED = 128
"""Sets of labels that are tried where the rows that tell them are hidden."""


def row_means(matching: Matching) -> Tensor:
    """By target and class: the mean of the visible entries of its row; NaN if none is visible.

    Where all biases are visible they stand for the rows: theirs is an h of 1. Turned back from
    another basis a single coordinate is mostly noise, the mean of a row is not.
    """
    flat, classes = matching.simulation.flat, matching.classes
    rows = [
        (place, parameter.shape)
        for place, parameter in zip(flat.places, flat.parameters, strict=True)
        if parameter.dim() == 2 and parameter.shape[0] == classes
    ]
    if not rows:
        expected = f"a last linear layer of {classes} rows; or give `labels`"
        raise InvalidSetting("model to read labels off", type(flat.module).__name__, expected)
    place, shape = rows[-1]
    bias = slice(place.stop, place.stop + classes)
    told, visible = matching.by_parameter
    if matching.basis is None and bias in flat.places and visible[:, bias].all():
        return told[:, bias]
    values, seen = (rows[:, place].reshape(-1, *shape) for rows in (told, visible))
    # In the oblivious mode a zero that was not seen counts like any other.
    count = seen.sum(2) if matching.mode == "mask-aware" else torch.full(seen.shape[:2], shape[1])
    return torch.where(seen.any(2), values.sum(2) / count, torch.nan)


def candidates(matching: Matching) -> list[Tensor]:
    """Of each target, the labels (samples,) that it may have: one row where they can be read."""
    found = []
    for means in row_means(matching):
        hidden = torch.isnan(means)
        known = _counted(torch.where(hidden, torch.inf, means), matching.samples)
        if hidden.any() and len(known) < matching.samples:
            found.append(_tried(torch.nonzero(hidden)[:, 0], known, matching.samples))
        else:
            if len(known) < matching.samples:  # no row is negative: the smallest will have to do
                rest = means.argsort()[: matching.samples - len(known)].tolist()
                known = [*known, *rest]
            found.append(torch.tensor([sorted(known)]))
    return found


def _counted(means: Tensor, samples: int) -> list[int]:
    """The labels that rows tell of, at most so many."""
    left = means.clone()
    negative = torch.nonzero(left < 0)[:, 0]
    if not len(negative):
        return []
    impact = float(left[negative].sum()) / samples * (1 + 1 / len(means))
    order = negative[left[negative].argsort()]
    labels = order[:samples].tolist()
    left[order] -= impact
    if torch.isinf(left).any():  # others may be in the rows that are hidden
        return labels
    while len(labels) < samples:
        labels.append(int(left.argmin()))
        left[labels[-1]] -= impact
    return labels


def _tried(hidden: Tensor, known: list[int], samples: int) -> Tensor:
    """Every way to complete the labels with classes whose rows are hidden."""
    missing = samples - len(known)
    ways = itertools.combinations_with_replacement(hidden.tolist(), missing)
    some = list(itertools.islice(ways, MOST_TRIED + 1))
    if len(some) > MOST_TRIED:
        expected = f"at most {MOST_TRIED} sets of labels to try; give `labels`, or use dlg"
        raise InvalidSetting("labels in hidden rows", f"more than {MOST_TRIED}", expected)
    return torch.tensor([sorted([*known, *way]) for way in some])
