"""A client's half: scalars that are used once, and ciphertexts of centroids under them."""

from __future__ import annotations

from collections.abc import Sequence

from eris.core.errors import require
from eris.protocol.enccluster.group import (
    SCALAR_BYTES,
    SHIFT,
    Element,
    MaybeInfinite,
    added,
    encoded,
    of_public,
    of_shifted,
    times_secret,
)
from eris.protocol.enccluster.labels import (
    DOM,
    ONE_POINT,
    BookLabel,
    UnusableFresh,
    extracted,
    point,
    scalar,
)

SLOTS = (1, 2)
"""w: EncCluster has one scalar a label; DeTrust-FL, where scalars meet many points, two."""


class ClientScalars:
    """A client's secret scalars of one label, in memory until its share is made.

    Overwritten when they are forgotten; copies that Python made of them may stay for a while.
    """

    def __init__(self, values: Sequence[int]) -> None:
        require(len(values) in SLOTS, "slots", len(values), "1 or 2")
        self._slots = [bytearray(value.to_bytes(SCALAR_BYTES, "big")) for value in values]

    @classmethod
    def drawn(
        cls, secret: bytes, fresh: bytes, label: BookLabel, content: bytes, slots: int = 1
    ) -> ClientScalars:
        """Of the process's secret and of randomness that was drawn for this label alone.

        If label, content or randomness differ, so do the scalars: a client that was brought back
        from an old state and encrypts something else under the same label gives nothing away.
        """
        for name, part in (("process secret", secret), ("fresh", fresh), ("content", content)):
            require(len(part) == 32, name, f"{len(part)} bytes", "32 bytes")
        key = extracted(secret + fresh)
        infos = (
            b"".join((DOM, b"/scalar", bytes([a]), label.encoded, content)) for a in range(slots)
        )
        return cls([scalar(key, info) for info in infos])

    def __len__(self) -> int:
        return len(self._slots)

    def __repr__(self) -> str:
        return f"ClientScalars({len(self)} slots)"

    def values(self) -> tuple[int, ...]:
        """The scalars, slot by slot."""
        if not all(map(any, self._slots)):
            raise UnusableFresh("these scalars were forgotten")
        return tuple(int.from_bytes(slot, "big") for slot in self._slots)

    def forget(self) -> None:
        """Overwrite them."""
        for slot in self._slots:
            slot[:] = bytes(SCALAR_BYTES)


def pad(label: BookLabel, scalars: Sequence[int], coordinate: int = ONE_POINT) -> Element:
    """Σ s_a·U_a, which hides a message."""
    parts = [times_secret(s, point(label.encoded, a, coordinate)) for a, s in enumerate(scalars)]
    return _finite(added(parts))


def encrypt(messages: Sequence[int], label: BookLabel, scalars: ClientScalars) -> bytes:
    """The ciphertexts of a codebook in the order of its clusters, 33 bytes each.

    All lie under one pad, so that the sum of any choice of them opens with one key: who sees them
    knows the differences of the centroids.
    """
    shifted = added([pad(label, scalars.values()), of_public(-SHIFT)])
    return b"".join(_ciphertext(shifted, message) for message in _checked(messages))


def encrypt_each(messages: Sequence[int], label: BookLabel, scalars: ClientScalars) -> bytes:
    """DeTrust-FL's ciphertexts: every coordinate under a pad of its own, by points of its own."""
    require(len(scalars) == 2, "slots", len(scalars), "2, for scalars meet many points")
    off, values = of_public(-SHIFT), scalars.values()
    return b"".join(
        _ciphertext(added([pad(label, values, t), off]), message)
        for t, message in enumerate(_checked(messages))
    )


def _ciphertext(shifted: MaybeInfinite, message: int) -> bytes:
    return encoded(_finite(added([shifted, of_shifted(message)])))


def _finite(found: MaybeInfinite) -> Element:
    if found is None:
        raise UnusableFresh("a ciphertext would be infinity")
    return found


def _checked(messages: Sequence[int]) -> list[int]:
    numbers = [int(message) for message in messages]
    for place, number in enumerate(numbers):
        # Far beyond any table: who is refused here has shown nothing of a message that travels.
        require(-SHIFT < number < SHIFT, f"message {place}", number, "below 2^40 in magnitude")
    return numbers
