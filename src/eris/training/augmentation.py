"""Pictures changed at random as they are trained on: shifted by up to four pixels, and mirrored.

What becomes of a picture follows from the seed, the client, the round, the step and its place in
the batch, so one client after another and many in one pass train on the same pictures.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from eris.core.errors import InvalidSetting
from eris.core.streams import Stream
from eris.training.options import LocalTraining

PADDING = 4
_SHIFTS = 2 * PADDING + 1


@dataclass(frozen=True)
class CropFlip:
    """The changes of one client in one round."""

    stream: Stream
    batch: int
    """Samples in a batch; the last of a pass may have fewer."""

    def __call__(self, step: int, images: Tensor) -> Tensor:
        """A step's batch of images as it is trained on."""
        return cropped_and_flipped(images, self.stream.words(step * self.batch, len(images)))


def augmentation(options: LocalTraining, samples: int, client: int, round: int) -> CropFlip | None:
    """What changes the pictures of a client with so many samples in a round; None if nothing."""
    if options.augment == "none":
        return None
    stream = Stream(options.seed, "augmentation", round=round, client=client)
    return CropFlip(stream, options.batch(samples))


def check_augmentation(options: LocalTraining, inputs: Tensor) -> None:
    """Refuse to shift and mirror what is no picture."""
    if options.augment != "none" and (inputs.dim() != 4 or not inputs.is_floating_point()):
        found = f"{inputs.dtype} of shape {tuple(inputs.shape[1:])}"
        raise InvalidSetting("samples to augment", found, "pictures: (channels, height, width)")


def cropped_and_flipped(images: Tensor, words: NDArray[np.uint32]) -> Tensor:
    """Each image, padded by four zeros on all sides and cut to its size at a place of its word's
    choice; every other one mirrored. Zero is the mean of a normalised picture.

    >>> image = torch.arange(4.0).reshape(1, 1, 2, 2)
    >>> middle = PADDING + _SHIFTS * PADDING
    >>> cropped_and_flipped(image, np.array([middle], np.uint32)).tolist()
    [[[[0.0, 1.0], [2.0, 3.0]]]]
    >>> cropped_and_flipped(image, np.array([middle + _SHIFTS**2], np.uint32)).tolist()
    [[[[1.0, 0.0], [3.0, 2.0]]]]
    """
    count, _, height, width = images.shape
    # A remainder of 32 bits is uneven by 4·10⁻⁸ at most.
    drawn = torch.from_numpy(words.astype(np.int64))
    down, across, mirrored = drawn % _SHIFTS, drawn // _SHIFTS % _SHIFTS, drawn // _SHIFTS**2 % 2
    columns = torch.arange(width).expand(count, width)
    columns = torch.where(mirrored[:, None] == 1, width - 1 - columns, columns)
    rows = down[:, None] + torch.arange(height)
    columns = across[:, None] + columns
    padded = functional.pad(images, [PADDING] * 4)
    each = torch.arange(count)[:, None, None]
    return padded[each, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()
