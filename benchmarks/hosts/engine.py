"""A round of the simulator's in-step engine: its CPU seconds, on prepared vectors."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from time import process_time
from typing import Any

import numpy as np
from benchmarks.growth import SAMPLES, PreparedUpdates

from eris.core.combine import FixedPoint
from eris.federation import Federation
from eris.methods.registry import create

SECURE = {"secure_sums": "secure"}
"""The word of a charter that a method has another name for."""


def engine_cpu_seconds(
    clients: int, parameters: int, rounds: int, charter: Mapping[str, Any]
) -> float:
    """The middle one of some rounds after the first, with as many aggregators as clients."""
    settings = {SECURE.get(word, word): value for word, value in charter.items()}
    precision = FixedPoint(settings.pop("value_range"))
    method = create("eris", aggregators=clients, **settings)
    population = PreparedUpdates(clients, parameters)
    federation = Federation(
        population, np.zeros(parameters, np.float32), method, precision=precision,
        samples=[SAMPLES] * clients,
    )  # fmt: skip
    session, used = federation.start(rounds=rounds + 1), []
    for _ in range(rounds + 1):
        began = process_time()
        session.step()
        used.append(process_time() - began)
    return statistics.median(used[1:])
