"""A member answers one statement a segment and round, and none that speaks against its privacy.

Bugs that are put in on purpose give the owner one client's centroids; without them it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from eris.core.errors import ErisError
from eris.protocol.enccluster.answering import Answerer, RefusedReveal, RevealKey, RevealView
from eris.protocol.enccluster.group import ORDER
from eris.protocol.enccluster.labels import UnusableFresh
from eris.protocol.enccluster.opening import NoLogarithm, open_fully
from eris.protocol.enccluster.sets import SetLaw, SetMember, SetStatement
from eris.protocol.enccluster.shares import KeyShare, ShareDesk
from support.enccluster import (
    LABEL,
    REACH,
    Contributor,
    known_bytes,
    member_keys,
    plain_sums,
    random_clients,
    statement_of,
    table,
)

OWNER = member_keys(100)
ALL = random_clients(8)
"""Clients 1 to 8."""


def view_of(
    parts: Sequence[Contributor] = ALL,
    *,
    colluders: int = 2,
    min_included: int = 1,
    weights: Mapping[int, int] | None = None,
) -> RevealView:
    eligible = {one.number: one.keys.public.exchange for one in parts}
    law = SetLaw(len(parts), colluders, owner_trains=False, min_included=min_included)
    return RevealView(OWNER.public, eligible, law, weights)


@dataclass
class Seated:
    """A client that contributed and waits, with its journal."""

    part: Contributor
    written: list[tuple[RevealKey, KeyShare]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.answerer = Answerer(
            self.part.number, lambda key, share: self.written.append((key, share))
        )
        self.scalars = self.part.scalars()
        self.answerer.contributed(self.part.digest, [self.part.label], [self.scalars])

    def asked(self, statement: SetStatement, view: RevealView | None = None) -> KeyShare:
        signature = statement.signed_by(OWNER)
        return self.answerer.answer(statement, signature, view or view_of(), self.part.keys)


def test_an_honest_statement_is_answered_and_opens() -> None:
    statement, desk = statement_of(ALL), ShareDesk(statement_of(ALL))
    for part in ALL:
        desk.take(part.number, Seated(part).asked(statement))
    opened = open_fully([one.book() for one in ALL], desk.key()[0], LABEL, table(), REACH)
    assert opened.tolist() == plain_sums(ALL)


def test_it_is_written_down_before_it_leaves_and_the_scalar_is_forgotten() -> None:
    one = Seated(ALL[0])
    share = one.asked(statement_of(ALL))
    assert one.written == [(RevealKey.of(LABEL), share)]
    with pytest.raises(UnusableFresh, match="forgotten"):
        one.scalars.values()


def test_the_same_statement_again_gets_the_same_share_and_any_other_none() -> None:
    one = Seated(ALL[0])
    share = one.asked(statement_of(ALL))
    assert one.asked(statement_of(ALL)) == share
    assert len(one.written) == 1
    with pytest.raises(RefusedReveal, match=r"was answered under statement .* under no other"):
        one.asked(statement_of(ALL[:7]))
    # After a start the journal is all there is: the same, or nothing.
    again = Answerer(1, lambda *_: pytest.fail("written twice"), dict(one.written))
    signed = statement_of(ALL).signed_by(OWNER)
    assert again.answer(statement_of(ALL), signed, view_of(), ALL[0].keys) == share
    other = statement_of(ALL[:7])
    with pytest.raises(RefusedReveal, match="was answered under statement"):
        again.answer(other, other.signed_by(OWNER), view_of(), ALL[0].keys)
    with pytest.raises(RefusedReveal, match="is not signed"):
        again.answer(statement_of(ALL), signed[::-1], view_of(), ALL[0].keys)


def test_without_keys_or_a_permit_it_says_again_what_is_written_and_nothing_new() -> None:
    one, statement = Seated(ALL[0]), statement_of(ALL)
    signed = statement.signed_by(OWNER)
    with pytest.raises(RefusedReveal, match=r"other keys than .* or no permit"):
        one.answerer.answer(statement, signed, view_of(), None)
    share = one.asked(statement)
    assert one.answerer.answer(statement, signed, view_of(), None) == share
    assert len(one.written) == 1


def test_what_is_remembered_is_bounded_and_what_is_forgotten_is_never_answered_again() -> None:
    one, statement = Seated(ALL[0]), statement_of(ALL)
    one.asked(statement)
    one.answerer.forget(LABEL.round + 1)
    assert not one.answerer.answered
    assert not one.answerer._waiting
    for asked in (statement, statement_of(ALL[:7])):
        with pytest.raises(RefusedReveal, match="no contribution under that label"):
            one.asked(asked)
    with pytest.raises(RefusedReveal, match="is over; contributed is from"):
        one.answerer.contributed(one.part.digest, [LABEL], [one.part.scalars()])
    assert len(one.written) == 1


def test_what_could_not_be_written_does_not_leave_and_nothing_takes_its_place() -> None:
    full = [True]
    written: list[KeyShare] = []

    def persist(key: RevealKey, share: KeyShare) -> None:
        if full[0]:
            raise OSError("no space")
        written.append(share)

    answerer, scalars = Answerer(1, persist), ALL[0].scalars()
    answerer.contributed(ALL[0].digest, [LABEL], [scalars])
    statement, other = statement_of(ALL), statement_of(ALL[:7])
    for _ in range(2):
        with pytest.raises(OSError, match="no space"):
            answerer.answer(statement, statement.signed_by(OWNER), view_of(), ALL[0].keys)
    with pytest.raises(RefusedReveal, match="was answered under"):
        answerer.answer(other, other.signed_by(OWNER), view_of(), ALL[0].keys)
    full[0] = False
    share = answerer.answer(statement, statement.signed_by(OWNER), view_of(), ALL[0].keys)
    assert written == [share] == [ALL[0].share(statement)]
    with pytest.raises(UnusableFresh):
        scalars.values()


def test_a_result_ends_the_waiting() -> None:
    one = Seated(ALL[0])
    one.answerer.resolved(LABEL)
    one.answerer.resolved(LABEL)
    with pytest.raises(RefusedReveal, match="no contribution under that label"):
        one.asked(statement_of(ALL))
    with pytest.raises(UnusableFresh):
        one.scalars.values()


def test_a_start_in_between_cannot_answer() -> None:
    statement = statement_of(ALL)
    with pytest.raises(RefusedReveal, match="no contribution under that label"):
        Answerer(1, lambda *_: None).answer(
            statement, statement.signed_by(OWNER), view_of(), ALL[0].keys
        )


def test_one_contribution_a_segment_and_round_whatever_the_epoch() -> None:
    one = Seated(ALL[0])
    moved = replace(ALL[0], label=replace(LABEL, epoch=LABEL.epoch + 1))
    for label in (LABEL, moved.label):
        with pytest.raises(RefusedReveal, match="has a contribution of this member"):
            one.answerer.contributed(moved.digest, [label], [moved.scalars()])
    # A takeover's statement is under a label of which there is no contribution.
    parts = [replace(part, label=moved.label) for part in ALL]
    with pytest.raises(RefusedReveal, match="no contribution under that label"):
        one.asked(statement_of(parts))
    share = one.asked(statement_of(ALL))
    with pytest.raises(RefusedReveal):
        one.answerer.contributed(moved.digest, [moved.label], [moved.scalars()])
    with pytest.raises(RefusedReveal):
        one.asked(statement_of(parts))
    assert one.asked(statement_of(ALL)) == share


Change = Callable[[SetStatement], SetStatement]


def changed(at: int, **fields: object) -> Change:
    """A statement with one member's line changed; ``at`` counts from 0."""

    def change(statement: SetStatement) -> SetStatement:
        members = list(statement.members)
        members[at] = replace(members[at], **fields)  # type: ignore[arg-type]
        return replace(statement, members=tuple(members))

    return change


