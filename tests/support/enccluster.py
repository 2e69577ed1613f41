"""Clients of one EncCluster segment, from messages to ciphertexts, statements and shares."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from eris.core.books import Books
from eris.core.codings import pack_index
from eris.protocol.enccluster.content import content
from eris.protocol.enccluster.encrypt import ClientScalars, encrypt
from eris.protocol.enccluster.labels import BookLabel
from eris.protocol.enccluster.logarithms import LogarithmTable
from eris.protocol.enccluster.opening import ReceivedBook
from eris.protocol.enccluster.sets import SetMember, SetStatement, contribution_digest
from eris.protocol.enccluster.shares import KeyShare, ShareDesk, key_share
from eris.protocol.secure.keys import MemberKeys

LABEL = BookLabel(hashlib.sha256(b"federation").digest(), 3, 17, 2, 5)
REACH = 1 << 14


@lru_cache(1)
def table() -> LogarithmTable:
    """A table that is quick to build."""
    return LogarithmTable.build(REACH)


def known_bytes(*names: object) -> bytes:
    """32 bytes that follow from a name; they protect nothing."""
    return hashlib.sha256("/".join(map(str, names)).encode()).digest()


def packed(mapping: NDArray[np.uint32], clusters: int) -> bytes:
    """A mapping of one codebook as it is digested."""
    return pack_index(mapping.astype(np.uint16), Books((len(mapping),), (clusters,)))


@lru_cache(256)
def member_keys(number: int) -> MemberKeys:
    """A member's keys, the same in all tests."""
    return MemberKeys.of(b"".join(known_bytes("keys", number, part) for part in range(3)))


@dataclass(frozen=True)
class Contributor:
    """A client with one codebook."""

    number: int
    messages: Sequence[int]
    mapping: NDArray[np.uint32]
    weight: int = 1
    label: BookLabel = LABEL
    fresh: bytes = field(default_factory=lambda: known_bytes("fresh"))
    slots: int = 1

    @property
    def keys(self) -> MemberKeys:
        """Its keys."""
        return member_keys(self.number)

    def scalars(self) -> ClientScalars:
        """Its scalars of this label, each time anew."""
        said = content(self.messages, packed(self.mapping, len(self.messages)))
        secret = self.keys.process_secret
        return ClientScalars.drawn(secret, self.fresh, self.label, said, self.slots)

    @cached_property
    def ciphertexts(self) -> bytes:
        """What it sends beside its mapping."""
        return encrypt(self.messages, self.label, self.scalars())

    @property
    def digest(self) -> bytes:
        """Of its contribution."""
        mapping = packed(self.mapping, len(self.messages))
        return contribution_digest(self.label, self.number, [self.ciphertexts], mapping)

    def book(self) -> ReceivedBook:
        """As its owner receives it."""
        clusters = len(self.messages)
        return ReceivedBook.read(self.number, self.ciphertexts, clusters, self.mapping, self.weight)

    def entry(self) -> SetMember:
        """Its line of a statement."""
        return SetMember(self.number, self.weight, self.digest, self.keys.public.exchange)

    def share(self, statement: SetStatement) -> KeyShare:
        """Its share, whatever the statement says."""
        return key_share(self.keys, self.number, statement, [self.label], [self.scalars().values()])

    def with_fresh(self, *names: object) -> Contributor:
        """The same client with other randomness."""
        return replace(self, fresh=known_bytes("fresh", *names))


def statement_of(clients: Sequence[Contributor]) -> SetStatement:
    """What an honest owner closes on."""
    entries = sorted((one.entry() for one in clients), key=lambda one: one.client)
    return SetStatement(clients[0].label.first, tuple(entries))


def key_of(clients: Sequence[Contributor]) -> tuple[int, ...]:
    """The key that all of them give for their set."""
    statement = statement_of(clients)
    desk = ShareDesk(statement, slots=clients[0].slots)
    for one in clients:
        desk.take(one.number, one.share(statement))
    return desk.key()[0]


def plain_sums(clients: Sequence[Contributor]) -> list[int]:
    """Σ y·m of every coordinate, in the clear: the oracle."""
    rows = [[one.weight * one.messages[j] for j in one.mapping.tolist()] for one in clients]
    return [sum(column) for column in zip(*rows, strict=True)]


def random_clients(
    count: int, *, clusters: int = 4, size: int = 6, seed: int = 0, most: int = 500
) -> list[Contributor]:
    """So many clients with random centroids and mappings."""
    rng = np.random.default_rng(seed)
    return [
        Contributor(
            number,
            rng.integers(-most, most, clusters, endpoint=True).tolist(),
            rng.integers(0, clusters, size).astype(np.uint32),
        )
        for number in range(1, count + 1)
    ]
