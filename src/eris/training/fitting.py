"""Whether model, data and loss go together, found out on two samples before anything is trained."""

from __future__ import annotations

import math
import warnings
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional

from eris.core.errors import InvalidSetting
from eris.training.flat import FlatParameters
from eris.training.gradients import Loss, mean_loss

_TRIED: WeakKeyDictionary[nn.Module, dict[tuple[object, ...], float]] = WeakKeyDictionary()
# What samples and losses a module is known to go with, so that clients that share it try it once;
# and how many classes there may be.
_REFUSALS = (RuntimeError, ValueError, TypeError, IndexError)


def check_fit(flat: FlatParameters, inputs: Tensor, targets: Tensor, loss: Loss) -> None:
    """Try the model and the loss on two samples, once for every module and shape.

    In evaluation mode, without gradients, and without touching the process-wide random state. A
    model that adds or reshapes parameters in its forward pass is found here too.
    """
    module = flat.module
    some, wanted = (whole[:2].to(flat.device) for whole in (inputs, targets))  # batch norm needs 2
    kind = (some.shape[1:], some.dtype, wanted.shape[1:], wanted.dtype, loss)
    tried = _TRIED.setdefault(module, {})
    if kind not in tried:
        outputs = _outputs(module, some)
        flat.check_unchanged()
        classes = math.inf
        if isinstance(outputs, Tensor):  # a model may give more, which its loss knows of
            if _is_cross_entropy(loss):
                _check_classes(outputs)
                classes = math.inf if targets.is_floating_point() else outputs.shape[1]
            if int(targets.max()) < classes:
                _check_loss(outputs, wanted, loss)
        tried[kind] = classes
    if (most := targets.max()) >= tried[kind]:
        expected = f"class numbers from 0 to {tried[kind] - 1}: the model has an output for each"
        raise InvalidSetting("targets", f"up to {int(most)}", expected)


def _outputs(module: nn.Module, some: Tensor) -> object:
    training = module.training
    module.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            return module(some)
    except _REFUSALS as refusal:
        found = f"{some.dtype} {tuple(some.shape)}"
        expected = f"inputs that {type(module).__name__} takes; it says: {refusal}"
        raise InvalidSetting("batch of the first samples", found, expected) from refusal
    finally:
        module.train(training)


def _check_classes(outputs: Tensor) -> None:
    """Refuse a single output, for which cross-entropy is 0 whatever it says."""
    if outputs.dim() < 2 or outputs.shape[1] < 2:
        expected = (
            "(samples, classes), two or more, under cross-entropy, which is 0 for one output "
            "whatever it says; for one output take functional.binary_cross_entropy_with_logits, "
            "and targets 0.0 or 1.0 of the same shape"
        )
        raise InvalidSetting("shape of the model's output", tuple(outputs.shape), expected)


def _check_loss(outputs: Tensor, targets: Tensor, loss: Loss) -> None:
    """Refuse a loss that cannot be taken of such outputs and targets, or means something else."""
    shape = tuple(outputs.shape)
    if _differ_in_ones(outputs, targets) and _mixes_samples(outputs, targets, loss):
        found, wanted = (
            str(("samples", *of.shape[1:])).replace("'", "") for of in (targets, outputs)
        )
        expected = f"{wanted}, as the model's output: this loss would compare every output with "
        raise InvalidSetting("shape of the targets", found, expected + "every target")
    try:
        with torch.no_grad():
            mean_loss(loss, outputs, targets)
    except InvalidSetting:
        raise
    except _REFUSALS as refusal:
        found = f"{targets.dtype} {tuple(targets.shape)}"
        expected = f"targets that the loss takes beside outputs {shape}; it says: {refusal}"
        raise InvalidSetting("targets of the first samples", found, expected) from refusal


def _differ_in_ones(outputs: Tensor, targets: Tensor) -> bool:
    """Whether shapes are the same but for dimensions of one, as (n,) and (n, 1)."""
    one, other = (tuple(of.shape[1:]) for of in (outputs, targets))
    return one != other and [n for n in one if n != 1] == [n for n in other if n != 1]


def _mixes_samples(outputs: Tensor, targets: Tensor, loss: Loss) -> bool:
    """Whether the loss of two samples is neither the mean nor the sum of their own."""
    made = torch.zeros((2, *outputs.shape[1:]), device=outputs.device)
    wanted = torch.zeros((2, *targets.shape[1:]), dtype=targets.dtype, device=outputs.device)
    made[0], made[1], wanted[1] = 0.25, 0.625, 1
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what torch suspects is decided here
        try:
            both = loss(made, wanted)
            alone = loss(made[:1], wanted[:1]) + loss(made[1:], wanted[1:])
        except _REFUSALS:  # it takes no such targets, as the try with real ones will say
            return False
    return not any(torch.allclose(both, alone * share, atol=1e-6) for share in (0.5, 1.0))


def _is_cross_entropy(loss: Loss) -> bool:
    return loss is functional.cross_entropy or isinstance(loss, nn.CrossEntropyLoss)
