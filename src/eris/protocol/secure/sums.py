"""A masked sum, from a client's words to the opened total.

A client adds the pads of all parts to its words. Once the owner has closed on a set and signed it,
``need`` helpers add up the pads of exactly that set; what is left after subtracting their answers
is the sum of the words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from eris.core import kernels
from eris.core.errors import ErisError
from eris.core.ring import Wire, Words, add_wire, check_sums, signed, to_wire, word_bits
from eris.core.vectors import Vector
from eris.protocol.secure.escrow import Root
from eris.protocol.secure.labels import ShardRound, digest, label
from eris.protocol.secure.pads import (
    HEAD,
    add_pads,
    blind,
    blind_stream_key,
    nonce,
    pad_key,
)
from eris.protocol.secure.seats import Threshold, bitmap

MOST_WORD = (1 << 63) - 1
"""Of a sum, whatever its samples."""


class Misfit(ErisError):
    """An opened sum that its own check words, weights or range contradict."""


@dataclass(frozen=True)
class SegmentShape:
    """Where a contribution lies, and how its words are cut."""

    place: ShardRound
    segment: int
    based_on: int
    count: int
    form: int
    """Of the words (:mod:`eris.core.ring`)."""


class _Said:
    """What travels never changes, so copies of a member's memory share it."""

    def __deepcopy__(self, memo: object) -> Self:
        return self


@dataclass(frozen=True, eq=False)
class MaskedWords(_Said):
    """What a client sends of a segment: nothing of it tells anything without the masks."""

    nonce: bytes
    head: Words
    wire: Wire


def plain_words(values: Vector, samples: int, fraction_bits: int) -> Words:
    """samples · round(values · 2^f), as words of 64 bits."""
    total = np.zeros(len(values), np.int64)
    kernels.add_weighted(total, values, samples, 2.0**fraction_bits)
    return total.view(np.uint64)


def plain_head(words: Words, samples: int, steps: int) -> Words:
    """What goes before the words: weights, and check words of the *signed* 64-bit integers.

    So the sum of check words is a function of the opened sum and tells nothing besides, and a sum
    that wrapped modulo 2^w does not fit.
    """
    return np.array([samples, samples * steps, *check_sums(words)], np.uint64)


def mask(
    head: Words, words: Words, root: Root, shape: SegmentShape, seeds: Mapping[int, bytes]
) -> MaskedWords:
    """Hide a head and words under the pads of all parts."""
    chosen = nonce(root, shape.place, shape.segment, shape.based_on, shape.form, head, words)
    masked_head, masked = head.copy(), words.copy()
    keys = [pad_key(s, shape.segment, shape.count, shape.form, chosen) for s in seeds.values()]
    add_pads(masked_head, masked, keys, shape.form)
    return MaskedWords(chosen, masked_head, to_wire(masked, shape.form))


@dataclass(frozen=True)
class Included:
    """One client of a closed set: which of its contributions, under which escrow."""

    client: int
    nonce: bytes
    escrow: bytes
    """Its digest."""


@dataclass(frozen=True)
class Statement:
    """What an owner closes a segment on; signed, and answered once."""

    shape: SegmentShape
    owner: int
    own: bool
    """Whether the owner's own contribution, which never travels, is in the sum."""
    helpers: tuple[int, ...]
    model: bytes
    included: tuple[Included, ...]
    """Ascending, without the owner."""

    def encode(self) -> bytes:
        """The bytes that are signed, and whose digest names the statement."""
        at = self.shape
        numbers = (at.segment, at.based_on, at.count, at.form, self.owner, int(self.own),
                   len(self.helpers), *self.helpers, len(self.included))  # fmt: skip
        rows = (one.client.to_bytes(8, "little") + one.nonce + one.escrow for one in self.included)
        return label("close", *at.place.numbers, *numbers) + self.model + b"".join(rows)

    @cached_property
    def digest(self) -> bytes:
        """D: names the statement in answers and results."""
        return digest(self.encode())


@dataclass(frozen=True, eq=False)
class Answer(_Said):
    """A helper's part of the masks of a closed set, blinded against the other helpers'."""

    head: Words
    wire: Wire


