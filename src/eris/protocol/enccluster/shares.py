"""Key shares: a member's part of the key of one set, and the key that all of them add up to."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from eris.core.errors import ErisError
from eris.protocol.enccluster.group import ORDER, SCALAR_BYTES
from eris.protocol.enccluster.labels import DOM, BookLabel, scalar
from eris.protocol.enccluster.sets import SetStatement
from eris.protocol.secure.keys import MemberKeys

BookKeys = tuple[tuple[int, ...], ...]
"""A scalar for each slot of each book."""


class RefusedShare(ErisError):
    """A share that is no part of the key; it is left out and its sender is named."""

    def __init__(self, client: int, reason: str) -> None:
        self.client, self.reason = client, reason
        super().__init__(f"key share of member {client}: {reason}")


class NoKey(ErisError):
    """The shares at hand are no key; names who is missing, where that can be told."""

    def __init__(self, reason: str, missing: Sequence[int] = ()) -> None:
        self.reason, self.missing = reason, tuple(missing)
        super().__init__(reason)


@dataclass(frozen=True)
class KeyShare:
    """What a member reveals: its part of the key of one statement."""

    statement: bytes
    """σ"""
    data: bytes
    """32 bytes for each slot of each book."""


def mask_info(
    label: bytes, statement: bytes, slot: int, one: tuple[int, bytes], other: tuple[int, bytes]
) -> bytes:
    """What a mask is for: a pair of (number, key), a slot of a book, and one statement."""
    low, high = sorted([one, other])
    numbers = struct.pack(">BII", slot, low[0], high[0])
    return b"".join((DOM, b"/mask", numbers, low[1], high[1], label, statement))


def masks(
    keys: MemberKeys, me: int, others: Iterable[tuple[int, bytes]], label: bytes,
    statement: bytes, slot: int,
) -> int:  # fmt: skip
    """Σ M over those above ``me`` − Σ M over those below: over a whole set they cancel."""
    total = 0
    for number, key in others:
        extracted = keys.extracted(DOM, number, key)
        own = me, keys.public.exchange
        mask = scalar(extracted, mask_info(label, statement, slot, own, (number, key)))
        total += mask if number > me else -mask
    return total % ORDER


def key_share(
    keys: MemberKeys,
    me: int,
    statement: SetStatement,
    labels: Sequence[BookLabel],
    scalars: Sequence[Sequence[int]],
) -> KeyShare:
    """share = y·s + masks, for each slot of each book; what is checked before is not checked here.

    See :class:`~eris.protocol.enccluster.answering.Answerer`.
    """
    weight = statement.by_client[me].weight
    others = [(one.client, one.exchange) for one in statement.members if one.client != me]
    found = (
        (weight * secret + masks(keys, me, others, label.encoded, statement.name, slot)) % ORDER
        for label, slots in zip(labels, scalars, strict=True)
        for slot, secret in enumerate(slots)
    )
    return KeyShare(statement.name, b"".join(one.to_bytes(SCALAR_BYTES, "big") for one in found))


@dataclass
class ShareDesk:
    """An owner's half: shares of one statement come in, and the key when all are there."""

    statement: SetStatement
    books: int = 1
    slots: int = 1
    _shares: dict[int, bytes] = field(default_factory=dict)

    def take(self, client: int, share: KeyShare) -> None:
        """Keep a share; one that is no part of the key is refused and counts as missing.

        The same share again changes nothing.
        """
        if client not in self.statement.by_client:
            raise RefusedShare(client, "it is not in the set")
        if share.statement != self.statement.name:
            named, expected = share.statement.hex()[:16], self.statement.name.hex()[:16]
            raise RefusedShare(client, f"it is for statement {named}…, not for {expected}…")
        expected_size = SCALAR_BYTES * self.books * self.slots
        if len(share.data) != expected_size:
            raise RefusedShare(client, f"{len(share.data)} bytes; expected {expected_size}")
        if any(value >= ORDER for value in _scalars(share.data)):
            raise RefusedShare(client, "a scalar is not below the group's order")
        if self._shares.setdefault(client, share.data) != share.data:
            raise RefusedShare(client, "it has sent another one before")

    @property
    def missing(self) -> list[int]:
        """Members whose share is not there."""
        return [c for c in self.statement.by_client if c not in self._shares]

    def key(self) -> BookKeys:
        """dk = Σ y·s for each slot of each book; one share less and there is none.

        A wrong share opens nothing; who sent it cannot be told.
        """
        if self.missing:
            names = ", ".join(map(str, self.missing))
            raise NoKey(f"no key: the shares of members {names} are missing", self.missing)
        columns = zip(*(_scalars(data) for data in self._shares.values()), strict=True)
        total = [sum(column) % ORDER for column in columns]
        if not all(total):
            raise NoKey("no key: the shares add up to 0, so one is foreign; whose cannot be told")
        return tuple(tuple(total[at : at + self.slots]) for at in range(0, len(total), self.slots))


def _scalars(data: bytes) -> list[int]:
    return [
        int.from_bytes(data[at : at + SCALAR_BYTES], "big")
        for at in range(0, len(data), SCALAR_BYTES)
    ]
