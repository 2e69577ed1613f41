"""Originals and reconstructions side by side, as one picture of small pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from eris.audit.inversion.recorded import ReconstructionReport
from eris.audit.similarity import Pictures

COLUMNS = 16
"""Images of an observer that are shown, the first ones."""
HEIGHT = 56
"""Pixels of a small picture; smaller ones are enlarged by a whole number."""
GAP = 4
LABELS = 190


def grid(report: ReconstructionReport, path: Path) -> Path:
    """Three lines an observer: the originals, what was reconstructed, and the control."""
    lines: list[tuple[str, Pictures]] = []
    for shown in report.shown:
        about = f"{shown.observer}, {100 * shown.visible:.3g} % seen"
        lines += [(about, shown.originals), (report.attack, shown.found)]
        lines += [("control: random numbers", shown.control)]
    return drawn(lines, path)


def drawn(lines: Sequence[tuple[str, Pictures]], path: Path) -> Path:
    """Lines of pictures (count, channels, height, width) in [0, 1], each with its name."""
    columns = min(COLUMNS, max(len(pictures) for _, pictures in lines))
    tiles = [[_tile(one) for one in pictures[:columns]] for _, pictures in lines]
    width = max(tile.width for row in tiles for tile in row)
    height = max(tile.height for row in tiles for tile in row)
    size = (LABELS + columns * (width + GAP), len(lines) * (height + GAP) + GAP)
    whole = Image.new("RGB", size, "white")
    pen = ImageDraw.Draw(whole)
    for row, ((name, _), line) in enumerate(zip(lines, tiles, strict=True)):
        top = GAP + row * (height + GAP)
        pen.text((GAP, top + height // 2 - 6), name, fill="black")
        for column, tile in enumerate(line):
            whole.paste(tile, (LABELS + column * (width + GAP), top))
    path.parent.mkdir(parents=True, exist_ok=True)
    whole.save(path)
    return path


def _tile(picture: Pictures) -> Image.Image:
    bytes_ = np.rint(255 * np.moveaxis(picture, 0, -1)).astype(np.uint8)
    made = Image.fromarray(bytes_[..., 0] if bytes_.shape[2] == 1 else bytes_).convert("RGB")
    by = max(1, HEIGHT // made.height) if made.height > 1 else 1
    return made.resize((by * made.width, by * made.height), Image.Resampling.NEAREST)
