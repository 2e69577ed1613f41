"""What a node shows of itself counts all that happened, not what it still remembers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eris.core.shards import RandomPlan
from eris.methods.muffliato import Muffliato
from eris.protocol.authority.standing import Scheduled, Standing
from eris.protocol.codec import Limits
from eris.protocol.round.client import MOST_LEFT_OUT
from eris.protocol.round.member import Member
from eris.protocol.round.roles import MOST_REFUSALS
from eris.protocol.settings import Settings
from eris.protocol.view import View
from eris.runtimes.grpc.aggregating import AggregatingDriver
from eris.runtimes.grpc.gossip import GossipDriver
from eris.runtimes.grpc.health import Health
from eris.runtimes.grpc.journal import Journal, read
from eris.runtimes.grpc.local_noise import SecretNoise
from eris.runtimes.grpc.observe import StatusServer, shown
from eris.testing import initial_model
from eris.testing.quadratic import Quadratic

NAMES = ("anna", "ben", "cleo")


def member_of() -> Member:
    view = View(NAMES, (0, 1, 2), (0, 1), None, 1)
    settings = Settings(n=24, plan=RandomPlan(2), quorum=2)
    standing = Standing(0, (Scheduled(view, 1),), NAMES, 9, 0)
    return Member(settings, standing, initial_model(24, 1), rounds=9)


def driver_of(member: Member, health: Health, privacy: object = None, noise: object = None) -> Any:
    transport: Any = SimpleNamespace(counters={})
    learner, journal = Quadratic("anna", n=24), SimpleNamespace()
    beside: Any = journal, health, None, Limits(), None, privacy, noise
    return AggregatingDriver(member, learner, transport, *beside)


def test_counters_go_on_where_the_memory_has_reached_its_limit() -> None:
    member = member_of()
    for number in range(MOST_REFUSALS + 7):
        member.node.refused.append(f"refusal {number}")
    for _ in range(MOST_LEFT_OUT + 5):
        member.node.client.left_out.append((1, (0, 0)))
    driver = driver_of(member, Health())
    driver.omissions.rounds.update({(1, 0): 2, (1, 2): 4, (0, 2): 1})
    seen = shown(driver, name="anna", address="localhost:7400")
    assert seen["messages_refused"] == MOST_REFUSALS + 7
    assert seen["contributions_left_out"] == MOST_LEFT_OUT + 5
    assert seen["refused"][-1] == f"refusal {MOST_REFUSALS + 6}"
    assert seen["left_out"][0] == {"owner": "ben", "client": "cleo", "rounds": 4}
    assert seen["left_out_alone"] == {"ben": 4, "anna": 1}


def test_under_noise_the_text_of_a_failure_is_not_shown() -> None:
    member, health = member_of(), Health()
    member.start(0.0)
    health.failed(3, "ValueError: patient 17 has no age")
    health.evaluated = {"accuracy": 0.5}
    plain = shown(driver_of(member, health), name="anna", address="localhost:7400")
    assert "patient 17" in plain["reason"]
    assert plain["evaluated"] == {"accuracy": 0.5}
    figures = {"epsilon_readers": 1.5, "epsilon_openers": 9.0, "privacy_rounds_left": 7}
    privacy = SimpleNamespace(shown=lambda: figures)
    noisy = shown(driver_of(member, health, privacy), name="anna", address="localhost:7400")
    assert "patient" not in str(noisy)
    assert noisy["evaluated"] == {}
    assert noisy["reason"] == "training has a problem; this node's log says which"
    assert not noisy["ready"]
    _, _, metrics = StatusServer(":0", lambda: noisy).answer("/metrics")
    for line in (b"eris_epsilon_readers 1.5", b"eris_epsilon_openers 9.0",
                 b"eris_privacy_rounds_left 7.0"):  # fmt: skip
        assert line in metrics
    _, _, without = StatusServer(":0", lambda: plain).answer("/metrics")
    assert b"epsilon" not in without


def test_under_local_noise_nothing_is_told_of_data_either() -> None:
    member, health = member_of(), Health()
    member.start(0.0)
    health.failed(3, "ValueError: patient 17 has no age")
    health.evaluated = {"accuracy": 0.5}
    noise = SecretNoise(clip=1.0, sigma=2.0)
    noisy = shown(driver_of(member, health, noise=noise), name="anna", address="localhost:7400")
    assert "patient" not in str(noisy)
    assert noisy["evaluated"] == {}


@pytest.mark.parametrize(("sigma", "told"), [(0.0, {"accuracy": 0.5}), (0.025, {})])
def test_methods_with_noise_of_their_own_tell_nothing_of_the_model(
    sigma: float, told: dict[str, float]
) -> None:
    method, health = Muffliato(sigma=sigma, degree=2), Health()
    member: Any = SimpleNamespace(settings=SimpleNamespace(parameters=method.parameters))
    health.evaluated = {"accuracy": 0.5}
    transport: Any = SimpleNamespace(counters={})
    journal: Any = SimpleNamespace()
    driver = GossipDriver(member, Quadratic("anna"), transport, journal, health, None, Limits())
    assert driver.evaluated() == told


@pytest.mark.parametrize(("begun", "behind"), [(40, False), (4, True), (0, True)])
def test_who_comes_back_when_the_others_are_through_is_told_that_its_model_is_behind(
    begun: int, behind: bool, tmp_path: Path
) -> None:
    member: Any = SimpleNamespace(finished=True, begun=begun, rounds=40)
    transport: Any = SimpleNamespace(counters={})
    with Journal(tmp_path / "journal.jsonl") as journal:
        driver = GossipDriver(member, Quadratic("a"), transport, journal, Health(), None, Limits())
        for _ in range(2):
            driver._entered(past=39)
    said = [note for note in read(tmp_path / "journal.jsonl") if note["event"] == "model is behind"]
    assert [note["last_round"] for note in said] == [begun] * behind
