"""Laws of compressors: all of them are enrolled in one suite that measures bias and variance
against what they state, weighs what travels, and feeds their decoders what no client sends."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from eris.core import kernels
from eris.core.compress import (
    QSGD,
    Encoded,
    Encoding,
    MaskCompressor,
    Natural,
    Quantiser,
    RandK,
    RandP,
    TopK,
    UniformQuantiser,
    decode_values,
    encode_values,
    error_feedback,
)
from eris.core.errors import InvalidSetting, MalformedMessage
from eris.core.masks import KeptSet, exactly_kept, fraction_kept
from eris.core.shards import ContiguousPlan, RandomPlan, ShardPlan, WeightedPlan
from eris.core.streams import Stream

Vector = NDArray[np.float32]
Doubles = NDArray[np.float64]
SIZE = 48
DRAWS = 2_000
SIGMAS = 5.0
CONFIDENCE = 16.0
"""A bound fails by chance with probability 3·exp(−16) or that of five standard deviations, both
below 1e-6; about 4000 are checked, on fixed seeds."""


def members(kept: KeptSet) -> NDArray[np.bool_]:
    """Kept or not, for every coordinate, read from the bits without the package's help."""
    bits = np.unpackbits(kept.bits.astype("<u8").view(np.uint8), bitorder="little")
    assert not bits[kept.n :].any(), "a coordinate beyond n is kept"
    return bits[: kept.n].astype(np.bool_)


@dataclass(frozen=True)
class Enrolled:
    """A compressor with what it documents: its ω and the bytes of a segment."""

    compressor: MaskCompressor | Quantiser
    sent: Callable[[int], int]
    exact: bool = False
    """ω is the variance itself, not a bound on it."""

    def spread(self, values: Doubles) -> Doubles:
        """How far apart the values that a coordinate may become are, at most."""
        match self.compressor:
            case RandP() | RandK():
                return np.abs(values) * (1 + self.compressor.omega(len(values)))
            case QSGD(levels):
                return np.full(len(values), np.linalg.norm(values) / levels)
            case UniformQuantiser(bits):
                return np.full(len(values), 2 * np.abs(values).max() / (2**bits - 1))
            case Natural():
                return np.asarray(2 ** np.floor(np.log2(np.abs(values))))

    def compress(self, values: Vector, draw: Stream) -> Vector:
        """C(x)."""
        if isinstance(self.compressor, (RandP, RandK)):
            kept = self.compressor.kept(len(values), draw)
            result = np.zeros_like(values)
            positions = kept.among(np.arange(len(values)))
            result[positions] = values[positions] * np.float32(kept.scale)
            return result
        return self.compressor.decode(self.compressor.encode(values, draw), len(values))


def packed(width: int) -> Callable[[int], int]:
    return lambda size: -(-size * width // 8)


ENROLLED = {
    "rand-p 0.9": Enrolled(RandP(0.9), lambda size: 4 * size, exact=True),
    "rand-p 0.05": Enrolled(RandP(0.05), lambda size: 4 * size, exact=True),
    "rand-p 1": Enrolled(RandP(1.0), lambda size: 4 * size, exact=True),
    "rand-k 5": Enrolled(RandK(5), lambda size: 4 * 5, exact=True),
    "rand-k all": Enrolled(RandK(SIZE), lambda size: 4 * SIZE, exact=True),
    "qsgd 1": Enrolled(QSGD(1), packed(2)),
    "qsgd 4": Enrolled(QSGD(4), packed(4)),
    "qsgd 16": Enrolled(QSGD(), packed(6)),
    "qsgd 127": Enrolled(QSGD(127), packed(8)),
    "qsgd 32767": Enrolled(QSGD(32767), packed(16)),
    "uniform 1": Enrolled(UniformQuantiser(1), packed(1)),
    "uniform 3": Enrolled(UniformQuantiser(3), packed(3)),
    "uniform 8": Enrolled(UniformQuantiser(), packed(8)),
    "uniform 24": Enrolled(UniformQuantiser(24), packed(24)),
    "natural": Enrolled(Natural(), packed(9)),
}
QUANTISERS = [
    pytest.param(entry.compressor, entry.sent, id=name)
    for name, entry in ENROLLED.items()
    if not isinstance(entry.compressor, (RandP, RandK))
]
everyone = pytest.mark.parametrize("enrolled", ENROLLED.values(), ids=ENROLLED)
every_quantiser = pytest.mark.parametrize(("compressor", "sent"), QUANTISERS)


def mixed() -> Vector:
    """Values of both signs, none so small that its draws would be too rare to count."""
    normal = Stream(1, "example").normal(0, SIZE)
    return (normal + np.copysign(0.3, normal)).astype(np.float32)


VECTORS = {
    "mixed": mixed(),
    "all alike": np.full(SIZE, -0.7, np.float32),
    "one large": np.where(np.arange(SIZE) == 7, -20, 0.5).astype(np.float32),
    "thirds": (np.float32(4 / 3) * 2.0 ** (np.arange(SIZE) % 5 - 2)).astype(np.float32),
}


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
        "INDEXED": 6,
    }
    values = np.array([0.5, -1.25, 3, 0, -0.1, 2e-3, 7, -7], np.float32)
    draw = Stream(1, "pinned")
    assert encode_values(values[:2]).data == bytes.fromhex("0000003f0000a0bf")
    assert [
        compressor.encode(values, draw).data.hex()
        for compressor in (QSGD(4), UniformQuantiser(5), Natural(), TopK(0.25))
    ] == GOLDEN_WIRE


