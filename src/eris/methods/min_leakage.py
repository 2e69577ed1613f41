"""Min. leakage: FedAvg as seen by someone who is given the final model and nothing else.

The floor of the ERIS papers' privacy tables: training is FedAvg's, every message included; only the
observer is another. The audit of such a run reads :meth:`Transcript.as_final_model`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from eris.methods.fedavg import FedAvg
from eris.methods.method import Composition


@dataclass(frozen=True)
class MinLeakage:
    """FedAvg whose adversary sees the final global model only.

    >>> MinLeakage().compose(["anna"], [1]) == FedAvg().compose(["anna"], [1])
    True
    """

    name: ClassVar[str] = "min-leakage"
    paper: ClassVar[str] = "ERIS, section 4 (baseline)"

    def compose(self, names: Sequence[str], samples: Sequence[int]) -> Composition:
        """The parts for these clients."""
        return FedAvg().compose(names, samples)
