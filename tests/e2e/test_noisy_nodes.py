"""Nodes with shared noise as processes: one is killed in a round that it has paid for."""

from __future__ import annotations

import math
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from eris.core.noise import PrivacyClaim, epsilon
from eris.protocol.secure.charges import Charges
from eris.protocol.secure.noise_terms import SharedNoise
from support.nodes import Nodes

NAMES = ("anna", "ben", "cleo", "dora", "emil")
ROUNDS, KILLED_IN = 14, 3


def charged(nodes: Nodes, name: str) -> list[int]:
    """The rounds in a node's ledger."""
    path = nodes.folder / name / "privacy" / f"ward-{name}.charges"
    found = Charges.parse(path.read_bytes()) if path.exists() else Charges()
    return [charge.round for charge in found.whole]


def test_no_round_is_charged_or_sent_twice_by_a_node_that_was_killed(tmp_path: Path) -> None:
    values = {
        "training.trainer": "eris.testing.fixed_rows:FixedRows",
        "federation.secure_sums": "2 of 3", "federation.epsilon": 8.0,
        "federation.most_samples": 8, "federation.min_included": 4,
    }  # fmt: skip
    options = {name: {"n": 400} for name in NAMES}
    own = {name: {"privacy.data": f"ward-{name}"} for name in NAMES}
    with Nodes(tmp_path, 5, rounds=ROUNDS, values=values, own=own, options=options) as nodes:
        nodes.step(1, KILLED_IN)
        nodes.lead(KILLED_IN)
        nodes.until(lambda: KILLED_IN in charged(nodes, "cleo"), "cleo has paid for the round")
        nodes.kill("cleo")
        before, joined = charged(nodes, "cleo"), len(nodes.said("cleo", "joined"))
        nodes.lead(KILLED_IN + 2)
        nodes.begin("cleo")
        nodes.until(lambda: len(nodes.said("cleo", "joined")) > joined, "cleo has joined again")
        for round in range(KILLED_IN + 2, ROUNDS):
            nodes.lead(round)
            nodes.until_round(round + 1, *(name for name in NAMES if name != "cleo"))
        nodes.finish()
        paid = {name: charged(nodes, name) for name in NAMES}
        for name, rounds in paid.items():
            assert max(Counter(rounds).values()) == 1, (name, rounds)
            trained = Counter(line["round"] for line in nodes.events(name, "trained"))
            assert max(trained.values()) == 1
            assert set(trained) <= set(rounds)
        assert set(before) < set(paid["cleo"]), "it goes on with rounds that it has not paid for"
        for (round, _), members in nodes.results("anna").items():
            assert all(round in paid[name] for name in members), (round, members)
        models = {nodes.model(name).tobytes() for name in NAMES}  # type: ignore[union-attr]
        assert len(models) == 1


BLIND = """
from eris.runtimes.grpc.privacy import NodePrivacy
from eris.testing.fixed_rows import FixedRows as make

NodePrivacy.hear = lambda self, included: None
"""
"""Training code of a node that does not listen to what peers say of its past."""


@pytest.mark.parametrize("listens", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_node_with_an_old_ledger_is_told_what_it_has_forgotten(
    tmp_path: Path, listens: bool
) -> None:
    """Without that its data would be used more often than its budget allows."""
    rounds, allowed = 16, 6
    values = {
        "training.trainer": "eris.testing.fixed_rows:FixedRows",
        "federation.secure_sums": "2 of 3", "federation.epsilon": 8.0,
        "federation.most_samples": 8, "federation.min_included": 4,
    }  # fmt: skip
    noise = SharedNoise.planned("sample", 8.0, clip=1.0, rounds=rounds, clients=5, samples=8,
                                min_included=4, colluders=1)  # fmt: skip
    claim = PrivacyClaim("gaussian", math.sqrt((allowed + 0.5) * noise.charges[0]), 1.0, 1)
    own: dict[str, dict[str, Any]] = {name: {"privacy.data": f"ward-{name}"} for name in NAMES}
    own["cleo"]["privacy.epsilon_sample"] = epsilon(claim, 1e-5)
    if not listens:
        own["cleo"]["training.trainer"] = "blind:make"
    options = {name: {"n": 400} for name in NAMES}
    with Nodes(tmp_path, 5, rounds=rounds, values=values, own=own, options=options) as nodes:
        place, copy = nodes.folder / "cleo", tmp_path / "copy"
        (place / "blind.py").write_text(BLIND)
        nodes.step(1, 2)
        nodes.until(lambda: charged(nodes, "cleo") == [1], "cleo has paid for round 1")
        shutil.copytree(place, copy)
        nodes.step(2, 5)
        nodes.kill("cleo")
        before = charged(nodes, "cleo")
        assert set(before) >= {1, 2, 3, 4}
        shutil.rmtree(place)
        shutil.copytree(copy, place)
        assert charged(nodes, "cleo") == [1]
        nodes.lead(6)
        joined = len(nodes.said("cleo", "joined"))
        nodes.begin("cleo")
        nodes.until(lambda: len(nodes.said("cleo", "joined")) > joined, "cleo has joined again")
        for round in range(6, rounds):
            nodes.lead(round)
            nodes.until_round(round + 1, *(name for name in NAMES if name != "cleo"))
        nodes.finish()
        used = {round for (round, _), who in nodes.results("anna").items() if "cleo" in who}
        paid = charged(nodes, "cleo")
        assert {1, 2, 3, 4} <= used
        if listens:
            assert used <= set(paid)
            assert len(used) <= len(paid) <= allowed
            (line,) = nodes.events("cleo", "ledger behind")
            assert set(line["rounds"]) >= {2, 3, 4}
            assert nodes.said("cleo", "ledger behind", "which it did not hold")
        else:
            assert len(paid) <= allowed < len(used), "what its ledger says is not what it did"
            assert not list(nodes.events("cleo", "ledger behind"))
