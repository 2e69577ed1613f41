"""Whole federations under all kinds of trouble: whatever fails, the laws hold.

200 worlds, most of them here and the others in ``test_world_more.py``, so that two processes share
them; ``make soak`` runs tens of thousands.
Each has three to seven members; its shape and its troubles follow from its seed.
"""

from __future__ import annotations

import pytest

from eris.testing.soak import OPEN, Tally, run_seeds

CHUNK = 50
CIRCUMSTANCES = [
    "a contribution is left out",
    "a contribution is refused",
    "a member of another ledger is refused",
    "a result is orphaned",
    "a result is withheld",
    "a result leaves somebody out",
    "a round is calm",
    "a shard is taken over",
    "a shard that waited goes on",
    "a shard waits",
    "a snapshot is sent",
    "an older ledger serves nobody",
    "an early contribution is asked for again",
    "an owner abstains",
    "an owner says that no result will come",
    "an update comes too late",
    "too few clients for a quorum",
]


def check(tally: Tally) -> None:
    assert tally.findings == {}
    # A campaign is worth something only if everything happened in it.
    assert [kind for kind in OPEN if not tally.struck[kind]] == []
    assert [what for what in CIRCUMSTANCES if not tally.saw[what]] == []
    assert tally.faulted > 4 * CHUNK


@pytest.mark.parametrize("first", range(0, 150, CHUNK))
def test_the_laws_hold_in_worlds_of_trouble(first: int) -> None:
    check(run_seeds(first, first + CHUNK - 1))
