"""The Dirichlet split: its law against exact formulas, and against a slow urn with real balls."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from eris.core.errors import InvalidSetting
from eris.core.streams import Stream
from eris.data.partition import _urn, dirichlet

SEEDS = st.integers(0, 2**64 - 1)
ALPHAS = st.floats(0.05, 100)
LABELS = st.lists(st.integers(0, 4), min_size=1, max_size=80)


@settings(derandomize=True)
@given(st.data(), LABELS, ALPHAS, SEEDS)
def test_parts_are_disjoint_and_of_the_size_asked(
    data: st.DataObject, labels: list[int], alpha: float, seed: int
) -> None:
    clients = data.draw(st.integers(1, len(labels)))
    size = data.draw(st.integers(1, len(labels) // clients))
    parts = dirichlet(labels, clients, alpha, seed, size)
    taken = np.concatenate(parts)
    assert [len(part) for part in parts] == [size] * clients
    assert len(np.unique(taken)) == clients * size
    assert set(taken.tolist()) <= set(range(len(labels)))


@settings(derandomize=True)
@given(LABELS, st.integers(1, 5), ALPHAS, SEEDS)
def test_sharing_out_forgets_none_or_names_the_client_it_would_leave_empty(
    labels: list[int], clients: int, alpha: float, seed: int
) -> None:
    if clients > len(labels):
        labels = labels * clients
    try:
        parts = dirichlet(labels, clients, alpha, seed)
    except InvalidSetting as refused:
        reason = str(refused)
    else:
        reason = ""
    if reason:
        assert clients > 1
        assert f"of {clients} would have no sample" in reason
        return
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))
    assert all(len(part) for part in parts)


def slow_urn(uniform: list[float], colours: int, alpha: float) -> list[int]:
    """Pólya's urn, ball by ball: alpha of each colour, and every draw adds one of its colour."""
    drawn: list[int] = []
    for number in uniform:
        point = number * (alpha * colours + len(drawn))
        if point < alpha * colours:
            drawn.append(int(point / alpha))
        else:
            drawn.append(drawn[int(point - alpha * colours)])
    return drawn


@settings(derandomize=True)
@given(st.integers(0, 200), st.integers(1, 9), ALPHAS, SEEDS)
def test_the_fast_urn_is_the_slow_one(count: int, colours: int, alpha: float, seed: int) -> None:
    stream = Stream(seed, "partition/urn")
    expected = slow_urn(stream.uniform(0, count).tolist(), colours, alpha)
    assert _urn(count, colours, alpha, stream).tolist() == expected


@settings(derandomize=True)
@given(st.data(), LABELS, ALPHAS, SEEDS)
def test_dealing_is_a_slow_urn_whose_colours_can_run_out(
    data: st.DataObject, labels: list[int], alpha: float, seed: int
) -> None:
    clients = data.draw(st.integers(1, len(labels)))
    size = len(labels) // clients
    order = Stream(seed, "partition/dirichlet").permutations(1, len(labels))[0].tolist()
    stock = {c: [i for i in order if labels[i] == c] for c in sorted(set(labels))}
    for client, part in enumerate(dirichlet(labels, clients, alpha, seed, size)):
        drawn: list[int] = []
        for number in Stream(seed, "partition/urn", client=client).uniform(0, size).tolist():
            balls = [alpha + [labels[i] for i in drawn].count(c) for c in stock if stock[c]]
            ends = [balls[0]]
            for more in balls[1:]:
                ends.append(ends[-1] + more)
            place = next(k for k, end in enumerate(ends) if number * ends[-1] < end)
            drawn.append(stock[[c for c in stock if stock[c]][place]].pop(0))
        assert part.tolist() == drawn


@pytest.mark.parametrize("alpha", [1e-9, 1e9])
def test_the_ends_of_the_range_of_alpha(alpha: float) -> None:
    labels = np.repeat(np.arange(10), 500)
    counts = [len(np.unique(labels[p])) for p in dirichlet(labels, 20, alpha, 3, 100)]
    assert counts == ([1] * 20 if alpha < 1 else [10] * 20)
    drawn = _urn(1000, 10, alpha, Stream(3, "partition/urn"))
    assert len(np.unique(drawn)) == (1 if alpha < 1 else 10)


def first_class_counts(share_out: bool, alpha: float, draws: int) -> NDArray[np.int64]:
    """How many of 12 draws between two are of the first, for many seeds."""
    found = []
    for seed in range(draws):
        if share_out:
            owners = _urn(12, 2, alpha, Stream(seed, "partition/urn"))
            found.append(int((owners == 0).sum()))
        else:
            (part,) = dirichlet(np.repeat([0, 1], 12), 1, alpha, seed, 12)
            found.append(int((part < 12).sum()))
    return np.array(found)


def beta_binomial(n: int, alpha: float) -> NDArray[np.float64]:
    """The exact law of the count of one of two classes under a symmetric Dirichlet(alpha)."""

    def log_beta(a: float, b: float) -> float:
        return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)

    return np.array(
        [
            math.comb(n, k) * math.exp(log_beta(k + alpha, n - k + alpha) - log_beta(alpha, alpha))
            for k in range(n + 1)
        ]
    )


