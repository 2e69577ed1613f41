"""Pads: streams of AES-128 in counter mode, expanded into words and added up tile by tile."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR, GCM

from eris.core.ring import TILE, Words, add_planes, check_sums, pad_bytes, planes
from eris.protocol.secure.escrow import Root
from eris.protocol.secure.labels import ShardRound, label, prf

HEAD = 4
"""Words before the words: samples, samples·steps and two check words, 64 bits each."""
NONCE = 16
REACH = 4 * TILE
"""Words of all streams that are expanded before further ones: they and their sum stay in the
second-level cache."""
_FROM_ZERO, _HASH = CTR(bytes(16)), GCM(bytes(12))
_ZEROS = memoryview(bytes(8 * (HEAD + REACH)))


def nonce(
    root: Root,
    place: ShardRound,
    segment: int,
    based_on: int,
    form: int,
    head: Words,
    words: Words,
) -> bytes:
    """ν: of the root *and* of the content.

    Other content has another nonce and other pads, also at a client that a machine's snapshot
    brought back with its memory; the same content gives the same bytes. GMAC under a key of its own
    hashes the content, and never leaves: its fixed nonce is no misuse.
    """
    gmac = Cipher(AES(root.tag_key), _HASH).encryptor()
    gmac.authenticate_additional_data(head.astype("<u8", copy=False).view(np.uint8).data)
    gmac.authenticate_additional_data(words.astype("<u8", copy=False).view(np.uint8).data)
    gmac.finalize()
    about = label("nonce", *place.numbers, segment, based_on, form, len(words))
    return prf(root.nonce_key, about + gmac.tag)[:NONCE]


def pad_key(seed: bytes, segment: int, count: int, form: int, nonce: bytes) -> bytes:
    """The key of one part's pad for one segment."""
    return prf(seed, label("pad", segment, count, form) + nonce)[:16]


def blind_stream_key(blind_key: bytes, asked: int, statement: bytes) -> bytes:
    """The key of what two helpers' answers to one statement have in common."""
    return prf(blind_key, label("blind", asked) + statement)[:16]


def add_pads(head: Words, words: Words, keys: Sequence[bytes], form: int) -> None:
    """Add the streams of all ``keys``, a reach after another so that the sum stays in the cache.

    >>> head, words = np.zeros(4, np.uint64), np.zeros(2, np.uint64)
    >>> add_pads(head, words, [bytes(16)], 4)
    >>> hex(int(head[0]))
    '0x3b2c8aefd44be966'
    """
    streams = [Cipher(AES(key), _FROM_ZERO).encryptor() for key in keys]
    # A cipher wants room for a block beyond what it writes.
    room = np.empty(len(_ZEROS) + 16, np.uint8)
    into, room_for_head = room.data, room[: 8 * HEAD].view("<u8")
    for first in range(0, max(len(words), 1), REACH):
        total = words[first : first + REACH]
        lead = 0 if first else 8 * HEAD
        size = lead + pad_bytes(form) * len(total)
        nothing, drawn = _ZEROS[:size], planes(room[lead:size], form)
        for stream in streams:
            stream.update_into(nothing, into)
            if lead:
                head += room_for_head
            add_planes(total, drawn, form)


def blind(key: bytes, count: int, form: int) -> tuple[Words, Words]:
    """The head and words of one blind; its check words fit its words, taken as unsigned."""
    head, words = np.zeros(HEAD, np.uint64), np.zeros(count, np.uint64)
    add_pads(head, words, [key], form)
    head[2:] = check_sums(words)
    return head, words
