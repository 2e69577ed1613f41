"""A member's answers to reveal requests: one statement a segment and round, ever.

Scalars are in memory only. What was answered goes to a journal before it leaves, so that a member
that starts again says the same or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from eris.core.errors import ErisError
from eris.protocol.enccluster.encrypt import ClientScalars
from eris.protocol.enccluster.labels import BookLabel
from eris.protocol.enccluster.sets import SetLaw, SetMember, SetStatement
from eris.protocol.enccluster.shares import KeyShare, key_share
from eris.protocol.secure.keys import MemberKeys, PublicKeys


class RefusedReveal(ErisError):
    """A reveal request that a member does not answer, and why."""


class RevealKey(NamedTuple):
    """What is answered once. The epoch is left out: no takeover makes a second answer possible."""

    federation: bytes
    round: int
    shard: int
    segment: int

    @classmethod
    def of(cls, label: BookLabel) -> RevealKey:
        """Of the segment and round that a label belongs to."""
        return cls(label.federation, label.round, label.shard, label.segment)


Persist = Callable[[RevealKey, KeyShare], None]
"""Writes an answer down; on the disk on return."""


@dataclass(frozen=True)
class RevealView:
    """Who is who in a segment's round, by this member's own copy of the epoch's view."""

    owner: PublicKeys
    """Of the shard, in that epoch."""
    eligible: Mapping[int, bytes]
    """The clients that may contribute in the round, and their X25519 keys, as far as known."""
    law: SetLaw
    weights: Mapping[int, int] | None = None
    """y of each client, if the settings agree on integer weights; else all are 1."""

    def __post_init__(self) -> None:
        if self.law.eligible < len(self.eligible):
            raise RefusedReveal(
                f"the law of the set is of {self.law.eligible} eligible clients; "
                f"the view has {len(self.eligible)}"
            )

    def weight(self, client: int) -> int:
        """y as the settings say."""
        return 1 if self.weights is None else self.weights[client]


@dataclass
class _Contributed:
    """What this member sent and can still give a share of."""

    digest: bytes
    labels: tuple[BookLabel, ...]
    scalars: tuple[ClientScalars, ...]


