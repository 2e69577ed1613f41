"""The wire law: nothing but the values travels, up to a small overhead a segment.

Checked against the worst numbers a header can hold, and in real runs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from eris.core.combine import MOST_SAMPLES
from eris.core.compress import (
    QSGD,
    Compressor,
    Encoded,
    Encoding,
    RandK,
    RandP,
)
from eris.core.rules import FedAdam
from eris.core.shards import RandomPlan, WeightedPlan
from eris.core.streams import Stream
from eris.protocol.agreement import Agreement
from eris.protocol.codec import (
    DIGEST_BYTES,
    LONGEST_REASON,
    MOST_STEPS,
    decode,
    encode,
)
from eris.protocol.messages import (
    CatchUp,
    Contribution,
    Header,
    Holding,
    Message,
    Payload,
    Refusal,
    Result,
    Reveal,
    RevealRequest,
    Share,
    Snapshot,
)
from eris.protocol.schemes import scheme_for
from eris.protocol.schemes.scheme import Sender
from eris.protocol.settings import Settings
from eris.protocol.view import View
from eris.runtimes.events import EventEngine
from eris.runtimes.faults import FaultPlan
from eris.training.population import Trainers
from eris.training.trainer import LocalUpdate

Vector = NDArray[np.float32]
U32, U64 = (1 << 32) - 1, (1 << 64) - 1
OVERHEAD = 128

# The wire law: a segment is its values, at most 128 bytes, and one bit a client on the way down.


def allowed(values: int, members: int = 0) -> int:
    return 4 * values + OVERHEAD + -(-members // 8)


WORST = Header(U64, U32, U32, U32, U32, U32)
COUNTS = (0, 1, 31, 32, 127, 128, 4_095, 4_096, 1 << 14, 1 << 18, 1 << 22)


@pytest.mark.parametrize("encoding", [Encoding.DENSE, Encoding.KEPT])
@pytest.mark.parametrize("count", COUNTS)
def test_a_contribution_obeys_the_wire_law(encoding: Encoding, count: int) -> None:
    encoded = Encoded(encoding, count, bytes(4 * count), parameter=3.4e38)
    message = Contribution(WORST, U32, MOST_SAMPLES, MOST_STEPS, Payload(encoded, U64))
    assert len(encode(message)) <= allowed(count)
    assert decode(encode(message)).header == WORST


@pytest.mark.parametrize("encoding", list(Encoding))
@pytest.mark.parametrize("count", COUNTS)
def test_a_share_obeys_the_wire_law(encoding: Encoding, count: int) -> None:
    largest_float = float(np.finfo(np.float32).max)
    message = Share(WORST, Payload(Encoded(encoding, count, bytes(4 * count), largest_float), U64))
    assert len(encode(message)) <= allowed(count)
    assert decode(encode(message)) == message


@pytest.mark.parametrize("members", [1, 8, 9, 1_000, 1_024, 10_000])
@pytest.mark.parametrize("encoding", [Encoding.DENSE, Encoding.KEPT])
@pytest.mark.parametrize("count", COUNTS)
def test_a_result_obeys_the_wire_law(encoding: Encoding, count: int, members: int) -> None:
    encoded = Encoded(encoding, count, bytes(4 * count), parameter=3.4e38)
    everyone = frozenset(range(members))
    message = Result(WORST, U32 - 1, everyone, U64, U64, Payload(encoded, U64))
    assert len(encode(message)) <= allowed(count, members)
    only_last = Result(WORST, U32 - 1, frozenset({members - 1}), U64, U64, Payload(encoded, U64))
    assert len(encode(only_last)) <= allowed(count, members)


def test_messages_without_values_are_small() -> None:
    assert len(encode(CatchUp(WORST, U32))) <= OVERHEAD
    assert len(encode(Holding(WORST, U32, bytes(DIGEST_BYTES)))) <= OVERHEAD
    assert len(encode(Result(WORST, U32 - 1, frozenset(), 0, 0, None))) <= OVERHEAD
    assert len(encode(Refusal(WORST, "x" * LONGEST_REASON))) <= OVERHEAD + LONGEST_REASON


def largest(agreement: Agreement, message: Message, compressor: Compressor | None) -> int:
    """What a message may weigh, from the agreement alone: nothing of its payload is trusted."""
    header, members = message.header, len(agreement.view.members)
    size = agreement.segments(header.round)[header.key].size
    kept = size
    if isinstance(compressor, RandP | RandK):
        kept = len(agreement.coding.coordinates(header.round, header.key, 0))
    match message:
        case Contribution():
            if isinstance(compressor, QSGD):
                return OVERHEAD + -(-size * (2 * compressor.levels).bit_length() // 8)
            return allowed(kept)
        case Result():
            return allowed(kept, members)
        case Snapshot():
            vectors = 1 + (message.reference is not None) + len(message.slots)
            return vectors * allowed(size)
        case CatchUp() | Holding():
            return OVERHEAD
        case Refusal():
            return OVERHEAD + len(message.reason.encode())
        case Share() | RevealRequest() | Reveal():
            raise AssertionError("nobody shares or reveals in these federations")


@dataclass
class Boaster:
    """A client whose weight is its own choice."""

    member: int

    def update(self, parameters: Vector, round: int) -> LocalUpdate:
        drawn = Stream(1, "wire-law", round, self.member).uniform(0, len(parameters))
        samples = MOST_SAMPLES if self.member == 2 else 1_000
        return LocalUpdate(drawn.astype(np.float32), samples, self.member + 1)


@pytest.mark.parametrize(
    "compressor",
    [None, RandP(0.05), RandK(300), QSGD(4)],
    ids=["dense", "rand-p", "rand-k", "qsgd"],
)
@pytest.mark.parametrize("members", [3, 11])
def test_every_message_of_a_run_obeys_the_wire_law(
    compressor: Compressor | None, members: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Contributions, results, questions, snapshots and refusals of a run with losses."""
    agreed = Settings(
        n=6_007,
        plan=WeightedPlan((1, 2, 3)) if members == 3 else RandomPlan(3),
        rule=FedAdam(),
        scheme=scheme_for(compressor),
        segment_size=701,
        history=1,
        quorum=1,
        min_included=1,
    )
    view = View.serverless([f"member {i}" for i in range(members)], aggregators=3)
    agreement = Agreement(agreed, view)
    faults = FaultPlan(seed=1, drop=0.2, crash=0.1)
    population = Trainers([Boaster(member) for member in range(members)])
    engine = EventEngine(
        agreement, np.zeros(agreed.n, np.float32), population, faults=faults, record=True
    )
    # Member 2 claims more samples than it may, unchecked: the owners refuse it.
    monkeypatch.setattr(Sender, "check_weight", lambda *_: None)
    records = [record for round in range(1, 5) for record in engine.run_round(round).records]
    kinds = set()
    for record in records:
        message = record.message
        kinds.add(type(message))
        assert len(record.data) <= largest(agreement, message, compressor), message.header
    assert kinds == {Contribution, Result, CatchUp, Snapshot, Refusal}
