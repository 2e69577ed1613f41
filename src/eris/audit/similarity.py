"""How alike a picture and its reconstruction are, each measure by its own name.

Pictures are (…, channels, height, width) with pixels in [0, 1]; other scales are refused.

- ``mse``: the mean of (x − x̂)².
- ``psnr``: 10·log₁₀(1/mse), against the largest pixel. What ROG's authors call SNR is this.
- ``snr``: 10·log₁₀(Σx²/Σ(x − x̂)²), against the picture itself.
- ``ssim``: structural similarity (Wang et al., 2004), gaussian windows of σ = 1.5.
- ``lpips``: a distance of AlexNet's features (Zhang et al., 2018); lower is more alike.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional

from eris.core.errors import InvalidSetting, library, require

Pictures = NDArray[np.float32]
"""(count, channels, height, width), pixels in [0, 1]."""
Values = NDArray[np.float64]

SMALLEST_SSIM = 11
"""Pixels of its window (σ = 1.5, cut off at 3.5 σ)."""
SMALLEST_LPIPS = 32
"""Pixels below which AlexNet has nothing left; smaller pictures are enlarged to this."""
LEAST = 1e-12
"""A mean squared error that counts as none; it is 120 dB."""


def mse(original: Pictures, found: Pictures) -> Values:
    """The mean squared error of every picture.

    >>> black = np.zeros((1, 1, 2, 2), np.float32)
    >>> mse(black, black + 0.5).tolist(), psnr(black, black + 0.5).round(2).tolist()
    ([0.25], [6.02])
    """
    original, found = _checked(original, found)
    return np.asarray(np.square(original - found).mean(axis=(1, 2, 3), dtype=np.float64))


def psnr(original: Pictures, found: Pictures) -> Values:
    """The peak signal-to-noise ratio in dB, of a largest pixel of 1."""
    return np.asarray(-10 * np.log10(np.maximum(mse(original, found), LEAST)))


def snr(original: Pictures, found: Pictures) -> Values:
    """The signal-to-noise ratio in dB, of the picture's own power.

    >>> white = np.ones((1, 1, 2, 2), np.float32)
    >>> snr(white, white - 0.1).round(1).tolist()
    [20.0]
    """
    power = np.square(_checked(original, found)[0]).mean(axis=(1, 2, 3), dtype=np.float64)
    ratio = np.maximum(power, LEAST) / np.maximum(mse(original, found), LEAST)
    return np.asarray(10 * np.log10(ratio))


def ssim(original: Pictures, found: Pictures) -> Values:
    """Structural similarity, 1 for the same picture."""
    original, found = _checked(original, found)
    if min(original.shape[2:]) < SMALLEST_SSIM:
        expected = f"at least {SMALLEST_SSIM} × {SMALLEST_SSIM}, the window of SSIM"
        raise InvalidSetting("picture", f"{original.shape[2]} × {original.shape[3]}", expected)
    metrics = library("skimage.metrics", "scikit-image", "audit")
    return np.array([
        metrics.structural_similarity(
            one, other, data_range=1.0, channel_axis=0, gaussian_weights=True, sigma=1.5,
            use_sample_covariance=False,
        )
        for one, other in zip(original, found, strict=True)
    ])  # fmt: skip


class Lpips:
    """LPIPS with AlexNet, by the weights in a folder (``eris data fetch lpips``)."""

    _STRIDES = (4, 1, 1, 1, 1)
    _PADDING = (2, 2, 1, 1, 1)
    _POOLED = (1, 2)  # layers in front of which there is a max-pooling
    # What pixels in [−1, 1] are shifted and divided by, for each colour.
    _SHIFT = (-0.030, -0.088, -0.188)
    _SCALE = (0.458, 0.448, 0.450)

    def __init__(self, folder: Path) -> None:
        self._tensors = load_file(folder / "model.safetensors")

    def __call__(self, original: Pictures, found: Pictures) -> Values:
        """The distance of every picture to its reconstruction, 0 for the same."""
        pair = (torch.from_numpy(one).float() for one in _checked(original, found))
        with torch.no_grad():
            return self.distance(*pair).double().numpy()

    def distance(self, original: Tensor, found: Tensor) -> Tensor:
        """The same of tensors, differentiable; pixels are not checked, for a network in training
        may leave their range."""
        total = torch.zeros(len(original))
        pairs = zip(self._features(original), self._features(found), strict=True)
        for layer, (one, other) in enumerate(pairs):
            head = self._tensors[f"heads.{layer}.weight"]
            apart = functional.conv2d((_unit(one) - _unit(other)).square(), head)
            total = total + apart.mean(dim=(1, 2, 3))
        return total

    def _features(self, x: Tensor) -> list[Tensor]:
        x = 2 * (x.expand(-1, 3, -1, -1) if x.shape[1] == 1 else x) - 1
        if min(x.shape[2:]) < SMALLEST_LPIPS:
            size = [max(side, SMALLEST_LPIPS) for side in x.shape[2:]]
            x = functional.interpolate(x, size, mode="bilinear", align_corners=False)
        x = (x - torch.tensor(self._SHIFT).view(3, 1, 1)) / torch.tensor(self._SCALE).view(3, 1, 1)
        found = []
        for layer, (stride, padding) in enumerate(zip(self._STRIDES, self._PADDING, strict=True)):
            if layer in self._POOLED:
                x = functional.max_pool2d(x, 3, 2)
            weight = self._tensors[f"features.{layer}.weight"]
            bias = self._tensors[f"features.{layer}.bias"]
            x = functional.conv2d(x, weight, bias, stride, padding).relu()
            found.append(x)
        return found


def _unit(features: Tensor) -> Tensor:
    """Every pixel's features as a vector of length 1."""
    # The root of 0 has no slope; a pixel may have no feature at all.
    return features / ((features.square().sum(1, keepdim=True) + 1e-20).sqrt() + 1e-10)


def _checked(original: Pictures, found: Pictures) -> tuple[Pictures, Pictures]:
    shapes = f"{original.shape} and {found.shape}"
    alike = original.shape == found.shape and original.ndim == 4 and original.shape[1] in (1, 3)
    require(alike, "pictures", shapes, "two of one shape (count, 1 or 3, height, width)")
    for pictures in (original, found):
        if not (np.isfinite(pictures).all() and pictures.min() >= 0 and pictures.max() <= 1):
            span = f"from {pictures.min():g} to {pictures.max():g}"
            raise InvalidSetting("pixels", span, "from 0 to 1; scale and cut them")
    return original, found
