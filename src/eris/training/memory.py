"""What a client keeps between rounds, and its way into a saved state and back."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from eris.core.errors import InvalidSetting
from eris.core.vectors import Vector

Memory = dict[str, Tensor]
"""What one part of a trainer remembers, by name, each a flat float32 vector; empty at first."""


def saved(*memories: Memory) -> dict[str, Vector]:
    """Copies of all that is remembered."""
    return {
        name: value.cpu().numpy().copy() for memory in memories for name, value in memory.items()
    }


def restored(
    state: Mapping[str, Vector], lengths: Mapping[str, int], device: torch.device
) -> Memory:
    """The part of a saved state that has these names and lengths: all of it, or nothing at all."""
    memory = {}
    for name in sorted(state.keys() & lengths.keys()):
        vector, expected = state[name], (lengths[name],)
        if vector.dtype != np.float32 or vector.shape != expected:
            found = f"{vector.dtype} {vector.shape}"
            raise InvalidSetting(
                f"{name} in the state of the trainer", found, f"float32 {expected}"
            )
        memory[name] = torch.tensor(vector, device=device)
    if memory and (missing := sorted(lengths.keys() - memory.keys())):
        raise InvalidSetting("state of the trainer", f"without {missing}", "what belongs together")
    return memory
