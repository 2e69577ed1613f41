"""PriPrune: FedAvg on updates without their largest coordinates."""

from __future__ import annotations

import numpy as np
import pytest

from eris.core.errors import InvalidSetting
from eris.core.rules import FedAvg as FedAvgRule
from eris.core.rules import FedNova
from eris.core.vectors import Vector
from eris.federation import Federation
from eris.methods.priprune import PriPrune
from eris.protocol.agreement import Agreement
from eris.protocol.messages import Contribution
from eris.protocol.round.client import Client
from eris.protocol.round.replica import Replica
from eris.protocol.schemes import Scheme
from eris.protocol.settings import Settings
from eris.protocol.view import View
from eris.session import Fit
from eris.testing import assert_same_bits, initial_model
from support.crowd import Crowd, slow_mean

N, CLIENTS, ROUNDS, STEP = 50, 5, 6, np.float32(0.25)
START = initial_model(N)
SAMPLES = [1 + client % 7 for client in range(CLIENTS)]
ADAPTIVE = PriPrune(adaptive=True, energy=0.4)


def fitted(method: PriPrune) -> tuple[Fit, Crowd]:
    crowd = Crowd(CLIENTS, N)
    rule = FedAvgRule(float(STEP))
    fit = Federation(crowd, START, method, rule=rule).fit(ROUNDS, record=True, progress=False)
    return fit, crowd


def largest(update: Vector, method: PriPrune) -> set[int]:
    """Slowly: the largest coordinates, as many as the rate or the energy says."""
    order = sorted(range(N), key=lambda place: (-abs(update[place]), place))
    squares = [float(update[place]) ** 2 for place in order]
    if not method.adaptive:
        return set(order[: round(method.rate * N)])
    fewest = next(m for m in range(N) if sum(squares[m:]) <= method.energy * sum(squares))
    return set(order[:fewest])


@pytest.mark.parametrize("method", [PriPrune(rate=0.1), PriPrune(rate=0.5), ADAPTIVE], ids=repr)
def test_it_is_fedavg_on_updates_without_their_largest_coordinates(method: PriPrune) -> None:
    """Replayed by hand from what the clients were asked; adaptive, they keep what they withhold."""
    fit, crowd = fitted(method)
    model = START.copy()
    kept: list[dict[int, np.float32]] = [{} for _ in range(CLIENTS)]
    for round in range(1, ROUNDS + 1):
        sent = []
        for client in range(CLIENTS):
            started, update = crowd.given[client, round]
            local = model.copy()
            for place, value in kept[client].items():
                local[place] = value
            assert_same_bits(started, local, f"client {client} in round {round}")
            withheld = largest(update, method)
            sent.append(np.array([0 if i in withheld else update[i] for i in range(N)], np.float32))
            if method.adaptive:
                kept[client] = {i: local[i] - STEP * update[i] for i in withheld}
        model = model - STEP * slow_mean(sent, SAMPLES)
    assert_same_bits(fit.model, model)
    assert method.adaptive == any(kept)


def test_a_bit_for_every_coordinate_and_four_bytes_for_every_value_sent() -> None:
    fit, crowd = fitted(PriPrune(rate=0.2))
    assert fit.transcript is not None
    server = fit.transcript.as_server()
    seen = list(server.contributions())
    assert len(seen) == CLIENTS * ROUNDS
    for contribution in seen:
        _, update = crowd.given[contribution.header.sender, contribution.header.round]
        encoded = contribution.payload.encoded
        assert encoded.count == 40 == np.count_nonzero(update) - 10
        assert len(encoded.data) == 7 + 4 * 40
    envelope = 64
    assert 7 + 160 < fit.sent("Contribution") < 7 + 160 + envelope


def test_the_server_never_gets_a_value_that_was_withheld() -> None:
    fit, crowd = fitted(ADAPTIVE)
    assert fit.transcript is not None
    shares = []
    for contribution in fit.transcript.as_server().contributions():
        _, update = crowd.given[contribution.header.sender, contribution.header.round]
        data, count = contribution.payload.encoded.data, contribution.payload.encoded.count
        values = np.frombuffer(data[-4 * count :], "<f4")
        withheld = [update[place] for place in largest(update, ADAPTIVE)]
        assert not set(withheld) & set(values.tolist())
        shares.append(float(np.square(values).sum() / np.square(update).sum()))
    # As much as is allowed, and never more.
    assert 0.3 < min(shares) <= max(shares) <= ADAPTIVE.energy


def client_of(rule: FedAvgRule | FedNova, scheme: Scheme) -> Client:
    view = View.central(["anna", "ben", "cleo"])
    settings = Settings(n=4, rule=rule, scheme=scheme)
    agreement = Agreement(settings, view)
    return Client(agreement, 0, Replica(agreement, np.zeros(4, np.float32)))


UPDATE = np.array([4, -3, 2, 1], np.float32)


def test_what_is_kept_moved_by_all_local_steps_also_where_the_server_divides_by_them() -> None:
    scheme = ADAPTIVE.compose(["anna"], [1]).scheme
    plain, nova = client_of(FedAvgRule(0.5), scheme), client_of(FedNova(0.5), scheme)
    for client in (plain, nova):
        client.begin(1)
        (out,) = client.contribute(UPDATE, samples=1, steps=4)
        assert isinstance(out.message, Contribution)
        values = np.frombuffer(out.message.payload.encoded.data[1:], "<f4")
        assert (
            values.tolist() == [v / 4 if client is nova else v for v in (-3, 2, 1)][-len(values) :]
        )
        assert client.sender.training_model(np.full(4, 9, np.float32))[0] == -2


def test_a_step_beyond_float32_is_not_kept() -> None:
    client = client_of(FedAvgRule(0.5), ADAPTIVE.compose(["anna"], [1]).scheme)
    client.begin(1)
    client.contribute(np.array([np.inf, 1, 1, 1], np.float32), samples=1)
    model = np.full(4, 9, np.float32)
    assert_same_bits(client.sender.training_model(model), model)


def test_clients_that_keep_something_are_not_sampled() -> None:
    crowd = Crowd(50, N)
    with pytest.raises(InvalidSetting, match="sampled is 5; expected nothing"):
        Federation(crowd, START, ADAPTIVE, sampled=5)
    assert Federation(crowd, START, PriPrune(), sampled=5).fit(2, progress=False).history
