"""A member's own secrets: keys of this start, and what roots are drawn from; in memory only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container

from eris.core.streams import Stream
from eris.protocol.secure.escrow import Root
from eris.protocol.secure.keys import MemberKeys, PublicKeys

ENTROPY, FRESH = 96, 32
"""Bytes of which keys, and a training's root, are made."""


class Vault:
    """What one member never tells: nothing of it is in a checkpoint, a journal or a transcript.

    ``entropy`` gives so many random bytes, for a use in a round; in a simulation it ``repeats``. A
    node's are the operating system's, whatever they are for.
    """

    def __init__(self, entropy: Callable[[int, int], bytes], *, repeats: bool = False) -> None:
        self._entropy, self.repeats = entropy, repeats
        self._keys = [MemberKeys.of(entropy(ENTROPY, 0))]

    @classmethod
    def simulated(cls, seed: int, member: int) -> Vault:
        """Of a simulated member: it follows from the run's seed, so that runs repeat, and protects
        nothing."""
        used: Counter[int] = Counter()

        def entropy(count: int, round: int) -> bytes:
            used[round] += 1
            return (
                Stream(seed, f"secrets/{used[round]}", round, member).words(0, count // 4).tobytes()
            )

        return cls(entropy, repeats=True)

    @property
    def newest(self) -> MemberKeys:
        """The keys that the next view shall have."""
        return self._keys[-1]

    def renew(self, round: int) -> MemberKeys:
        """Draw new keys; the old ones stay until no view needs them."""
        self._keys.append(MemberKeys.of(self._entropy(ENTROPY, round)))
        return self.newest

    def of(self, public: PublicKeys | None) -> MemberKeys | None:
        """The keys by which others know this member; None if they are not of this start."""
        return next((keys for keys in self._keys if keys.public == public), None)

    def erase(self, needed: Container[PublicKeys | None]) -> None:
        """Forget keys that no view needs any more, but the newest."""
        self._keys = [k for k in self._keys if k is self.newest or k.public in needed]

    def close(self) -> None:
        """Forget all: nothing can be opened or signed any more."""
        self._keys.clear()

    def chain_key(self, round: int) -> bytes:
        """From which noise is drawn: of the first round, and in a simulation of every round."""
        return self._entropy(FRESH, round)

    def fresh(self, round: int) -> bytes:
        """Random bytes for one use in a round."""
        return self._entropy(FRESH, round)

    def root(self, round: int) -> Root:
        """The secret of one training."""
        return Root.drawn(self._entropy(FRESH, round), self.newest.process_secret)
