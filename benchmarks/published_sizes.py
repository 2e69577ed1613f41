"""Secure sums at the sizes that papers publish: many clients, short vectors, one owner.

The cryptography alone, as :mod:`eris.protocol.secure` has it, without a network: what a client, a
helper and the owner compute in a round, and the bytes of what they say. All clients and helpers are
played one after another in this process, on one thread.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import process_time

import numpy as np
from rich.table import Table

from eris.core.errors import ErisError
from eris.core.shards import segment_length
from eris.core.streams import Stream
from eris.protocol.secure.escrow import Escrow, Root, seal
from eris.protocol.secure.helper import Helper, SeatView
from eris.protocol.secure.keys import MemberKeys
from eris.protocol.secure.labels import ShardRound
from eris.protocol.secure.opening import Deposits, Opening
from eris.protocol.secure.seats import Threshold
from eris.protocol.secure.sums import SegmentShape, mask, plain_head, plain_words
from eris.protocol.secure.terms import SecureSums

SIZES = ((1_000, 16_384), (1_000, 100_000))
"""Clients, and values of each."""
SEED, SAMPLES = 0, 1
VALUE_BITS = -5
"""Values lie within ±2⁻⁵."""
FRACTION_BITS = {4: 24, 8: 44}
"""By bytes of a word: a thousand values of one sample each stay within it."""
SIGNATURE, NUMBER = 64, 4
"""Bytes of a signature, and of a member's number in a message."""


class WrongSum(ErisError):
    """What was opened is not the sum."""


@dataclass
class Costs:
    """CPU seconds and bytes of a round, by role; a client's and a helper's are those of one."""

    clients: int
    values: int
    ring_bytes: int
    cpu_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    sent: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @contextmanager
    def timed(self, role: str, share: int) -> Iterator[None]:
        """Charge what is done inside to a role, of which ``share`` take part."""
        began = process_time()
        yield
        self.cpu_s[role] += (process_time() - began) / share


class Federation:
    """Members with keys, one shard, and the helpers' memory: what outlives a round."""

    def __init__(self, clients: int, ring_bytes: int, threshold: Threshold) -> None:
        self.terms = SecureSums(threshold, ring_bytes)
        self.owner, self.helpers = clients, tuple(range(threshold.seats))
        self.keys = {member: MemberKeys.of(os.urandom(96)) for member in range(clients + 1)}
        public = {member: keys.public for member, keys in self.keys.items()}
        everyone = frozenset(range(clients))
        self.seats = [
            SeatView(self.owner, self.helpers, everyone, clients, public, self.keys[me])
            for me in self.helpers
        ]
        self.seated = [Helper(me, self.terms) for me in self.helpers]

    def escrow(self, place: ShardRound, client: int, root: Root) -> Escrow:
        """What a client deposits; pairs of members agree on a secret once."""
        keys = {
            helper: self.keys[client]
            .shared(place.federation, client, helper, self.keys[helper].public)
            .escrow_key(place.epoch, client, helper)
            for helper in self.helpers
        }
        threshold = self.terms.threshold
        seeds = root.seeds(place, threshold)
        return seal(place, client, self.helpers, bytes(16), seeds, keys, threshold)

    def round(self, number: int, values: int) -> Costs:
        """One round of everyone; :class:`WrongSum` unless every segment opens to the sum."""
        clients, ring = len(self.seats[0].clients), self.terms.ring_bytes
        threshold, costs = self.terms.threshold, Costs(clients, values, ring)
        place, step = ShardRound(1, 1, number, 0), segment_length(values)
        deposits = Deposits(threshold)
        openings: list[Opening] = []
        for segment, first in enumerate(range(0, values, step)):
            shape = SegmentShape(place, segment, number - 1, min(step, values - first), ring)
            keys = self.keys[self.owner]
            openings.append(Opening(self.terms, shape, self.owner, self.helpers, keys, deposits))
        expected = np.zeros(values, np.int64)
        for client in range(clients):
            drawn = Stream(SEED, "published sizes", round=number, client=client)
            vector = ((drawn.uniform(0, values) - 0.5) * 2.0 ** (VALUE_BITS + 1)).astype(np.float32)
            expected += np.rint(np.float64(vector) * 2.0 ** FRACTION_BITS[ring]).astype(np.int64)
            with costs.timed("client", clients):
                root = Root.drawn(os.urandom(32), self.keys[client].process_secret)
                escrow = self.escrow(place, client, root)
                seeds = root.seeds(place, threshold)
            with costs.timed("helper", threshold.seats):
                for helper, seat in zip(self.seated, self.seats, strict=True):
                    helper.deposit(place, seat, client, escrow)
            deposits.accepted[escrow.digest] |= set(range(threshold.seats))
            size = sum(map(len, (escrow.model, *escrow.commitments, *escrow.boxes)))
            costs.sent["owner to a helper"] += size + NUMBER
            costs.sent["helper"] += len(escrow.digest) + NUMBER
            for segment, opening in enumerate(openings):
                piece = vector[segment * step : segment * step + opening.shape.count]
                with costs.timed("client", clients):
                    words = plain_words(piece, SAMPLES, FRACTION_BITS[ring])
                    head = plain_head(words, SAMPLES, 1)
                    sent = mask(head, words, root, opening.shape, seeds)
                with costs.timed("owner", 1):
                    opening.add(client, sent, escrow)
                bytes_sent = len(sent.nonce) + sent.head.nbytes + len(sent.wire) + size
                costs.sent["client"] += bytes_sent / clients
        opened = [self._open(opening, costs) for opening in openings]
        if not np.array_equal(np.concatenate(opened), expected):
            raise WrongSum(f"{clients} clients × {values} values, {ring} bytes a word")
        for helper in self.seated:
            helper.forget(number + 1)
        return costs

    def _open(self, opening: Opening, costs: Costs) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """The sum of one segment, by two of three helpers: a helper answers two times in three."""
        threshold = self.terms.threshold
        bound = 2 ** (FRACTION_BITS[self.terms.ring_bytes] + VALUE_BITS)
        with costs.timed("owner", 1):
            statement = opening.close(enough=1)
            asked = opening.asked()
        assert statement is not None
        assert asked is not None
        total = None
        for seat in asked:
            with costs.timed("helper", threshold.seats):
                given = self.seated[seat].answer(
                    statement, opening.signature, asked, self.seats[seat], opening.shape,
                    over=lambda: False,
                )  # fmt: skip
            with costs.timed("owner", 1):
                total = opening.answered(seat, asked, given, bound)
            size = len(statement.digest) + NUMBER + given.head.nbytes + len(given.wire)
            costs.sent["helper"] += size / threshold.seats
            asking = len(statement.encode()) + SIGNATURE + NUMBER
            costs.sent["owner to a helper"] += asking / threshold.seats
        assert total is not None
        return total.total


