"""A client's half of secure sums: what it sends of a segment is masked, and its seeds are sealed.

One training has one root: an update is bound to the model and the view it was trained in, and is
masked for no other. A contribution that is sent again is the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from eris.core.combine import bounded
from eris.core.compress import Encoded, Encoding
from eris.core.errors import ErisError, InvalidSetting
from eris.core.exact_clip import Content
from eris.core.ring import RING_BYTES
from eris.core.vectors import Vector
from eris.protocol.messages import Payload
from eris.protocol.schemes.grid import GridCoding
from eris.protocol.schemes.scheme import Coding, Sender
from eris.protocol.secure.escrow import MODEL, Escrow, Root, seal
from eris.protocol.secure.keys import MemberKeys
from eris.protocol.secure.labels import ShardRound, digest, label
from eris.protocol.secure.noise_terms import SharedNoise
from eris.protocol.secure.noising import Charge, SharedNoising, client_content
from eris.protocol.secure.sums import SegmentShape, mask, plain_head, plain_words
from eris.protocol.secure.terms import SecureSums
from eris.protocol.secure.vault import Vault
from eris.protocol.secure.wire import write_masked, write_own

if TYPE_CHECKING:
    from eris.protocol.agreement import Agreement, Key, Segment
    from eris.protocol.round.replica import Replica
    from eris.protocol.view import View


def place_of(agreement: Agreement, round: int, shard: int) -> ShardRound:
    """Where contributions to a shard in a round belong."""
    epoch = agreement.view_at(round).epoch
    return ShardRound(agreement.settings.fingerprint, epoch, round, shard)


def model_name(agreement: Agreement, view: View, states: bytes) -> bytes:
    """16 bytes that name a whole model, and the view in which it is trained on.

    Owners sum over clients with one name. What a client was told differently from the others, be it
    a result, the set that it was closed on, or who is who, gives its update another.
    """
    place = label("model", agreement.settings.fingerprint, view.epoch)
    return digest(place, view.digest, states)[:MODEL]


def states_of(agreement: Agreement, replica: Replica) -> bytes:
    """A hash of all segments' states."""
    return digest(*(label("", *key) + replica.known_digest(key) for key in agreement.keys))


@dataclass
class Training:
    """What an update that is trained now will be masked by."""

    round: int
    view: View
    root: Root
    states: bytes
    """Names what was trained from, in whatever view."""
    model: bytes
    samples: int = 0
    steps: int = 0
    words: dict[Key, Content] = field(default_factory=dict)
    """By segment: words with noise, or on a common grid, drawn once."""
    forms: dict[Key, int] = field(default_factory=dict)
    """By segment: how words are cut, where a segment says so."""
    escrows: dict[int, tuple[dict[int, bytes], Escrow]] = field(default_factory=dict)
    """By shard: the seeds, and how they are deposited."""


