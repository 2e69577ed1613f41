"""A node's side of the charter: its text, and the message sizes that follow from it."""

from __future__ import annotations

import json

from eris.core.shards import segment_length
from eris.protocol.settings import Settings


def charter(agreed: Settings, rounds: int, start_with: int) -> str:
    """The agreement, how long it is to last and how many members begin, as canonical text.

    >>> charter(Settings(n=10), rounds=5, start_with=3)[-17:]
    ' "start_with": 3}'
    """
    whole = json.loads(agreed.canonical) | {"rounds": rounds, "start_with": start_with}
    return json.dumps(whole, sort_keys=True)


def message_bytes(agreed: Settings) -> int:
    """The largest message of a federation: the snapshot of its largest segment.

    Model, reference and the rule's slots at four bytes a coordinate, and room for the rest.

    >>> message_bytes(Settings(n=1000))
    73536
    """
    shard_map = agreed.shard_map()
    largest = max(shard_map.size(shard) for shard in range(shard_map.shards))
    vectors = 2 + len(agreed.rule.initial)
    return segment_length(largest, agreed.segment_size) * vectors * 4 + (64 << 10)
