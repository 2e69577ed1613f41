"""What a liar says where sums are encrypted: as an owner it wants more opened than one sum, as a
client it sends what is no contribution, or no share. All of it is signed by the liar's own keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.protocol.agreement import Key
from eris.protocol.enccluster.collecting import EncryptedCollector
from eris.protocol.enccluster.sets import SetMember, SetStatement
from eris.protocol.enccluster.wire import write_statement
from eris.protocol.messages import Contribution, Message, Outgoing, Reveal, RevealRequest
from eris.protocol.round.member import Member


class KeyLiar:
    """One member that lies about encrypted sums, and what it has kept for that."""

    def __init__(self) -> None:
        self._old: dict[int, bytes] = {}
        """By client: the digest of an earlier contribution."""

    def besides(
        self, member: Member, said: Message, draw: Stream
    ) -> Iterator[tuple[Outgoing, Vector | None]]:
        """What it says besides: where it closes a set, that it was closed on others, too."""
        key = said.header.key
        state = member.node.aggregator._revealing.get(key)
        if not isinstance(said, RevealRequest) or state is None:
            return
        collector = state.collector
        assert isinstance(collector, EncryptedCollector)
        rows = collector._asked.statement.members
        chance = draw.uniform(0, 2).tolist()
        mixed = said.header.round % 2 == 0
        for members, to in self._sets(rows, member.me, mixed, *chance):
            others = tuple(client for client in to if client != member.me)
            yield self._asked(member, key, collector, members, others), None
        self._old |= {one.client: one.contribution for one in rows}

    def _sets(
        self, rows: tuple[SetMember, ...], me: int, mixed: bool, who: float, half: float
    ) -> Iterator[tuple[tuple[SetMember, ...], list[int]]]:
        """Sets, and whom to tell of them: the same one with another contribution of its own, for
        some; or one without a client, one of few, and one of earlier contributions."""
        everyone = [one.client for one in rows]
        if mixed:
            first = int(half * len(rows))
            other = tuple(replace(one, contribution=bytes(32)) if one.client == me else one
                          for one in rows)  # fmt: skip
            yield other, everyone[first : first + len(rows) // 2]
            return
        without = everyone[int(who * len(rows))]
        yield tuple(one for one in rows if one.client != without), everyone
        yield rows[:3], everyone[:3]
        yield tuple(replace(one, contribution=self._old.get(one.client, one.contribution))
                    for one in rows), everyone  # fmt: skip

    def _asked(
        self, member: Member, key: Key, collector: EncryptedCollector,
        rows: tuple[SetMember, ...], to: tuple[int, ...],
    ) -> Outgoing:  # fmt: skip
        statement = SetStatement(collector._label.first, rows)
        round = member.node.aggregator.round
        keys = member.node.aggregator.desk.keys(round)  # type: ignore[attr-defined]
        data = write_statement(statement, statement.signed_by(keys))
        included = frozenset(one.client for one in rows)
        header = member.agreement.header(member.me, round, key)
        return Outgoing(to, RevealRequest(header, included, data))

    @staticmethod
    def spoilt(message: Message, member: Member) -> Message:
        """What a liar sends instead of a share or a contribution; it says the same thing again."""
        how = (message.header.round + message.header.segment) % 4
        if isinstance(message, Reveal) and message.data:
            last = message.data[-1] ^ 1
            data = (message.data[:-1] + bytes([last]), bytes(32) + message.data[32:],
                    message.data + bytes(32), message.data)[how]  # fmt: skip
            return replace(message, data=data)
        if isinstance(message, Contribution):
            encoded = message.payload.encoded
            # Another point or none, another number of clusters, another mapping.
            at = (20, 0, len(encoded.data) - 1)[how] if how < 3 else None
            if at is None:
                return message
            false = encoded.data[:at] + bytes([encoded.data[at] ^ 1]) + encoded.data[at + 1 :]
            payload = replace(message.payload, encoded=replace(encoded, data=false))
            return replace(message, payload=payload)
        return message
