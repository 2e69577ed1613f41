"""Conformance checks for whatever carries the protocol, and what is needed to run them.

A runtime is given synthetic updates (:class:`SyntheticTraining`) and, if it can inject them,
faults (:func:`random_faults`, :class:`ChosenFaults`); :class:`Laws` then watches it round by round
and reads its transcript. A law that does not hold raises :class:`LawBroken`, which says where.
"""

from eris.testing.laws import CheckedRun, LawBroken, Laws
from eris.testing.synthetic import (
    ChosenFaults,
    SyntheticTraining,
    assert_same_bits,
    federate,
    initial_model,
    random_faults,
    shuffled_arrival,
)

__all__ = [
    "CheckedRun",
    "ChosenFaults",
    "LawBroken",
    "Laws",
    "SyntheticTraining",
    "assert_same_bits",
    "federate",
    "initial_model",
    "random_faults",
    "shuffled_arrival",
]
