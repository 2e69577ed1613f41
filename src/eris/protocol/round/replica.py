"""The federation's state, replayed from published results; the same on every node.

A segment's state is the model, the reference of shifted compression and the server rule's slots on
its coordinates, and its *version*: the round of the last result applied. Results form a chain (each
names the round of the one before), are applied in order and never twice, so two replicas at the
same version of a segment hold the same bits.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.core import kernels
from eris.core.compress import Encoding, decode_values, encode_values
from eris.core.errors import InvalidSetting, MalformedMessage
from eris.core.vectors import Vector
from eris.protocol.agreement import Agreement, Key, Segment
from eris.protocol.codec import CLOSED_BYTES, DIGEST_BYTES
from eris.protocol.messages import Payload, Result, Snapshot
from eris.protocol.round.evidence import State
from eris.protocol.round.laid import Laid
from eris.protocol.secure import gauge
from eris.protocol.secure.gauge import Gauge
from eris.protocol.settings import starting_model


class Replica:
    """One node's copy of the model and of everything needed to continue from it."""

    def __init__(self, agreement: Agreement, initial: Vector) -> None:
        settings = agreement.settings
        self.agreement = agreement
        start, n = starting_model(settings.n, settings.initial, initial), settings.places
        self.held = Laid(agreement, agreement.coding.enter(start))
        """The model as it is cut and replayed."""
        self._model: Vector | None = None
        shifted = settings.scheme.shifted
        self.reference = Laid(agreement, np.zeros(n, np.float32)) if shifted else None
        self.slots = [
            Laid(agreement, np.full(n, value, np.float32)) for value in settings.rule.initial
        ]
        self.versions: dict[Key, int] = dict.fromkeys(agreement.keys, 0)
        self.updates: dict[Key, int] = dict.fromkeys(agreement.keys, 0)
        self._closed: dict[Key, bytes] = dict.fromkeys(agreement.keys, b"")
        """Where owners ask: the statement behind the last result that moved a segment."""
        self._exponents: dict[Key, int] = {}
        """Where units of words follow the last mean: what the last result says, if there is one."""
        self._log: dict[Key, dict[int, Result]] = {key: {} for key in agreement.keys}
        self._waiting: dict[Key, dict[int, Result]] = {key: {} for key in agreement.keys}
        self.astray: set[Key] = set()
        """Segments whose state does not lead on: the chain went on without their last result (its
        owner died before it spread), or their bits differ. A snapshot brings them back."""
        self.orphaned: set[Key] = set()
        """Those of them whose last result died with its owner when training was over: nothing came
        after it, and an earlier state is what all others have."""
        self.gauge: Gauge | None = None
        """What the last result of the gauge coordinates says of its noise."""
        self.last_included: dict[int, int] = {}
        """By client: the last round with it in results, where there is noise. Whoever comes back
        with an old ledger learns from it that it has forgotten rounds."""
        self.horizon: float = math.inf
        """The last round whose results may be applied; later ones wait."""
        self._digests: dict[Key, bytes] = {}
        self._latest: tuple[Key, tuple[Vector, ...]] | None = None
        """The segment that moved last and its vectors, for its digest is asked for next."""
        # A snapshot skips results, and with them who was included (which a client of the paper's
        # mode must know, unless a new epoch lets it forget) or the shards of a turn that is over.
        alone = settings.scheme.own_references and not agreement.majority
        self._keep_all = bool(settings.plan.rotate or alone)
        # A snapshot of a plain model is as small as a dense result: then only who was included is
        # kept of past results, and whoever lacks them is sent the state.
        big = not settings.scheme.small_results and not self.slots
        self._lean = big and not self._keep_all

    # -- reading ------------------------------------------------------------------------------

    @property
    def model(self) -> Vector:
        """The model as clients train and evaluate it; to be read until the next result."""
        if self._model is None:
            self._model = self.agreement.coding.leave(self.held.whole())
        return self._model

    def own_model(self) -> Vector:
        """The model as clients train it, for the caller to keep and change."""
        return self.agreement.coding.leave(self.held.copy())

    def settled(self, round: int) -> bool:
        """Whether the result of ``round`` (or a later one) is known for every segment."""
        return round <= 0 or min(self.versions.values()) >= round

    def ready(self, round: int) -> bool:
        """Whether a client may train for ``round``: shards drawn anew need the old ones settled."""
        start = self.agreement.turn_start(round)
        return start == 1 or self.settled(start - 1)

    def results_after(self, key: Key, have: int) -> list[Result] | None:
        """The chain of results after round ``have``, or None if it is no longer kept."""
        chain = [self._log[key][r] for r in sorted(self._log[key]) if r > have]
        if self._lean and chain:
            return None
        if chain and chain[0].previous != have:
            return None
        return chain if chain or self.versions[key] <= have else None

    def since(
        self, key: Key, have: int, sender: int, whole: bool = False
    ) -> list[Result | Snapshot]:
        """What a peer at round ``have`` of a segment needs to get where this replica is."""
        if self.versions[key] < have + (not whole) or key in self.astray:
            return []
        chain = None if whole else self.results_after(key, have)
        # Nobody takes a result from anybody but its owner, unless there is nothing else to take.
        foreign = any(one.header.sender != sender for one in chain or ()) and not self._keep_all
        return [self.snapshot(key, sender)] if chain is None or foreign else list(chain)

    def result_of(self, key: Key, round: int) -> Result | None:
        """The result of one round, if there was one and it is still kept."""
        return self._log[key].get(round)

    def included_in(self, round: int) -> float | None:
        """Mean share of the clients in a round's results; a segment without one counts as none.

        None where a result may have been there that is no longer kept.
        """
        included = [self._included(key, round) for key in self.agreement.keys]
        known = [count for count in included if count is not None]
        if len(known) < len(included):
            return None
        return sum(known) / (len(known) * len(self.agreement.view_at(round).clients))

    def _included(self, key: Key, round: int) -> int | None:
        """How many clients the result of a segment and round has, if that is still known."""
        if self.versions[key] < round:
            return 0
        following = min((kept for kept in self._log[key] if kept >= round), default=None)
        if following is None:
            return None
        result = self._log[key][following]
        if following == round:
            return len(result.included)
        return 0 if result.previous < round else None

    def digest(self, key: Key) -> bytes:
        """A hash of a segment's whole state; equal exactly where the bits are.

        With rotation only until another segment enters the next turn, whose shards cut across.
        """
        segment = self.agreement.segments(max(1, self.versions[key]))[key]
        hashed = hashlib.sha256(self.updates[key].to_bytes(8, "little") + self._closed[key])
        hashed.update(_said(self._exponents.get(key, 0)))
        if self._latest is not None and self._latest[0] == key:
            vectors = self._latest[1]
        else:
            vectors = tuple(vector.piece(segment) for vector in self._vectors())
        for vector in vectors:
            hashed.update(vector.data)
        return hashed.digest()

    def exponent(self, key: Key, round: int) -> int:
        """In which unit words of a segment are in a round, where that follows the last mean."""
        found = self._exponents.get(key)
        return self.agreement.coding.first_exponent(round) if found is None else found

    def known_digest(self, key: Key) -> bytes:
        """:meth:`digest`, computed once for every state that results lead to."""
        if self.agreement.settings.plan.rotate:
            return self.digest(key)  # it moves with other segments
        if key not in self._digests:
            self._digests[key] = self.digest(key)
        return self._digests[key]

    def state_of(self, key: Key) -> State:
        """A segment's version and digest, as members compare them."""
        return self.versions[key], self.known_digest(key)[:DIGEST_BYTES]

    def _vectors(self) -> Iterator[Laid]:
        yield self.held
        if self.reference is not None:
            yield self.reference
        yield from self.slots

    def waits(self, key: Key) -> bool:
        """Whether results of a segment are here whose predecessor is not."""
        return bool(self._waiting[key])

    # -- writing ------------------------------------------------------------------------------

    def offer(self, result: Result) -> list[Result]:
        """Take a result in; returns the results that could be applied now, in order.

        A result whose predecessor is missing waits. One that is older than the segment, or already
        known, changes nothing.
        """
        key = result.header.key
        if result.header.round <= self.versions[key]:
            return []
        self.check(result)
        if result.previous < self.versions[key]:
            if result.header.round <= self.horizon:
                self.astray.add(key)
            return []
        waiting = self._waiting[key]
        full = len(waiting) >= self.agreement.settings.history and not self._keep_all
        if full and result.previous != self.versions[key]:
            raise MalformedMessage("result.previous", "too many results wait for their predecessor")
        before = waiting.setdefault(result.previous, result)
        if result.header.round < before.header.round:
            waiting[result.previous] = result
        return self.release(key)

    def release(self, key: Key) -> list[Result]:
        """Apply what of a segment waits and may be applied by now; returns it, in order."""
        applied: list[Result] = []
        while (following := self._next(key)) is not None:
            self._apply(following)
            applied.append(following)
        return applied

    def _next(self, key: Key) -> Result | None:
        """A waiting result whose time has come; only a new turn makes other segments' come too."""
        for candidate in self.agreement.keys if self.agreement.settings.plan.rotate else (key,):
            result = self._waiting[candidate].get(self.versions[candidate])
            if result is None or result.header.round > self.horizon:
                continue
            if self.ready(result.header.round):
                return result
        return None

    def _segment(self, result: Result) -> Segment:
        return self.agreement.segments(result.header.round)[result.header.key]

    def check(self, result: Result) -> None:
        """Refuse a result that does not fit the agreement before anything of it is stored."""
        self.agreement.coding.check_exponent("result.exponent", result.exponent)
        if result.payload is None:
            return
        round = result.header.round
        known = self.agreement.view_at(round).client_set
        if self.agreement.knows(round) and not result.included <= known:
            raise MalformedMessage("result.included", "names a client that is not in the view")
        least = self.agreement.settings.min_included
        if len(result.included) < least:
            found = f"names {len(result.included)} clients; expected at least {least}"
            raise MalformedMessage("result.included", found)
        if result.header.key == self.agreement.gauge:
            values = gauge.read(result)
        else:
            values = self.agreement.coding.published(result, self._segment(result))
        noise, limit = self.agreement.settings.noise, self.agreement.coding.largest_mean
        if noise is not None:
            limit = max(limit, noise.largest_mean(result.samples, len(result.included)))
        if kernels.count_refused(values, limit * (1 + 2.0**-20)):  # a mean may round up
            raise MalformedMessage("result.payload.data", f"holds values beyond ±{limit:g}")

    def _apply(self, result: Result) -> None:
        key, round = result.header.key, result.header.round
        latest = None
        if self.reference is not None and self.agreement.coding.begins_anew(round, result.previous):
            segment = self._segment(result)
            self.reference.put(segment, np.zeros(segment.size, np.float32))
        if result.payload is not None:
            if key == self.agreement.gauge:
                self.gauge = gauge.measured(result, self.agreement.settings)
            else:
                latest = key, self._replay(result)
            self.updates[key] += 1
            self._closed[key] = result.closed
            self._note_included(dict.fromkeys(result.included, round))
        self._move_to(key, round, result.exponent)
        self._latest = latest
        if result.digest and result.digest != self.known_digest(key)[: len(result.digest)]:
            self.astray.add(key)
        log = self._log[key]
        log[round] = replace(result, payload=None) if self._lean else result
        if not self._keep_all and len(log) > self.agreement.settings.history:
            del log[min(log)]

    def _note_included(self, rounds: Mapping[int, int]) -> None:
        """Clients are in results of these rounds; nobody is whom no view has, or ahead of time."""
        if self.agreement.settings.noise is None:
            return
        known = len(self.agreement.view.members)
        for client, round in rounds.items():
            if client < known and self.last_included.get(client, 0) < round <= self.horizon:
                self.last_included[client] = round

    def _move_to(self, key: Key, version: int, exponent: int) -> None:
        self.versions[key] = version
        self._follow(key, exponent)
        self._model = self._latest = None
        self._digests.pop(key, None)
        self.astray.discard(key)
        self.orphaned.discard(key)
        waiting = self._waiting[key]
        self._waiting[key] = {p: result for p, result in waiting.items() if p >= version}

    def _follow(self, key: Key, exponent: int) -> None:
        """Go by what a segment's last result says; one without any has said nothing."""
        if self.agreement.coding.follows and self.versions[key]:
            self._exponents[key] = exponent
        else:
            self._exponents.pop(key, None)

    def _replay(self, result: Result) -> tuple[Vector, ...]:
        """x ← rule(x, s + v̄) and s ← s + γ v̄ on one segment (or x ← rule(x, v̄) without shift).

        Returns the segment of every vector as it is now, in the order of :meth:`_vectors`.
        """
        segment, rule = self._segment(result), self.agreement.settings.rule
        before = None if self.reference is None else self.reference.piece(segment)
        direction, reference = self.agreement.coding.move(result, segment, before)
        if self.reference is not None and reference is not None:
            self.reference.put(segment, reference)
            before = reference
        slots = tuple(slot.piece(segment) for slot in self.slots)
        count = self.updates[segment.key] + 1
        steps = result.sample_steps / result.samples
        model, slots = rule.step(self.held.piece(segment), direction, slots, count, steps)
        self.held.put(segment, model)
        for slot, new in zip(self.slots, slots, strict=True):
            slot.put(segment, new)
        return model, *(() if before is None else (before,)), *slots

    def forget(self, key: Key, before: int) -> None:
        """Drop the results of a segment up to a round: nobody will ask for them."""
        log = self._log[key]
        for round in [round for round in log if round <= before]:
            del log[round]

    # -- checkpoints --------------------------------------------------------------------------

    def state(self) -> dict[str, NDArray[Any]]:
        """All that is needed to continue where this replica is; past results are not."""
        whole = (vector.copy() for vector in self._vectors())
        vectors = dict(zip(self._names(), whole, strict=True))
        counts = [(self.versions[key], self.updates[key]) for key in self.agreement.keys]
        units = {"exponents": self._all_exponents} if self.agreement.coding.follows else {}
        return {
            **vectors, "versions": np.array(counts, np.int64), **self._statements(), **units,
        }  # fmt: skip

    @property
    def _all_exponents(self) -> NDArray[np.int64]:
        return np.array([self._exponents.get(key, 0) for key in self.agreement.keys], np.int64)

    def _statements(self) -> dict[str, NDArray[Any]]:
        """Which statements are behind the segments' states, where sums are secure or encrypted, and
        who was last included when, where there is noise."""
        if not self.agreement.settings.keyed:
            return {}
        rows = [self._closed[key].ljust(CLOSED_BYTES, b"\0") for key in self.agreement.keys]
        closed = np.frombuffer(b"".join(rows), np.uint8).reshape(-1, CLOSED_BYTES)
        if self.agreement.settings.noise is None:
            return {"closed": closed}
        return {"closed": closed, "last_included": np.array(self._last_included, np.int64)}

    @property
    def _last_included(self) -> tuple[int, ...]:
        """:attr:`last_included` by client, up to the last that ever was."""
        last = self.last_included
        return tuple(last.get(client, 0) for client in range(1 + max(last, default=-1)))

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a ``state()`` of a replica of the same federation."""
        shapes: dict[str, tuple[int, ...]]
        shapes = dict.fromkeys(self._names(), (self.agreement.settings.places,))
        keys = len(self.agreement.keys)
        shapes |= {"versions": (keys, 2)}
        if self.agreement.settings.keyed:
            shapes |= {"closed": (keys, CLOSED_BYTES)}
        if self.agreement.coding.follows:
            shapes |= {"exponents": (keys,)}
        for name, shape in shapes.items():
            if name not in state or state[name].shape != shape:
                raise InvalidSetting("checkpoint", f"no fitting {name!r}", "one of this federation")
        for name, vector in zip(self._names(), self._vectors(), strict=True):
            vector.restore(state[name])
        self._model = self._latest = None
        for key, (version, updates) in zip(self.agreement.keys, state["versions"].tolist(),
                                           strict=True):  # fmt: skip
            self.versions[key], self.updates[key] = version, updates
            self._log[key].clear()
            self._waiting[key].clear()
            self._digests.pop(key, None)
        self.last_included = dict(enumerate(state.get("last_included", np.zeros(0)).tolist()))
        said = state["exponents"] if self.agreement.coding.follows else np.zeros(keys, np.int64)
        for key, exponent in zip(self.agreement.keys, said.tolist(), strict=True):
            self._follow(key, exponent)
        if "closed" in state:
            for key, row in zip(self.agreement.keys, state["closed"], strict=True):
                self._closed[key] = row.tobytes() if row.any() else b""

    def seal(self, result: Result) -> Result:
        """A result just applied, with the digest of the state it led to.

        Where shards are drawn anew it may have to wait for others, and has led to none yet.
        """
        if self.agreement.settings.plan.rotate:
            return result
        key = result.header.key
        sealed = replace(result, digest=self.known_digest(key)[:DIGEST_BYTES])
        if not self._lean:
            self._log[key][result.header.round] = sealed
        return sealed

    def remember(self, result: Result) -> None:
        """Keep a result that this replica has passed, for members that may still ask for it."""
        self._log[result.header.key][result.header.round] = result

    def _names(self) -> list[str]:
        slots = [f"slot-{number}" for number in range(len(self.slots))]
        return ["model", *(["reference"] if self.reference is not None else []), *slots]

    # -- far behind ---------------------------------------------------------------------------

    def snapshot(self, key: Key, sender: int) -> Snapshot:
        """This segment's state, for a peer that is further behind than the results kept here."""
        version = self.versions[key]
        segment = self.agreement.segments(max(1, version))[key]
        header = self.agreement.header(sender, max(1, version), key)
        model, *rest = (Payload(encode_values(v.piece(segment))) for v in self._vectors())
        reference = rest.pop(0) if self.reference is not None else None
        return Snapshot(header, version, self.updates[key], model, reference, tuple(rest),
                        self._closed[key], self._last_included,
                        self._exponents.get(key, 0))  # fmt: skip

    @staticmethod
    def state_in(snapshot: Snapshot) -> State:
        """The state that a snapshot holds; what is not finite or does not fit is found later."""
        hashed = hashlib.sha256(snapshot.updates.to_bytes(8, "little") + snapshot.closed)
        hashed.update(_said(snapshot.exponent))
        for payload in (snapshot.model, snapshot.reference, *snapshot.slots):
            hashed.update(payload.encoded.data if payload is not None else b"")
        return snapshot.at, hashed.digest()[:DIGEST_BYTES]

    def adopt(self, snapshot: Snapshot) -> bool:
        """Take over a segment's state if it is newer than what is here."""
        key = snapshot.header.key
        newer = snapshot.at > self.versions[key]
        behind = self.versions[key] if key not in self.orphaned else 0
        mends = key in self.astray and snapshot.at >= behind
        if not (newer or mends) or self._keep_all:
            return False
        segment = self.agreement.segments(1)[key]
        if (snapshot.reference is None) != (self.reference is None):
            raise MalformedMessage("snapshot.reference", "is there only with shifted compression")
        self.agreement.coding.check_exponent("snapshot.exponent", snapshot.exponent)
        if len(snapshot.slots) != len(self.slots):
            found = f"has {len(snapshot.slots)} vectors; this server rule has {len(self.slots)}"
            raise MalformedMessage("snapshot.slots", found)
        payloads = [snapshot.model, *((snapshot.reference,) if snapshot.reference else ())]
        payloads += snapshot.slots
        values = [decode_values(p.encoded, Encoding.DENSE, segment.size) for p in payloads]
        if not all(np.isfinite(value).all() for value in values):
            raise MalformedMessage("snapshot", "holds values that are not finite")
        for vector, new in zip(self._vectors(), values, strict=True):
            vector.put(segment, new)
        self.updates[key], self._closed[key] = snapshot.updates, snapshot.closed
        self._note_included(dict(enumerate(snapshot.last_included)))
        self._log[key].clear()
        self._move_to(key, snapshot.at, snapshot.exponent)
        return True


def _said(exponent: int) -> bytes:
    """An exponent as it is hashed; none is 0."""
    return exponent.to_bytes(1, "little", signed=True) if exponent else b""
