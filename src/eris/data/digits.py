"""Digits: 1,797 handwritten digits of 8 × 8 pixels in 17 grey levels (0 to 16), no download.

The test part of "Optical recognition of handwritten digits" (Alpaydin and Kaynak, UCI, 1998), which
scikit-learn carries. It has no published split: here the last fifth, 359 images, is the test part.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eris.core.errors import DataUnavailable
from eris.data.cache import Location
from eris.data.idx import MalformedData, whole_gzip
from eris.data.images import ImageData

LICENCE = "CC BY 4.0 (UCI), carried by scikit-learn (BSD-3-Clause)"
INSTALL = "pip install 'eris-fl[sklearn]'"

_SIDE = 8
_COLUMNS = _SIDE * _SIDE + 1
_TEST_SHARE = 5


def load_digits(path: Location = None) -> ImageData:
    """Digits from the user's file ``path``, else from the installed scikit-learn.

    The file is ``optdigits.tes`` or scikit-learn's ``digits.csv``, plain or ``.gz``: 64 pixels
    and then the label a row, separated by commas.
    """
    if path is None:
        table, version = _from_sklearn()
        origin = f"scikit-learn {version}"
    else:
        table, origin = _from_file(Path(path)), f"file {path}"
    _check(table, origin)
    rows = table.astype(np.uint8)
    source = f"{origin} (contents sha256 {hashlib.sha256(rows.tobytes()).hexdigest()})"
    images = np.ascontiguousarray(rows[:, :-1]).reshape(-1, _SIDE, _SIDE)
    labels = np.ascontiguousarray(rows[:, -1])
    for array in (images, labels):
        array.setflags(write=False)
    first = len(rows) - len(rows) // _TEST_SHARE
    return ImageData(
        "digits", source, images[:first], labels[:first], images[first:], labels[first:]
    )


def _from_sklearn() -> tuple[NDArray[np.int64], str]:
    try:
        datasets = importlib.import_module("sklearn.datasets")
        version = importlib.import_module("sklearn").__version__
    except ImportError as missing:
        raise DataUnavailable(
            f"digits come with scikit-learn, which is not installed ({missing}); "
            f"run `{INSTALL}`, or give `path`, your own optdigits.tes"
        ) from missing
    pixels, labels = datasets.load_digits(return_X_y=True)
    table: NDArray[np.int64] = np.column_stack([pixels, labels]).astype(np.int64)
    return table, str(version)


def _from_file(path: Path) -> NDArray[np.int64]:
    try:
        data = path.read_bytes()
        with whole_gzip(path):
            data = gzip.decompress(data) if path.suffix == ".gz" else data
    except OSError as missing:
        raise DataUnavailable(
            f"{missing}; expected the file optdigits.tes or digits.csv; or run `{INSTALL}` and "
            "leave `path` out"
        ) from missing
    lines = data.decode("latin-1").split()
    if not lines:
        raise MalformedData(path, "holds no images")
    try:
        # Whole numbers, which scikit-learn's own file writes as 0.000000000000000000e+00.
        table = np.loadtxt(lines, dtype=np.float64, delimiter=",", ndmin=2)
    except ValueError as broken:  # it names the row
        raise MalformedData(path, str(broken)) from broken
    whole = table.astype(np.int64) if np.isfinite(table).all() else None
    if whole is None or not np.array_equal(whole, table):
        raise MalformedData(path, "holds numbers that are not whole")
    return whole


def _check(table: NDArray[np.int64], where: str) -> None:
    if table.shape[1] != _COLUMNS:
        raise MalformedData(
            where, f"has {table.shape[1]} columns; expected 65, the pixels and a label"
        )
    for what, values, most in (("pixels", table[:, :-1], 16), ("labels", table[:, -1], 9)):
        low, high = values.min(), values.max()
        if low < 0 or high > most:
            raise MalformedData(where, f"has {what} from {low} to {high}; expected 0 to {most}")
