"""Refuse a built site that loads anything from elsewhere: its readers may be behind walls.

python docs/site/check.py build/site
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path

LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
NOT_LOADED = {"canonical", "next", "prev", "edit", "alternate"}
"""Of links in a page's head: those that say where something is, and load nothing."""


class Loads(HTMLParser):
    """What a page loads as soon as it is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Take down what a tag loads."""
        given = dict(attributes)
        if tag in LOADED and given.get("rel") not in NOT_LOADED:
            self.found.append(given.get(LOADED[tag]) or "")


def elsewhere(page: str) -> list[str]:
    """The addresses on other hosts that a page loads.

    >>> elsewhere('<link rel="stylesheet" href="https://fonts.example.org/a.css"><img src="a.png">')
    ['https://fonts.example.org/a.css']
    >>> elsewhere('<a href="https://example.org">read on</a> <style>@import url(//x.org/y)</style>')
    ['//x.org/y']
    """
    loads = Loads()
    loads.feed(page)
    imported = re.findall(r"url\(['\"]?((?:https?:)?//[^)'\"]+)", page)
    return [one for one in loads.found if re.match(r"(https?:)?//", one)] + imported


def main(folder: Path) -> None:
    """Check all pages and style sheets of a site."""
    pages = sorted(folder.rglob("*.html"))
    if len(pages) < 40:
        sys.exit(f"{folder} has {len(pages)} pages; expected the whole site")
    found = {page: elsewhere(page.read_text(encoding="utf-8")) for page in pages}
    for sheet in folder.rglob("*.css"):
        found[sheet] = re.findall(r"url\(((?:https?:)?//[^)]+)", sheet.read_text(encoding="utf-8"))
    wrong = [f"{path} loads {', '.join(some)}" for path, some in found.items() if some]
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"{len(pages)} pages, which load nothing from elsewhere: {folder}/index.html")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
