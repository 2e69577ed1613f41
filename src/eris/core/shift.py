"""Shifted compression (DSC): compress the difference to a reference that everyone can follow.

The default keeps *one* reference s, the same on every node: with a mask shared by all clients,
Σ w_k C(g_k − s_k) = C(ḡ − s), so the paper's iterates need no per-client state. The paper mode
keeps a reference s_k per client and one per shard with the invariant s = Σ w_k s_k.

Everything is float32 with unfused + and ×, coordinate by coordinate.
"""

from __future__ import annotations

import math

import numpy as np

from eris.core.errors import require
from eris.core.vectors import Vector


def shift_step(omega: float) -> float:
    """γ = √((1 + 2ω) / (2(1 + ω)³)) (ERIS, theorem 3.2).

    >>> round(shift_step(0.0), 6)
    0.707107
    """
    require(0 <= omega < math.inf, "omega", omega, "a finite number, 0 or more")
    # γ is part of the replicated state and must be the same bits on every node. IEEE 754 fixes the
    # bits of ×, / and √; those of ** are up to the C library's pow, which differs between systems.
    cube = (1 + omega) * (1 + omega) * (1 + omega)
    require(cube < math.inf, "omega", omega, "a number whose cube float64 can hold")
    return math.sqrt((1 + 2 * omega) / (2 * cube))


def difference(update: Vector, reference: Vector) -> Vector:
    """What a client compresses: g_k − s."""
    return update - reference


def estimate(reference: Vector, increment: Vector) -> Vector:
    """What the server rule is given: v̂ = s + v̄."""
    return reference + increment


def advance(reference: Vector, increment: Vector, gamma: float) -> Vector:
    """The next reference: s + γ·v̄.

    >>> advance(np.zeros(1, np.float32), np.ones(1, np.float32), 0.5)
    array([0.5], dtype=float32)
    """
    return reference + np.float32(gamma) * increment
