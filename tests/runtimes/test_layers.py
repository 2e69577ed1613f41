"""A codebook for each layer: labels, shares and mappings of several, and the plain integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eris.core.clustering import clustered
from eris.core.errors import InvalidSetting
from eris.core.shards import ContiguousPlan, RandomPlan, ShardPlan
from eris.protocol.agreement import Agreement
from eris.protocol.codec import encode
from eris.protocol.enccluster.group import POINT_BYTES, added, negated, parsed
from eris.protocol.enccluster.labels import BookLabel
from eris.protocol.enccluster.logarithms import built_table
from eris.protocol.enccluster.sending import EncryptingSender
from eris.protocol.messages import Contribution, Result, Reveal
from eris.protocol.schemes import Clustered
from eris.protocol.schemes.layers import LayerPiece, cut, place
from eris.protocol.settings import Settings
from eris.protocol.view import View
from eris.testing import assert_same_bits
from support.encrypted import (
    CLIENTS,
    CLUSTERS,
    START,
    N,
    Still,
    damage,
    fitted,
    messages,
    plain_model,
)

LAYERS = (120, 3, 150, 1, 26)
"""One of fewer weights than clusters, one of a single weight."""
BOOKS = [min(CLUSTERS, max(2, size)) for size in LAYERS]
LAYERED: dict[str, Any] = {"books": "layer", "clusters": CLUSTERS}


def layered(*about: Any, agreed: dict[str, Any] | None = None, **method: Any) -> Any:
    said = {"layers": LAYERS, **(agreed or {})}
    return fitted(*about, **({**LAYERED, **method, "agreed": said}))


@pytest.mark.parametrize(
    ("method", "agreed"),
    [
        ({}, {}),
        ({"coding": "sealed"}, {}),
        ({"coding": "huffman"}, {}),
        ({"coding": "filter8"}, {}),
        ({"coding": "filter16", "clusters": 4}, {"segment_size": 160}),
        ({"average": "plain", "clusters": 4}, {"segment_size": 160}),
        ({"aggregators": 2, "clusters": 4}, {"min_included": 4}),
    ],
)
def test_the_model_is_that_of_the_plain_integers(
    method: dict[str, Any], agreed: dict[str, Any]
) -> None:
    fit, crowd, made = layered(agreed=agreed, **method)
    assert not [text for one in fit.history for text in one.refused]
    clusters = method.get("clusters", CLUSTERS)

    def cluster(weights: Any) -> Any:
        return clustered(weights, clusters, fewer="allow").values()

    weigh = (lambda client: 1) if "average" in method else None
    expected = plain_model(fit, crowd, made, cluster, weigh=weigh, layers=LAYERS)
    assert_same_bits(fit.model, expected)
    whole = fitted(**({"clusters": clusters} | method), agreed=agreed)[0]
    assert not np.array_equal(fit.model, whole.model)


@pytest.mark.parametrize("coding", ["packed", "huffman"])
def test_in_the_clear_a_server_reads_the_centroids_of_every_layer(coding: str) -> None:
    fit, crowd, made = layered("fedavg-wc", 1, coding=coding)
    assert made.agreement is not None
    rate = made.agreement.settings.rule.learning_rate
    ends = np.cumsum(LAYERS)[:-1]
    for one in messages(fit, Contribution):
        model, update = (x.astype(np.float64) for x in crowd.given[one.header.sender, 1])
        pieces = np.split((model - rate * update).astype(np.float32), ends)
        expected = [clustered(piece, CLUSTERS, fewer="allow").values() for piece in pieces]
        found = made.agreement.coding.read(one, made.agreement.segments(1)[0, 0])
        assert_same_bits(found, np.concatenate(expected))


def test_messages_have_the_bytes_of_all_books() -> None:
    fit = layered(rounds=1)[0]
    bits = sum(size * (most - 1).bit_length() for size, most in zip(LAYERS, BOOKS, strict=True))
    law = {
        Contribution: sum(4 + 33 * most for most in BOOKS) + -(-bits // 8),
        Reveal: 32 + 32 * len(LAYERS),
    }
    for kind, least in law.items():
        sizes = [len(encode(one)) for one in messages(fit, kind)]
        assert min(sizes) >= least
        assert sum(sizes) <= 1.05 * len(sizes) * (least + 128)


def first_points(data: bytes) -> list[Any]:
    """The first ciphertext of each book."""
    found, at = [], 0
    for most in BOOKS:
        found.append(parsed(data[at + 4 : at + 4 + POINT_BYTES]))
        at += 4 + POINT_BYTES * most
    return found


def logarithms(data: bytes) -> list[bool]:
    """Whether differences of books' first ciphertexts are small multiples of G."""
    first, *others = first_points(data)
    differences = [added([one, negated(first)]) for one in others]
    return [bool(one) for one in built_table(1 << 13)._look_up(differences)[1]]


