"""An owner that alone leaves a client out of its sums is counted by every node, and named."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eris.experiments.federations.processes import LocalFederation
from eris.protocol.messages import Contribution
from eris.protocol.round.aggregator import Aggregator
from eris.runtimes.grpc import node as node_module
from eris.runtimes.grpc.journal import read
from eris.runtimes.grpc.node import NetworkNode
from eris.runtimes.grpc.omissions import NAMED_AT, WAITED, Omissions
from eris.testing.kills import TIMES

OWNERS = (0, 1, 2, 3)
ALL = frozenset(range(6))
NAMES = ("anna", "ben", "cleo", "dora", "emil")
sets = st.dictionaries(
    st.sampled_from(OWNERS), st.lists(st.frozensets(st.sampled_from(sorted(ALL))), max_size=2)
)


def slowly(rounds: list[dict[int, list[frozenset[int]]]]) -> Counter[tuple[int, int]]:
    """By the words of the definition."""
    found: Counter[tuple[int, int]] = Counter()
    for results in rounds:
        said = {owner: [one for one in each if one] for owner, each in results.items()}
        said = {owner: each for owner, each in said.items() if each}
        for owner in said:
            for client in ALL - {owner}:
                left_out = any(client not in one for one in said[owner])
                others = [all(client in one for one in said[other])
                          for other in said if other != owner]  # fmt: skip
                if left_out and all(others) and 2 * len(others) > len(OWNERS) - 1:
                    found[owner, client] += 1
    return found


@given(st.lists(sets, max_size=6), st.randoms(use_true_random=False))
def test_counts_are_those_of_the_definition_in_whatever_order(
    rounds: list[dict[int, list[frozenset[int]]]], order: Any
) -> None:
    notes = [
        (number, owner, included)
        for number, results in enumerate(rounds, start=1)
        for owner, each in results.items()
        for included in each
    ]
    order.shuffle(notes)
    seen = Omissions()
    for number, owner, included in notes:
        seen.note(number, owner, included, OWNERS)
    named = seen.settle(len(rounds) + WAITED)
    expected = slowly(rounds)
    assert seen.rounds == expected
    assert {*named} == {pair for pair, count in expected.items() if count >= NAMED_AT}


def test_a_round_is_counted_once_and_what_comes_later_changes_nothing() -> None:
    seen = Omissions()
    for owner in OWNERS:
        seen.note(1, owner, ALL - {5} if owner == 2 else ALL, OWNERS)
    assert seen.settle(WAITED) == []
    assert not seen.rounds, "results of it may still come"
    seen.settle(WAITED + 1)
    seen.note(1, 2, ALL - {4}, OWNERS)
    seen.settle(9)
    assert seen.rounds == {(2, 5): 1}


def test_a_client_that_several_leave_out_was_away() -> None:
    seen = Omissions()
    for number in range(1, 9):
        for owner in OWNERS:
            seen.note(number, owner, ALL - {5} if owner in (1, 2) else ALL, OWNERS)
    assert seen.settle(20) == []
    assert not seen.rounds


def test_nodes_name_an_owner_that_leaves_one_client_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five nodes over TLS; ben takes nothing of dora's, and says so in no word but its results."""
    monkeypatch.setattr(node_module, "rehearse", lambda agreed: None)  # one process compiles once
    receive = Aggregator.receive

    def choosing(self: Aggregator, contribution: Contribution) -> Any:
        members = self.agreement.view.members
        header = contribution.header
        if (members[self.me], members[header.sender]) == ("ben", "dora"):
            return self.excuse(header.key, header.sender), []  # as if it had nothing to give
        return receive(self, contribution)

    monkeypatch.setattr(Aggregator, "receive", choosing)
    values = {**TIMES, "node.linger": 0.3, "federation.rounds": NAMED_AT + WAITED + 2,
              "federation.secure_sums": "2 of 3", "federation.close_after": 10.0,
              "federation.catch_up_after": 20.0,
              "training.trainer": "eris.testing.quadratic:Quadratic",
              "training.options": {"n": 40, "pace": 0.05}}  # fmt: skip
    federation = LocalFederation(tmp_path / "nodes", NAMES, values)

    async def run() -> None:
        nodes = [NetworkNode(federation.settings(name)) for name in NAMES]
        await asyncio.gather(*(node.run() for node in nodes))

    asyncio.run(run())
    for name in NAMES:
        notes = read(federation.folder / name / "state" / "journal.jsonl")
        named = [(note["owner"], note["client"]) for note in notes if note["event"] == "leaves out"]
        assert ("ben", "dora") in named, name
