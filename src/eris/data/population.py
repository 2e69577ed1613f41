"""Populations larger than the data: every client draws its samples for itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np

from eris.core.errors import InvalidSetting
from eris.core.streams import Stream
from eris.core.vectors import Indices


class Drawn(Sequence[Indices]):
    """Clients that each hold ``samples`` uniform draws from a data set of ``count``.

    Clients share samples, as there need not be enough for all; what a client holds is computed when
    it is asked for, so a hundred thousand of them take no memory.

    >>> clients = Drawn(count=60_000, clients=100_000, samples=4, seed=0)
    >>> len(clients), clients[99_999].tolist() == clients[99_999].tolist()
    (100000, True)
    """

    def __init__(self, count: int, clients: int, samples: int, seed: int) -> None:
        for name, value in (("count", count), ("clients", clients), ("samples", samples)):
            if value < 1:
                raise InvalidSetting(name, value, "at least 1")
        self._count, self._clients, self._samples = count, clients, samples
        self._stream = Stream(seed, "drawn")

    def __len__(self) -> int:
        return self._clients

    @overload
    def __getitem__(self, client: int) -> Indices: ...

    @overload
    def __getitem__(self, client: slice) -> list[Indices]: ...

    def __getitem__(self, client: int | slice) -> Indices | list[Indices]:
        if isinstance(client, slice):
            return [self[number] for number in range(*client.indices(len(self)))]
        if not -len(self) <= client < len(self):
            raise IndexError(f"client {client} of {len(self)}")
        start = client % len(self) * self._samples
        draws = self._stream.uniform(start, self._samples)
        return (draws * self._count).astype(np.int64)