def cut(*places: int) -> Change:
    def change(statement: SetStatement) -> SetStatement:
        return replace(statement, members=tuple(statement.members[at] for at in places))

    return change


STRANGER = SetMember(50, 1, bytes(32), bytes(32))
REFUSED: list[tuple[str, Change, str]] = [
    ("label", lambda s: replace(s, label=replace(LABEL, segment=6)), "no contribution under"),
    ("order", cut(1, 0, 2, 3, 4, 5, 6, 7), "do not strictly ascend"),
    ("twice", cut(0, 0, 1, 2, 3, 4, 5, 6), "do not strictly ascend"),
    ("stranger", lambda s: replace(s, members=(*s.members, STRANGER)), "member 50 is not an elig"),
    ("key", changed(4, exchange=known_bytes("k")), "member 5 has another key in the view"),
    ("without me", cut(1, 2, 3, 4, 5, 6, 7), "this member is not in the set"),
    ("digest", changed(0, contribution=known_bytes("old")), "names another contribution"),
    ("own weight", changed(0, weight=2), "this member's weight is 1, not 2"),
    ("weight", changed(3, weight=2), "member 4 has weight 2; agreed is 1"),
    ("no weight", changed(3, weight=0), "member 4 has weight 0; agreed is 1"),
    ("law", cut(0, 1, 2, 3, 4), "the set has 5 members; the law of the set asks for 6 of 8"),
]


