"""Encrypted sums at work, whatever is encrypted: labels, scales, and the law of the set.

:class:`Encrypted` is what members agree on, :class:`EncryptingCoding` what follows from it in a
federation. A scheme says how a segment becomes ciphertexts, and how their sums are opened.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal

from eris.core.errors import ErisError, InvalidSetting
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.protocol.enccluster.collecting import KeyDesk
from eris.protocol.enccluster.encrypt import ClientScalars
from eris.protocol.enccluster.labels import BookLabel, federation_name
from eris.protocol.enccluster.logarithms import REACH, Integers, LogarithmTable, built_table
from eris.protocol.enccluster.mapped import Box
from eris.protocol.enccluster.opening import ReceivedBook
from eris.protocol.enccluster.scale import MOST_SAMPLES, CentroidScale
from eris.protocol.enccluster.sending import EncryptingSender
from eris.protocol.enccluster.sets import SetLaw
from eris.protocol.round.replying import Replying
from eris.protocol.schemes.halves import Answering, Tables
from eris.protocol.schemes.masked import refuse_order_statistics
from eris.protocol.schemes.scheme import Desk, Scheme, Sender
from eris.protocol.schemes.weights import Travelling, WeightCoding

if TYPE_CHECKING:
    from eris.protocol.agreement import Agreement, Segment
    from eris.protocol.messages import Contribution
    from eris.protocol.round.replica import Replica
    from eris.protocol.secure.vault import Vault
    from eris.protocol.settings import Settings
    from eris.protocol.view import View

Average = Literal["samples", "plain"]
MOST_RANGE = 2 - 2**-10
"""W that a table of 2²¹ has room for at 20 bits of fraction, for 2,048 clients."""


@dataclass(frozen=True)
class Encrypted(Scheme):
    """Sums of encrypted integers: x·2^``fraction_bits``, |x| at most ``weight_range``.

    ``average`` weighs clients by the samples that the view declares, or all alike. ``colluders``
    clients may be on an owner's side besides itself: the law of the set follows from that.
    """

    weight_range: float = MOST_RANGE
    fraction_bits: int = 20
    average: Average = "samples"
    colluders: int = 1
    whole_shards: ClassVar[bool] = True
    keyed: ClassVar[bool] = True
    in_step: ClassVar[str] = "nodes do not carry encrypted sums yet"

    def __post_init__(self) -> None:
        if self.average not in ("samples", "plain"):
            raise InvalidSetting("average", self.average, "one of samples, plain")
        CentroidScale(1, 1, self.weight_range, self.fraction_bits)  # refuses what is out of range
        SetLaw(1 << 20, self.colluders)

    @property
    def weighed(self) -> bool:
        """Whether a view declares every client's samples: they scale what is encrypted."""
        return self.average == "samples"

    @property
    def lasting(self) -> str:  # type: ignore[override]
        """Why clients must be the same in all rounds, if they must."""
        if self.average == "plain":
            return ""
        return "a client's part of the sum follows from the view's samples (average=plain has none)"

    def check(self, settings: Settings) -> None:
        """Refuse what does not go together with this scheme."""
        refuse_order_statistics(settings)

    def check_view(self, view: View) -> None:
        """Refuse a view in which no set could be opened, or clients have no weights."""
        for owner in set(view.owners):
            SetLaw(len(view.clients), self.colluders, owner in view.client_set)
        if self.average == "samples" and view.samples is None:
            expected = "one for each client: they scale what is encrypted (or average=plain)"
            raise InvalidSetting("samples", None, expected)
        if self.average == "samples" and max(view.samples or (1,)) > MOST_SAMPLES:
            expected = f"at most {MOST_SAMPLES} of a client"
            raise InvalidSetting("samples", max(view.samples or (1,)), expected)


@dataclass(frozen=True)
class SealedSegment:
    """What a client sends of a segment, and what it keeps to give a share of it."""

    data: bytes
    """All that travels."""
    ciphertexts: bytes
    mapping: bytes
    scalars: ClientScalars


@dataclass(frozen=True, eq=False)
class ReceivedSegment:
    """A contribution as its owner reads it."""

    book: ReceivedBook
    ciphertexts: bytes
    mapping: bytes


