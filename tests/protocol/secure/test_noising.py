"""Shared noise at a client, and tests of what it promises, each with mistakes that they find."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2, norm

from eris.core.compress import RandP
from eris.core.errors import ErisError, InvalidSetting
from eris.protocol.agreement import Agreement
from eris.protocol.schemes import Dense, Masked, Rotated
from eris.protocol.schemes.scheme import Scheme
from eris.protocol.secure.noise import NoiseKeys, content_digest, next_chain_key
from eris.protocol.secure.noise_terms import NoiseGrid, SharedNoise
from eris.protocol.secure.noising import (
    ALARM,
    FEWEST,
    GAUGE,
    NoiseFault,
    SharedNoising,
    client_content,
    gauged,
    sent_rows,
    spread,
)
from eris.protocol.secure.terms import SecureSums
from eris.protocol.settings import Settings
from eris.protocol.view import View

K = 50


def planned(**changes: Any) -> SharedNoise:
    usual: dict[str, Any] = {
        "protects": "sample", "epsilon": 8, "clip": 1.0, "rounds": 160, "clients": K,
        "samples": 64, "min_included": 50, "colluders": 1,
    }  # fmt: skip
    return SharedNoise.planned(**usual | changes)


NOISE = planned()
GRID = NOISE.grid(8)


def free(round: int, tag: bytes) -> None:
    pass


def client(number: int = 0, noise: SharedNoise = NOISE, grid: NoiseGrid = GRID) -> SharedNoising:
    return SharedNoising(noise, grid, "example", number.to_bytes(32, "big"), free)


# -- a client's rounds ------------------------------------------------------------------------


def test_words_are_the_draws_of_content_and_gauge_under_a_chain_of_keys() -> None:
    drawn = np.random.default_rng(5)
    made, key = client(3), (3).to_bytes(32, "big")
    std = math.ldexp(NOISE.std, GRID.places)
    for round in (4, 5, 9):
        content = drawn.integers(-(2**45), 2**45, 2000)
        whole = np.concatenate([content, np.zeros(GAUGE, np.int64)])
        digest = content_digest(whole, std, GRID.places, GRID.fine_bits)
        slow = NoiseKeys.of(key, "example", round, digest).add(whole, std, GRID.fine_bits)
        assert np.array_equal(made.words(content, round), slow[:2000])
        assert np.array_equal(made.gauge, slow[2000:])
        key = next_chain_key(key)


def test_a_round_is_charged_before_it_is_drawn_and_drawn_once() -> None:
    told: list[tuple[int, bytes]] = []

    def charge(round: int, tag: bytes) -> None:
        told.append((round, tag))
        if len(told) == 1:
            raise ErisError("the disk is full")

    made = SharedNoising(NOISE, GRID, "example", bytes(32), charge)
    content = np.arange(100)
    with pytest.raises(ErisError, match="the disk is full"):
        made.words(content, 1)
    assert not len(made.gauge)
    words = made.words(content, 1)  # nothing had been drawn: the same noise, charged now
    assert np.array_equal(words, client(0).words(content, 1))
    assert told[0] == told[1]
    for round in (1, 0):
        with pytest.raises(ErisError, match="never drawn twice"):
            made.words(content, round)
    made.words(content, 2)
    assert len({tag for _, tag in told}) == 2
    with pytest.raises(InvalidSetting, match="bytes of a chain key is 16"):
        SharedNoising(NOISE, GRID, "example", bytes(16), charge)


# -- terms ------------------------------------------------------------------------------------


def test_noise_is_planned_once_and_then_a_number_that_is_agreed() -> None:
    assert NOISE.std == pytest.approx(1.096 * (1 + 2.0**-10), abs=1e-3)
    assert float.fromhex(NOISE.sigma) / NOISE.std == pytest.approx(math.sqrt(48))
    assert planned(protects="client").sensitivity == 1.0
    readers, openers = NOISE.charges
    assert readers == pytest.approx(7.5924**-2, rel=1e-4)
    assert openers == pytest.approx(48 * readers)


def test_grids_of_the_rings() -> None:
    wide = replace(NOISE, of_a_client=(1.5).hex())
    assert [wide.grid(size, most=51).places for size in (4, 5, 6)] == [19, 27, 35]
    assert wide.grid(8).fine_bits == 20
    many = replace(wide, samples=1 << 24)  # where 64 bits leave no room for all of both grids
    grid = many.grid(8, most=51)
    assert grid.fine_bits >= 10
    assert math.ldexp(many.largest, grid.fine_places) < 2.0**62
    with pytest.raises(InvalidSetting, match="too coarse for this noise; raise ring_bytes or clip"):
        replace(wide, samples=1 << 24).grid(4)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"protects": "both"}, "protects is 'both'; expected one of sample, client"),
        ({"epsilon": 0.0}, "epsilon is 0"),
        ({"delta": 1.0}, "delta is 1"),
        ({"clip": math.inf}, "clip is inf"),
        ({"rounds": 0}, "rounds is 0"),
        ({"sigma": "much"}, "sigma is 'much'"),
        ({"of_a_client": (0.0).hex()}, "of_a_client is"),
    ],
)
def test_terms_out_of_range_are_refused(change: Any, complaint: str) -> None:
    with pytest.raises(InvalidSetting, match=complaint):
        replace(NOISE, **change)


def agreed(**changes: Any) -> Settings:
    usual: dict[str, Any] = {
        "secure": SecureSums.parse("2 of 3"),
        "non_finite": "zero",
        "min_included": 50,
    }
    return Settings(1000, **usual | changes)


def test_what_breaks_the_promise_is_refused() -> None:
    NOISE.check(agreed())
    NOISE.check(agreed(scheme=Masked(RandP(0.1), shift=False)))
    for settings, complaint in (
        (agreed(secure=None), "secure_sums is 'none'; expected some"),
        (agreed(non_finite="refuse"), "non_finite is 'refuse'; expected 'zero'"),
        (agreed(scheme=Masked(RandP(0.1))), "shift is True; expected False with noise per sample"),
        (agreed(min_included=20), "sigma|of_a_client is"),
        (agreed(secure=SecureSums.parse("3 of 4")), "of_a_client is 1.0.*and 2 colluders"),
    ):
        with pytest.raises(InvalidSetting, match=complaint):
            NOISE.check(settings)
    planned(protects="client").check(agreed(scheme=Masked(RandP(0.1))))
    with pytest.raises(InvalidSetting, match="min_included is 3; expected at least 4"):
        planned(min_included=3)
    with pytest.raises(InvalidSetting, match="samples of a client is 65"):
        NOISE.weight(65)


@pytest.mark.parametrize("scheme", [Rotated(RandP(0.3)), Masked(RandP(0.3), shift=False), Dense()])
def test_what_is_clipped_is_what_is_sent(scheme: Scheme) -> None:
    settings = Settings(1000, scheme=scheme)
    coding = scheme.at(Agreement(settings, View.serverless(list("abcd"), aggregators=1)))
    rows = np.random.default_rng(1).normal(size=(3, 1000)).astype(np.float32)
    sent = sent_rows(coding, 5, 2)(rows)
    for row, part in zip(rows, sent, strict=True):
        assert np.array_equal(part, coding.gather(5, 2, coding.enter(row)))
    long = client_content(planned(protects="client", clip=0.5), GRID, sent[0], 64)
    assert math.sqrt(sum(int(a) ** 2 for a in long)) <= 0.5 * 2**GRID.fine_places


# -- a client looks at its own noise ----------------------------------------------------------


def test_the_level_of_the_self_test_is_that_of_chi_square() -> None:
    for count in (FEWEST, 10_000, 61_706 + GAUGE, 10**7):
        share = 2 / (9 * count)
        low, high = (count * (1 - share + z * math.sqrt(share)) ** 3 for z in (-ALARM, ALARM))
        assert chi2.sf(high, count) + chi2.cdf(low, count) == pytest.approx(1e-30, rel=0.7)


@pytest.mark.parametrize(
    ("ratio", "count"),
    [(0.8, 3238), (1.2, 4451), (0.9, 14_145), (1.1, 16_570), (0.95, 58_984), (1.05, 63_834)],
)
def test_how_many_draws_find_how_small_a_mistake(ratio: float, count: int) -> None:
    """The design's counts: a mistake is missed once in 10⁹."""
    share = 2 / (9 * count)
    edge = count * (1 - share + math.copysign(ALARM, ratio - 1) * math.sqrt(share)) ** 3
    missed = chi2.cdf if ratio > 1 else chi2.sf
    assert missed(edge / ratio**2, count) == pytest.approx(1e-9, rel=0.1)


