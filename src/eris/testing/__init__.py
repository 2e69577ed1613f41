"""What is needed to run the protocol and to see that it holds.

Synthetic updates (:class:`SyntheticTraining`) and federations of them (:func:`on_the_clock`).
:mod:`eris.testing.world` moves whole federations through trouble; a law that does not hold raises
:class:`LawBroken`, which says where.
"""

from eris.testing.synthetic import (
    SyntheticTraining,
    agree,
    assert_same_bits,
    initial_model,
    on_the_clock,
)
from eris.testing.witness import LawBroken

__all__ = [
    "LawBroken",
    "SyntheticTraining",
    "agree",
    "assert_same_bits",
    "initial_model",
    "on_the_clock",
]
