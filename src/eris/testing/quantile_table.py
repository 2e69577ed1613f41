"""Writes the table of :mod:`eris.core.quantile`: ``python -m eris.testing.quantile_table``."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from eris.core import quantile


def main() -> None:
    """Compute all cells to 200 bits."""
    cells = [
        quantile.cell(octave, number)
        for octave in range(quantile.OCTAVES)
        for number in range(quantile.CELLS)
    ]
    middle = np.array([(m >> 64, m & (1 << 64) - 1) for m, _ in cells], np.uint64)
    path = Path(quantile.__file__).with_name(quantile.TABLE)
    np.savez(path, middle=middle, terms=np.array([terms for _, terms in cells]))


if __name__ == "__main__":
    main()
