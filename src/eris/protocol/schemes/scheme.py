"""A scheme: what a segment's contributions and results are, said once and by one object.

A :class:`Scheme` is a setting that members agree on. :meth:`Scheme.at` puts it to work in a
federation, as a shard plan becomes a shard map; the :class:`Coding` that comes of it has four
halves:

- a client's :class:`Sender` makes payloads of a prepared update;
- an owner's :class:`Collector` takes contributions and ends in a payload;
- :meth:`Coding.move` says how a result moves the replicated state;
- :meth:`Coding.read` and the :class:`Reader` say what an observer gets out of a contribution and
  of what is published.

What is written here holds for whole segments of plain values; a scheme says where it differs.
A coding is also the members' :class:`~eris.protocol.schemes.halves.Halves`, unless sums are secure
(:mod:`eris.protocol.secure`): then sender and collector are others. A collector may end in
questions to members (:class:`Asking`), whose answers make a payload.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from eris.core.combine import examine, unremarkable
from eris.core.compress import Encoding, decode_values, encode_values
from eris.core.errors import ErisError, InvalidSetting, MalformedMessage
from eris.core.exact_clip import Content
from eris.core.masks import KeptSet
from eris.core.rules import ServerRule
from eris.core.shift import advance, difference, estimate, shift_step
from eris.core.vectors import Indices, Vector
from eris.protocol.messages import Contribution, Payload, Result, RevealRequest
from eris.protocol.schemes.collector import Collector, Desk
from eris.protocol.schemes.reader import Reader

if TYPE_CHECKING:
    from eris.protocol.agreement import Agreement, Key, Segment
    from eris.protocol.round.laid import Laid
    from eris.protocol.round.replica import Replica
    from eris.protocol.schemes.halves import Answering, Tables
    from eris.protocol.secure.vault import Vault
    from eris.protocol.settings import Settings
    from eris.protocol.view import View

Held = Callable[[], Vector]
"""Gives the values that a segment has now."""


class Scheme:
    """What members agree on; the defaults are those of a plain scheme."""

    name: ClassVar[str]
    small_results: ClassVar[bool] = True
    """Whether a result is smaller than the state it leads to: then results are kept for others."""
    lasting: ClassVar[str] = ""
    """Why clients must be the same in all rounds, if they must."""
    in_step: ClassVar[str] = ""
    """Why only the simulator that moves members in step can carry it, if so."""

    own_references: ClassVar[bool] = False
    """Whether every client has a reference of its own, which only results one by one keep right:
    all begin anew with every epoch, and every start of a client begins one."""
    keyed: ClassVar[bool] = False
    """Whether members have keys that a view states."""
    whole_shards: ClassVar[bool] = False
    """Whether a segment is a whole shard, where settings do not say how long it is."""
    apart: ClassVar[bool] = False
    """Whether owners may not be clients."""
    value_bytes: ClassVar[int] = 4
    """Bytes that a coordinate takes in a message, at most."""
    slow: ClassVar[bool] = False
    """Whether members take long over what they send and hear: a runtime lets them do it in a
    thread."""
    longest_segment: ClassVar[int | None] = None
    """Coordinates of the longest segment, where settings do not say how long it is."""

    @property
    def unread(self) -> str:
        """What contributions tell whoever gets them that no observer here reads yet, if any."""
        return ""

    @property
    def shifted(self) -> bool:
        """Whether differences to a reference travel."""
        return False

    @property
    def weighed(self) -> bool:
        """Whether a view declares every client's samples, which its weight goes by."""
        return False

    @property
    def relative(self) -> bool:
        """Whether what travels is an update only beside the state that it was trained from."""
        return self.shifted

    def kept_share(self, n: int) -> float:
        """The share of ``n`` coordinates that a client sends."""
        return 1.0

    def places(self, n: int) -> int:
        """The coordinates of what is cut, sent and replicated, for a model of ``n``."""
        return n

    def fitted(self, rule: ServerRule, initial: Vector, layers: tuple[int, ...] = ()) -> Scheme:
        """With what follows from the rule and the model to start from, where it was not said.

        ``layers`` are the sizes of the model's layers in order, if they are known.
        """
        return self

    def rehearsed(self) -> Scheme:
        """The same with so little to do that a small model is enough to try it on."""
        return self

    def caution(self, settings: Settings) -> str:
        """What a user should know before training with it."""
        return ""

    def exposure(self) -> str:
        """What it does not hide, where a user might think that it does."""
        return ""

    def check(self, settings: Settings) -> None:
        """Refuse what does not go together with this scheme."""

    def check_view(self, view: View) -> None:
        """Refuse a view in which this scheme cannot work."""

    def at(self, agreement: Agreement) -> Coding:
        """This scheme at work."""
        return Coding(self, agreement)

    def __str__(self) -> str:
        return self.name


