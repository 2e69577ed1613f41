"""What the messages of a run must say, computed from the updates that its clients had.

For transcripts of any engine. There is one result per segment and round, ever; results form a
chain; only clients that contributed are included, each once, and never fewer than
``min_included``. Every result is the weighted mean of what the included clients had to send, in
double precision, and replaying the results alone gives the model that the members hold.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from eris.core.combine import ExactMean, trimmed
from eris.core.shift import shift_step
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.protocol.agreement import Agreement, Key, Segment
from eris.protocol.messages import Contribution, Result
from eris.protocol.round.replica import Replica
from eris.protocol.schemes import Dense, Independent, Masked, Quantised
from eris.protocol.schemes.masked import MaskCoding
from eris.protocol.transcript import Record
from eris.testing import LawBroken

Doubles = NDArray[np.float64]
TOLERANCE = 1e-4
"""Of values that are computed here in double precision and there in single."""


def check_messages(agreement: Agreement, records: Iterable[Record]) -> list[Result]:
    """The laws that messages alone can break; returns the results, each once, round by round."""
    sent: dict[tuple[int, Key], set[int]] = defaultdict(set)
    found: dict[tuple[int, Key], tuple[bytes, Result]] = {}
    for record in records:
        message = record.message
        name = (message.header.round, message.header.key)
        if isinstance(message, Contribution):
            sent[name].add(message.header.sender)
        elif isinstance(message, Result):
            first, _ = found.setdefault(name, (record.data, message))
            if first != record.data:
                raise LawBroken(f"round {name[0]}, segment {name[1]} has two results")
    results = [found[name][1] for name in sorted(found)]
    last: dict[Key, int] = dict.fromkeys(agreement.keys, 0)
    for result in results:
        key, round = result.header.key, result.header.round
        if result.previous != last[key]:
            raise LawBroken(
                f"round {round}, segment {key} follows {result.previous}, not {last[key]}"
            )
        last[key] = round
        if result.payload is not None:
            _included_rightly(agreement, result, sent[round, key])
    return results


def _included_rightly(agreement: Agreement, result: Result, sent: set[int]) -> None:
    where = f"round {result.header.round}, segment {result.header.key}"
    if missing := result.included - sent:
        raise LawBroken(f"{where} includes {sorted(missing)}, who sent nothing")
    least = agreement.settings.min_included
    if len(result.included) < least:
        raise LawBroken(f"{where} includes {len(result.included)} clients, fewer than {least}")
    agreed = _weights(agreement)
    if result.samples != sum(agreed[client] for client in result.included):
        raise LawBroken(f"{where} does not count every included client exactly once")


def _weights(agreement: Agreement) -> dict[int, int]:
    view = agreement.view
    assert view.samples is not None, "a view that says what everyone weighs"
    return dict(zip(view.clients, view.samples, strict=True))


def check_values(
    agreement: Agreement,
    initial: Vector,
    results: Sequence[Result],
    given: Mapping[tuple[int, int], Vector],
) -> Replica:
    """Every published value is the mean of what the included clients had to send.

    ``given`` maps (member, round) to the update. Returns the state that the results lead to.
    """
    replica, oracle = Replica(agreement, initial), _Values(agreement, given)
    for result in results:
        if result.payload is not None:
            expected, reach = oracle.expected(result, replica)
            values = np.frombuffer(result.payload.encoded.data, "<f4").astype(np.float64)
            apart = np.abs(values - expected).max(initial=0)
            if not apart <= TOLERANCE * (1 + reach):
                where = f"round {result.header.round}, segment {result.header.key}"
                raise LawBroken(f"{where} is {apart} off the mean of the included clients")
        replica.offer(result)
    return replica


class _Values:
    """What a result should hold, in double precision, from the clients' updates."""

    def __init__(self, agreement: Agreement, given: Mapping[tuple[int, int], Vector]) -> None:
        self.agreement, self.given = agreement, given
        n = agreement.settings.n
        self.own: dict[int, Doubles] = defaultdict(lambda: np.zeros(n))
        """The clients' references in the paper's mode."""

    def expected(self, result: Result, state: Replica) -> tuple[Doubles, float]:
        """The weighted mean over the included clients, and the largest value that is in it."""
        settings = self.agreement.settings
        round, key = result.header.round, result.header.key
        segment = self.agreement.segments(round)[key]
        coordinates = segment.shard_map.coordinates(segment.shard, segment.start, segment.stop)
        weights = _weights(self.agreement)
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
        shifted = self.given[client, round][coordinates] - state.reference.whole()[coordinates]
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
