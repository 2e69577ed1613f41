"""A node's keys: its own over time, and which of the others' it believes."""

from __future__ import annotations

import ctypes
import logging
import os
import resource
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from eris.core.errors import ErisError
from eris.core.shards import RandomPlan
from eris.protocol.authority.standing import Scheduled, Standing
from eris.protocol.schemes import EncryptedClusters
from eris.protocol.secure.certified import KeyStatement
from eris.protocol.secure.terms import REKEY_EVERY, SecureSums
from eris.protocol.settings import Settings
from eris.protocol.view import NOBODY, Seating, View
from eris.runtimes.grpc.keys import STARTS, NodeKeys, keep_memory_off_disk
from eris.runtimes.grpc.tls import Identity, create_authority, issue

NAMES = ("anna", "ben", "cleo", "dora")
SETTINGS = Settings(n=24, plan=RandomPlan(1), min_included=4, secure=SecureSums.parse("2 of 3"))


@pytest.fixture(scope="module")
def identities(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Identity]:
    folder = tmp_path_factory.mktemp("ca")
    create_authority(folder / "ours", "test")
    create_authority(folder / "theirs", "test")
    known = {name: issue(folder / "ours", name).identity for name in NAMES}
    known["same party"] = issue(folder / "ours", "emil", party="anna").identity
    return known | {"stranger": issue(folder / "theirs", "ben").identity}


def keys(identity: Identity, folder: Path, **changes: object) -> NodeKeys:
    folder.mkdir(exist_ok=True)
    return NodeKeys(identity, SETTINGS, folder, **changes)  # type: ignore[arg-type]


def standing(*views: tuple[int, int, tuple[KeyStatement | None, ...]]) -> Standing:
    """What a directory says: (epoch, first round, statements) of views with one shard, anna's."""
    made = tuple(
        Scheduled(
            View(NAMES, (0, 1, 2, 3), (0,), None, epoch, Seating(((1, 2, 3),), statements)), first
        )
        for epoch, first, statements in views
    )
    return Standing(0, made, NAMES, 9, 0)


def believed(found: Standing, view: int = -1) -> tuple[KeyStatement | None, ...]:
    seating = found.views[view].view.seating
    assert seating is not None
    return seating.statements


class Others:
    """Anna, who checks, and the others' statements."""

    def __init__(self, identities: dict[str, Identity], folder: Path) -> None:
        self.identities, self.folder = identities, folder
        self.anna = keys(identities["anna"], folder / "anna")
        nodes = [keys(identities[name], folder / name) for name in NAMES[1:]]
        self.statements = (self.anna.statement, *(node.statement for node in nodes))

    def told(self, ben: KeyStatement | None, epoch: int = 1) -> Standing:
        own, _, *rest = self.statements
        return standing((epoch, 1, (own, ben, *rest)))


@pytest.fixture
def others(identities: dict[str, Identity], tmp_path: Path) -> Others:
    return Others(identities, tmp_path)


# -- whom it believes -------------------------------------------------------------------------


def test_keys_that_are_a_members_own_are_believed(others: Others) -> None:
    told = standing((1, 1, others.statements))
    assert others.anna.checked(told) == told
    assert others.anna.refused == 0


FALSE: list[tuple[Callable[[Others], KeyStatement], str]] = [
    (lambda o: keys(o.identities["stranger"], o.folder / "x").statement, "another authority"),
    (lambda o: replace(keys(o.identities["cleo"], o.folder / "x").statement, name="ben"),
     "the certificate of another member"),
    (lambda o: replace(o.statements[1], start=o.statements[1].start + 1), "not signed by"),
    (lambda o: replace(o.statements[1], keys=o.statements[2].keys), "not signed by"),
]  # fmt: skip


