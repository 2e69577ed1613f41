"""What keeps a forgetful directory from harm, taken out piece by piece, is missed by some world.

Each says which law catches it. A world with all pieces passes (``test_world.py``).
"""

from __future__ import annotations

from typing import Any

import pytest

from eris.protocol.authority.directory import Directory, OldCopy
from eris.protocol.authority.history import Mark
from eris.testing.places import Host
from eris.testing.shape import Shape
from eris.testing.weather import Incident, Trouble
from support.bugs import catch

FORGOTTEN = (
    "has two results|has two views|but the round belongs to|has two states|no progress|"
    "but has published in round|to which no result has led|contributed two contents"
)
"""What a federation comes to in which two directories have decided."""


class Credulous(Directory):
    """Does not look at what members have seen of its ledger."""

    def _admit(self, now: float, name: str, fingerprint: str, mark: Mark | None) -> None:
        super()._admit(now, name, fingerprint, None)


@pytest.mark.parametrize("trouble", [Trouble.LOST, Trouble.ROLLBACK, Trouble.STALE])
def test_a_directory_that_does_not_compare(
    monkeypatch: pytest.MonkeyPatch, trouble: Trouble
) -> None:
    """Caught by: one result a segment and round, one view an epoch, one state a version."""
    shape = Shape(rounds=30)
    catch(monkeypatch, FORGOTTEN, trouble, Trouble.CRASH, most=30, shape=shape, directory=Credulous)


class Weary(Directory):
    """Refuses a member of another ledger once, and takes it in when it comes again."""

    def __init__(self, *terms: Any, **options: Any) -> None:
        super().__init__(*terms, **options)
        self.seen: set[str] = set()

    def _admit(self, now: float, name: str, fingerprint: str, mark: Mark | None) -> None:
        again = name in self.seen
        self.seen.add(name)
        super()._admit(now, name, fingerprint, None if again else mark)


def test_a_directory_that_refuses_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caught by: one result a segment and round, one view an epoch."""
    shape = Shape(rounds=30)
    catch(monkeypatch, FORGOTTEN, Trouble.LOST, most=20, shape=shape, directory=Weary)


class Indulgent(Directory):
    """Refuses who knows more than its ledger, and goes on to serve the others."""

    def _admit(self, now: float, name: str, fingerprint: str, mark: Mark | None) -> None:
        try:
            super()._admit(now, name, fingerprint, mark)
        except OldCopy:
            self.stale = ""
            raise


def test_an_older_ledger_that_goes_on_to_serve_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caught by: those that are connected make progress; the one that knows more never does."""
    kinds = (Trouble.ROLLBACK, Trouble.PARTITION, Trouble.CRASH)
    catch(monkeypatch, FORGOTTEN, *kinds, most=30, shape=Shape(rounds=30), directory=Indulgent)


class Rash(Directory):
    """Answers at once when it has been started again, before it has heard all."""

    def _listening(self, now: float) -> bool:
        return False


def test_a_directory_that_does_not_listen_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caught by: with the newest ledger in its place again, those that are connected go on."""
    # Three members have not heard of what the copy lacks, and two of them have.
    away = Incident(Trouble.PARTITION, 4.0, 5.9, frozenset({2, 3, 4}))
    forgets = Incident(Trouble.ROLLBACK, 6.0, 12.0, frozenset())
    world = {"shape": Shape(rounds=30), "incidents": [away, forgets], "directory": Rash}
    catch(monkeypatch, FORGOTTEN, Trouble.SKEW, most=30, **world)


def test_a_member_that_does_not_keep_what_it_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caught by: one result a segment and round, one view an epoch."""
    stop = Host.stop

    def stop_and_forget(self: Host[Any]) -> None:
        stop(self)
        self.mark = None

    monkeypatch.setattr(Host, "stop", stop_and_forget)
    kinds = (Trouble.ROLLBACK, Trouble.CRASH)
    catch(monkeypatch, FORGOTTEN, *kinds, most=30, shape=Shape(rounds=30))


class Forgiving(Directory):
    """Takes a call of an earlier start of a member for one of the last."""

    def _known(self, name: str, fingerprint: str, incarnation: int | None) -> int:
        return super()._known(name, fingerprint, None)


def test_a_late_call_that_counts_as_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caught by: a result is of its round's epoch: a late goodbye gives back what is in use."""
    # One owner, that leaves and comes back before its goodbye is there a second time.
    shape = Shape(members=4, clients_only=3, shards=2, max_share=1.0, rounds=30)
    leaves = [Incident(Trouble.LEAVE, at, at + 0.2, frozenset({0})) for at in range(2, 11)]
    world = {"shape": shape, "incidents": leaves, "directory": Forgiving}
    catch(monkeypatch, FORGOTTEN, Trouble.ECHO, most=30, **world)
