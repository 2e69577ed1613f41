"""The IID split: disjoint, deterministic, uniform, and strict about what does not add up."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eris.core.errors import InvalidSetting
from eris.core.streams import Stream
from eris.data.partition import iid

SEEDS = st.integers(0, 2**64 - 1)


@settings(derandomize=True)
@given(st.integers(1, 20), st.integers(1, 20), st.integers(0, 50), SEEDS)
def test_parts_are_disjoint_and_of_the_size_asked(
    clients: int, size: int, spare: int, seed: int
) -> None:
    count = clients * size + spare
    parts = iid(count, clients, size, seed)
    taken = np.concatenate(parts)
    assert [len(part) for part in parts] == [size] * clients
    assert len(np.unique(taken)) == clients * size
    assert taken.min() >= 0
    assert taken.max() < count


@settings(derandomize=True)
@given(st.integers(1, 20), st.integers(0, 50), SEEDS)
def test_sharing_out_gives_everyone_about_the_same_and_forgets_none(
    clients: int, more: int, seed: int
) -> None:
    parts = iid(clients + more, clients, None, seed)
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    assert sorted(np.concatenate(parts).tolist()) == list(range(clients + more))


def test_labels_count_as_their_number() -> None:
    labels = np.zeros(30, dtype=np.uint8)
    for by_labels, by_count in zip(iid(labels, 3, 5, 1), iid(30, 3, 5, 1), strict=True):
        assert np.array_equal(by_labels, by_count)


GOLDEN = [[47242, 18302, 57197, 27273], [7634, 41595, 57473, 37090], [17411, 8180, 39053, 44244]]


def test_the_split_is_the_same_on_every_machine() -> None:
    # Recorded once; a change here changes every published number that names a seed.
    assert [part.tolist() for part in iid(60_000, 3, 4, seed=7)] == GOLDEN
    assert not np.array_equal(iid(60_000, 3, 4, seed=8)[0], GOLDEN[0])


def test_the_split_is_the_stable_order_of_the_words_of_its_stream() -> None:
    words = Stream(7, "partition").words(0, 100)
    expected = sorted(range(100), key=lambda i: words[i])  # sorted() is stable
    assert np.concatenate(iid(100, 3, None, seed=7)).tolist() == expected


def test_every_sample_is_as_likely_as_any_other() -> None:
    draws = 4000
    counts = np.zeros(10)
    for seed in range(draws):
        counts[iid(10, 1, 3, seed)[0]] += 1
    # Binomial(4000, 0.3): five standard deviations.
    assert np.abs(counts - 0.3 * draws).max() < 5 * np.sqrt(draws * 0.3 * 0.7)


@pytest.mark.parametrize(
    ("clients", "size", "complaint"),
    [
        (0, 1, "clients is 0; expected at least 1"),
        (-2, None, "clients is -2; expected at least 1"),
        (3, 0, "samples_per_client is 0; expected at least 1"),
        (3, 4, "samples_per_client is 4; expected at most 3: 3 clients share 10 samples"),
        (11, None, "clients is 11; expected at most 10"),
        (11, 1, "expected at most 0: 11 clients share 10 samples"),
    ],
)
def test_what_does_not_add_up_is_refused(clients: int, size: int | None, complaint: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        iid(10, clients, size, seed=0)
    assert complaint in str(caught.value)


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_that_no_stream_has_is_refused(seed: int) -> None:
    with pytest.raises(InvalidSetting, match="stream seed"):
        iid(10, 2, 3, seed)
