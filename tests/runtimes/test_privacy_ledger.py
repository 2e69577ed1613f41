"""The privacy ledger: charged before it is sent, cut anywhere never more, in no order."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest

from eris.core.errors import InvalidSetting
from eris.protocol.secure.charges import (
    AlreadyCharged,
    BudgetSpent,
    Charges,
    NoiseCharge,
    PrivacyBudget,
)
from eris.protocol.secure.noise_terms import SharedNoise
from eris.runtimes.privacy_ledger import LedgerRecord, PrivacyLedger, PrivacyLedgerRefused

NOISE = SharedNoise.planned(
    "sample", 8, clip=0.5, rounds=160, clients=50, samples=64, min_included=50, colluders=2
)
BUDGET = PrivacyBudget("sample", 8.0)


def charge(round: int, noise: SharedNoise = NOISE, federation: str = "wards") -> NoiseCharge:
    return NoiseCharge.of(
        noise, noise.grid(8), federation=federation, epoch=1, round=round, model=bytes(16),
        tag=round.to_bytes(32, "big"), samples=64, min_included=50, colluders=2,
    )  # fmt: skip


def test_what_is_made_up_for_comes_after_what_is_torn(tmp_path: Path) -> None:
    ledger = PrivacyLedger(tmp_path, "ward-3", [BUDGET])
    ledger.charge(charge(1))
    ledger.path.write_bytes(ledger.path.read_bytes() + charge(2).record()[:50])
    again = PrivacyLedger(tmp_path, "ward-3", [BUDGET])
    assert again.make_up(charge(3)) == [2, 3]
    assert again.make_up(charge(3)) == again.make_up(charge(2)) == []
    found = PrivacyLedger(tmp_path, "ward-3", [BUDGET]).charges
    assert found == again.charges
    assert [(one.round, one.stands_for) for one in found.whole] == [(1, 0), (2, 1), (2, 0), (3, 0)]


def test_the_last_planned_round_fits_and_no_other(tmp_path: Path) -> None:
    charges = Charges(tuple(charge(round) for round in range(159)))
    assert charges.rounds_left(charge(0).amounts, [BUDGET]) == 1
    assert charges.check(charge(159), [BUDGET])
    full = Charges((*charges.whole, charge(159)))
    with pytest.raises(BudgetSpent, match="budget ε = 8 is spent: 160 of 160 rounds"):
        full.check(charge(160), [BUDGET])
    assert full.said(BUDGET, charge(0).amounts) == (
        "ε ≤ 8.00 for anyone who sees results and has up to 2 colluders; ε ≤ 113.1 if the shard's "
        "owner and its helpers collude (δ = 1e-5, one sample, 160 of 160 rounds)"
    )


@pytest.mark.parametrize(("epsilon", "rounds"), [(1, 160), (8, 250), (2, 1000)])
def test_sums_of_charges_do_not_lose_the_last_round(epsilon: float, rounds: int) -> None:
    noise = SharedNoise.planned(
        "client", epsilon, clip=1.0, rounds=rounds, clients=50, samples=64, min_included=20,
        colluders=1,
    )  # fmt: skip
    charges = Charges(tuple(charge(round, noise) for round in range(rounds - 1)))
    budget = [PrivacyBudget("client", epsilon)]
    assert charges.rounds_left(charge(0, noise).amounts, budget) == 1
    assert charges.check(charge(rounds, noise), budget)


def test_both_accounts_are_charged() -> None:
    of_samples = charge(0).amounts
    assert of_samples["client"] == tuple(64**2 * b for b in of_samples["sample"])
    clients = SharedNoise.planned(
        "client", 8, clip=0.5, rounds=160, clients=50, samples=64, min_included=50, colluders=2
    )
    of_clients = charge(0, clients).amounts
    assert of_clients["sample"] == tuple(4 * b for b in of_clients["client"])
    readers, openers = of_clients["client"]
    assert openers == pytest.approx(47 * readers)
    both = [BUDGET, PrivacyBudget("client", 8.0)]
    assert Charges().rounds_left(of_clients, both) == 40
    assert Charges().rounds_left(of_clients, []) == math.inf


def test_a_ledger_is_read_by_the_next_start(tmp_path: Path) -> None:
    first = PrivacyLedger(tmp_path, "ward-3", [BUDGET])
    for round in range(3):
        first.charge(charge(round))
    first.charge(charge(1))  # sent again as it was
    second = PrivacyLedger(tmp_path, "ward-3", [BUDGET], first.record())
    assert second.charges == first.charges
    assert second.record().count == 3
    second.check(charge(3))
    with pytest.raises(AlreadyCharged):
        second.check(replace(charge(2), tag=""))
    assert second.record().count == 3, "looking costs nothing"
    with pytest.raises(AlreadyCharged, match="round 2 of wards was charged under other noise"):
        second.charge(replace(charge(2), tag="00"))
    second.charge(charge(2, federation="other"))
    first.charge(charge(3))  # sees what the other process wrote
    assert first.record().count == 5
    assert oct(second.path.stat().st_mode & 0o777) == "0o600"


def left(charges: Charges) -> float:
    return charges.rounds_left(charge(0).amounts, [BUDGET])


def test_charges_that_are_cut_anywhere_never_give_more_rounds() -> None:
    whole = charge(0).record() + charge(1).record()
    for cut in range(len(whole) + 1):
        found = Charges.parse(whole[:cut])
        begun = whole[:cut].count(b"\x1e")
        # What was begun counts as charged; what was not begun was not sent.
        assert len(found) == begun
        assert left(found) <= 160 - begun
        # And it goes on: what was torn stays charged.
        more = [*found.standing_for_torn(charge(9)), charge(9)]
        again = Charges.parse(whole[:cut] + b"".join(one.record() for one in more))
        assert len(again) == begun + 1
        assert left(again) <= left(found) - 1
        # A repair may be cut in its turn.
        repaired = Charges.parse(whole[:cut] + more[0].record()[: cut % 97])
        assert left(repaired) <= left(found)


def test_a_ledger_that_lost_its_end_is_refused_by_a_checkpoint_or_counts(tmp_path: Path) -> None:
    ledger = PrivacyLedger(tmp_path, "data", [BUDGET])
    for round in range(3):
        ledger.charge(charge(round))
    whole, known, full = ledger.path.read_bytes(), ledger.record(), left(ledger.charges)
    last = whole.rindex(b"\x1e")
    for cut in (0, 1, last - 1, last, last + 1, last + 200, len(whole) - 1):
        ledger.path.write_bytes(whole[:cut])
        if cut <= last:
            with pytest.raises(PrivacyLedgerRefused, match="the checkpoint knows of 3"):
                PrivacyLedger(tmp_path, "data", [BUDGET], known)
            continue
        found = PrivacyLedger(tmp_path, "data", [BUDGET], known)
        assert left(found.charges) <= full
        found.charge(charge(3))
        assert left(PrivacyLedger(tmp_path, "data", [BUDGET]).charges) <= full - 1


def test_ledgers_do_not_depend_on_order() -> None:
    small = SharedNoise.planned(
        "client", 1, clip=3.0, rounds=20, clients=9, samples=7, min_included=9, colluders=1
    )
    some = [charge(0), charge(1, small), charge(2, small), charge(3)]
    sums = {Charges(tuple(order)).spent("sample") for order in permutations(some)}
    assert len(sums) == 1
    one_run = Charges(tuple(charge(round) for round in range(160))).spent("sample")
    two = Charges(tuple(charge(round, federation=f"f{round % 2}") for round in range(160)))
    assert two.spent("sample") == one_run


def test_damage_in_the_middle_is_refused(tmp_path: Path) -> None:
    ledger = PrivacyLedger(tmp_path, "data", [BUDGET])
    for round in range(3):
        ledger.charge(charge(round))
    whole = ledger.path.read_bytes()
    damaged = bytearray(whole)
    damaged[whole.index(b"\x1e", 1) + 30] ^= 1
    ledger.path.write_bytes(bytes(damaged))
    with pytest.raises(PrivacyLedgerRefused, match="charge 1 is not whole"):
        PrivacyLedger(tmp_path, "data", [BUDGET])
    ledger.path.write_bytes(b"something else")
    with pytest.raises(PrivacyLedgerRefused, match="does not begin with a charge"):
        PrivacyLedger(tmp_path, "data", [BUDGET])


def test_a_ledger_that_is_gone_behind_or_shorter_is_refused(tmp_path: Path) -> None:
    ledger = PrivacyLedger(tmp_path, "data", [BUDGET])
    ledger.charge(charge(0))
    known = LedgerRecord.parse(ledger.record().text)
    assert known == ledger.record()
    old = ledger.path.read_bytes()
    ledger.charge(charge(1))
    newer = ledger.record()
    ledger.path.write_bytes(old)
    PrivacyLedger(tmp_path, "data", [BUDGET], known)
    with pytest.raises(PrivacyLedgerRefused, match="has 1 charges; the checkpoint knows of 2"):
        PrivacyLedger(tmp_path, "data", [BUDGET], newer)
    with pytest.raises(PrivacyLedgerRefused, match="has become shorter"):
        ledger.charge(charge(2))
    ledger.path.unlink()
    with pytest.raises(PrivacyLedgerRefused, match="is missing, 1 charges were in it"):
        PrivacyLedger(tmp_path, "data", [BUDGET], known)


def test_data_without_a_name_is_refused(tmp_path: Path) -> None:
    for name in ("", "../ward", "ward 3"):
        with pytest.raises(InvalidSetting, match="expected a name of letters"):
            PrivacyLedger(tmp_path, name, [BUDGET])


FEW = PrivacyBudget("sample", 2.42)
"""What 20 rounds of the noise cost."""


def _charge_many(folder: Path, federation: str) -> None:
    ledger = PrivacyLedger(folder, "data", [FEW])
    for round in range(15):
        try:
            ledger.charge(charge(round, federation=federation))
        except BudgetSpent:
            return


def test_two_federations_share_one_budget(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as workers:  # the lock is a file's: as good as two processes
        list(workers.map(_charge_many, [tmp_path] * 2, ["a", "b"]))
    assert PrivacyLedger(tmp_path, "data", [FEW]).record().count == 20
