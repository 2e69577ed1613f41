"""Views of one membership in several epochs, and what a transcript says of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from eris.core.compress import RandP
from eris.core.errors import InvalidSetting
from eris.core.shards import RandomPlan
from eris.protocol.agreement import Agreement
from eris.protocol.schemes import Masked
from eris.protocol.settings import Settings
from eris.protocol.transcript import Transcript
from eris.protocol.view import View
from support.machines import N

EVERYONE = View.serverless([f"client-{i}" for i in range(8)], aggregators=2, samples=(1,) * 8)


def test_an_epoch_has_the_members_and_roles_of_its_own() -> None:
    view = EVERYONE.in_epoch(7, clients=(5, 2, 3), owners=(6, 5))
    assert view == View(EVERYONE.members, (5, 2, 3), (6, 5), None, 7)
    assert view.roles == (2, 3, 5, 6)
    assert view.owned_by(6) == (0,)
    assert view.owned_by(2) == ()
    # The one it came from is as it was.
    assert EVERYONE.samples == (1,) * 8
    assert EVERYONE.roles == tuple(range(8))


@pytest.mark.parametrize(
    ("clients", "owners", "says"),
    [((8,), (0,), "clients is 8"), ((0,), (-2,), "owners is -2"), ((1, 1), (0,), "client once"),
     ((), (0,), "at least one client")],
)  # fmt: skip
def test_roles_are_checked(clients: tuple[int, ...], owners: tuple[int, ...], says: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        EVERYONE.in_epoch(1, clients, owners)
    assert says in str(refused.value)


def test_an_agreement_in_another_view_derives_the_same_and_speaks_of_its_epoch() -> None:
    settings = Settings(n=N, plan=RandomPlan(2), scheme=Masked(RandP(0.5)))
    first = Agreement(settings, EVERYONE)
    other = first.in_view(EVERYONE.in_epoch(3, (4, 5, 6), (6, 4)))
    assert other.segments(2) is first.segments(2)
    assert other.coding.kept(2, 0) is first.coding.kept(2, 0)
    assert other.keys == first.keys
    assert first.header(0, 1, (0, 0)).epoch == 0
    assert other.header(0, 1, (0, 0)).epoch == 3
    assert first.view is EVERYONE


def test_owners_of_every_epoch_are_observers(tmp_path: Path) -> None:
    transcript = Transcript(EVERYONE)
    transcript.epochs = {
        1: EVERYONE.in_epoch(1, (1, 2, 3), (1, 2)),
        2: EVERYONE.in_epoch(2, (5, 6, 7), (7, 5)),
    }
    assert transcript.as_aggregator(7).observer == "aggregator 7"
    # Owner by the membership, but in no epoch.
    with pytest.raises(InvalidSetting, match="a member that owns a shard: 1, 2, 5, 7"):
        transcript.as_aggregator(0)
    with pytest.raises(InvalidSetting, match="this run had 4"):
        transcript.as_server()
    with pytest.raises(InvalidSetting, match="a run in which nodes gossip"):
        transcript.as_neighbour(3)
    transcript.save(tmp_path / "epochs.eris")
    read = Transcript.load(tmp_path / "epochs.eris")
    assert read.epochs == transcript.epochs
    assert read.membership == EVERYONE


def test_a_neighbour_sees_what_touches_it() -> None:
    transcript = Transcript(View(("a", "b", "c"), (0, 1, 2), ()))
    sent = transcript.record(1.0, 0, (1,), b"to b")
    passed = transcript.record(1.1, 1, (0, 2), b"lost on the way to c")
    sent.arrived.add(1)
    passed.arrived.add(0)
    assert transcript.as_neighbour(0).records == (sent, passed)
    assert transcript.as_neighbour(1).records == (sent, passed)
    assert transcript.as_neighbour(2).records == ()
    with pytest.raises(InvalidSetting, match="this run had no owners"):
        transcript.as_aggregator(0)
    with pytest.raises(InvalidSetting, match="0 to 2"):
        transcript.as_neighbour(3)
