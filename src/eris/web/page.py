"""A document as one file of HTML: style, script and data are in it, and it asks nobody for more."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from functools import cache
from importlib.resources import files
from typing import Any

from eris import __version__
from eris.web.blocks import Document

COMPLETE = "This file is complete: it loads nothing from anywhere."
LIVE = "Live: it follows what is stored and what nodes say of themselves."


def written(document: Document) -> str:
    """The page of a document, whole.

    >>> "<title>a run" in written(Document("a run", "", [], []))
    True
    """
    return _page(document, policy(), "", COMPLETE)


def live(document: Document, events: str) -> str:
    """The page of a document that goes on changing: ``events`` is where news of it comes from."""
    return _page(document, policy("connect-src 'self'"), events, LIVE)


@cache
def policy(*more: str) -> str:
    """What a page may run and load: what it was written with."""
    return "; ".join((
        "default-src 'none'", f"script-src {_named(asset('page.js'))}",
        f"style-src {_named(asset('page.css'))}", "img-src data: blob:", "base-uri 'none'",
        "form-action 'none'", *more,
    ))  # fmt: skip


def _page(document: Document, allowed: str, events: str, about: str) -> str:
    filled = {
        "policy": allowed,
        "title": html.escape(f"{document.title} · ERIS"),
        "version": html.escape(__version__),
        "events": html.escape(events),
        "about": about,
        "style": asset("page.css"),
        "data": embedded(document.data()),
        "script": asset("page.js"),
    }
    # In one pass: what is filled in is never looked through for places to fill.
    return re.sub(r"\{(\w+)\}", lambda found: filled[found[1]], asset("page.html"))


def embedded(data: dict[str, Any]) -> str:
    """JSON that can stand inside a script's element: nothing in it ends one.

    >>> embedded({"name": "</script>"})
    '{"name":"\\\\u003c/script>"}'
    """
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


@cache
def asset(name: str) -> str:
    """A file that pages are made of."""
    return files("eris.web").joinpath("assets", name).read_text(encoding="utf-8")


def _named(text: str) -> str:
    """How a policy names a text that may be used."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
