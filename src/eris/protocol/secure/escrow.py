"""Seeds of a mask's parts, sealed to the helpers that shall know them, before any sum is asked for.

Every box is authenticated by the client *to the helper*: an owner cannot invent a client, and
a box of another place, model, seat or list of helpers does not open.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from eris.core.errors import ErisError
from eris.protocol.secure.labels import ShardRound, derived, digest, label, prf
from eris.protocol.secure.seats import Threshold

SEED = 32
MODEL = 16
"""Bytes of a seed (and of a commitment to it), and of a model's name."""


class DisputedEscrow(ErisError):
    """A box that does not open, or that holds another seed than its client committed to."""


@dataclass(frozen=True)
class Root:
    """The secret of one training: one (epoch, round, model). Its seeds mask that update only."""

    secret: bytes = field(repr=False)

    @classmethod
    def drawn(cls, fresh: bytes, process_secret: bytes) -> Root:
        """From 32 fresh bytes of the operating system, and the secret of the process besides."""
        return cls(prf(fresh, process_secret))

    @cached_property
    def tag_key(self) -> bytes:
        """Under which contents are hashed."""
        return derived(self.secret, label("tag"), 16)

    @cached_property
    def nonce_key(self) -> bytes:
        """Under which hashes become nonces."""
        return derived(self.secret, label("nonce"))

    def seeds(self, place: ShardRound, threshold: Threshold) -> dict[int, bytes]:
        """The seed of every part, by part."""
        return {
            part: derived(self.secret, label("part", *place.numbers, part))
            for part in threshold.parts
        }


@dataclass(frozen=True)
class Escrow:
    """What a client deposits with the helpers of a shard, for one round."""

    model: bytes
    """Names the whole model that was trained on, and the view in which."""
    commitments: tuple[bytes, ...]
    """To the seeds, in the order of parts."""
    boxes: tuple[bytes, ...]
    """One a seat."""

    @cached_property
    def digest(self) -> bytes:
        """E: what a closing statement names it by."""
        return digest(label("escrow-digest"), self.model, *self.commitments, *self.boxes)

    def check(self, threshold: Threshold) -> None:
        """Refuse other lengths than the agreed: a digest of those could be cut in two ways."""
        known = 16 + SEED * len(threshold.known_to(0))
        if (
            len(self.model) != MODEL
            or [len(c) for c in self.commitments] != [SEED] * len(threshold.parts)
            or [len(box) for box in self.boxes] != [known] * threshold.seats
        ):
            raise DisputedEscrow(f"an escrow whose pieces have not the sizes of {threshold}")


def commitment(place: ShardRound, client: int, part: int, seed: bytes) -> bytes:
    """To a seed: what all that are given it compare it with."""
    return digest(label("commit", *place.numbers, client, part), seed)


def seal(
    place: ShardRound,
    client: int,
    helpers: Sequence[int],
    model: bytes,
    seeds: Mapping[int, bytes],
    keys: Mapping[int, bytes],
    threshold: Threshold,
) -> Escrow:
    """Deposit the seeds; ``keys`` are the client's escrow keys, by helper.

    The box of a seat that is vacant, or whose keys are not known, is empty: nobody opens it.
    """
    commitments = tuple(commitment(place, client, part, seeds[part]) for part in threshold.parts)
    boxes = []
    for seat, helper in enumerate(helpers):
        about = _about(place, client, seat, helpers, model)
        known = b"".join(seeds[part] for part in threshold.known_to(seat))
        if helper not in keys:
            boxes.append(bytes(16 + len(known)))
            continue
        boxes.append(AESSIV(keys[helper]).encrypt(known, [about, b"".join(commitments)]))
    return Escrow(model, commitments, tuple(boxes))


def unseal(
    escrow: Escrow,
    place: ShardRound,
    client: int,
    helpers: Sequence[int],
    seat: int,
    key: bytes,
    threshold: Threshold,
) -> dict[int, bytes]:
    """The seeds of the parts that a seat knows, or :class:`DisputedEscrow`."""
    escrow.check(threshold)
    about = _about(place, client, seat, helpers, escrow.model)
    try:
        known = AESSIV(key).decrypt(escrow.boxes[seat], [about, b"".join(escrow.commitments)])
    except InvalidTag:
        raise DisputedEscrow(f"the box of client {client} for seat {seat} does not open") from None
    parts = threshold.known_to(seat)
    seeds = {part: known[SEED * n : SEED * (n + 1)] for n, part in enumerate(parts)}
    promised = dict(zip(threshold.parts, escrow.commitments, strict=True))
    for part, seed in seeds.items():
        if not hmac.compare_digest(commitment(place, client, part, seed), promised[part]):
            raise DisputedEscrow(f"client {client} sealed another seed than it committed to")
    return seeds


def _about(
    place: ShardRound, client: int, seat: int, helpers: Sequence[int], model: bytes
) -> bytes:
    return label("box", *place.numbers, client, seat, *helpers) + model
