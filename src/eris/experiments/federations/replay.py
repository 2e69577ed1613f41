"""A recorded federation once more, by one central aggregator: from its journals and its trainers.

The journals say what cannot be known beforehand: who was included in which result, and from which
versions of the segments each client had trained. Everything else is computed again. If the network
did what it should, every published digest and the final model come out bit for bit, whatever failed
meanwhile.

Trainers must give the same update for the same model and round, as those without a state of their
own do. A segment's state is kept for every version, so memory grows with the rounds.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, product
from typing import Any

import numpy as np

from eris.core.combine import VALUE_BITS, FixedPoint
from eris.core.errors import ErisError, InvalidSetting, RefusedContribution
from eris.core.shift import advance, difference
from eris.core.vectors import Vector
from eris.protocol.agreement import Agreement, Key, Segment
from eris.protocol.authority.standing import Scheduled
from eris.protocol.codec import DIGEST_BYTES
from eris.protocol.enccluster.coding import EncryptingCoding
from eris.protocol.enccluster.scale import CentroidScale
from eris.protocol.messages import Contribution, Payload, Result
from eris.protocol.schemes import Dense, EncryptedEntries
from eris.protocol.schemes.independent import IndependentCoding
from eris.protocol.schemes.weights import WeightCoding, moved
from eris.protocol.settings import Settings
from eris.protocol.view import View
from eris.training.trainer import LocalUpdate, Trainer, as_update

Journals = Mapping[str, Sequence[Mapping[str, Any]]]
"""What each node noted, by its name."""
MOST_TRIALS = 64
"""Combinations of trainings that are tried for a result whose clients trained more than once."""


@dataclass(frozen=True)
class Replayed:
    """What came out, and every result that did not come out as it was published."""

    model: Vector
    versions: Mapping[Key, int]
    """Of every segment: the round of its last result."""
    results: int
    """How many results were computed again."""
    mismatches: tuple[str, ...]

    @property
    def equal(self) -> bool:
        """Whether all results are the published ones, bit for bit."""
        return not self.mismatches


@dataclass(frozen=True)
class Published:
    """A result as journals have it; ``included`` are names."""

    round: int
    key: Key
    previous: int
    included: tuple[str, ...]
    withheld: bool
    digest: str
    closed: str = ""
    """The statement that a secure sum was closed with."""


@dataclass(frozen=True)
class _State:
    """A segment at one version."""

    model: Vector
    reference: Vector | None
    slots: tuple[Vector, ...]
    updates: int = 0
    closed: str = ""
    own: Mapping[str, Vector] = field(default_factory=dict)
    """Clients' own references, where they have any; 0 of one that is not here."""

    def anew(self) -> _State:
        """With references that begin again."""
        assert self.reference is not None
        return replace(self, reference=np.zeros_like(self.reference), own={})

    @property
    def digest(self) -> str:
        """The digest that a result carries."""
        hashed = hashlib.sha256(self.updates.to_bytes(8, "little") + bytes.fromhex(self.closed))
        shift = () if self.reference is None else (self.reference,)
        for vector in (self.model, *shift, *self.slots):
            hashed.update(vector.tobytes())
        return hashed.digest()[:DIGEST_BYTES].hex()


Versions = tuple[int, ...]
"""Of all segments, in the order of the agreement's keys."""
_Combined = tuple[Payload, int, int, dict[str, Vector]]
"""What is published, the samples behind it, these times steps, and what each client sent."""
Told = Callable[[str, Published, Vector], None]
"""A client, a result that it is in, and the values it sent for that."""


def replay(
    settings: Settings,
    initial: Vector,
    trainers: Mapping[str, Trainer],
    journals: Journals,
    told: Told = lambda client, result, values: None,
) -> Replayed:
    """Compute every result of a federation again from its nodes' journals, by name.

    ``told`` is handed what every included client had to send, in the clear.

    >>> class Pull:
    ...     def update(self, parameters, round):
    ...         return LocalUpdate(parameters - np.float32(1), samples=1)
    >>> notes = [{"event": "view", "members": ["anna", "ben", "cleo"]}]
    >>> replay(Settings(n=2), np.zeros(2, np.float32), {"anna": Pull()}, {"anna": notes}).model
    array([0., 0.], dtype=float32)
    """
    return _Replay(settings, initial, trainers, journals, told).run()


