"""Samples in slots: gradients of single samples that do not move when another sample goes.

A sample's gradient, computed in a batch, can depend in its last bits on the batch's *shape*; at a
model that was made for it, rounding then decides which units fire, and the gradient turns by a
right angle. So every sample has a slot; slots are computed in passes of one shape on one thread,
whose last is filled up with zeros; and an empty slot's gradient is replaced by 0. Then a row sees
the same instructions whatever the others hold. :func:`check_slots` looks whether that is so.

Of a secret batch the slots that were chosen, empty ones among them, are packed into passes of the
same shape. A sample then has another row if one before it is not chosen, so a model must give it
the same gradient in every row; else the others' gradients would tell who was chosen.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import torch
from torch import Tensor, nn

from eris.core.errors import ErisError, InvalidSetting
from eris.core.exact_clip import (
    Arranged,
    Content,
    add_clipped,
    add_clipped_products,
    check_room,
)
from eris.core.streams import Stream
from eris.training.fast.calls import NotTogether
from eris.training.fast.samples import SampleGradients
from eris.training.gradients import ClientGradients
from eris.training.options import LocalTraining
from eris.training.statistics import mixing_layer
from eris.training.threads import single_threaded
from eris.training.trainer import Batch, PerSampleClip, Rows

ROWS = 64
"""Slots of a pass; a client with fewer has passes of as many as it has."""
TRIES = 4
"""Halves of a pass that a check changes."""


class SamplesMeet(ErisError):
    """A model in which one sample's gradient moves with another sample."""


class SlotGradients:
    """The gradients of one client's samples, each in its slot.

    ``count`` is the client's public weight: how many samples it was enrolled with. Slots beyond the
    samples that it has are empty.
    """

    def __init__(self, gradients: ClientGradients, count: int | None = None) -> None:
        samples = len(gradients)
        self.count = samples if count is None else count
        if samples > self.count:
            expected = f"at most {self.count}, the weight that was agreed for this client"
            raise InvalidSetting("samples of a client", samples, expected)
        self._gradients, self._rows = gradients, min(ROWS, self.count)

    def passes(self, position: Tensor, batch: Batch | None = None) -> Iterator[Rows]:
        """The gradients of all slots at a flat model, or of a batch, in blocks; each is gone with
        the next."""
        for inputs, targets, held in self._packed(self._chosen(batch)):
            yield from _each(self._gradients, position, inputs, targets, held)

    def clipped_sum(self, position: Tensor, clip: PerSampleClip) -> Content:
        """Σ clip(select(gᵢ)) over all samples, on the fine grid."""
        check_room(self.count * clip.clip, clip.places)
        chosen = self._chosen(clip.batch)
        with single_threaded():
            if isinstance(clip.select, Arranged) and clip.select.has_all(len(position)):
                # Which way is taken depends on the model alone.
                with suppress(NotTogether):
                    return self._whole_sum(position, chosen, clip)[clip.select.order]
            total: Content | None = None
            for inputs, targets, held in self._packed(chosen):
                for rows in _each(self._gradients, position, inputs, targets, held):
                    selected = clip.select(rows)
                    if total is None:
                        total = np.zeros(selected.shape[1], np.int64)
                    add_clipped(total, selected, clip.clip, clip.places)
        if total is None:  # a batch of nobody
            total = np.zeros(clip.select(np.zeros((1, len(position)), np.float32)).size, np.int64)
        return total

    def _whole_sum(self, position: Tensor, chosen: Tensor, clip: PerSampleClip) -> Content:
        """The sum of whole gradients, of which none is written out."""
        total: Content = np.zeros(len(position), np.int64)
        flat, loss = self._gradients.flat, self._gradients.loss
        for inputs, targets, held in self._packed(chosen):
            found = SampleGradients(flat, loss, position, inputs, targets)
            for products in found.products(held):
                add_clipped_products(total, products, clip.clip, clip.places)
        return total

    def _chosen(self, batch: Batch | None) -> Tensor:
        """The slots of a round, in their order."""
        chosen = None if batch is None else batch(self.count)
        slots = torch.arange(self.count)
        return slots if chosen is None else slots[torch.from_numpy(chosen)]

    def _packed(self, slots: Tensor) -> Iterator[tuple[Tensor, Tensor, int]]:
        """Inputs and targets of passes, of which the first rows hold so many samples."""
        for first in range(0, len(slots), self._rows):
            some = slots[first : first + self._rows]
            held = some[some < len(self._gradients)]  # empty slots are the last
            inputs, targets = (
                _filled(data[held], self._rows)
                for data in (self._gradients.inputs, self._gradients.targets)
            )
            yield inputs, targets, len(held)


