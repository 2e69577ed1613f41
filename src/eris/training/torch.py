"""One client's training in PyTorch: from the flat model and the client's data to its update.

The update is the pseudo-gradient (x − x_k)/λ of plain SGD with optional momentum. As every step
subtracts λ times the momentum buffer, that is the sum of the buffers of the local steps; it is
accumulated as that sum, which spares the cancellation of subtracting two nearly equal models. For
one step it is the gradient or, with momentum, the momentum-averaged gradient.

Nothing here changes PyTorch's process-wide state. Results are reproducible bit for bit for a given
number of threads; PyTorch splits sums by thread, so compare runs under ``single_threaded()``.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal, TypedDict, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from eris.core.errors import InvalidSetting
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.training.trainer import LocalUpdate

Loss = Callable[[Tensor, Tensor], Tensor]
"""The mean loss of a batch from the model's output and the targets."""

RunningStatistics = Literal["refuse", "ignore"]
"""What to do with a model that has running statistics (batch norm), which are no parameters.

``refuse`` is an error. ``ignore`` leaves them in the module: they do not travel, and clients that
share the module share them too.
"""

MNIST_MEAN, MNIST_STD = 0.1307, 0.3081


def parameter_count(module: nn.Module) -> int:
    """How many trainable parameters a model has: the length of its flat vector.

    >>> parameter_count(nn.Linear(3, 2))
    8
    """
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)


def flatten(module: nn.Module, *, running_statistics: RunningStatistics = "refuse") -> Vector:
    """The trainable parameters as one vector, in the order of ``module.parameters()``."""
    with torch.no_grad():
        return _joined(_trainable(module, running_statistics)).cpu().numpy()


def unflatten(
    vector: Vector, module: nn.Module, *, running_statistics: RunningStatistics = "refuse"
) -> None:
    """Write a flat vector into the trainable parameters of ``module``; the inverse of flatten."""
    parameters = _trainable(module, running_statistics)
    _write(_checked(vector, module, parameters), parameters)


