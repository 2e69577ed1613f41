"""Encrypted sums at work, whatever is encrypted: labels, scales, and the law of the set.

:class:`Encrypted` is what members agree on, :class:`EncryptingCoding` what follows from it in a
federation. A scheme says how a segment becomes ciphertexts, and how their sums are opened.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from eris.core.errors import ErisError, InvalidSetting, require
from eris.core.rules import ServerRule
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.protocol.enccluster.collecting import KeyDesk
from eris.protocol.enccluster.encrypt import ClientScalars
from eris.protocol.enccluster.labels import BookLabel, federation_name
from eris.protocol.enccluster.logarithms import REACH, Integers, LogarithmTable, built_table
from eris.protocol.enccluster.mapped import Box
from eris.protocol.enccluster.opening import ReceivedBook
from eris.protocol.enccluster.scale import CentroidScale
from eris.protocol.enccluster.sending import EncryptingSender
from eris.protocol.enccluster.sets import SetLaw
from eris.protocol.round.replying import Replying
from eris.protocol.schemes import declared
from eris.protocol.schemes.collector import Desk
from eris.protocol.schemes.declared import Average
from eris.protocol.schemes.halves import Answering, Tables
from eris.protocol.schemes.layers import check_layers, place
from eris.protocol.schemes.masked import refuse_order_statistics
from eris.protocol.schemes.scheme import Scheme, Sender
from eris.protocol.schemes.weights import Travelling, WeightCoding

if TYPE_CHECKING:
    from eris.protocol.agreement import Agreement, Segment
    from eris.protocol.messages import Contribution
    from eris.protocol.round.replica import Replica
    from eris.protocol.secure.vault import Vault
    from eris.protocol.settings import Settings
    from eris.protocol.view import View

MOST_RANGE = 2 - 2**-10
"""W that a table of 2²¹ has room for at 20 bits of fraction, for 2,048 clients."""


@dataclass(frozen=True)
class Encrypted(Scheme):
    """Sums of encrypted integers: x·2^``fraction_bits``, |x| at most ``weight_range``.

    ``average`` weighs clients by the samples that the view declares, or all alike. ``colluders``
    clients may be on an owner's side besides itself: the law of the set follows from that. Who was
    in ``strikes`` sets in a row and gave no share is left out of as many rounds by their owner.
    ``layers`` are the sizes of the model's layers, if they are known.
    """

    weight_range: float = MOST_RANGE
    fraction_bits: int = 20
    average: Average = "samples"
    colluders: int = 1
    strikes: int = 2
    layers: tuple[int, ...] = field(default=(), kw_only=True)
    whole_shards: ClassVar[bool] = True
    keyed: ClassVar[bool] = True
    value_bytes: ClassVar[int] = 33
    slow: ClassVar[bool] = True

    def __post_init__(self) -> None:
        declared.check_average(self.average)
        CentroidScale(1, 1, self.weight_range, self.fraction_bits)  # refuses what is out of range
        SetLaw(1 << 20, self.colluders)
        require(self.strikes >= 1, "strikes", self.strikes, "at least 1")

    @property
    def weighed(self) -> bool:
        """Whether a view declares every client's samples: they scale what is encrypted."""
        return self.average == "samples"

    def reach(self, clients: int) -> int:
        """How far the logarithms of sums over so many clients go, as a power of two."""
        bound = CentroidScale(clients, clients, self.weight_range, self.fraction_bits).bound
        return min(REACH, 1 << (bound - 1).bit_length())

    def rehearsed(self) -> Scheme:
        """The same with so little to do that a small model is enough to try it on."""
        return replace(self, weight_range=1024.0, fraction_bits=1, layers=())

    @property
    def lasting(self) -> str:  # type: ignore[override]
        """Why clients must be the same in all rounds, if they must."""
        return declared.why_lasting(self.average)

    def fitted(self, rule: ServerRule, initial: Vector, layers: tuple[int, ...] = ()) -> Scheme:
        """With the model's layers."""
        return replace(self, layers=layers or self.layers)

    def check(self, settings: Settings) -> None:
        """Refuse what does not go together with this scheme."""
        refuse_order_statistics(settings)
        check_layers(self.layers, settings.n)

    def check_view(self, view: View) -> None:
        """Refuse a view in which no set could be opened, or clients have no weights."""
        for owner in set(view.owners):
            SetLaw(len(view.clients), self.colluders, owner in view.client_set)
        declared.check_samples(self.average, view)


