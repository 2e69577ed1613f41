"""A tiny language model and its tokens in llama2.c's formats, with random weights."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eris.core.streams import Stream
from eris.data.stories import LlamaShape, from_llama2c
from eris.models.causal import CausalLM, causal_lm

PIECES: tuple[tuple[bytes, float], ...] = (
    (b" ", -50.0),
    (b"a", -51.0),
    (b"b", -52.0),
    (b"c", -53.0),
    (b"aa", -9.0),
    (b" a", -5.0),
    (b"ab", -6.0),
    (b" c", -7.0),
    (b" aa", -20.0),
    (b"bc", -8.0),
    (b" b", -8.0),
    (b" abc", -30.0),
    (b"cc", -8.0),
    (b".", -54.0),
    (b" ccc", -40.0),
)
"""Tokens beyond the special ones and the bytes, and their scores."""

SHAPE = LlamaShape(
    shared=True,
    dimension=8,
    hidden=16,
    layers=2,
    heads=2,
    key_heads=1,
    vocabulary=259 + len(PIECES),
    length=12,
)

Parts = dict[str, NDArray[np.float32]]


def header(shared: bool = True, shape: LlamaShape = SHAPE) -> bytes:
    """The seven numbers in front of the weights."""
    vocabulary = shape.vocabulary if shared else -shape.vocabulary
    numbers = (shape.dimension, shape.hidden, shape.layers, shape.heads, shape.key_heads)
    return struct.pack("<7i", *numbers, vocabulary, shape.length)


def checkpoint(
    shared: bool = True, base: float = 10_000.0, shape: LlamaShape = SHAPE
) -> tuple[bytes, Parts]:
    """A checkpoint, and its tensors under llama2.c's names."""
    layers, width, hidden = shape.layers, shape.dimension, shape.hidden
    head = width // shape.heads
    keys = shape.key_heads * head
    sizes = {
        "embedding": (shape.vocabulary, width),
        "rms_att": (layers, width),
        "wq": (layers, width, width),
        "wk": (layers, keys, width),
        "wv": (layers, keys, width),
        "wo": (layers, width, width),
        "rms_ffn": (layers, width),
        "w1": (layers, hidden, width),
        "w2": (layers, width, hidden),
        "w3": (layers, hidden, width),
        "rms_final": (width,),
    }
    if not shared:
        sizes["classifier"] = (shape.vocabulary, width)
    parts: Parts = {}
    for number, (name, size) in enumerate(sizes.items()):
        drawn = Stream(0, "llama2c", shard=number).normal(0, int(np.prod(size))).reshape(size)
        scale = 1 + 0.2 * drawn if name.startswith("rms") else 0.5 * drawn
        parts[name] = scale.astype(np.float32)
    angles = np.arange(shape.length)[:, None] * base ** (-np.arange(0, head, 2) / head)
    tables = [np.cos(angles).astype("<f4"), np.sin(angles).astype("<f4")]
    order = [part for name, part in parts.items() if name != "classifier"]
    last = [] if shared else [parts["classifier"]]
    return header(shared, shape) + b"".join(x.tobytes() for x in (*order, *tables, *last)), parts


def tokens_file(count: int = SHAPE.vocabulary) -> bytes:
    """Special tokens, bytes spelt as some files spell them, the pieces, and more up to a count."""
    special = [(b"<unk>", 0.0), (b"\n<s>\n", 0.0), (b"\n</s>\n", 0.0)]
    raw = [(b"<0x%02X>" % byte, 0.0) for byte in range(256)]
    more = [(b"more%d" % number, -99.0) for number in range(count)]
    tokens = [*special, *raw, *PIECES, *more][:count]
    longest = max(len(piece) for piece, _ in tokens)
    packed = (struct.pack("<fi", score, len(piece)) + piece for piece, score in tokens)
    return struct.pack("<i", longest) + b"".join(packed)


def tiny_model(folder: Path) -> CausalLM:
    """The random checkpoint as a model, made in a folder."""
    for name, data in from_llama2c(checkpoint()[0], tokens_file()).items():
        (folder / name).write_bytes(data)
    return causal_lm(folder)