@pytest.mark.parametrize("share_out", [True, False])
@pytest.mark.parametrize("alpha", [0.2, 1.0, 5.0])
def test_counts_follow_the_exact_law(share_out: bool, alpha: float) -> None:
    draws = 3000
    seen = np.bincount(first_class_counts(share_out, alpha, draws), minlength=13)
    expected = draws * beta_binomial(12, alpha)
    chi_squared = ((seen - expected) ** 2 / expected).sum()
    # 12 degrees of freedom: 39.1 is exceeded once in 10,000 times, and the seeds are fixed.
    assert chi_squared < 39.1


@pytest.mark.parametrize("samples", [20, None])
def test_mean_proportions_are_the_same_for_all_and_spread_as_alpha_says(
    samples: int | None,
) -> None:
    # Shares with 4 categories: mean 1/4, variance of a count n·p(1−p)·(n + A)/(1 + A), A = 4·alpha.
    alpha, draws, n = 0.5, 1500, 20
    counts = np.empty((draws, 4))
    labels = np.repeat(np.arange(4), n)
    for seed in range(draws):
        if samples is None:
            owners = _urn(n, 4, alpha, Stream(seed, "partition/urn", shard=1))
            counts[seed] = np.bincount(owners, minlength=4)
        else:
            (part,) = dirichlet(labels, 1, alpha, seed, samples)
            counts[seed] = np.bincount(labels[part], minlength=4)
    variance = n * 0.25 * 0.75 * (n + 4 * alpha) / (1 + 4 * alpha)
    assert np.abs(counts.mean(axis=0) - n / 4).max() < 5 * math.sqrt(variance / draws)
    assert counts.var(axis=0) == pytest.approx([variance] * 4, rel=0.15)


def test_a_class_that_runs_out_leaves_the_others() -> None:
    labels = np.array([0] * 3 + [1] * 30)
    parts = dirichlet(labels, 3, 1e9, 1, 11)
    assert sorted(np.concatenate(parts).tolist()) == list(range(33))


GOLDEN_SIZED = [[9, 3, 4, 23], [22, 27, 14, 29], [2, 17, 7, 12]]
GOLDEN_SHARED = [[3, 6, 1, 8, 11], [2, 4, 7], [9, 0, 10, 5]]


def test_the_split_is_the_same_on_every_machine() -> None:
    # Recorded once; a change here changes every published number that names a seed.
    labels = np.arange(30) % 5
    assert [part.tolist() for part in dirichlet(labels, 3, 0.5, 7, 4)] == GOLDEN_SIZED
    assert [part.tolist() for part in dirichlet(labels[:12], 3, 0.5, 7)] == GOLDEN_SHARED
    assert not np.array_equal(dirichlet(labels, 3, 0.5, 8, 4)[0], GOLDEN_SIZED[0])


def test_labels_may_be_anything_that_sorts() -> None:
    words = dirichlet(["b", "a", "b", "c"] * 5, 2, 1.0, 3, 6)
    numbers = dirichlet([10, -4, 10, 70] * 5, 2, 1.0, 3, 6)
    assert all(np.array_equal(a, b) for a, b in zip(words, numbers, strict=True))


@pytest.mark.parametrize(
    ("labels", "clients", "alpha", "size", "complaint"),
    [
        ([0, 1], 0, 1.0, None, "clients is 0; expected at least 1"),
        ([0, 1], 3, 1.0, None, "clients is 3; expected at most 2"),
        ([0, 1], 1, 1.0, 3, "samples_per_client is 3; expected at most 2"),
        ([0, 1], 1, 1.0, 0, "samples_per_client is 0; expected at least 1"),
        ([0, 1], 1, 0.0, 1, "alpha is 0.0; expected a number from 1e-9"),
        ([0, 1], 1, math.nan, 1, "alpha is nan; expected"),
        ([0, 1], 1, math.inf, 1, "alpha is inf; expected"),
        ([[0, 1]], 1, 1.0, 1, "shape of labels is (1, 2); expected one dimension"),
        ([], 1, 1.0, 1, "shape of labels is (0,); expected one dimension"),
        (
            [0] * 9,
            5,
            1e-9,
            None,
            "would have no sample; fewer clients, another seed or samples_per",
        ),
    ],
)
def test_what_does_not_add_up_is_refused(
    labels: list[int], clients: int, alpha: float, size: int | None, complaint: str
) -> None:
    with pytest.raises(InvalidSetting) as caught:
        dirichlet(labels, clients, alpha, 0, size)
    assert complaint in str(caught.value)


def test_the_empty_client_is_named() -> None:
    with pytest.raises(InvalidSetting, match=r"alpha is 1e-09; .* client [01] of 2 would have no"):
        dirichlet([0] * 9, 2, 1e-9, seed=0)


def test_the_largest_class_of_a_client_is_as_large_as_the_page_says() -> None:
    text = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
    found = re.search(r"largest makes up (\d+) % of a client at 0.1 and (\d+) % at 0.2", text)
    assert found is not None
    labels = np.arange(200_000) % 10
    for alpha, said in zip((0.1, 0.2), found.groups(), strict=True):
        parts = dirichlet(labels, 1000, alpha, seed=3, samples_per_client=100)
        largest = [np.bincount(labels[part]).max() / 100 for part in parts]
        # Four standard errors of the mean, and half of the last digit that is said.
        assert abs(np.mean(largest) - int(said) / 100) < 4 * np.std(largest) / 1000**0.5 + 0.005
