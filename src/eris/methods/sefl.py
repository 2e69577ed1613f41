"""SEFL: the largest entries of updates under Paillier; one private key that all clients have.

Mohammadi et al., "Secure and efficient federated learning by combining homomorphic encryption and
gradient pruning in speech emotion recognition", 2023, as the EncCluster paper compares with it.
Its clients can open what others send: docs/enccluster.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from eris.methods.fedavg import FedAvg
from eris.methods.method import Composition
from eris.protocol.schemes import EncryptedEntries


@dataclass(frozen=True)
class SEFL:
    """A central server that multiplies ciphertexts, and has the products opened by a client.

    ``kept_fraction`` of an update's entries, those of largest magnitude, are encrypted under a key
    of ``key_bits``: 3072 (128 bits of security), 2048 (112), or the 256 of a published comparison,
    which hide nothing. ``packing`` puts several entries into a ciphertext; the paper does not.
    ``public_key`` is that of the clients' common key, where it does not follow from a seed: nodes
    have it from ``eris ca clients-key``.

    >>> str(SEFL(key_bits=2048).compose(["anna", "ben"], [10, 20]).scheme)
    '0.3 of all entries under Paillier, 2048 bits'
    """

    kept_fraction: float = 0.3
    key_bits: int = 3072
    packing: bool = False
    public_key: str = ""
    name: ClassVar[str] = "sefl"
    paper: ClassVar[str] = (
        "Mohammadi, Sinaei, Balador, Flammini: Secure and efficient federated learning by "
        "combining homomorphic encryption and gradient pruning in speech emotion recognition, 2023"
    )

    def compose(self, names: Sequence[str], samples: Sequence[int]) -> Composition:
        """The parts for these clients."""
        scheme = EncryptedEntries(self.kept_fraction, self.key_bits, self.packing, self.public_key)
        return replace(FedAvg().compose(names, samples), scheme=scheme)
