"""Reconstructions beside the truth: who is whose, and how alike they are.

A client's samples have no order, so reconstructions are assigned to originals so that the sum of
the squared errors is smallest. Controls are assigned in the same way, for they would profit too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from eris.audit import similarity
from eris.audit.similarity import Pictures, Values
from eris.core.errors import library

RECONSTRUCTED = 1e-4
"""The mean squared error below which an image counts as reconstructed."""


@dataclass(frozen=True, eq=False)
class Likeness:
    """How alike pictures and reconstructions are; None where pictures are too small for a measure,
    or its weights are not there."""

    mse: Values
    psnr: Values
    snr: Values
    ssim: Values | None
    lpips: Values | None

    @property
    def reconstructed(self) -> int:
        """How many of them were."""
        return int((self.mse < RECONSTRUCTED).sum())

    def medians(self) -> dict[str, float | None]:
        """Of every measure, named as what it is."""
        named = {"MSE": self.mse, "PSNR": self.psnr, "SNR": self.snr, "SSIM": self.ssim,
                 "LPIPS": self.lpips}  # fmt: skip
        return {
            name: None if each is None else float(np.median(each)) for name, each in named.items()
        }


Measure = Callable[[Pictures, Pictures], Values]


def likeness(original: Pictures, found: Pictures, lpips: Measure | None = None) -> Likeness:
    """All measures of pictures (count, channels, height, width) with pixels in [0, 1].

    >>> some = np.full((2, 1, 2, 2), 0.5, np.float32)
    >>> likeness(some, some).reconstructed
    2
    """
    small = min(original.shape[2:]) < similarity.SMALLEST_SSIM
    return Likeness(
        similarity.mse(original, found),
        similarity.psnr(original, found),
        similarity.snr(original, found),
        None if small else similarity.ssim(original, found),
        None if small or lpips is None else lpips(original, found),
    )


def pictures(inputs: Tensor, low: Tensor | float, high: Tensor | float) -> Pictures:
    """Inputs of a model as pictures: scaled to [0, 1] and cut off there.

    What is no picture is taken for one of a single line.
    """
    scaled = ((inputs - low) / (high - low)).nan_to_num(0.0).clamp(0, 1)
    shape = scaled.shape if scaled.dim() == 4 else (len(scaled), 1, 1, scaled[0].numel())
    return scaled.reshape(shape).numpy().astype(np.float32)


def assigned(original: Pictures, found: Pictures) -> Pictures:
    """The reconstructions in the order of their originals, as many as there are originals.

    >>> ends = np.array([0.0, 1.0], np.float32).reshape(2, 1, 1, 1)
    >>> assigned(ends, ends[::-1]).ravel().tolist()
    [0.0, 1.0]
    """
    errors = np.square(original[:, None] - found[None]).mean(axis=(2, 3, 4))
    optimize = library("scipy.optimize", "scipy", "audit")
    rows, columns = optimize.linear_sum_assignment(errors)
    ordered: Pictures = found[columns[np.argsort(rows)]]
    return ordered
