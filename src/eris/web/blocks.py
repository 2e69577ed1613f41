"""What a page is made of: a document has sections, a section has blocks, a block is data alone.

Python says what there is to show; one script in the page (``assets/page.js``) draws it, whether the
document was written into the page or comes to it piece by piece. So every plot is drawn by one
piece of code, and its data can be saved from the page as they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

Point = tuple[float, float | None]
"""x, and y or that there is none."""


@dataclass(frozen=True)
class Way:
    """A way to another page."""

    text: str
    href: str


Cell = str | int | float | Way | None


@dataclass(frozen=True)
class Series:
    """A named line of a plot."""

    name: str
    points: Sequence[Point]


@dataclass(frozen=True)
class Block:
    """A part of a section; ``note`` says what one looks at."""

    kind: ClassVar[str]
    title: str
    note: str = ""


@dataclass(frozen=True)
class Curves(Block):
    """Values along an axis, a line a series."""

    kind: ClassVar[str] = "lines"
    x: str = ""
    y: str = ""
    series: Sequence[Series] = ()
    levels: Sequence[tuple[str, float]] = ()
    """Named values to compare with, drawn across."""
    zero: bool = False
    """Whether the axis begins at 0, so that a small change looks small."""


@dataclass(frozen=True)
class Spot:
    """A named point."""

    name: str
    x: float
    y: float
    group: str = ""


@dataclass(frozen=True)
class Spots(Block):
    """Named points in a plane; ``front`` joins those that no other point beats."""

    kind: ClassVar[str] = "marks"
    x: str = ""
    y: str = ""
    marks: Sequence[Spot] = ()
    front: Sequence[str] = ()


@dataclass(frozen=True)
class Range:
    """A named value, with its interval where there is one."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Ranges(Block):
    """Values below each other, a row a name."""

    kind: ClassVar[str] = "ranges"
    x: str = ""
    ranges: Sequence[Range] = ()
    levels: Sequence[tuple[str, float]] = ()


@dataclass(frozen=True)
class Span:
    """Somebody's time in a row."""

    row: str
    start: float
    stop: float
    who: str


@dataclass(frozen=True)
class Spans(Block):
    """Rows over an axis, each cut into spans: who owned a shard from when to when."""

    kind: ClassVar[str] = "spans"
    x: str = ""
    spans: Sequence[Span] = ()


@dataclass(frozen=True)
class Matrix(Block):
    """A value for each pair of names: what went over a link."""

    kind: ClassVar[str] = "grid"
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()
    values: Sequence[Sequence[float | None]] = ()
    unit: str = ""
    across: str = "to"
    down: str = "from"


@dataclass(frozen=True)
class Placed:
    """A member on a ring: what it does, in a word, and whether that is well."""

    name: str
    word: str
    well: bool = True


@dataclass(frozen=True)
class Ring(Block):
    """Members in a circle, and around them the shards that each of them owns."""

    kind: ClassVar[str] = "ring"
    centre: str = ""
    seats: Sequence[Placed] = ()
    owners: Sequence[str | None] = ()
    """Of each shard; None: it waits."""


@dataclass(frozen=True)
class Listing(Block):
    """A table."""

    kind: ClassVar[str] = "table"
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Cell]] = ()


@dataclass(frozen=True)
class Verbatim(Block):
    """Text as it is."""

    kind: ClassVar[str] = "text"
    text: str = ""


@dataclass(frozen=True)
class Pictures(Block):
    """Pictures, each with a caption; as data, so that a page needs no other file."""

    kind: ClassVar[str] = "images"
    images: Sequence[tuple[str, str]] = ()
    """(caption, data address)"""


@dataclass(frozen=True)
class Section:
    """Blocks under a heading."""

    title: str
    blocks: Sequence[Block]
    note: str = ""


@dataclass(frozen=True)
class Document:
    """A page: what it is about, a few facts, and sections."""

    title: str
    subtitle: str
    facts: Sequence[tuple[str, str]]
    sections: Sequence[Section]
    alerts: Sequence[str] = ()
    """What a reader should know first."""
    links: Sequence[Way] = ()
    """To other pages, where this is one of several."""

    def data(self) -> dict[str, Any]:
        """The document as JSON knows it: a number that is none is null.

        >>> line = Curves("loss", series=[Series("a", [(1, math.nan)])])
        >>> document = Document("a run", "", [], [Section("Training", [line])])
        >>> document.data()["sections"][0]["blocks"][0]["series"]
        [{'name': 'a', 'points': [[1, None]]}]
        """
        found = asdict(self)
        for section, made in zip(self.sections, found["sections"], strict=True):
            for block, one in zip(section.blocks, made["blocks"], strict=True):
                one["kind"] = block.kind
        plain: dict[str, Any] = _plain(found)
        return plain


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
