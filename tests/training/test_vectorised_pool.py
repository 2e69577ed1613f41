"""The fast max pooling is PyTorch's, bit for bit, and steps aside where it does not apply."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from eris.core.streams import Stream
from eris.training.fast.pool import max_pool2d


def images(*shape: int) -> Tensor:
    """Few different values, so that most windows have ties, and many are negative."""
    count = torch.Size(shape).numel()
    values = torch.tensor(Stream(1, "ties").uniform(0, count) * 5 - 3).round()
    return values.to(torch.float32).reshape(shape)


@pytest.mark.parametrize("kernel", [2, 3, (2, 2), (3, 2), (1, 2), (2, 1), 1, (5, 7)])
@pytest.mark.parametrize("shape", [(3, 2, 12, 12), (1, 1, 9, 7), (2, 3, 5, 11)])
def test_output_and_gradient_are_pytorchs(kernel: Any, shape: tuple[int, ...]) -> None:
    ours, theirs = (images(*shape).requires_grad_() for _ in range(2))
    found, expected = max_pool2d(ours, kernel), functional.max_pool2d(theirs, kernel)
    assert found is not None
    assert torch.equal(found, expected)
    weights = images(*expected.shape) + 0.25
    (back,) = torch.autograd.grad(found, ours, weights)
    (wanted,) = torch.autograd.grad(expected, theirs, weights)
    assert torch.equal(back, wanted)


@pytest.mark.parametrize(
    "settings",
    [
        {"stride": 1},
        {"padding": 1},
        {"dilation": 2},
        {"ceil_mode": True},
        {"return_indices": True},
    ],
)
def test_other_windows_are_left_to_pytorch(settings: dict[str, Any]) -> None:
    assert max_pool2d(images(2, 2, 9, 9), 2, **settings) is None


def test_other_layouts_are_left_to_pytorch() -> None:
    assert max_pool2d(images(2, 9, 9), 2) is None
    assert max_pool2d(images(1, 1, 2, 9), 3) is None
    apart = images(2, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    assert max_pool2d(apart, 2) is None


def test_a_stride_equal_to_the_kernel_is_the_default() -> None:
    pooled = max_pool2d(images(1, 1, 6, 6), 3, stride=(3, 3))
    assert pooled is not None
    assert pooled.shape == (1, 1, 2, 2)
