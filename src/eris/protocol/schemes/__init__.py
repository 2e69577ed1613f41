"""What contributions and results are: one file a scheme (:mod:`eris.protocol.schemes.scheme`)."""

from typing import Literal

from eris.core.compress import Compressor, MaskCompressor, RandP
from eris.core.errors import InvalidSetting
from eris.core.prune import Prune
from eris.protocol.schemes.clustered import Clustered
from eris.protocol.schemes.collector import Asking, Collector
from eris.protocol.schemes.dense import Dense
from eris.protocol.schemes.encrypted_clusters import EncryptedClusters
from eris.protocol.schemes.encrypted_entries import EncryptedEntries
from eris.protocol.schemes.encrypted_weights import EncryptedWeights
from eris.protocol.schemes.grid import Grid
from eris.protocol.schemes.grouped import Grouped
from eris.protocol.schemes.independent import Independent
from eris.protocol.schemes.masked import Masked
from eris.protocol.schemes.pruned import Pruned
from eris.protocol.schemes.quantised import Quantised
from eris.protocol.schemes.reader import Reader
from eris.protocol.schemes.rotated import Rotated
from eris.protocol.schemes.scheme import Coding, Scheme, Sender

SCHEMES: tuple[type[Scheme], ...] = (
    Dense, Masked, Rotated, Grouped, Quantised, Pruned, Independent, Clustered,
    EncryptedClusters, EncryptedWeights, EncryptedEntries, Grid,
)  # fmt: skip

Basis = Literal["coordinates", "rotated"]
ROTATED_BELOW = 0.03
"""The kept share below which shared masks are rotated, where nothing is said."""

__all__ = [
    "SCHEMES",
    "Asking",
    "Basis",
    "Clustered",
    "Coding",
    "Collector",
    "Dense",
    "EncryptedClusters",
    "EncryptedEntries",
    "EncryptedWeights",
    "Grid",
    "Grouped",
    "Independent",
    "Masked",
    "Pruned",
    "Quantised",
    "Reader",
    "Rotated",
    "Scheme",
    "Sender",
    "scheme_for",
]


def scheme_for(
    compressor: Compressor | Prune | None,
    *,
    basis: Basis | None = None,
    limit: float | None = None,
    mask_groups: int = 1,
) -> Scheme:
    """The scheme in which a compressor is used, with masks that all clients share.

    ``basis`` is what masks act in; by default rotated if rand-p keeps less than 3 %. ``limit`` is
    :class:`Masked`'s, ``mask_groups`` the groups of :class:`Grouped` ones.

    >>> scheme_for(RandP(0.1)).name, scheme_for(RandP(0.01)).name, scheme_for(None).name
    ('masked', 'rotated', 'dense')
    """
    if basis not in (None, "coordinates", "rotated"):
        raise InvalidSetting("basis", basis, "one of coordinates, rotated")
    if isinstance(compressor, MaskCompressor):
        sparse = isinstance(compressor, RandP) and compressor.kept_fraction < ROTATED_BELOW
        if basis == "rotated" or (basis is None and sparse):
            if mask_groups != 1:
                return Grouped(compressor, limit=limit, groups=mask_groups)
            return Rotated(compressor, limit=limit)
        if mask_groups != 1:
            raise InvalidSetting("mask_groups", mask_groups, "1, or masks in a rotated basis")
        return Masked(compressor, shift=limit is None, limit=limit)
    wanted = ("basis", basis), ("limit", limit), ("mask_groups", mask_groups)
    for name, value in wanted:
        if value not in (None, "coordinates", 1):
            raise InvalidSetting(name, value, "none: it is of masks, with rand-p or rand-k")
    match compressor:
        case None:
            return Dense()
        case Prune():
            return Pruned(compressor)
        case _:
            return Quantised(compressor)
