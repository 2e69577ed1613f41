"""Who was last included when: known to all replicas where there is noise, and told with states."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eris.protocol.agreement import Agreement
from eris.protocol.codec import decode, encode
from eris.protocol.messages import Snapshot
from eris.protocol.round.replica import Replica
from eris.protocol.view import View
from eris.runtimes.cohort import Cohort
from eris.runtimes.faults import FaultPlan
from eris.runtimes.station import Stations
from eris.testing.fixed_rows import FixedRows
from eris.training.population import Trainers
from support.sites import NAMES, START, N, agreed

VIEW = View.serverless(list(NAMES), aggregators=5)
LAST = {0: 2, 1: 2, 2: 2, 3: 1, 4: 2}
KEY = (0, 0)


@pytest.fixture(autouse=True)
def one_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FaultPlan, "straggles", lambda _, client, round: (client, round) == (3, 2))


def trained(*, noise: bool = True) -> Replica:
    """What members hold after two rounds, in the second of which number 3 is late."""
    settings = agreed() if noise else replace(agreed(), noise=None)
    trainers = Trainers([FixedRows(name, n=N) for name in NAMES])
    cohort = Cohort(Agreement(settings, VIEW), START, trainers)
    stations = Stations([cohort])
    for round in (1, 2):
        stations.run_round(round)
    assert cohort.replica.settled(2)
    return cohort.replica


def told(replica: Replica) -> Snapshot:
    """A state as a peer sends it."""
    message = decode(encode(replica.snapshot(KEY, 1)))
    assert isinstance(message, Snapshot)
    return message


def test_who_was_last_included_when_goes_with_states_and_checkpoints() -> None:
    held = trained()
    assert held.last_included == LAST
    fresh = Replica(held.agreement, START)
    assert fresh.adopt(told(held))
    assert fresh.last_included == LAST, "also of rounds of which it has seen no result"
    again = Replica(held.agreement, START)
    again.restore(held.state())
    assert again.last_included == LAST
    assert told(again).last_included == (2, 2, 2, 1, 2)


def test_nobody_is_included_whom_no_view_has_or_ahead_of_time() -> None:
    held = trained()
    said = replace(told(held), last_included=(9, 1, 0, 2, 2, 2, 2, *[2] * 100_000))
    fresh = Replica(held.agreement, START)
    fresh.horizon = 2
    assert fresh.adopt(said)
    assert fresh.last_included == {1: 1, 3: 2, 4: 2}
    held.adopt(replace(said, at=3))
    assert held.last_included == LAST | {0: 9, 3: 2}, "never less than before"


def test_without_noise_nobody_notes_it() -> None:
    held = trained(noise=False)
    assert held.last_included == {}
    assert told(held).last_included == ()
    assert "last_included" not in held.state()
