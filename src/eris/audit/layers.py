"""The linear layers of a model: where their weights lie in a flat update, and what they take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from eris.audit.gradients import SampleModel
from eris.audit.low_rank import Choice, Entries, Matrix
from eris.core.vectors import Indices, Vector


@dataclass(frozen=True)
class LinearLayer:
    """One layer y = Wx + c. Its gradient is the matrix [∂W | ∂c], one row an output."""

    name: str
    outputs: int
    inputs: int
    weight: int
    """Where its weights begin in a flat vector."""
    bias: int | None
    positions: int
    """How often it is applied to one sample: more than once to the tokens of a text."""
    takes_samples: bool
    """Whether its input is the sample itself, as the first layer of a perceptron's is."""

    @property
    def shape(self) -> tuple[int, int]:
        """Of the gradient, the column of the bias included."""
        return self.outputs, self.inputs + (self.bias is not None)

    def entries(self, coordinates: Indices, values: Vector) -> Entries:
        """The entries of its gradient among coordinates of a flat update."""
        inside = coordinates - self.weight
        weights = (inside >= 0) & (inside < self.outputs * self.inputs)
        rows, columns = np.divmod(inside[weights], self.inputs)
        found = values[weights]
        if self.bias is not None:
            behind = coordinates - self.bias
            biases = (behind >= 0) & (behind < self.outputs)
            rows = np.concatenate([rows, behind[biases]])
            columns = np.concatenate([columns, np.full(int(biases.sum()), self.inputs)])
            found = np.concatenate([found, values[biases]])
        return Entries(rows, columns, found.astype(np.float64), self.shape)

    def taken(self, samples: Tensor) -> Matrix:
        """Samples as rows of what the layer takes: with a 1 behind them where there is a bias."""
        flat = samples.reshape(len(samples), -1).double().cpu().numpy()
        return flat if self.bias is None else np.column_stack([flat, np.ones(len(flat))])


def linear_layers(samples: SampleModel) -> list[LinearLayer]:
    """The linear layers that a model applies to a sample and that are trained, in their order.

    >>> from torch.nn import functional
    >>> network = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2, bias=False))
    >>> data = torch.rand(5, 4), torch.zeros(5, dtype=torch.int64)
    >>> for layer in linear_layers(SampleModel(network, functional.cross_entropy, *data)):
    ...     print(layer.name, layer.shape, layer.takes_samples)
    0 (3, 5) True
    2 (2, 3) False
    """
    flat, sample = samples.flat, samples.inputs[:1].to(samples.flat.device)
    starts = {name: place.start for name, place in zip(flat.names, flat.places, strict=True)}
    given: dict[str, Tensor] = {}
    hooks = [
        module.register_forward_hook(_noting(given, name))
        for name, module in flat.module.named_modules()
        if isinstance(module, nn.Linear)
    ]
    try:
        with torch.no_grad():
            flat.module(sample)
    finally:
        for hook in hooks:
            hook.remove()
    found = []
    for name, taken in given.items():
        module: Any = flat.module.get_submodule(name)
        weight, bias = (f"{name}.{part}" if name else part for part in ("weight", "bias"))
        if weight in starts:
            same = taken.numel() == sample.numel() and bool(
                torch.equal(taken.flatten(), sample.to(taken.dtype).flatten())
            )
            found.append(
                LinearLayer(
                    name or type(module).__name__,
                    module.out_features,
                    module.in_features,
                    starts[weight],
                    starts.get(bias),
                    taken.numel() // module.in_features,
                    same,
                )
            )
    return found


def _noting(given: dict[str, Tensor], name: str) -> Any:
    def note(module: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> None:
        given[name] = arguments[0]

    return note


def whole(layer: LinearLayer, entries: Entries) -> Matrix | None:
    """The gradient, if every entry of it is there."""
    seen: Choice = np.zeros(layer.shape, np.bool_)
    seen[entries.rows, entries.columns] = True
    if not seen.all():
        return None
    found = np.zeros(layer.shape)
    found[entries.rows, entries.columns] = entries.values
    return found
