"""SEFL: the largest entries of an update under Paillier, with a private key that all clients have.

An entry is rint(x·2^f)·samples, as in the plain mean (:mod:`eris.core.combine`), so that what is
published is the same bits. The owner multiplies ciphertexts and has one of the clients open the
products: it has no private key, and the others need not be there for it.

In a simulation the key follows from the run's seed. Where members are real their operators make it
and give it to every client; what is agreed names its public half (``public_key``).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray

from eris.core.books import Books
from eris.core.codings import pack_index, unpack_index
from eris.core.combine import LIMB_BITS, bounded
from eris.core.compress import Encoded, Encoding
from eris.core.errors import ErisError, InvalidSetting, MalformedMessage, require
from eris.core.exact_clip import Content
from eris.core.prune import largest
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.protocol.enccluster.paillier import (
    SECURITY,
    Entropy,
    Packing,
    PaillierKey,
    PaillierPair,
    checked_modulus,
)
from eris.protocol.messages import Contribution, Payload, RevealRequest
from eris.protocol.round.replying import Replying
from eris.protocol.schemes.collector import Desk
from eris.protocol.schemes.dense import Dense
from eris.protocol.schemes.entry_sums import EntryDesk
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
NO_PUBLIC_KEY = (
    "its clients have a private key in common; `eris ca clients-key` makes one, and public_key "
    "is its public half"
)
MOST_BYTES = 32 << 20
"""Of a segment's ciphertexts, where settings do not say how long a segment is."""
KEPT_ROUNDS = 16
"""Rounds of which a client still opens sums."""
MOST_SAMPLES = (1 << LIMB_BITS) - 1
"""Of all clients together: a sum then fits 64 bits."""


@dataclass(frozen=True)
class EncryptedEntries(Scheme):
    """The share ``kept_fraction`` of largest magnitudes under a Paillier key of ``key_bits``.

    With ``packing`` as many entries as fit share a ciphertext; all coordinates then travel, those
    that are not kept as 0, and no indices. ``public_key`` is n in hexadecimal digits.
    """

    kept_fraction: float = 0.3
    key_bits: int = 3072
    packing: bool = False
    public_key: str = ""
    name: ClassVar[str] = "sefl"
    keyed: ClassVar[bool] = True
    apart: ClassVar[bool] = True
    slow: ClassVar[bool] = True

    def __post_init__(self) -> None:
        inside = 0 < self.kept_fraction <= 1
        require(inside, "kept_fraction", self.kept_fraction, "a number in (0, 1]")
        if self.key_bits not in SECURITY:
            expected = f"one of {', '.join(map(str, SECURITY))}"
            raise InvalidSetting("key_bits", self.key_bits, expected)
        if self.public_key:
            checked_modulus(self.public_key, self.key_bits)

    @property
    def in_step(self) -> str:  # type: ignore[override]
        """Why only the simulator that moves members in step can carry it, if so."""
        return "" if self.public_key else NO_PUBLIC_KEY

    @property
    def value_bytes(self) -> int:  # type: ignore[override]
        """Bytes that a coordinate takes in a message, at most."""
        return self.key_bits // 4 + 1

    @property
    def unread(self) -> str:
        """What contributions tell whoever gets them that no observer here reads yet, if any."""
        return (
            "what a client opens of others' contributions by the common key is not read yet, and "
            "figures without it would be too low"
        )

    def rehearsed(self) -> Scheme:
        """The same without ciphertexts: of these nothing is compiled."""
        return Dense()

    def kept_share(self, n: int) -> float:
        """The share of ``n`` coordinates that a client sends."""
        return self.kept_count(n) / n

    def kept_count(self, n: int) -> int:
        """Entries that are kept of an update."""
        return max(1, round(self.kept_fraction * n))

    def kept(self, update: Vector) -> Vector:
        """The largest entries of an update, and zeros."""
        # NaN counts as the most: what is no number is refused, not left out.
        sizes: Vector = np.nan_to_num(np.abs(update), nan=np.inf)
        return np.where(largest(sizes, self.kept_count(len(update))), update, np.float32(0))

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
        self._pair: PaillierPair | None = None

    def unlock(self, pair: PaillierPair) -> None:
        """Give a client the common key, where it does not follow from a seed."""
        if pair.public != self.public:
            raise ErisError("the clients' key is not the one whose public_key was agreed on")
        self._pair = pair

    @property
    def pair(self) -> PaillierPair:
        """The clients' common key; what an owner uses is :attr:`public`."""
        if self.terms.public_key:
            if self._pair is None:
                raise ErisError("this member has no private key: it cannot open sums")
            return self._pair
        return _simulated(self.agreement.settings.seed, self.terms.key_bits)

    @cached_property
    def public(self) -> PaillierKey:
        """What of it an owner has."""
        if self.terms.public_key:
            return PaillierKey(int(self.terms.public_key, 16))
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
        self._round = 0
        """The last one that something was encrypted for."""
        self._asked: dict[tuple[int, Key], tuple[bytes, bytes]] = {}
        """What was sent and has no result: a hash of the sums that this client was asked to open of
        it, and what it answered. Asked again it says so, without opening them again."""
        self._made: dict[tuple[int, Key], Payload] = {}
        """What was sent in that round and has no result: sent again, it is the same bytes."""

    def gives(self, round: int, shard: int) -> bool:
        """Whether this client contributes to a shard: a client as its owner could read all."""
        view = self.agreement.view_at(round)
        return view.owners[shard] not in view.client_set

    def trains(self, round: int) -> bool:
        """Whether there is a shard to which this client contributes in a round."""
        return any(self.gives(round, shard) for shard in range(self.agreement.settings.plan.shards))

    def check_weight(self, samples: int, steps: int, round: int) -> None:
        """Refuse what cannot be this client's weight."""
        super().check_weight(samples, steps, round)
        self.coding.check_samples(self.me, samples, round)

    def prepare(
        self, update: Vector, samples: int, steps: int, round: int, replica: Replica,
        content: Content | None = None,
    ) -> dict[Key, Vector]:  # fmt: skip
        """By segment: the largest entries of an update, and zeros."""
        sent = self.coding.terms.kept(update)
        pieces = super().prepare(sent, samples, steps, round, replica)
        self._samples = samples
        return pieces

    def payload(self, piece: Vector, segment: Segment, round: int, based_on: int) -> Payload:
        """What travels of a segment; made once."""
        if round > self._round:
            # An owner that publishes nothing of a segment has a client keep no more than this.
            self._round, self._made = round, {}
            self._asked = {one: v for one, v in self._asked.items() if one[0] > round - KEPT_ROUNDS}
        if (round, segment.key) not in self._made:
            self._made[round, segment.key] = self._encrypted(piece, segment, round)
            self._asked.setdefault((round, segment.key), (b"", b""))
        return self._made[round, segment.key]

    def _encrypted(self, piece: Vector, segment: Segment, round: int) -> Payload:
        settings = self.agreement.settings
        values = bounded(piece, self.name, settings.precision, settings.non_finite)
        data = b""
        if len(values):
            data = self.coding.sealed(values, self._samples, self._entropy(values, segment, round))
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
        self._made.pop((round, key), None)

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
        opened, answer = self._asked[round, key]
        if opened != asked and (opened or not permitted):
            raise ErisError("this client has opened other sums of that segment and round")
        if not answer:
            self._asked[round, key] = asked, b""
            sums = np.array(self.coding.opened(request.data, segment.size), ">i8")
            answer = asked + sums.tobytes()  # of which products, first
            self._asked[round, key] = asked, answer
        return answer
