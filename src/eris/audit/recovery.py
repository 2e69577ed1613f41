"""Recovered inputs as pictures: what is missing is filled in, and compared with what was there."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import convolve

from eris.audit.low_rank import Matrix


def filled(inputs: Matrix, shape: tuple[int, ...]) -> Matrix:
    """Inputs of a shape, each a row; an undetermined pixel is the mean of its known neighbours.

    >>> filled(np.array([[1.0, np.nan, 3.0, 3.0]]), (2, 2)).round(2).tolist()
    [[1.0, 2.33, 3.0, 3.0]]
    """
    found = inputs.reshape(len(inputs), *shape).copy()
    plane = min(2, len(shape))
    near = np.ones((1,) * (found.ndim - plane) + (3,) * plane)
    while (missing := np.isnan(found)).any() and not missing.all():
        known = convolve((~missing).astype(np.float64), near, mode="constant")
        sums = convolve(np.where(missing, 0.0, found), near, mode="constant")
        found = np.where(missing & (known > 0), sums / np.maximum(known, 1), found)
        if (np.isnan(found) == missing).all():
            break
    return found.reshape(inputs.shape)


def psnr(found: NDArray[np.floating], truth: NDArray[np.floating], span: float) -> Matrix:
    """Decibels between every found input and every true one; ``span`` is what pixels range over.

    >>> psnr(np.array([[0.0, 0.1]]), np.array([[0.0, 0.0], [0.0, 0.1]]), 1.0).round(1).tolist()
    [[23.0, inf]]
    """
    apart = np.asarray(found, np.float64)[:, None] - np.asarray(truth, np.float64)[None]
    with np.errstate(divide="ignore"):
        return np.asarray(10 * np.log10(span**2 / np.mean(apart**2, axis=2)))


def into_range(inputs: Matrix, low: float, high: float) -> Matrix:
    """Inputs whose scale and sign nobody knows: as large as the range of pixels allows.

    Of the signs the one that allows more is taken; without negative pixels, that of the largest.

    >>> into_range(np.array([[-2.0, 0.0, -1.0]]), 0.0, 1.0)[0].tolist()
    [1.0, -0.0, 0.5]
    """
    least, most = np.nanmin(inputs, axis=1), np.nanmax(inputs, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        if low >= 0:
            scales = high / np.where(most >= -least, most, least)
        else:
            up = np.minimum(_above(high / most), _above(low / least))
            down = np.minimum(_above(-low / most), _above(-high / least))
            scales = np.where(up >= down, up, -down)
    return np.where(np.isfinite(scales), scales, 0.0)[:, None] * inputs


def _above(room: Matrix) -> Matrix:
    """An end on the other side of zero does not bound a scale."""
    return np.where(room > 0, room, np.inf)
