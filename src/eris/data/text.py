"""Texts with labels, and JSON lines: one ``{"text": …, "label": …}`` a line, in UTF-8."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eris.data.cache import Location, located
from eris.data.idx import MalformedData

TRAIN = "train.jsonl"
TEST = "test.jsonl"
FILES = (TRAIN, TEST)


@dataclass(frozen=True, eq=False)
class TextData:
    """Texts and their labels, split as published; the labels are read-only.

    ``source`` says where the bytes came from, with a checksum, to be printed with every result.
    """

    name: str
    source: str
    train_texts: list[str]
    train_labels: NDArray[np.uint8]
    test_texts: list[str]
    test_labels: NDArray[np.uint8]


def load_json_lines(name: str, classes: int, path: Location, cache: Location) -> TextData:
    """``train.jsonl`` and ``test.jsonl`` from the user's folder ``path``, else from the cache."""
    expected = f'{TRAIN} and {TEST} with one {{"text": …, "label": …}} a line'
    folder, source = located(name, FILES, path, cache, expected)
    train, test = (
        decode_json_lines((folder / file).read_bytes(), classes, where=folder / file)
        for file in FILES
    )
    return TextData(name, source, *train, *test)


def encode_json_lines(rows: Iterable[tuple[str, int]]) -> bytes:
    r"""The file of texts and labels.

    >>> encode_json_lines([("Good.", 1), ("No…", 0)]).decode()
    '{"text": "Good.", "label": 1}\n{"text": "No…", "label": 0}\n'
    """
    lines = (
        json.dumps({"text": text, "label": label}, ensure_ascii=False) + "\n"
        for text, label in rows
    )
    return "".join(lines).encode()


def decode_json_lines(
    data: bytes, classes: int, *, where: object = "JSON lines"
) -> tuple[list[str], NDArray[np.uint8]]:
    """The texts and labels in ``data``; ``where`` is the name to use in an error.

    >>> decode_json_lines(b'{"text": "Good.", "label": 1}', classes=2)
    (['Good.'], array([1], dtype=uint8))
    """
    texts: list[str] = []
    labels: list[int] = []
    # Not `splitlines`: reviews hold characters such as U+0085 that it takes for the end of a line.
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        text, label = _row(line, classes, f"{where} line {number}")
        texts.append(text)
        labels.append(label)
    if not texts:
        raise MalformedData(where, "holds no texts")
    return texts, read_only(labels)


def read_only(labels: Sequence[int]) -> NDArray[np.uint8]:
    """Labels as an array that cannot be changed by accident."""
    array = np.array(labels, dtype=np.uint8)
    array.setflags(write=False)
    return array


def _row(line: bytes, classes: int, where: str) -> tuple[str, int]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as broken:
        raise MalformedData(where, f"is not JSON in UTF-8 ({broken})") from broken
    text = row.get("text") if isinstance(row, dict) else None
    label = row.get("label") if isinstance(row, dict) else None
    if not isinstance(text, str):
        raise MalformedData(where, 'has no string "text"; expected {"text": …, "label": …}')
    # `type`, for True is an int too.
    if type(label) is not int or not 0 <= label < classes:
        raise MalformedData(
            where, f'has "label" {label!r}; expected an integer from 0 to {classes - 1}'
        )
    return text, label
