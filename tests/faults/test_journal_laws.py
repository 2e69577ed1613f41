"""The laws on journals, on journals that break them."""

from __future__ import annotations

from typing import Any

import pytest

from eris.testing.journals import told

Lines = list[dict[str, Any]]


def view(epoch: int = 1, owners: tuple[str, ...] = ("anna",)) -> dict[str, Any]:
    return {
        "event": "view", "epoch": epoch, "from_round": 1, "owners": list(owners),
        "clients": ["anna", "ben"], "members": ["anna", "ben"],
    }  # fmt: skip


def result(round: int, previous: int, included: tuple[int, ...] = (0, 1)) -> dict[str, Any]:
    return {
        "event": "result", "round": round, "segment": [0, 0], "previous": previous,
        "included": list(included), "withheld": False, "digest": f"{round}",
    }  # fmt: skip


def answered(round: int, closed: str) -> dict[str, Any]:
    return {"event": "answered", "round": round, "segment": [0, 0], "closed": closed}


def trained(*rounds: int) -> Lines:
    return [{"event": "trained", "round": round} for round in rounds]


def journals() -> dict[str, Lines]:
    """Two members, three rounds, no result in the second."""
    return {
        "anna": [view(), *trained(1, 2, 3), result(1, 0), result(3, 1)],
        "ben": [view(), *trained(1, 3), result(1, 0), result(3, 1)],
    }


def test_a_lawful_federation_breaks_none() -> None:
    found = told(journals())
    assert not found.broken
    assert found.included() == (4, 5)


@pytest.mark.parametrize(
    ("who", "line", "law"),
    [
        ("ben", result(3, 1, (0,)), "one result"),
        ("ben", {**result(3, 1), "digest": "other"}, "one result"),
        ("ben", view(owners=("ben",)), "one authority"),
        ("anna", result(2, 1), "nothing from nowhere: ben"),
        ("anna", result(5, 4, ()), "nothing lost: no result of segment (0, 0), round 4"),
        ("anna", result(4, 3, ()), "nothing lost: ben knows of round 3"),
    ],
)
def test_what_is_added_breaks_a_law(who: str, line: dict[str, Any], law: str) -> None:
    whole = journals()
    whole[who].append(line)
    assert any(law in broken for broken in told(whole).broken), told(whole).broken


def test_helpers_answer_about_one_set_and_it_is_the_results() -> None:
    whole = journals()
    for lines in whole.values():
        lines[-1]["closed"] = "d1"
    assert any("no helper answered about" in broken for broken in told(whole).broken)
    whole["ben"].append(answered(3, "d1"))
    whole["anna"].append(answered(3, "d1"))
    assert not told(whole).broken
    whole["anna"].append(answered(3, "d2"))
    assert told(whole).broken == [
        "one opening: anna answers about a second set of segment (0, 0), round 3"
    ]


def test_a_snapshot_tells_a_member_that_the_federation_went_on() -> None:
    whole = journals()
    whole["anna"].append(result(4, 3, ()))
    whole["ben"].append({"event": "snapshot", "segment": [0, 0], "at": 4})
    assert not told(whole).broken
