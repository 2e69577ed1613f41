"""A ledger that was brought back from an old copy: what peers tell, and what is made up for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eris.protocol.secure.charges import BudgetSpent
from eris.runtimes.grpc.privacy import MADE_UP
from support.sites import Site, agreed

ROUNDS = 3


def forgetful(folder: Path, **table: Any) -> Site:
    """A node that has charged round 1 and was brought back as it was before."""
    site = Site(folder, **table)
    path = site.privacy.ledger.path
    before = path.read_bytes()
    site.train()
    assert site.charged == [1]
    path.write_bytes(before)
    return Site(folder, **table)


def test_a_round_that_results_hold_and_the_ledger_does_not_is_charged_and_said(
    tmp_path: Path,
) -> None:
    site = forgetful(tmp_path)
    assert site.charged == []
    site.privacy.hear(1)
    assert site.charged == [1]
    (charge,) = site.privacy.ledger.charges.whole
    assert charge.amounts["sample"] == site.privacy.noise.charges
    assert charge.amounts["client"][0] == 64 * charge.amounts["sample"][0], "as if of most samples"
    (line,) = site.told("ledger behind")
    assert line["rounds"] == [1]
    shown = site.privacy.shown()
    assert "this client is in results of round 1" in shown["privacy"]["behind"]
    assert "rounds 1 to 1 are charged now" in shown["privacy"]["behind"]
    assert shown["privacy_rounds_left"] == ROUNDS - 1
    assert not site.privacy.allows(1), "and it is never trained again"
    assert site.privacy.allows(2)
    site.privacy.hear(1)
    assert site.charged == [1], "once"


def test_rounds_in_between_that_may_be_lost_are_charged_too(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.train()
    site.privacy.hear(3)
    assert site.charged == [1, 2, 3]
    assert site.told("ledger behind")[0]["rounds"] == [2, 3]
    tags = [one.tag for one in site.privacy.ledger.charges.whole]
    assert tags[1:] == [MADE_UP.hex()] * 2 != tags[:2]
    other = Site(tmp_path, run="other")
    other.privacy.hear(1)
    assert other.charged == [1, 2, 3, 1], "rounds of another run are its own"


def test_what_was_charged_is_nothing_new(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.train()
    for included in (0, 1, 1):
        site.privacy.hear(included)
    again = Site(tmp_path)
    again.privacy.hear(1)
    assert again.charged == [1]
    assert again.privacy.behind == ""
    assert again.told("ledger behind") == []


def test_what_peers_claim_of_rounds_that_are_not_planned_costs_nothing(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.privacy.hear(10**9)
    assert site.charged == [1, 2, 3]


def test_lost_rounds_are_charged_beyond_the_budget_and_then_nothing_is_left(
    tmp_path: Path,
) -> None:
    site = forgetful(tmp_path, epsilon_sample=5.0)  # one round and a half
    site.privacy.hear(3)
    assert site.charged == [1, 2, 3]
    shown = site.privacy.shown()
    assert shown["epsilon_readers"] > 5
    assert shown["privacy_rounds_left"] == 0
    with pytest.raises(BudgetSpent, match="is spent: 3 of 3 rounds"):
        site.privacy.ledger.check(site.privacy._cost(4, 0, b"", b""))


def test_as_long_as_it_cannot_be_written_nothing_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = forgetful(tmp_path)

    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.write", full)
        site.privacy.hear(1)
        assert not site.privacy.allows(2)
        assert "cannot be used (No space left on device)" in site.privacy.abstains
    assert site.charged == []
    assert site.privacy.allows(3), "it is tried again in every round"
    assert site.charged == [1]


def test_what_is_made_up_for_has_the_rate_that_was_agreed(tmp_path: Path) -> None:
    site = Site(tmp_path, settings=agreed(epsilon=1.0, sampling_rate=0.5))
    site.privacy.hear(2)
    made = site.privacy.ledger.charges.whole
    assert [(one.round, one.sampling_rate) for one in made] == [(1, 0.5), (2, 0.5)]
    assert site.privacy.shown()["privacy_rounds_left"] == 1
