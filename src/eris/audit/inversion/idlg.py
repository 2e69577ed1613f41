"""iDLG, "improved deep leakage from gradients" (Zhao, Mopuri and Bilen, 2020): DLG with the labels
read off the last layer first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from eris.audit.inversion.dlg import Dlg
from eris.audit.inversion.labels import candidates
from eris.audit.inversion.matching import Matching


@dataclass(frozen=True)
class Idlg(Dlg):
    """Where the rows that tell the labels are hidden, every class is tried."""

    name: ClassVar[str] = "idlg"

    def labels(self, matching: Matching) -> list[Tensor]:
        """Read from the update."""
        return candidates(matching)
