"""Matrix factorisation of ratings (Koren, Bell and Volinsky, 2009), Shatter's third task.

The rating of item i by user u is the offset + bᵤ + cᵢ + pᵤ·qᵢ. Shatter's table counts 206,680
parameters: 20 dimensions without biases for 610 users and 9,724 items, the sizes of the smaller
"latest" MovieLens and not of MovieLens-100K (943 and 1,682), which its text names.

A client's update has gradient zero in the rows of users and items it holds no rating of, so whoever
sees it sees *whom* and *what* the client holds, whatever the values are.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from eris.core.errors import InvalidSetting
from eris.models.seeding import seeded_generator, without_weights

SPREAD = 0.1
"""Deviation of the factors at the start; PyTorch's 1 would give ratings with a deviation of √d."""


class MatrixFactorisation(nn.Module):
    """The factors and biases; ``matrix_factorisation`` makes them with reproducible weights."""

    def __init__(self, users: int, items: int, dimensions: int, *, biases: bool = True) -> None:
        super().__init__()
        self.user_factors = nn.Embedding(users, dimensions)
        self.item_factors = nn.Embedding(items, dimensions)
        self.biases = biases
        if biases:
            self.user_biases = nn.Embedding(users, 1)
            self.item_biases = nn.Embedding(items, 1)
            self.offset = nn.Parameter(torch.zeros(()))

    def forward(self, pairs: Tensor) -> Tensor:
        """Ratings (N,) of pairs (N, 2) of a user's and an item's number, both from 0."""
        if pairs.dim() != 2 or pairs.shape[1] != 2 or pairs.dtype not in (torch.int64, torch.int32):
            raise InvalidSetting(
                "pairs", f"{pairs.dtype} {tuple(pairs.shape)}", "integers (N, 2) of (user, item)"
            )
        users, items = pairs[:, 0], pairs[:, 1]
        ratings: Tensor = (self.user_factors(users) * self.item_factors(items)).sum(dim=1)
        if self.biases:
            shifts = self.user_biases(users) + self.item_biases(items)
            ratings = ratings + shifts.squeeze(1) + self.offset
        return ratings


def matrix_factorisation(
    users: int,
    items: int,
    dimensions: int,
    seed: int,
    *,
    biases: bool = True,
    offset: float = 3.0,
) -> MatrixFactorisation:
    """Small normal factors from ``seed`` alone, biases zero, and the offset where it is put.

    ``offset`` is by default the middle of a scale from 1 to 5: that is public, the mean is not.
    The process-wide random state is neither read nor changed.
    """
    for name, value in (("users", users), ("items", items), ("dimensions", dimensions)):
        if value < 1:
            raise InvalidSetting(name, value, "at least 1")
    generator = seeded_generator(seed)
    model = without_weights(lambda: MatrixFactorisation(users, items, dimensions, biases=biases))
    for factors in (model.user_factors, model.item_factors):
        nn.init.normal_(factors.weight, std=SPREAD, generator=generator)
    if biases:
        nn.init.zeros_(model.user_biases.weight)
        nn.init.zeros_(model.item_biases.weight)
        nn.init.constant_(model.offset, offset)
    return model


def mean_squared_error(predicted: Tensor, ratings: Tensor) -> Tensor:
    """The loss for a trainer: the mean of (predicted − rating)², for ratings of any number type.

    >>> float(mean_squared_error(torch.tensor([3.0, 4.0]), torch.tensor([5, 4])))
    2.0
    """
    if predicted.shape != ratings.shape:  # PyTorch would broadcast (N,) and (N, 1) to (N, N)
        raise InvalidSetting(
            "shape of the ratings", tuple(ratings.shape), f"{tuple(predicted.shape)}, as predicted"
        )
    return functional.mse_loss(predicted, ratings.to(predicted.dtype))