class SecureSender(Sender):
    """A client that masks what it sends."""

    tells_weight = False

    def __init__(self, coding: Coding, me: int, vault: Vault) -> None:
        super().__init__(coding, me)
        self._vault = vault
        self.training: Training | None = None
        """What the update of the current round is masked by."""
        self.charge: Charge = lambda round, tag: None
        """Told of every round before its noise is drawn; a node's is its ledger's."""
        self.allows: Callable[[int], bool] = lambda round: True
        """Whether noise may be drawn for a round; a node's ledger says so."""
        self._noising: SharedNoising | None = None
        self._drawn_for = -1

    @property
    def _terms(self) -> SecureSums:
        assert self.agreement.settings.secure is not None
        return self.agreement.settings.secure

    def _keys(self, view: View) -> MemberKeys | None:
        """This member's keys in a view, if they are of this start."""
        return self._vault.of(view.seating.known.get(self.me)) if view.seating else None

    def gives(self, round: int, shard: int) -> bool:
        """Whether this client contributes to a shard in a round: others must know its keys, and the
        shard's seats must be held as the rules have it."""
        view, training = self.agreement.view_at(round), self.training
        if view.seating is None or self._keys(view) is None:
            return False
        made = training if training is not None and training.samples else None
        if made is not None and made.round == round and made.view != view:
            return False  # it is masked for those who were to have it before
        return view.seating.able(shard, view.owners[shard], self._terms.threshold.need)

    def trains(self, round: int) -> bool:
        """Whether there is a shard to which this client contributes in a round."""
        view, noise = self.agreement.view_at(round), self.agreement.settings.noise
        if isinstance(self.coding, GridCoding) and not self.coding.terms.serves(view):
            return False
        if noise is not None:
            # Of more clients than was agreed a sum could wrap, and rounding could tell.
            if len(view.clients) > noise.clients:
                return False
            if not self.drew(round) and not self.allows(round):
                return False
        return any(self.gives(round, shard) for shard in range(len(view.owners)))

    def drew(self, round: int) -> bool:
        """Whether noise of a round was drawn here: nothing is trained for it any more."""
        return self._noising is not None and self._noising.last == round

    def bind(self, round: int, replica: Replica) -> None:
        """An update is trained now, from what the replica holds: it gets a root of its own."""
        self._bind(round, states_of(self.agreement, replica))

    def _bind(self, round: int, states: bytes) -> None:
        view = self.agreement.view_at(round)
        model = model_name(self.agreement, view, states)
        self.training = Training(round, view, self._vault.root(round), states, model)

    def prepare(
        self, update: Vector, samples: int, steps: int, round: int, replica: Replica,
        content: Content | None = None,
    ) -> dict[Key, Vector]:  # fmt: skip
        """By segment: the values that are sent of an update."""
        pieces = super().prepare(update, samples, steps, round, replica)
        if self.training is None or self.training.round != round:
            self.bind(round, replica)
        assert self.training is not None
        if self.training.view != self.agreement.view_at(round):
            # Who is who has changed while it was trained, and nothing has left yet.
            self._bind(round, self.training.states)
        self.training.samples, self.training.steps = samples, steps
        noise = self.agreement.settings.noise
        if noise is not None:
            self.training.words = self._noisy(noise, pieces, samples, round, content)
        if isinstance(self.coding, GridCoding):
            self._lay_on_grid(self.coding, self.training, pieces, replica)
        return pieces

    def _lay_on_grid(
        self, coding: GridCoding, training: Training, pieces: Mapping[Key, Vector], replica: Replica
    ) -> None:
        """Make the words of an update, in the units that its segments have now."""
        samples, round = training.samples, training.round
        training.words = coding.integers(pieces, self.me, samples, round, replica)
        training.forms = {key: coding.form(replica.exponent(key, round)) for key in pieces}
        training.samples = coding.weight(samples)

    def batch(self, round: int, slots: int) -> NDArray[np.bool_] | None:
        """Which of this client's slots are in the round's batch; None if all are, always.

        For whoever trains the round, and for nobody else.
        """
        noise = self.agreement.settings.noise
        if noise is None or noise.sampling_rate == 1:
            return None
        return self._noising_of(noise, round).batch(round, slots)

    def _noising_of(self, noise: SharedNoise, round: int) -> SharedNoising:
        """This start's noise; in a simulation every round has its own, so that runs repeat."""
        repeats = self._vault.repeats and self._drawn_for != round
        if self._noising is None or repeats:
            settings = self.agreement.settings
            grid = noise.grid(self._terms.ring_bytes, settings.precision.fraction_bits)
            key, self._drawn_for = self._vault.chain_key(round), round
            self._noising = SharedNoising(
                noise, grid, settings.name, key, lambda *drawn: self.charge(*drawn)
            )
        return self._noising

    def _noisy(
        self, noise: SharedNoise, pieces: Mapping[Key, Vector], samples: int, round: int,
        content: Content | None,
    ) -> dict[Key, Content]:  # fmt: skip
        """By segment: what is masked, of one draw over all that is sent."""
        settings = self.agreement.settings
        grid = noise.grid(self._terms.ring_bytes, settings.precision.fraction_bits)
        if noise.protects == "client":
            content = client_content(noise, grid, np.concatenate([*pieces.values()]), samples)
        elif content is None:
            expected = "one that clips single samples (clipped_update), as noise per sample needs"
            raise InvalidSetting(f"training of {self.name}", "an update without content", expected)
        count = sum(map(len, pieces.values()))
        if content.dtype != np.int64 or content.shape != (count,):
            found = f"{content.dtype} array of shape {content.shape}"
            raise InvalidSetting(f"content of {self.name}", found, f"{count} int64 values")
        noising = self._noising_of(noise, round)
        words, at, cut = noising.words(content, round), 0, {}
        for name, piece in pieces.items():
            cut[name] = words[at : at + len(piece)]
            at += len(piece)
        assert self.agreement.gauge is not None
        return cut | {self.agreement.gauge: noising.gauge}

    def check_weight(self, samples: int, steps: int, round: int) -> None:
        """Refuse what cannot be this client's weight."""
        super().check_weight(samples, steps, round)
        clients = len(self.agreement.view_at(round).clients)
        noise = self.agreement.settings.noise
        if isinstance(self.coding, GridCoding):
            self.coding.check_declared(self.me, samples, round)
        most = self._terms.total_samples // clients if noise is None else noise.samples
        if samples > most:
            expected = f"at most {most} of each of {clients} clients, where sums are secure"
            raise InvalidSetting(f"samples of {self.name}", samples, expected)

    def payload(self, piece: Vector, segment: Segment, round: int, based_on: int) -> Payload:
        """What travels of a segment, or stays with its owner if that is this client."""
        training, settings = self.training, self.agreement.settings
        if training is None or training.round != round:
            raise ErisError(f"nothing was trained here for round {round}")
        if training.words:
            words = training.words[segment.key].view(np.uint64)
        else:
            values = bounded(piece, self.name, settings.precision, settings.non_finite)
            places = self._terms.fraction_bits(settings.precision)
            words = plain_words(values, training.samples, places)
        head, form = plain_head(words, training.samples, training.steps), self._terms.ring_bytes
        form = training.forms.get(segment.key, form)
        if training.view.owners[segment.shard] == self.me:
            return _ring(len(words), form, write_own(training.model, head, words))
        place = place_of(self.agreement, round, segment.shard)
        seeds, escrow = self._escrow(training, place)
        shape = SegmentShape(place, segment.number, based_on, len(words), form)
        masked = mask(head, words, training.root, shape, seeds)
        return _ring(len(words), form, write_masked(masked, escrow))

    def _escrow(self, training: Training, place: ShardRound) -> tuple[dict[int, bytes], Escrow]:
        if place.shard not in training.escrows:
            seating, threshold = training.view.seating, self._terms.threshold
            mine = self._keys(training.view)
            if seating is None or mine is None:
                raise ErisError("others know this client by other keys, or by none")
            helpers, seeds = seating.helpers[place.shard], training.root.seeds(place, threshold)
            keys = {
                helper: mine.shared(place.federation, self.me, helper, seating.known[helper])
                .escrow_key(place.epoch, self.me, helper)
                for helper in helpers
                if helper in seating.known
            }  # fmt: skip
            sealed = seal(place, self.me, helpers, training.model, seeds, keys, threshold)
            training.escrows[place.shard] = seeds, sealed
        return training.escrows[place.shard]


def _ring(count: int, form: int, data: bytes) -> Payload:
    return Payload(Encoded(Encoding.RING, count, data, told_form(form)))


def told_form(form: int) -> float:
    """What a contribution says of its words' form: those of whole bytes are agreed for good.

    >>> told_form(8), told_form(4915468)
    (0.0, 4915468.0)
    """
    return 0.0 if form in RING_BYTES else float(form)
