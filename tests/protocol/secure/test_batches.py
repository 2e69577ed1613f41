"""Secret batches: coins by another program, what they follow from, ledgers that compose them."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from eris.core.composition import by_pld, composed
from eris.core.errors import ErisError, InvalidSetting
from eris.core.noise import PrivacyClaim
from eris.protocol.secure.charges import BudgetSpent, Charges, NoiseCharge, PrivacyBudget
from eris.protocol.secure.noise import batch_coins
from eris.protocol.secure.noise_terms import SharedNoise
from eris.protocol.secure.noising import SharedNoising

KEY = bytes(range(32))


def slow_coins(key: bytes, federation: str, round: int, slots: int, rate: float) -> list[bool]:
    """As it is written down, a block at a time."""
    info = b"eris/noise-coins/1" + b"\0" + round.to_bytes(8, "little")
    salt = hashlib.sha256(federation.encode()).digest()
    derived = HKDF(SHA256(), 32, salt, info).derive(key)
    found = []
    for slot in range(slots):
        counter = (slot // 2).to_bytes(16, "big")
        block = Cipher(AES(derived), ECB()).encryptor().update(counter)
        word = int.from_bytes(block[8 * (slot % 2) :][:8], "little")
        found.append(Fraction(word) < Fraction(rate) * 2**64 // 1)
    return found


@pytest.mark.parametrize("rate", [0.25, 0.1, 2.0**-60, 1 - 2.0**-53])
def test_coins_are_those_of_another_program(rate: float) -> None:
    for round in (0, 7):
        found = batch_coins(KEY, "example", round, 65, rate)
        assert found.tolist() == slow_coins(KEY, "example", round, 65, rate)
    assert batch_coins(KEY, "example", 0, 65, 1.0).all()


def test_a_golden_batch() -> None:
    """Key 00 … 1f, federation "example", round 3, a quarter of 64 slots."""
    found = np.flatnonzero(batch_coins(KEY, "example", 3, 64, 0.25)).tolist()
    assert found == [1, 5, 6, 10, 11, 27, 39, 43, 51, 54, 58, 59, 63]


def test_coins_fall_as_often_as_agreed_and_are_of_one_round_and_federation() -> None:
    many = np.stack([batch_coins(KEY, "example", round, 4096, 0.25) for round in range(64)])
    count = many.size
    assert abs(int(many.sum()) - count / 4) < 5 * (count * 3 / 16) ** 0.5
    # Neither rounds nor slots go together: counts of both being in, of neighbours.
    for both in (many[1:] & many[:-1], many[:, 1:] & many[:, :-1]):
        assert abs(int(both.sum()) - both.size / 16) < 5 * (both.size * 15 / 256) ** 0.5
    other = batch_coins(KEY, "another", 0, 4096, 0.25)
    assert (other != many[0]).any()
    assert np.array_equal(batch_coins(KEY, "example", 5, 4096, 0.25), many[5])
    # A longer list begins with a shorter one: coins belong to slots.
    assert np.array_equal(batch_coins(KEY, "example", 5, 10, 0.25), many[5, :10])
    assert (batch_coins(KEY, "example", 5, 4096, 0.1) <= many[5]).all()


NOISE = SharedNoise.planned(
    "sample", 1, clip=0.5, rounds=6, clients=50, samples=64, min_included=50, colluders=2,
    sampling_rate=0.25,
)  # fmt: skip
BUDGET = PrivacyBudget("sample", 1.0)


def test_a_batch_is_the_same_until_its_noise_is_drawn_and_is_gone_then() -> None:
    client = SharedNoising(NOISE, NOISE.grid(8), "example", KEY, lambda round, tag: None)
    first = client.batch(4, 64)
    assert np.array_equal(first, client.batch(4, 64))
    assert np.array_equal(first, batch_coins(KEY, "example", 4, 64, 0.25))
    client.words(np.zeros(10, np.int64), 4)
    with pytest.raises(ErisError, match="noise of round 4 was drawn"):
        client.batch(4, 64)
    # The key has been replaced: what is in memory now does not tell who was in it.
    assert not np.array_equal(client.batch(5, 64), batch_coins(KEY, "example", 5, 64, 0.25))


def test_less_noise_is_enough_for_batches_and_means_are_of_the_share_that_is_taken() -> None:
    whole = SharedNoise.planned(
        "sample", 1, clip=0.5, rounds=6, clients=50, samples=64, min_included=50, colluders=2
    )
    assert NOISE.std < 0.5 * whole.std
    assert NOISE.divisor(3200) == 800
    with pytest.raises(InvalidSetting, match=r"sampling_rate is 0\.25; expected 1 where whole"):
        SharedNoise.planned(
            "client", 8, clip=0.5, rounds=20, clients=50, samples=64, min_included=50, colluders=2,
            sampling_rate=0.25,
        )  # fmt: skip
    for rate in (0.0, -1.0, 1.5):
        with pytest.raises(InvalidSetting, match=r"sampling_rate is .*a number in \(0, 1\]"):
            replace(NOISE, sampling_rate=rate)


# -- the ledger -------------------------------------------------------------------------------


def charge(round: int, noise: SharedNoise = NOISE, federation: str = "wards") -> NoiseCharge:
    return NoiseCharge.of(
        noise, noise.grid(8), federation=federation, epoch=1, round=round, model=bytes(16),
        tag=round.to_bytes(32, "big"), samples=64, min_included=50, colluders=2,
    )  # fmt: skip


def left(charges: Charges, noise: SharedNoise = NOISE) -> float:
    return charges.rounds_left(charge(0, noise).amounts, [BUDGET], noise.sampling_rate)


def test_planned_rounds_of_batches_fit_and_both_figures_are_said() -> None:
    charges = Charges(tuple(charge(round) for round in range(5)))
    assert left(charges) == 1
    assert charges.check(charge(5), [BUDGET])
    full = Charges((*charges.whole, charge(5)))
    with pytest.raises(BudgetSpent, match="budget ε = 1 is spent: 6 of 6 rounds"):
        full.check(charge(6), [BUDGET])
    said = full.said(BUDGET, charge(0).amounts, 0.25)
    z = float.fromhex(NOISE.sigma) / NOISE.sensitivity
    readers = composed((PrivacyClaim("gaussian", 1.0, z, 6, 0.25),), 1e-5)
    z = NOISE.std / NOISE.sensitivity
    openers = composed((PrivacyClaim("gaussian", 1.0, z, 6, 0.25),), 1e-5)
    assert f"ε ≤ {readers:.2f} for anyone who sees" in said
    assert f"ε ≤ {openers:.1f} if the shard's owner" in said
    assert said.endswith("(δ = 1e-5, one sample, 6 of 6 rounds)")
    assert 0.99 < readers <= 1 < openers


def test_rounds_of_a_plan_cost_no_look_into_distributions_once_it_is_known() -> None:
    """A node asks in every round, while others wait for it."""
    found = [left(Charges())]
    known = by_pld.cache_info().misses
    made = Charges()
    for round in range(6):
        assert made.check(charge(round), [BUDGET])
        made = Charges((*made.whole, charge(round)))
        found.append(left(made))
    assert found == [6, 5, 4, 3, 2, 1, 0]
    with pytest.raises(BudgetSpent):
        made.check(charge(6), [BUDGET])
    assert by_pld.cache_info().misses == known
    beyond = Charges((*made.whole, *(charge(round) for round in range(6, 9))))
    assert left(beyond) == 0


def test_coins_are_not_counted_for_whole_clients() -> None:
    one = charge(0)
    assert one.amounts["client"] == tuple(64**2 * b for b in one.amounts["sample"])
    (b, _), budget = one.amounts["client"], PrivacyBudget("client", 1e6)
    exact = composed((PrivacyClaim("gaussian", b**0.5, 1.0, 1),), 1e-5)
    assert f"ε ≤ {exact:.2f} for anyone" in Charges((one,)).said(budget, one.amounts, 0.25)


def test_changed_noise_is_composed_by_rdp_in_no_order_and_said() -> None:
    other = SharedNoise.planned(
        "sample", 0.5, clip=0.5, rounds=6, clients=50, samples=64, min_included=50, colluders=2,
        sampling_rate=0.5,
    )  # fmt: skip
    plain = replace(NOISE, sampling_rate=1.0)
    some = [charge(0), charge(1, other), charge(2, plain), charge(3)]
    found = {Charges(tuple(order)).releases("sample", 0) for order in permutations(some)}
    (releases,) = found
    assert releases.changed
    assert sum(count for _, _, count in releases.sampled) == 3
    z, wide = (float.fromhex(noise.sigma) / noise.sensitivity for noise in (NOISE, other))
    claims = (
        PrivacyClaim("gaussian", 1.0, z, 2, 0.25),
        PrivacyClaim("gaussian", 1.0, wide, 1, 0.5),
        PrivacyClaim("gaussian", 1.0, z, 1),
    )
    by_rdp = composed(claims, 1e-5, adaptive=True)
    assert releases.epsilon(1e-5) == pytest.approx(by_rdp, rel=1e-9)
    assert by_rdp > composed(claims, 1e-5)
    said = Charges(tuple(some)).said(PrivacyBudget("sample", 1.6), charge(0).amounts, 0.25)
    assert said.endswith("rounds, by RDP: noise or batches have changed)")
    two = Charges(tuple(charge(round, federation=f"f{round % 2}") for round in range(6)))
    one_run = Charges(tuple(charge(round) for round in range(6)))
    assert two.releases("sample", 0) == one_run.releases("sample", 0)
    assert not one_run.releases("sample", 0).changed


def test_charges_of_batches_that_are_cut_anywhere_never_give_more_rounds() -> None:
    whole = charge(0).record() + charge(1).record()
    assert Charges.parse(whole) == Charges((charge(0), charge(1)))
    for cut in range(len(whole) + 1):
        found = Charges.parse(whole[:cut])
        begun = whole[:cut].count(b"\x1e")
        assert len(found) == begun
        assert left(found) <= 6 - begun
        more = [*found.standing_for_torn(charge(9)), charge(9)]
        again = Charges.parse(whole[:cut] + b"".join(one.record() for one in more))
        assert len(again) == begun + 1
        assert left(again) <= left(found) - 1
        repaired = Charges.parse(whole[:cut] + more[0].record()[: cut % 97])
        assert left(repaired) <= left(found)


def test_a_ledger_from_before_batches_is_read() -> None:
    plain = charge(0, replace(NOISE, sampling_rate=1.0))
    text, _, _ = plain.record()[1:-1].rpartition(b"\t")
    old = text.replace(b'"sampling_rate":1.0,', b"")
    assert old != text
    check = hashlib.sha256(old).hexdigest()[:16].encode()
    assert Charges.parse(b"\x1e" + old + b"\t" + check + b"\n") == Charges((plain,))