GOLDEN_WIRE = ["45454427", "915908df07", "7efe0602b0d78e20c1", "06000000070000000000e0400000e0c0"]


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


# Bad bytes.


def complaint(attempt: Callable[[], object]) -> str:
    with pytest.raises(MalformedMessage) as caught:
        attempt()
    return caught.value.field


@every_quantiser
def test_decoders_refuse_what_no_client_sends(
    compressor: Quantiser, sent: Callable[[int], int]
) -> None:
    good = compressor.encode(VECTORS["mixed"], Stream(1, "bad"))

    def field(**changes: object) -> str:
        return complaint(lambda: compressor.decode(replace(good, **changes), SIZE))  # type: ignore[arg-type]

    for other in Encoding:
        if other != compressor.encoding:
            assert field(encoding=other) == "payload.encoding"
    for count in (0, SIZE - 1, SIZE + 1, 2**62, -1):
        assert field(count=count) == "payload.count"
    for data in (b"", good.data[:-1], good.data + b"\0", good.data * 2):
        assert field(data=data) == "payload.data"
    for parameter in (math.nan, math.inf, -math.inf, -1.0, 3.5e38, 1e300):
        assert field(parameter=parameter) == "payload.parameter"
    for size in (SIZE - 1, SIZE + 8):
        with pytest.raises(MalformedMessage, match=f"payload.count: is {SIZE}; expected {size}"):
            compressor.decode(good, size)
    # Every byte string of the right length is either decoded to finite values or refused.
    refused = set()
    for seed in range(20):
        noise = Stream(seed, "noise").words(0, sent(SIZE)).astype(np.uint8).tobytes()
        try:
            decoded = compressor.decode(replace(good, data=noise), SIZE)
        except MalformedMessage as refusal:
            refused.add(refusal.field)
        else:
            assert np.isfinite(decoded).all()
    assert refused <= {"payload.data"}


def test_the_refusal_says_what_was_expected() -> None:
    encoded = encode_values(np.ones(3, np.float32))
    with pytest.raises(MalformedMessage, match=r"payload.count: is 3; expected 4 values"):
        decode_values(encoded, Encoding.DENSE, 4)
    with pytest.raises(MalformedMessage, match=r"payload.encoding: is .*DENSE.*uses .*KEPT"):
        decode_values(encoded, Encoding.KEPT, 3)
    with pytest.raises(MalformedMessage, match=r"payload.data: has 11 bytes; expected 12"):
        decode_values(replace(encoded, data=encoded.data[:-1]), Encoding.DENSE, 3)


def test_codes_beyond_the_last_level_are_refused() -> None:
    for code in range(16):
        encoded = Encoded(Encoding.QSGD, 1, bytes([code]), 1.0)
        if code <= 8:
            assert QSGD(4).decode(encoded, 1).tolist() == [(code - 4) / 4]
        else:
            with pytest.raises(MalformedMessage, match=f"payload.data: holds code {code} above 8"):
                QSGD(4).decode(encoded, 1)


def test_natural_refuses_exponents_of_nothing() -> None:
    for code in (0xFF, 0x1FF):
        encoded = Encoded(Encoding.NATURAL, 1, code.to_bytes(2, "little"))
        with pytest.raises(MalformedMessage, match=r"payload.data: holds an exponent"):
            Natural().decode(encoded, 1)


