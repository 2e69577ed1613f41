"""The measure of EncCluster's figure 2, against scikit-learn and brute force."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.decomposition import PCA

from eris.audit.embeddings import embedding_errors, nearest, perfect_guess, projected_error
from eris.core.errors import InvalidSetting
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.experiments.audits.mapping_cases import kmeans


def drawn(name: str, *shape: int) -> Vector:
    count = int(np.prod(shape))
    return Stream(0, name).normal(0, count).reshape(shape).astype(np.float32)


@pytest.mark.parametrize("components", [1, 2, 16])
def test_the_projection_is_scikit_learns(components: int) -> None:
    truth = drawn("true", 50, 20) @ drawn("mixed", 20, 20)
    guess = truth + 0.3 * drawn("off", 50, 20)
    fitted = PCA(components, svd_solver="full").fit(truth.astype(np.float64))
    expected = np.mean((fitted.transform(guess) - fitted.transform(truth)) ** 2)
    assert projected_error(truth, guess, components) == pytest.approx(float(expected), rel=1e-4)


def test_every_entry_becomes_the_nearest_centroid_of_the_aggregate() -> None:
    model, aggregate = drawn("model", 400), drawn("aggregate", 1_000)
    centroids = kmeans(aggregate, 9)
    assert (np.diff(centroids) > 0).all()
    by_hand = centroids[np.abs(model[:, None] - centroids).argmin(axis=1)]
    np.testing.assert_array_equal(perfect_guess(model, aggregate, 9, kmeans), by_hand)
    np.testing.assert_array_equal(nearest(centroids, centroids), np.arange(9))


def test_a_guess_is_as_far_as_its_embeddings_and_the_truth_is_not_at_all() -> None:
    data = drawn("data", 40, 6)

    def embed(model: Vector) -> Vector:
        return np.asarray(np.maximum(data @ model.reshape(6, 5), 0))

    truth, off, other = drawn("truth", 30), drawn("noise", 30), drawn("other", 30)
    guesses = {"same": truth, "near": truth + np.float32(0.01) * off, "another": other}
    found = embedding_errors(truth, guesses, embed, (2, 4))
    assert found["same"] == {2: 0.0, 4: 0.0}
    assert all(0 < found["near"][kept] < 0.01 * found["another"][kept] for kept in (2, 4))


@pytest.mark.parametrize(("components", "width"), [(0, 3), (4, 3), (2, 2)])
def test_what_cannot_be_projected_is_refused(components: int, width: int) -> None:
    with pytest.raises(InvalidSetting, match=r"components|guess"):
        projected_error(np.ones((9, 3)), np.ones((9, width)), components)
