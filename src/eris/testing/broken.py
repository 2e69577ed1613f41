"""What a simulated world raises when something does not hold that must."""

from __future__ import annotations


class LawBroken(AssertionError):
    """A law of the protocol does not hold; says which and where."""