class Coding:
    """A scheme at work in one federation."""

    def __init__(self, scheme: Scheme, agreement: Agreement) -> None:
        self.scheme, self.agreement = scheme, agreement
        self._whole: tuple[int, tuple[Indices, Indices]] | None = None

    # -- the boundary -------------------------------------------------------------------------

    def enter(self, vector: Vector) -> Vector:
        """A model or an update as it is cut and replicated."""
        return vector

    def leave(self, vector: Vector) -> Vector:
        """A replicated model as clients train and evaluate it."""
        return vector

    # -- where values lie ---------------------------------------------------------------------

    def coordinates(self, round: int, key: Key, client: int) -> Indices:
        """The places, in a whole vector, of the values that a client sends of a segment."""
        return self.agreement.segments(round)[key].coordinates

    def gather(self, round: int, client: int, vector: Vector) -> Vector:
        """All that a client sends of a vector, segment after segment."""
        return self.agreement.route(round).gather(vector)

    def gather_laid(self, round: int, client: int, laid: Laid) -> Vector:
        """:meth:`gather` of a replicated vector, which lies as it is sent."""
        arranged = laid.arranged()
        return self.gather(round, client, laid.whole()) if arranged is None else arranged

    def edges(self, round: int, client: int) -> Indices:
        """Where in that each segment begins, in the order of the agreement's keys, and the end."""
        return self.agreement.edges(round)

    def pick(self, round: int, segment: Segment, client: int, values: Vector) -> Vector:
        """What a client sends of a segment's values."""
        return values

    def layout(self, round: int, client: int) -> tuple[Indices, Indices]:
        """The coordinates of all that a client sends, and the segments' edges among them."""
        turn = self.agreement.turn_start(round)
        if self._whole is None or self._whole[0] != turn:
            self._whole = turn, self._laid_out(round, client)
        return self._whole[1]

    def _laid_out(self, round: int, client: int) -> tuple[Indices, Indices]:
        parts = [self.coordinates(round, key, client) for key in self.agreement.keys]
        return np.concatenate(parts), np.cumsum([0, *map(len, parts)])

    def kept(self, round: int, client: int) -> KeptSet | None:
        """The kept set of a client, where not everything is sent."""
        return None

    # -- the client ---------------------------------------------------------------------------

    def sender(self, me: int, vault: Vault | None = None) -> Sender:
        """A client's half."""
        return Sender(self, me)

    def desk(self, me: int, replica: Replica, vault: Vault | None = None) -> Desk:
        """What an owner's collectors have in common."""
        return Desk(self.agreement, replica)

    def answering(
        self, me: int, replica: Replica, vault: Vault | None, sender: Sender | None
    ) -> Answering | None:
        """A member's half where owners ask; nobody does."""
        return None

    asks: ClassVar[int] = 0
    """How often an owner asks members before it publishes."""

    def equip(self, tables: Tables) -> None:
        """Take what a runtime has for owners that look logarithms up."""

    def encode(self, piece: Vector, segment: Segment, round: int, client: int) -> Payload:
        """What travels of a segment."""
        return Payload(encode_values(piece))

    # -- the owner ----------------------------------------------------------------------------

    def collector(self, round: int, segment: Segment, held: Held) -> Collector:
        """An owner's half, for one segment and round; ``held`` is the segment as it is now."""
        return Collector(self, round, segment)

    def check_weight(self, contribution: Contribution) -> None:
        """Refuse a weight that cannot be a client's."""
        header = contribution.header
        self.agreement.check_weight(
            header.sender, contribution.samples, contribution.steps, header.round
        )

    def decode(self, contribution: Contribution, segment: Segment) -> Vector:
        """The values that are combined."""
        return self.read(contribution, segment)

    def size(self, round: int, segment: Segment, client: int) -> int:
        """How many values are combined of a segment, where this client's are among them."""
        return segment.size

    @property
    def largest_mean(self) -> float:
        """No published value is larger in magnitude, but for rounding."""
        return self.agreement.settings.precision.value_range

    def publish(self, mean: Vector, round: int) -> Payload:
        """How a mean travels."""
        return Payload(encode_values(mean))

    # -- the replica --------------------------------------------------------------------------

    follows: ClassVar[bool] = False
    """Whether results say in which unit the next words are: 2 to minus an exponent."""

    def first_exponent(self, round: int) -> int:
        """The exponent of a segment that has no result yet."""
        return 0

    def check_exponent(self, field: str, exponent: int) -> None:
        """Refuse an exponent that no owner says."""
        if exponent:
            raise MalformedMessage(field, "is there, although no unit follows the last mean")

    def published(self, result: Result, segment: Segment) -> Vector:
        """The values of a result, refused if they do not fit."""
        assert result.payload is not None
        return decode_values(result.payload.encoded, Encoding.DENSE, segment.size)

    def increment(self, result: Result, segment: Segment) -> Vector:
        """The mean on all coordinates of the segment, unbiased."""
        return self.published(result, segment)

    def gamma(self, segment: Segment) -> float:
        """The step γ of the reference; where nothing is lost, ω is 0."""
        return shift_step(0.0)

    def begins_anew(self, round: int, previous: int) -> bool:
        """Whether a segment's reference is 0 before its result of a round, the one after that of
        ``previous``."""
        return False

    def move(
        self, result: Result, segment: Segment, reference: Vector | None
    ) -> tuple[Vector, Vector | None]:
        """What the server rule is given of a result, and the segment's next reference."""
        increment = self.increment(result, segment)
        if reference is None:
            return increment, None
        return estimate(reference, increment), advance(reference, increment, self.gamma(segment))

    # -- the observer -------------------------------------------------------------------------

    def read(self, contribution: Contribution, segment: Segment) -> Vector:
        """What whoever holds a contribution can read: one value a coordinate, unscaled."""
        return decode_values(contribution.payload.encoded, Encoding.DENSE, segment.size)

    def reader(self) -> Reader:
        """An observer's half."""
        return Reader(self)