@pytest.mark.parametrize(("false", "why"), FALSE)
def test_others_are_left_out_counted_and_named_once(
    others: Others, false: Callable[[Others], KeyStatement], why: str,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    caplog.set_level(logging.WARNING, "eris.node")
    for epoch in (1, 2):
        found = believed(others.anna.checked(others.told(false(others), epoch)))
        assert found[1] is None
        assert found[0] == others.statements[0]
        assert found[2:] == others.statements[2:]
    assert others.anna.refused == 2
    refused = [record for record in caplog.records if record.getMessage() == "keys refused"]
    assert len(refused) == 1
    assert refused[0].fields["member"] == "ben"  # type: ignore[attr-defined]
    assert why in refused[0].fields["reason"]  # type: ignore[attr-defined]
    withheld = [record for record in caplog.records if record.getMessage() == "shard withheld"]
    assert len(withheld) == 1
    assert "keys are not known" in withheld[0].fields["why"]  # type: ignore[attr-defined]


def test_an_old_statement_does_not_come_back_also_after_a_restart(others: Others) -> None:
    old = others.statements[1]
    new = keys(others.identities["ben"], others.folder / "ben").statement
    assert new.start > old.start
    both = standing((1, 1, others.statements),
                    (2, 5, (others.statements[0], new, *others.statements[2:])))  # fmt: skip
    found = others.anna.checked(both)
    assert (believed(found, 0)[1], believed(found)[1]) == (old, new)
    assert believed(others.anna.checked(both), 0)[1] == old, "what was believed of its view stays"
    assert believed(others.anna.checked(others.told(old, 3)))[1] is None
    again = keys(others.identities["anna"], others.folder / "anna")
    assert believed(again.checked(others.told(old, 4)))[1] is None
    assert believed(again.checked(others.told(new, 5)))[1] == new


def test_seats_that_break_the_rule_are_told(
    others: Others, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "eris.node")
    friend = keys(others.identities["same party"], others.folder / "emil").statement
    names = ("anna", "emil", "cleo", "dora")
    seating = Seating(((1, 2, 3),), (others.statements[0], friend, *others.statements[2:]))
    view = View(names, (0, 1, 2, 3), (0,), None, 1, seating)
    others.anna.checked(Standing(0, (Scheduled(view, 1),), names, 9, 0))
    few = replace(view, epoch=2, seating=Seating(((NOBODY, 2, NOBODY),), others.statements),
                  members=NAMES)  # fmt: skip
    others.anna.checked(Standing(0, (Scheduled(few, 1),), NAMES, 9, 0))
    told = [record.fields["why"] for record in caplog.records]  # type: ignore[attr-defined]
    assert told == [
        "owner and helpers are not of different parties",
        "1 of its seats are held by members whose keys are known; 2 needed",
    ]
    with pytest.raises(ErisError, match="views without seats"):
        others.anna.checked(Standing(0, (Scheduled(replace(few, seating=None), 1),), NAMES, 9, 0))


# -- its own ----------------------------------------------------------------------------------


def test_starts_grow_whatever_the_clock_does(
    identities: dict[str, Identity], tmp_path: Path
) -> None:
    first = keys(identities["anna"], tmp_path, clock=lambda: 1000)
    assert first.statement.start == 1000
    first.state_after(5000)
    assert first.statement.start == 5001
    assert first.statement.keys == first.vault.newest.public
    first.checked(standing((1, 1, (None,) * 4)))
    assert keys(identities["anna"], tmp_path, clock=lambda: 900).statement.start == 5002
    (tmp_path / STARTS).write_text("{", encoding="utf-8")
    with pytest.raises(ErisError, match=r"starts\.json is damaged .*; remove it"):
        keys(identities["anna"], tmp_path)


def test_keys_are_renewed_together_and_old_ones_erased_when_a_round_with_new_ones_is_over(
    others: Others,
) -> None:
    anna, rest = others.anna, others.statements[1:]
    first, old = anna.statement, anna.vault.newest.public
    assert anna.untold == first
    assert anna.from_round is None
    anna.checked(standing((1, 1, (first, *rest))))
    assert anna.untold is None
    assert anna.from_round == 1
    for round in range(3, REKEY_EVERY):
        anna.enter(round)
    assert anna.statement == first
    anna.enter(REKEY_EVERY + 1)  # it has skipped one: this is its first after it
    second = anna.statement
    assert second.start > first.start
    assert second.keys == anna.vault.newest.public != old
    assert (anna.untold, anna.from_round) == (second, None)
    anna.enter(REKEY_EVERY + 2)
    assert anna.statement == second, "once"
    views = standing((1, 1, (first, *rest)), (2, 24, (second, *rest)))
    anna.checked(views)
    for round in (22, 23, 24):
        anna.enter(round)
        assert anna.vault.of(old) is not None, "rounds of the old view are open"
    anna.enter(25)
    assert anna.vault.of(old) is None
    assert anna.vault.of(second.keys) is not None
    anna.close()
    assert anna.vault.of(second.keys) is None


def test_keys_that_no_view_has_yet_are_not_followed_by_others(others: Others) -> None:
    others.anna.enter(1)
    before = others.anna.statement
    others.anna.enter(10 * REKEY_EVERY)
    assert others.anna.statement == before


# -- memory -----------------------------------------------------------------------------------

PR_GET_DUMPABLE = 3


def test_a_crash_leaves_no_memory_on_the_disk() -> None:
    read, write = os.pipe()
    if (child := os.fork()) == 0:  # what it does to itself no process can take back
        problem = keep_memory_off_disk()
        limits = resource.getrlimit(resource.RLIMIT_CORE)
        dumpable = ctypes.CDLL(None).prctl(PR_GET_DUMPABLE, 0, 0, 0, 0)
        os.write(write, repr((problem, limits, dumpable)).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as told:
        assert told.read() == repr(("", (0, 0), 0))
    os.waitpid(child, 0)


def test_members_with_encrypted_sums_have_keys_and_no_seats(
    identities: dict[str, Identity], tmp_path: Path
) -> None:
    """They are drawn, stated, believed and renewed as for secure sums."""
    terms = EncryptedClusters(average="plain", clusters=2)
    agreed = Settings(n=100, scheme=terms, name="ours")
    nodes = []
    for name in NAMES:
        (tmp_path / name).mkdir()
        nodes.append(NodeKeys(identities[name], agreed, tmp_path / name))
    stated = tuple(node.statement for node in nodes)
    view = View(NAMES, (0, 1, 2, 3), (0,), None, 1, Seating(((),), stated))
    told = Standing(0, (Scheduled(view, 1),), NAMES, 9, 0)
    assert believed(nodes[0].checked(told)) == stated
    assert nodes[0].untold is None
    before = nodes[0].vault.newest
    nodes[0].enter(1)
    nodes[0].enter(REKEY_EVERY)
    assert nodes[0].vault.newest is not before
    assert nodes[0].untold is not None
    forged = replace(stated[1], signature=stated[2].signature)
    wrong = replace(view, epoch=2, seating=Seating(((),), (stated[0], forged, *stated[2:])))
    told = Standing(0, (Scheduled(wrong, 1),), NAMES, 9, 0)
    assert believed(nodes[0].checked(told))[1] is None