def answer(
    statement: Statement,
    threshold: Threshold,
    seat: int,
    asked: Sequence[int],
    seeds: Mapping[int, Mapping[int, bytes]],
    blind_keys: Mapping[int, bytes],
) -> Answer:
    """What a seat gives for a statement.

    ``seeds`` are those it unsealed, by client and part; ``blind_keys`` those it shares with the
    other seats that are asked, by seat.
    """
    shape = statement.shape
    duty = threshold.duties(asked, shape.segment)[seat]
    keys = [
        pad_key(seeds[one.client][part], shape.segment, shape.count, shape.form, one.nonce)
        for one in statement.included
        for part in duty
    ]
    head, words = np.zeros(HEAD, np.uint64), np.zeros(shape.count, np.uint64)
    add_pads(head, words, keys, shape.form)
    named = statement.digest
    for other in asked:
        if other == seat:
            continue
        stream = blind_stream_key(blind_keys[other], bitmap(asked), named)
        its_head, its_words = blind(stream, shape.count, shape.form)
        if seat < other:
            head += its_head
            words += its_words
        else:
            head -= its_head
            words -= its_words
    return Answer(head, to_wire(words, shape.form))


class MaskedSum:
    """The running sum of masked contributions at an owner, in the memory of one segment."""

    def __init__(self, count: int, form: int) -> None:
        self.form = form
        self.head, self.words = np.zeros(HEAD, np.uint64), np.zeros(count, np.uint64)

    def add(self, head: Words, wire: Wire) -> tuple[int, int]:
        """Take in a contribution, and say by how much its check words miss it."""
        self.head += head
        return _misses(head, add_wire(self.words, wire, self.form), self.form)

    def opened(
        self, answers: Sequence[Answer], bound: float, noise: float = 0.0,
        own: tuple[Words, Words] | None = None, heaviest: float = math.inf, lightest: int = 1,
    ) -> OpenedSum:  # fmt: skip
        """What is left without the masks; :class:`Misfit` where it cannot be a sum of updates.

        ``bound`` is the largest magnitude of a coordinate for a weight of one, and ``noise`` by how
        much more noise may have moved it; ``own`` is the owner's own head and words, ``heaviest``
        the largest weight of a sum and ``lightest`` the least: one for each client.
        """
        head, masks = self.head.copy(), np.zeros(len(self.words), np.uint64)
        for one in answers:
            head -= one.head
            add_wire(masks, one.wire, self.form)
        words = np.subtract(self.words, masks, out=masks)
        if own is not None:
            head += own[0]
            words += own[1]
        total = signed(words, self.form)
        samples, sample_steps = int(head[0]), int(head[1])
        if check_sums(total.view(np.uint64)) != (int(head[2]), int(head[3])):
            raise Misfit("the opened sum does not fit its check words")
        most = samples * bound + noise
        largest = max(int(total.max(initial=0)), -int(total.min(initial=0)))
        if not lightest <= samples <= heaviest or most > MOST_WORD or largest > most:
            raise Misfit("the opened sum is beyond what its samples can amount to")
        return OpenedSum(samples, sample_steps, total)


@dataclass(frozen=True, eq=False)
class OpenedSum:
    """Σ of the included clients' words, weights, and weights times steps."""

    samples: int
    sample_steps: int
    total: NDArray[np.int64]

    def mean(self, fraction_bits: int, weight: float | None = None) -> Vector:
        """The mean with the bits that a sum in the clear has; over the samples, if no other
        ``weight`` is given."""
        out = np.empty(len(self.total), np.float32)
        over = self.samples if weight is None else weight
        kernels.mean_of(out, self.total, None, 0, float(np.ldexp(over, fraction_bits)))
        return out


def misfit_of(head: Words, words: Words, form: int) -> tuple[int, int]:
    """e: by how much check words miss their words, modulo 2^w.

    Of a contribution, an answer or a single pad. For an honest client those of its pads add up to
    that of its contribution, so an audit names who lied and tells nothing of values.
    """
    return _misses(head, check_sums(words), form)


def _misses(head: Words, sums: tuple[int, int], form: int) -> tuple[int, int]:
    whole = (1 << word_bits(form)) - 1
    return (sums[0] - int(head[2])) & whole, (sums[1] - int(head[3])) & whole


def audit(
    statement: Statement, seeds: Mapping[int, Mapping[int, bytes]]
) -> dict[tuple[int, int], tuple[int, int]]:
    """ε of every pad that a seat knows of a closed set, by client and part."""
    shape, found = statement.shape, {}
    for one in statement.included:
        for part, seed in seeds[one.client].items():
            head, words = np.zeros(HEAD, np.uint64), np.zeros(shape.count, np.uint64)
            key = pad_key(seed, shape.segment, shape.count, shape.form, one.nonce)
            add_pads(head, words, [key], shape.form)
            found[one.client, part] = misfit_of(head, words, shape.form)
    return found
