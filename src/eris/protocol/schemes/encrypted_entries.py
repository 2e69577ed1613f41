"""SEFL: the largest entries of an update under Paillier, with a private key that all clients have.

An entry is rint(x·2^f)·samples, as in the plain mean (:mod:`eris.core.combine`), so that what is
published is the same bits. The owner multiplies ciphertexts and has one of the clients open the
products: it has no private key, and the others need not be there for it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray

from eris.core import kernels
from eris.core.books import Books
from eris.core.codings import pack_index, unpack_index
from eris.core.combine import LIMB_BITS, VALUE_BITS, bounded
from eris.core.compress import Encoded, Encoding
from eris.core.errors import ErisError, InvalidSetting, MalformedMessage, require
from eris.core.exact_clip import Content
from eris.core.prune import largest
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.protocol.enccluster.paillier import SECURITY, Entropy, Packing, PaillierKey, PaillierPair
from eris.protocol.messages import Contribution, Payload, RevealRequest
from eris.protocol.round.replying import Replying
from eris.protocol.schemes.collector import Asking, Collector, Desk
from eris.protocol.schemes.halves import Answering
from eris.protocol.schemes.masked import refuse_order_statistics
from eris.protocol.schemes.scheme import Coding, Scheme, Sender
from eris.protocol.secure.labels import derived, digest, label, prf

if TYPE_CHECKING:
    from eris.protocol.agreement import Agreement, Key, Segment
    from eris.protocol.round.replica import Replica
    from eris.protocol.secure.vault import Vault
    from eris.protocol.settings import Settings
    from eris.protocol.view import View

COMMON_KEY = (
    "SEFL's clients have one private key in common: whoever of them meets what another client "
    "sends to the server can open it, and a server that one client helps can open everything."
)
NO_KEY = (
    "A Paillier key of {} bits is factored on a laptop: it is here to compare with published "
    "figures, and hides nothing."
)
MOST_BYTES = 32 << 20
"""Of a segment's ciphertexts, where settings do not say how long a segment is."""
MOST_SAMPLES = (1 << LIMB_BITS) - 1
"""Of all clients together: a sum then fits 64 bits."""


@dataclass(frozen=True)
class EncryptedEntries(Scheme):
    """The share ``kept_fraction`` of largest magnitudes under a Paillier key of ``key_bits``.

    With ``packing`` as many entries as fit share a ciphertext; all coordinates then travel, those
    that are not kept as 0, and no indices.
    """

    kept_fraction: float = 0.3
    key_bits: int = 3072
    packing: bool = False
    name: ClassVar[str] = "sefl"
    keyed: ClassVar[bool] = True
    in_step: ClassVar[str] = "nodes have no way to a private key that all clients share"

    def __post_init__(self) -> None:
        inside = 0 < self.kept_fraction <= 1
        require(inside, "kept_fraction", self.kept_fraction, "a number in (0, 1]")
        if self.key_bits not in SECURITY:
            expected = f"one of {', '.join(map(str, SECURITY))}"
            raise InvalidSetting("key_bits", self.key_bits, expected)

    @property
    def unread(self) -> str:
        """What contributions tell whoever gets them that no observer here reads yet, if any."""
        return (
            "what a client opens of others' contributions by the common key is not read yet, and "
            "figures without it would be too low"
        )

    def kept_share(self, n: int) -> float:
        """The share of ``n`` coordinates that a client sends."""
        return self.kept_count(n) / n

    def kept_count(self, n: int) -> int:
        """Entries that are kept of an update."""
        return max(1, round(self.kept_fraction * n))

    @property
    def longest_segment(self) -> int:  # type: ignore[override]
        """Coordinates of a segment whose ciphertexts still fit a message."""
        each = 1 if not self.packing else Packing.of(self.key_bits).places
        return MOST_BYTES // (self.key_bits // 4) * each

    def exposure(self) -> str:
        """What it does not hide, where a user might think that it does."""
        insecure = "" if SECURITY[self.key_bits] else " " + NO_KEY.format(self.key_bits)
        return COMMON_KEY + insecure

    def check(self, settings: Settings) -> None:
        """Refuse what does not go together with this scheme."""
        refuse_order_statistics(settings)
        size = settings.segment_size
        if size is not None and size > self.longest_segment:
            expected = f"at most {self.longest_segment}: its ciphertexts must fit a message"
            raise InvalidSetting("segment_size", size, expected)

    def check_view(self, view: View) -> None:
        """Refuse an owner that has the clients' private key."""
        for owner in set(view.owners) & view.client_set:
            expected = "not a client: it would have the key of all contributions to it"
            raise InvalidSetting(f"owner {view.members[owner]}", "a client", expected)

    def at(self, agreement: Agreement) -> Coding:
        """This scheme at work."""
        return EntryCoding(self, agreement)

    def __str__(self) -> str:
        packed = ", packed" if self.packing else ""
        return f"{self.kept_fraction:g} of all entries under Paillier, {self.key_bits} bits{packed}"


