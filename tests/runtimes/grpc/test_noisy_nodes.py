"""Five nodes with shared noise, over real TLS in one process: what is opened, charged and told."""

from __future__ import annotations

import asyncio
import hashlib
import math
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from eris.core.noise import PrivacyClaim, epsilon
from eris.experiments.federations.processes import LocalFederation
from eris.protocol.agreement import Agreement
from eris.protocol.gossip.peer import GossipSettings
from eris.protocol.secure import noising
from eris.protocol.secure.charges import Charges
from eris.protocol.secure.noise import NoiseKeys, next_chain_key
from eris.protocol.secure.noising import SharedNoising, spread
from eris.protocol.secure.sending import SecureSender
from eris.protocol.secure.vault import Vault
from eris.protocol.settings import Settings
from eris.protocol.view import View
from eris.runtimes.cohort import Cohort
from eris.runtimes.grpc import node as node_module
from eris.runtimes.grpc import storage
from eris.runtimes.grpc.node import NetworkNode
from eris.runtimes.grpc.privacy import RECORD
from eris.runtimes.privacy_ledger import LedgerRecord
from eris.runtimes.station import Stations
from eris.testing import assert_same_bits
from eris.testing.fixed_rows import FixedRows
from eris.testing.kills import TIMES
from eris.training.population import Trainers
from support.spellings import spellings

NAMES = ("anna", "ben", "cleo", "dora", "emil")
N, ROUNDS, CLIP, SAMPLES = 6000, 3, 0.5, 8
VALUES: dict[str, Any] = {
    **TIMES, "federation.close_after": 20.0, "federation.catch_up_after": 25.0,
    "node.linger": 0.3, "federation.rounds": ROUNDS, "observe.record": True,
    "training.trainer": "eris.testing.fixed_rows:FixedRows", "training.options": {"n": N},
    "federation.secure_sums": "2 of 3", "federation.epsilon": 8.0, "federation.clip": CLIP,
    "federation.min_included": 4, "federation.most_samples": SAMPLES,
    "federation.rule_options": {"learning_rate": 1.0},
}  # fmt: skip


def trained(
    folder: Path, own: dict[str, dict[str, Any]] | None = None, **changes: Any
) -> tuple[LocalFederation, list[NetworkNode], list[dict[str, Any]]]:
    """A federation after its training, its nodes, and what they show then."""
    usual = {name: {"privacy.data": f"ward-{name}"} | (own or {}).get(name, {}) for name in NAMES}
    values = VALUES | {f"federation.{key}": value for key, value in changes.items()}
    federation = LocalFederation(folder / "nodes", NAMES, values, usual)

    async def run() -> list[NetworkNode]:
        nodes = [NetworkNode(federation.settings(name)) for name in NAMES]
        await asyncio.gather(*(node.run() for node in nodes))
        shown.extend([await node._status() for node in nodes])
        return nodes

    shown: list[dict[str, Any]] = []
    return federation, asyncio.run(run()), shown


def charges(federation: LocalFederation, name: str) -> Charges:
    path = federation.folder / name / "privacy" / f"ward-{name}.charges"
    return Charges.parse(path.read_bytes())


def included(federation: LocalFederation, name: str) -> list[frozenset[str]]:
    """By round: who is in its results, which is the same in all of its segments."""
    members = next(federation.events(name, "view"))["members"]
    found: dict[int, set[frozenset[str]]] = {}
    for line in federation.events(name, "result"):
        names = frozenset(members[number] for number in line["included"])
        found.setdefault(line["round"], set()).add(names)
    assert all(len(sets) == 1 for sets in found.values()), found
    return [next(iter(found[round])) for round in sorted(found)]


def residue(
    agreed: Settings | GossipSettings, model: NDArray[np.float32], sets: Sequence[frozenset[str]]
) -> tuple[NDArray[np.float64], float]:
    """What means over these sets hold beside the clipped updates, and its expected size."""
    noise = agreed.noise
    assert noise is not None
    left, variance = -model.astype(np.float64), 0.0
    for round in sets:
        weight = noise.divisor(SAMPLES * len(round))
        parts = [FixedRows(name, n=N).clipped(noise.protects, CLIP) for name in round]
        left -= np.sum(parts, 0) / weight
        variance += len(round) * (noise.std / weight) ** 2
    return left, math.sqrt(variance)


@pytest.fixture(autouse=True)
def compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_module, "rehearse", lambda agreed: None)


