"""A model's layers in segments: where a segment is cut into codebooks, and a place's name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from eris.core.errors import InvalidSetting, require

if TYPE_CHECKING:
    from eris.protocol.agreement import Segment

BooksOf = Literal["model", "layer"]
"""What has a codebook of its own: a segment, or a layer's piece in it."""


class LayerPiece(NamedTuple):
    """Neighbouring coordinates of a segment that have a codebook together."""

    layer: int | None
    """By number from 0; None where the whole segment has one codebook."""
    size: int


def check_books(books: str) -> None:
    """Refuse what is neither a model nor a layer."""
    if books not in ("model", "layer"):
        raise InvalidSetting("books", books, "one of model, layer")


def check_layers(layers: Sequence[int], n: int) -> None:
    """Refuse sizes that are not those of a model's layers; none means that they are not known."""
    for layer, size in enumerate(layers):
        require(size >= 1, f"layers[{layer}]", size, "at least 1 coordinate")
    fits = not layers or sum(layers) == n
    require(fits, "layers", f"of {sum(layers)} coordinates", f"sizes that add up to {n}")


def cut(segment: Segment, layers: Sequence[int], books: BooksOf) -> tuple[LayerPiece, ...]:
    """The pieces of a segment in order; a model whose layers are not known is one layer.

    Coordinates of a segment ascend in every plan, so what it has of a layer lies together.
    """
    if books == "model" or not layers or not segment.size:
        return (LayerPiece(None if books == "model" else 0, segment.size),)
    ends = np.searchsorted(segment.coordinates, np.cumsum(layers))
    sizes = np.diff(ends, prepend=0).tolist()
    return tuple(LayerPiece(layer, size) for layer, size in enumerate(sizes) if size)


def place(coordinate: int, layers: Sequence[int]) -> str:
    """A coordinate of the model, with its layer where layers are known.

    >>> place(17, (10, 30)), place(17, ())
    ('layer 1, coordinate 17', 'coordinate 17')
    """
    if not layers:
        return f"coordinate {coordinate}"
    layer = int(np.searchsorted(np.cumsum(layers), coordinate, side="right"))
    return f"layer {layer}, coordinate {coordinate}"
