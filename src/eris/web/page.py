"""A document as one file of HTML: style, script and data are in it, and it asks nobody for more."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from functools import cache
from importlib.resources import files
from typing import Any

from eris import __version__
from eris.web.blocks import Document


def written(document: Document) -> str:
    """The page of a document, whole.

    >>> "<title>a run" in written(Document("a run", "", [], []))
    True
    """
    return _page(document.title, document.data())


def _page(title: str, data: dict[str, Any]) -> str:
    style, script = asset("page.css"), asset("page.js")
    # What the page may run and load is what it was written with.
    policy = (
        f"default-src 'none'; script-src {_named(script)}; style-src {_named(style)}; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    return (
        asset("page.html")
        .replace("{policy}", policy)
        .replace("{title}", html.escape(f"{title} · ERIS"))
        .replace("{version}", html.escape(__version__))
        .replace("{style}", style)
        .replace("{data}", embedded(data))
        .replace("{script}", script)
    )


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
