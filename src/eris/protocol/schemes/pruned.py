"""PriPrune: clients withhold the coordinates of their updates that give most away."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from eris.core.exact_clip import Content
from eris.core.prune import Prune
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
class Pruned(Scheme):
    """What ``prune`` withholds stays at the client; the rest travels with a bitmap."""

    prune: Prune
    name: ClassVar[str] = "pruned"

    @property
    def lasting(self) -> str:  # type: ignore[override]
        """Why clients must be the same in all rounds, if they must."""
        return "clients keep what they withheld" if self.prune.pseudo else ""

    def check(self, settings: Settings) -> None:
        """Refuse what does not go together with this scheme."""
        refuse_order_statistics(settings)

    def at(self, agreement: Agreement) -> Coding:
        """This scheme at work."""
        return PruneCoding(self, agreement, self.prune)

    def __str__(self) -> str:
        return str(self.prune)


class PruneCoding(Coding):
    """Pruning at work."""

    def __init__(self, scheme: Scheme, agreement: Agreement, prune: Prune) -> None:
        super().__init__(scheme, agreement)
        self.prune = prune

    def sender(self, me: int, vault: Vault | None = None) -> Sender:
        """A client's half."""
        return PruneSender(self, me, self.prune)

    def encode(self, piece: Vector, segment: Segment, round: int, client: int) -> Payload:
        """What travels of a segment."""
        return Payload(self.prune.encode(piece, Stream(0, "unused")))

    def read(self, contribution: Contribution, segment: Segment) -> Vector:
        """What whoever holds a contribution can read: zeros where nothing travelled."""
        return self.prune.decode(contribution.payload.encoded, segment.size)


class PruneSender(Sender):
    """A client that withholds and, with pseudo-pruning, goes on training what it withheld."""

    def __init__(self, coding: Coding, me: int, prune: Prune) -> None:
        super().__init__(coding, me)
        self._prune = prune
        self._retained: Vector | None = None
        """What pseudo-pruning keeps of the local model; NaN where it keeps nothing."""

    def training_model(self, model: Vector) -> Vector:
        """The federation's model, and what was withheld of the own."""
        if self._retained is None:
            return model
        # A step beyond float32 retains nothing: the client would never recover from it.
        return np.where(np.isfinite(self._retained), self._retained, model)

    def prepare(
        self, update: Vector, samples: int, steps: int, round: int, replica: Replica,
        content: Content | None = None,
    ) -> dict[Key, Vector]:  # fmt: skip
        """By segment: the values that are sent of an update."""
        # Before the steps are divided out: the local model moved by all of them.
        withheld = self._prune.withheld(update)
        sent = np.where(withheld, np.float32(0), update)
        pieces = super().prepare(sent, samples, steps, round, replica)
        if self._prune.pseudo:
            rate = np.float32(self.agreement.settings.rule.learning_rate)
            trained = self.training_model(replica.model) - rate * update
            self._retained = np.where(withheld, trained, np.float32(np.nan))
        return pieces

    def state(self) -> dict[str, Vector]:
        """What only this client knows, at the end of a round."""
        return {} if self._retained is None else {"retained": self._retained}

    def restore(self, state: Mapping[str, Vector]) -> None:
        """Continue from a ``state()``."""
        self._retained = state.get("retained")
