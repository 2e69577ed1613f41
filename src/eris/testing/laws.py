"""The laws of the protocol, checked on a run from outside.

States (after every round)
    Two nodes at the same version of a segment hold the same bits, now and at any earlier time.
    In the paper's mode the common reference is the weighted mean of the clients' own.
Messages (from the transcript)
    There is one result per segment and round, ever. Results form a chain. Only clients that
    contributed are included, each once, and never fewer than ``min_included``.
Values (from the transcript and the updates)
    Every result is the weighted mean of what the included clients had to send, and replaying the
    results alone gives the model that the nodes hold.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from eris.core.combine import ExactMean, trimmed
from eris.core.shift import shift_step
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.protocol.agreement import Agreement, Key, Segment
from eris.protocol.messages import Contribution, Result
from eris.protocol.node import Node
from eris.protocol.replica import Replica
from eris.protocol.schemes import Dense, Independent, Masked, Quantised
from eris.protocol.schemes.masked import MaskCoding
from eris.protocol.transcript import Transcript

Doubles = NDArray[np.float64]
TOLERANCE = 1e-4
"""Of values that are computed here in double precision and there in single."""


class LawBroken(AssertionError):
    """A law of the protocol does not hold; says which and where."""


class CheckedRun(Protocol):
    """What the checks need of a runtime."""

    @property
    def agreement(self) -> Agreement:
        """What the nodes agreed on."""
        ...

    @property
    def nodes(self) -> Sequence[Node]:
        """The nodes, by member."""
        ...

    @property
    def transcript(self) -> Transcript | None:
        """The messages as they were sent."""
        ...


class Laws:
    """Watches a run: ``after_round`` after each, ``at_end`` once all nodes have caught up."""

    def __init__(self, run: CheckedRun) -> None:
        self.run, self.agreement = run, run.agreement
        self._initial = run.nodes[0].model.copy()
        self._digests: dict[tuple[Key, int], bytes] = {}
        self._states: dict[tuple[int, ...], bytes] = {}

    def after_round(self) -> None:
        """The laws about states."""
        for node in self.run.nodes:
            self._segments_agree(node)
            self._whole_states_agree(node)
        if isinstance(self.agreement.settings.scheme, Independent):
            self._references_agree()

    def at_end(self, given: Mapping[tuple[int, int], Vector] | None = None) -> None:
        """The laws about messages and, with the updates that clients had, about values.

        ``given`` maps (member, round) to the update. Every node must have caught up.
        """
        results = self.check_messages()
        if given is not None:
            self.check_values(results, given)
        replayed = self.replay(results)
        for node in self.run.nodes:
            who = f"node {node.me}"
            if node.replica.versions != replayed.versions:
                raise LawBroken(f"{who} is not at the versions that the results lead to")
            if _state(node.replica) != _state(replayed):
                raise LawBroken(f"{who} holds other bits than a replay of the results")

    # -- states -------------------------------------------------------------------------------

    def _segments_agree(self, node: Node) -> None:
        replica = node.replica
        for key, version in replica.versions.items():
            if not self._current(replica, version):
                continue
            digest = replica.digest(key)
            if self._digests.setdefault((key, version), digest) != digest:
                raise LawBroken(f"node {node.me}, segment {key}: version {version} has two states")

    def _whole_states_agree(self, node: Node) -> None:
        versions = tuple(node.replica.versions.values())
        state = _state(node.replica)
        if self._states.setdefault(versions, state) != state:
            raise LawBroken(f"node {node.me}: the versions {versions} have two states")

    def _current(self, replica: Replica, version: int) -> bool:
        """Whether the coordinates of that version are still those of its segment alone: once the
        shards are drawn anew, results of other segments move them too."""
        rotate = self.agreement.settings.plan.rotate
        if not rotate:
            return True
        return max(replica.versions.values()) < self.agreement.turn_start(max(1, version)) + rotate

    def _references_agree(self) -> None:
        """s = Σ w_k s_k on every segment of which all nodes have the same version."""
        nodes = self.run.nodes
        average = self._mean_own_reference()
        for key in self.agreement.keys:
            versions = {node.replica.versions[key] for node in nodes}
            version = versions.pop()
            if versions or not all(self._current(node.replica, version) for node in nodes):
                continue
            segment = self.agreement.segments(max(1, version))[key]
            reference = nodes[0].replica.reference
            assert reference is not None
            apart = np.abs(segment.gather(reference - average)).max(initial=0)
            if not apart < TOLERANCE:
                raise LawBroken(f"segment {key}: s and the mean of the s_k are {apart} apart")

    def _mean_own_reference(self) -> Vector:
        view = self.agreement.view
        assert view.samples is not None
        total = np.zeros(self.agreement.settings.n)
        for client, weight in zip(view.clients, view.samples, strict=True):
            own = self.run.nodes[client].client.sender.state()["reference"]
            total += weight * own.astype(np.float64)
        return (total / sum(view.samples)).astype(np.float32)

    # -- messages -----------------------------------------------------------------------------

    def check_messages(self) -> list[Result]:
        """The laws that the transcript alone can break; returns its results, each once."""
        assert self.run.transcript is not None, "these laws are read from a transcript"
        sent: dict[tuple[int, Key], dict[int, Contribution]] = defaultdict(dict)
        found: dict[tuple[int, Key], tuple[bytes, Result]] = {}
        for record in self.run.transcript.records:
            message = record.message
            name = (message.header.round, message.header.key)
            if isinstance(message, Contribution):
                sent[name][message.header.sender] = message
            elif isinstance(message, Result):
                first, _ = found.setdefault(name, (record.data, message))
                if first != record.data:
                    raise LawBroken(f"round {name[0]}, segment {name[1]} has two results")
        results = [found[name][1] for name in sorted(found)]
        self._chained(results)
        for result in results:
            if result.payload is not None:
                self._included_rightly(result, sent[result.header.round, result.header.key])
        return results

    def _chained(self, results: Sequence[Result]) -> None:
        last: dict[Key, int] = dict.fromkeys(self.agreement.keys, 0)
        for result in results:
            key, round = result.header.key, result.header.round
            if result.previous != last[key]:
                raise LawBroken(
                    f"round {round}, segment {key} follows {result.previous}, not {last[key]}"
                )
            last[key] = round

    def _included_rightly(self, result: Result, sent: Mapping[int, Contribution]) -> None:
        where = f"round {result.header.round}, segment {result.header.key}"
        owner = self.agreement.view.owners[result.header.shard]
        missing = result.included - set(sent) - {owner}
        if missing:
            raise LawBroken(f"{where} includes {sorted(missing)}, who sent nothing")
        least = self.agreement.settings.min_included
        if len(result.included) < least:
            raise LawBroken(f"{where} includes {len(result.included)} clients, fewer than {least}")
        # What the owner itself added did not travel; its weight is the agreed one.
        view = self.agreement.view
        assert view.samples is not None
        agreed = dict(zip(view.clients, view.samples, strict=True))
        if result.samples != sum(agreed[client] for client in result.included):
            raise LawBroken(f"{where} does not count every included client exactly once")

    # -- values -------------------------------------------------------------------------------

    def replay(self, results: Sequence[Result]) -> Replica:
        """The state that the results alone lead to."""
        replica = Replica(self.agreement, self._initial)
        for result in results:
            replica.offer(result)
        return replica

    def check_values(
        self, results: Sequence[Result], given: Mapping[tuple[int, int], Vector]
    ) -> None:
        """Every published value is the mean of what the included clients had to send."""
        replica = Replica(self.agreement, self._initial)
        oracle = _Values(self.agreement, given)
        for result in results:
            if result.payload is not None:
                expected, reach = oracle.expected(result, replica)
                values = np.frombuffer(result.payload.encoded.data, "<f4").astype(np.float64)
                apart = np.abs(values - expected).max(initial=0)
                if not apart <= TOLERANCE * (1 + reach):
                    where = f"round {result.header.round}, segment {result.header.key}"
                    raise LawBroken(f"{where} is {apart} off the mean of the included clients")
            replica.offer(result)


class _Values:
    """What a result should hold, in double precision, from the clients' updates."""

    def __init__(self, agreement: Agreement, given: Mapping[tuple[int, int], Vector]) -> None:
        self.agreement, self.given = agreement, given
        n = agreement.settings.n
        self.own: dict[int, Doubles] = defaultdict(lambda: np.zeros(n))
        """The clients' references in the paper's mode."""

    def expected(self, result: Result, state: Replica) -> tuple[Doubles, float]:
        """The weighted mean over the included clients, and the largest value that is in it."""
        view, settings = self.agreement.view, self.agreement.settings
        round, key = result.header.round, result.header.key
        segment = self.agreement.segments(round)[key]
        coordinates = segment.shard_map.coordinates(segment.shard, segment.start, segment.stop)
        assert view.samples is not None
        weights = dict(zip(view.clients, view.samples, strict=True))
        clients = sorted(result.included)
        sent = np.stack([self._sent(c, round, segment, coordinates, state) for c in clients])
        mean = self._combined(sent, np.array([weights[c] for c in clients]))
        reach = float(np.abs(sent).max(initial=0))
        if type(settings.scheme) is Masked:
            mean = mean[self._kept(round, 0)[coordinates]]
        return mean, reach

    def _combined(self, sent: Doubles, weights: NDArray[np.int64]) -> Doubles:
        """Row by row a client: the mean, or the middle, of each column."""
        collector = self.agreement.settings.rule.collector(
            0, self.agreement.settings.precision, "refuse"
        )
        if isinstance(collector, ExactMean):
            mean: Doubles = weights @ sent / weights.sum()
            return mean
        if collector.trim is None:
            return np.median(sent, axis=0)
        cut = trimmed(len(sent), collector.trim)
        middle: Doubles = np.sort(sent, axis=0)[cut : len(sent) - cut].mean(axis=0)
        return middle

    def _sent(
        self, client: int, round: int, segment: Segment, coordinates: NDArray[np.int64],
        state: Replica,
    ) -> Doubles:  # fmt: skip
        settings = self.agreement.settings
        update = self.given[client, round][coordinates].astype(np.float64)
        scheme, coding = settings.scheme, self.agreement.coding
        if isinstance(scheme, Dense):
            return update
        if isinstance(scheme, Independent):
            assert isinstance(coding, MaskCoding)
            mask = self._kept(round, client)[coordinates]
            sent: Doubles = np.where(mask, update - self.own[client][coordinates], 0)
            gamma = shift_step(scheme.compressor.omega(settings.n))
            scale = coding.kept(round, client).scale
            self.own[client][coordinates] += gamma * scale * sent
            return sent
        assert state.reference is not None
        shifted = self.given[client, round][coordinates] - state.reference[coordinates]
        if isinstance(scheme, Masked):
            return shifted.astype(np.float64)
        assert isinstance(scheme, Quantised)
        purpose = f"quantise/{segment.number}"
        draw = Stream(settings.seed, purpose, round, client, segment.shard)
        encoded = scheme.compressor.encode(shifted, draw)
        return scheme.compressor.decode(encoded, segment.size).astype(np.float64)

    def _kept(self, round: int, client: int) -> NDArray[np.bool_]:
        """The kept set as a truth value a coordinate."""
        assert isinstance(self.agreement.coding, MaskCoding)
        bits = self.agreement.coding.kept(round, client).bits
        words = np.unpackbits(bits.astype("<u8").view(np.uint8), bitorder="little")
        return words[: self.agreement.settings.n].astype(bool)


def _state(replica: Replica) -> bytes:
    """A hash of all that a replica holds, in the order of coordinates."""
    hashed = hashlib.sha256(replica.model.tobytes())
    if replica.reference is not None:
        hashed.update(replica.reference.tobytes())
    for slot in replica.slots:
        hashed.update(slot.tobytes())
    for count in replica.updates.values():
        hashed.update(count.to_bytes(8, "little"))
    return hashed.digest()
