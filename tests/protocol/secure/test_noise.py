"""Exact rounded normal noise: the published vectors, a slow oracle, and the law itself."""

from __future__ import annotations

import hashlib
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy.stats import chi2, kstest

from eris.core.errors import InvalidSetting
from eris.core.quantile import CELLS, OCTAVES, cell, load_table
from eris.core.rounded_normal import exact_draw, rounded_normal
from eris.protocol.secure.noise import CipherDraws, NoiseKeys, content_digest, next_chain_key

V: dict[str, Any] = json.loads(Path(__file__).with_name("noise_vectors.json").read_text())
KEYS = NoiseKeys(
    bytes.fromhex(V["ambiguous"]["words_key"]), bytes.fromhex(V["ambiguous"]["further_key"])
)


@pytest.mark.parametrize("vector", V["draws"], ids=lambda v: f"s = {v['s']}")
def test_vectors_of_a_round(vector: dict[str, Any]) -> None:
    content = np.array([int(x) for x in vector["content"]], np.int64)
    std, chain = float.fromhex(vector["s_hex"]), bytes.fromhex(vector["chain_key"])
    digest = content_digest(content, std, vector["f"], vector["h"])
    assert digest.hex() == vector["content_digest"]
    keys = NoiseKeys.of(chain, vector["federation"], vector["round"], digest)
    assert (keys.words.hex(), keys.further.hex()) == (vector["words_key"], vector["further_key"])
    assert keys.blocks(1, np.array([0])).tobytes().hex() == vector["further_block_draw0_r1"]
    words = keys.add(content, std, vector["h"])
    assert words.tolist() == [int(x) for x in vector["words"]]
    assert words.astype(np.uint32).tolist() == [int(x) for x in vector["ring4"]]
    assert next_chain_key(chain).hex() == vector["next_chain_key"]


@pytest.mark.parametrize("vector", V["tails"], ids=lambda v: f"s = {v['s']}")
def test_vectors_of_the_tails(vector: dict[str, Any]) -> None:
    keys = NoiseKeys(bytes.fromhex(vector["words_key"]), bytes.fromhex(vector["further_key"]))
    found = keys.add(np.zeros(1 << 21, np.int64), vector["s"], 0)
    drawn = {int(n): int(x) for n, x in vector["draws"].items()}
    assert {n: int(found[n]) for n in drawn} == drawn
    assert int(found.sum()) == int(vector["sum_first_2_21"])
    expected = vector["sha256_of_first_2_21_as_le_int64"]
    assert hashlib.sha256(found.astype("<i8").tobytes()).hexdigest() == expected


def test_vectors_that_need_more_than_floating_point() -> None:
    vector = V["ambiguous"]
    found = KEYS.add(np.zeros(20_000, np.int64), float.fromhex(vector["s_hex"]), 0)
    assert {n: int(found[int(n)]) for n in vector["draws"]} == {
        n: int(x) for n, x in vector["draws"].items()
    }


@pytest.mark.parametrize("std", [0.75, 2.5, 2.0**20 + 0.5, 2.0**46 * 1.1])
def test_draws_equal_those_at_high_precision(std: float) -> None:
    drawn = np.random.default_rng(7)
    words = drawn.integers(0, 2**64, 40, np.uint64)
    words[:20] >>= drawn.integers(1, 60, 20).astype(np.uint64)  # far into the tails
    content = drawn.integers(-(2**40), 2**40, 40)
    found = rounded_normal(words, std, KEYS.blocks, content, 12, first=5)
    for n in range(40):
        a = Fraction(int(content[n]), 1 << 12)
        assert found[n] == exact_draw(int(words[n]), n + 5, a, std, KEYS.blocks), n


def test_the_rarest_word_is_drawn_too() -> None:
    words = np.array([0, 1], np.uint64)
    up, down = rounded_normal(words, 100.0, KEYS.blocks).tolist()
    assert 900 < up < 1400
    assert -1400 < down < -900


def test_pieces_are_the_whole() -> None:
    whole = KEYS.add(np.zeros(100_000, np.int64), 1e6, 0)
    assert np.array_equal(whole[:50_000], KEYS.add(np.zeros(50_000, np.int64), 1e6, 0))


@pytest.mark.parametrize("law", V["pmf"], ids=lambda law: f"s = {law['s']}")
def test_the_law_is_the_exact_one(law: dict[str, Any]) -> None:
    fine = 20
    content = np.full(1_000_000, round(float(law["offset"]) * 2**fine), np.int64)
    found = KEYS.add(content, float(law["s"]), fine)
    values = [int(x) for x in law["p"]]
    expected = np.array([float(p) for p in law["p"].values()]) * len(found)
    seen = np.array([(found == x).sum() for x in values])
    large = expected > 10
    statistic = float(((seen - expected)[large] ** 2 / expected[large]).sum())
    assert chi2.sf(statistic, int(large.sum())) > 1e-6


def test_other_content_has_other_noise() -> None:
    chain, one, other = bytes(32), np.zeros(1000, np.int64), np.zeros(1000, np.int64)
    other[0] = 1
    drawn = [
        NoiseKeys.of(chain, "f", 1, content_digest(c, 1e6, 33, 0)).add(c, 1e6, 0)
        for c in (one, other)
    ]
    assert np.mean(drawn[0] == drawn[1]) < 0.01
    assert np.array_equal(
        drawn[0], NoiseKeys.of(chain, "f", 1, content_digest(one, 1e6, 33, 0)).add(one, 1e6, 0)
    )
    assert abs(float(drawn[0] @ drawn[1])) < 0.2 * 1000 * 1e12


def test_cells_of_the_table_computed_anew() -> None:
    table = load_table()
    assert len(table.middle) == OCTAVES * CELLS
    for octave, number in ((0, 0), (0, 127), (3, 64), (11, 5), (40, 99), (62, 127)):
        middle, terms = cell(octave, number, bits=260)
        at = octave * CELLS + number
        assert abs(table.middle[at] - middle) <= 1
        assert table.terms[at].tolist() == terms


def test_a_cells_polynomial_is_the_quantile() -> None:
    table = load_table()
    with mpmath.workprec(120):
        p = mpmath.mpf(2) ** -2 * (1 + mpmath.mpf(10.9) / CELLS)  # octave 0, cell 10, t = 0.4
        value = mpmath.mpf(table.middle[10]) / 2**120
        value += sum(
            mpmath.mpf(c) * mpmath.mpf(0.4) ** (k + 1) for k, c in enumerate(table.terms[10])
        )
        assert abs(mpmath.erfc(value / mpmath.sqrt(2)) / 2 - p) < mpmath.mpf(2) ** -56


@pytest.mark.parametrize("std", [0.4, 2.0**48, float("nan")])
def test_deviations_beyond_the_error_bounds_are_refused(std: float) -> None:
    with pytest.raises(InvalidSetting, match="expected ½ to 2⁴⁷"):
        rounded_normal(np.zeros(1, np.uint64), std, KEYS.blocks)


def test_draws_are_normal_and_those_of_two_steps_have_nothing_in_common() -> None:
    source = CipherDraws(b"k" * 32)
    first, second = source.normal(0, 50_000), source.normal(50_000, 50_000)
    for draws in (first, second):
        assert kstest(draws, "norm").pvalue > 1e-3
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.02
    assert np.array_equal(first, CipherDraws(b"k" * 32).normal(0, 50_000))
