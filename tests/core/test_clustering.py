"""Clusters of weights: beside a slow optimum, beside a bound of duality, and their laws."""

from __future__ import annotations

import hashlib
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eris.core import clustering
from eris.core.clustering import Codebook, clustered
from eris.core.errors import InvalidSetting
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.testing import assert_same_bits


def normal(n: int, number: int = 0) -> Vector:
    return Stream(7, "test-clustering", number).normal(0, n).astype(np.float32)


def laplace(n: int) -> Vector:
    return normal(n, 1) * np.abs(normal(n, 2))


def shapes(n: int) -> dict[str, Vector]:
    """Weights as layers have them, and what troubles a histogram of equal bins."""
    scales = np.repeat(np.geomspace(0.005, 0.5, 10), -(-n // 10))[:n]
    few = np.arange(n) < n // 50
    return {
        "normal": normal(n),
        "peaked": laplace(n),
        "ten layers": (laplace(n) * scales).astype(np.float32),
        "one outlier": np.append(normal(n - 1), np.float32(1000)),
        "a peak among outliers": np.where(few, normal(n), normal(n) / 1000).astype(np.float32),
        "heavy tails": normal(n) / normal(n, 3),
        "far from 0": 1000 + 100 * normal(n),
        "two far groups": normal(n) + np.where(np.arange(n) % 2, 500, -500).astype(np.float32),
        "eighty decades": np.exp(60 * Stream(7, "test-decades").uniform(0, n)).astype(np.float32),
    }


def inertia(values: Vector, book: Codebook) -> float:
    return float(np.square(values.astype(np.float64) - book.values()).sum())


# -- how good -------------------------------------------------------------------------------------


def least(values: list[int], clusters: int) -> Fraction:
    """The least inertia, from all cuts of the sorted values, in fractions."""
    ordered = sorted(values)
    costs = {}
    for i in range(len(ordered)):
        total = squares = 0
        for j in range(i, len(ordered)):
            total, squares = total + ordered[j], squares + ordered[j] ** 2
            costs[i, j + 1] = squares - Fraction(total**2, j + 1 - i)
    best = {j: costs[0, j] for j in range(1, len(ordered) + 1)}
    for k in range(1, clusters):
        best = {
            j: min(best[i] + costs[i, j] for i in range(k, j))
            for j in range(k + 1, len(ordered) + 1)
        }
    return best[len(ordered)]


def exact(values: list[int], book: Codebook) -> Fraction:
    groups = [
        [value for value, own in zip(values, book.assignment, strict=True) if own == k]
        for k in range(book.clusters)
    ]
    return Fraction(
        sum(sum(x * x for x in group) - Fraction(sum(group) ** 2, len(group)) for group in groups)
    )


@settings(deadline=None, max_examples=150, derandomize=True)
@given(st.lists(st.integers(-40, 40), min_size=2, max_size=25), st.integers(2, 6))
def test_few_distinct_values_have_the_optimum(values: list[int], clusters: int) -> None:
    clusters = min(clusters, len(set(values)))
    if clusters < 2:
        return
    book = clustered(np.array(values, np.float32), clusters)
    best = least(values, clusters)
    assert best <= exact(values, book) <= best * (1 + Fraction(1, 10**9))


def bound(values: Vector, clusters: int) -> float:
    """No partition into so many clusters has less inertia than this, by Lagrange's duality.

    For any price of a cluster, the least of inertia + price · clusters over all partitions, less
    price · κ, is a lower bound. Here a plain programme finds it, over every pair of cuts; the price
    is moved until its partition has κ clusters, when the bound is the optimum.
    """
    ordered = np.sort(values.astype(np.float64))
    ordered -= (ordered[0] + ordered[-1]) / 2
    n = len(ordered)
    sums = np.concatenate([[0], np.cumsum(ordered)])
    counts = np.arange(n + 1, dtype=np.float64)
    price, best, low, high = 0.0, 0.0, 0.0, np.inf
    for _ in range(60):
        gains, used = np.zeros(n + 1), np.zeros(n + 1, np.int64)
        for j in range(1, n + 1):
            found = gains[:j] + np.square(sums[j] - sums[:j]) / (j - counts[:j])
            at = int(found.argmax())
            gains[j], used[j] = found[at] - price, used[at] + 1
        whole = float(np.square(ordered).sum())
        best = max(best, whole - float(gains[n]) - price * clusters)
        if used[n] == clusters:
            break
        low, high = (price, high) if used[n] > clusters else (low, price)
        if price == 0:
            price = 2 * inertia(values, clustered(values, clusters)) / clusters
        else:
            price = price * 4 if high == np.inf else (low * high) ** 0.5 or high / 4
    return best


@pytest.mark.parametrize("shape", shapes(1))
def test_within_a_thousandth_of_the_optimum(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # As 8,192 bins are to 270,000 weights and 128 clusters, so are these to 1,500.
    monkeypatch.setattr(clustering, "BINS", 512)
    monkeypatch.setattr(clustering, "COARSE", 128)
    values = shapes(1500)[shape]
    least = bound(values, 8)
    assert least <= inertia(values, clustered(values, 8)) * (1 + 1e-6)
    assert inertia(values, clustered(values, 8)) <= 1.001 * least


@pytest.mark.parametrize("shape", ["ten layers", "one outlier"])
def test_with_the_bins_there_are(shape: str) -> None:
    values = shapes(9000)[shape]
    assert len(np.unique(values)) > clustering.BINS
    assert inertia(values, clustered(values, 128)) <= 1.001 * bound(values, 128)


def test_the_bound_notices_a_worse_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    values = normal(1500)
    least = bound(values, 8)
    edges = np.searchsorted(np.sort(values), np.linspace(-3, 3, 30).astype(np.float32))
    monkeypatch.setattr(clustering, "BINS", 256)
    monkeypatch.setattr(clustering, "_split", lambda *_: np.array([0, *edges, 1500]))
    monkeypatch.setattr(clustering, "_lloyd", lambda *_: None)
    assert inertia(values, clustered(values, 8)) > 1.001 * least


# -- laws -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", shapes(1))
@pytest.mark.parametrize("clusters", [2, 16, 300])
def test_centroids_are_means_and_every_weight_has_the_nearest(shape: str, clusters: int) -> None:
    values = shapes(20_000)[shape]
    book = clustered(values, clusters)
    assert book.clusters == clusters
    assert book.centroids.dtype == np.float32
    assert book.assignment.dtype == np.uint16
    assert (np.diff(book.centroids) > 0).all()
    sizes = np.bincount(book.assignment, minlength=clusters)
    assert (sizes > 0).all()
    means = np.bincount(book.assignment, values.astype(np.float64)) / sizes
    np.testing.assert_allclose(book.centroids, means, rtol=1e-6, atol=1e-6 * np.abs(values).min())
    distances = np.abs(values.astype(np.float64)[:, None] - means)
    slack = 1e-9 * np.abs(values).max()
    assert (distances[np.arange(len(values)), book.assignment] <= distances.min(1) + slack).all()


@pytest.mark.parametrize("n", [500, 20_000])
def test_the_order_of_weights_does_not_matter(n: int) -> None:
    values = laplace(n)
    order = np.argsort(normal(n, 4))
    book, mixed = clustered(values, 64), clustered(values[order], 64)
    assert_same_bits(mixed.centroids, book.centroids)
    assert np.array_equal(mixed.assignment, book.assignment[order])


@pytest.mark.parametrize("scale", [2.0**-40, 2.0**40])
def test_a_power_of_two_changes_no_bit(scale: float) -> None:
    values = laplace(20_000)
    book, other = clustered(values, 64), clustered(values * np.float32(scale), 64)
    assert_same_bits(other.centroids, book.centroids * np.float32(scale))
    assert np.array_equal(other.assignment, book.assignment)


def test_golden() -> None:
    """As computed on x86-64 with AVX-512; + − × ÷ of doubles in one order, so everywhere."""
    book = clustered(laplace(30_000), 128)
    digests = [
        hashlib.sha256(data.tobytes()).hexdigest()[:16]
        for data in (book.centroids.astype("<f4"), book.assignment.astype("<u2"))
    ]
    assert digests == GOLDEN


GOLDEN = ["5bb07a8d7a443d61", "664a1546770f78fa"]


def test_of_equally_good_cuts_the_lowest() -> None:
    assert clustered(np.array([2, 0, 1], np.float32), 2).assignment.tolist() == [1, 0, 1]


def test_zeros_have_one_sign() -> None:
    values = np.array([-0.0, 0.0, -0.0, 1.0], np.float32)
    for order in ([0, 1, 2, 3], [1, 0, 3, 2]):
        assert_same_bits(clustered(values[order], 2).centroids, np.array([0, 1], np.float32))


def test_the_largest_and_the_smallest_floats() -> None:
    most = np.finfo(np.float32).max
    values = np.array([most, -most, 1e-45, 0, most], np.float32)
    assert clustered(values, 3).centroids.tolist() == [-most, 0, most]
    assert inertia(values, clustered(values, 4)) == 0


# -- fewer values, and refusals -------------------------------------------------------------------


def test_fewer_distinct_values_than_clusters() -> None:
    values = np.array([3, 1, 3, 2, 1], np.float32)
    with pytest.raises(InvalidSetting, match="clusters is 4; expected at most the 3 distinct"):
        clustered(values, 4)
    book = clustered(values, 4, fewer="allow")
    assert book.centroids.tolist() == [1, 2, 3]
    assert np.array_equal(book.values(), values)


def test_a_constant_has_two_centroids_for_a_codebook_has_two() -> None:
    book = clustered(np.full(3, 0.5, np.float32), 8, fewer="allow")
    assert book.centroids.tolist() == [0.5, 0.5]
    assert book.assignment.tolist() == [0, 0, 0]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_refused_by_coordinate(bad: float) -> None:
    values = normal(100)
    values[[17, 40]] = bad
    with pytest.raises(InvalidSetting, match=r"values\[17\] is (nan|inf|-inf); expected a finite"):
        clustered(values, 4)


@pytest.mark.parametrize(
    ("values", "clusters", "says"),
    [
        (normal(9), 1, "clusters is 1; expected 2 to 1024"),
        (normal(9), 1025, "clusters is 1025"),
        (normal(0), 2, "at least 1 coordinate"),
        (normal(9).astype(np.float64), 2, "values is 'float64"),
        (normal(8).reshape(2, 4), 2, "of shape"),
    ],
)
def test_settings_that_mean_nothing(values: Vector, clusters: int, says: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        clustered(values, clusters)
    assert says in str(refused.value)
