"""A client's half of encrypted sums: it encrypts, and gives a share of the key of one set."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from eris.core.compress import Encoded, Encoding
from eris.core.errors import RefusedContribution
from eris.core.exact_clip import Content
from eris.core.vectors import Vector
from eris.protocol.enccluster.answering import (
    Answerer,
    Persist,
    RefusedReveal,
    RevealKey,
    RevealView,
)
from eris.protocol.enccluster.mapped import Box
from eris.protocol.enccluster.sets import contribution_digest
from eris.protocol.enccluster.wire import read_statement, write_share
from eris.protocol.messages import Payload, RevealRequest
from eris.protocol.schemes.weights import WeightSender

if TYPE_CHECKING:
    from eris.protocol.agreement import Key, Segment
    from eris.protocol.enccluster.coding import EncryptingCoding
    from eris.protocol.enccluster.shares import KeyShare
    from eris.protocol.round.replica import Replica
    from eris.protocol.secure.keys import MemberKeys
    from eris.protocol.secure.vault import Vault
    from eris.protocol.view import View

KEPT_ROUNDS = 16
"""Rounds whose answers are remembered, so that they can be given again."""
Answers = Mapping[RevealKey, "KeyShare"]


class EncryptingSender(WeightSender):
    """A client that encrypts what it sends."""

    coding: EncryptingCoding

    def __init__(self, coding: EncryptingCoding, me: int, vault: Vault) -> None:
        super().__init__(coding, me)
        self._vault = vault
        self.answerer = Answerer(me, self._noted)
        self._samples: tuple[int, int] = (0, 0)
        """The round that was prepared last, and its samples."""
        self._made: dict[tuple[int, Key], Payload] = {}
        """What was sent and has no result: sent again, it is the same bytes."""

    @staticmethod
    def _noted(key: RevealKey, share: KeyShare) -> None:
        """A member that is moved in step has no disk: it does not start again in mid-round."""

    def keep(self, answers: Answers, persist: Persist) -> None:
        """Go on from answers that are on a disk, and write all others there before they leave."""
        self.answerer = Answerer(self.me, persist, dict(answers))
        self.answerer.forget(max((key.round for key in answers), default=0) - KEPT_ROUNDS)

    def _keys(self, view: View) -> MemberKeys | None:
        """This member's keys in a view, if they are of this start."""
        return self._vault.of(view.seating.known.get(self.me)) if view.seating else None

    def gives(self, round: int, shard: int) -> bool:
        """Whether this client contributes to a shard: others must know its keys, and what it gives
        must have a chance to be opened."""
        if self._keys(self.agreement.view_at(round)) is None:
            return False
        return self.coding.openable(round, shard)

    def trains(self, round: int) -> bool:
        """Whether there is a shard to which this client contributes in a round."""
        shards = range(len(self.agreement.view_at(round).owners))
        return any(self.gives(round, shard) for shard in shards)

    def check_weight(self, samples: int, steps: int, round: int) -> None:
        """Refuse what cannot be this client's weight."""
        super().check_weight(samples, steps, round)
        self.coding.check_declared(self.me, samples, round)

    def prepare(
        self, update: Vector, samples: int, steps: int, round: int, replica: Replica,
        content: Content | None = None,
    ) -> dict[Key, Vector]:  # fmt: skip
        """By segment: the values that are sent of an update, if all are in range."""
        pieces = super().prepare(update, samples, steps, round, replica)
        scale = self.coding.scale(round)
        segments = self.agreement.segments(round)
        for key, piece in pieces.items():
            try:
                scale.examine(self.me, piece, partial(self._place, round, key))
                self.coding.examine(piece, segments[key], self.me)
            except RefusedContribution as refused:
                raise RefusedContribution(self.name, refused.reason) from None
        self._samples = round, samples
        return pieces

    def _place(self, round: int, key: Key, at: int) -> str:
        return self.coding.place(int(self.coding.coordinates(round, key, self.me)[at]))

    def payload(self, piece: Vector, segment: Segment, round: int, based_on: int) -> Payload:
        """What travels of a segment; made once."""
        if (round, segment.key) not in self._made:
            self._made[round, segment.key] = self._encrypted(piece, segment, round)
        return self._made[round, segment.key]

    def _encrypted(self, piece: Vector, segment: Segment, round: int) -> Payload:
        coding, view = self.coding, self.agreement.view_at(round)
        keys, seating = self._keys(view), view.seating
        if keys is None or seating is None or self._samples[0] != round:
            raise RefusedContribution(self.name, f"cannot encrypt for round {round}")
        owner, label = view.owners[segment.shard], coding.label(round, segment)
        box = Box.between(keys, owner, seating.known[owner].exchange, self.me, label)
        sealed = coding.sealed(
            piece, coding.weight(self._samples[1]), segment, label, box,
            lambda: (keys.process_secret, self._vault.fresh(round)),
        )  # fmt: skip
        digest = contribution_digest(label, self.me, sealed.ciphertexts, sealed.mapping)
        labels = [label.of_book(book) for book in range(len(sealed.scalars))]
        self.answerer.contributed(digest, labels, sealed.scalars)
        self._forget(round - KEPT_ROUNDS)
        return Payload(Encoded(Encoding.CIPHERTEXTS, len(piece), sealed.data))

    def over(self, round: int, key: Key) -> None:
        """What was sent of a segment in a round has its result: its scalars are forgotten."""
        self._made.pop((round, key), None)
        self.answerer.resolved(self.coding.label(round, self.agreement.segments(round)[key]))
        self._forget(round - KEPT_ROUNDS)

    def _forget(self, before: int) -> None:
        """What is long over is answered no more, and not sent again."""
        self.answerer.forget(before)
        for old in [made for made in self._made if made[0] < before]:
            del self._made[old]

    def reveal(self, request: RevealRequest, permitted: bool = True) -> bytes:
        """This client's share of the key of a set, if nothing speaks against it."""
        header = request.header
        round, view = header.round, self.agreement.view_at(header.round)
        segment, seating = self.agreement.segments(round).get(header.key), view.seating
        if segment is None or seating is None or not self.coding.openable(round, segment.shard):
            raise RefusedReveal("no set of that shard can be opened in that round")
        label = self.coding.label(round, segment)
        statement, signature = read_statement(request.data, sorted(request.included), label, view)
        known = seating.known
        who = RevealView(
            known[view.owners[segment.shard]],
            {client: known[client].exchange for client in view.clients if client in known},
            self.coding.law(round, segment.shard),
        )
        keys = self._keys(view) if permitted else None
        return write_share(self.answerer.answer(statement, signature, who, keys))
