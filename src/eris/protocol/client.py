"""A client's half of the round: cut its update into segments, follow results, catch up.

A machine without I/O: an update, a message or the time goes in, messages come out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from eris.core.combine import bounded, examine
from eris.core.compress import Encoding, MaskCompressor, Quantiser, encode_values
from eris.core.errors import InvalidSetting, RefusedContribution
from eris.core.prune import Prune
from eris.core.shift import advance, difference
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.protocol.agreement import Agreement, Key, Segment, Stripe
from eris.protocol.membership import NOBODY
from eris.protocol.messages import CatchUp, Contribution, Outgoing, Payload, Refusal, Result
from eris.protocol.recent import Recent
from eris.protocol.replica import Replica

MOST_LEFT_OUT = 10_000


class Client:
    """One member's client machine, on the node's replica."""

    def __init__(self, agreement: Agreement, me: int, replica: Replica) -> None:
        self.agreement, self.me, self.replica = agreement, me, replica
        self.round = 0
        self.left_out: Recent[tuple[int, Key]] = Recent(MOST_LEFT_OUT)
        """(round, segment) of the latest contributions that are in no result."""
        self._sent: dict[Key, dict[int, Vector | None]] = {key: {} for key in agreement.keys}
        """By segment and round: contributions without a result yet, and what the own reference
        moves along if they are included (paper's mode)."""
        self._retry_at = float("inf")
        self._asked = 0
        settings = agreement.settings
        independent = settings.masks == "independent" and me in agreement.view.client_set
        self.own_reference = np.zeros(settings.n, np.float32) if independent else None
        self.lost = 0.0
        """The share of the latest update's norm that vanishes in fixed point, if it is much."""
        self._retained: Vector | None = None
        """What pseudo-pruning keeps of the local model; NaN where it keeps nothing."""

    def training_model(self, model: Vector) -> Vector:
        """What this client trains from: the federation's model, and what it withheld of its own."""
        if self._retained is None:
            return model
        # A step beyond float32 retains nothing: the client would never recover from it.
        return np.where(np.isfinite(self._retained), self._retained, model)

    # -- contributing -------------------------------------------------------------------------

    def begin(self, round: int, now: float) -> None:
        """Enter a round; from ``catch_up_after`` on, missing results are asked for."""
        self.round = round
        self._retry_at = now + self.agreement.settings.catch_up_after
        self._asked = 0

    def contribute(self, update: Vector, samples: int, steps: int = 1) -> list[Outgoing]:
        """This round's contributions, one a segment, each for the owner of its shard."""
        update = self.prepare(update, samples, steps)
        stripes = self.agreement.stripes(self.round)
        return [out for s in stripes for out in self.contribute_stripe(s, update, samples, steps)]

    def prepare(self, update: Vector, samples: int, steps: int = 1) -> Vector:
        """What is cut into contributions: the update, checked, without what is withheld.

        If an owner would refuse any of it, it is refused here and whole: were only some segments
        sent, the result would depend on how the coordinates are cut.
        """
        n = self.agreement.settings.n
        if update.shape != (n,) or update.dtype != np.float32:
            found = f"{update.dtype} array of shape {update.shape}"
            raise InvalidSetting("update", found, f"{n} float32 values")
        self.agreement.check_weight(self.me, samples, steps, self.round)
        settings, retained = self.agreement.settings, self._retained
        if isinstance(settings.compressor, Prune):
            # Before the steps are divided out: the local model moved by all of them.
            update, retained = self._pruned(settings.compressor, update)
        if settings.rule.normalises_steps:
            update = update / np.float32(steps)
        self._examine(update)
        self._retained = retained
        return update

    def _examine(self, update: Vector) -> None:
        """Refuse an update that cannot be combined, and note what of it is too small to be."""
        settings, reference = self.agreement.settings, self._reference
        name = self.agreement.view.members[self.me]
        kept = self.agreement.kept(self.round, self.me) if settings.masked else None
        self.lost = examine(
            update, name, settings.precision, settings.non_finite, reference=reference, kept=kept
        )
        if settings.non_finite != "refuse" or not isinstance(settings.compressor, Quantiser):
            return
        limit = settings.precision.value_range
        for stripe in self.agreement.stripes(self.round):
            for piece in self._cut(stripe, update, reference):
                if (reach := settings.compressor.reach(piece)) > limit:
                    reason = f"quantised, its values are up to {reach:g}, beyond ±{limit:g}"
                    raise RefusedContribution(name, reason)

    def contribute_stripe(
        self, stripe: Stripe, update: Vector, samples: int, steps: int = 1
    ) -> list[Outgoing]:
        """The contributions of one stripe, of an update that was prepared.

        Segments that nobody owns stay at home, and so do those whose result is there already.
        """
        pieces = zip(stripe.segments, self._cut(stripe, update, self._reference), strict=True)
        made = (self._contribution(segment, piece, samples, steps) for segment, piece in pieces)
        return [outgoing for outgoing in made if outgoing is not None]

    def contribute_segment(
        self, segment: Segment, update: Vector, samples: int, steps: int = 1
    ) -> Outgoing | None:
        """The contribution of one segment, as :meth:`contribute_stripe` makes several."""
        reference = self._reference
        if self.agreement.settings.masked:
            kept = self.agreement.kept_coordinates(self.round, segment.key, self.me)
            piece = update[kept]
            if reference is not None:
                piece = difference(piece, reference[kept])
        else:
            piece = segment.gather(update)
            if reference is not None:
                piece = difference(piece, segment.gather(reference))
        return self._contribution(segment, piece, samples, steps)

    @property
    def _reference(self) -> Vector | None:
        return self.replica.reference if self.own_reference is None else self.own_reference

    def _contribution(
        self, segment: Segment, piece: Vector, samples: int, steps: int
    ) -> Outgoing | None:
        key = segment.key
        owner = self.agreement.view_at(self.round).owners[segment.shard]
        if owner == NOBODY or self.replica.versions[key] >= self.round:
            return None
        header = self.agreement.header(self.me, self.round, key)
        try:
            payload, moved = self._encode(piece, segment)
        except RefusedContribution as error:
            return Outgoing((self.me,), Refusal(header, str(error)))
        self._sent[key][self.round] = moved
        message = Contribution(header, self.replica.versions[key], samples, steps, payload)
        return Outgoing((owner,), message)

    def _pruned(self, prune: Prune, update: Vector) -> tuple[Vector, Vector | None]:
        """The update without what is withheld, and what of that stays in the local model."""
        withheld, retained = prune.withheld(update), None
        if prune.pseudo:
            rate = np.float32(self.agreement.settings.rule.learning_rate)
            trained = self.training_model(self.replica.model) - rate * update
            retained = np.where(withheld, trained, np.float32(np.nan))
        return np.where(withheld, np.float32(0), update), retained

    def _cut(self, stripe: Stripe, update: Vector, reference: Vector | None) -> list[Vector]:
        """The stripe's segments of the update, less the reference; with a mask what is kept of
        them."""
        if not self.agreement.settings.masked:
            pieces = stripe.cut(update)
            if reference is None:
                return pieces
            return list(map(difference, pieces, stripe.cut(reference)))
        kept = self.agreement.kept_in_stripe(self.round, stripe, self.me)
        values = kept.gather(update)
        if reference is not None:
            values = difference(values, kept.gather(reference))
        return kept.cut(values)

    def _encode(self, piece: Vector, segment: Segment) -> tuple[Payload, Vector | None]:
        """What travels, and (paper's mode) what the own reference moves along if it is included."""
        settings, round = self.agreement.settings, self.round
        if settings.compressor is None:
            return Payload(encode_values(piece)), None
        if not isinstance(settings.compressor, MaskCompressor):
            # A quantiser makes numbers of what is none, so the check is made before it.
            name = self.agreement.view.members[self.me]
            piece = bounded(piece, name, settings.precision, settings.non_finite)
            purpose = f"quantise/{segment.number}"
            draw = Stream(settings.seed, purpose, round, self.me, segment.shard)
            return Payload(settings.compressor.encode(piece, draw)), None
        tag = self.agreement.mask_tag(round, self.me)
        payload = Payload(encode_values(piece, Encoding.KEPT), tag)
        if self.own_reference is None:
            return payload, None
        moved = np.zeros(segment.size, np.float32)
        scale = self.agreement.kept(round, self.me).scale
        places = self.agreement.places(round, segment.key, self.me)
        moved[places] = piece * np.float32(scale)
        return payload, moved

    # -- checkpoints --------------------------------------------------------------------------

    def state(self) -> dict[str, Vector]:
        """What only this client knows, at the end of a round."""
        kept = {"reference": self.own_reference, "retained": self._retained}
        return {name: value for name, value in kept.items() if value is not None}

    def restore(self, state: Mapping[str, Vector]) -> None:
        """Continue from a ``state()``."""
        if self.own_reference is not None:
            found = state.get("reference")
            if found is None or found.shape != self.own_reference.shape:
                what = f"no fitting reference of member {self.me}"
                raise InvalidSetting("checkpoint", what, "one of this federation")
            self.own_reference = found.copy()
        self._retained = state.get("retained")

    # -- following ----------------------------------------------------------------------------

    @property
    def unanswered(self) -> list[tuple[int, Key]]:
        """(round, segment) of the contributions without a result yet."""
        return [(round, key) for key, rounds in self._sent.items() for round in rounds]

    def follow(self, result: Result) -> None:
        """Learn from an applied result whether this client is in it."""
        key, round = result.header.key, result.header.round
        sent = self._sent[key]
        for past in list(sent):  # in order: a client contributes to one round after another
            if past > round:
                break
            moved = sent.pop(past)
            if past < round or self.me not in result.included:
                self.left_out.append((past, key))
            elif self.own_reference is not None and moved is not None:
                segment = self.agreement.segments(round)[key]
                gamma = self.agreement.shift_step(segment)
                reference = segment.gather(self.own_reference)
                segment.scatter(self.own_reference, advance(reference, moved, gamma))

    def tick(self, now: float) -> list[Outgoing]:
        """Ask for results that have not come: the owner first, then one peer after another."""
        if now < self._retry_at or self.replica.settled(self.round):
            return []
        self._retry_at = now + self.agreement.settings.retry_every
        missing = [key for key, version in self.replica.versions.items() if version < self.round]
        return self.ask(missing)

    def ask(
        self, missing: Iterable[Key], *, everyone: bool = False, at_once: int = 1
    ) -> list[Outgoing]:
        """Ask for what is missing: the owner first, the next time other members in turn.

        Those that have a role, unless ``everyone`` is to be asked; so many of them ``at_once``.
        """
        members = range(len(self.agreement.view.members))
        there = members if everyone else self.agreement.view.roles
        others = [m for m in there if m != self.me] or [m for m in members if m != self.me]
        asks = [self._ask(key, others, at_once) for key in missing if others]
        self._asked += 1
        return asks

    def _ask(self, key: Key, others: Sequence[int], at_once: int) -> Outgoing:
        header = self.agreement.header(self.me, max(1, self.round), key)
        whole = key in self.replica.astray
        have = 0 if key in self.replica.orphaned else self.replica.versions[key]
        return Outgoing(self._peers(key, others, at_once), CatchUp(header, have, whole))

    def _peers(self, key: Key, others: Sequence[int], at_once: int) -> tuple[int, ...]:
        owner = self.agreement.view.owners[key[0]]
        if self._asked == 0 and owner not in (self.me, NOBODY):
            return (owner,)
        turn = at_once * self._asked + sum(key)
        return tuple({others[(turn + next) % len(others)]: None for next in range(at_once)})
