"""The directory machine: who may join, who is left out, and what a restart changes: nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eris.core.errors import ErisError, InvalidSetting
from eris.protocol.authority.directory import (
    KEPT_VIEWS,
    LAST_ROUND,
    Directory,
    Impostor,
    NotAMember,
    Refused,
)
from eris.protocol.view import NOBODY
from support.registry import CHARTER, TERMS, founded, join, newest, renew, restored, started_again


def reach(directory: Directory, now: float, round: int, *names: str) -> None:
    """Let members report round after round."""
    for reached in range(1, round + 1):
        for name in names:
            renew(directory, now, name, reached)


# -- views ------------------------------------------------------------------------------------


def test_a_federation_begins_when_enough_members_are_here() -> None:
    directory = founded()
    first = join(directory, 0.0, "anna")
    assert (first.number, first.abstain_through, first.standing.views) == (0, 0, ())
    assert renew(directory, 1.0, "anna", 1).through == 0  # there is nothing to publish yet
    second = join(directory, 2.0, "ben")
    assert second.number == 1
    assert newest(second.standing) == (1, 1, (0, 1), (0, 1, 0))
    assert second.standing.views[0].view.members == ("anna", "ben")
    assert second.standing.addresses == ("anna:7000", "ben:7000")
    # Members that are no longer here do not count, nor does one that has no data make a view.
    directory = founded()
    join(directory, 0.0, "anna")
    assert join(directory, 10.0, "ben").standing.views == ()
    directory = founded(start_with=1)
    assert join(directory, 0.0, "server", client=False).standing.views == ()
    assert newest(join(directory, 0.0, "anna", aggregator=False).standing) == (1, 1, (1,), (0,) * 3)


def test_a_silent_owner_is_replaced_from_the_first_round_no_permit_reaches() -> None:
    directory = founded()
    for name in ("anna", "ben"):
        join(directory, 0.0, name)
    reach(directory, 1.0, 4, "anna", "ben")
    assert renew(directory, 1.0, "anna", 5).through == 7
    assert renew(directory, 6.0, "ben", 4).through == 6
    assert directory.tick(10.9) is False
    assert directory.tick(11.0) is True
    assert directory.tick(11.0) is False
    standing = renew(directory, 12.0, "ben", 6)
    assert newest(standing) == (2, 8, (1,), (1, 1, 1))
    assert (standing.through, standing.round) == (8, 6)
    # The change shows in the very answer of whoever asks first, and so does the return.
    directory = founded()
    for name in ("anna", "ben"):
        join(directory, 0.0, name)
    renew(directory, 6.0, "ben", 1)
    assert newest(renew(directory, 11.0, "ben", 1))[:3] == (2, 4, (1,))
    assert newest(renew(directory, 12.0, "anna", 1)) == (3, 4, (0, 1), (0, 1, 0))


def test_permits_reach_further_for_an_owner_whose_rounds_are_short() -> None:
    directory = founded()
    for name in ("anna", "ben", "cleo", "dora"):
        join(directory, 0.0, name)
    found = []
    for round in (1, 2, 3, 6, 7, 12, 13):
        for name in 3 * ("cleo", "dora"):  # what one says alone is worth one round
            renew(directory, 1.0, name, round)
        found.append(renew(directory, 1.0, "anna", round).through - round)
    assert found == [2, 2, 2, 6, 5, 6, 5]
    # One that comes back after long has no pace yet.
    assert renew(directory, 1.0, "ben", 13).through == 15


def test_what_a_member_says_beyond_all_permits_is_not_believed() -> None:
    directory = founded()
    for name in ("anna", "ben", "cleo"):
        join(directory, 0.0, name)
    reach(directory, 1.0, 5, "anna", "ben", "cleo")
    for _ in range(100):  # nor if it goes on from permit to permit
        assert renew(directory, 1.0, "cleo", 10**9).through == 8
        assert renew(directory, 1.0, "cleo", directory.standing(2).through + 1).through == 8
    assert renew(directory, 1.0, "anna", 5).round == 6, "one word is worth one round"
    directory.leave(1.0, "cleo", "key of cleo")
    assert newest(directory.standing(0))[1] == 9
    assert renew(directory, 1.0, "anna", 6).through == 8


def test_a_view_that_no_permit_has_reached_gives_way_to_the_next() -> None:
    directory = founded()
    for name in ("anna", "ben"):
        join(directory, 0.0, name)
    assert [s.view.epoch for s in join(directory, 0.0, "cleo").standing.views] == [2]
    assert renew(directory, 1.0, "cleo", 1).through == 3
    for number, name in enumerate(("dora", "emil", "finn"), start=3):
        standing = join(directory, 1.0, name).standing
        assert newest(standing)[:2] == (number, 4)
    # However many there were, the one in force is not forgotten.
    for start in range(2 * KEPT_VIEWS):
        join(directory, 1.0, "finn", max_share=1.0, client=bool(start % 2))
    views = renew(directory, 1.0, "anna", 1).views
    assert [scheduled.from_round for scheduled in views] == [1, 4]
    assert views[0].view.epoch == 2


def test_only_members_with_a_role_are_given_permits() -> None:
    directory = founded()
    join(directory, 0.0, "anna")
    join(directory, 0.0, "ben", client=False, aggregator=False)
    assert renew(directory, 1.0, "ben", 50).through == 0
    assert renew(directory, 1.0, "anna", 1).through == 3
    assert newest(join(directory, 1.0, "cleo").standing)[1] == 4  # nothing of ben's 50
    # In the view to come anna has none any more, but it still has one for the rounds before.
    join(directory, 2.0, "anna", client=False, aggregator=False)
    assert newest(directory.standing(0)) == (3, 4, (2,), (2, 2, 2))
    assert renew(directory, 2.0, "anna", 2).through == 4
    assert renew(directory, 2.0, "anna", 4).through == 4


def test_members_that_leave_are_left_out_at_once() -> None:
    directory = founded()
    for name in ("anna", "ben", "cleo"):
        join(directory, 0.0, name)
    reach(directory, 0.0, 6, "anna", "ben", "cleo")
    renew(directory, 0.0, "cleo", 7)
    directory.leave(0.0, "cleo", "key of cleo")
    assert newest(directory.standing(0)) == (3, 10, (0, 1), (0, 1, 0))
    with pytest.raises(NotAMember, match="join first"):
        renew(directory, 0.0, "cleo", 7)
    # The last view stays when no client is left.
    directory.leave(0.0, "anna", "key of anna")
    directory.leave(0.0, "ben", "key of ben")
    assert newest(directory.standing(0)) == (4, 10, (1,), (1, 1, 1))
    assert directory.tick(100.0) is False


def test_a_shard_waits_rather_than_go_to_a_member_beyond_its_limit() -> None:
    directory = founded()
    for name in ("anna", "ben", "cleo"):
        join(directory, 0.0, name, max_share=1 / 3)
    directory.leave(0.0, "ben", "key of ben")
    assert newest(directory.standing(0))[3] == (0, NOBODY, 2)
    assert newest(join(directory, 0.0, "dora", max_share=0.4).standing)[3] == (0, 3, 2)


# -- who may join -----------------------------------------------------------------------------


def test_a_member_that_starts_again_is_told_up_to_where_it_may_have_published() -> None:
    directory = founded()
    for name in ("anna", "ben"):
        join(directory, 0.0, name)
    reach(directory, 1.0, 7, "anna", "ben")
    assert renew(directory, 1.0, "anna", 8).through == 10
    again = join(directory, 2.0, "anna")
    assert (again.number, again.abstain_through, again.standing.through) == (0, 10, 10)
    assert again.incarnation == 2
    reach(directory, 2.0, 9, "ben")
    assert renew(directory, 2.0, "anna", 9).through == 11
    # A start that was replaced is refused: two processes cannot share the permits of one member.
    with pytest.raises(Refused, match="another start of anna at anna:7000 has joined since"):
        directory.renew(2.0, "anna", "key of anna", round=9, incarnation=1)
    with pytest.raises(Refused, match="another start of anna"):
        directory.leave(2.0, "anna", "key of anna", incarnation=1)
    assert directory.renew(2.0, "anna", "key of anna", round=10, incarnation=2).through == 12


def test_a_member_moves_when_its_lease_has_run_out() -> None:
    directory = founded()
    for name in ("anna", "ben"):
        join(directory, 0.0, name)
    with pytest.raises(Refused, match=r"already a member at anna:7000, not far:1; .* in 8 s"):
        join(directory, 2.5, "anna", address="far:1")
    moved = join(directory, 10.0, "anna", address="far:1")
    assert moved.standing.addresses == ("far:1", "ben:7000")
    directory.leave(10.0, "anna", "key of anna")
    assert join(directory, 10.0, "anna").standing.addresses[0] == "anna:7000"


def test_a_name_belongs_to_its_key_until_the_member_leaves() -> None:
    directory = founded()
    join(directory, 0.0, "anna")
    for now in (1.0, 100.0):  # here, and away
        with pytest.raises(Impostor, match="the name anna belongs to another certificate"):
            join(directory, now, "anna", fingerprint="stolen")
    with pytest.raises(Impostor):
        directory.renew(1.0, "anna", "stolen", round=1)
    with pytest.raises(Impostor):
        directory.leave(1.0, "anna", "stolen")
    directory.leave(100.0, "anna", "key of anna")
    assert join(directory, 100.0, "anna", fingerprint="renewed").number == 0


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"charter": CHARTER.replace("44426", "61706")}, "has 61,706 parameters here, 44,426 in"),
        ({"charter": CHARTER + " "}, "anna has other settings: their texts are not the same"),
        ({"charter": "[" * 30_000}, "is not one that this version of eris can read"),
        ({"charter": "x" * 50_000}, "they have more than 49152 bytes"),
        ({"max_share": 0.0}, "max_share of anna is 0.0; expected a share in (0, 1]"),
        ({"max_share": 1.1}, "max_share"),
        ({"max_share": float("nan")}, "max_share of anna is nan"),
        ({"address": ""}, "address of anna is ''; expected host:port"),
        ({"address": "a" * 256}, "at most 255 characters"),
        ({"address": "a:1\n"}, "address of anna"),
        ({"fingerprint": ""}, "fingerprint of anna has 0 characters"),
        ({"fingerprint": "f" * 129}, "expected 1 to 128"),
    ],
)
def test_terms_nobody_may_join_on(changes: dict[str, Any], says: str) -> None:
    directory = founded()
    with pytest.raises(Refused) as refused:
        join(directory, 0.0, "anna", **changes)
    assert says in str(refused.value)
    assert len(str(refused.value)) < 500
    assert directory.state()["members"] == []
    assert join(directory, 0.0, "anna").number == 0


@pytest.mark.parametrize("name", ["", "-a", "a-", "Anna", "a.b", "a" * 64, "a\n", "ä"])
def test_names_that_no_member_may_have(name: str) -> None:
    with pytest.raises(Refused, match="expected 1 to 63 of a-z"):
        join(founded(), 0.0, name, fingerprint="f", address="a:1")


def test_limits() -> None:
    directory = founded()
    with pytest.raises(NotAMember):
        renew(directory, 0.0, "anna", 1)
    join(directory, 0.0, "anna")
    for round in (-1, LAST_ROUND + 1):
        with pytest.raises(Refused, match="expected 0 to 2147483648"):
            renew(directory, 0.0, "anna", round)
    state = directory.state()
    (anna,) = state["members"]
    state["members"] = [{**anna, "name": f"m{number}"} for number in range(10_000)]
    full = started_again(state, 0.0)
    full.tick(10.0)  # it has listened long enough
    with pytest.raises(Refused, match="10000 members and takes no more"):
        join(full, 10.0, "one-more")
    wrong: dict[str, Any]
    for wrong in ({"sizes": [0]}, {"start_with": 0}, {"lease": 0.0},
                  {"lease": float("inf")}, {"lookahead": 0}):  # fmt: skip
        with pytest.raises(InvalidSetting):
            founded(**wrong)
    with pytest.raises(InvalidSetting, match="charter"):
        Directory("x" * 50_000, **TERMS)


# -- over a restart ---------------------------------------------------------------------------


def test_nobody_is_left_out_because_the_directory_was_away() -> None:
    directory = founded()
    for name in ("anna", "ben", "cleo"):
        join(directory, 0.0, name)
    reach(directory, 9.0, 3, "cleo", "anna")
    directory.leave(9.0, "cleo", "key of cleo", published=3)
    again = restored(directory, 5_000.0)
    for number in range(3):
        before, after = (one.standing(number) for one in (directory, again))
        assert replace(after, mark=None) == replace(before, mark=None)
    for kept in ("charter", "secret", "members", "views"):
        assert again.state()[kept] == directory.state()[kept]
    assert again.tick(5_009.0) is False  # cleo had left and still has; anna and ben are here
    assert again.tick(5_010.0) is False  # no client is left, so the view stays as it is
    assert join(again, 5_010.0, "anna").abstain_through == 5
    assert newest(again.standing(0)) == (4, 6, (0,), (0, 0, 0))


def test_a_state_of_another_federation_or_of_none_is_refused() -> None:
    directory = founded()
    join(directory, 0.0, "anna")
    other = CHARTER.replace('"seed": 1', '"seed": 2')
    with pytest.raises(
        ErisError, match=r"begun with other settings: federation.seed is 2 here, 1 in the fed"
    ):
        restored(directory, 0.0, charter=other)
    state = directory.state()
    for broken in (
        {},
        {**state, "members": [{"name": "anna"}]},
        {**state, "members": [{**state["members"][0], "extra": 1}]},
        {**state, "views": [{"epoch": 1}]},
        {**state, "views": [{"epoch": 1, "from_round": 1, "members": 1, "clients": [4],
                             "owners": [0, 0, 0]}]},
    ):  # fmt: skip
        with pytest.raises(ErisError, match="makes no sense"):
            Directory.restore(broken, 0.0, charter=CHARTER, **TERMS)


def test_a_view_has_at_most_the_agreed_clients_and_who_joins_later_takes_a_free_place() -> None:
    directory = founded(start_with=2, most_clients=2)
    for name in ("anna", "ben", "cleo"):
        join(directory, 0.0, name)
    view = directory.standing(0).views[-1].view
    assert (view.members, view.clients) == (("anna", "ben", "cleo"), (0, 1))
    assert 2 in view.owners, "it may own a shard all the same"
    directory.leave(1.0, "ben", "key of ben")
    assert directory.standing(0).views[-1].view.clients == (0, 2)
    again = restored(directory, 2.0, start_with=2, most_clients=2)
    join(again, 3.0, "ben")
    assert again.standing(0).views[-1].view.clients == (0, 1)


def test_one_server_aggregates_and_nobody_takes_over_from_it() -> None:
    directory = founded(central=True, sizes=[12], start_with=3)
    for name in ("anna", "ben"):
        join(directory, 0.0, name, aggregator=False)
    assert not join(directory, 0.0, "cleo", aggregator=False).standing.views, "nobody to aggregate"
    with pytest.raises(Refused, match=r"dora may not aggregate: the one .* has no data"):
        join(directory, 0.0, "dora")  # a client that is the first to say that it is the server
    begun = join(directory, 0.0, "hub", client=False).standing.views
    assert [one.view.owners for one in begun] == [(3,)]
    with pytest.raises(Refused, match="dora may not aggregate: hub is the one aggregation server"):
        join(directory, 0.0, "dora")
    with pytest.raises(Refused, match="anna may not aggregate: hub is the one aggregation server"):
        join(directory, 0.0, "anna")
    for name in ("anna", "ben", "cleo"):
        renew(directory, 9.0, name, 1)
    directory.tick(12.0)
    assert directory.describe(12.0).members[3].presence == "away"
    assert directory.standing(0).views == begun, "no view without the server: it would cost rounds"
    directory.leave(13.0, "cleo", "key of cleo")
    assert directory.standing(0).views == begun
    with pytest.raises(Refused, match="dora may not aggregate"):
        join(directory, 14.0, "dora", client=False)
    back = join(directory, 15.0, "hub", client=False).standing.views
    assert (back[-1].view.owners, back[-1].view.clients) == ((3,), (0, 1))
    directory.leave(16.0, "hub", "key of hub")
    heir = join(directory, 17.0, "dora", client=False).standing.views[-1].view
    assert heir.owners == (4,), "one that has left for good may have a successor"
