"""Faults in the middle of a round: the front door on the virtual clock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from eris.core.errors import InvalidSetting, PrecisionWarning
from eris.core.rules import FedAvg as FedAvgRule
from eris.federation import Federation
from eris.methods.eris import ERIS
from eris.methods.privacy import LocalPrivacy
from eris.protocol.messages import Contribution
from eris.runtimes.events import EventEngine
from eris.runtimes.faults import Fault, FaultPlan
from eris.session import Session
from eris.testing import assert_same_bits, initial_model
from eris.training.trainer import LocalUpdate
from support.crowd import Crowd

N, CLIENTS, ROUNDS = 40, 6, 5
START = initial_model(N)


def session(
    crowd: Crowd, faults: FaultPlan, method: ERIS | None = None, record: bool = True
) -> Session:
    federation = Federation(
        crowd, START, method or ERIS(aggregators=3), rule=FedAvgRule(0.2), seed=2, min_included=2
    )
    return federation.start(ROUNDS, faults=faults, record=record)


def test_messages_that_are_only_shuffled_lead_to_the_model_of_the_cohort() -> None:
    plain = session(Crowd(CLIENTS, N), FaultPlan())
    shuffled = session(Crowd(CLIENTS, N), FaultPlan(seed=1, delay=0.6, longest_delay=8.0))
    assert isinstance(shuffled.engine, EventEngine)
    assert not isinstance(plain.engine, EventEngine)
    for _ in range(ROUNDS):
        ours, theirs = shuffled.step(), plain.step()
        assert ours.included == theirs.included == 1
        assert ours.traffic == theirs.traffic
        assert ours.clients == theirs.clients
        assert_same_bits(shuffled.model, plain.model)
    assert shuffled.transcript is not None
    assert plain.transcript is not None
    assert sorted(r.data for r in shuffled.transcript.records) == sorted(
        r.data for r in plain.transcript.records
    )


def test_losses_are_felt_recorded_and_repeat() -> None:
    def run() -> tuple[bytes, list[float | None], list[bytes], FaultPlan]:
        faults = FaultPlan(seed=3, drop=0.2, duplicate=0.1, crash=0.1)
        training = session(Crowd(CLIENTS, N), faults)
        included = [training.step().included for _ in range(ROUNDS)]
        assert training.transcript is not None
        records = training.transcript.records
        lost = [r for r in records if set(r.receivers) - r.arrived]
        assert lost
        # A contribution that was lost is in no aggregator's view.
        for record in lost:
            message = record.message
            if isinstance(message, Contribution):
                owner = training.view.owners[message.header.shard]
                assert record not in training.transcript.as_aggregator(owner).records
        return training.model.tobytes(), included, [r.data for r in records], faults

    first, second = run(), run()
    assert first[:3] == second[:3]
    assert min(share for share in first[1] if share is not None) < 1
    assert {Fault.DROP, Fault.DUPLICATE} <= set(first[3].struck)


def test_trainers_get_the_noise_here_too() -> None:
    crowd = Crowd(CLIENTS, N)
    method = ERIS(aggregators=3, privacy=LocalPrivacy(5.0))
    training = session(crowd, FaultPlan(seed=1, delay=0.5, longest_delay=5.0), method)
    training.step()
    assert training.privacy is not None
    assert len(crowd.noise) == CLIENTS
    assert {noise.sigma for noise in crowd.noise if noise} == {training.privacy.claim.sigma}


def test_messages_under_way_belong_to_no_state() -> None:
    training = session(Crowd(CLIENTS, N), FaultPlan(drop=0.1))
    training.step()
    for attempt in (training.state, lambda: training.restore(1, {})):
        with pytest.raises(InvalidSetting, match="faults decided once a round, to checkpoint"):
            attempt()
    training.close()


class Wild(Crowd):
    """Client 2's last value is out of range, or all its values are next to nothing."""

    faint = False

    def updates(self, *given: Any) -> Iterator[LocalUpdate]:
        for client, update in zip(given[0], super().updates(*given), strict=True):
            if client == 2 and self.faint:
                update.vector[:] = np.float32(1e-11)
            elif client == 2:
                update.vector[-1] = np.float32(65)
            yield update


@pytest.mark.parametrize("delay", [0.0, 0.1])
def test_an_update_out_of_range_is_refused_whole_and_said_once(delay: float) -> None:
    training = session(Wild(CLIENTS, N), FaultPlan(seed=1, delay=delay, longest_delay=0.5))
    assert isinstance(training.engine, EventEngine) == bool(delay)
    for round in (1, 2, 3):
        record = training.step()
        assert record.refused == (
            f"round {round}: contribution of client client-2: 1 of 40 values are not finite or "
            "beyond ±64 (the first is 65.0 at coordinate 39); precision.value_range is what was "
            "agreed",
        )
        assert record.included == 5 / 6
    assert training.transcript is not None
    senders = {r.sender for r in training.transcript.records if isinstance(r.message, Contribution)}
    assert senders == {0, 1, 3, 4, 5}


@pytest.mark.parametrize("delay", [0.0, 0.1])
def test_updates_too_small_for_the_precision_are_warned_of_once(delay: float) -> None:
    crowd = Wild(CLIENTS, N)
    crowd.faint = True
    training = session(crowd, FaultPlan(seed=1, delay=delay, longest_delay=0.5))
    with pytest.warns(PrecisionWarning, match="an update of client-2 lost 100% of its norm"):
        training.step()
    for _ in range(2):
        assert training.step().refused == ()  # and a second warning would be an error