class Sender:
    """A client's half: its update, checked and cut, becomes payloads."""

    def __init__(self, coding: Coding, me: int) -> None:
        self.coding, self.agreement, self.me = coding, coding.agreement, me
        self.lost = 0.0
        """The share of the latest update's norm that vanishes in fixed point, if it is much."""

    @property
    def name(self) -> str:
        """The client's name, for messages."""
        return self.agreement.view.members[self.me]

    tells_weight: ClassVar[bool] = True
    """Whether a contribution says its client's samples and steps."""

    def gives(self, round: int, shard: int) -> bool:
        """Whether this client contributes to a shard in a round."""
        return True

    def trains(self, round: int) -> bool:
        """Whether it contributes to any."""
        return True

    def drew(self, round: int) -> bool:
        """Whether noise of a round was drawn here: nothing is trained for it any more."""
        return False

    def bind(self, round: int, replica: Replica) -> None:
        """An update is trained now, from what the replica holds."""

    def batch(self, round: int, slots: int) -> NDArray[np.bool_] | None:
        """Which of this client's slots are in the round's batch; None if all are, always."""
        return None

    def training_model(self, model: Vector) -> Vector:
        """What this client trains from: the federation's model, unless it keeps some of its own."""
        return model

    def reference(self, replica: Replica) -> Vector | None:
        """What travels is the difference to this."""
        return None if replica.reference is None else replica.reference.whole()

    def reference_sent(self, round: int, replica: Replica) -> Vector | None:
        """The same of what is sent, segment after segment."""
        if replica.reference is None:
            return None
        return self.coding.gather_laid(round, self.me, replica.reference)

    def prepare(
        self, update: Vector, samples: int, steps: int, round: int, replica: Replica,
        content: Content | None = None,
    ) -> dict[Key, Vector]:  # fmt: skip
        """By segment: the values that are sent of an update.

        ``content`` is what is sent where noise comes to it (:mod:`eris.protocol.secure.noising`).
        If an owner would refuse any of it, it is refused here and whole: were only some segments
        sent, the result would depend on how the coordinates are cut.
        """
        settings = self.agreement.settings
        if update.shape != (settings.n,) or update.dtype != np.float32:
            found = f"{update.dtype} array of shape {update.shape}"
            raise InvalidSetting("update", found, f"{settings.n} float32 values")
        self.check_weight(samples, steps, round)
        coding = self.coding
        update = coding.enter(update)
        if settings.rule.normalises_steps:
            update = update / np.float32(steps)
        values = coding.gather(round, self.me, update)
        reference = self.reference_sent(round, replica)
        if reference is not None:
            values = difference(values, reference)
        edges = coding.edges(round, self.me).tolist()
        cuts = zip(self.agreement.keys, edges[:-1], edges[1:], strict=True)
        pieces = {key: values[begin:end] for key, begin, end in cuts}
        self.examine(update, values, round, replica)
        return pieces

    def check_weight(self, samples: int, steps: int, round: int) -> None:
        """Refuse what cannot be this client's weight."""
        self.agreement.check_weight(self.me, samples, steps, round)

    def examine(self, update: Vector, values: Vector, round: int, replica: Replica) -> None:
        """Refuse an update that cannot be combined, and note what of it is too small to be."""
        settings, self.lost = self.agreement.settings, 0.0
        if unremarkable(values, settings.precision):
            return
        kept = self.coding.kept(round, self.me)
        self.lost = examine(
            update, self.name, settings.precision, settings.non_finite,
            reference=self.reference(replica), kept=kept,
        )  # fmt: skip

    def payload(self, piece: Vector, segment: Segment, round: int, based_on: int) -> Payload:
        """What travels of a segment, trained from a version of it."""
        return self.coding.encode(piece, segment, round, self.me)

    def remember(self, piece: Vector) -> Vector | None:
        """What must be known of a piece that was sent once its result is there."""
        return None

    def included(self, result: Result, segment: Segment, remembered: Vector) -> None:
        """A piece that was sent, and is remembered, is in a result."""

    def uncertain(self, round: int) -> None:
        """What became of what was sent up to a round will not be known: results were skipped, or
        it was sent by an earlier start of this client."""

    @property
    def astray(self) -> bool:
        """Whether this client can give nothing more before another epoch begins."""
        return False

    def over(self, round: int, key: Key) -> None:
        """What was sent of a segment in a round is in its result, or will never be in one."""

    def reveal(self, request: RevealRequest, permitted: bool = True) -> bytes:
        """What this client tells an owner about what it sent; with no permit for the round only
        what it has told before."""
        raise ErisError("this client has nothing to tell about what it sent")

    def state(self) -> dict[str, Vector]:
        """What only this client knows, at the end of a round."""
        return {}

    def restore(self, state: Mapping[str, Vector]) -> None:
        """Continue from a ``state()``."""