class TorchTrainer:
    """One client: its data, its optimiser settings, and its momentum, kept across rounds.

    ``model`` gives the architecture and is scratch space: every call overwrites its parameters
    first, so any number of trainers (used one at a time) can share a single module.

    A round makes ``steps`` steps, or ``epochs`` passes over the data, on batches of
    ``batch_size`` (``None``: all the data in one batch, the papers' unbiased setting). The order
    of the batches and what the model itself draws (dropout) come from streams of their own, named
    by (seed, client, round), so a round's update does not depend on who trained before.
    """

    def __init__(
        self,
        model: nn.Module,
        inputs: Tensor,
        targets: Tensor,
        *,
        learning_rate: float,
        momentum: float = 0.0,
        steps: int = 1,
        batch_size: int | None = None,
        epochs: int | None = None,
        loss: Loss = functional.cross_entropy,
        seed: int = 0,
        client: int = 0,
        running_statistics: RunningStatistics = "refuse",
    ) -> None:
        _check_data(inputs, targets)
        if not 0 < learning_rate < float("inf"):
            raise InvalidSetting("learning_rate", learning_rate, "a finite number above 0")
        if not 0 <= momentum < 1:
            raise InvalidSetting("momentum", momentum, "a number in [0, 1)")
        _at_least_one("steps", steps)
        _at_least_one("batch_size", batch_size)
        _at_least_one("epochs", epochs)
        if epochs is not None and steps != 1:
            raise InvalidSetting("steps", steps, f"nothing beside epochs={epochs}, which sets it")
        self._model, self._inputs, self._targets, self._loss = model, inputs, targets, loss
        self._parameters = _trainable(model, running_statistics)
        self._learning_rate, self._momentum = learning_rate, momentum
        self._batch_size = min(batch_size or len(inputs), len(inputs))
        self._steps = steps if epochs is None else epochs * -(-len(inputs) // self._batch_size)
        self._batch_orders = Stream(seed, "batches", client=client)
        self._model_draws = Stream(seed, "model", client=client)
        self._buffer: Tensor | None = None

    def update(self, parameters: Vector, round: int) -> LocalUpdate:
        """Train from ``parameters`` and return the update, loss averaged over the local steps."""
        position = _checked(parameters, self._model, self._parameters)
        total = torch.zeros_like(position)
        losses = []
        self._model.train()
        with _drawing_from(replace(self._model_draws, round=round)):
            for inputs, targets in itertools.islice(self._batches(round), self._steps):
                _write(position, self._parameters)
                gradient, loss = self._gradient(inputs, targets)
                direction = self._averaged(gradient)
                position.sub_(direction, alpha=self._learning_rate)
                total.add_(direction)
                losses.append(loss)
        return LocalUpdate(
            vector=total.cpu().numpy(),
            samples=len(self._inputs),
            steps=self._steps,
            metrics={"loss": sum(losses) / len(losses)},
        )

    def state(self) -> dict[str, NDArray[np.float32]]:
        """What the client must keep between rounds: its momentum, once it has one."""
        return {} if self._buffer is None else {"momentum": self._buffer.cpu().numpy().copy()}

    def restore(self, state: Mapping[str, NDArray[np.float32]]) -> None:
        """Continue from a ``state()``; an empty one is that of a client that never trained."""
        unknown = sorted(set(state) - {"momentum"})
        if unknown or (state and self._momentum == 0):
            raise InvalidSetting(
                "state of the trainer", sorted(state), f"a state saved at momentum {self._momentum}"
            )
        self._buffer = _checked(state["momentum"], self._model, self._parameters) if state else None

    def _gradient(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, float]:
        with torch.enable_grad():
            device = self._parameters[0].device
            loss = self._loss(self._model(inputs.to(device)), targets.to(device))
            # A parameter the loss does not reach has gradient zero, not none.
            pieces = torch.autograd.grad(
                loss, self._parameters, allow_unused=True, materialize_grads=True
            )
        return _joined(pieces), float(loss.detach())

    def _averaged(self, gradient: Tensor) -> Tensor:
        # torch.optim.SGD's rule: the first buffer is the gradient, and no dampening.
        if self._momentum == 0:
            return gradient
        if self._buffer is None:
            self._buffer = gradient
        else:
            self._buffer.mul_(self._momentum).add_(gradient)
        return self._buffer

    def _batches(self, round: int) -> Iterator[tuple[Tensor, Tensor]]:
        if self._batch_size == len(self._inputs):
            yield from itertools.repeat((self._inputs, self._targets))
        stream, size = replace(self._batch_orders, round=round), len(self._inputs)
        for epoch in itertools.count():
            # Row ``epoch`` of Stream.permutations, without knowing how many there will be.
            words = stream.words(epoch * size, size)
            order = torch.from_numpy(np.argsort(words, kind="stable"))
            for start in range(0, len(order), self._batch_size):
                chosen = order[start : start + self._batch_size]
                yield self._inputs[chosen], self._targets[chosen]


class TrainerSettings(TypedDict, total=False):
    """The settings all clients of ``torch_clients`` share; see ``TorchTrainer``."""

    momentum: float
    steps: int
    batch_size: int | None
    epochs: int | None
    loss: Loss
    seed: int
    running_statistics: RunningStatistics


def torch_clients(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    partitions: Sequence[NDArray[np.int64]],
    *,
    learning_rate: float,
    **settings: Unpack[TrainerSettings],
) -> list[TorchTrainer]:
    """One trainer per partition (indices into the data), numbered from 0.

    They share one copy of ``model`` as scratch space; ``model`` itself is left as it is.
    """
    _check_data(inputs, targets)
    scratch = copy.deepcopy(model)
    return [
        TorchTrainer(
            scratch,
            inputs[torch.tensor(part)],
            targets[torch.tensor(part)],
            learning_rate=learning_rate,
            client=client,
            **settings,
        )
        for client, part in enumerate(partitions)
    ]


class Evaluation(TypedDict):
    """How well a model does on some data."""

    loss: float
    accuracy: float
    samples: int


def evaluate(
    module: nn.Module,
    parameters: Vector,
    inputs: Tensor,
    targets: Tensor,
    *,
    batch_size: int = 1024,
    loss: Loss = functional.cross_entropy,
    running_statistics: RunningStatistics = "refuse",
) -> Evaluation:
    """Mean loss and accuracy of a classifier; ``module`` is lent and left as it was."""
    _check_data(inputs, targets)
    _at_least_one("batch_size", batch_size)
    before = flatten(module, running_statistics=running_statistics)
    unflatten(parameters, module, running_statistics=running_statistics)
    device = next(module.parameters()).device
    total, correct = 0.0, 0
    training = module.training
    module.eval()
    try:
        with torch.no_grad():
            for start in range(0, len(inputs), batch_size):
                some = inputs[start : start + batch_size].to(device)
                wanted = targets[start : start + batch_size].to(device)
                logits = module(some)
                total += float(loss(logits, wanted)) * len(some)
                correct += int((logits.argmax(dim=1) == wanted).sum())
    finally:
        module.train(training)
        unflatten(before, module, running_statistics=running_statistics)
    count = len(inputs)
    return {"loss": total / count, "accuracy": correct / count, "samples": count}


def normalise(
    images: NDArray[np.uint8], mean: float | None = None, std: float | None = None
) -> Tensor:
    """Grey images (N, H, W) in 0..255 as float32 (N, 1, H, W), standardised; MNIST's by default.

    ``mean`` and ``std`` are those of the pixels divided by 255.
    """
    if images.dtype != np.uint8 or images.ndim != 3:
        raise InvalidSetting("images", f"{images.dtype} {images.shape}", "uint8 of shape (N, H, W)")
    scaled = torch.from_numpy(images.astype(np.float32)).div_(255)
    scaled.sub_(MNIST_MEAN if mean is None else mean).div_(MNIST_STD if std is None else std)
    return scaled.unsqueeze(1)


@contextmanager
def single_threaded() -> Iterator[None]:
    """Run PyTorch on one thread inside the block: the same bits whatever the machine's cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _drawing_from(stream: Stream) -> Iterator[None]:
    # Dropout draws from PyTorch's global generator; lend it a seed and put its state back after.
    # One word: the generator's engine looks at 32 bits of its seed.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(int(stream.words(0, 1)[0]))
        yield


def _trainable(module: nn.Module, running_statistics: RunningStatistics) -> list[nn.Parameter]:
    if running_statistics == "refuse":
        for name, _ in module.named_buffers():
            if name.rsplit(".", 1)[-1] in {"running_mean", "running_var"}:
                raise InvalidSetting(
                    f"buffer of {type(module).__name__}",
                    name,
                    "no running statistics, which are not parameters and would not be shared; use "
                    "group norm, or running_statistics='ignore' to leave them in the module",
                )
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if not parameters:
        raise InvalidSetting("model", type(module).__name__, "at least one trainable parameter")
    for parameter in parameters:
        if parameter.dtype != torch.float32:
            raise InvalidSetting(
                f"parameters of {type(module).__name__}", parameter.dtype, "float32 throughout"
            )
    return parameters


def _joined(pieces: Sequence[Tensor]) -> Tensor:
    return torch.cat([piece.reshape(-1) for piece in pieces])


def _checked(vector: Vector, module: nn.Module, parameters: Sequence[Tensor]) -> Tensor:
    """A copy of ``vector`` on the model's device, if it is a vector of that model."""
    expected = sum(parameter.numel() for parameter in parameters)
    if vector.dtype != np.float32:
        raise InvalidSetting("parameter vector's type", str(vector.dtype), "float32")
    if vector.shape != (expected,):
        raise InvalidSetting(
            "shape of the parameter vector",
            vector.shape,
            f"({expected},), the {expected:,} parameters of {type(module).__name__}",
        )
    return torch.tensor(vector, device=parameters[0].device)


def _write(position: Tensor, parameters: Sequence[Tensor]) -> None:
    with torch.no_grad():
        start = 0
        for parameter in parameters:
            end = start + parameter.numel()
            parameter.copy_(position[start:end].view_as(parameter))
            start = end


def _check_data(inputs: Tensor, targets: Tensor) -> None:
    if len(inputs) != len(targets):
        raise InvalidSetting("targets", f"{len(targets)} long", f"{len(inputs)}, one per input")
    if len(inputs) == 0:
        raise InvalidSetting("inputs", "empty", "at least one sample")


def _at_least_one(name: str, value: int | None) -> None:
    if value is not None and value < 1:
        raise InvalidSetting(name, value, "at least 1")
