"""From a layer to its inputs, and membership by the span of a mean: reference figures, limits."""

from __future__ import annotations

import numpy as np
import pytest

from eris.audit.completion import complete
from eris.audit.recovery import filled, into_range, psnr
from eris.audit.separation import separate
from eris.audit.span import row_space, span_scores
from eris.core.errors import InvalidSetting
from eris.core.streams import Stream
from eris.experiments.audits.completion_cases import case
from eris.experiments.audits.completion_grid import best_decibels, span_area


def normal(purpose: str, *shape: int) -> np.ndarray:
    return Stream(7, purpose).normal(0, int(np.prod(shape))).reshape(shape)


# -- inputs -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("samples", "shards", "count"), [(1, 16, 4), (2, 16, 4), (4, 16, 4), (8, 8, 1)]
)
def test_images_come_out_of_one_shard(samples: int, shards: int, count: int) -> None:
    found = []
    for seed in range(count):
        one = case(seed, samples, shards)
        layer = complete(one.entries, samples=samples)
        found += best_decibels(one, layer.left, layer.right, layer.residual).tolist()
    assert sum(decibels > 30 for decibels in found) >= 0.95 * len(found)


def test_the_whole_layer_is_the_image_to_rounding() -> None:
    for seed in range(3):
        one = case(seed, 1, 1)
        layer = complete(one.entries, samples=1)
        assert best_decibels(one, layer.left, layer.right, layer.residual).min() >= 120


def test_sixteen_samples_come_out_of_the_whole_layer() -> None:
    """completion.md, section 3, had 19 of 32 by drawing rows."""
    one = case(2, 16, 1)
    left, sizes, right = np.linalg.svd(one.truth, full_matrices=False)
    found = best_decibels(one, left[:, :16], right[:16].T * sizes[:16], 0.0)
    assert (found > 30).sum() >= 12


def test_without_exact_zeros_nothing_is_separated() -> None:
    left, right = normal("left", 200, 3), normal("right", 50, 3)
    assert separate(left, right, starts=512) is None


def test_too_few_rows_separate_nothing() -> None:
    left = np.full((10, 2), np.nan)
    left[0] = 1.0
    assert separate(left, np.ones((4, 2))) is None
    with pytest.raises(InvalidSetting, match="right is"):
        separate(left, np.ones((4, 3)))


def test_missing_pixels_are_the_mean_of_their_neighbours() -> None:
    picture = np.arange(9.0).reshape(1, 9)
    picture[0, 4] = np.nan
    assert filled(picture, (1, 3, 3))[0, 4] == pytest.approx(4)
    line = np.array([[1.0, np.nan, np.nan, np.nan, 2.0]])
    assert filled(line, (5,)).tolist() == [[1.0, 1.0, 1.5, 2.0, 2.0]]
    assert np.isnan(filled(np.full((1, 4), np.nan), (2, 2))).all()


def test_a_scale_nobody_knows_fills_the_range() -> None:
    image = np.array([[-0.4, 0.0, 2.0, 2.8]])
    for scale in (3.0, -0.2):
        np.testing.assert_allclose(into_range(scale * image, -0.4, 2.8), image)
    raw = np.array([[0.0, 0.5, 1.0]])
    np.testing.assert_allclose(into_range(-7 * raw, 0.0, 1.0), raw)


def test_decibels_are_those_of_the_definition() -> None:
    found, truth = np.array([[0.1, 0.0]]), np.array([[0.0, 0.0]])
    assert psnr(found, truth, 1.0)[0, 0] == pytest.approx(10 * np.log10(1 / 0.005))


# -- span -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("label", "area", "room"),
    [
        ("20 × 8", 1.0, 0.001),
        ("20 × 16", 0.9996, 0.0096),
        ("20 × 32", 0.879, 0.03),
        ("50 × 16", 0.806, 0.03),
        ("20 × 8, 5 local steps", 1.0, 0.001),
        ("20 × 8, clipped, noise 0.01 C", 0.887, 0.04),
        ("20 × 8, secure sums", 1.0, 0.001),
        ("20 × 8, secure sums, shared noise of ε 8 over 100 rounds", 0.5, 0.06),
    ],
)
def test_the_span_of_a_mean_tells_who_was_in(label: str, area: float, room: float) -> None:
    """completion.md, section 7; of one seed each (standard error of the last: 0.024). Secure sums
    are those of a recorded run: masks do not matter to a mean, noise does."""
    assert span_area(0, label)[0].auc == pytest.approx(area, abs=room)


def test_the_space_has_as_many_directions_as_samples() -> None:
    inputs = normal("inputs", 5, 30)
    layer = normal("errors", 40, 5) @ inputs
    basis = row_space(layer)
    assert basis.shape == (30, 5)
    np.testing.assert_allclose(basis.T @ basis, np.eye(5), atol=1e-12)
    scores = span_scores(basis, np.vstack([inputs, normal("others", 5, 30)]))
    assert scores[:5].min() > -1e-9
    assert scores[5:].max() < -0.5
    assert row_space(layer, rank=3).shape == (30, 3)
    assert row_space(np.zeros((4, 6))).shape == (6, 0)
    with pytest.raises(InvalidSetting, match="inputs is"):
        span_scores(basis, inputs[:, :20])
    with pytest.raises(InvalidSetting, match="layer is 'not finite'"):
        row_space(np.full((2, 2), np.nan))
