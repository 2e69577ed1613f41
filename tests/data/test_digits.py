"""The digits of scikit-learn, local copies, and what is said without either."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import numpy as np
import pytest

from eris.core.errors import DataUnavailable, InvalidSetting
from eris.data import load
from eris.data.digits import load_digits
from eris.data.idx import MalformedData
from eris.data.sources import fetch

CONTENTS = "68aea062d35a127749050fa0e52dca09d6569ac08092c925610e0954e172dde2"
ROW = ",".join(str(i % 17) for i in range(64)) + ",7\n"


def test_all_digits_are_there() -> None:
    whole = load_digits()
    assert whole.name == "digits"
    assert whole.source.startswith("scikit-learn ")
    assert whole.source.endswith(f"(contents sha256 {CONTENTS})")
    assert whole.train_images.shape == (1438, 8, 8)
    assert whole.test_images.shape == (359, 8, 8)
    assert whole.train_labels[:10].tolist() == list(range(10))
    counts = np.bincount(np.concatenate([whole.train_labels, whole.test_labels]))
    assert counts.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert whole.train_images.max() == 16
    assert not whole.train_images.flags.writeable
    assert load("digits").source == whole.source


def test_without_scikit_learn_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.delitem(sys.modules, "sklearn.datasets", raising=False)
    with pytest.raises(DataUnavailable, match=r"'eris-fl\[sklearn\]'`, or give `path`"):
        load_digits()


def test_there_is_nothing_to_fetch(tmp_path: Path) -> None:
    with pytest.raises(DataUnavailable, match=r"come with scikit-learn \(`pip install 'eris-fl"):
        fetch("digits", cache=tmp_path)
    with pytest.raises(InvalidSetting, match="data set is 'digit'; expected one of mnist, fash"):
        load("digit")


@pytest.mark.parametrize("style", ["whole", "decimal", "packed"])
def test_a_local_file_is_read(tmp_path: Path, style: str) -> None:
    text = ROW * 10
    if style == "decimal":  # as scikit-learn writes them
        text = "\n".join(
            ",".join(f"{float(x):.18e}" for x in row.split(",")) for row in text.splitlines()
        )
    path = tmp_path / ("digits.csv.gz" if style == "packed" else "optdigits.tes")
    path.write_bytes(gzip.compress(text.encode()) if style == "packed" else text.encode())
    data = load_digits(path)
    assert data.train_images.shape == (8, 8, 8)
    assert data.test_images[1].ravel().tolist() == [i % 17 for i in range(64)]
    assert data.test_labels.tolist() == [7, 7]
    assert data.source.startswith(f"file {path} (contents sha256 ")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("\n", "holds no images"),
        ("1,2,3\n", "has 3 columns; expected 65"),
        (ROW.replace("16", "17"), "has pixels from 0 to 17; expected 0 to 16"),
        (ROW.replace(",7\n", ",10\n"), "has labels from 10 to 10; expected 0 to 9"),
        (ROW.replace(",7\n", ",7.5\n"), "holds numbers that are not whole"),
        (ROW.replace(",7\n", ",nan\n"), "holds numbers that are not whole"),
        (ROW.replace(",7\n", ",é\n"), "could not convert string"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "optdigits.tes"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(MalformedData, match=complaint) as caught:
        load_digits(path)
    assert str(path) in str(caught.value)


def test_a_missing_or_broken_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataUnavailable, match=r"No such file .*expected the file optdigits\.tes"):
        load_digits(tmp_path / "none")
    (tmp_path / "digits.csv.gz").write_bytes(gzip.compress(ROW.encode())[:-5])
    with pytest.raises(MalformedData, match="is not a whole gzip file"):
        load_digits(tmp_path / "digits.csv.gz")