def published(journals: Journals) -> list[Published]:
    """The results in the journals, each once, in the order of rounds and segments.

    Two that differ are both in the list: there is never a second one, so that is worth seeing.
    """
    members = _members(journals)
    found: set[Published] = set()
    for note in _notes(journals, "result"):
        number, segment = note["segment"]
        included = tuple(members[client] for client in note["included"])
        told = (note["previous"], included, note["withheld"], note["digest"], note["closed"])
        found.add(Published(note["round"], (number, segment), *told))
    return sorted(found, key=lambda result: (result.round, result.key, result.digest))


class _Replay:
    """The central aggregator."""

    def __init__(
        self,
        settings: Settings,
        initial: Vector,
        trainers: Mapping[str, Trainer],
        journals: Journals,
        told: Told,
    ) -> None:
        if settings.plan.rotate:
            raise InvalidSetting("settings", settings.name, "what a node on a network can do")
        if settings.secure is not None:
            # In the clear, on the grid of the words.
            places = settings.secure.fraction_bits(settings.precision)
            grid = FixedPoint(2.0 ** (VALUE_BITS - places))
            settings = replace(settings, secure=None, precision=grid)
        self._entries: EncryptedEntries | None = None
        if isinstance(settings.scheme, EncryptedEntries):  # in the clear, what is kept
            self._entries, settings = settings.scheme, replace(settings, scheme=Dense())
        self.settings, self.trainers, self._told = settings, trainers, told
        self.results = published(journals)
        self.agreement = _central(settings, _members(journals))
        self.initial = self.agreement.coding.enter(initial)
        self.segments = self.agreement.segments(1)
        self.trainings = _trainings(journals)
        self._views = list(_notes(journals, "view"))
        if settings.scheme.own_references:
            self.agreement.schedule(self._scheduled())
        self.states = {(key, 0): self._start(segment) for key, segment in self.segments.items()}
        self.mismatches: list[str] = []
        self._updates: dict[tuple[str, int, Versions], LocalUpdate] = {}

    def run(self) -> Replayed:
        """Results one after another, each as soon as what it builds on is there.

        A client may have trained on a segment's result of the very round it contributed to, so the
        order of rounds alone does not do.
        """
        waiting = self.results
        while waiting:
            left = [result for result in waiting if not self._recompute(result)]
            if len(left) == len(waiting):
                left = self._give_up(left)
            waiting = left
        heads = {key: max(v for k, v in self.states if k == key) for key in self.segments}
        model = self._model(tuple(heads.values()))
        return Replayed(model, heads, len(self.results), tuple(self.mismatches))

    # -- one result ---------------------------------------------------------------------------

    def _recompute(self, result: Published, *, whatever: bool = False) -> bool:
        """Whether a result came out as it was published; with ``whatever`` it is kept anyway."""
        before = self.states.get((result.key, result.previous))
        if before is None:
            return False
        if self.agreement.coding.begins_anew(result.round, result.previous):
            before = before.anew()
        made = None
        for made in islice(self._candidates(result, before), MOST_TRIALS):
            if made[0].digest == result.digest:
                break
        if made is None or not (whatever or made[0].digest == result.digest):
            return False
        state, sent = made
        if state.digest != result.digest:
            where = f"round {result.round}, segment {result.key}"
            self.mismatches.append(f"{where}: {state.digest} here, {result.digest} published")
        self.states.setdefault((result.key, result.round), state)
        for client, values in sent.items():
            self._told(client, result, values)
        return True

    def _give_up(self, stuck: list[Published]) -> list[Published]:
        """Nothing comes out any more: note the first result that can be computed at all."""
        for number, result in enumerate(stuck):
            if self._recompute(result, whatever=True):
                return stuck[:number] + stuck[number + 1 :]
        self.mismatches += [
            f"round {result.round}, segment {result.key}: what it was made from is not recorded"
            for result in stuck
        ]
        return []

    def _candidates(
        self, result: Published, before: _State
    ) -> Iterator[tuple[_State, dict[str, Vector]]]:
        """What a result may have led to, and from what: a client that was restarted may have
        trained twice."""
        if result.withheld:
            yield before, {}
            return
        self._forget(result.round)
        choices = [self._based_on(client, result.round) for client in result.included]
        for chosen in product(*choices):
            updates = {
                client: self._update(client, result.round, versions)
                for client, versions in zip(result.included, chosen, strict=True)
            }
            try:
                made = self._combined(result, before, updates)
            except RefusedContribution:  # it did not come of these
                continue
            yield made

    def _based_on(self, client: str, round: int) -> list[Versions]:
        """What a client trained from in a round, the last first, as far as it is known here."""
        return [
            versions
            for versions in self.trainings.get((client, round), ())
            if all(pair in self.states for pair in zip(self.segments, versions, strict=True))
        ]

    # -- the mathematics ----------------------------------------------------------------------

    def _combined(
        self, result: Published, before: _State, updates: Mapping[str, LocalUpdate]
    ) -> tuple[_State, dict[str, Vector]]:
        """The mean of the included clients' segments, and the server's step along it; and what
        each of them sent."""
        segment, coding, rule = self.segments[result.key], self.agreement.coding, self.settings.rule
        server = len(self.agreement.view.members) - 1
        header = self.agreement.header(server, result.round, result.key)
        if isinstance(coding, EncryptingCoding):
            payload, samples, steps, sent = self._opened(coding, result, before, updates)
        else:
            payload, samples, steps, sent = self._collected(result, before, updates)
        members = self.agreement.view.members
        included = frozenset(members.index(client) for client in updates)
        made = Result(header, result.previous, included, samples, steps, payload)
        direction, reference = coding.move(made, segment, before.reference)
        count = before.updates + 1
        model, slots = rule.step(before.model, direction, before.slots, count, steps / samples)
        own = self._references(result, before, sent)
        return _State(model, reference, tuple(slots), count, result.closed, own), sent

    def _references(
        self, result: Published, before: _State, sent: Mapping[str, Vector]
    ) -> Mapping[str, Vector]:
        """Where clients' own references are, after a result."""
        coding, segment = self.agreement.coding, self.segments[result.key]
        if not isinstance(coding, IndependentCoding):
            return before.own
        moved = dict(before.own)
        for client, values in sent.items():
            member, step = self.agreement.view.members.index(client), _zeros(segment)
            at = coding.places(result.round, segment.key, member)
            step[at] = values * coding.scale(result.round, member)
            own = moved.get(client, _zeros(segment))
            moved[client] = advance(own, step, coding.gamma(segment))
        return moved

    def _collected(
        self, result: Published, before: _State, updates: Mapping[str, LocalUpdate]
    ) -> _Combined:
        """By the scheme's own collector."""
        segment, coding = self.segments[result.key], self.agreement.coding
        collector, sent = coding.collector(result.round, segment, lambda: before.model), {}
        for client, update in updates.items():
            contribution = self._contribution(result, before, client, update)
            collector.take(contribution)
            sent[client] = coding.read(contribution, segment)
        payload = collector.finish()
        assert isinstance(payload, Payload)
        return payload, collector.samples, collector.sample_steps, sent

    def _opened(
        self,
        coding: EncryptingCoding,
        result: Published,
        before: _State,
        updates: Mapping[str, LocalUpdate],
    ) -> _Combined:
        """By whole numbers in the clear, as ciphertexts add them up."""
        segment, members = self.segments[result.key], self.agreement.view.members
        scale = self._scale(coding, result.round)
        total, weight, steps, sent = np.zeros(segment.size, np.int64), 0, 0, {}
        for client, update in updates.items():
            values = segment.gather(update.vector)
            if coding.of_weights:
                values = moved(before.model, values, coding.rate)
            counts = coding.weight(int(update.samples))
            total += coding.integers(values, counts, scale, segment, members.index(client))
            weight, steps = weight + counts, steps + counts * int(update.steps)
            sent[client] = values
        mean = coding.mean_update(scale.mean(total, weight), lambda: before.model)
        return coding.publish(mean, result.round), weight, steps, sent

    def _scale(self, coding: EncryptingCoding, round: int) -> CentroidScale:
        """By which weights became integers: that of the round's view."""
        terms = coding.terms
        view = max(
            (note for note in self._views if note["from_round"] <= round),
            key=lambda note: int(note["epoch"]),
        )
        count = len(view["clients"])
        total = count if terms.average == "plain" else sum(view["samples"])
        return CentroidScale(count, total, terms.weight_range, terms.fraction_bits)

    def _contribution(
        self, result: Published, before: _State, client: str, update: LocalUpdate
    ) -> Contribution:
        """What a client had to send for a result."""
        segment, coding = self.segments[result.key], self.agreement.coding
        member, round = self.agreement.view.members.index(client), result.round
        vector = update.vector
        if self.settings.rule.normalises_steps:
            vector = vector / np.float32(update.steps)
        piece = coding.pick(round, segment, member, segment.gather(vector))
        reference = before.reference
        if self.settings.scheme.own_references:
            reference = before.own.get(client, _zeros(segment))
        if reference is not None:
            piece = difference(piece, coding.pick(round, segment, member, reference))
        if isinstance(coding, WeightCoding) and coding.of_weights:
            piece = moved(before.model, piece, coding.rate)
        payload = coding.encode(piece, segment, round, member)
        header = self.agreement.header(member, round, result.key)
        return Contribution(header, result.previous, update.samples, update.steps, payload)

    def _update(self, client: str, round: int, versions: Versions) -> LocalUpdate:
        name = client, round, versions
        if name not in self._updates:
            if client not in self.trainers:
                raise InvalidSetting("trainers", sorted(self.trainers), f"also one of {client}")
            made = self.trainers[client].update(self._model(versions), round)
            update = as_update(made, client, self.settings.n)
            if self._entries is not None:
                update = replace(update, vector=self._entries.kept(update.vector))
            entered = self.agreement.coding.enter(update.vector)
            self._updates[name] = replace(update, vector=entered)
        return self._updates[name]

    def _forget(self, round: int) -> None:
        """Drop updates of rounds that are over; should one be needed again, it is made again."""
        for name in [name for name in self._updates if name[1] < round - 1]:
            del self._updates[name]

    def _model(self, versions: Versions) -> Vector:
        model = np.empty(self.settings.places, np.float32)
        for (key, segment), version in zip(self.segments.items(), versions, strict=True):
            segment.scatter(model, self.states[key, version].model)
        return self.agreement.coding.leave(model)

    def _start(self, segment: Segment) -> _State:
        def filled(value: float) -> Vector:
            return np.full(segment.size, value, np.float32)

        reference = filled(0.0) if self.settings.scheme.shifted else None
        slots = tuple(filled(value) for value in self.settings.rule.initial)
        return _State(segment.gather(self.initial), reference, slots)

    def _scheduled(self) -> list[Scheduled]:
        """The views that members had, with the server as the owner of all."""
        members = self.agreement.view.members
        told = {int(note["epoch"]): note for note in self._views}
        return [
            Scheduled(
                replace(
                    self.agreement.view,
                    clients=tuple(map(members.index, note["clients"])),
                    samples=tuple(note["samples"]),
                    epoch=epoch,
                ),
                int(note["from_round"]),
            )
            for epoch, note in sorted(told.items())
        ]


