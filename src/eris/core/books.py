"""How the coordinates of a segment are cut into codebooks, and what a mapping to clusters is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eris.core.errors import InvalidSetting, require

Clusters = NDArray[np.uint16]
"""A mapping: of each coordinate the index of its cluster in its book."""
MOST_CLUSTERS = 1 << 16
"""Of one book: an index has at most 16 bits."""


@dataclass(frozen=True)
class Books:
    """Codebooks of a segment in order: how many coordinates each has, and how many clusters.

    >>> books = Books((5, 3), (128, 4))
    >>> books.size, books.widths
    (8, (7, 2))
    """

    sizes: tuple[int, ...]
    clusters: tuple[int, ...]

    def __post_init__(self) -> None:
        require(len(self.sizes) >= 1, "sizes", self.sizes, "at least one book")
        expected = f"a number for each of {len(self.sizes)} books"
        require(len(self.clusters) == len(self.sizes), "clusters", self.clusters, expected)
        for book, (size, clusters) in enumerate(zip(self.sizes, self.clusters, strict=True)):
            require(size >= 1, f"sizes[{book}]", size, "at least 1 coordinate")
            inside = 2 <= clusters <= MOST_CLUSTERS
            require(inside, f"clusters[{book}]", clusters, f"2 to {MOST_CLUSTERS} clusters")

    @property
    def size(self) -> int:
        """Coordinates of the segment."""
        return sum(self.sizes)

    @property
    def widths(self) -> tuple[int, ...]:
        """⌈log₂κ⌉, the bits of an index, of each book."""
        return tuple((clusters - 1).bit_length() for clusters in self.clusters)

    def __iter__(self) -> Iterator[tuple[slice, int]]:
        """Of each book where its coordinates lie, and how many clusters it has."""
        start = 0
        for size, clusters in zip(self.sizes, self.clusters, strict=True):
            yield slice(start, start + size), clusters
            start += size

    def stray(self, mapping: Clusters) -> int | None:
        """The first coordinate whose index is no cluster of its book.

        >>> Books((2, 2), (4, 2)).stray(np.array([3, 0, 1, 2], np.uint16))
        3
        """
        for where, clusters in self:
            beyond = mapping[where] >= clusters
            if beyond.any():
                return int(where.start + beyond.argmax())
        return None

    def check(self, mapping: Clusters) -> None:
        """Refuse a mapping that does not fit, by coordinate."""
        if mapping.shape != (self.size,) or mapping.dtype != np.uint16:
            found = f"{mapping.dtype} of shape {mapping.shape}"
            raise InvalidSetting("mapping", found, f"uint16 of shape ({self.size},)")
        coordinate = self.stray(mapping)
        if coordinate is not None:
            expected = "an index below the number of clusters of its book"
            raise InvalidSetting(f"mapping[{coordinate}]", int(mapping[coordinate]), expected)

    def counts(self, mapping: Clusters) -> list[NDArray[np.int64]]:
        """How many coordinates each cluster of each book has.

        >>> Books((2, 2), (2, 3)).counts(np.array([1, 1, 0, 2], np.uint16))
        [array([0, 2]), array([1, 0, 1])]
        """
        self.check(mapping)
        return [np.bincount(mapping[where], minlength=clusters) for where, clusters in self]
