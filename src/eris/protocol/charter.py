"""In what two charters, a federation's agreed settings as text, differ."""

from __future__ import annotations

import json
from collections.abc import Iterator

LONGEST_CHARTER = 48 * 1024
"""Bytes; a request to the directory, which carries one, has at most 64 KiB."""
MOST_DIFFERENCES = 8
LONGEST_VALUE = 60
MISSING = object()


def differences(here: str, federation: str) -> list[str]:
    """In what a member's charter departs from the federation's, a line each, for people.

    Both are JSON objects as a rule; of other text it is only said that it differs.

    >>> differences('{"n": 61706, "plan": {"shards": 4}}', '{"n": 44426, "plan": {"shards": 4}}')
    ['n is 61706 here, 44426 in the federation']
    """
    if here == federation:
        return []
    try:
        found = list(_compare("", json.loads(here), json.loads(federation)))
    except (ValueError, RecursionError):  # the text may come from a peer: nested without end
        found = []
    more = len(found) - MOST_DIFFERENCES
    return found[:MOST_DIFFERENCES] + ([f"and {more} more"] if more > 0 else [])


def _compare(where: str, here: object, there: object) -> Iterator[str]:
    if isinstance(here, dict) and isinstance(there, dict):
        for key in sorted({*here, *there}):
            inner = f"{where}.{key}" if where else str(key)
            yield from _compare(inner, here.get(key, MISSING), there.get(key, MISSING))
    elif here != there:
        name = _shortened(where) or "the charter"
        yield f"{name} is {_shown(here)} here, {_shown(there)} in the federation"


def _shown(value: object) -> str:
    return "missing" if value is MISSING else _shortened(json.dumps(value))


def _shortened(text: str) -> str:
    text = "".join(c if c.isprintable() else "?" for c in text)  # it may go to a terminal
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"
