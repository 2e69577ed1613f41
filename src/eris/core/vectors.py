"""The type of everything that is trained, cut, sent and combined: a flat float32 vector."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
Indices = NDArray[np.int64]
"""Places in a vector."""
