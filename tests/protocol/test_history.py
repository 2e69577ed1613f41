"""A directory that has forgotten something is found out before it registers or changes anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from eris.core.errors import InvalidSetting
from eris.protocol.authority.directory import Directory, NotYet, OldCopy, Refused
from eris.protocol.authority.history import LONGEST_TEXT, History, Mark, newest
from support.registry import founded, join, renew, restored, started_again


def begun(**changes: Any) -> Directory:
    """A federation of three that has come to round 4."""
    directory = founded(start_with=3, **changes)
    for name in ("anna", "ben", "cleo"):
        join(directory, 0.0, name)
        renew(directory, 1.0, name, 4)
    return directory


def mark(directory: Directory, number: int = 0) -> Mark:
    found = directory.standing(number).mark
    assert found is not None
    return found


# -- another ledger ---------------------------------------------------------------------------


def test_a_new_ledger_refuses_the_members_of_the_lost_one_each_time() -> None:
    old, new = begun(), founded(entropy="1" * 32)
    for _ in range(3):
        with pytest.raises(Refused, match="does not remember this federation: anna belongs to run"):
            join(new, 0.0, "anna", mark=mark(old))
    assert new.state()["members"] == []
    assert not new.stale  # whoever says so belongs to another run, and tells nothing of this one
    join(new, 0.0, "ben")


def test_a_member_that_only_knows_its_run_is_refused_by_another_and_let_in_by_its_own() -> None:
    directory = begun()
    with pytest.raises(Refused, match="belongs to run beef"):
        join(directory, 2.0, "anna", mark=Mark("beef"))
    assert join(directory, 2.0, "anna", mark=Mark(mark(directory).ledger)).incarnation == 2


# -- an older copy ----------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["anna", "dora"])
@pytest.mark.parametrize("call", ["join", "renew", "leave"])
def test_an_older_copy_that_meets_a_member_that_knows_more_serves_nobody(
    who: str, call: str
) -> None:
    directory = begun()
    copy = directory.state()
    told = renew(directory, 2.0, "anna", 5).mark  # a permit that the copy does not know
    again = started_again(copy, 3.0)
    before = again.state()["members"]
    ask: dict[str, Callable[[], object]] = {
        "join": lambda: join(again, 3.0, who, mark=told),
        "renew": lambda: renew(again, 3.0, who, 5, mark=told),
        "leave": lambda: again.leave(3.0, who, f"key of {who}", mark=told),
    }
    with pytest.raises(OldCopy, match=f"not the newest: {who} was told by it"):
        ask[call]()
    assert again.state()["members"] == before
    # Neither now nor after a start of its own, whoever asks, and however long it takes.
    for one in (again, started_again(again.state(), 4.0)):
        reason = "put the newest copy in its place"
        with pytest.raises(OldCopy, match=reason):
            join(one, 99.0, "ben")
        with pytest.raises(OldCopy, match=reason):
            renew(one, 99.0, "cleo", 4)
        with pytest.raises(OldCopy, match=reason):
            one.describe(99.0)
        assert one.tick(99.0) is False
        assert one.state()["members"] == before


def test_a_copy_that_has_gone_on_by_itself_is_found_out_although_it_counts_as_far() -> None:
    directory = begun()
    copy = directory.state()
    told = renew(directory, 2.0, "anna", 5).mark
    again = started_again(copy, 3.0)
    for round in range(5, 20):  # anna is cut off; after a lease the others are served
        renew(again, 14.0, "ben", round)
    assert told is not None
    assert mark(again).revision > told.revision
    with pytest.raises(OldCopy):
        renew(again, 15.0, "anna", 5, mark=told)


def test_the_newest_copy_goes_on_and_knows_all_that_was_told() -> None:
    directory = begun()
    marks = [mark(directory)]
    for start in range(3):
        directory = started_again(directory.state(), 10.0 * start)
        for number, name in enumerate(("anna", "ben", "cleo")):
            try:
                join(directory, 10.0 * start, name, mark=marks[-1])
            except NotYet:
                assert number < 2
        marks.append(renew(directory, 10.0 * start, "cleo", 5 + start).mark or marks[-1])
    for told in marks:
        renew(directory, 20.0, "ben", 9, mark=told)
    # What was decided, but never told, is nobody's to miss.
    assert [told.revision for told in marks] == sorted({told.revision for told in marks})


def test_no_member_can_stop_a_federation_by_what_it_makes_up() -> None:
    directory = begun()
    real = mark(directory)
    for changed in (
        {"revision": real.revision + 1},
        {"revision": 2**62},
        {"term": "f" * 32},
        {"seal": "0" * 32},
        {"seal": ""},
        {"seal": "\N{SNOWMAN}"},
    ):
        with pytest.raises(Refused, match="was not made by this federation's directory"):
            renew(directory, 2.0, "anna", 5, mark=replace(real, **changed))
    for changed in ({"ledger": ""}, {"term": "x" * (LONGEST_TEXT + 1)}, {"revision": 2**63}):
        with pytest.raises(Refused, match="a mark's"):
            renew(directory, 2.0, "anna", 5, mark=replace(real, **changed))
    assert not directory.stale
    assert renew(directory, 2.0, "ben", 5).through == 7


# -- listening --------------------------------------------------------------------------------


def test_a_directory_that_was_started_again_answers_nobody_before_it_has_heard_all() -> None:
    directory = begun()
    directory.leave(2.0, "cleo", "key of cleo")
    again = started_again(directory.state(), 50.0)
    before = again.state()
    for heard, name in ((1, "anna"), (1, "anna"), (2, "ben")):
        with pytest.raises(NotYet, match=f"{heard} of 3 members heard"):
            renew(again, 50.0, name, 5)
    with pytest.raises(NotYet, match="2 of 3"):  # another key, and a stranger, tell nothing
        again.renew(50.0, "cleo", "key of carl", round=5)
    with pytest.raises(NotYet, match="2 of 3"):
        join(again, 50.0, "dora")
    assert again.tick(59.9) is False
    assert {**again.state()} == before
    # Cleo has gone for good: who was heard has not been silent meanwhile.
    assert renew(again, 60.0, "anna", 5).through == 7


def test_who_was_heard_while_the_directory_listened_has_kept_its_lease() -> None:
    again = started_again(begun().state(), 50.0)
    for name in ("anna", "ben"):
        with pytest.raises(NotYet):
            renew(again, 55.0, name, 5)
    renew(again, 60.0, "anna", 5)
    assert [m.presence for m in again.describe(60.0).members] == ["here", "here", "away"]


def test_it_answers_at_once_when_all_have_been_heard() -> None:
    again = started_again(begun().state(), 50.0)
    for name in ("anna", "ben"):
        with pytest.raises(NotYet):
            join(again, 50.0, name)
    assert join(again, 50.0, "cleo").incarnation == 2
    assert join(again, 50.0, "anna").incarnation == 2  # being told to wait was no start


# -- marks ------------------------------------------------------------------------------------


def test_ledgers_and_terms_differ_and_the_identity_stays() -> None:
    first, second = founded(), founded(entropy="1" * 32)
    assert join(first, 0.0, "anna").standing.mark != join(second, 0.0, "anna").standing.mark
    later = restored(first, 1.0)
    assert mark(later).ledger == mark(first).ledger != mark(second).ledger
    assert mark(later).term != mark(first).term
    secret = first.state()["secret"]
    assert secret not in "".join((mark(first).ledger, mark(first).term, mark(first).seal))
    with pytest.raises(InvalidSetting, match="at least 32 random characters"):
        founded(entropy="short")
    with pytest.raises(InvalidSetting):
        History.restored(secret, [])


def test_of_two_marks_the_later_is_kept() -> None:
    early, late = Mark("l", "t", 1, "s"), Mark("l", "t", 2, "s")
    assert newest(None, early) == newest(early, None) == early
    assert newest(early, late) == newest(late, early) == late
    assert newest(Mark("l"), early) == early
