"""What every inversion looks for: samples whose simulated update is the one that was observed.

Of an update an attacker sees some coordinates. ``mask-aware``, it compares those and no others;
``oblivious``, as in the papers, it takes what it did not see for zeros and compares all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from eris.audit.inversion.basis import OrthogonalBasis, entered, left
from eris.audit.inversion.simulation import Simulation
from eris.core.errors import InvalidSetting, one_of, require

Mode = Literal["mask-aware", "oblivious"]

Distance = Callable[[Tensor, Tensor, Tensor], Tensor]
"""How far simulated updates (B, n) are from observed ones, by the weights of coordinates: (B,)."""


def squared(found: Tensor, observed: Tensor, weights: Tensor) -> Tensor:
    """Σ (g′ − g)² over what is compared.

    >>> ones = torch.ones(1, 4)
    >>> squared(ones, 3 * ones, torch.tensor([[1.0, 1.0, 0.0, 0.0]])).tolist()
    [8.0]
    """
    return (weights * (found - observed).square()).sum(1)


def angular(found: Tensor, observed: Tensor, weights: Tensor) -> Tensor:
    """1 − cos(g′, g) over what is compared.

    >>> ones = torch.ones(1, 4)
    >>> angular(ones, 3 * ones, ones).abs().max().item() < 1e-6
    True
    """
    product = (weights * found * observed).sum(1)
    lengths = (weights * found.square()).sum(1) * (weights * observed.square()).sum(1)
    return 1 - product / lengths.clamp(min=1e-30).sqrt()


@dataclass(frozen=True, eq=False)
class Matching:
    """Observed updates of clients that all started from one model; one row a target.

    ``values`` are 0 where nothing was seen. Every target is ``samples`` inputs of ``shape``, of
    which all lie between ``low`` and ``high`` (numbers, or tensors that broadcast to ``shape``).
    Coordinates are those of ``basis``, if there is one.
    """

    simulation: Simulation
    values: Tensor
    seen: Tensor
    shape: tuple[int, ...]
    samples: int = 1
    low: Tensor | float = 0.0
    high: Tensor | float = 1.0
    mode: Mode = "mask-aware"
    basis: OrthogonalBasis | None = None

    def __post_init__(self) -> None:
        require(self.mode in get_args(Mode), "mode", self.mode, one_of(get_args(Mode), self.mode))
        require(self.samples >= 1, "samples", self.samples, "at least 1 that the client has")
        size = self.simulation.flat.trained
        if self.basis is not None:
            size = len(self.basis.enter(np.zeros(size, np.float32)))
        for name, rows in (("update", self.values), ("mask", self.seen)):
            if rows.shape[1:] != (size,):
                expected = f"{size:,}, one a parameter of the model"
                raise InvalidSetting(f"length of the {name}", rows.shape[-1], expected)
        if not self.seen.any(1).all():
            raise InvalidSetting("mask", "all false", "at least one coordinate that was seen")
        if not self.values.square().sum(1).gt(0).all():
            expected = "some that is not 0: nothing can be read out of it"
            raise InvalidSetting("update where it was seen", "all zeros", expected)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def classes(self) -> int:
        """How many outputs the model has."""
        with torch.no_grad(), self._refusing():
            outputs = self.simulation.outputs(torch.zeros(1, *self.shape))
        if outputs.dim() != 2:
            expected = "(1, classes): label inference is for classifiers"
            raise InvalidSetting("shape of the model's output", tuple(outputs.shape), expected)
        return outputs.shape[1]

    @property
    def weights(self) -> Tensor:
        """By target and coordinate: 1 where it is compared."""
        return self.seen.float() if self.mode == "mask-aware" else torch.ones_like(self.values)

    @property
    def norms(self) -> Tensor:
        """Σ g² of what was seen: what a loss of nothing but zeros would be."""
        return self.values.square().sum(1)

    @property
    def by_parameter(self) -> tuple[Tensor, Tensor]:
        """The values where the model has its parameters, and which of them were seen.

        Turned back from another basis, what was kept is p times the gradient and what the rest of
        its block adds, whose sign is random: every coordinate is told a little.
        """
        if self.basis is None:
            return self.values, self.seen
        turned = left(self.values, self.basis)
        return turned, torch.ones_like(turned, dtype=torch.bool)

    def rows(self, chosen: Tensor) -> Matching:
        """Some of the targets, in this order; one may come twice."""
        return self.with_rows(self.values[chosen], self.seen[chosen])

    def with_rows(self, values: Tensor, seen: Tensor) -> Matching:
        """The same question about other updates."""
        return replace(self, values=values, seen=seen)

    def gradients(
        self, inputs: Tensor, targets: Tensor, distance: Distance, variables: list[Tensor],
        beside: Callable[[], Tensor] | None = None,
    ) -> tuple[Tensor, tuple[Tensor, ...]]:  # fmt: skip
        """The distances of all targets, and the slopes of each by its own ``variables``.

        ``beside`` is what is to be made small as well.
        """
        with self._refusing():
            found = distance(self._updates(inputs, targets), self.values, self.weights)
            total = found if beside is None else found + beside()
            slopes = torch.autograd.grad(total.sum(), variables)
        return total.detach(), slopes

    def distances(self, inputs: Tensor, targets: Tensor, distance: Distance) -> Tensor:
        """The distances of all targets alone, for who searches without slopes."""
        with self._refusing():
            found = self._updates(inputs, targets).detach()
            return distance(found, self.values, self.weights)

    def _updates(self, inputs: Tensor, targets: Tensor) -> Tensor:
        found = self.simulation.updates(inputs, targets)
        return found if self.basis is None else entered(found, self.basis)

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """What the model does not take is refused by name."""
        try:
            yield
        except InvalidSetting:
            raise
        except (RuntimeError, ValueError, IndexError, TypeError, NotImplementedError) as refused:
            raise InvalidSetting(
                "model to invert", type(self.simulation.module).__name__,
                f"one that takes inputs {(self.samples, *self.shape)} and that torch can "
                "differentiate twice, with the loss given; replace the layer it names "
                f"({str(refused).strip().partition(chr(10))[0]})",
            ) from refused  # fmt: skip
