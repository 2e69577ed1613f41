"""Class counts and their picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from eris.core.errors import InvalidSetting
from eris.data.partition import dirichlet
from eris.data.picture import class_counts, plot_partition


def test_counts_are_by_client_and_class() -> None:
    labels = np.repeat([3, 5, 9], 40)
    parts = dirichlet(labels, 6, 0.3, 1, 15)
    counts = class_counts(labels, parts)
    assert counts.shape == (6, 3)
    assert counts.sum(axis=1).tolist() == [15] * 6
    for client, part in enumerate(parts):
        assert counts[client].tolist() == [int((labels[part] == c).sum()) for c in (3, 5, 9)]


@pytest.mark.parametrize("place", [-1, 3])
def test_a_sample_that_has_no_label_is_named(place: int) -> None:
    with pytest.raises(InvalidSetting, match=r"samples of client 1 is .* places from 0 to 2"):
        class_counts([0, 1, 1], [np.array([0]), np.array([1, place])])


@pytest.mark.parametrize("classes", [1, 10, 30])
def test_the_picture_shows_a_bar_per_client_in_the_colours_of_its_classes(
    tmp_path: Path, classes: int
) -> None:
    labels = np.arange(10 * classes) % classes
    whole, single = np.arange(10 * classes), np.flatnonzero(labels == 0)
    seen = []
    for name, parts in (("whole", [whole]), ("single", [single])):
        path = tmp_path / "made on the way" / f"{name}.png"
        plot_partition(labels, parts, path, title=name)
        with Image.open(path) as picture:
            assert picture.format == "PNG"
            middle = np.asarray(picture.convert("RGB"))[:, picture.width // 3]
        seen.append(len(np.unique(middle, axis=0)))
    # A line through the one bar crosses all of its colours.
    assert seen[0] - seen[1] >= classes - 1 if classes <= 10 else seen[0] > seen[1]
