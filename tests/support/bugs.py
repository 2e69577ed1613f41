"""Bugs that are put in on purpose must be found by one of the first worlds."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from eris.core.errors import MalformedMessage
from eris.core.ring import Words, add_wire, signed
from eris.protocol.authority.directory import Directory
from eris.protocol.secure.sums import Answer, MaskedSum, OpenedSum
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


class Hasty(Directory):
    """Lets a new view begin right after the last round that was reported."""

    def _settle(self) -> bool:
        kept = self._members
        self._members = [replace(member, through=member.round) for member in kept]
        try:
            return super()._settle()
        finally:
            self._members = kept


def opened_unchecked(
    self: MaskedSum, answers: Sequence[Answer], bound: float, noise: float = 0.0,
    own: tuple[Words, Words] | None = None, heaviest: float = math.inf, lightest: int = 1,
) -> OpenedSum:  # fmt: skip
    """In place of ``MaskedSum.opened``: whatever comes out."""
    head, masks = self.head.copy(), np.zeros(len(self.words), np.uint64)
    for one in answers:
        head -= one.head
        add_wire(masks, one.wire, self.form)
    words = self.words - masks + (own[1] if own is not None else np.uint64(0))
    head += own[0] if own is not None else np.uint64(0)
    return OpenedSum(max(1, int(head[0])), int(head[1]), signed(words, self.form))
