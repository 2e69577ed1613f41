"""FedAvg with noise: the trainers get the calibrated noise, and the run states what it spends."""

from __future__ import annotations

import numpy as np
import pytest

from eris.core.errors import InvalidSetting
from eris.core.noise import epsilon, sigma_for
from eris.federation import Federation
from eris.methods.eris import ERIS
from eris.methods.fedavg import FedAvg
from eris.methods.fedavg_ldp import FedAvgLDP
from eris.methods.method import GossipMethod, Method
from eris.methods.min_leakage import MinLeakage
from eris.methods.privacy import Calibration, LocalPrivacy
from eris.methods.registry import create
from eris.methods.soteria import SoteriaFL
from eris.testing import assert_same_bits, initial_model
from support.crowd import Crowd

N, CLIENTS, ROUNDS = 30, 5, 4
START = initial_model(N)


class Passing(Crowd):
    """Clients that use every sample three times a round."""

    uses_of_a_sample = 3


def trained(crowd: Crowd, method: Method, seed: int = 1) -> Federation:
    samples = [crowd.samples(client) for client in range(CLIENTS)]
    return Federation(crowd, START, method, samples=samples, seed=seed)


METHODS: dict[str, Method] = {
    "fedavg-ldp": FedAvgLDP(5.0),
    "soteriafl": SoteriaFL(kept_fraction=0.4, epsilon=5.0),
    "eris": ERIS(privacy=LocalPrivacy(5.0)),
}


@pytest.mark.parametrize("passes", [1, 3])
@pytest.mark.parametrize("name", METHODS)
def test_trainers_get_the_noise_that_keeps_the_budget(name: str, passes: int) -> None:
    crowd = Crowd(CLIENTS, N) if passes == 1 else Passing(CLIENTS, N)
    fit = trained(crowd, METHODS[name]).fit(ROUNDS, progress=False)
    releases = ROUNDS * passes
    assert len(crowd.noise) == ROUNDS
    given = {(noise.clip, noise.sigma) for noise in crowd.noise if noise is not None}
    assert given == {(1.0, sigma_for(5.0, 1e-5, 1.0, releases))}
    assert fit.privacy is not None
    assert fit.privacy.claim.rounds == releases
    assert fit.privacy.epsilon == epsilon(fit.privacy.claim, fit.privacy.delta) <= 5.0
    assert (fit.privacy.claim.sigma,) == tuple(sigma for _, sigma in given)


def test_calibrated_per_round_the_run_says_that_it_spends_more() -> None:
    def spent(calibration: Calibration) -> float:
        method = FedAvgLDP(5.0, calibration=calibration)
        session = trained(Crowd(CLIENTS, N), method).start(ROUNDS)
        assert session.privacy is not None
        return session.privacy.epsilon

    assert spent("composed") <= 5.0 < 1.5 * 5.0 < spent("per-round")


@pytest.mark.parametrize("name", ["fedavg-ldp", "soteriafl", "eris"])
def test_a_budget_per_round_holds_for_all_uses_of_a_sample_in_the_round(name: str) -> None:
    for crowd in (Crowd(CLIENTS, N), Passing(CLIENTS, N)):
        method = create(name, epsilon=5.0, calibration="per-round")
        assert not isinstance(method, GossipMethod)
        session = trained(crowd, method).start(1)
        assert session.privacy is not None
        assert session.privacy.epsilon == pytest.approx(5.0, rel=1e-6)


def test_a_training_does_not_go_on_beyond_its_budget() -> None:
    session = trained(Crowd(CLIENTS, N), FedAvgLDP()).start(2)
    session.step()
    session.step()
    with pytest.raises(InvalidSetting, match="rounds is 3; expected at most 2"):
        session.step()
    # Without noise there is nothing that a further round would spend.
    free = trained(Crowd(CLIENTS, N), FedAvg()).start(1)
    assert [free.step().round for _ in range(3)] == [1, 2, 3]


def test_noise_of_another_seed_is_another_and_not_the_public_seed_itself() -> None:
    def seed(public: int) -> int:
        crowd = Crowd(CLIENTS, N)
        trained(crowd, FedAvgLDP(), seed=public).start(2).step()
        (noise,) = crowd.noise
        assert noise is not None
        return noise.seed

    seeds = {public: seed(public) for public in (1, 2, 3)}
    assert len(set(seeds.values())) == 3
    assert not set(seeds) & set(seeds.values())
    assert seed(1) == seeds[1]


def test_without_the_noise_it_is_fedavg_and_so_is_min_leakage() -> None:
    """A crowd that ignores the noise: what remains is the method's plumbing."""
    plain = trained(Crowd(CLIENTS, N), FedAvg()).fit(ROUNDS, record=True, progress=False)
    for method in (FedAvgLDP(), MinLeakage()):
        fit = trained(Crowd(CLIENTS, N), method).fit(ROUNDS, record=True, progress=False)
        assert_same_bits(fit.model, plain.model)
        assert fit.transcript is not None
        assert plain.transcript is not None
        sent = [record.data for record in fit.transcript.records]
        assert sent == [record.data for record in plain.transcript.records]
        final = fit.transcript.as_final_model()
        assert final.records == ()
        assert np.array_equal(final.final_model, plain.model)  # type: ignore[arg-type]


def test_a_trainer_that_cannot_protect_samples_is_refused_before_any_trains() -> None:
    asked: list[int] = []

    class Plain:
        def update(self, parameters: object, round: int) -> object:
            asked.append(round)
            raise AssertionError

    class Private(Plain):
        def private_update(self, parameters: object, round: int, noise: object) -> object:
            raise AssertionError

    clients = [Private(), Private(), Plain()]
    with pytest.raises(InvalidSetting) as refused:
        Federation(clients, START, FedAvgLDP())  # type: ignore[arg-type]
    assert "trainer of client 2 is 'Plain'; expected one with private_update" in str(refused.value)
    assert not asked
