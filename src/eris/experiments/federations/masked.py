"""What the owner of a shard was sent, beside what it would have been sent without masks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from eris.core.compress import Encoding
from eris.core.ring import add_wire, signed, wire_bytes
from eris.core.vectors import Vector
from eris.protocol.agreement import Key
from eris.protocol.messages import Contribution
from eris.protocol.secure.wire import read_masked
from eris.protocol.settings import Settings
from eris.protocol.transcript import Transcript

Sent = Mapping[tuple[str, int, Key], Vector]
"""By client, round and segment: the values that travel, in the clear."""


@dataclass(frozen=True)
class MaskedView:
    """One owner's view of the others' updates over a training."""

    contributions: int
    """Of others, masked, whose values are known here."""
    values: int
    """Values in them."""
    of_an_update: int
    """The most of one client's update in one round: what the owner would have read of it."""
    uniform: float
    """The chance that uniform words are as uneven as those that it was sent, or more (χ²)."""
    correlation: float
    """Of the words with the values behind them."""

    @property
    def chance(self) -> float:
        """The size of a correlation that words without any relation to values exceed in one case
        of a thousand."""
        return 3.29 / math.sqrt(self.values)


def masked_view(transcript: Transcript, owner: str, sent: Sent) -> MaskedView | None:
    """Hold what an owner received against what it is masked from; None if it received nothing."""
    settings, members = Settings.from_canonical(transcript.settings), transcript.membership.members
    assert settings.secure is not None
    me = members.index(owner)
    bytes_, words, values = Counter[int](), [], []
    parts: Counter[tuple[int, int]] = Counter()
    found: set[tuple[int, int, Key]] = set()
    for record in transcript.records:
        message = record.message
        if not isinstance(message, Contribution) or me not in record.arrived or record.sender == me:
            continue
        header, encoded = message.header, message.payload.encoded
        name = header.sender, header.round, header.key
        plain = sent.get((members[header.sender], header.round, header.key))
        if encoded.encoding is not Encoding.RING or plain is None or name in found:
            continue
        found.add(name)
        form = int(encoded.parameter) or settings.secure.ring_bytes
        size = wire_bytes(encoded.count, form)
        masked, _ = read_masked(encoded.data, size, settings.secure.threshold)
        total = np.zeros(encoded.count, np.uint64)
        add_wire(total, masked.wire, form)
        bytes_.update(masked.wire)
        words.append(signed(total, form).astype(np.float64))
        values.append(plain.astype(np.float64))
        parts[header.sender, header.round] += encoded.count
    if not found:
        return None
    together = np.concatenate(words), np.concatenate(values)
    return MaskedView(
        len(found), len(together[0]), max(parts.values()), evenness(bytes_),
        float(np.corrcoef(*together)[0, 1]),
    )  # fmt: skip


def evenness(counts: Counter[int]) -> float:
    """The chance that uniform bytes are as uneven as these or more, by χ² (Wilson and Hilferty).

    >>> evenness(Counter(range(256))), evenness(Counter(dict.fromkeys(range(128), 100)))
    (1.0, 0.0)
    """
    expected, degrees = counts.total() / 256, 255
    found = sum((counts[byte] - expected) ** 2 for byte in range(256)) / expected
    share = 2 / (9 * degrees)
    return 1 - NormalDist().cdf((math.cbrt(found / degrees) - 1 + share) / math.sqrt(share))
