"""Draws docs/pictures/round.svg: one round of a federation, with a server and without.

python docs/site/picture.py
"""

from __future__ import annotations

from math import cos, pi, sin
from pathlib import Path

PLACE = Path(__file__).parents[1] / "pictures" / "round.svg"
COLOURS = ("#3b6fb6", "#c8553d", "#3f8f5f", "#b58a1b", "#7a5aa6")
NAMES = ("anna", "ben", "cleo", "dora", "emil")
RADIUS = 120


def drawn() -> str:
    """The picture."""
    left = [*_members(190, 190), *_central(190, 190)]
    right = [*_shared(610, 190), *_members(610, 190)]
    words = [
        _text(190, 375, "with a server: it holds every whole update"),
        _text(610, 375, "with ERIS: each gets one shard of every update"),
    ]
    parts = "\n".join(f"  {part}" for part in (*left, *right, *words))
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 395" '
        'font-family="sans-serif" font-size="15" text-anchor="middle">\n'
        f'  <rect width="800" height="395" fill="#ffffff"/>\n{parts}\n</svg>\n'
    )


def _at(x: float, y: float, number: int) -> tuple[float, float]:
    angle = 2 * pi * number / len(NAMES) - pi / 2
    return x + RADIUS * cos(angle), y + RADIUS * sin(angle)


def _members(x: float, y: float) -> list[str]:
    made = []
    for number, name in enumerate(NAMES):
        across, down = _at(x, y, number)
        made.append(
            f'<circle cx="{across:.0f}" cy="{down:.0f}" r="30" fill="#f2f2f2" stroke="#444"/>'
        )
        made.append(_text(across, down + 5, name))
    return made


def _central(x: float, y: float) -> list[str]:
    """Whole updates, of all five colours, to one place."""
    made = []
    for number in range(len(NAMES)):
        across, down = _at(x, y, number)
        for band, colour in enumerate(COLOURS):
            made.append(_line(across, down, x, y, 4 * (band - 2), colour))
    half = 26
    made.append(
        f'<rect x="{x - half}" y="{y - half}" width="{2 * half}" height="{2 * half}" fill="#222"/>'
    )
    made.append(_text(x, y + 5, "server", "#fff"))
    return made


def _shared(x: float, y: float) -> list[str]:
    """A shard, of one colour, from each to its owner."""
    made = []
    for owner, colour in enumerate(COLOURS):
        there = _at(x, y, owner)
        for number in range(len(NAMES)):
            if number != owner:
                made.append(_line(*_at(x, y, number), *there, 3 if number < owner else -3, colour))
    return made


def _line(x1: float, y1: float, x2: float, y2: float, aside: float, colour: str) -> str:
    """From circle to circle, shifted a little aside, so that both ways can be seen."""
    length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
    along = (x2 - x1) / length, (y2 - y1) / length
    move = -along[1] * aside, along[0] * aside
    begin, end = 30, length - 30
    ends = [(x1 + along[0] * far + move[0], y1 + along[1] * far + move[1]) for far in (begin, end)]
    (a, b), (c, d) = ends
    return (
        f'<line x1="{a:.1f}" y1="{b:.1f}" x2="{c:.1f}" y2="{d:.1f}" stroke="{colour}" '
        'stroke-width="2.5"/>'
    )


def _text(x: float, y: float, words: str, colour: str = "#222") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" fill="{colour}">{words}</text>'


if __name__ == "__main__":
    PLACE.write_text(drawn(), encoding="utf-8")
