"""References of single clients (SoteriaFL) in worlds of trouble: they are right, or not used."""

from __future__ import annotations

from functools import partialmethod

import pytest

from eris.core.compress import RandP
from eris.core.errors import InvalidSetting
from eris.protocol.authority.directory import Directory
from eris.protocol.authority.standing import Epochs
from eris.protocol.messages import Result
from eris.protocol.round.client import Client
from eris.protocol.round.replica import Replica
from eris.protocol.schemes import Independent
from eris.protocol.schemes.independent import IndependentCoding, IndependentSender
from eris.protocol.settings import Settings
from eris.testing import SyntheticTraining, agree, on_the_clock
from eris.testing.shape import Shape
from eris.testing.soak import OPEN, run_seeds
from eris.testing.weather import Trouble
from support.bugs import catch

CIRCUMSTANCES = [
    "a difference to a reference is sent",
    "a member joins for an epoch to begin",
    "a result is orphaned",
    "a result is withheld",
    "a result leaves somebody out",
    "a round is calm",
    "a snapshot is sent",
    "an owner abstains",
    "references add up",
]
SHAPE = Shape(members=5, shards=2, rounds=14, history=1, own=True)
LOSSES = (Trouble.DROP, Trouble.PARTITION, Trouble.SLOW)
STOPS = (Trouble.CRASH, Trouble.LOSS)


def test_the_laws_hold_in_worlds_of_trouble() -> None:
    tally = run_seeds(0, 24, "references")
    assert tally.findings == {}
    assert [what for what in CIRCUMSTANCES if not tally.saw[what]] == []
    assert [kind for kind in OPEN - {Trouble.LIE} if not tally.struck[kind]] == []
    assert tally.faulted > 100


def test_one_epoch_alone_is_not_enough_where_messages_may_be_lost() -> None:
    agreed = agree(Settings(n=9, scheme=Independent(RandP(0.5))), clients=3)
    with pytest.raises(InvalidSetting, match="scheme is 'independent'; expected another one with"):
        on_the_clock(agreed, SyntheticTraining(9))


# -- bugs -----------------------------------------------------------------------------------------


def test_a_client_that_does_not_mind_what_it_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Client, "jumped", lambda self, key, astray: None)
    catch(monkeypatch, "not the difference to its reference", *LOSSES, most=40, shape=SHAPE)


def test_a_client_that_goes_on_from_its_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IndependentSender, "uncertain", lambda self, round: None)
    monkeypatch.setattr(Directory, "__init__", partialmethod(_forgetting, Directory.__init__))
    catch(monkeypatch, "not the difference to its reference", *STOPS, most=40, shape=SHAPE)


def test_a_directory_that_begins_no_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Directory, "__init__", partialmethod(_forgetting, Directory.__init__))
    catch(monkeypatch, "no progress|leaves out .* in fine weather", *STOPS, most=40, shape=SHAPE)


def _forgetting(self: Directory, made: object, *given: object, **terms: object) -> None:
    made(self, *given, **{**terms, "anew": False})  # type: ignore[operator]


def test_a_common_reference_that_outlives_its_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IndependentCoding, "begins_anew", lambda self, round, previous: False)
    catch(monkeypatch, "off the sum of the clients'", Trouble.CRASH, most=20, shape=SHAPE)


def test_a_withheld_result_that_begins_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    apply = Replica._apply

    def unless_withheld(self: Replica, result: Result) -> None:
        with pytest.MonkeyPatch.context() as patch:
            if result.payload is None:
                patch.setattr(IndependentCoding, "begins_anew", lambda *_: False)
            apply(self, result)

    monkeypatch.setattr(Replica, "_apply", unless_withheld)
    catch(monkeypatch, "off the sum of the clients'", *OPEN - {Trouble.LIE}, most=20, shape=SHAPE)


def test_a_clients_reference_that_outlives_its_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    prepare = IndependentSender.prepare

    def without_a_look(self: IndependentSender, *given: object) -> object:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Epochs, "began", lambda self, round: 1)
            return prepare(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(IndependentSender, "prepare", without_a_look)
    monkeypatch.setattr(IndependentSender, "gives", lambda self, round, shard: self.trains(round))
    catch(monkeypatch, "not the difference to its reference", Trouble.CRASH, most=20, shape=SHAPE)
