"""What a liar says where sums are secure: as an owner, as a helper, and as a client.

An owner wants more opened than one sum; a helper spoils sums and disputes what it holds; a client
sends what does not fit. All of it is well formed, and signed by the liar's own keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from eris.core.compress import Encoding
from eris.core.streams import Stream
from eris.protocol.agreement import Key
from eris.protocol.messages import Contribution, Message, Outgoing, Reveal, RevealRequest
from eris.protocol.round.member import Member
from eris.protocol.secure.escrow import Escrow
from eris.protocol.secure.opening import Opening
from eris.protocol.secure.seats import bitmap
from eris.protocol.secure.sending import SecureSender
from eris.protocol.secure.sums import Included, Statement
from eris.protocol.secure.wire import (
    CLOSE,
    DEPOSIT,
    escrow_bytes,
    read_verdicts,
    write_closing,
    write_deposits,
    write_verdicts,
)
from eris.protocol.view import NOBODY
from eris.testing.sum_laws import Hidden

MOST_KEPT = 12
"""Escrows that it remembers, to show them in another round."""


class SumLiar:
    """One member that lies about sums, and what it has kept for that."""

    def __init__(self) -> None:
        self._kept: list[tuple[int, Escrow]] = []

    def besides(
        self, member: Member, said: Message, draw: Stream
    ) -> Iterator[tuple[Outgoing, Hidden | None]]:
        """What it says besides: where it closes a sum, other questions about it; where it
        contributes, another content. With the values that are masked in it, if any are."""
        key, opened = said.header.key, _openings(member)
        if isinstance(said, Contribution):
            yield from self._second_content(member, key)
        elif isinstance(said, RevealRequest) and said.data[:1] == CLOSE and key in opened:
            chance = iter(draw.uniform(0, 64).tolist())
            asked = [*self._old_escrows(member, key, opened[key])]
            for statement in _statements(opened, key, next(chance)):
                asked += _asked(member, key, opened[key], statement, next(chance))
            held = opened[key].deposits.escrows.values()
            self._kept = [*held, *(one for one in self._kept if one not in held)][:MOST_KEPT]
            yield from ((one, None) for one in asked)

    def _old_escrows(self, member: Member, key: Key, opening: Opening) -> Iterator[Outgoing]:
        """Those of other rounds and shards; and clients that it has made up."""
        held = opening.deposits.escrows
        old = [(client, escrow) for client, escrow in self._kept if escrow.digest not in held]
        if held:
            client, escrow = next(iter(held.values()))
            made_up = tuple(bytes(len(box)) for box in escrow.boxes)
            old.append(((client + 1) % len(member.view.members), replace(escrow, boxes=made_up)))
        header = member.agreement.header(member.me, member.node.aggregator.round, key)
        if old:
            to = tuple(h for h in opening.helpers if h != NOBODY)
            yield Outgoing(to, RevealRequest(header, frozenset(), write_deposits(old)))

    def _second_content(self, member: Member, key: Key) -> Iterator[tuple[Outgoing, Hidden]]:
        """Another update of the same round, under the same root."""
        dispatch, sender = member.giving.dispatch, member.node.client.sender
        if dispatch is None or key not in dispatch.prepared.pieces:
            return
        prepared, owner = dispatch.prepared, member.view.owners[key[0]]
        other = (0.5 * prepared.pieces[key]).astype(np.float32)
        segment = member.agreement.segments(prepared.round)[key]
        based_on = prepared.based_on[key]
        hides: Hidden = other
        training = sender.training if isinstance(sender, SecureSender) else None
        before = dict(training.words) if training is not None else {}
        if training is not None and before:  # made beforehand, on a common grid
            training.words[key] = hides = before[key] // 2
        payload = sender.payload(other, segment, prepared.round, based_on)
        if training is not None:
            training.words = before
        header = member.agreement.header(member.me, prepared.round, key)
        yield Outgoing((owner,), Contribution(header, based_on, 0, 0, payload)), hides

    @staticmethod
    def spoilt(message: Message, member: Member) -> Message:
        """What a liar sends instead of an answer or a contribution.

        What it does depends on the round, so that it says the same thing again. It adds noise to
        an answer, or answers anything, disputes all that it holds or the last of it, or gives false
        words about pads; its contribution has a false mask, false check words, or a seed that one
        seat cannot open.
        """
        how = (message.header.round + message.header.segment) % 4
        if isinstance(message, Reveal):
            data = bytearray(message.data)
            if message.data[:1] == CLOSE and how == 0:
                data[34:] = bytes(b ^ 0x5A for b in data[34:])
            elif message.data[:1] == DEPOSIT and how % 2:
                held = read_verdicts(message.data)
                data[:] = write_verdicts({named: verdict ^ 3 for named, verdict in held.items()})
            else:
                data[-1] ^= 3
            return replace(message, data=bytes(data))
        secure = member.agreement.settings.secure
        if isinstance(message, Contribution) and secure is not None:
            encoded = message.payload.encoded
            if encoded.encoding != Encoding.RING or how == 3:
                return message
            escrow = len(encoded.data) - escrow_bytes(secure.threshold)
            # The last byte of the words, of the second check word, or of the first seat's box.
            boxes = secure.threshold.seats * (16 + 32 * len(secure.threshold.known_to(0)))
            at = (escrow - 1 if encoded.count else 47, 47, len(encoded.data) - boxes)[how]
            false = encoded.data[:at] + bytes([encoded.data[at] ^ 1]) + encoded.data[at + 1 :]
            payload = replace(message.payload, encoded=replace(encoded, data=false))
            return replace(message, payload=payload)
        return message


def _openings(member: Member) -> dict[Key, Opening]:
    """What it holds of the sums of its own shards."""
    aggregator = member.node.aggregator
    collectors = {key: state.collector for key, state in aggregator._open.items()}
    collectors |= {key: state.collector for key, state in aggregator._revealing.items()}
    found = {key: getattr(collector, "_one", None) for key, collector in collectors.items()}
    return {key: opening for key, opening in found.items() if opening is not None}


def _statements(opened: dict[Key, Opening], key: Key, chance: float) -> Iterator[Statement]:
    """Two sets, one below the floor, one with another segment's nonces, one with a made-up row."""
    opening = opened[key]
    groups = {model: group.clients for model, group in opening._groups.items()}
    if not groups:
        return
    model = max(groups, key=lambda one: len(groups[one]))
    taken = {client: groups[model][client].included for client in sorted(groups[model])}
    rows = tuple(taken.values())
    without = int(chance * len(rows))

    def of(some: tuple[Included, ...], own: bool = False) -> Statement:
        return Statement(opening.shape, opening.owner, own, opening.helpers, model, some)

    yield of(rows[:without] + rows[without + 1 :], own=True)
    yield of(rows)
    yield of(rows[:2], own=True)
    for other, its in opened.items():
        if other[0] == key[0] and other != key:
            theirs = {c: t.included for g in its._groups.values() for c, t in g.clients.items()}
            yield of(tuple(replace(row, nonce=theirs.get(row.client, row).nonce) for row in rows))
    absent = next((c for c in range(8) if c not in taken and c != opening.owner), 0)
    fake = Included(absent, bytes(16), bytes(32))
    yield of(tuple(sorted((*rows[:3], fake), key=lambda row: row.client)))


def _asked(
    member: Member, key: Key, opening: Opening, statement: Statement, chance: float
) -> Iterator[Outgoing]:
    """A statement, signed, for some of the seats."""
    seats, need = len(opening.helpers), opening.terms.threshold.need
    first = int(chance * seats)
    asked = sorted((first + n) % seats for n in range(need))
    signature = opening._keys.signing.sign(statement.encode())
    included = frozenset(one.client for one in statement.included)
    if statement.own:
        included |= {statement.owner}
    header = member.agreement.header(member.me, member.node.aggregator.round, key)
    data = write_closing(statement, signature, bitmap(asked))
    to = tuple(h for h in (opening.helpers[seat] for seat in asked) if h != NOBODY)
    if to:
        yield Outgoing(to, RevealRequest(header, included, data))
