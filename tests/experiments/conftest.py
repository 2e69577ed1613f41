"""The command, and images in the format of MNIST: ten kinds of stripes, with noise on them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from eris.core.streams import Stream
from eris.data.idx import encode_idx
from eris.data.images import TEST_IMAGES, TEST_LABELS, TRAIN_IMAGES, TRAIN_LABELS
from support.command import Eris


@pytest.fixture(scope="session")
def stripes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stripes")
    for images, labels, count, seed in (
        (TRAIN_IMAGES, TRAIN_LABELS, 120, 1),
        (TEST_IMAGES, TEST_LABELS, 40, 2),
    ):
        kinds = np.arange(count, dtype=np.uint8) % 10
        noise = Stream(seed, "noise").uniform(0, count * 784).reshape(count, 28, 28)
        rows = np.arange(28)[None, :] // 3 == kinds[:, None]
        pictures = 155 * rows[:, :, None] + 100 * noise
        (folder / images).write_bytes(encode_idx(pictures.astype(np.uint8)))
        (folder / labels).write_bytes(encode_idx(kinds))
    return folder


@pytest.fixture
def eris(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Eris:
    """The command, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("ERIS_RUNS", raising=False)
    return Eris(monkeypatch, capsys)
