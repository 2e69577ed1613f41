"""What a convolution's kernel meets, copied stretch by stretch instead of window by window."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from eris.core.kernels import compiled

Numbers = NDArray[np.float32]


@compiled
def lay_stretches(out: Numbers, images: Numbers, height: int, width: int, line: int) -> None:
    """out[s, (c, y, x), i] ← images[s, c, y·line + x + i]: what place (y, x) of a kernel meets as
    it moves through an image whose rows of ``line`` values follow on each other.

    >>> out = np.empty((1, 2, 3), np.float32)
    >>> lay_stretches(out, np.arange(6, dtype=np.float32).reshape(1, 1, 6), 2, 1, 2)
    >>> out[0].tolist()
    [[0.0, 1.0, 2.0], [2.0, 3.0, 4.0]]
    """
    for sample in range(out.shape[0]):
        for place in range(out.shape[1]):
            x, y, channel = place % width, place // width % height, place // (width * height)
            into, source = out[sample, place], images[sample, channel, y * line + x :]
            for i in range(into.shape[0]):
                into[i] = source[i]


@compiled
def spread_out(out: Numbers, values: Numbers, down: int, across: int) -> None:
    """out[s, c, row·down + column·across] ← values[s, c, row, column]; the others stay."""
    for sample in range(values.shape[0]):
        for channel in range(values.shape[1]):
            for row in range(values.shape[2]):
                into, source = out[sample, channel, row * down :], values[sample, channel, row]
                if across == 1:
                    for column in range(source.shape[0]):
                        into[column] = source[column]
                else:
                    for column in range(source.shape[0]):
                        into[column * across] = source[column]