@pytest.mark.parametrize(
    ("build", "setting"),
    [
        (lambda: RandP(0.0), "kept_fraction is 0.0"),
        (lambda: RandP(-0.1), "kept_fraction is -0.1"),
        (lambda: RandP(1.0001), "kept_fraction is 1.0001"),
        (lambda: RandP(math.nan), "kept_fraction is nan"),
        (lambda: TopK(0.0), "kept_fraction is 0.0"),
        (lambda: TopK(1.5), "kept_fraction is 1.5"),
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


# Kept sets.


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.integers(1, 3000),
    st.floats(1e-3, 1),
    st.integers(0, 2**64 - 1),
    st.lists(st.integers(0, 2999), max_size=60),
)
def test_a_coordinate_is_kept_or_not_whoever_asks(
    n: int, fraction: float, seed: int, some: list[int]
) -> None:
    stream = Stream(seed, "mask", 4)
    for kept in (
        fraction_kept(n, fraction, stream),
        exactly_kept(n, max(1, int(fraction * n)), stream),
    ):
        whole = members(kept)
        assert kept.count == whole.sum()
        asked = np.array([i for i in some if i < n], np.int64)
        positions = kept.among(asked)
        assert positions.tolist() == [j for j, i in enumerate(asked.tolist()) if whole[i]]
        assert np.array_equal(kept.among(np.arange(n)), np.flatnonzero(whole))


@pytest.mark.parametrize(
    "plan", [RandomPlan(7), RandomPlan(1), ContiguousPlan(3), WeightedPlan((1, 2, 3))]
)
def test_the_plan_does_not_change_the_kept_set(plan: ShardPlan) -> None:
    n = 5000
    kept, shard_map = RandP(0.1).kept(n, Stream(1, "mask")), plan.at(n)
    found = []
    for shard in range(shard_map.shards):
        inside = shard_map.coordinates(shard)
        found.append(inside[kept.among(inside)])
    assert np.array_equal(np.sort(np.concatenate(found)), np.flatnonzero(members(kept)))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(1, 2000), st.integers(1, 2000), st.floats(0.001, 1), st.integers(0, 99))
def test_a_longer_vector_keeps_the_same_beginning(
    n: int, more: int, fraction: float, round: int
) -> None:
    stream = Stream(6, "mask", round)
    short, long = RandP(fraction).kept(n, stream), RandP(fraction).kept(n + more, stream)
    assert np.array_equal(members(long)[:n], members(short))
    assert short.scale == long.scale


def test_a_kept_set_is_what_its_words_say() -> None:
    stream, n = Stream(8, "mask", 2), 10_000
    words = stream.words(0, n).astype(np.int64)
    for fraction in (0.3, 1 / 3, 0.5, 0.999):
        threshold = round(fraction * 2**32)
        kept = fraction_kept(n, fraction, stream)
        assert np.array_equal(members(kept), words < threshold)
        assert kept.scale == 2**32 / threshold
    # Exactly at the edge: the word below the threshold is kept, the word at it is not.
    edge = int(words[17])
    assert not members(fraction_kept(n, edge / 2**32, stream))[17]
    assert members(fraction_kept(n, (edge + 1) / 2**32, stream))[17]


def test_kept_sets_of_everything_and_of_almost_nothing() -> None:
    everything = RandP(1.0).kept(1000, Stream(1, "mask"))
    assert members(everything).all()
    assert (everything.count, everything.scale) == (1000, 1.0)
    for fraction in (1e-10, 1e-300, 5e-324):
        nothing = RandP(fraction).kept(1000, Stream(1, "mask"))
        assert (nothing.count, nothing.scale) == (0, 2.0**32)
        assert nothing.among(np.arange(1000)).tolist() == []
    almost = RandP(1 - 2.0**-53).kept(1000, Stream(1, "mask"))
    assert (almost.count, almost.scale) == (1000, 1.0)


def test_the_share_kept_is_the_share_asked_for() -> None:
    n = 1_000_000
    for fraction in (0.5, 0.033, 0.001):
        kept = RandP(fraction).kept(n, Stream(2, "mask"))
        assert abs(kept.count - fraction * n) < SIGMAS * math.sqrt(n * fraction * (1 - fraction))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(1, 3000), st.floats(0, 1), st.integers(0, 2**64 - 1))
def test_exactly_k_are_kept_those_of_the_smallest_words(n: int, share: float, seed: int) -> None:
    count, stream = 1 + round(share * (n - 1)), Stream(seed, "mask", 1)
    kept = RandK(count).kept(n, stream)
    expected = np.zeros(n, np.bool_)
    expected[np.argsort(stream.words(0, n), kind="stable")[:count]] = True
    assert kept.count == count
    assert kept.scale == n / count
    assert np.array_equal(members(kept), expected)


def tied(words: NDArray[np.uint32], times: int) -> list[int]:
    """The words that occur so many times."""
    ordered = np.sort(words)
    same = ordered[times - 1 :] == ordered[: len(words) - times + 1]
    return [int(word) for word in np.unique(ordered[times - 1 :][same])]


