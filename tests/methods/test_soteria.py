"""SoteriaFL without its noise: shifted compression to a server, references that stay in step."""

from __future__ import annotations

import numpy as np
import pytest

from eris.core.errors import InvalidSetting
from eris.core.rules import FedAvg as FedAvgRule
from eris.core.shift import shift_step
from eris.federation import Federation
from eris.methods.eris import ERIS
from eris.methods.method import Method
from eris.methods.soteria import SoteriaFL
from eris.protocol.messages import Contribution, Result
from eris.runtimes.faults import FaultPlan
from eris.session import Session
from eris.testing import assert_same_bits, initial_model
from support.crowd import Crowd

N, CLIENTS, ROUNDS, KEPT = 120, 6, 12, 0.25
START = initial_model(N)
NOISELESS = SoteriaFL(kept_fraction=KEPT, noise=False)
SAMPLES = [1 + client % 7 for client in range(CLIENTS)]


def session(method: Method, faults: FaultPlan | None = None, record: bool = False) -> Session:
    federation = Federation(
        Crowd(CLIENTS, N), START, method, rule=FedAvgRule(0.3), samples=SAMPLES, seed=9,
        min_included=2,
    )  # fmt: skip
    return federation.start(ROUNDS, faults=faults, record=record)


FAULTS = {
    "none": None,
    "links": FaultPlan(seed=1, link=0.25),
    "late": FaultPlan(seed=2, straggle=0.3),
    "away": FaultPlan(seed=3, churn=0.3),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_the_servers_reference_is_the_weighted_mean_of_the_clients(kind: str) -> None:
    run = session(NOISELESS, FAULTS[kind])
    shares = np.array(SAMPLES) / sum(SAMPLES)
    moved = 0
    for _ in range(ROUNDS):
        before = run.state()
        record = run.step()
        state = run.state()
        own = [state[f"client/{client}/reference"] for client in range(CLIENTS)]
        assert np.allclose(state["reference"], shares @ np.stack(own), atol=1e-5)
        moved += not np.array_equal(before["reference"], state["reference"])
        if kind != "none" and record.included != 1:
            # Who was not included did not move; the others did, if anything was published.
            still = [
                np.array_equal(before[f"client/{c}/reference"], own[c]) for c in range(CLIENTS)
            ]
            assert record.included is not None
            assert still.count(False) == round(record.included * CLIENTS)
    assert moved >= ROUNDS // 2


def test_a_client_moves_by_the_same_step_as_the_server() -> None:
    """γ at both ends, by hand from the first message: s_k = γ·C(g_k) and s = γ·Σ w_k C(g_k)."""
    run = session(NOISELESS, record=True)
    run.step()
    assert run.transcript is not None
    gamma, state = shift_step(1 / KEPT - 1), run.state()
    total = np.zeros(N)
    for client in range(CLIENTS):
        own = state[f"client/{client}/reference"]
        kept = np.flatnonzero(own)
        assert 0.1 * N < len(kept) < 0.45 * N
        update = START - Crowd(CLIENTS, N).target(client)
        assert np.allclose(own[kept], gamma * update[kept] / KEPT, rtol=1e-6)
        total += SAMPLES[client] / sum(SAMPLES) * own
    assert np.allclose(state["reference"], total, atol=1e-6)


@pytest.mark.parametrize("aggregators", [1, 4, CLIENTS])
def test_it_is_the_papers_mode_of_eris_with_one_owner(aggregators: int) -> None:
    method = ERIS(aggregators, kept_fraction=KEPT, masks="independent")
    central, sharded = session(NOISELESS, record=True), session(method, record=True)
    for round in range(1, ROUNDS + 1):
        central.step()
        sharded.step()
        assert_same_bits(sharded.model, central.model, f"round {round}")
        ours, theirs = sharded.state(), central.state()
        assert_same_bits(ours["reference"], theirs["reference"])
        for client in range(CLIENTS):
            name = f"client/{client}/reference"
            assert_same_bits(ours[name], theirs[name])


def test_every_client_sends_kept_values_alone_and_downloads_a_dense_mean() -> None:
    run = session(NOISELESS, record=True)
    run.step()
    assert run.transcript is not None
    messages = [record.message for record in run.transcript.records]
    sizes = [m.payload.encoded.count for m in messages if isinstance(m, Contribution)]
    assert len(sizes) == CLIENTS
    assert len(set(sizes)) > 1  # a mask of one's own
    assert all(0.1 * N < size < 0.45 * N for size in sizes)
    (result,) = (m for m in messages if isinstance(m, Result))
    assert result.payload is not None
    assert result.payload.encoded.count == N


def test_weights_must_be_agreed() -> None:
    with pytest.raises(InvalidSetting, match="every client's number of samples"):
        Federation(Crowd(CLIENTS, N), START, NOISELESS)