def check_slots(
    gradients: ClientGradients, position: Tensor, seed: int = 0, *, packed: bool = False
) -> None:
    """Refuse a model in which a sample's gradient moves if others are changed or gone: at this
    model, on this machine, in a few tries.

    Models that were crafted against it are in the tests. A property of PyTorch's kernels, which is
    looked at and not proved. That samples may change places is asked for only if they are
    ``packed``: else a slot is for ever.
    """
    rows = min(ROWS, len(gradients))
    inputs, targets = gradients.inputs[:rows], gradients.targets[:rows]
    with single_threaded():
        plain = _whole(_each(gradients, position, inputs, targets, rows))
        for order in Stream(seed, "slots").permutations(TRIES, rows):
            changed, stay = order[: -(-rows // 2)], order[-(-rows // 2) :]
            for factor in (0, -1000):
                some, wanted = inputs.clone(), targets.clone()
                some[changed] = factor * inputs[changed[::-1].copy()]
                wanted[changed] = targets[changed[::-1].copy()]
                found = _whole(_each(gradients, position, some, wanted, rows))
                _alike(found[stay], plain[stay], "others are changed")
            if packed:
                moved = _whole(_each(gradients, position, inputs[order], targets[order], rows))
                _alike(moved, plain[order], "they change places, as in secret batches")


def check_one_step(model: nn.Module, options: LocalTraining, samples: int) -> None:
    """Refuse training whose update is no sum over samples that one of them moves by its clip."""
    if options.local_steps(samples) != 1:
        expected = (
            "1: noise per sample needs one local step a round, for a sample changes all later "
            "steps; use one step, or protect whole clients (protects = client)"
        )
        raise InvalidSetting("local steps", options.local_steps(samples), expected)
    if options.batch(samples) != samples:
        expected = f"none, or all {samples} samples: noise per sample is of the whole batch"
        raise InvalidSetting("batch_size", options.batch_size, expected)
    server = "of the server rule instead (fedavgm): a client's state ties its noisy rounds together"
    if options.momentum:
        raise InvalidSetting("momentum", options.momentum, f"0, and that {server}")
    if options.optimiser != "sgd":
        raise InvalidSetting("optimiser", options.optimiser, f"'sgd', and moments {server}")
    if options.estimator != "sgd":
        expected = "'sgd' with noise per sample: SVRG and SAGA reuse gradients without noise"
        raise InvalidSetting("estimator", options.estimator, expected)
    if options.augment != "none":
        expected = "'none' with noise per sample, which clips samples as they are"
        raise InvalidSetting("augment", options.augment, expected)
    if options.weight_decay:
        expected = "0 with noise per sample, whose sum holds gradients alone"
        raise InvalidSetting("weight_decay", options.weight_decay, expected)
    if (layer := mixing_layer(model)) is not None:
        expected = "one that treats every sample by itself, as group norm does"
        raise InvalidSetting("layer of a model that is to have noise per sample", layer, expected)
    for name, part in model.named_modules():
        if isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0:
            expected = "0 with noise per sample: who is in a batch would shift the others' draws"
            raise InvalidSetting(f"dropout of layer {name}", part.p, expected)


def _each(
    gradients: ClientGradients, position: Tensor, inputs: Tensor, targets: Tensor, held: int
) -> Iterator[Rows]:
    """The gradients of a pass in blocks, of which the first rows hold samples."""
    first = 0
    for rows in _blocks(gradients, position, inputs, targets):
        rows[max(0, held - first) :] = 0
        first += len(rows)
        found: Rows = rows.cpu().numpy()
        yield found


def _blocks(
    gradients: ClientGradients, position: Tensor, inputs: Tensor, targets: Tensor
) -> Iterator[Tensor]:
    """Which way is taken depends on the model alone, so a sample sees the same instructions."""
    try:
        return SampleGradients(gradients.flat, gradients.loss, position, inputs, targets).rows()
    except NotTogether:
        batch = ClientGradients(gradients.flat, inputs, targets, gradients.loss)
        return iter([batch.each(position, None)[0]])


def _whole(blocks: Iterator[Rows]) -> Rows:
    """All rows of a pass, with memory of their own."""
    return np.concatenate([rows.copy() for rows in blocks])


def _filled(data: Tensor, rows: int) -> Tensor:
    """Samples and, behind them, zeros."""
    if len(data) == rows:
        return data
    return torch.cat([data, data.new_zeros(rows - len(data), *data.shape[1:])])


def _alike(found: Rows, expected: Rows, what: str) -> None:
    off = (found.view(np.uint32) != expected.view(np.uint32)).any(1)
    if off.any():
        raise SamplesMeet(
            f"gradients of {int(off.sum())} of {len(off)} samples move if {what}: what one sample "
            "contributes cannot be bounded; use a model that treats every sample by itself, all "
            "samples (sampling_rate = 1), or protect whole clients (protects = client)"
        )