@pytest.mark.parametrize(
    ("change", "reason"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED]
)
def test_everything_that_speaks_against_a_statement_is_named(change: Change, reason: str) -> None:
    one = Seated(ALL[0])
    with pytest.raises(RefusedReveal, match=reason):
        one.asked(change(statement_of(ALL)))
    assert one.written == []
    one.asked(statement_of(ALL))  # a refusal has cost nothing


def test_checks_come_in_the_order_of_the_protocol() -> None:
    """With all faults at once, the first is named; mended one by one, the next."""
    statement = statement_of(ALL)
    broken = [*REFUSED[1:2], *REFUSED[4:5], *REFUSED[6:10], REFUSED[10]]
    one = Seated(ALL[0])
    for first in range(len(broken)):
        asked = statement
        # Order is changed last, and members cut after their lines were changed.
        for _, change, _ in broken[first:][::-1]:
            if change is REFUSED[1][1] and len(asked.members) < 8:
                members = (asked.members[1], asked.members[0], *asked.members[2:])
                asked = replace(asked, members=members)
            else:
                asked = change(asked)
        with pytest.raises(RefusedReveal, match=broken[first][2]):
            one.asked(asked)
        with pytest.raises(RefusedReveal, match="not signed by the shard's owner"):
            one.answerer.answer(asked, asked.signed_by(member_keys(101)), view_of(), ALL[0].keys)


def test_keys_that_this_member_does_not_have_any_more() -> None:
    one, statement = Seated(ALL[0]), statement_of(ALL)
    with pytest.raises(RefusedReveal, match="a key that this member does not have any more"):
        one.answerer.answer(statement, statement.signed_by(OWNER), view_of(), member_keys(9))


def test_agreed_integer_weights() -> None:
    parts = [replace(part, weight=1 + part.number % 3) for part in ALL]
    weights = {part.number: part.weight for part in parts}
    view = view_of(parts, weights=weights)
    statement, desk = statement_of(parts), ShareDesk(statement_of(parts))
    for part in parts:
        desk.take(part.number, Seated(part).asked(statement, view))
    opened = open_fully([one.book() for one in parts], desk.key()[0], LABEL, table(), REACH)
    assert opened.tolist() == plain_sums(parts)
    with pytest.raises(RefusedReveal, match="this member's weight is 2, not 1"):
        Seated(parts[0]).asked(statement_of(ALL), view)


def test_a_view_and_its_law_are_of_the_same_clients() -> None:
    with pytest.raises(RefusedReveal, match="of 7 eligible clients; the view has 8"):
        replace(view_of(), law=SetLaw(7))


# -- bugs that are put in on purpose ----------------------------------------------------------

V, W, C1, C2 = ALL[0], ALL[1], ALL[2], ALL[3]
"""A victim, another honest client, and two that are on the owner's side."""


