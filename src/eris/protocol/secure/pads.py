"""Pads: streams of AES-128 in counter mode, expanded into words and added up tile by tile."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR, GCM

from eris.core.ring import TILE, Words, add_tile, check_sums, tiles
from eris.protocol.secure.escrow import Root
from eris.protocol.secure.labels import ShardRound, derived, label, prf

HEAD = 4
"""Words before the words: samples, samples·steps and two check words, 64 bits each."""
NONCE = 16
_ZEROS = bytes(8 * TILE)


def nonce(
    root: Root,
    place: ShardRound,
    segment: int,
    based_on: int,
    ring_bytes: int,
    head: Words,
    words: Words,
) -> bytes:
    """ν: of the root *and* of the content.

    Other content has another nonce and other pads, also at a client that a machine's snapshot
    brought back with its memory; the same content gives the same bytes. GMAC under a key of its own
    hashes the content, and never leaves: its fixed nonce is no misuse.
    """
    gmac = Cipher(AES(derived(root.secret, label("tag"), 16)), GCM(bytes(12))).encryptor()
    gmac.authenticate_additional_data(head.astype("<u8", copy=False).view(np.uint8).data)
    gmac.authenticate_additional_data(words.astype("<u8", copy=False).view(np.uint8).data)
    gmac.finalize()
    about = label("nonce", *place.numbers, segment, based_on, ring_bytes, len(words))
    return prf(derived(root.secret, label("nonce")), about + gmac.tag)[:NONCE]


def pad_key(seed: bytes, segment: int, count: int, ring_bytes: int, nonce: bytes) -> bytes:
    """The key of one part's pad for one segment."""
    return prf(seed, label("pad", segment, count, ring_bytes) + nonce)[:16]


def blind_stream_key(blind_key: bytes, asked: int, statement: bytes) -> bytes:
    """The key of what two helpers' answers to one statement have in common."""
    return prf(blind_key, label("blind", asked) + statement)[:16]


def add_pads(head: Words, words: Words, keys: Sequence[bytes], ring_bytes: int) -> None:
    """Add the streams of all ``keys``, tile by tile so that the sum stays in the cache.

    >>> head, words = np.zeros(4, np.uint64), np.zeros(2, np.uint64)
    >>> add_pads(head, words, [bytes(16)], 4)
    >>> hex(int(head[0]))
    '0x3b2c8aefd44be966'
    """
    streams = [Cipher(AES(key), CTR(bytes(16))).encryptor() for key in keys]
    # A cipher wants room for a block beyond what it writes.
    room = bytearray(8 * TILE + 16)
    drawn = np.frombuffer(room, np.uint8)
    for stream in streams:
        stream.update_into(_ZEROS[: 8 * HEAD], room)
        add_tile(head, drawn[: 8 * HEAD], 8)
    for some, where in tiles(len(words), ring_bytes):
        size = where.stop - where.start
        nothing, out, total = memoryview(_ZEROS)[:size], drawn[:size], words[some]
        for stream in streams:
            stream.update_into(nothing, room)
            add_tile(total, out, ring_bytes)


def blind(key: bytes, count: int, ring_bytes: int) -> tuple[Words, Words]:
    """The head and words of one blind; its check words fit its words, taken as unsigned."""
    head, words = np.zeros(HEAD, np.uint64), np.zeros(count, np.uint64)
    add_pads(head, words, [key], ring_bytes)
    head[2:] = check_sums(words)
    return head, words
