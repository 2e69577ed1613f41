"""Quantisers: each segment in few bits a coordinate; results are means in full precision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from eris.core.combine import bounded
from eris.core.compress import Quantiser
from eris.core.errors import RefusedContribution
from eris.core.exact_clip import Content
from eris.core.shift import shift_step
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.protocol.messages import Contribution, Payload
from eris.protocol.schemes.masked import refuse_order_statistics
from eris.protocol.schemes.scheme import Coding, Scheme, Sender

if TYPE_CHECKING:
    from eris.protocol.agreement import Agreement, Key, Segment
    from eris.protocol.round.replica import Replica
    from eris.protocol.secure.vault import Vault
    from eris.protocol.settings import Settings


@dataclass(frozen=True)
class Quantised(Scheme):
    """QSGD, uniform or natural quantisation; ``shift`` quantises differences (DSC)."""

    compressor: Quantiser
    shift: bool = True
    name: ClassVar[str] = "quantised"

    @property
    def shifted(self) -> bool:
        """Whether differences to a reference travel."""
        return self.shift

    def check(self, settings: Settings) -> None:
        """Refuse what does not go together with this scheme."""
        refuse_order_statistics(settings)

    def at(self, agreement: Agreement) -> Coding:
        """This scheme at work."""
        return QuantiseCoding(self, agreement, self.compressor)

    def __str__(self) -> str:
        return str(self.compressor)


class QuantiseCoding(Coding):
    """A quantiser at work: its scale and its draws belong to a segment."""

    def __init__(self, scheme: Scheme, agreement: Agreement, compressor: Quantiser) -> None:
        super().__init__(scheme, agreement)
        self.compressor = compressor

    def sender(self, me: int, vault: Vault | None = None) -> Sender:
        """A client's half."""
        return QuantiseSender(self, me, self.compressor)

    def encode(self, piece: Vector, segment: Segment, round: int, client: int) -> Payload:
        """What travels of a segment."""
        settings = self.agreement.settings
        # A quantiser makes numbers of what is none, so the check is made before it.
        name = self.agreement.view.members[client]
        piece = bounded(piece, name, settings.precision, settings.non_finite)
        purpose = f"quantise/{segment.number}"
        draw = Stream(settings.seed, purpose, round, client, segment.shard)
        return Payload(self.compressor.encode(piece, draw))

    def read(self, contribution: Contribution, segment: Segment) -> Vector:
        """What whoever holds a contribution can read: the values that the codes stand for."""
        return self.compressor.decode(contribution.payload.encoded, segment.size)

    def gamma(self, segment: Segment) -> float:
        """The step γ of the reference."""
        return shift_step(self.compressor.omega(max(1, segment.size)))


class QuantiseSender(Sender):
    """A client that quantises: what is drawn must stay in range, too."""

    def __init__(self, coding: Coding, me: int, compressor: Quantiser) -> None:
        super().__init__(coding, me)
        self._compressor = compressor

    def prepare(
        self, update: Vector, samples: int, steps: int, round: int, replica: Replica,
        content: Content | None = None,
    ) -> dict[Key, Vector]:  # fmt: skip
        """By segment: the values that are sent of an update, refused if any may be out of range."""
        pieces = super().prepare(update, samples, steps, round, replica)
        settings = self.agreement.settings
        limit = settings.precision.value_range
        for piece in pieces.values() if settings.non_finite == "refuse" else ():
            if (reach := self._compressor.reach(piece)) > limit:
                reason = f"quantised, its values are up to {reach:g}, beyond ±{limit:g}"
                raise RefusedContribution(self.name, reason)
        return pieces