def wrong(by: float) -> Callable[[NoiseKeys, Any, float, int], NDArray[np.int64]]:
    right = NoiseKeys.add
    return lambda keys, content, std, fine: right(keys, content, std * by, fine)


@pytest.mark.parametrize(("by", "places"), [(0.8, 1190), (1.2, 2403), (0.0078125, 1190)])
def test_a_client_stops_at_noise_of_another_size(
    by: float, places: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = np.full(places, 12345678)
    client().words(content, 0)
    monkeypatch.setattr(NoiseKeys, "add", wrong(by))
    with pytest.raises(NoiseFault, match="standard deviations off in size"):
        client().words(content, 0)
    client().words(content[:1000], 0)  # too few to say anything at that level


# -- opened sums ------------------------------------------------------------------------------

N = 61_706


def opened(stds: NDArray[np.float64], n: int, twice: bool = False) -> NDArray[np.int64]:
    """Sums of clients' words less the sums of their contents; with mistakes, if such are given."""
    total = np.zeros(n, np.int64)
    for number, std in enumerate(stds.tolist()):
        content = np.full(n, number - 20)
        for key in (number, 1000 + number)[: 1 + twice]:
            keys = NoiseKeys(key.to_bytes(32, "big"), bytes(32))
            total += keys.add(content, std, 0) - content if std else 0
    return total


EACH = np.full(K, 2.0**19)


def test_opened_sums_have_the_noise_that_was_promised() -> None:
    std = 2.0**19 * math.sqrt(K)
    right = opened(EACH, N)
    assert abs(spread(right, std)) < 5
    assert spread(0.8 * right.astype(np.float64), std) < -ALARM
    assert spread(1.2 * right.astype(np.float64), std) > ALARM
    assert spread(opened(EACH * math.sqrt(32 / 50), N), std) < -ALARM  # σ/√K for σ/√M₀
    assert spread(opened(EACH, N // 10, twice=True), std) > ALARM


def test_one_of_fifty_without_noise_is_seen_in_eight_sums() -> None:
    one_missing = EACH.copy()
    one_missing[7] = 0
    std = 2.0**19 * math.sqrt(K)
    # The sum of 49 noises is 49/50 of the variance: the law of such sums, drawn at once.
    keys = NoiseKeys(bytes(32), bytes(32))
    eight = keys.add(np.zeros(8 * N, np.int64), 2.0**19 * math.sqrt(K - 1), 0)
    assert spread(eight, std) < -5
    few = opened(one_missing, 3000)
    assert spread(few, 2.0**19 * math.sqrt(K - 1)) == pytest.approx(0, abs=5)


@pytest.mark.parametrize(
    ("ratio", "counts"),
    [
        (0.8, (413, 940, 1479)),
        (1.2, (612, 1400, 2208)),
        (0.9, (1840, 4198, 6612)),
        (1.1, (2239, 5119, 8069)),
        (0.99, (201_581, 460_537, 725_650)),
    ],
)
def test_counts_of_the_design(ratio: float, counts: tuple[int, ...]) -> None:
    """False alarm (two-sided) = miss = 10⁻³, 10⁻⁶, 10⁻⁹ at so many coordinates, and not at 1 %
    fewer."""
    for level, count in zip((1e-3, 1e-6, 1e-9), counts, strict=True):
        for n, enough in ((count, True), (round(0.99 * count), False)):
            edge = chi2.isf(level / 2, n) if ratio > 1 else chi2.ppf(level / 2, n)
            missed = chi2.cdf if ratio > 1 else chi2.sf
            assert (missed(edge / ratio**2, n) <= level * 1.02) == enough


def test_everyone_can_gauge_an_opened_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    def total() -> NDArray[np.int64]:
        sums = np.zeros(GAUGE, np.int64)
        for number in range(K):
            made = client(number)
            made.words(np.full(100, number), 0)
            sums += made.gauge
        return sums

    assert abs(gauged(total(), K, NOISE, GRID)) < 4
    for by in (0.8, 1.2):
        with monkeypatch.context() as patched:
            patched.setattr(NoiseKeys, "add", wrong(by))
            assert abs(gauged(total(), K, NOISE, GRID)) > 10


# -- the accountant is tight ------------------------------------------------------------------


def errors(by: float, sums: int = 200_000) -> list[tuple[float, float]]:
    """By threshold: false alarms, and misses in standard errors above the Gaussian trade-off, of
    whoever tells two neighbours apart by a sum of 8 clients at the coarsest grid, μ = 1."""
    clients, fine = 8, 10
    std, shift = math.sqrt(6 * clients), math.sqrt(6) * clients
    found = []
    for moved in (0.0, shift):
        total = np.zeros(sums, np.int64)
        for number in range(clients):
            at = 0.37 * number + (moved if number == 0 else 0.0)
            content = np.full(sums, round(at * 2**fine), np.int64)
            keys = NoiseKeys(bytes([number, moved > 0]) * 16, bytes(32))
            total += keys.add(content, std * by, fine)
        found.append(total)
    without, within = found
    middle = 0.37 * sum(range(clients))
    shown = []
    for z in (0.17, 0.68, 1.2, 1.7):
        edge = middle + z * std * math.sqrt(clients)
        alarms, misses = float(np.mean(without > edge)), float(np.mean(within <= edge))
        least = float(norm.cdf(norm.isf(alarms) - 1))
        error = math.sqrt(2 * 0.25 / sums)
        shown.append((alarms, (misses - least) / error))
    return shown


def test_no_attacker_beats_the_accountant_and_the_best_one_meets_it() -> None:
    assert all(abs(off) < 4 for _, off in errors(1.0))


def test_a_mistake_of_a_fifth_breaks_the_promise() -> None:
    assert all(off < -20 for _, off in errors(0.8))
