"""Laws of compressors: all of them are enrolled in one suite that measures bias and variance
against what they state and weighs what travels."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eris.core import kernels
from eris.core.compress import (
    QSGD,
    Encoded,
    Encoding,
    Natural,
    Quantiser,
    RandK,
    RandP,
    UniformQuantiser,
    decode_values,
    encode_values,
)
from eris.core.errors import InvalidSetting
from eris.core.streams import Stream
from support.compressors import CONFIDENCE, ENROLLED, SIGMAS, SIZE, VECTORS, Enrolled, Vector

DRAWS = 2_000
everyone = pytest.mark.parametrize("enrolled", ENROLLED.values(), ids=ENROLLED)


# Bias and variance.


@everyone
@pytest.mark.parametrize("values", VECTORS.values(), ids=VECTORS)
def test_unbiased_with_the_variance_it_states(enrolled: Enrolled, values: Vector) -> None:
    exact = values.astype(np.float64)
    size = float(exact @ exact)
    draws = np.stack(
        [enrolled.compress(values, Stream(3, "law", round)) for round in range(DRAWS)]
    ).astype(np.float64)
    rounding = 2.0**-23 * np.abs(draws).max()

    errors = draws - exact
    # Bernstein's bound with the measured deviation (Audibert, Munos, Szepesvári, 2009): unlike a
    # number of standard deviations it holds for draws of which one in thousands differs.
    bound = draws.std(axis=0) * math.sqrt(2 * CONFIDENCE / DRAWS)
    bound += 3 * CONFIDENCE / DRAWS * enrolled.spread(exact) + rounding
    assert (np.abs(errors.mean(axis=0)) <= bound).all(), "a coordinate is biased"
    along = errors @ exact / size
    deviation = SIGMAS * along.std() / math.sqrt(DRAWS)
    assert abs(along.mean()) <= deviation + 2.0**-23, "the length is biased"

    variances = (errors**2).sum(axis=1) / size
    deviation = SIGMAS * variances.std() / math.sqrt(DRAWS)
    omega = enrolled.compressor.omega(SIZE)
    deviation += 2.0**-21 * omega + 2.0**-46
    assert variances.mean() <= omega + deviation
    if enrolled.exact:
        assert variances.mean() >= omega - deviation


def test_some_vectors_reach_the_bound() -> None:
    def variance(enrolled: Enrolled, values: Vector) -> float:
        errors = [
            enrolled.compress(values, Stream(4, "law", r)).astype(np.float64) - values
            for r in range(DRAWS)
        ]
        return float(np.mean(np.square(errors).sum(axis=1)) / np.square(values, dtype=float).sum())

    assert variance(ENROLLED["natural"], VECTORS["thirds"]) == pytest.approx(1 / 8, rel=0.02)
    alike = np.ones(16, np.float32)
    # One level: ‖x‖ or 0, so Σ|x|·‖x‖ − ‖x‖² = (√d − 1)‖x‖², next to the stated √d.
    assert variance(ENROLLED["qsgd 1"], alike) == pytest.approx(3, rel=0.05)
    between = np.where(np.arange(SIZE) == 0, 1, 0).astype(np.float32)
    # One bit: ±reach, so a zero is as far away as can be.
    assert variance(ENROLLED["uniform 1"], between) == pytest.approx(SIZE - 1, rel=1e-6)


def test_stated_variances() -> None:
    assert RandP(0.25).omega(10) == 3
    assert RandK(20).omega(100) == 4
    assert QSGD(4).omega(4) == 4 / 16
    assert QSGD(4).omega(100) == 10 / 4
    assert UniformQuantiser(2).omega(18) == 2
    assert Natural().omega(7) == 1 / 8


def test_draws_of_other_rounds_differ_and_of_one_round_do_not() -> None:
    for name, enrolled in ENROLLED.items():
        one = enrolled.compress(VECTORS["mixed"], Stream(3, "law", 1))
        again = enrolled.compress(VECTORS["mixed"], Stream(3, "law", 1))
        other = enrolled.compress(VECTORS["mixed"], Stream(3, "law", 2))
        assert np.array_equal(one, again)
        identity = name in ("rand-p 1", "rand-k all")
        assert np.array_equal(one, other) == identity


# Special vectors.


@everyone
def test_zero_stays_zero(enrolled: Enrolled) -> None:
    for values in (np.zeros(SIZE, np.float32), np.full(SIZE, np.float32(-0.0))):
        assert (enrolled.compress(values, Stream(1, "zero")) == 0).all()


@everyone
@pytest.mark.parametrize("magnitude", [1e-45, 1e-40, 1.1754944e-38, 1e-30, 1e30, 1.7e38])
def test_extreme_magnitudes_stay_finite_and_in_proportion(
    enrolled: Enrolled, magnitude: float
) -> None:
    values = np.array([magnitude, -magnitude, 0] + [0.0] * (SIZE - 3), np.float32)
    if isinstance(enrolled.compressor, (RandP, RandK)) and magnitude > 1e37:
        values /= np.float32(32)  # n/k times as much must still be a float32
    result = enrolled.compress(values, Stream(1, "extreme"))
    assert np.isfinite(result).all()
    norm = float(np.sqrt(np.square(values, dtype=np.float64).sum()))
    limit = max(20.5 * norm, 2.0**-126)
    assert float(np.abs(result).max()) <= limit


@everyone
@pytest.mark.parametrize("value", [3.0, -0.37, 2e-38, 0.0])
def test_a_single_coordinate(enrolled: Enrolled, value: float) -> None:
    values = np.array([value], np.float32)
    if isinstance(enrolled.compressor, RandK):
        enrolled = Enrolled(RandK(1), enrolled.sent)
    draws = [float(enrolled.compress(values, Stream(2, "one", r))[0]) for r in range(500)]
    deviation = SIGMAS * float(np.std(draws)) / math.sqrt(500)
    assert abs(np.mean(draws) - float(values[0])) <= deviation + 2.0**-23 * abs(float(values[0]))


def test_natural_rounds_subnormals_without_bias_to_the_smallest_normal() -> None:
    value = np.float32(3e-39)
    draws = Natural().decode(
        Natural().encode(np.full(100_000, value), Stream(1, "subnormal")), 100_000
    )
    smallest = 2.0**-126
    assert set(draws.tolist()) == {0.0, smallest}
    chance = float(value) / smallest
    deviation = SIGMAS * math.sqrt(chance * (1 - chance) / 100_000)
    assert abs(float((draws > 0).mean()) - chance) < deviation


def test_quantisers_give_points_of_their_grid() -> None:
    values = VECTORS["mixed"]
    norm = float(np.linalg.norm(values.astype(np.float64)))
    for levels in (1, 4, 127):
        encoded = QSGD(levels).encode(values, Stream(1, "grid"))
        assert norm <= encoded.parameter <= norm * (1 + 2.0**-23)
        steps = QSGD(levels).decode(encoded, SIZE).astype(np.float64) * levels / encoded.parameter
        assert np.abs(steps - np.round(steps)).max() < 1e-4
        assert np.abs(steps - values * levels / norm).max() < 1.0001, "not a neighbour"
    for bits in (1, 3, 8):
        encoded = UniformQuantiser(bits).encode(values, Stream(1, "grid"))
        reach = float(np.abs(values).max())
        assert encoded.parameter == reach
        result = UniformQuantiser(bits).decode(encoded, SIZE).astype(np.float64)
        places = (result + reach) * (2**bits - 1) / (2 * reach)
        assert np.abs(places - np.round(places)).max() < 1e-3
        assert np.abs(result - values).max() < 2 * reach / (2**bits - 1) * 1.0001
    result = np.abs(Natural().decode(Natural().encode(values, Stream(1, "grid")), SIZE))
    assert (np.frexp(result)[0] == 0.5).all()
    assert (result / np.abs(values) > 0.5).all()
    assert (result / np.abs(values) <= 2).all()


# On the wire.


@everyone
@pytest.mark.parametrize("size", [1, 7, 8, 100, 1001])
def test_what_travels_weighs_what_is_documented(enrolled: Enrolled, size: int) -> None:
    values = Stream(1, "wire").normal(0, size).astype(np.float32)
    compressor = enrolled.compressor
    if isinstance(compressor, (RandP, RandK)):
        if isinstance(compressor, RandK) and compressor.kept_count > size:
            with pytest.raises(InvalidSetting, match=f"expected at most n = {size} coordinates"):
                compressor.kept(size, Stream(1, "draw"))
            return
        kept = compressor.kept(size, Stream(1, "draw"))
        positions = kept.among(np.arange(size))
        encoded = encode_values(values[positions], Encoding.KEPT)
        assert len(encoded.data) == 4 * kept.count <= enrolled.sent(size)
        assert np.array_equal(decode_values(encoded, Encoding.KEPT, kept.count), values[positions])
        return
    encoded = compressor.encode(values, Stream(1, "draw"))
    assert encoded.encoding == compressor.encoding
    assert encoded.count == size
    assert len(encoded.data) == enrolled.sent(size)
    decoded = compressor.decode(encoded, size)
    assert decoded.dtype == np.float32
    assert decoded.shape == (size,)
    assert decoded.dtype.isnative


def test_numbers_on_the_wire_are_pinned() -> None:
    assert {encoding.name: int(encoding) for encoding in Encoding} == {
        "DENSE": 1,
        "KEPT": 2,
        "QSGD": 3,
        "UNIFORM": 4,
        "NATURAL": 5,
        "SPARSE": 7,
        "RING": 8,
        "CLUSTERED": 9,
        "CIPHERTEXTS": 10,
    }
    values = np.array([0.5, -1.25, 3, 0, -0.1, 2e-3, 7, -7], np.float32)
    draw = Stream(1, "pinned")
    assert encode_values(values[:2]).data == bytes.fromhex("0000003f0000a0bf")
    assert [
        compressor.encode(values, draw).data.hex()
        for compressor in (QSGD(4), UniformQuantiser(5), Natural())
    ] == GOLDEN_WIRE


GOLDEN_WIRE = ["45454427", "915908df07", "7efe0602b0d78e20c1"]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(1, 24), st.integers(0, 40), st.integers(0, 2**64 - 1))
def test_codes_are_packed_lowest_bit_first(width: int, count: int, seed: int) -> None:
    codes = Stream(seed, "codes").words(0, count) >> np.uint32(32 - width)
    size = -(-count * width // 8)
    out = np.full(size, 0xAA, np.uint8)
    kernels.pack_codes(out, codes, width)
    number = sum(code << (i * width) for i, code in enumerate(codes.tolist()))
    assert out.tobytes() == number.to_bytes(size, "little")
    back = np.zeros(count, np.uint32)
    kernels.unpack_codes(back, out, width)
    assert np.array_equal(back, codes)


@pytest.mark.parametrize(
    ("compressor", "expected"),
    [(QSGD(4), 7.5), (UniformQuantiser(4), 2 * 10 * 14 / 15 - 10)],
)
def test_codes_mean_what_is_documented(
    compressor: QSGD | UniformQuantiser, expected: float
) -> None:
    # Of QSGD code 7 is level 3 of 4; of the quantiser code 14 is the 14th step of 15.
    code = 7 if isinstance(compressor, QSGD) else 14
    encoded = Encoded(compressor.encoding, 1, bytes([code]), 10.0)
    assert compressor.decode(encoded, 1).tolist() == [np.float32(expected)]


def test_natural_codes_are_exponent_and_sign() -> None:
    encoded = Encoded(
        Encoding.NATURAL, 3, (0 | 127 << 9 | (0x100 | 128) << 18).to_bytes(4, "little")
    )
    assert Natural().decode(encoded, 3).tolist() == [0, 1, -2]


# Settings.


@pytest.mark.parametrize(
    ("build", "setting"),
    [
        (lambda: RandP(0.0), "kept_fraction is 0.0"),
        (lambda: RandP(-0.1), "kept_fraction is -0.1"),
        (lambda: RandP(1.0001), "kept_fraction is 1.0001"),
        (lambda: RandP(math.nan), "kept_fraction is nan"),
        (lambda: RandK(0), "kept_count is 0"),
        (lambda: QSGD(0), "levels is 0"),
        (lambda: QSGD(1 << 15), "levels is 32768"),
        (lambda: UniformQuantiser(0), "bits is 0"),
        (lambda: UniformQuantiser(25), "bits is 25"),
    ],
)
def test_settings_out_of_range_are_refused(build: Callable[[], object], setting: str) -> None:
    with pytest.raises(InvalidSetting, match=setting):
        build()


# What a value may become.


@pytest.mark.parametrize("quantiser", [QSGD(1), QSGD(16), UniformQuantiser(3), Natural()], ids=repr)
@pytest.mark.parametrize("values", VECTORS.values(), ids=VECTORS)
def test_nothing_drawn_is_beyond_the_stated_reach(quantiser: Quantiser, values: Vector) -> None:
    drawn = [
        quantiser.decode(quantiser.encode(values, Stream(5, "reach", round)), len(values))
        for round in range(500)
    ]
    largest = float(np.abs(drawn).max())
    assert largest <= quantiser.reach(values)
    assert quantiser.reach(np.zeros(3, np.float32)) == 0


@pytest.mark.parametrize("quantiser", [QSGD(1), UniformQuantiser(3), Natural()], ids=repr)
def test_the_stated_reach_is_reached(quantiser: Quantiser) -> None:
    values = np.full(40, 0.7, np.float32)
    drawn = [
        quantiser.decode(quantiser.encode(values, Stream(6, "reach", round)), len(values))
        for round in range(100)
    ]
    assert float(np.abs(drawn).max()) == quantiser.reach(values)
