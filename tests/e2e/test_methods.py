"""Every aggregating method that nodes carry, over gRPC: its bytes, its model, its one server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eris.experiments.federations.processes import role_values
from eris.methods.method import GossipMethod
from eris.methods.privacy import LocalPrivacy
from eris.methods.registry import METHODS, create
from eris.runtimes.grpc.settings import NodeSettings
from eris.testing.fixed_rows import FixedRows
from support.node_files import load
from support.nodes import Nodes, lawful
from support.same_bytes import PATIENT, ROUNDS, over_grpc, simulated

DETERMINISTIC: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "min-leakage": {},
    "fedavg-wc": {"clusters": 16, "coding": "huffman"},
    "priprune": {"adaptive": True},
}


def served(method: str, options: Mapping[str, Any], **values: Any) -> dict[str, Any]:
    """Settings and roles of three clients and a server, the last of four."""
    chosen = {"federation.method": method, "federation.method_options": options, **values}
    own = {name: role_values(name == "dora") for name in ("anna", "ben", "cleo", "dora")}
    return {"values": chosen, "own": own}


@pytest.mark.parametrize("method", DETERMINISTIC)
def test_a_method_over_grpc_says_and_learns_what_the_simulator_does(
    method: str, tmp_path: Path
) -> None:
    options = DETERMINISTIC[method]
    made = served(method, options, **PATIENT)
    with Nodes(tmp_path, 4, rounds=ROUNDS, **made) as nodes:
        nodes.begin()
        nodes.finish()
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


def test_local_noise_on_nodes_is_as_much_as_the_budget_asks(tmp_path: Path) -> None:
    rounds, privacy = 2, LocalPrivacy(100.0)
    clients = [FixedRows(name) for name in ("anna", "ben", "cleo")]
    trainer = {"training.trainer": "eris.testing.fixed_rows:FixedRows"}
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
            reason, lines = kind.carried_by_others, f"{lines}\n{FITTING.get(name, '')}"
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
