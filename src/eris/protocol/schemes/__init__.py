"""What contributions and results are: one file a scheme (:mod:`eris.protocol.schemes.scheme`)."""

from eris.core.compress import Compressor, RandK, RandP
from eris.core.prune import Prune
from eris.protocol.schemes.dense import Dense
from eris.protocol.schemes.independent import Independent
from eris.protocol.schemes.masked import Masked
from eris.protocol.schemes.pruned import Pruned
from eris.protocol.schemes.quantised import Quantised
from eris.protocol.schemes.scheme import Asking, Coding, Collector, Reader, Scheme, Sender

SCHEMES: tuple[type[Scheme], ...] = (Dense, Masked, Quantised, Pruned, Independent)

__all__ = [
    "SCHEMES",
    "Asking",
    "Coding",
    "Collector",
    "Dense",
    "Independent",
    "Masked",
    "Pruned",
    "Quantised",
    "Reader",
    "Scheme",
    "Sender",
    "scheme_for",
]


def scheme_for(compressor: Compressor | Prune | None, *, shift: bool = True) -> Scheme:
    """The scheme in which a compressor is used, with masks that all clients share.

    >>> scheme_for(RandP(0.1)).name, scheme_for(None).name
    ('masked', 'dense')
    """
    match compressor:
        case None:
            return Dense()
        case RandP() | RandK():
            return Masked(compressor, shift)
        case Prune():
            return Pruned(compressor)
        case _:
            return Quantised(compressor, shift)
