"""Bugs that are put in on purpose must be found by one of the first worlds."""

from __future__ import annotations

import re
from typing import Any

import pytest

from eris.core.errors import MalformedMessage
from eris.testing import LawBroken
from eris.testing.weather import Trouble
from eris.testing.world import World


def catch(
    patch: pytest.MonkeyPatch, law: str, *kinds: Trouble, most: int = 10, **world: Any
) -> None:
    """One of the first worlds breaks this law; without the bug it does not."""
    shape = {what: world.pop(what) for what in ("shape", "incidents") if what in world}
    for seed in range(most):
        try:
            World(seed, kinds=frozenset(kinds), **shape, **world).run()
        except (LawBroken, MalformedMessage) as found:  # an owner checks its own results, too
            broken = str(found)
            break
    else:
        pytest.fail(f"{most} seeds did not catch it")
    assert re.search(law, broken)
    patch.undo()
    World(seed, kinds=frozenset(kinds), **shape).run()
