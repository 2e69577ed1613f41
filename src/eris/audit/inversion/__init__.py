"""Gradient inversion: a client's samples, reconstructed from what was seen of its update.

One file an attack (:mod:`dlg`, :mod:`idlg`, :mod:`cosine`, :mod:`rog`, :mod:`ggl`); what they share
is what a client would have sent (:mod:`simulation`), how that is compared (:mod:`matching`), the
labels (:mod:`labels`) and the loop over targets and starts (:mod:`search`). Networks that are
trained beforehand have a recipe and a file (:mod:`trained`); ROG's is :mod:`enhancement`, GGL's
:mod:`generator`.
"""

from __future__ import annotations

from eris.audit.inversion.call import INVERSIONS, inversion, invert
from eris.audit.inversion.cosine import Cosine
from eris.audit.inversion.dlg import Dlg
from eris.audit.inversion.ggl import Ggl
from eris.audit.inversion.idlg import Idlg
from eris.audit.inversion.rog import Rog
from eris.audit.inversion.search import Inverted, SearchBudget

__all__ = [
    "INVERSIONS",
    "Cosine",
    "Dlg",
    "Ggl",
    "Idlg",
    "Inverted",
    "Rog",
    "SearchBudget",
    "inversion",
    "invert",
]
