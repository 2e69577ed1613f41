"""Whether what travels of secure sums tells of values: every byte of a run, against uniform ones.

Uniform words are what a pad leaves. A byte that is not is seen by a chi-square test of its place;
words that go with what they hide, by their correlation, whatever they look like by themselves.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from eris.core.ring import RING_BYTES, Wire, Words, add_wire, word_bits

LEVEL = 1e-6
"""Chance that an honest run is found to tell something, over all tests of it."""
LEAST = 10
"""Bytes that a bin of a test shall have on average."""

Floats = NDArray[np.float64]


class WireBytes:
    """The heads and words of all contributions and answers of a run.

    >>> wire = WireBytes(5)
    >>> wire.add("answer", np.zeros(4, np.uint64), bytes(5 * 200))
    >>> wire.telling()
    'byte 0 of the words of an answer is not uniform (chi-square 3000 at 15 degrees)'
    """

    def __init__(self, form: int) -> None:
        self._form = form
        self._places: dict[str, list[NDArray[np.uint8]]] = defaultdict(list)
        """By what they are of: rows of bytes."""
        self._hidden: dict[str, list[tuple[Floats, Floats]]] = defaultdict(list)
        """By what they are of: words from −½ to ½, and what they hide."""

    def add(
        self, what: str, head: Words, wire: Wire, *, hides: tuple[Words, Words] | None = None
    ) -> None:
        """Take in what has travelled, and the plain head and words under it, if it hides any."""
        bits = word_bits(self._form)
        words = np.zeros(8 * len(wire) // bits, np.uint64)
        add_wire(words, wire, self._form)
        for number, word in enumerate(head):
            self._note(f"head word {number} of {_a(what)}", np.array([word], np.uint64), 8)
        if self._form in RING_BYTES:
            self._note(f"the words of {_a(what)}", words, self._form)
        else:  # packed: a byte has bits of two words, and the last may not be full
            full = np.frombuffer(wire, np.uint8)[: bits * len(words) // 8]
            self._places[f"the packed words of {_a(what)}"].append(full.reshape(-1, 1))
        if hides is not None:
            self._hides(f"the head of {_a(what)}", head, hides[0], 64)
            self._hides(f"the words of {_a(what)}", words, hides[1], bits)

    def _note(self, of: str, words: Words, size: int) -> None:
        self._places[of].append(words.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :size])

    def _hides(self, of: str, words: Words, plain: Words, bits: int) -> None:
        seen = words.astype(np.float64) / 2.0**bits - 0.5
        self._hidden[of].append((seen, plain.view(np.int64).astype(np.float64)))

    def telling(self) -> str:
        """What of it tells something; empty if nothing does."""
        planes = [(of, place, plane) for of, place, plane in self._planes() if _bins(len(plane))]
        level = LEVEL / max(1, len(planes) + len(self._hidden))
        for of, place, plane in planes:
            found, degrees = _chi_square(plane)
            if found > _quantile(level, degrees):
                return (f"byte {place} of {of} is not uniform "
                        f"(chi-square {found:.0f} at {degrees} degrees)")  # fmt: skip
        for of, pairs in self._hidden.items():
            seen, plain = (np.concatenate(side) for side in zip(*pairs, strict=True))
            # A sum of uniform numbers has no longer tails than a normal one of its variance.
            spread = math.sqrt(float(plain @ plain) / 12)
            if abs(float(seen @ plain)) > spread * math.sqrt(2 * math.log(2 / level)) > 0:
                return f"{of} go with what they hide ({float(seen @ plain) / spread:+.1f})"
        return ""

    def _planes(self) -> Iterator[tuple[str, int, NDArray[np.uint8]]]:
        for of, rows in self._places.items():
            whole = np.concatenate(rows)
            for place in range(whole.shape[1]):
                yield of, place, whole[:, place]


def _a(what: str) -> str:
    return f"an {what}" if what[0] in "aeiou" else f"a {what}"


def _bins(count: int) -> int:
    """Into how many bins so many bytes are sorted; 0 where they are too few to say anything."""
    fitting = [bins for bins in (4, 16, 256) if count >= LEAST * bins]
    return max(fitting, default=0)


def _chi_square(plane: NDArray[np.uint8]) -> tuple[float, int]:
    """How far bytes are from uniform ones, by their highest bits, and the degrees of freedom."""
    bins = _bins(len(plane))
    counts = np.bincount(plane // (256 // bins), minlength=bins)
    expected = len(plane) / bins
    return float(np.square(counts - expected).sum() / expected), bins - 1


def _quantile(level: float, degrees: int) -> float:
    """What chi-square exceeds so rarely (Wilson and Hilferty 1931)."""
    share = 2 / (9 * degrees)
    return degrees * (1 - share - NormalDist().inv_cdf(level) * math.sqrt(share)) ** 3
