"""A module's trainable parameters seen as one flat float32 vector, which is what travels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby

import numpy as np
import torch
from torch import Tensor, nn

from eris.core.errors import InvalidSetting
from eris.core.vectors import Vector
from eris.training.options import RunningStatistics
from eris.training.statistics import check_statistics, chosen, travelling
from eris.training.trainer import Layout


def parameter_count(module: nn.Module) -> int:
    """How many trainable parameters a model has: the length of its flat vector.

    >>> parameter_count(nn.Linear(3, 2))
    8
    """
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)


def flatten(module: nn.Module, *, running_statistics: RunningStatistics = "refuse") -> Vector:
    """The trainable parameters as one vector, in the order of ``module.parameters()``.

    Behind them are the running means and variances, if those are ``averaged``.
    """
    return FlatParameters(module, running_statistics).read().cpu().numpy()


def layer_sizes(
    module: nn.Module, *, running_statistics: RunningStatistics = "refuse"
) -> tuple[int, ...]:
    """How many values of the flat vector each layer has: a module's own parameters together.

    Running statistics that are ``averaged`` are the last layer.

    >>> layer_sizes(nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1)))
    (8, 3)
    """
    flat = FlatParameters(module, running_statistics)
    sizes = [place.stop - place.start for place in flat.places]
    owners = [name.rpartition(".")[0] for name in flat.names]
    found = [
        sum(size for _, size in layer)
        for _, layer in groupby(zip(owners, sizes, strict=True), lambda one: one[0])
    ]
    behind = len(flat) - flat.trained
    return (*found, behind) if behind else tuple(found)


def unflatten(
    vector: Vector, module: nn.Module, *, running_statistics: RunningStatistics = "refuse"
) -> None:
    """Write a flat vector into ``module``, which then has the model's ``state_dict()``.

    The inverse of flatten.
    """
    flat = FlatParameters(module, running_statistics)
    flat.write(flat.checked(vector))


def state_with(module: nn.Module, vector: Vector, layout: Layout | None) -> dict[str, Tensor]:
    """The ``state_dict`` of a module with a flat vector's values, as copies.

    >>> state_with(nn.Linear(1, 1), np.array([2, 3], np.float32), None)["bias"]
    tensor([3.])
    """
    known = FlatParameters(module).layout if layout is None else layout
    state = {name: value.clone() for name, value in module.state_dict().items()}
    start = 0
    for name, shape in known:
        end = start + math.prod(shape)
        if name not in state or state[name].shape != shape:
            expected = f"one that has {name} {tuple(shape)}"
            raise InvalidSetting("module", type(module).__name__, expected)
        state[name].copy_(torch.from_numpy(vector[start:end].reshape(shape)))
        start = end
    if start != len(vector):
        expected = f"one of {len(vector):,} values, as the model has"
        raise InvalidSetting("module", type(module).__name__, expected)
    return state


class FlatParameters:
    """The trainable parameters of one module, in the order of ``module.parameters()``.

    With ``averaged`` running statistics these are the end of a flat vector; ``trained`` says how
    many parameters come before them.

    They are looked up once. A module that replaces, adds, freezes or reshapes parameters later no
    longer fits the vectors of the federation; ``check_unchanged`` says so.

    >>> flat = FlatParameters(nn.Linear(3, 2))
    >>> len(flat), flat.names
    (8, ['weight', 'bias'])
    """

    def __init__(self, module: nn.Module, running_statistics: RunningStatistics = "refuse") -> None:
        choice = chosen(module, running_statistics)
        check_statistics(module, choice)
        self.module = module
        self._statistics = travelling(module) if choice == "averaged" else []
        found = list(_trainable(module))
        self.names = [name for name, _ in found]
        self.parameters = [parameter for _, parameter in found]
        kind = type(module).__name__
        if not found:
            raise InvalidSetting("model", kind, "at least one trainable parameter")
        for name, parameter in found:
            if isinstance(parameter, nn.parameter.UninitializedParameter):
                expected = "a known shape: call the model once on a batch before training it"
                raise InvalidSetting(f"shape of {kind}'s {name}", "not known yet", expected)
            if parameter.dtype != torch.float32:
                raise InvalidSetting(f"parameters of {kind}", parameter.dtype, "float32 throughout")
        self._shapes = [parameter.shape for parameter in self.parameters]
        ends = list(accumulate(shape.numel() for shape in self._shapes))
        self.places = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
        """Where each parameter lies in the vector."""
        self.trained = ends[-1]
        """How many parameters there are."""
        self._count = ends[-1] + sum(buffer.numel() for _, buffer in self._statistics)

    def __len__(self) -> int:
        return self._count

    @property
    def layout(self) -> list[tuple[str, tuple[int, ...]]]:
        """Name and shape of every parameter, and of statistics that travel, as in a state_dict."""
        named = zip(self.names, self._shapes, strict=True)
        behind = ((name, buffer.shape) for name, buffer in self._statistics)
        return [(name, tuple(shape)) for name, shape in (*named, *behind)]

    @property
    def device(self) -> torch.device:
        """Where the module computes."""
        return self.parameters[0].device

    def checked(self, vector: Vector) -> Tensor:
        """A copy of ``vector`` on the module's device, if it is a vector of this module."""
        if vector.dtype != np.float32:
            raise InvalidSetting("parameter vector's type", str(vector.dtype), "float32")
        if vector.shape != (self._count,):
            kind = type(self.module).__name__
            raise InvalidSetting(
                "shape of the parameter vector",
                vector.shape,
                f"({self._count},), the {self._count:,} values of {kind}",
            )
        return torch.tensor(vector, device=self.device)

    def read(self) -> Tensor:
        """The parameters now, and statistics that travel, as a vector of its own."""
        with torch.no_grad():
            return joined([*self.parameters, *(buffer for _, buffer in self._statistics)])

    def write(self, position: Tensor) -> None:
        """Set the parameters to a flat vector, and statistics if it goes on with them."""
        with torch.no_grad():
            for parameter, piece in zip(self.parameters, self._cut(position), strict=True):
                parameter.copy_(piece)
            start = self.trained
            for name, buffer in self._statistics if len(position) > self.trained else ():
                end = start + buffer.numel()
                buffer.copy_(position[start:end].view_as(buffer))
                if name.endswith("running_var"):  # a compressed mean may fall below zero
                    buffer.clamp_(min=0)
                start = end

    def views(self, position: Tensor) -> dict[str, Tensor]:
        """The flat vector cut into the parameters' shapes, by name; nothing is copied."""
        return dict(zip(self.names, self._cut(position), strict=True))

    def check_unchanged(self) -> None:
        """Refuse a module whose trainable parameters are not those it had at the start."""
        now = list(_trainable(self.module))
        if len(now) != len(self.parameters):
            self._refuse_change(f"{len(now)} of them", f"{len(self.parameters)}, as at the start")
        for name, shape, (current, parameter), known in zip(
            self.names, self._shapes, now, self.parameters, strict=True
        ):
            if current != name or parameter is not known or parameter.shape != shape:
                found = f"{current} {tuple(parameter.shape)}"
                self._refuse_change(found, f"{name} {tuple(shape)}, the same parameter throughout")

    def _refuse_change(self, found: str, expected: str) -> None:
        kind = type(self.module).__name__
        raise InvalidSetting(f"trainable parameters of {kind}", found, expected)

    def unused(self, gradients: Sequence[object | None]) -> list[slice]:
        """Where those parameters lie that have no gradient at all."""
        pairs = zip(self.places, gradients, strict=True)
        return [place for place, gradient in pairs if gradient is None]

    def gradient(self, pieces: Sequence[Tensor | None]) -> Tensor:
        """The parameters' gradients as one vector; a parameter without one has zeros."""
        pairs = zip(self.parameters, pieces, strict=True)
        return joined([torch.zeros_like(of) if piece is None else piece for of, piece in pairs])

    def _cut(self, position: Tensor) -> Iterator[Tensor]:
        pairs = zip(self.places, self._shapes, strict=True)
        return (position[place].view(shape) for place, shape in pairs)


def joined(pieces: Sequence[Tensor]) -> Tensor:
    """Tensors of any shapes, one after another in one vector."""
    return torch.cat([piece.reshape(-1) for piece in pieces])


def _trainable(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    return (named for named in module.named_parameters() if named[1].requires_grad)