@lru_cache(4)
def _simulated(seed: int, key_bits: int) -> PaillierPair:
    """The clients' key in a simulation: it follows from the run's seed, and protects nothing."""
    stream, used = Stream(seed, "paillier"), 0

    def entropy(count: int) -> bytes:
        nonlocal used
        words = -(-count // 4)
        used += words
        return stream.words(used - words, words).tobytes()[:count]

    return PaillierPair.drawn(key_bits, entropy)


class EntryCoding(Coding):
    """SEFL at work in one federation."""

    asks: ClassVar[int] = 1

    def __init__(self, terms: EncryptedEntries, agreement: Agreement) -> None:
        super().__init__(terms, agreement)
        self.terms = terms
        self.packing = Packing.of(terms.key_bits) if terms.packing else None

    @cached_property
    def pair(self) -> PaillierPair:
        """The clients' common key; what an owner uses is :attr:`public`."""
        return _simulated(self.agreement.settings.seed, self.terms.key_bits)

    @property
    def public(self) -> PaillierKey:
        """What of it an owner has."""
        return self.pair.public

    @property
    def fraction_bits(self) -> int:
        """f"""
        return self.agreement.settings.precision.fraction_bits

    def check_samples(self, client: int, samples: int, round: int) -> None:
        """Refuse more than a client's part of what sums have room for."""
        most = MOST_SAMPLES // len(self.agreement.view_at(round).clients)
        name = f"samples of {self.agreement.view.members[client]}"
        require(samples <= most, name, samples, f"at most {most}: sums have 64 bits")

    def check_weight(self, contribution: Contribution) -> None:
        """Refuse a weight that cannot be a client's."""
        super().check_weight(contribution)
        header = contribution.header
        self.check_samples(header.sender, contribution.samples, header.round)

    def read(self, contribution: Contribution, segment: Segment) -> Vector:
        """What whoever holds a contribution can read: no value of it, without the key."""
        raise ErisError("a contribution is encrypted: only clients have the key")

    # -- bytes --------------------------------------------------------------------------------

    def sealed(self, values: Vector, samples: int, entropy: Entropy) -> bytes:
        """What travels of a segment: which entries are kept, and their ciphertexts."""
        scaled = np.rint(values.astype(np.float64) * 2.0**self.fraction_bits).astype(np.int64)
        if self.packing is not None:
            words = self.packing.join([samples * value for value in scaled.tolist()])
            return self.public.write(self.public.encrypt(words, entropy))
        kept = values != 0
        bitmap = pack_index(kept.astype(np.uint16), _bitmap(len(values)))
        entries = [samples * value for value in scaled[kept].tolist()]
        return bitmap + self.public.write(self.public.encrypt(entries, entropy))

    def received(self, data: bytes, size: int) -> tuple[NDArray[np.int64], list[Any]]:
        """The places among a segment's sums, and a ciphertext for each."""
        if self.packing is not None:
            expected = self.packing.count(size)
            found = self.public.read("payload.data", data, expected)
            places = np.arange(expected)
        else:
            start = -(-size // 8)
            kept = unpack_index(data[:start], _bitmap(size)).astype(bool)
            places = np.flatnonzero(kept)
            found = self.public.read("payload.data", data[start:], len(places))
        if len(found) != len(places):
            reason = f"has {len(found)} ciphertexts; expected {len(places)}"
            raise MalformedMessage("payload.data", reason)
        return places, found

    def opened(self, data: bytes, size: int) -> list[int]:
        """A client's part: the sums in an owner's products."""
        most = size if self.packing is None else self.packing.count(size)
        found = self.pair.decrypt(self.public.read("reveal request", data, most))
        if self.packing is not None:
            found = self.packing.split(found, size)
        for at, value in enumerate(found):
            if not abs(value) < 1 << 63:
                raise MalformedMessage("reveal request", f"sum {at} is beyond 64 bits")
        return found

    # -- the halves ---------------------------------------------------------------------------

    def sender(self, me: int, vault: Vault | None = None) -> Sender:
        """A client's half."""
        assert vault is not None
        return EntrySender(self, me, vault)

    def desk(self, me: int, replica: Replica, vault: Vault | None = None) -> Desk:
        """What an owner's collectors have in common."""
        return EntryDesk(self, replica)

    def answering(
        self, me: int, replica: Replica, vault: Vault | None, sender: Sender | None
    ) -> Answering | None:
        """Clients open sums."""
        return None if sender is None else Replying(self.agreement, me, sender)


def _bitmap(size: int) -> Books:
    return Books((size,), (2,))


class EntrySender(Sender):
    """A client that encrypts the largest entries of its update, and opens sums for an owner."""

    coding: EntryCoding

    def __init__(self, coding: EntryCoding, me: int, vault: Vault) -> None:
        super().__init__(coding, me)
        self._vault = vault
        self._samples = 0
        self._asked: dict[tuple[int, Key], bytes] = {}
        """What was sent and has no result: which sums this client was asked to open of it."""

    def check_weight(self, samples: int, steps: int, round: int) -> None:
        """Refuse what cannot be this client's weight."""
        super().check_weight(samples, steps, round)
        self.coding.check_samples(self.me, samples, round)

    def prepare(
        self, update: Vector, samples: int, steps: int, round: int, replica: Replica,
        content: Content | None = None,
    ) -> dict[Key, Vector]:  # fmt: skip
        """By segment: the largest entries of an update, and zeros."""
        # NaN counts as the most: what is no number is refused, not left out.
        sizes: Vector = np.nan_to_num(np.abs(update), nan=np.inf)
        kept = largest(sizes, self.coding.terms.kept_count(len(update)))
        sent = np.where(kept, update, np.float32(0))
        pieces = super().prepare(sent, samples, steps, round, replica)
        self._samples = samples
        return pieces

    def payload(self, piece: Vector, segment: Segment, round: int, based_on: int) -> Payload:
        """What travels of a segment."""
        settings = self.agreement.settings
        values = bounded(piece, self.name, settings.precision, settings.non_finite)
        data = b""
        if len(values):
            data = self.coding.sealed(values, self._samples, self._entropy(values, segment, round))
        self._asked.setdefault((round, segment.key), b"")
        return Payload(Encoded(Encoding.CIPHERTEXTS, len(piece), data))

    def _entropy(self, values: Vector, segment: Segment, round: int) -> Entropy:
        """Randomness of one contribution, bound to what is in it: a client that was brought back
        from an old state and encrypts something else does so with other randomness."""
        secret = self._vault.newest.process_secret + self._vault.fresh(round)
        place = label("paillier", self.agreement.settings.fingerprint, round, *segment.key)
        said = digest(values.astype("<f4").tobytes(), self._samples.to_bytes(8, "big"))
        key = derived(prf(b"eris-sefl-v1", secret), place + said, 32)
        stream = Cipher(AES(key), CTR(bytes(16))).encryptor()
        return lambda count: stream.update(bytes(count))

    def over(self, round: int, key: Key) -> None:
        """What was sent of a segment in a round has its result."""
        self._asked.pop((round, key), None)

    def reveal(self, request: RevealRequest, permitted: bool = True) -> bytes:
        """The sums over a set that this client is in, once for each segment and round."""
        round, key = request.header.round, request.header.key
        segment = self.agreement.segments(round).get(key)
        if segment is None or (round, key) not in self._asked or self.me not in request.included:
            raise ErisError("this client has nothing in the sums that it is asked to open")
        clients = request.included & self.agreement.view_at(round).client_set
        least = self.agreement.enough(round)
        if len(clients) < least:
            raise ErisError(f"sums of {len(clients)} clients; at least {least} are agreed")
        asked = hashlib.sha256(request.data).digest()
        opened = self._asked[round, key]
        if opened != asked and (opened or not permitted):
            raise ErisError("this client has opened other sums of that segment and round")
        self._asked[round, key] = asked
        return np.array(self.coding.opened(request.data, segment.size), ">i8").tobytes()


class EntryDesk(Desk):
    """What one owner's collectors have in common."""

    def __init__(self, coding: EntryCoding, replica: Replica) -> None:
        super().__init__(coding.agreement, replica)
        self.coding = coding

    def collector(self, round: int, segment: Segment) -> Collector:
        """An owner's half, for one segment and round."""
        return EntryCollector(self, round, segment)


class EntryCollector(Collector):
    """One segment and round of an owner that multiplies ciphertexts."""

    def __init__(self, desk: EntryDesk, round: int, segment: Segment) -> None:
        self._desk, self._round, self._segment = desk, round, segment
        self._entries = desk.coding
        self._sums: dict[int, Any] = {}
        """By place: the product of ciphertexts."""
        self._included: set[int] = set()
        self._weight = self.sample_steps = 0
        self._silent: list[int] = []
        """Who has not been asked."""
        self._data = b""

    @property
    def included(self) -> AbstractSet[int]:
        """Whose contributions are counted in."""
        return self._included

    @property
    def samples(self) -> int:
        """The samples of the included clients."""
        return self._weight

    @property
    def closed(self) -> bytes:
        """Names the products that were opened."""
        return hashlib.sha256(self._data).digest()

    def take(self, contribution: Contribution) -> None:
        """Count a contribution in, or refuse it."""
        client, encoded = contribution.header.sender, contribution.payload.encoded
        size = self._segment.size
        if encoded.encoding != Encoding.CIPHERTEXTS or encoded.count != size:
            raise MalformedMessage("contribution.payload", f"is not of {size} coordinates")
        public = self._entries.public
        if size:
            places, found = self._entries.received(encoded.data, size)
            for place, one in zip(places.tolist(), found, strict=True):
                before = self._sums.get(place)
                self._sums[place] = one if before is None else public.added(before, one)
        self._included.add(client)
        self._weight += contribution.samples
        self.sample_steps += contribution.samples * contribution.steps

    def finish(self) -> Payload | Asking | None:
        """The products, to a first client that opens them; nothing has to be opened of nothing."""
        if not self._sums:
            return self._published([])
        places = sorted(self._sums)
        self._data = self._entries.public.write([self._sums[place] for place in places])
        self._silent = sorted(self._included)
        return self._next()

    def _next(self) -> Asking:
        return Asking({self._silent.pop(0): self._data} if self._silent else {})

    def again(self, silent: frozenset[int]) -> Asking:
        """Whoever was asked did not answer: the next one is asked."""
        return self._next()

    def reveal(self, member: int, data: bytes) -> Payload | Asking | None:
        """Take in the sums that a client has opened."""
        count = len(self._sums) if self._entries.packing is None else self._segment.size
        try:
            if len(data) != 8 * count:
                raise MalformedMessage("reveal", f"has {len(data)} bytes; expected {8 * count}")
            sums = np.frombuffer(data, ">i8").astype(np.int64)
            self._check(sums)
        except MalformedMessage as refused:
            name = self._desk.agreement.view.members[member]
            self._note(f"what {name} opened: {refused}")
            return self._next()
        return self._published(sums)

    def _check(self, sums: NDArray[np.int64]) -> None:
        """Refuse sums that no included clients can have."""
        most = self._weight << VALUE_BITS
        beyond = (sums > most) | (sums < -most)
        if beyond.any():
            at = int(beyond.argmax())
            raise MalformedMessage("reveal", f"sum {at} is {sums[at]}, beyond ±{most}")

    def _published(self, sums: Sequence[int] | NDArray[np.int64]) -> Payload:
        total = np.zeros(self._segment.size, np.int64)
        total[sorted(self._sums) if self._entries.packing is None else slice(None)] = sums
        mean = np.empty(len(total), np.float32)
        divisor = math.ldexp(self._weight, self._entries.fraction_bits)
        kernels.mean_of(mean, total, None, LIMB_BITS, divisor)
        return self._entries.publish(mean, self._round)

    def abandon(self) -> None:
        """Nobody opened the sums: the result is withheld."""
        self._note("withheld: no client opened the sums")

    def _note(self, text: str) -> None:
        self._desk.notes.append(f"round {self._round}, segment {self._segment.key}: {text}")
