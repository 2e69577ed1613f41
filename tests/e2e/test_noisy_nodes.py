"""Nodes with shared noise as processes: one is killed in a round that it has paid for."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from eris.protocol.secure.charges import Charges
from support.nodes import NAMES, Nodes

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