@pytest.mark.parametrize("protects", ["sample", "client"])
def test_opened_sums_hold_the_agreed_noise_and_every_round_is_charged_once(
    tmp_path: Path, protects: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys: set[bytes] = set()
    draw = Vault.chain_key

    def noted(self: Vault, round: int) -> bytes:
        keys.add(key := draw(self, round))
        return key

    def followed(key: bytes) -> bytes:
        keys.add(new := next_chain_key(key))
        return new

    monkeypatch.setattr(Vault, "chain_key", noted)
    monkeypatch.setattr(noising, "next_chain_key", followed)
    federation, nodes, shown = trained(tmp_path, protects=protects)
    models = [federation.model(name) for name in NAMES]
    assert models[0] is not None
    for model in models[1:]:
        assert model is not None
        assert_same_bits(model, models[0])
    sets = included(federation, "anna")
    assert sets == [frozenset(NAMES)] * ROUNDS
    left, std = residue(nodes[0].agreed, models[0], sets)
    assert abs(spread(left, std)) < 5
    assert abs(spread(left, std * 0.8)) > 10, "the test finds noise of another size"
    for name, node, status in zip(NAMES, nodes, shown, strict=True):
        made = charges(federation, name)
        assert [one.round for one in made.whole] == [1, 2, 3]
        assert len({one.tag for one in made.whole}) == ROUNDS
        assert {one.level for one in made.whole} == {protects}
        assert all(one.model != "00" * 16 for one in made.whole)
        assert status["privacy"]["data"] == f"ward-{name}"
        assert status["privacy_rounds_left"] == 0
        assert 7.9 < status["epsilon_readers"] <= 8 < status["epsilon_openers"]
        assert "3 of 3 rounds" in status["privacy"]["said"]
        assert abs(status["noise_off"]) < 5
        assert not list(federation.events(name, "noise"))
        about = storage.about(federation.folder / name / "state" / storage.CHECKPOINT)
        assert about is not None
        assert LedgerRecord.parse(about[RECORD]).count == ROUNDS
        told = list(federation.events(name, "trained"))
        assert [line["metrics"] for line in told] == [{}] * ROUNDS
        assert node._privacy is not None
    assert len(keys) == len(NAMES) * (1 + ROUNDS), "one of the system a node, then one a round"
    written = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert any(path.name == "checkpoint.safetensors" for path in written)
    for path, data in written.items():
        assert not any(spelling in data for key in keys for spelling in spellings(key)), path


def test_one_whose_budget_is_spent_follows_and_the_others_go_on(tmp_path: Path) -> None:
    agreed = LocalFederation(
        tmp_path / "asked", NAMES, VALUES, {n: {"privacy.data": "ward"} for n in NAMES}
    ).settings("anna").agreement(N)  # fmt: skip
    noise = agreed.noise
    assert noise is not None
    enough = epsilon(PrivacyClaim("gaussian", math.sqrt(1.5 * noise.charges[0]), 1.0, 1), 1e-5)
    own = {"dora": {"privacy.epsilon_sample": enough}}
    federation, nodes, shown = trained(tmp_path, own)
    model = federation.model("dora")
    assert model is not None
    sets, everyone = included(federation, "dora"), frozenset(NAMES)
    assert sets == [everyone, everyone - {"dora"}, everyone - {"dora"}]
    left, std = residue(nodes[0].agreed, model, sets)
    assert abs(spread(left, std)) < 5
    assert [len(charges(federation, name).whole) for name in NAMES] == [3, 3, 3, 1, 3]
    (line,) = federation.events("dora", "abstains")
    assert line["round"] == 2
    assert f"budget ε = {enough:g} is spent: 1 of 1 rounds" in line["reason"]
    assert shown[3]["privacy"]["abstains"] == line["reason"]
    assert shown[0]["privacy"]["abstains"] == ""
    assert not list(federation.events("anna", "abstains"))


def test_a_training_that_fails_gives_zeros_under_noise(tmp_path: Path) -> None:
    """To send nothing would tell that the data did it."""
    own = {"ben": {"training.options": {"n": N, "fails": [2]}}}
    federation, nodes, _ = trained(tmp_path, own)
    assert [len(charges(federation, name).whole) for name in NAMES] == [ROUNDS] * 5
    sets = included(federation, "anna")
    assert sets == [frozenset(NAMES)] * ROUNDS
    model = federation.model("anna")
    assert model is not None
    left, std = residue(nodes[0].agreed, model, sets)
    missing = FixedRows("ben", n=N).clipped("sample", CLIP) / (5 * SAMPLES)
    assert abs(spread(left + missing, std)) < 5
    assert len(list(federation.events("ben", "training failed"))) == 1


def test_noise_that_is_too_small_is_seen_by_every_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by one without data: it follows results like all."""
    add = NoiseKeys.add

    def less(self: NoiseKeys, content: Any, std: float, fine_bits: int) -> NDArray[np.int64]:
        return add(self, content, 0.8 * std, fine_bits)

    monkeypatch.setattr(NoiseKeys, "add", less)
    monkeypatch.setattr(SharedNoising, "_examine", lambda *_: None)
    own: dict[str, dict[str, Any]] = {"emil": {"node.client": False}}
    federation, _, shown = trained(tmp_path, own, rounds=1)
    for name, status in zip(NAMES, shown, strict=True):
        (line,) = federation.events(name, "noise")
        assert "too small: what was promised does not hold" in line["problem"]
        assert status["noise_off"] < -6
    assert not (federation.folder / "emil" / "privacy").exists()


@pytest.mark.parametrize("rate", [1.0, 0.25])
def test_the_same_updates_and_keys_give_the_bits_of_the_simulator(
    tmp_path: Path, rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One round: then a node's next key follows from its first, a simulation's from its seed.

    With the same keys coins fall alike, too.
    """
    whose: dict[int, str] = {}  # by thread: nodes train side by side
    made = SecureSender._noising_of

    def by_name(self: SecureSender, *given: Any) -> Any:
        whose[threading.get_ident()] = self.name
        return made(self, *given)

    def key(self: Vault, round: int) -> bytes:
        return hashlib.sha256(whose[threading.get_ident()].encode()).digest()

    monkeypatch.setattr(SecureSender, "_noising_of", by_name)
    monkeypatch.setattr(Vault, "chain_key", key)
    federation, nodes, _ = trained(tmp_path, rounds=1, sampling_rate=rate, epsilon=1.0)
    agreed = nodes[0].agreed
    assert isinstance(agreed, Settings)
    view = View.serverless(list(NAMES), aggregators=5)
    trainers = Trainers([FixedRows(name, n=N) for name in NAMES])
    simulated = Stations([Cohort(Agreement(agreed, view), np.zeros(N, np.float32), trainers)])
    simulated.run_round(1)
    found = federation.model("anna")
    assert found is not None
    assert_same_bits(found, simulated.models()[0])
    assert np.abs(found).max() > 0


def test_sums_are_of_secret_batches_which_are_charged_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without noise, for once: every round holds the samples of its coins, and no others."""
    rate = 0.5
    chosen: dict[tuple[str, int], NDArray[np.bool_]] = {}
    draw = SecureSender.batch

    def noted(self: SecureSender, round: int, slots: int) -> NDArray[np.bool_] | None:
        coins = draw(self, round, slots)
        assert coins is not None
        chosen[self.name, round] = coins
        return coins

    def nothing(self: NoiseKeys, content: Any, std: float, fine_bits: int) -> NDArray[np.int64]:
        return np.asarray(content) >> fine_bits

    monkeypatch.setattr(SecureSender, "batch", noted)
    monkeypatch.setattr(NoiseKeys, "add", nothing)
    monkeypatch.setattr(SharedNoising, "_examine", lambda *_: None)
    federation, nodes, shown = trained(tmp_path, sampling_rate=rate, epsilon=1.0)
    sets, model = included(federation, "anna"), federation.model("anna")
    assert sets == [frozenset(NAMES)] * ROUNDS
    assert model is not None
    noise = nodes[0].agreed.noise
    assert noise is not None
    assert (noise.sampling_rate, noise.divisor(40)) == (rate, 20)
    assert len({coins.tobytes() for coins in chosen.values()}) > ROUNDS, "coins of each"
    expected = np.zeros(N)
    for (name, _), coins in chosen.items():
        rows = FixedRows(name, n=N).rows.astype(np.float64)
        rows *= np.minimum(1, CLIP / np.linalg.norm(rows, axis=1))[:, None]
        expected -= rows[coins].sum(0) / 20
    assert np.abs(expected).max() > 0.01
    assert np.abs(model - expected).max() < 1e-6
    for name, status in zip(NAMES, shown, strict=True):
        made = charges(federation, name)
        assert [(one.round, one.sampling_rate) for one in made.whole] == [
            (1, rate), (2, rate), (3, rate)
        ]  # fmt: skip
        assert {one.amounts["sample"] for one in made.whole} == {noise.charges}
        assert 0.98 < status["epsilon_readers"] <= 1 < status["epsilon_openers"]
        assert status["privacy_rounds_left"] == 0
        assert "3 of 3 rounds" in status["privacy"]["said"]
        told = list(federation.events(name, "trained"))
        assert [line["samples"] for line in told] == [SAMPLES] * ROUNDS, "not those of the batch"