def test_of_equal_words_the_lower_coordinate_is_kept() -> None:
    n, stream = 300_000, Stream(3, "mask")
    words = stream.words(0, n)
    ties = tied(words, 2)
    assert len(ties) >= 3, "no two words are equal; the test needs some"
    order = np.argsort(words, kind="stable")
    for word in ties:
        below = int((words < word).sum())
        for count in (below, below + 1, below + 2):
            expected = np.zeros(n, np.bool_)
            expected[order[:count]] = True
            kept = exactly_kept(n, count, stream)
            assert kept.count == count
            assert np.array_equal(members(kept), expected)


def test_of_three_equal_words_the_first_or_the_first_two_are_kept() -> None:
    n, stream = 6_000_000, Stream(8, "mask")
    words = stream.words(0, n)
    triples = tied(words, 3)
    assert triples, "no three words are equal; the test needs them"
    places = np.flatnonzero(words == triples[0])
    below = int((words < triples[0]).sum())
    for more in (1, 2, 3):
        kept = exactly_kept(n, below + more, stream)
        assert kept.count == below + more
        assert kept.among(places).tolist() == list(range(more))


# top-k.


def test_top_k_is_biased() -> None:
    values = np.array([3, -4, 1, 2], np.float32)
    encoded = TopK(0.5).encode(values, Stream(1, "top"))
    assert TopK(0.5).decode(encoded, 4).tolist() == [3, -4, 0, 0]
    # Nothing is drawn, so the error of one draw is the bias.
    assert TopK(0.5).encode(values, Stream(2, "top")) == encoded


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.floats(-9, 9, width=32), min_size=1, max_size=40), st.floats(0.01, 1))
def test_top_k_keeps_the_largest_and_contracts(numbers: list[float], fraction: float) -> None:
    values, top = np.array(numbers, np.float32), TopK(fraction)
    size = len(values)
    count = max(1, round(fraction * size))
    encoded = top.encode(values, Stream(0, "top"))
    assert (encoded.count, len(encoded.data)) == (count, 8 * count)
    decoded = top.decode(encoded, size)
    assert decoded.dtype == np.float32
    best = sorted(range(size), key=lambda i: (-abs(numbers[i]), i))[:count]
    expected = np.zeros(size, np.float32)
    expected[best] = values[best]
    assert np.array_equal(decoded, expected)
    left, whole = np.square(values - decoded).sum(), np.square(values).sum()
    assert left <= (1 - count / size) * whole * (1 + 1e-6)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(1, 30), st.integers(1, 12), st.floats(0.01, 1), st.integers(0, 2**64 - 1))
def test_error_feedback_loses_nothing(size: int, rounds: int, fraction: float, seed: int) -> None:
    # Whole numbers, so that every sum is exact.
    words = Stream(seed, "updates").words(0, size * rounds).reshape(rounds, size)
    updates = (words % np.uint32(201)).astype(np.float32) - np.float32(100)
    top, memory = TopK(fraction), np.zeros(size, np.float32)
    arrived = np.zeros(size, np.float32)
    for update in updates:
        encoded, memory = error_feedback(top, update, memory, Stream(seed, "top"))
        arrived += top.decode(encoded, size)
        assert (memory[top.decode(encoded, size) != 0] == 0).all()
    assert np.array_equal(arrived + memory, updates.sum(axis=0))


def test_without_memory_small_coordinates_never_arrive() -> None:
    update, memory = np.array([10, 1], np.float32), np.zeros(2, np.float32)
    top, arrived, without = TopK(0.5), np.zeros(2, np.float32), np.zeros(2, np.float32)
    for _ in range(50):
        encoded, memory = error_feedback(top, update, memory, Stream(0, "top"))
        arrived += top.decode(encoded, 2)
        without += top.decode(top.encode(update, Stream(0, "top")), 2)
    assert without[1] == 0
    assert arrived[1] >= 40


def test_top_k_refuses_what_no_client_sends() -> None:
    top = TopK(0.5)
    good = top.encode(np.array([1, 2, 3, 4], np.float32), Stream(0, "top"))

    def indices(*numbers: int) -> Encoded:
        return replace(good, data=np.array(numbers, "<u4").tobytes() + good.data[8:])

    for bad in (indices(3, 2), indices(2, 2), indices(2, 4), indices(0, 2**32 - 1)):
        with pytest.raises(MalformedMessage, match=r"payload.data: indices must .* below 4"):
            top.decode(bad, 4)
    assert top.decode(indices(0, 1), 4).tolist() == [3, 4, 0, 0]
    assert complaint(lambda: top.decode(replace(good, count=1), 4)) == "payload.count"
    assert complaint(lambda: top.decode(replace(good, data=good.data[:-4]), 4)) == "payload.data"
    assert complaint(lambda: top.decode(good, 8)) == "payload.count"
    dense = replace(good, encoding=Encoding.DENSE)
    assert complaint(lambda: top.decode(dense, 4)) == "payload.encoding"