@dataclass
class Answerer:
    """One client's contributions that wait for their statement, and its answers.

    What is remembered is bounded: before :attr:`floor` nothing is contributed or answered any more.
    """

    me: int
    persist: Persist
    answered: dict[RevealKey, KeyShare] = field(default_factory=dict)
    """As the journal has them."""
    floor: int = 0
    """The first round that can have an answer."""
    _waiting: dict[RevealKey, _Contributed] = field(default_factory=dict, repr=False)
    _unwritten: set[RevealKey] = field(default_factory=set, repr=False)

    def contributed(
        self, digest: bytes, labels: Sequence[BookLabel], scalars: Sequence[ClientScalars]
    ) -> None:
        """Remember a contribution that is about to leave; there is one a segment and round."""
        key = RevealKey.of(labels[0])
        if key.round < self.floor:
            raise RefusedReveal(f"round {key.round} is over; contributed is from {self.floor} on")
        if key in self._waiting or key in self.answered:
            raise RefusedReveal(
                f"round {key.round}, shard {key.shard}, segment {key.segment} has a contribution "
                "of this member, whatever the epoch"
            )
        self._waiting[key] = _Contributed(digest, tuple(labels), tuple(scalars))

    def resolved(self, label: BookLabel) -> None:
        """Forget the scalars of a segment's round: its result, published or withheld, is known."""
        left = self._waiting.pop(RevealKey.of(label), None)
        if left is not None:
            self._forget(left)

    def forget(self, before: int) -> None:
        """Forget rounds before one for good: they have no answer any more, not even the same."""
        self.floor = max(self.floor, before)
        for past in [known for known in self._waiting if known.round < self.floor]:
            self._forget(self._waiting.pop(past))
        for past in [known for known in self.answered if known.round < self.floor]:
            del self.answered[past]
            self._unwritten.discard(past)

    def answer(
        self, statement: SetStatement, signature: bytes, view: RevealView, keys: MemberKeys | None
    ) -> KeyShare:
        """The share of a statement, if nothing speaks against it; the same one if asked again.

        ``keys`` are those that the epoch's view has of this member; None where it has them no more,
        or must not act in the round: then nothing new is answered.
        """
        self._check_signature(statement, signature, view)
        key = RevealKey.of(statement.label)
        said = self.answered.get(key)
        if said is not None and said.statement == statement.name:
            return self._written(key)
        sent = self._check_label(statement, key)
        if keys is None:
            raise RefusedReveal(
                "this member has other keys than that round's view names, or no permit for it"
            )
        self._check_members(statement, view)
        self._check_own(statement, sent, view, keys)
        self._check_weights(statement, view)
        self._check_law(statement, view)
        self._check_once(key)
        values = [scalars.values() for scalars in sent.scalars]
        share = key_share(keys, self.me, statement, sent.labels, values)
        # Known before it is written: if writing fails, nothing else is answered in its place.
        self.answered[key] = share
        self._unwritten.add(key)
        return self._written(key)

    def _written(self, key: RevealKey) -> KeyShare:
        """An answer that may leave: it is in the journal, and its scalars are forgotten."""
        share = self.answered[key]
        if key in self._unwritten:
            self.persist(key, share)
            self._unwritten.discard(key)
            if key in self._waiting:
                self._forget(self._waiting[key])
        return share

    def _check_signature(self, statement: SetStatement, signature: bytes, view: RevealView) -> None:
        if not statement.is_signed(view.owner, signature):
            raise RefusedReveal("the statement is not signed by the shard's owner of that epoch")

    def _check_label(self, statement: SetStatement, key: RevealKey) -> _Contributed:
        sent = self._waiting.get(key)
        if sent is None and key in self.answered:
            self._check_once(key)
        if sent is None or sent.labels[0].first != statement.label.first:
            raise RefusedReveal("this member has no contribution under that label, or not any more")
        return sent

    def _check_members(self, statement: SetStatement, view: RevealView) -> None:
        if not statement.ascends():
            raise RefusedReveal("the members' numbers do not strictly ascend")
        for one in statement.members:
            if one.client not in view.eligible:
                raise RefusedReveal(f"member {one.client} is not an eligible client of the round")
            if one.exchange != view.eligible[one.client]:
                raise RefusedReveal(f"member {one.client} has another key in the view")

    def _check_own(
        self, statement: SetStatement, sent: _Contributed, view: RevealView, keys: MemberKeys
    ) -> None:
        own = statement.by_client.get(self.me)
        if own is None:
            raise RefusedReveal("this member is not in the set")
        if own.exchange != keys.public.exchange:
            raise RefusedReveal("the statement has a key that this member does not have any more")
        self._check_digest(own, sent)
        if own.weight != view.weight(self.me):
            expected = view.weight(self.me)
            raise RefusedReveal(f"this member's weight is {expected}, not {own.weight}")

    def _check_digest(self, own: SetMember, sent: _Contributed) -> None:
        if own.contribution != sent.digest:
            raise RefusedReveal("the statement names another contribution than this member sent")

    def _check_weights(self, statement: SetStatement, view: RevealView) -> None:
        for one in statement.members:
            if one.weight < 1 or one.weight != view.weight(one.client):
                expected = view.weight(one.client)
                raise RefusedReveal(
                    f"member {one.client} has weight {one.weight}; agreed is {expected}"
                )

    def _check_law(self, statement: SetStatement, view: RevealView) -> None:
        if len(statement.members) < view.law.least:
            raise RefusedReveal(
                f"the set has {len(statement.members)} members; the law of the set asks for "
                f"{view.law.least} of {view.law.eligible}"
            )

    def _check_once(self, key: RevealKey) -> None:
        if key in self.answered:
            raise RefusedReveal(
                f"round {key.round}, shard {key.shard}, segment {key.segment} was answered under "
                f"statement {self.answered[key].statement.hex()[:16]}…, and is under no other"
            )

    def _forget(self, sent: _Contributed) -> None:
        for scalars in sent.scalars:
            scalars.forget()
