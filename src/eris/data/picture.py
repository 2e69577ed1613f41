"""Who holds how much of which class: as numbers, and as a picture."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eris.core.errors import InvalidSetting
from eris.data.partition import Partition

_MOST_NAMES = 20


def class_counts(labels: ArrayLike, partition: Partition) -> NDArray[np.int64]:
    """Samples by client (rows) and class (columns, the distinct labels in ascending order).

    >>> class_counts([0, 1, 1, 4], [np.array([0, 1]), np.array([3])]).tolist()
    [[1, 1, 0], [0, 0, 1]]
    """
    array = np.asarray(labels)
    names, numbers = np.unique(array, return_inverse=True)
    for client, part in enumerate(partition):
        if len(part) and not (part.min() >= 0 and part.max() < len(array)):
            raise InvalidSetting(
                f"samples of client {client}",
                (int(part.min()), int(part.max())),
                f"places from 0 to {len(array) - 1}, one for each label",
            )
    counts = [np.bincount(numbers[part], minlength=len(names)) for part in partition]
    return np.array(counts, dtype=np.int64).reshape(len(partition), len(names))


def plot_partition(
    labels: ArrayLike, partition: Partition, path: str | os.PathLike[str], title: str = ""
) -> None:
    """Draw a stacked bar per client, a colour per class, into the image file ``path``."""
    # Here, for it is slow to import; and a Figure of its own, for pyplot keeps global state.
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    counts = class_counts(labels, partition)
    names = np.unique(np.asarray(labels)).tolist()
    clients, classes = counts.shape
    colours = mpl.colormaps["tab10" if classes <= 10 else "turbo"]
    figure = Figure(figsize=(min(4 + 0.15 * clients, 16), 4), layout="constrained")
    axes = figure.subplots()
    bottom = np.zeros(clients, dtype=np.int64)
    for c, name in enumerate(names):
        colour = colours(c) if classes <= 10 else colours(c / (classes - 1))
        axes.bar(np.arange(clients), counts[:, c], 0.9, bottom, color=colour, label=str(name))
        bottom += counts[:, c]
    axes.set(xlabel="client", ylabel="samples", title=title, xlim=(-0.6, clients - 0.4))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if classes <= _MOST_NAMES:
        # Outside, for a full row of bars leaves no room inside.
        figure.legend(loc="outside right upper", title="class", reverse=True)
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=120)