@dataclass(frozen=True)
class Published:
    """A size as it was measured: a round, and what the first costs more for agreeing on keys."""

    round: Costs
    keys_s: dict[str, float]


def measured(clients: int, values: int, ring_bytes: int) -> Published:
    """Two rounds of 2 of 3: the second counts, the first also agrees on keys."""
    federation = Federation(clients, ring_bytes, Threshold(2, 3))
    first, second = (federation.round(number, values) for number in (1, 2))
    keys = {role: first.cpu_s[role] - second.cpu_s[role] for role in ("client", "helper")}
    return Published(second, keys)


def table(found: list[Published]) -> Table:
    """What was measured."""
    title = f"cryptography of a round alone, 2 of 3, one owner, seed {SEED}, uniform values"
    out = Table(title=title)
    names = ("clients", "values", "B", "client CPU ms", "sends kB", "÷ 4 n", "helper CPU s",
             "sends kB", "gets kB", "owner CPU s")  # fmt: skip
    for name in names:
        out.add_column(name, justify="right")
    for one in found:
        cost = one.round
        out.add_row(
            f"{cost.clients:,}",
            f"{cost.values:,}",
            str(cost.ring_bytes),
            f"{1e3 * cost.cpu_s['client']:.2f}",
            f"{cost.sent['client'] / 1e3:.1f}",
            f"{cost.sent['client'] / (4 * cost.values):.3f}",
            f"{cost.cpu_s['helper']:.3f}",
            f"{cost.sent['helper'] / 1e3:.1f}",
            f"{cost.sent['owner to a helper'] / 1e3:.1f}",
            f"{cost.cpu_s['owner']:.3f}",
        )
    return out


def figures(found: list[Published]) -> dict[str, float]:
    """Milliseconds of a client, and seconds of a helper and the owner, by size."""
    out: dict[str, float] = {}
    for one in found:
        cost = one.round
        name = f"k{cost.clients}_n{cost.values}_{cost.ring_bytes}b"
        out[f"client_ms_{name}"] = 1e3 * cost.cpu_s["client"]
        out[f"helper_s_{name}"] = cost.cpu_s["helper"]
        out[f"owner_s_{name}"] = cost.cpu_s["owner"]
    return out
