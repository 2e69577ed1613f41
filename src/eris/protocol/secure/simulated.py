"""Secure sums in a simulation: seats as a directory gives them, keys that follow from the seed.

The masks are real and so are the bytes, but whoever knows the seed can take them off. That is what
an audit does for an owner that has its helpers on its side (:class:`Opener`).
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from eris.core.errors import ErisError
from eris.core.ring import add_wire, exponent_in, signed, wire_bytes
from eris.core.vectors import Vector
from eris.protocol.authority.seating import seated
from eris.protocol.messages import Contribution
from eris.protocol.secure.certified import KeyStatement
from eris.protocol.secure.escrow import unseal
from eris.protocol.secure.pads import HEAD, add_pads, pad_key
from eris.protocol.secure.sending import place_of
from eris.protocol.secure.vault import Vault
from eris.protocol.secure.wire import read_masked
from eris.protocol.secure.wording import wording
from eris.protocol.settings import Settings
from eris.protocol.view import Seating, View

if TYPE_CHECKING:
    from eris.protocol.agreement import Agreement


class Vaults:
    """The secrets of all members of a simulation."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._made: dict[int, Vault] = {}

    def __getitem__(self, member: int) -> Vault:
        if member not in self._made:
            self._made[member] = Vault.simulated(self._settings.seed, member)
        return self._made[member]

    def seat(self, view: View) -> View:
        """Give everyone with a role keys and, where sums are secure, the owners helpers."""
        parties = {member: view.members[member] for member in view.roles}
        stated: list[KeyStatement | None] = [None] * len(view.members)
        for member, name in parties.items():
            stated[member] = KeyStatement(name, 1, self[member].newest.public)
        seats = seated(view.owners, parties, self._settings.seats or 0)
        return replace(view, seating=Seating(seats, tuple(stated)))


class Opener:
    """Members of a simulation that pool what they hold, and read what they can of masked words."""

    def __init__(self, agreement: Agreement) -> None:
        assert agreement.settings.secure is not None
        self._agreement, self._terms = agreement, agreement.settings.secure
        self._vaults = Vaults(agreement.settings)
        self._seated: dict[int, Seating] = {}

    def seating(self, view: View) -> Seating:
        """Who helps whom in a view; a transcript need not say it."""
        if view.seating is not None:
            return view.seating
        if view.epoch not in self._seated:
            seating = self._vaults.seat(view).seating
            assert seating is not None
            self._seated[view.epoch] = seating
        return self._seated[view.epoch]

    def openers(self, shard: int, round: int = 1) -> frozenset[int]:
        """An owner and as many of its helpers as open a single contribution."""
        view = self._agreement.view_at(round)
        helpers = self.seating(view).helpers[shard]
        return frozenset({view.owners[shard], *helpers[: self._terms.threshold.need]})

    def read(
        self, contribution: Contribution, members: AbstractSet[int]
    ) -> tuple[Vector, int, int] | None:
        """The values, samples and steps of a contribution, if these members can open it: with its
        owner they hold the words, and with enough helpers every seed."""
        header = contribution.header
        view = self._agreement.view_at(header.round)
        owner, seating = view.owners[header.shard], self.seating(view)
        helpers = seating.helpers[header.shard]
        seats = [seat for seat, helper in enumerate(helpers) if helper in members]
        threshold, client = self._terms.threshold, header.sender
        if owner not in members or client == owner or len(seats) < threshold.need:
            return None
        place, encoded = (
            place_of(self._agreement, header.round, header.shard),
            contribution.payload.encoded,
        )
        form = int(encoded.parameter) or self._terms.ring_bytes
        words_say = wording(self._agreement, header.round, exponent_in(form) or 0)
        if words_say.form != form:
            raise ErisError("a contribution whose words have another form than is agreed")
        size = wire_bytes(encoded.count, form)
        sent, escrow = read_masked(encoded.data, size, threshold)
        seeds: dict[int, bytes] = {}
        for seat in seats:
            keys = self._vaults[helpers[seat]].newest
            pair = keys.shared(place.federation, helpers[seat], client, seating.known[client])
            key = pair.escrow_key(place.epoch, client, helpers[seat])
            seeds |= unseal(escrow, place, client, helpers, seat, key, threshold)
        head, pads = np.zeros(HEAD, np.uint64), np.zeros(encoded.count, np.uint64)
        streams = [pad_key(seed, header.segment, encoded.count, form, sent.nonce)
                   for seed in seeds.values()]  # fmt: skip
        add_pads(head, pads, streams, form)
        words = np.zeros(encoded.count, np.uint64)
        add_wire(words, sent.wire, form)
        samples, sample_steps = (int(word) for word in (sent.head - head)[:2])
        if samples < 1:
            raise ErisError("a contribution without samples")
        values = words_say.values(signed(words - pads, form), samples)
        return values, samples, sample_steps // samples
