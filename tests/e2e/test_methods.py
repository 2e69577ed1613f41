"""Every aggregating method that nodes carry, over gRPC: its bytes, its model, its one server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eris.experiments.federations.processes import role_values
from eris.experiments.federations.replay import replay
from eris.methods.method import GossipMethod
from eris.methods.privacy import LocalPrivacy
from eris.methods.registry import METHODS, create
from eris.protocol.settings import model_digest
from eris.runtimes.grpc.settings import NodeSettings
from eris.testing.fixed_rows import FixedRows
from eris.testing.quadratic import Quadratic
from support.node_files import load
from support.nodes import NAMES, Nodes, lawful
from support.same_bytes import PATIENT, ROUNDS, over_grpc, simulated, sizes

DETERMINISTIC: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "min-leakage": {},
    "fedavg-wc": {"clusters": 16, "coding": "huffman"},
    "priprune": {"adaptive": True},
    "soteriafl": {"noise": False, "kept_fraction": 0.3},
}


def served(
    method: str, options: Mapping[str, Any], *, clients: int = 3, **values: Any
) -> dict[str, Any]:
    """Settings and roles of so many clients and a server, the last."""
    chosen = {"federation.method": method, "federation.method_options": options, **values}
    own = {name: role_values(name == NAMES[clients]) for name in NAMES[: clients + 1]}
    return {"values": chosen, "own": own}


GOSSIPING = ("d-psgd", "el", "muffliato", "ako")
"""Held to the swarm's bytes in ``test_gossip_nodes.py``."""


@pytest.mark.parametrize(
    "method",
    [
        name if name in ("fedavg-wc", "soteriafl") else pytest.param(name, marks=pytest.mark.slow)
        for name in DETERMINISTIC
    ],
)
def test_a_method_over_grpc_says_and_learns_what_the_simulator_does(
    method: str, tmp_path: Path
) -> None:
    options = DETERMINISTIC[method]
    made = served(method, options, **PATIENT)
    with Nodes(tmp_path, 4, rounds=ROUNDS, **made) as nodes:
        nodes.begin()
        nodes.finish()
        if method != "priprune":  # whose clients have a state that no journal tells
            lawful(nodes)
    sent, transcript = over_grpc(nodes)
    expected, cohort = simulated(transcript)
    assert sent == expected
    assert len(expected) == ROUNDS * len(cohort.agreement.keys) * (3 + 1)
    assert transcript.final_model is not None
    assert transcript.final_model.tobytes() == cohort.replica.model.tobytes()
    parts = create(method, **options).compose(["a", "b", "c"], [1, 1, 1])  # type: ignore[union-attr]
    assert (cohort.agreement.settings.plan, cohort.agreement.settings.scheme) == (
        parts.plan, parts.scheme,
    )  # fmt: skip


SEALED: dict[str, tuple[int, dict[str, Any]]] = {
    "enccluster": (3, {"clusters": 4, "weight_range": 15.0, "fraction_bits": 11}),
    "detrust": (3, {"weight_range": 15.0, "fraction_bits": 11}),
    "grid": (5, {"bits": 12}),
    "sefl": (3, {"key_bits": 256}),
}
"""Methods whose bytes hang on secrets of the operating system: how few clients they take."""


@pytest.mark.slow
@pytest.mark.parametrize("method", SEALED)
def test_sealed_sums_over_grpc_have_the_simulators_sizes_and_its_model(
    method: str, tmp_path: Path
) -> None:
    clients, options = SEALED[method]
    made = served(method, options, clients=clients, **PATIENT)
    with Nodes(tmp_path, clients + 1, rounds=3, **made) as nodes:
        nodes.begin()
        nodes.finish()
    sent, transcript = over_grpc(nodes)
    expected, cohort = simulated(transcript, 3)
    assert sizes(sent) == sizes(expected)
    assert len(expected) == 3 * len(cohort.agreement.keys) * (clients + 1)
    assert transcript.final_model is not None
    assert transcript.final_model.tobytes() == cohort.replica.model.tobytes()


def test_no_method_is_forgotten() -> None:
    elsewhere = {"eris", "fedavg-ldp", *GOSSIPING, "q-dpsgd-1", "shatter"}
    assert {*DETERMINISTIC, *SEALED, *elsewhere} == {*METHODS}


