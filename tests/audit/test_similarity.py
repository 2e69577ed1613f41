"""Measures of likeness; the published values of LPIPS are held in tests/data/test_lpips.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from eris.audit import similarity
from eris.audit.inversion.judging import assigned, likeness
from eris.core.errors import InvalidSetting
from eris.data.weights import MODEL
from support.lpips import stand_in

DRAW = np.random.Generator(np.random.Philox(key=3))


def some(count: int, channels: int = 3, side: int = 40) -> similarity.Pictures:
    return DRAW.random((count, channels, side, side), dtype=np.float32)


def test_ssim_is_the_mean_of_wangs_formula() -> None:
    one, other = some(1, 1), some(1, 1)
    x, y = (image[0, 0].astype(np.float64) for image in (one, other))

    def mean(image: np.ndarray) -> np.ndarray:
        return np.asarray(gaussian_filter(image, 1.5, truncate=3.5))

    mx, my = mean(x), mean(y)
    vx, vy, cov = mean(x * x) - mx**2, mean(y * y) - my**2, mean(x * y) - mx * my
    a, b = 0.01**2, 0.03**2
    found = (2 * mx * my + a) * (2 * cov + b) / ((mx**2 + my**2 + a) * (vx + vy + b))
    inner = found[5:-5, 5:-5].mean()
    np.testing.assert_allclose(similarity.ssim(one, other), [inner], atol=1e-4)


def test_snr_is_against_the_picture_and_psnr_against_the_largest_pixel() -> None:
    grey = np.full((1, 1, 4, 4), 0.5, np.float32)
    found = grey + np.float32(0.05)
    np.testing.assert_allclose(similarity.psnr(grey, found), [26.02], atol=0.01)
    np.testing.assert_allclose(similarity.snr(grey, found), [20.0], atol=0.01)
    np.testing.assert_allclose(similarity.psnr(grey, grey), [120.0])


def test_lpips_has_the_laws_of_a_distance(tmp_path: Path) -> None:
    (tmp_path / MODEL).write_bytes(stand_in())
    lpips = similarity.Lpips(tmp_path)
    one, other = some(3), some(3)
    np.testing.assert_array_equal(lpips(one, one), np.zeros(3))
    apart = lpips(one, other)
    assert (apart > 0).all()
    np.testing.assert_allclose(apart, lpips(other, one), rtol=1e-4)
    single = [lpips(one[n : n + 1], other[n : n + 1])[0] for n in range(3)]
    np.testing.assert_allclose(apart, single, rtol=1e-4)
    # Grey is the same colour three times; small pictures are enlarged.
    grey, dark = some(1, 1), some(1, 1)
    three = lpips(grey.repeat(3, axis=1), dark.repeat(3, axis=1))
    np.testing.assert_allclose(lpips(grey, dark), three, rtol=1e-5)
    assert np.isfinite(lpips(some(1, 1, 28), some(1, 1, 28))).all()


def test_small_pictures_have_the_measures_that_they_can_have() -> None:
    found = likeness(some(2, 1, 8), some(2, 1, 8)).medians()
    assert found["SSIM"] is None
    assert found["LPIPS"] is None
    assert found["PSNR"] is not None
    with pytest.raises(InvalidSetting, match="picture is '8 × 8'; expected at least 11 × 11"):
        similarity.ssim(some(1, 1, 8), some(1, 1, 8))


def test_pixels_of_another_scale_and_other_shapes_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="from 0 to 1; scale and cut them"):
        similarity.mse(some(1), 255 * some(1))
    with pytest.raises(InvalidSetting, match="two of one shape"):
        similarity.mse(some(1), some(2))


def test_reconstructions_are_assigned_to_whom_they_fit_best() -> None:
    originals = some(5, 1, 6)
    shuffled = np.clip(originals[[3, 0, 4, 1, 2]] + 0.01, 0, 1)
    np.testing.assert_allclose(assigned(originals, shuffled), np.clip(originals + 0.01, 0, 1))
    np.testing.assert_array_equal(assigned(originals[:2], originals), originals[:2])
