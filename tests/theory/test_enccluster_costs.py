"""The law of bytes beside the figures of enccluster-crypto.md, sections 6.2 and 7."""

from __future__ import annotations

import numpy as np
import pytest

from eris.core import huffman
from eris.core.books import Books
from eris.core.errors import InvalidSetting
from eris.theory.enccluster_costs import (
    detrust_round,
    enccluster_round,
    filter_mapping,
    huffman_mapping,
    packed_mapping,
    point_bytes,
    sefl_upload,
)

D, CLUSTERS, CLIENTS = 270_000, 128, 10


@pytest.mark.parametrize(
    ("mapping", "printed"),
    [
        (packed_mapping(D, CLUSTERS), 0.2227),
        (filter_mapping(D, 8), 0.2789),
        (filter_mapping(D, 16), 0.5539),
        (filter_mapping(D, 32), 1.1038),
    ],
)
def test_uploads_are_those_of_the_table_of_codings(mapping: int, printed: float) -> None:
    law = enccluster_round(D, CLUSTERS, mapping, CLIENTS)
    assert law.times_fedavg(D) == pytest.approx(printed, abs=6e-5)


def test_a_larger_key_costs_a_client_kappa_points_and_nothing_else() -> None:
    mapping = filter_mapping(D, 8)
    usual, large = (enccluster_round(D, CLUSTERS, mapping, CLIENTS, b) for b in (256, 521))
    assert large.contribution - usual.contribution == CLUSTERS * (67 - 33)
    assert large.times_fedavg(D) - usual.times_fedavg(D) == pytest.approx(0.004, abs=1e-3)


def test_a_point_a_weight_is_more_than_eight_times_fedavg() -> None:
    law = detrust_round(D, CLIENTS)
    assert law.contribution == 33 * D
    assert law.share == 96
    assert law.times_fedavg(D) == pytest.approx(8.25, abs=1e-3)


@pytest.mark.parametrize(("bits", "printed"), [(256, 4.8), (2048, 38.4), (3072, 57.6)])
def test_paillier_has_the_sizes_of_the_table_of_baselines(bits: int, printed: float) -> None:
    ciphertexts = sefl_upload(D, 81_000, bits) - D // 8
    assert ciphertexts / (4 * D) == pytest.approx(printed)


def test_a_huffman_code_has_the_bytes_that_are_written() -> None:
    mapping = np.minimum(np.arange(3000) % 37, 15).astype(np.uint16)
    books = Books((3000,), (16,))
    counts = np.bincount(mapping, minlength=16)
    lengths = huffman.code_lengths(counts)
    assert huffman_mapping(counts.tolist(), lengths.tolist()) == len(huffman.encode(mapping, books))


def test_a_curve_has_bits() -> None:
    with pytest.raises(InvalidSetting, match="key bits is 0"):
        point_bytes(0)
