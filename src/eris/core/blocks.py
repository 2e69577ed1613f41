"""Compiled loops over the blocks into which a shard map cuts coordinates: moving values between a
vector and its shards, and finding kept coordinates in them (:mod:`eris.core.shardmap`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from eris.core.kernels import compiled
from eris.core.processor import lowest_bit, will_read, will_write
from eris.core.vectors import Vector


@compiled
def boundary(quotient: int, remainder: int, block: int, blocks: int) -> int:
    """⌊c·block/blocks⌋ for c = quotient·blocks + remainder, without overflow."""
    if remainder == 0:
        return quotient * block
    return quotient * block + remainder * block // blocks


@compiled
def run_in_block(
    quotients: NDArray[np.int64],
    remainders: NDArray[np.int64],
    blocks: int,
    block: int,
    shard: int,
    low: int,
    high: int,
) -> tuple[int, int, int, int, int]:
    """Where one block holds shard-local coordinates low … high of a shard.

    Returns (first and last coordinate of the block, first table slot, position relative to
    ``low``, number of coordinates).
    """
    last = quotients.shape[0] - 1
    first = boundary(quotients[last], remainders[last], block, blocks)
    end = boundary(quotients[last], remainders[last], block + 1, blocks)
    left = boundary(quotients[shard], remainders[shard], block, blocks)
    right = boundary(quotients[shard + 1], remainders[shard + 1], block, blocks)
    slot = boundary(quotients[shard], remainders[shard], block + 1, blocks) - left
    stop = boundary(quotients[shard + 1], remainders[shard + 1], block + 1, blocks) - right
    local = right - left
    skip = max(0, low - local)
    take = min(stop - slot, high - local) - skip
    return first, end, slot + skip, local + skip - low, take


AHEAD = np.uint64(2)
"""Blocks by which memory is asked for before it is used."""
SHORT = 32
"""Runs up to this long are asked for: 16 shards or more, too many streams to be foreseen."""


@compiled
def move_whole_blocks(
    source: Vector,
    target: Vector,
    outward: bool,
    quotas: NDArray[np.int64],
    tables: NDArray[np.unsignedinteger],
    rows: NDArray[np.uint8],
    first_block: int,
    shards: NDArray[np.int64],
    low: NDArray[np.int64],
    at: NDArray[np.int64],
) -> None:
    """:func:`move_blocks` where every block has the same quotas and lies inside every range.

    This is the path of nearly all coordinates of a balanced plan; what it leaves out per run is
    what makes it fast. Indices are unsigned, for one that may count from the end costs a choice.
    """
    length = np.uint64(quotas[-1])
    slots = quotas[shards].astype(np.uint64)
    runs = quotas[shards + 1].astype(np.uint64) - slots
    begins = (at - low).astype(np.uint64)
    for b in range(rows.shape[0]):
        block = np.uint64(first_block + b)
        first, table = length * block, tables[rows[b]]
        for j in range(slots.shape[0]):
            slot, run = slots[j], runs[j]
            local = begins[j] + run * block
            if outward:
                if run <= SHORT:
                    will_read(source, first + AHEAD * length + slot)
                    will_write(target, local + AHEAD * run)
                for i in range(run):
                    target[local + i] = source[first + np.uint64(table[slot + i])]
            else:
                if run <= SHORT:
                    will_read(source, local + AHEAD * run)
                    will_write(target, first + AHEAD * length + slot)
                for i in range(run):
                    target[first + np.uint64(table[slot + i])] = source[local + i]


@compiled
def move_blocks(
    source: Vector,
    target: Vector,
    outward: bool,
    quotients: NDArray[np.int64],
    remainders: NDArray[np.int64],
    blocks: int,
    tables: NDArray[np.unsignedinteger],
    rows: NDArray[np.uint8],
    first_block: int,
    shards: NDArray[np.int64],
    low: NDArray[np.int64],
    high: NDArray[np.int64],
    at: NDArray[np.int64],
) -> None:
    """Move coordinates low[j] … high[j] of ``shards[j]`` between a vector and ``pieces[at[j]:]``.

    ``outward`` cuts pieces (the target) out of the vector (the source), otherwise they are put
    back. Only the target is written, so the source may be read-only.
    """
    for b in range(rows.shape[0]):
        for j in range(shards.shape[0]):
            first, end, slot, relative, take = run_in_block(
                quotients, remainders, blocks, first_block + b, shards[j], low[j], high[j]
            )
            if take <= 0:
                continue
            slots = tables[rows[b], slot : slot + take]
            local = at[j] + relative
            if outward:
                piece, block = target[local : local + take], source[first:end]
                for i in range(take):
                    piece[i] = block[slots[i]]
            else:
                piece, block = source[local : local + take], target[first:end]
                for i in range(take):
                    block[slots[i]] = piece[i]


@compiled
def coordinates_of_blocks(
    out: NDArray[np.int64],
    origin: int,
    quotients: NDArray[np.int64],
    remainders: NDArray[np.int64],
    blocks: int,
    tables: NDArray[np.unsignedinteger],
    rows: NDArray[np.uint8],
    first_block: int,
    shard: int,
    low: int,
    high: int,
) -> None:
    """Global coordinates of shard-local coordinates low … high of one shard."""
    for b in range(rows.shape[0]):
        first, _, slot, relative, take = run_in_block(
            quotients, remainders, blocks, first_block + b, shard, low, high
        )
        for i in range(take):
            out[relative + i] = origin + first + tables[rows[b], slot + i]


@compiled
def bits_between(bits: NDArray[np.uint64], word: int, first: int, end: int) -> np.uint64:
    """A word of bits without those before the bit ``first`` and from the bit ``end`` on."""
    found = np.uint64(bits[word])
    if word == first >> 6:
        found &= ~np.uint64(0) << np.uint64(first & 63)
    if word == end >> 6:
        found &= (np.uint64(1) << np.uint64(end & 63)) - np.uint64(1)
    return found


@compiled
def list_bits(out: NDArray[np.int64], bits: NDArray[np.uint64], first: int, end: int) -> int:
    """Which bits are set from ``first`` to ``end``, as many as there is room for; how many are."""
    found = 0
    for word in range(first >> 6, (end + 63) >> 6):
        left = bits_between(bits, word, first, end)
        while left != 0:
            if found < out.shape[0]:
                out[found] = (word << 6) + int(lowest_bit(left))
            found += 1
            left &= left - np.uint64(1)
    return found


@compiled
def kept_of_blocks(
    whose: NDArray[np.int32],
    local: NDArray[np.int64],
    coordinates: NDArray[np.int64],
    bits: NDArray[np.uint64],
    origin: int,
    quotients: NDArray[np.int64],
    remainders: NDArray[np.int64],
    blocks: int,
    tables: NDArray[np.unsignedinteger],
    slots: NDArray[np.unsignedinteger],
    rows: NDArray[np.uint8],
) -> None:
    """The coordinates whose bit is set, block after block and in a block by their slots: which
    shard has each, where in it, and where it lies in the whole vector.

    Few bits are set: they are visited one by one, first to find their slots, which are marked, then
    in the order of these. ``slots`` are the tables the other way.
    """
    marked, found = np.zeros((tables.shape[1] + 63) // 64, np.uint64), 0
    for b in range(rows.shape[0]):
        first = origin + boundary(quotients[-1], remainders[-1], b, blocks)
        end = origin + boundary(quotients[-1], remainders[-1], b + 1, blocks)
        for word in range(first >> 6, (end + 63) >> 6):
            left = bits_between(bits, word, first, end)
            while left != 0:
                slot = int(slots[rows[b], (word << 6) + int(lowest_bit(left)) - first])
                marked[slot >> 6] |= np.uint64(1) << np.uint64(slot & 63)
                left &= left - np.uint64(1)
        shard, begin, stop, before = -1, 0, 0, 0
        for word in range(marked.shape[0]):
            left = marked[word]
            while left != 0:
                slot = (word << 6) + int(lowest_bit(left))
                while slot >= stop:
                    shard, begin = shard + 1, stop
                    _, _, _, before, take = run_in_block(
                        quotients, remainders, blocks, b, shard, 0, end
                    )
                    stop = begin + take
                whose[found], local[found] = shard, before + slot - begin
                coordinates[found] = first + int(tables[rows[b], slot])
                found += 1
                left &= left - np.uint64(1)
            marked[word] = 0