def test_local_noise_on_nodes_is_as_much_as_the_budget_asks(tmp_path: Path) -> None:
    rounds, privacy = 2, LocalPrivacy(100.0)
    clients = [FixedRows(name) for name in ("anna", "ben", "cleo")]
    trainer: dict[str, Any] = {"training.trainer": "eris.testing.fixed_rows:FixedRows"}
    with Nodes(
        tmp_path, 4, rounds=rounds, **served("fedavg-ldp", {"epsilon": 100}, **trainer)
    ) as nodes:
        nodes.begin()
        nodes.finish()
        assert nodes.said("anna", "noise", "sigma="), "what is added is said"
        assert not nodes.said("dora", "noise"), "a server has no data"
    model = nodes.model("anna")
    assert model is not None
    rate = nodes.settings("anna").federation.server_rule().learning_rate
    exact = sum(client.clipped("sample", privacy.clip) / client.samples for client in clients) / 3
    noise = model / -rate - rounds * exact
    # The mean over three clients of eight samples each, summed over the rounds.
    usual = privacy.sigma(rounds) / 8 * np.sqrt(rounds / 3)
    assert 0.9 < noise.std() / usual < 1.1


@pytest.mark.slow
def test_nobody_takes_over_from_a_server_that_dies_and_training_goes_on_when_it_is_back(
    tmp_path: Path,
) -> None:
    with Nodes(tmp_path, 4, rounds=14, **served("fedavg", {})) as nodes:
        nodes.step(1, 4)
        nodes.kill("dora")
        nodes.lead(nodes.rounds)
        nodes.until(lambda: nodes.presence("dora") == "away", "dora's lease is over")
        waiting = [nodes.at(name) for name in ("anna", "ben", "cleo")]
        assert max(waiting) <= 5, "nothing is published, and no round is burnt"
        assert all(view["owners"] == ["dora"] for view in nodes.views("anna"))
        nodes.begin("dora")
        nodes.finish()
        lawful(nodes)
        published = {round for round, _ in nodes.results("anna")}
        assert {1, 2, 3, 13, 14} <= published
        assert all(view["owners"] == ["dora"] for view in nodes.views("anna"))


@pytest.mark.slow
def test_references_begin_anew_when_a_client_comes_back(tmp_path: Path) -> None:
    options = {"noise": False, "kept_fraction": 0.3}
    with Nodes(tmp_path, 4, rounds=12, **served("soteriafl", options)) as nodes:
        nodes.step(1, 5)
        nodes.kill("cleo")
        nodes.begin("cleo")  # at once: its lease runs on, and the view would do
        nodes.lead(nodes.rounds)
        nodes.finish()
        lawful(nodes)
    first, *later = nodes.views("anna")
    assert later, "a client that starts again begins an epoch"
    begins = later[-1]["from_round"]
    given = {round for round, included in nodes.results("anna").items() if "cleo" in included}
    assert {round for round, _ in given} >= {1, 2, 3, 12}, "its first reference, and its second"
    assert first["clients"] == later[-1]["clients"]
    assert 5 <= begins <= 12
    learners = {name: Quadratic(name) for name in nodes.names}
    initial = learners["anna"].initial()
    agreed = nodes.settings("anna").agreement(len(initial), model_digest(initial))
    replayed = replay(agreed, initial, learners, nodes.journals())
    assert replayed.equal, replayed.mismatches
    for name in nodes.names:
        found = nodes.model(name)
        assert found is not None
        assert found.tobytes() == replayed.model.tobytes()


@pytest.mark.slow
def test_clients_with_a_common_key_go_on_when_one_of_them_is_killed(tmp_path: Path) -> None:
    with Nodes(tmp_path, 4, rounds=8, **served("sefl", {"key_bits": 256})) as nodes:
        nodes.step(1, 4)
        nodes.kill("cleo")
        nodes.begin("cleo")
        nodes.finish()
        lawful(nodes)  # every result is computed again, in the clear
    keys = {path.parent.name for path in nodes.folder.rglob("clients.key")}
    assert keys == {"anna", "ben", "cleo"}, "the server has none"
    last = [included for (round, _), included in nodes.results("anna").items() if round == 8]
    assert last == [{"anna", "ben", "cleo"}] * len(last)
    assert nodes.said("dora", "one private key in common"), "what it does not hide is said"


FITTING = dict.fromkeys(("el", "d-psgd", "muffliato"), "method_options = {degree = 4}")
"""What a method needs beside its name, where five members begin."""


def test_every_method_is_carried_or_refused_in_one_line(tmp_path: Path) -> None:
    carried = set()
    for name, kind in METHODS.items():
        lines = f'+method = "{name}"'
        if name == "eris":
            load(tmp_path)
            carried.add(name)
            continue
        if issubclass(kind, GossipMethod):
            reason, lines = "", f"{lines}\n{FITTING.get(name, '')}"
        else:
            reason = kind().compose(["a", "b", "c"], [1, 1, 1]).scheme.in_step
        if not reason:
            assert isinstance(
                load(tmp_path, federation=lines, node="+aggregator = false"), NodeSettings
            )
            carried.add(name)
            continue
        with pytest.raises(ValueError, match=reason) as refused:
            load(tmp_path, federation=lines, node="+aggregator = false")
        said = str(refused.value)
        assert f"federation.method is {name!r}; expected" in said
        assert "\n" not in said
    assert carried >= {*DETERMINISTIC, "eris", "fedavg-ldp"}
