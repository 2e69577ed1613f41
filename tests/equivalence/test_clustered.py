"""FedAvg_wc: the mean of clustered weights, and what is no such contribution."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from eris.core.clustering import clustered
from eris.core.compress import Encoding
from eris.core.errors import MalformedMessage
from eris.protocol.codec import encode
from eris.protocol.messages import Contribution
from eris.testing import assert_same_bits
from support.crowd import slow_mean
from support.encrypted import CLIENTS, CLUSTERS, START, N, fitted, in_clusters, messages


def test_the_model_is_the_mean_of_clustered_weights() -> None:
    fit, crowd, made = fitted("fedavg-wc")
    assert made.agreement is not None
    rule, model = made.agreement.settings.rule, START
    weights = [crowd.samples(client) for client in range(CLIENTS)]
    for round in (1, 2, 3):
        updates = [crowd.given[client, round][1] for client in range(CLIENTS)]
        x = model.astype(np.float64)
        sent = [(x - rule.learning_rate * u.astype(np.float64)).astype(np.float32) for u in updates]
        mean = slow_mean([in_clusters(one) for one in sent], weights)
        direction = ((x - mean.astype(np.float64)) / rule.learning_rate).astype(np.float32)
        model = rule.step(model, direction, (), round, 1.0)[0]
    assert_same_bits(fit.model, model)


def test_updates_are_clustered_if_that_is_agreed() -> None:
    fit, crowd, made = fitted("fedavg-wc", 1, clusters_of="updates")
    assert made.agreement is not None
    weights = [crowd.samples(client) for client in range(CLIENTS)]
    mean = slow_mean([in_clusters(crowd.given[c, 1][1]) for c in range(CLIENTS)], weights)
    assert_same_bits(fit.model, made.agreement.settings.rule.step(START, mean, (), 1, 1.0)[0])


def test_a_huffman_code_is_smaller_and_changes_no_bit() -> None:
    one, other = (fitted("fedavg-wc", coding=coding)[0] for coding in ("packed", "huffman"))
    assert_same_bits(one.model, other.model)


def test_a_contribution_is_centroids_and_a_packed_index() -> None:
    fit, crowd, made = fitted("fedavg-wc", 1)
    assert made.agreement is not None
    sent = messages(fit, Contribution)
    law = 4 + 4 * CLUSTERS + -(-N * 3 // 8)
    for one in sent:
        data = one.payload.encoded.data
        assert one.payload.encoded.encoding is Encoding.CLUSTERED
        assert len(data) == law
        assert len(encode(one)) <= law + 128
        rate = made.agreement.settings.rule.learning_rate
        x, update = crowd.given[one.header.sender, 1]
        book = clustered((x - rate * update.astype(np.float64)).astype(np.float32), CLUSTERS)
        assert data[:4] == CLUSTERS.to_bytes(4, "little")
        assert data[4 : 4 + 4 * CLUSTERS] == book.centroids.astype("<f4").tobytes()


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"data": b""}, "ends before codebook 0"),
        ({"data": (9).to_bytes(4, "little") + bytes(400)}, "has 9 clusters; expected 2 to 8"),
        ({"data": (1).to_bytes(4, "little") + bytes(400)}, "has 1 clusters"),
        (
            {"data": (8).to_bytes(4, "little") + bytes(31)},
            "codebook 0 has 31 bytes; expected 8 centroids",
        ),
        ({"data": (8).to_bytes(4, "little") + bytes(32)}, "index"),
        ({"count": N - 1}, "expected 300 values"),
        ({"encoding": Encoding.DENSE}, "payload.encoding"),
    ],
)
def test_what_is_no_contribution_is_refused(change: dict[str, Any], found: str) -> None:
    fit, _, made = fitted("fedavg-wc", 1)
    assert made.agreement is not None
    one = messages(fit, Contribution)[0]
    payload = replace(one.payload, encoded=replace(one.payload.encoded, **change))
    segment = made.agreement.segments(1)[one.header.key]
    with pytest.raises(MalformedMessage, match=found):
        made.agreement.coding.read(replace(one, payload=payload), segment)
