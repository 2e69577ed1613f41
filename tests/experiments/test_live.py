"""What is shown of nodes that are under way: on a terminal, and where there is none."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from eris.core.errors import ErisError
from eris.experiments.federations.live import Board, LiveWatch, Tail
from eris.experiments.federations.outcome import FederationOutcome, Figures
from eris.experiments.federations.processes import LocalFederation, node_names
from eris.runtimes.grpc.journal import Journal

NAMES = node_names(3)
FIRST = {"epoch": 1, "from_round": 1, "owners": NAMES, "members": NAMES, "clients": NAMES}
SECOND = FIRST | {"epoch": 2, "from_round": 3, "owners": ["node-1", "nobody", "node-1"]}


def over(round: int, **fields: Any) -> dict[str, Any]:
    usual = {"seconds": 0.5, "included": 1.0, "sent": 1000, "received": 3000, "seen": 0.125}
    return {"round": round, **usual, **fields}


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[LocalFederation]:
    """Three nodes that are ready to be started, with a trainer that is not there."""
    values = {"federation.rounds": 4, "training.trainer": "eris.testing.quadratic:Quadratic"}
    own = {"node-3": {"training.trainer": "nowhere:make"}}
    with LocalFederation(tmp_path / "nodes", NAMES, values, own) as federation:
        yield federation


def watching(federation: LocalFederation, *, terminal: bool) -> tuple[LiveWatch, io.StringIO]:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=terminal, width=120, highlight=False)
    return LiveWatch(federation, 4, console), shown


def test_a_tail_gives_every_line_once_also_of_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    tail = Tail(path)
    assert tail.read() == []
    with Journal(path) as journal:
        journal.write("began", round=1)
        journal.write("trained", round=1)
        assert [note["event"] for note in tail.read()] == ["began", "trained"]
        assert tail.read() == []
        journal.write("began", round=2)
        assert [note["round"] for note in tail.read()] == [2]
    path.unlink()
    with Journal(path) as journal:
        journal.write("began", round=9)
    assert [note["round"] for note in tail.read()] == [9]


def test_without_a_terminal_a_round_is_a_line_and_there_are_no_control_codes(
    federation: LocalFederation,
) -> None:
    watch, shown = watching(federation, terminal=False)
    with watch, Journal(federation.journal_path("node-1")) as journal:
        journal.write("view", **FIRST)
        for round in (1, 2, 3):
            journal.write("began", round=round)
            journal.write("round", **over(round))
            watch.look()
            # Told when the next is over too, for others may be slower.
            assert shown.getvalue().count("round ") - 1 == round - 1
        journal.write("view", **SECOND)
        watch.look()
    lines = shown.getvalue().splitlines()
    assert lines[0] == "epoch 1 from round 1: shard 0 node-1, 1 node-2, 2 node-3"
    assert lines[1].startswith("round 1/4  0.50 s  epoch 1  a node sent 1.0 kB, received 3.0 kB")
    assert lines[2].startswith("round 2/4")
    assert "epoch 2 from round 3: shard 0 node-1, 1 nobody, 2 node-1" in lines[3:]
    assert any(line.startswith("round 3/4  0.50 s  epoch 2") for line in lines)
    assert "\x1b" not in shown.getvalue()


def test_on_a_terminal_it_is_a_table_with_the_owners(federation: LocalFederation) -> None:
    watch, shown = watching(federation, terminal=True)
    with watch, Journal(federation.journal_path("node-2")) as journal:
        journal.write("view", **FIRST)
        journal.write("round", **over(2))
        journal.write("view", **SECOND)
        journal.write("began", round=3)
        watch.look()
        assert "\x1b[1;31mnobody" in shown.getvalue()  # bold red: it waits
        assert "\x1b[1;33mnode-1" in shown.getvalue()  # bold yellow: taken over
        assert "12.50%" in shown.getvalue()
        journal.write("finished", round=4, metrics={"accuracy": 0.9876}, model="ab")
    assert "accuracy 0.9876" in shown.getvalue()


def test_a_node_is_down_while_its_process_is_gone(federation: LocalFederation) -> None:
    watch, _ = watching(federation, terminal=False)
    row = watch.board.rows["node-2"]

    def phase() -> str:
        watch.look()
        return row.phase

    federation.start("node-2")
    with pytest.raises(ErisError, match="node-2 is running already"):
        federation.start("node-2")
    assert phase() == "starting"
    with Journal(federation.journal_path("node-2")) as journal:
        journal.write("began", round=1)
        assert phase() == "training"
        journal.write("trained", round=1)
        assert phase() == "exchanging"
        federation.kill("node-2")
        assert phase() == "down"
        assert watch.over(), "there is nobody to wait for"
        federation.start("node-2")
        assert phase() == "starting"
        assert not watch.over()
        journal.write("snapshot", segment=(0, 0), at=3)
        assert phase() == "catching up"
        federation.kill("node-2")
        assert phase() == "down"
        # Somebody has started it by hand.
        journal.write("began", round=4)
        assert phase() == "training"
        journal.write("done", round=5)
        journal.write("finished", round=4, metrics={}, model="ab")
        assert phase() == "finished"
    assert (row.round, row.over) == (4, True)


def test_a_node_that_fails_ends_the_watch_with_its_log(federation: LocalFederation) -> None:
    watch, _ = watching(federation, terminal=False)
    federation.start("node-3")
    with pytest.raises(ErisError, match=r"node-3 ended with code 2.*\n.*nowhere:make"), watch:
        watch.follow(lambda: False, 0.02)


def test_figures_are_medians_and_what_was_seen_by_shards() -> None:
    board = Board(NAMES, 4)
    board.take("node-1", {"event": "view", **FIRST})
    board.take("node-1", {"event": "view", **SECOND})
    for note in (over(1), over(2, seen=0.13), over(3, sent=90_000, seen=0.25), over(4, seen=0.2)):
        board.take("node-1", {"event": "round", **note})
    figures = Figures.of(board, "node-1")
    assert figures == Figures(4, 1000, 3000, 105_000, {1: 0.13, 2: 0.25})
    assert Figures.of(board, "node-2") == Figures(0, 0, 0, 0, {})


def test_an_outcome_is_equal_only_if_all_nodes_have_a_model(federation: LocalFederation) -> None:
    outcome = FederationOutcome.of(federation, 4)
    assert not outcome.finished
    assert not outcome.equal
    one = {"node-1": "ab", "node-2": "ab"}
    assert not FederationOutcome({}, outcome.board, one).equal
    assert "node-3 none" in FederationOutcome({}, outcome.board, one).verdict
    assert not FederationOutcome({}, outcome.board, one | {"node-3": "cd"}).equal
    assert FederationOutcome({}, outcome.board, one | {"node-3": "ab"}).equal


def test_a_folder_that_is_in_use_is_not_taken(federation: LocalFederation) -> None:
    with pytest.raises(ErisError, match="is there already"):
        LocalFederation(federation.folder, NAMES, {})
