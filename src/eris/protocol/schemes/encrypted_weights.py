"""DeTrust-FL: every weight encrypted, under a pad of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from eris.core.errors import RefusedContribution
from eris.core.vectors import Vector
from eris.protocol.enccluster.coding import (
    Encrypted,
    EncryptingCoding,
    ReceivedSegment,
    SealedSegment,
)
from eris.protocol.enccluster.content import content
from eris.protocol.enccluster.encrypt import ClientScalars, encrypt_each
from eris.protocol.enccluster.labels import BookLabel, UnusableFresh
from eris.protocol.enccluster.logarithms import Integers, LogarithmTable
from eris.protocol.enccluster.mapped import Box
from eris.protocol.enccluster.opening import ReceivedBook, open_each
from eris.protocol.enccluster.scale import CentroidScale
from eris.protocol.schemes.scheme import Coding

if TYPE_CHECKING:
    from eris.protocol.agreement import Agreement, Segment


@dataclass(frozen=True)
class EncryptedWeights(Encrypted):
    """A ciphertext of 33 bytes a weight; there is no mapping, and no short way to open sums."""

    name: ClassVar[str] = "detrust"

    @property
    def relative(self) -> bool:
        """Whether what travels is an update only beside the state that it was trained from."""
        return True

    def at(self, agreement: Agreement) -> Coding:
        """This scheme at work."""
        return EncryptedWeightCoding(self, agreement, "weights")

    def __str__(self) -> str:
        return "every weight encrypted"


class EncryptedWeightCoding(EncryptingCoding):
    """DeTrust-FL at work: two scalars a segment, which meet two points a weight."""

    slots: ClassVar[int] = 2

    def sealed(
        self, values: Vector, samples: int, segment: Segment, label: BookLabel, box: Box,
        draw: Callable[[], tuple[bytes, bytes]],
    ) -> SealedSegment:  # fmt: skip
        """The ciphertexts of all weights."""
        messages = self.scale(label.round).scaled(values, samples, box.client).tolist()
        said = content(messages)
        while True:
            try:
                scalars = ClientScalars.drawn(*draw(), label, said, self.slots)
                ciphertexts = encrypt_each(messages, label, scalars)
                return SealedSegment(ciphertexts, (ciphertexts,), b"", (scalars,))
            except UnusableFresh:  # with probability 2^−250
                continue

    def integers(
        self, values: Vector, samples: int, scale: CentroidScale, segment: Segment, client: int
    ) -> Integers:
        """Of every coordinate its own."""
        return scale.scaled(values, samples, client)

    def received(self, client: int, data: bytes, segment: Segment, box: Box) -> ReceivedSegment:
        """What a contribution holds, or a refusal by name."""
        try:
            book = ReceivedBook.read_each(client, data, segment.size)
            return ReceivedSegment((book,), (data,), b"")
        except RefusedContribution as refused:
            name = self.agreement.view.members[client]
            raise RefusedContribution(name, refused.reason) from None

    def opened(
        self, books: Sequence[ReceivedBook], key: Sequence[int], label: BookLabel,
        table: LogarithmTable, bound: int,
    ) -> Integers:  # fmt: skip
        """The sums of all coordinates, each by a logarithm."""
        return open_each(books, key, label, table, bound)
