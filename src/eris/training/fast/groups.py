"""The batches of several clients laid end to end, as one batch a model can take in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import torch
from torch import Tensor


@dataclass(frozen=True)
class Stretch:
    """Neighbouring clients with batches of one size, so that their samples form a block."""

    clients: int
    size: int


@dataclass(frozen=True)
class Group:
    """How many samples each client has in this pass.

    >>> [(run.clients, run.size) for run in Group((4, 4, 1)).runs]
    [(2, 4), (1, 1)]
    """

    sizes: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.sizes)

    @cached_property
    def samples(self) -> int:
        """The samples of all clients together."""
        return sum(self.sizes)

    @cached_property
    def runs(self) -> tuple[Stretch, ...]:
        """The clients in runs of equal size."""
        return tuple(Stretch(len(list(equal)), size) for size, equal in groupby(self.sizes))

    def split(self, rows: Tensor) -> Sequence[Tensor]:
        """A tensor with one row a sample, cut into one piece a client."""
        return torch.split_with_sizes(rows, self.sizes)

    def client_blocks(self, rows: Tensor) -> Sequence[Tensor]:
        """A tensor with one row a client, cut into runs."""
        return _cut(rows, [run.clients for run in self.runs])

    def sample_blocks(self, rows: Tensor) -> list[Tensor]:
        """A tensor with one row a sample, cut into runs of (clients, size, …)."""
        blocks = _cut(rows, [run.clients * run.size for run in self.runs])
        return [
            block.reshape(run.clients, run.size, *rows.shape[1:])
            for block, run in zip(blocks, self.runs, strict=True)
        ]

    def sums(self, rows: Tensor) -> Tensor:
        """The sum of every client's rows: (samples, …) to (clients, …).

        >>> Group((2, 1)).sums(torch.tensor([1.0, 2.0, 4.0]))
        tensor([3., 4.])
        """
        return joined_rows([block.sum(dim=1) for block in self.sample_blocks(rows)])

    def spread(self, rows: Tensor) -> Tensor:
        """Every client's row once for each of its samples: (clients, …) to (samples, …)."""
        pieces = [
            block.unsqueeze(1).expand(-1, run.size, *rows.shape[1:])
            for block, run in zip(self.client_blocks(rows), self.runs, strict=True)
        ]
        return joined_rows([piece.flatten(0, 1) for piece in pieces])

    def weights(self) -> Tensor:
        """1/size for every sample: what turns a sum over samples into each client's mean."""
        return self.spread(1 / torch.tensor(self.sizes, dtype=torch.float32))


def joined_rows(pieces: list[Tensor]) -> Tensor:
    """The pieces one after another; one piece alone is not copied."""
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces)


def _cut(rows: Tensor, lengths: list[int]) -> Sequence[Tensor]:
    # Not slices: the gradient of a slice is as large as the whole, that of a split is one copy.
    return [rows] if len(lengths) == 1 else torch.split_with_sizes(rows, lengths)