def test_books_lie_under_pads_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one book the differences of centroids are open; between two of them they are not."""
    sent = messages(layered(rounds=1)[0], Contribution)
    assert not any(any(logarithms(one.payload.encoded.data)) for one in sent)
    # Seeded: all books under one label, from randomness that repeats.
    monkeypatch.setattr(BookLabel, "of_book", lambda self, book: self)
    monkeypatch.setattr("eris.protocol.schemes.encrypted_clusters.content", lambda *said: bytes(32))
    monkeypatch.setattr("eris.protocol.secure.vault.Vault.fresh", lambda self, round: bytes(32))
    sent = messages(layered(rounds=1)[0], Contribution)
    assert all(all(logarithms(one.payload.encoded.data)) for one in sent)


def test_a_share_of_another_book_opens_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    reveal = EncryptingSender.reveal

    def swapped(self: EncryptingSender, *asked: Any) -> bytes:
        made = reveal(self, *asked)
        return made[:32] + made[64:96] + made[32:64] + made[96:]

    monkeypatch.setattr(EncryptingSender, "reveal", swapped)
    fit = layered(rounds=1)[0]
    assert [one.payload for one in messages(fit, Result)] == [None]
    assert any(
        "book 0, the sum of first clusters: no log" in text for text in fit.history[0].refused
    )
    assert_same_bits(fit.model, START)


# -- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: data[: 4 + 33 * 8], "ends before codebook 1"),
        (lambda data: data[: 4 + 33 * 8] + data[4 + 33 * 8 + 4 + 33 * 3 :], "codebook 1 has 8"),
        (lambda data: data[: 4 + 33 * 8 + 4 + 33], "codebook 1 has 33 bytes; expected 3 centroids"),
        (lambda data: data[:-1], "index: has"),
    ],
)
def test_books_that_are_none_are_refused_by_name(
    change: Any, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(monkeypatch, EncryptingSender, change)
    fit = layered(rounds=1)[0]
    (result,) = messages(fit, Result)
    assert result.included == frozenset(range(CLIENTS)) - {4}
    assert any(reason in text for text in fit.history[0].refused), fit.history[0].refused


def test_a_weight_out_of_range_is_named_by_its_layer_and_coordinate() -> None:
    far = START.copy()
    far[121] = 9.0
    for books in ("layer", "model"):
        fit = layered(rounds=1, start=far, books=books)[0]
        assert not messages(fit, Contribution)
        said = fit.history[0].refused
        assert len(said) == CLIENTS
        assert all("layer 1, coordinate 121 is" in text and "at most ±8" in text for text in said)


def test_in_the_clear_a_weight_out_of_range_is_named_and_nothing_of_its_client_leaves() -> None:
    far = START.copy()
    far[121] = 65.0
    for books in ("layer", "model"):
        agreed, still = {"segment_size": 160}, Still(CLIENTS, N)
        method = {"books": books, "clusters": 4}
        fit = layered("fedavg-wc", 1, still, start=far, agreed=agreed, **method)[0]
        assert not messages(fit, Contribution)
        said = fit.history[0].refused
        assert len(said) == CLIENTS
        assert all("layer 1, coordinate 121 is" in text and "at most ±64" in text for text in said)


@pytest.mark.parametrize("name", ["enccluster", "fedavg-wc"])
def test_nothing_leaves_of_a_client_of_whom_one_segment_cannot_be_clustered(name: str) -> None:
    flat = START.copy()
    flat[160:] = 0.5
    agreed, still = {"segment_size": 160}, Still(CLIENTS, N)
    fit = fitted(name, 1, still, agreed, start=flat, clusters=4, fewer="refuse")[0]
    assert not messages(fit, Contribution)
    assert all("at most the 1 distinct values" in text for text in fit.history[0].refused)
    assert len(fit.history[0].refused) == CLIENTS


@pytest.mark.parametrize("name", ["enccluster", "fedavg-wc"])
def test_a_layer_of_too_few_distinct_weights_is_refused_by_name(name: str) -> None:
    fit = layered(name, 1, fewer="refuse")[0]
    assert not messages(fit, Contribution)
    said = fit.history[0].refused
    expected = "layer 1: clusters is 8; expected at most the 3 distinct values, or fewer='allow'"
    assert len(said) == CLIENTS
    assert all(expected in text for text in said), said


@pytest.mark.parametrize(
    ("layers", "books", "found"),
    [
        ((100, 100), "layer", "layers is 'of 200 coordinates'; expected sizes that add up to 300"),
        ((301, -1), "layer", r"layers\[1\] is -1; expected at least 1"),
        (LAYERS, "tensor", "books is 'tensor'; expected one of model, layer"),
        ((1,) * N, "layer", "clusters is 8; expected fewer: a segment of 300 weights"),
    ],
)
def test_what_are_no_layers_is_refused(layers: tuple[int, ...], books: str, found: str) -> None:
    for name in ("enccluster", "fedavg-wc"):
        with pytest.raises(InvalidSetting, match=found):
            fitted(name, agreed={"layers": layers}, books=books)


# -- where layers lie -----------------------------------------------------------------------------


@pytest.mark.parametrize("plan", [RandomPlan(1), RandomPlan(3), ContiguousPlan(3)])
@pytest.mark.parametrize("segment_size", [None, 37])
def test_pieces_are_what_a_segment_has_of_each_layer(
    plan: ShardPlan, segment_size: int | None
) -> None:
    settings = Settings(N, plan, scheme=Clustered(2, books="layer", layers=LAYERS),
                        segment_size=segment_size, seed=4)  # fmt: skip
    names = [f"client-{number}" for number in range(4)]
    agreement = Agreement(settings, View.serverless(names, aggregators=plan.shards))
    for key, segment in agreement.segments(1).items():
        of = np.repeat(np.arange(len(LAYERS)), LAYERS)[segment.coordinates]
        expected = [LayerPiece(layer, int((of == layer).sum())) for layer in range(len(LAYERS))]
        assert cut(segment, LAYERS, "layer") == tuple(one for one in expected if one.size), key
        assert cut(segment, LAYERS, "model") == (LayerPiece(None, segment.size),)
        assert cut(segment, (), "layer") == (LayerPiece(0, segment.size),)


def test_a_place_is_called_by_its_layer() -> None:
    of = np.repeat(np.arange(len(LAYERS)), LAYERS)
    for coordinate in range(N):
        assert place(coordinate, LAYERS) == f"layer {of[coordinate]}, coordinate {coordinate}"