def read(victims: Sequence[Contributor], key: int) -> list[int] | None:
    """What the owner reads of victims, by all of their centroids in turn."""
    size = len(victims[0].messages)
    every = np.arange(size, dtype=np.uint32)
    rows = [replace(one.book(), mapping=every) for one in victims]
    try:
        return list(open_fully(rows, [key], LABEL, table(), REACH))
    except NoLogarithm:
        return None


def colluders_part(statement: SetStatement, colluders: Sequence[Contributor]) -> int:
    """What colluders' shares add to the key but their own scalars: they know both."""
    shares = [int.from_bytes(one.share(statement).data, "big") for one in colluders]
    own = [one.scalars().values()[0] for one in colluders]
    return (sum(shares) - sum(own)) % ORDER


def isolate(patch: Callable[[], object]) -> list[int] | None:
    """The owner announces the victim and its own two, and takes these off."""
    patch()
    statement = statement_of([V, C1, C2])
    share = int.from_bytes(Seated(V).asked(statement).data, "big")
    return read([V], (share + colluders_part(statement, [C1, C2])) % ORDER)


def reveal_twice(patch: Callable[[], object]) -> list[int] | None:
    """Two sets that differ by the victim: their keys subtract to the victim's own."""
    patch()
    seats = {part.number: Seated(part) for part in ALL}
    keys = []
    for parts in (ALL, ALL[1:]):
        statement = statement_of(parts)
        shares = [seats[part.number].asked(statement) for part in parts]
        keys.append(sum(int.from_bytes(one.data, "big") for one in shares))
    return read([V], (keys[0] - keys[1]) % ORDER)


def weigh_nothing(patch: Callable[[], object]) -> list[int] | None:
    """Honest members with y = 0 are counted and not in the key."""
    patch()
    honest = [one for one in ALL if one not in (C1, C2)]
    weights = {one.number: int(one in (V, C1, C2)) for one in ALL}
    parts = [replace(one, weight=weights[one.number]) for one in ALL]
    view, statement = view_of(weights=weights), statement_of(parts)
    shares = [int.from_bytes(Seated(one).asked(statement, view).data, "big") for one in honest]
    return read([V], (sum(shares) + colluders_part(statement, [C1, C2])) % ORDER)


def swap(patch: Callable[[], object]) -> list[int] | None:
    """The owner names an older contribution of the victim's, and gets the key of the newest."""
    patch()
    statement = changed(0, contribution=known_bytes("older"))(statement_of(ALL))
    shares = [Seated(one).asked(statement) for one in ALL]
    key = sum(int.from_bytes(one.data, "big") for one in shares) % ORDER
    return list(open_fully([one.book() for one in ALL], [key], LABEL, table(), REACH))


Reading = Callable[[Callable[[], object]], list[int] | None]
BUGS: dict[str, tuple[Reading, tuple[str, ...], str, list[int]]] = {
    "below the law": (isolate, ("_check_law",), "the law of the set asks for 6", list(V.messages)),
    "revealed twice": (
        reveal_twice, ("_check_once", "_forget"), "under no other", list(V.messages),
    ),
    "a weight of 0": (
        weigh_nothing, ("_check_weights",), "has weight 0", list(V.messages),
    ),
    "digest not checked": (swap, ("_check_digest",), "another contribution", plain_sums(ALL)),
}  # fmt: skip


@pytest.mark.parametrize("bug", BUGS)
def test_a_seeded_bug_gives_the_owner_what_is_refused_without_it(
    bug: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    attack, checks, refusal, gain = BUGS[bug]
    with pytest.raises(ErisError, match=refusal):
        attack(lambda: None)

    def seed() -> None:
        for check in checks:
            monkeypatch.setattr(Answerer, check, lambda *_: None)

    assert attack(seed) == gain


def test_pairs_that_partition_the_clients_are_refused_by_the_majority_alone() -> None:
    """{v, w, c1, c2} has two honest members, but four such sets would open side by side."""
    statement = statement_of([V, W, C1, C2])
    view = view_of()
    assert len(statement.members) == view.law.adversaries + 2
    with pytest.raises(RefusedReveal, match="the set has 4 members; the law of the set asks for 6"):
        Seated(V).asked(statement, view)
