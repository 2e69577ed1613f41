"""What `eris node status` shows of seats and keys, and of privacy."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from eris.cli.node import _show
from eris.runtimes.grpc.observe import NodeState
from support.registry import founded, join, stated

NAMES = ("anna", "ben", "cleo", "dora")


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")


def test_seats_whose_keys_are_in_force_and_parties_are_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    directory = founded(seats=3, start_with=4)
    for name in NAMES:
        join(directory, 0.0, name, keys=stated(name, 1))
    for name in NAMES:
        directory.renew(1.0, name, f"key of {name}", round=1)
    join(directory, 2.0, "ben", keys=stated("ben", 2))
    _show(None, asdict(directory.describe(2.0)), [])
    rows = {line.split()[1]: line for line in capsys.readouterr().out.splitlines()
            if any(f" {name} " in line for name in NAMES)}  # fmt: skip
    assert "in force" in rows["anna"]
    assert "1, 2" in rows["anna"], "she owns shard 0 and helps the others"
    assert "from round 4" in rows["ben"]
    directory.leave(3.0, "dora", "key of dora")
    _show(None, asdict(directory.describe(3.0)), [])
    assert "Shards with vacant seats: 0, 1, 2" in capsys.readouterr().out


def test_without_secure_sums_there_is_nothing_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    directory = founded(start_with=1)
    join(directory, 0.0, "anna")
    _show(None, asdict(directory.describe(0.0)), [])
    shown = capsys.readouterr().out
    assert "owns" in shown
    assert not any(word in shown for word in ("helps", "keys", "party", "vacant"))


def test_what_the_data_has_cost_is_shown_or_why_nothing_is_given(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = "ε ≤ 8.00 for anyone who sees results"
    privacy = {
        "data": "ward-3", "protects": "sample", "said": said, "abstains": "", "behind": ""
    }  # fmt: skip
    _show(NodeState(name="anna").mapping() | {"privacy": privacy}, None, [])
    assert f"Privacy of ward-3: {said}" in capsys.readouterr().out
    spent = privacy | {"abstains": "budget ε = 8 is spent: 160 of 160 rounds"}
    _show(NodeState(name="anna").mapping() | {"privacy": spent}, None, [])
    shown = capsys.readouterr().out
    assert "Privacy of ward-3: budget ε = 8 is spent: 160 of 160 rounds" in shown
    assert said in shown
    behind = privacy | {"behind": "the ledger was behind: rounds 2 to 4 are charged now"}
    _show(NodeState(name="anna").mapping() | {"privacy": behind}, None, [])
    assert "rounds 2 to 4 are charged now" in capsys.readouterr().out
    _show(NodeState(name="anna").mapping(), None, [])
    assert "Privacy" not in capsys.readouterr().out
