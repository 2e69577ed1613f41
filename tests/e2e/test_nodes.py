"""Real node processes over mutual TLS: newcomers, stops, waiting shards, lost quorums, rosters."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from eris.runtimes.grpc.addresses import LOOPBACK
from support.background import IGNORING
from support.nodes import Nodes, lawful

COUNTING = """
import numpy as np
from dataclasses import replace
from eris.testing.quadratic import Quadratic

class Counting(Quadratic):
    updates = 0.0
    def update(self, parameters, round):
        made = super().update(parameters, round)
        self.updates += 1
        return replace(made, metrics={"odd": np.zeros(3), "none": None})
    def state(self):
        return {"updates": np.array([self.updates], np.float32)}
    def restore(self, state):
        self.updates = float(state["updates"][0])
    def evaluate(self, parameters):
        return {"updates": self.updates}
"""
"""A member's own training code, with a memory and with metrics that are no numbers."""


def test_a_newcomer_joins_in_the_middle_is_asked_to_stop_and_goes_on_where_it_was(
    tmp_path: Path,
) -> None:
    values = {"membership.start_with": 3}
    own = {"dora": {"training.trainer": "counting:Counting"}}
    with Nodes(tmp_path, 4, rounds=30, values=values, own=own) as nodes:
        (nodes.folder / "dora" / "counting.py").write_text(COUNTING)
        nodes.lead(6)
        nodes.begin("anna", "ben", "cleo")
        nodes.until_round(5, "anna")
        nodes.begin("dora")
        nodes.until(lambda: bool(nodes.views("dora")), "dora has joined")
        nodes.lead(20)
        nodes.until_round(18, "dora")
        assert nodes.stop("dora") == 0
        stopped_in = nodes.at("dora")
        nodes.begin("dora")
        again = nodes.until_said("dora", "resumed")
        nodes.finish()
        lawful(nodes)
        assert f"round={stopped_in - 1}" in again
        assert min(line["round"] for line in list(nodes.events("dora", "began"))[-3:]) > stopped_in
        trained = {line["round"] for line in nodes.events("dora", "trained")}
        (finished,) = nodes.events("dora", "finished")
        # Of what the trainer keeps, a stop costs at most the round it came in.
        assert len(trained) - 1 <= finished["metrics"]["updates"] <= len(trained)
        included = nodes.results("anna")
        assert {round for (round, _), who in included.items() if "dora" in who} >= {29, 30}
        assert not any("dora" in who for (round, _), who in included.items() if round < 5)


@pytest.mark.slow
def test_a_federation_that_was_stopped_as_a_whole_loses_the_round_under_way_at_most(
    tmp_path: Path,
) -> None:
    with Nodes(tmp_path, 3, rounds=30) as nodes:
        nodes.step(1, 8)
        # The directory's host last: whoever cannot say goodbye sits out what it was permitted.
        assert [nodes.stop(name) for name in reversed(nodes.names)] == [0, 0, 0]
        nodes.begin()
        nodes.finish()
        lawful(nodes)
        lost = set(range(1, 31)) - {round for round, _ in nodes.results("ben")}
        assert len(lost) <= 1, "what was sent of a round is not sent again"


@pytest.mark.slow
def test_a_shard_nobody_may_take_over_waits_and_a_lost_quorum_burns_no_rounds(
    tmp_path: Path,
) -> None:
    with Nodes(tmp_path, 4, rounds=40, values={"node.max_share": 0.25}) as nodes:
        nodes.step(1, 4)
        nodes.kill("cleo")
        nodes.lead(4)
        nodes.until_said("ben", "nobody")
        alone = nodes.views("ben")[-1]
        shard, start = alone["owners"].index("nobody"), alone["from_round"]
        nodes.step(start, start + 4, "anna", "ben", "dora")
        # Three of four are the quorum; without dora it is lost.
        nodes.kill("dora")
        nodes.lead(nodes.rounds)
        nodes.until(lambda: nodes.presence("dora") == "away", "dora's lease is over")
        waiting = nodes.at("anna"), nodes.at("ben")
        nodes.begin("cleo", "dora")
        nodes.finish()
        lawful(nodes)
        assert max(waiting) <= start + 8
        known = nodes.results("anna")
        for round in range(start, start + 4):
            assert {a for a in range(4) if (round, a) in known} == set(range(4)) - {shard}
        assert (nodes.rounds, shard) in known


@pytest.mark.slow
def test_a_roster_trains_without_a_directory_through_a_kill_and_the_loss_of_a_ledger(
    tmp_path: Path,
) -> None:
    roster = tmp_path / "roster.toml"
    values = {"membership.roster": str(roster), "federation.min_included": 2,
              "federation.quorum": 2}  # fmt: skip
    with Nodes(tmp_path, 3, rounds=24, values=values) as nodes:
        entries = (
            f'[[member]]\nname = "{name}"\naddress = "{LOOPBACK}:{nodes.ports[name]}"\n'
            for name in nodes.names
        )
        roster.write_text("".join(entries), encoding="utf-8")
        nodes.lead(5)
        nodes.begin()
        nodes.until_round(5, *nodes.names)
        nodes.kill("ben")
        nodes.lead(9)
        nodes.until_round(9, "anna", "cleo")
        nodes.begin("ben")
        nodes.until_round(9, "ben")
        nodes.kill("ben")
        lost = {"ben": nodes.journal("ben")}
        for path in (nodes.folder / "ben" / "state").iterdir():
            path.unlink()
        nodes.lead(14)
        nodes.begin("ben")
        nodes.finish()
        lawful(nodes, lost)
        assert {view["epoch"] for view in nodes.views("anna")} == {1}
        owners = nodes.views("anna")[0]["owners"]
        known = nodes.results("anna")
        assert (nodes.rounds, owners.index("ben")) in known
        assert (7, owners.index("ben")) not in known
        assert (7, owners.index("cleo")) in known


def test_a_node_in_the_background_stops_on_an_interrupt_and_goes_on(tmp_path: Path) -> None:
    with Nodes(tmp_path, 3, rounds=12) as nodes:
        nodes.lead(4)
        for name in nodes.names:
            nodes.start(name, prefix=IGNORING)
        nodes.until_round(3, "ben")
        nodes.processes["ben"].send_signal(signal.SIGINT)
        assert nodes.ends("ben") == 0
        nodes.begin("ben")
        nodes.finish()
        lawful(nodes)
