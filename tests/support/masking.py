"""Clients and helpers of one masked sum, moved by hand."""

from __future__ import annotations

from eris.core.ring import Words
from eris.core.vectors import Vector
from eris.protocol.secure.escrow import Escrow, Root, seal, unseal
from eris.protocol.secure.keys import MemberKeys
from eris.protocol.secure.labels import ShardRound, digest
from eris.protocol.secure.seats import Threshold
from eris.protocol.secure.sums import (
    Answer,
    Included,
    MaskedWords,
    SegmentShape,
    Statement,
    answer,
    mask,
    plain_head,
    plain_words,
)

PLACE = ShardRound(7, 1, 3, 0)
THRESHOLDS = [Threshold.parse(w) for w in ("2 of 3", "3 of 4", "2 of 2", "3 of 3")]
OWNER, MODEL = 9, bytes(range(16))


class MaskingCrowd:
    """Clients 0 … n−1, of which the first few are helpers; keys by formula, so that runs repeat."""

    def __init__(self, threshold: Threshold, clients: int, place: ShardRound = PLACE) -> None:
        self.threshold, self.place = threshold, place
        self.clients, self.helpers = range(clients), tuple(range(threshold.seats))
        self.keys = {
            k: MemberKeys.of(b"".join(digest(bytes([k, n])) for n in range(3)))
            for k in [*self.clients, OWNER]
        }
        self.roots = {k: Root.drawn(digest(bytes([k, 9])), self.keys[k].process_secret)
                      for k in self.clients}  # fmt: skip

    def escrow(self, client: int) -> Escrow:
        return seal(
            self.place, client, self.helpers, MODEL,
            self.roots[client].seeds(self.place, self.threshold),
            {j: self.escrow_key(client, j) for j in self.helpers}, self.threshold,
        )  # fmt: skip

    def escrow_key(self, client: int, helper: int) -> bytes:
        pair = self.keys[client].shared(7, client, helper, self.keys[helper].public)
        return pair.escrow_key(self.place.epoch, client, helper)

    def sent(
        self, client: int, values: Vector, samples: int, shape: SegmentShape, f: int
    ) -> MaskedWords:
        return self.masked(client, plain_words(values, samples, f), samples, shape)

    def masked(self, client: int, words: Words, samples: int, shape: SegmentShape) -> MaskedWords:
        seeds = self.roots[client].seeds(self.place, self.threshold)
        return mask(plain_head(words, samples, 1), words, self.roots[client], shape, seeds)

    def statement(self, shape: SegmentShape, sent: dict[int, MaskedWords]) -> Statement:
        rows = tuple(Included(k, sent[k].nonce, self.escrow(k).digest) for k in sorted(sent))
        return Statement(shape, OWNER, False, self.helpers, MODEL, rows)

    def seeds(self, seat: int) -> dict[int, dict[int, bytes]]:
        j = self.helpers[seat]
        return {
            k: unseal(self.escrow(k), self.place, k, self.helpers, seat,
                      self.escrow_key(k, j), self.threshold)
            for k in self.clients
        }  # fmt: skip

    def answers(self, statement: Statement, asked: tuple[int, ...]) -> list[Answer]:
        return [self.answer(statement, asked, seat) for seat in asked]

    def answer(self, statement: Statement, asked: tuple[int, ...], seat: int) -> Answer:
        me = self.helpers[seat]
        blinds = {
            other: self.keys[me]
            .shared(7, me, self.helpers[other], self.keys[self.helpers[other]].public)
            .blind_key(self.place.epoch, me, self.helpers[other])
            for other in asked
            if other != seat
        }
        return answer(statement, self.threshold, seat, asked, self.seeds(seat), blinds)
