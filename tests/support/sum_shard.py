"""One shard with secure sums: its owner, helpers and clients, as bare machines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from eris.core.ring import Words
from eris.core.vectors import Vector
from eris.protocol.secure.escrow import Escrow, Root, seal
from eris.protocol.secure.helper import Audited, Helper, SeatView
from eris.protocol.secure.keys import MemberKeys
from eris.protocol.secure.labels import ShardRound, digest
from eris.protocol.secure.opening import Deposits, Opening
from eris.protocol.secure.seats import Threshold
from eris.protocol.secure.sums import (
    Answer,
    MaskedWords,
    OpenedSum,
    SegmentShape,
    Statement,
    mask,
    plain_head,
    plain_words,
)
from eris.protocol.secure.terms import SecureSums

F, COUNT = 20, 12
PLACE = ShardRound(7, 1, 3, 0)
SHAPE = SegmentShape(PLACE, 0, 2, COUNT, 8)
MODEL, OTHER_MODEL = bytes(range(16)), bytes(16)
OWNER, CLIENTS = 7, range(8)


class Shard:
    """Eight clients, of which 7 owns the shard and the first few hold its seats."""

    def __init__(
        self, words: str = "2 of 3", shape: SegmentShape = SHAPE, owner: int = OWNER,
        helpers: tuple[int, ...] | None = None,
    ) -> None:  # fmt: skip
        self.terms = SecureSums(Threshold.parse(words), shape.form)
        self.shape, self.threshold = shape, self.terms.threshold
        self.owner, self.helpers = owner, helpers or tuple(range(self.threshold.seats))
        self.keys = {k: MemberKeys.of(b"".join(digest(bytes([k, n])) for n in range(3)))
                     for k in CLIENTS}  # fmt: skip
        self.roots = {k: Root.drawn(digest(bytes([k, 9])), self.keys[k].process_secret)
                      for k in CLIENTS}  # fmt: skip
        public = {k: keys.public for k, keys in self.keys.items()}
        self.views = [
            SeatView(owner, self.helpers, frozenset(CLIENTS), 4, public, self.keys[j])
            for j in self.helpers
        ]
        self.at = {seat: Helper(j, self.terms) for seat, j in enumerate(self.helpers)}
        self.deposits = Deposits(self.threshold)
        self.opening = self.begin()

    def begin(self, shape: SegmentShape | None = None) -> Opening:
        return Opening(
            self.terms,
            shape or self.shape,
            self.owner,
            self.helpers,
            self.keys[self.owner],
            self.deposits,
        )

    def values(self, client: int) -> Vector:
        return (np.linspace(-1, 1, self.shape.count) * (client + 1) / 9).astype(np.float32)

    def escrow(self, client: int, model: bytes = MODEL) -> Escrow:
        keys = {
            j: self.keys[client].shared(7, client, j, self.keys[j].public)
            .escrow_key(self.shape.place.epoch, client, j)
            for j in self.helpers
        }  # fmt: skip
        seeds = self.roots[client].seeds(self.shape.place, self.threshold)
        return seal(self.shape.place, client, self.helpers, model, seeds, keys, self.threshold)

    def plain(self, client: int) -> tuple[Words, Words]:
        words = plain_words(self.values(client), 1, F)
        return plain_head(words, 1, 1), words

    def sent(self, client: int, off: int = 0) -> MaskedWords:
        head, words = self.plain(client)
        seeds = self.roots[client].seeds(self.shape.place, self.threshold)
        head[2] += np.uint64(off)
        return mask(head, words, self.roots[client], self.shape, seeds)

    def pass_on(self, seats: Iterable[int] | None = None) -> None:
        for named, (client, escrow) in self.deposits.escrows.items():
            for seat in self.at if seats is None else seats:
                assert (
                    self.at[seat].deposit(self.shape.place, self.views[seat], client, escrow)
                    == named
                )
                self.deposits.accepted[named].add(seat)
        self.opening.settle()

    def give(self, clients: Iterable[int], model: bytes = MODEL) -> None:
        for k in clients:
            self.opening.add(k, self.sent(k), self.escrow(k, model))

    def answer(self, seat: int, asked: tuple[int, ...], statement: Statement | None = None,
               shape: SegmentShape | None = None) -> Answer:  # fmt: skip
        said = statement or self.opening.statement
        assert said is not None
        signature = self.keys[self.owner].signing.sign(said.encode())
        return self.at[seat].answer(
            said, signature, asked, self.views[seat], shape or self.shape, over=lambda: False
        )

    def audit(self, seat: int, statement: Statement | None = None) -> Audited:
        said = statement or self.opening.statement
        assert said is not None
        signature = self.keys[self.owner].signing.sign(said.encode())
        return self.at[seat].audit(
            said, signature, self.views[seat], said.shape, over=lambda: False
        )

    def audits(self) -> dict[int, Audited]:
        return {seat: self.audit(seat) for seat in self.at}

    def opened(self, asked: tuple[int, ...] | None = None) -> OpenedSum:
        asked = asked or self.opening.asked()
        assert asked is not None
        found = None
        for seat in asked:
            found = self.opening.answered(seat, asked, self.answer(seat, asked), 1 << F)
        assert found is not None
        return found

    def total(self, clients: Iterable[int]) -> list[int]:
        rows = np.stack([self.plain(k)[1].view(np.int64) for k in clients])
        return [int(word) for word in rows.sum(0)]


def fewer(statement: Statement, without: int) -> Statement:
    """The same set but for one."""
    rows = tuple(one for one in statement.included if one.client != without)
    return replace(statement, included=rows)


def closed(words: str = "2 of 3", clients: Iterable[int] = range(6)) -> tuple[Shard, Statement]:
    """A shard that is closed on these clients."""
    shard = Shard(words)
    shard.give(clients)
    shard.pass_on()
    statement = shard.opening.close(4)
    assert statement is not None
    return shard, statement
