"""IMDB: 25,000 + 25,000 film reviews, half of each negative (0) and half positive (1).

Maas et al., "Learning word vectors for sentiment analysis" (ACL 2011). The reviews come as they
were written, with their ``<br />`` marks, and ordered by label: split or shuffle before use.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from eris.data.cache import Location
from eris.data.idx import MalformedData
from eris.data.text import TEST, TRAIN, TextData, encode_json_lines, load_json_lines

_QUARTER = 12_500


def load_imdb(path: Location = None, *, cache: Location = None) -> TextData:
    """IMDB from the user's folder ``path`` (``train.jsonl``, ``test.jsonl``), else from the cache.

    A line of these files is ``{"text": "…", "label": 0}``, with label 1 for a positive review.
    """
    return load_json_lines("imdb", 2, path, cache)


def from_reviews(members: Mapping[str, bytes]) -> dict[str, bytes]:
    """The two files from one list of ``{"t": text, "s": label}``.

    The list has four quarters: negative test, negative train, positive test, positive train.
    """
    ((member, data),) = members.items()
    try:
        rows = [(str(review["t"]), int(review["s"])) for review in json.loads(data)]
    except (ValueError, KeyError, TypeError) as broken:
        raise MalformedData(member, f"is not a list of reviews ({broken!r})") from broken
    expected = [label for label in (0, 0, 1, 1) for _ in range(_QUARTER)]
    if [label for _, label in rows] != expected:
        raise MalformedData(
            member,
            f"has {len(rows)} reviews or another order; expected 25,000 negative ones and then "
            "25,000 positive ones",
        )
    quarters = [rows[start : start + _QUARTER] for start in range(0, len(rows), _QUARTER)]
    return {
        TRAIN: encode_json_lines(quarters[1] + quarters[3]),
        TEST: encode_json_lines(quarters[0] + quarters[2]),
    }