@dataclass(frozen=True)
class SealedSegment:
    """What a client sends of a segment, and what it keeps to give a share of it."""

    data: bytes
    """All that travels."""
    ciphertexts: tuple[bytes, ...]
    """Of each codebook."""
    mapping: bytes
    scalars: tuple[ClientScalars, ...]


@dataclass(frozen=True, eq=False)
class ReceivedSegment:
    """A contribution as its owner reads it."""

    books: tuple[ReceivedBook, ...]
    ciphertexts: tuple[bytes, ...]
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
    def integers(
        self, values: Vector, samples: int, scale: CentroidScale, segment: Segment, client: int
    ) -> Integers:
        """What a client's segment adds to a sum, in the clear: a number a coordinate."""

    @abstractmethod
    def received(self, client: int, data: bytes, segment: Segment, box: Box) -> ReceivedSegment:
        """What a contribution holds, or a refusal by name."""

    @abstractmethod
    def opened(
        self, books: Sequence[ReceivedBook], key: Sequence[int], label: BookLabel,
        table: LogarithmTable, bound: int,
    ) -> Integers:  # fmt: skip
        """The sums of all coordinates of a codebook."""

    def examine(self, piece: Vector, segment: Segment, client: int) -> None:
        """Refuse a segment that could not be encrypted, before anything of its update leaves."""

    def codebooks(self, segment: Segment) -> int:
        """Of a segment: what is encrypted for one opens with no other's key."""
        return 1

    # -- what follows -------------------------------------------------------------------------

    @cached_property
    def federation(self) -> bytes:
        """32 bytes that no other federation has: what was drawn at the founding is in them."""
        settings = self.agreement.settings
        nonce = self.agreement.founding or Stream(settings.seed, "founding").words(0, 8).tobytes()
        model = bytes.fromhex(settings.initial) or bytes(32)
        return federation_name(settings.canonical.encode(), model, nonce)

    def label(self, round: int, segment: Segment) -> BookLabel:
        """Of the first codebook of a segment and round."""
        epoch = self.agreement.view_at(round).epoch
        return BookLabel(self.federation, epoch, round, segment.shard, segment.number)

    def place(self, coordinate: int) -> str:
        """What a coordinate of the model is called."""
        return place(coordinate, self.terms.layers)

    def weight(self, samples: int) -> int:
        """S_i: what a client counts with this many samples."""
        return declared.weight_of(self.terms.average, samples)

    def scale(self, round: int) -> CentroidScale:
        """How weights become integers in a round."""
        view, terms = self.agreement.view_at(round), self.terms
        total = declared.reference_of(terms.average, view)
        return CentroidScale(len(view.clients), total, terms.weight_range, terms.fraction_bits)

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

    def openable(self, round: int, shard: int) -> bool:
        """Whether a set of a shard can be opened in a round: its owner's keys are known, and the
        view has clients enough for the law of the set."""
        view = self.agreement.view_at(round)
        if view.seating is None or view.owners[shard] not in view.seating.known:
            return False
        try:
            return self.law(round, shard).least <= len(view.clients)
        except InvalidSetting:
            return False

    def table(self, round: int) -> LogarithmTable:
        """In which sums of a round are looked up."""
        return self._tables(self.terms.reach(len(self.agreement.view_at(round).clients)))

    def equip(self, tables: Tables) -> None:
        """Take what a runtime has for owners that look logarithms up."""
        self._tables = tables

    def check_declared(self, client: int, samples: int, round: int) -> None:
        """Refuse more samples than the view declares: sums have room for those."""
        view = self.agreement.view_at(round)
        declared.check_declared(self.terms.average, view, client, samples)

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
