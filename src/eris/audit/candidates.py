"""The samples whose membership is asked about, and for an audit the truth about them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from eris.core.errors import InvalidSetting, require
from eris.core.vectors import Indices


@dataclass(frozen=True, eq=False)
class Candidates:
    """Samples, each asked about at one client; ``included`` says which of them it trained on.

    Where nobody knows, it is all false: then there are scores, and nothing to judge them by.

    For the one-run bound every truth must be a fair coin of its own (``coins``).

    >>> import torch
    >>> truth = np.array([True, False])
    >>> some = Candidates(torch.zeros(2, 3), torch.zeros(2), np.array([0, 1]), truth)
    >>> len(some), some.of(1).tolist()
    (2, [1])
    """

    inputs: Tensor
    targets: Tensor
    client: Indices
    included: NDArray[np.bool_]
    coins: bool = True

    def __post_init__(self) -> None:
        count = len(self.inputs)
        for name in ("targets", "client", "included"):
            if len(getattr(self, name)) != count:
                found = f"{len(getattr(self, name))} of them"
                raise InvalidSetting(f"{name} of the candidates", found, f"{count}, one a sample")
        require(count > 0, "candidates", "none", "at least one sample to ask about")

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def clients(self) -> list[int]:
        """The clients that are asked about."""
        return sorted(set(self.client.tolist()))

    @cached_property
    def whose(self) -> Indices:
        """Of every candidate: the place of its client among :attr:`clients`."""
        return np.searchsorted(self.clients, self.client)

    def of(self, client: int) -> Indices:
        """The places of a client's candidates."""
        return np.flatnonzero(self.client == client)

    def trained_on(self, client: int) -> tuple[Tensor, Tensor]:
        """A client's candidates that it trained on, and their targets."""
        places = torch.from_numpy(np.flatnonzero((self.client == client) & self.included))
        return self.inputs[places], self.targets[places]
