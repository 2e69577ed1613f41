"""Nodes on hosts of their own (network namespaces): cut off, healed, cut in one direction only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support.hosts import Hosts
from support.nodes import Nodes, lawful

pytestmark = pytest.mark.slow

COUNT, ROUNDS = 4, 40
DORA = COUNT - 1
OTHERS = range(DORA)
Change = Callable[[Hosts], None]


def without_dora(folder: Path, cut: Change, heal: Change) -> None:
    """Dora's host is cut off in round 5: the others go on, she catches up and takes part again."""
    with Hosts(COUNT) as hosts, Nodes(folder, COUNT, rounds=ROUNDS, hosts=hosts) as nodes:
        nodes.lead(5)
        nodes.begin()
        nodes.until_round(5, *nodes.names)
        cut(hosts)
        nodes.lead(20)
        nodes.until_round(20, "anna", "ben", "cleo")
        assert nodes.running("dora")
        assert nodes.at("dora") < 12
        alone = [view for view in nodes.views("anna") if "dora" not in view["clients"]]
        heal(hosts)
        nodes.until(lambda: "dora" in nodes.views("anna")[-1]["clients"], "dora is back")
        nodes.until_round(20, "dora")
        nodes.finish()
        lawful(nodes)
    assert alone
    assert "dora" not in alone[0]["owners"]
    known = nodes.results("anna")
    assert {"anna", "ben", "cleo"} == known[19, 0]
    assert "dora" in known[ROUNDS, 0]


def test_a_node_that_is_cut_off_and_healed_catches_up(tmp_path: Path) -> None:
    without_dora(tmp_path, lambda hosts: hosts.cut(DORA), lambda hosts: hosts.heal(DORA))


def test_a_node_that_hears_but_is_not_heard_catches_up(tmp_path: Path) -> None:
    def cut(hosts: Hosts) -> None:
        for other in OTHERS:
            hosts.cut_way(DORA, other)

    def heal(hosts: Hosts) -> None:
        for other in OTHERS:
            hosts.heal_way(DORA, other)

    without_dora(tmp_path, cut, heal)


def test_a_node_that_is_heard_but_does_not_hear_catches_up(tmp_path: Path) -> None:
    def cut(hosts: Hosts) -> None:
        for other in OTHERS:
            hosts.cut_way(other, DORA)

    def heal(hosts: Hosts) -> None:
        for other in OTHERS:
            hosts.heal_way(other, DORA)

    without_dora(tmp_path, cut, heal)


def test_two_nodes_that_do_not_reach_each_other_agree_through_the_others(tmp_path: Path) -> None:
    ben = 1
    with Hosts(COUNT) as hosts, Nodes(tmp_path, COUNT, rounds=12, hosts=hosts) as nodes:
        nodes.lead(3)
        nodes.begin()
        nodes.until_round(3, *nodes.names)
        hosts.cut_way(ben, DORA)
        hosts.cut_way(DORA, ben)
        nodes.finish()
        lawful(nodes)
    owners = nodes.views("anna")[0]["owners"]
    of_ben, of_anna = (owners.index(name) for name in ("ben", "anna"))
    known = {key: who for key, who in nodes.results("anna").items() if key[0] > 6}
    assert {round for round, shard in known if shard == of_ben} == set(range(7, 13))
    assert all("dora" not in who for (_, shard), who in known.items() if shard == of_ben)
    assert any("dora" in who for (_, shard), who in known.items() if shard == of_anna)
