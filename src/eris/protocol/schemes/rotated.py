"""Shared masks in a rotated basis: they train with 0.6 % of the coordinates, both ways.

What a mask adds to a step costs ω·Σ h_i ḡ_i², h the curvature. Gradients are large where curvature
is large; rotated, every place has the mean of both, which is far less. Everything but the client's
boundary runs on y = R·x: clients train and evaluate x = Rᵀ·y, and send of R·g_k.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from eris.core.errors import InvalidSetting
from eris.core.rotation import Rotation, rotated_size
from eris.core.rules import FedAvgM, ServerRule
from eris.core.vectors import Vector
from eris.protocol.schemes.masked import MaskCoding, Masked
from eris.protocol.schemes.scheme import Coding, Scheme

if TYPE_CHECKING:
    from eris.protocol.agreement import Agreement
    from eris.protocol.settings import Settings

LEAST_ROTATED = 0.005
"""Between the least share that has been seen to train without a limit, and what was seen not to."""
USUAL_LIMIT = 0.034
"""ρ as a share of the initial model's norm, where nothing is said."""


@dataclass(frozen=True)
class Rotated(Masked):
    """rand-p or rand-k of a rotated update, with one kept set a round and no reference.

    With momentum in the rule there must be a ``limit``, or 0 for none.
    """

    shift: bool = False
    name: ClassVar[str] = "rotated"

    def places(self, n: int) -> int:
        """Whole blocks of what is rotated."""
        return rotated_size(n)

    def fitted(self, rule: ServerRule, initial: Vector, layers: tuple[int, ...] = ()) -> Scheme:
        """With the usual limit, if the rule has momentum; two digits of it are agreed on."""
        if self.limit is not None or not isinstance(rule, FedAvgM):
            return self
        return replace(self, limit=float(f"{USUAL_LIMIT * float(np.linalg.norm(initial)):.2g}"))

    def check(self, settings: Settings) -> None:
        """Refuse what does not go together with this scheme."""
        if self.shift:
            raise InvalidSetting("shift", True, "False: rotated masks need no reference")
        if self.limit is None and isinstance(settings.rule, FedAvgM):
            expected = (
                f"a number, such as {USUAL_LIMIT} times the norm of the initial model: with "
                "momentum in the rule sparse masks diverge without one (0: no limit)"
            )
            raise InvalidSetting("limit", None, expected)
        super().check(settings)

    def caution(self, settings: Settings) -> str:
        """What a user should know before training with it."""
        if settings.rule.initial and not isinstance(settings.rule, FedAvgM):
            return (
                f"in a rotated basis {settings.rule.name} is another algorithm, for it scales "
                "places one by one; nobody has tried it"
            )
        if self.limit or self.published_share(settings.places) >= LEAST_ROTATED:
            return ""
        return (
            f"less than {LEAST_ROTATED:.1%} of the coordinates are kept: training may diverge; "
            "keep more, or use the rule fedavgm with a limit instead of the clients' momentum"
        )

    def at(self, agreement: Agreement) -> Coding:
        """This scheme at work."""
        return RotatedCoding(self, agreement)

    def __str__(self) -> str:
        return f"{self.compressor}, rotated"


class RotatedCoding(MaskCoding):
    """Rotated masks at work."""

    def __init__(self, scheme: Rotated, agreement: Agreement) -> None:
        super().__init__(scheme, agreement)
        self._rotation = Rotation(agreement.settings.n, agreement.settings.seed)

    def enter(self, vector: Vector) -> Vector:
        """A model or an update as it is cut and replicated: R·x."""
        return self._rotation.forward(vector)

    def leave(self, vector: Vector) -> Vector:
        """A replicated model as clients train and evaluate it: Rᵀ·y."""
        return self._rotation.back(vector)