class EncryptingCoding(WeightCoding):
    """Encrypted sums at work in one federation."""

    asks: ClassVar[int] = 1
    slots: ClassVar[int] = 1
    """w"""

    def __init__(self, terms: Encrypted, agreement: Agreement, travelling: Travelling) -> None:
        super().__init__(terms, agreement, travelling)
        self.terms = terms
        self._tables: Tables = built_table
        if min(segment.size for segment in agreement.segments(1).values()) < 2:
            expected = "another one: a segment would have fewer than 2 weights"
            raise InvalidSetting("segment_size", agreement.settings.segment_size, expected)
        self.scale(1)  # refuses a range that logarithms do not reach

    # -- what a scheme says -------------------------------------------------------------------

    @abstractmethod
    def sealed(
        self, values: Vector, samples: int, segment: Segment, label: BookLabel, box: Box,
        draw: Callable[[], tuple[bytes, bytes]],
    ) -> SealedSegment:  # fmt: skip
        """The ciphertexts of a segment; ``draw`` gives the process's secret, and fresh bytes."""

    @abstractmethod
    def received(self, client: int, data: bytes, segment: Segment, box: Box) -> ReceivedSegment:
        """What a contribution holds, or a refusal by name."""

    @abstractmethod
    def opened(
        self, books: Sequence[ReceivedBook], key: Sequence[int], label: BookLabel,
        table: LogarithmTable, bound: int,
    ) -> Integers:  # fmt: skip
        """The sums of all coordinates."""

    # -- what follows -------------------------------------------------------------------------

    @cached_property
    def federation(self) -> bytes:
        """32 bytes that no other federation has; the founding's nonce is a simulation's."""
        settings = self.agreement.settings
        nonce = Stream(settings.seed, "founding").words(0, 8).tobytes()
        model = bytes.fromhex(settings.initial) or bytes(32)
        return federation_name(settings.canonical.encode(), model, nonce)

    def label(self, round: int, segment: Segment) -> BookLabel:
        """Of the one codebook of a segment and round."""
        epoch = self.agreement.view_at(round).epoch
        return BookLabel(self.federation, epoch, round, segment.shard, segment.number)

    def weight(self, samples: int) -> int:
        """S_i: what a client counts with this many samples."""
        return samples if self.terms.average == "samples" else 1

    def scale(self, round: int) -> CentroidScale:
        """How weights become integers in a round."""
        view, terms = self.agreement.view_at(round), self.terms
        count = len(view.clients)
        total = count if terms.average == "plain" else sum(view.samples or ())
        return CentroidScale(count, total, terms.weight_range, terms.fraction_bits)

    @property
    def largest_weight(self) -> float:
        """No weight that travels is larger in magnitude."""
        return max(super().largest_weight, self.terms.weight_range)

    def law(self, round: int, shard: int) -> SetLaw:
        """How many clients a set must have."""
        view = self.agreement.view_at(round)
        owner_trains = view.owners[shard] in view.client_set
        least = self.agreement.enough(round)
        return SetLaw(len(view.clients), self.terms.colluders, owner_trains, least)

    def table(self, bound: int) -> LogarithmTable:
        """In which sums of at most ``bound`` are looked up."""
        return self._tables(min(REACH, 1 << (bound - 1).bit_length()))

    def equip(self, tables: Tables) -> None:
        """Take what a runtime has for owners that look logarithms up."""
        self._tables = tables

    def check_declared(self, client: int, samples: int, round: int) -> None:
        """Refuse more samples than the view declares: sums have room for those."""
        view = self.agreement.view_at(round)
        if self.terms.average == "plain" or view.samples is None:
            return
        declared = view.samples[view.clients.index(client)]
        if samples > declared:
            expected = f"at most the {declared} that were declared"
            raise InvalidSetting(f"samples of {view.members[client]}", samples, expected)

    def check_weight(self, contribution: Contribution) -> None:
        """Refuse a weight that cannot be a client's."""
        super().check_weight(contribution)
        header = contribution.header
        self.check_declared(header.sender, contribution.samples, header.round)

    def read(self, contribution: Contribution, segment: Segment) -> Vector:
        """What whoever holds a contribution can read: no value of it, by decryption."""
        raise ErisError("a single contribution is encrypted: no key opens it alone")

    # -- the halves ---------------------------------------------------------------------------

    def sender(self, me: int, vault: Vault | None = None) -> Sender:
        """A client's half."""
        assert vault is not None
        return EncryptingSender(self, me, vault)

    def desk(self, me: int, replica: Replica, vault: Vault | None = None) -> Desk:
        """What an owner's collectors have in common."""
        assert vault is not None
        return KeyDesk(self, me, replica, vault)

    def answering(
        self, me: int, replica: Replica, vault: Vault | None, sender: Sender | None
    ) -> Answering | None:
        """Clients answer about what they sent."""
        return None if sender is None else Replying(self.agreement, me, sender)
