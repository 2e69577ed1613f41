"""Running statistics of batch norm, which are no parameters: refused, averaged, kept, not used.

Batch norm normalises a training batch by the batch's own mean and variance and keeps running
averages of them for evaluation (Ioffe and Szegedy, 2015). The averages are not trained, so they are
no part of an update, and averaging them over clients with different data is what FedBN (Li et al.,
2021) argues against. What becomes of them is therefore the user's choice: ``RunningStatistics``,
said once by ``with_statistics`` or in every call.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar, get_args

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from eris.core.errors import InvalidSetting
from eris.training.memory import Memory
from eris.training.options import RunningStatistics, one_of

Module = TypeVar("Module", bound=nn.Module)
BUFFERS = ("running_mean", "running_var", "num_batches_tracked")


_MARK = "_eris_running_statistics"


def with_statistics(module: Module, choice: RunningStatistics) -> Module:
    """The same module, marked: flatten, trainers and evaluate do with its statistics as chosen.

    >>> from eris.training.flat import flatten
    >>> len(flatten(with_statistics(nn.BatchNorm1d(3), "averaged")))  # scale, shift, mean, variance
    12
    """
    one_of("running_statistics", choice, get_args(RunningStatistics))
    setattr(module, _MARK, choice)
    return module


def chosen(module: nn.Module, asked: RunningStatistics) -> RunningStatistics:
    """What is asked for or, if that is nothing, what the module is marked with."""
    marked: RunningStatistics = getattr(module, _MARK, asked)
    return marked if asked == "refuse" else asked


def travelling(module: nn.Module) -> list[tuple[str, Tensor]]:
    """The running means and variances, by their whole names, in the order of the layers."""
    return [
        (f"{place}.{name}".lstrip("."), getattr(layer, name))
        for place, layer in _tracking(module)
        for name in _buffers(layer)
        if name in BUFFERS[:2]
    ]


def check_statistics(module: nn.Module, choice: RunningStatistics) -> None:
    """Refuse a module with running statistics if that is the choice, or if it cannot be done."""
    for name, norm in _tracking(module):
        buffer = f"{name}.{_buffers(norm)[0]}".lstrip(".")
        if choice == "refuse":
            raise InvalidSetting(
                f"buffer of {type(module).__name__}",
                buffer,
                "no running statistics, which are not parameters and would not be shared; use "
                "group norm, or running_statistics='averaged' (they travel with the model), "
                "'local' (each client keeps its own), 'batch' (every batch's own, none kept) or "
                "'ignore' (they stay in the module); with_statistics(model, …) says it once",
            )
        if choice == "batch" and not isinstance(norm, _NormBase):
            raise InvalidSetting(
                f"owner of {buffer}", type(norm).__name__, "a norm of torch.nn, for 'batch'"
            )


def mixing_layer(module: nn.Module) -> str | None:
    """The name of a layer through which samples of a batch see each other, None if none is known.

    That is batch norm with or without running statistics, and whatever else has running ones.

    >>> mixing_layer(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    '1'
    """
    for name, layer in module.named_modules():
        if isinstance(layer, _BatchNorm) or _buffers(layer):
            return name or type(layer).__name__
    return None


def statistics_length(module: nn.Module) -> int:
    """How many numbers the running statistics of a module are."""
    return sum(buffer.numel() for buffer in _all_buffers(module))


@contextmanager
def using_statistics(
    module: nn.Module, choice: RunningStatistics, memory: Memory
) -> Iterator[None]:
    """Inside the block the module has the statistics of ``choice``; after it, those of before.

    With ``local`` they are the client's, ``memory["statistics"]``, which is set to what they have
    become; a client that never trained starts from the module's. With ``averaged`` whoever uses
    the block writes them into the module. ``ignore`` changes nothing.
    """
    if choice in ("local", "averaged") and statistics_length(module):
        local, before = choice == "local", _read(module)
        # Norms without a momentum average over the batches they have seen: those of this round.
        _write(module, memory.get("statistics", before) if local else torch.zeros_like(before))
        try:
            yield
            if local:
                memory["statistics"] = _read(module)
        finally:
            _write(module, before)
    elif choice == "batch":
        with _without(module):
            yield
    else:
        yield


@contextmanager
def _without(module: nn.Module) -> Iterator[None]:
    # A norm without buffers uses the batch's statistics in both modes. Instance norm asks
    # ``track_running_stats`` instead.
    lent = [
        (norm, name, getattr(norm, name), None if name in BUFFERS else False)
        for _, norm in _tracking(module)
        for name in ("track_running_stats", *_buffers(norm))
    ]
    for norm, name, _, nothing in lent:
        setattr(norm, name, nothing)
    try:
        yield
    finally:
        for norm, name, value, _ in lent:
            setattr(norm, name, value)


def _tracking(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    return (named for named in module.named_modules() if _buffers(named[1]))


def _buffers(layer: nn.Module) -> list[str]:
    # ``num_batches_tracked`` alone is no statistic of the data.
    own = dict(layer.named_buffers(recurse=False))
    return [name for name in BUFFERS if name in own] if own.keys() & set(BUFFERS[:2]) else []


def _all_buffers(module: nn.Module) -> list[Tensor]:
    return [getattr(layer, name) for _, layer in _tracking(module) for name in _buffers(layer)]


def _read(module: nn.Module) -> Tensor:
    return torch.cat([buffer.reshape(-1).float() for buffer in _all_buffers(module)])


def _write(module: nn.Module, values: Tensor) -> None:
    start = 0
    with torch.no_grad():
        for buffer in _all_buffers(module):
            end = start + buffer.numel()
            buffer.copy_(values[start:end].view_as(buffer))
            start = end