def _zeros(segment: Segment) -> Vector:
    return np.zeros(segment.size, np.float32)


# -- reading journals -----------------------------------------------------------------------------


def _notes(journals: Journals, event: str) -> Iterable[Mapping[str, Any]]:
    return (note for journal in journals.values() for note in journal if note["event"] == event)


def _members(journals: Journals) -> tuple[str, ...]:
    """All members by their numbers: views only ever add to them."""
    views = [tuple(note["members"]) for note in _notes(journals, "view")]
    if not views:
        raise ErisError("none of the journals has a view: nobody knows who took part")
    return max(views, key=len)


def _trainings(journals: Journals) -> dict[tuple[str, int], list[Versions]]:
    """By client and round: the versions it trained from, the last training first."""
    found: dict[tuple[str, int], list[Versions]] = defaultdict(list)
    for name, journal in journals.items():
        for note in _notes({name: journal}, "trained"):
            trainings, versions = found[name, note["round"]], tuple(note["based_on"])
            if versions not in trainings:
                trainings.insert(0, versions)
    return found


def _central(settings: Settings, members: tuple[str, ...]) -> Agreement:
    """All members as clients of a server that owns every shard."""
    server = len(members)
    clients = tuple(range(server))
    samples = (1,) * server if settings.scheme.weighed else None
    view = View((*members, "the server"), clients, (server,) * settings.plan.shards, samples)
    return Agreement(settings, view)
