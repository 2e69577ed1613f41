"""Whether the model is complete when training is over, and what is missing if it is not."""

from __future__ import annotations

from enum import Enum

from eris.protocol.agreement import Key
from eris.protocol.messages import Holding, Outgoing
from eris.protocol.round.roles import Node
from eris.protocol.view import NOBODY

MOST_NAMED = 5
"""Shards that are named one by one where something is missing."""


class Phase(Enum):
    """What a member is doing."""

    CATCHING_UP = "catching up"
    TRAINING = "training"
    EXCHANGING = "exchanging"
    DONE = "done"


class Ending:
    """One member's view of how training ended, after the last of ``rounds``.

    A segment is complete with the last round's result, or once it is known that there is none: its
    owner holds the same and is through, or most members are. One that was never trained is not,
    whoever says so.
    """

    def __init__(self, node: Node, rounds: int) -> None:
        self.node, self.rounds = node, rounds
        self.disputed: dict[Key, int] = {}
        """Segments that somebody else, through with training, does not have as they are here; and
        how often others were asked about them."""

    def lacking(self, round: int) -> list[Key]:
        """Segments whose result of a round, if there is one, is not here."""
        versions = self.node.replica.versions
        return [key for key, version in versions.items() if version < round]

    def unknown(self) -> list[Key]:
        """Segments that, after all others were asked, are not known to be complete."""
        replica, evidence = self.node.replica, self.node.evidence
        return [
            key
            for key in self.lacking(self.rounds)
            if not replica.updates[key] or not evidence.agreed(key, replica.state_of(key))
        ]

    def tell(self, key: Key, asker: int, round: int) -> list[Outgoing]:
        """What is here, for one that has asked and is not behind."""
        if key in self.node.replica.astray:
            return []
        header = self.node.agreement.header(self.node.me, round, key)
        return [Outgoing((asker,), Holding(header, *self.node.replica.state_of(key)))]

    def settle_disputes(self) -> None:
        """Others are asked again. Once all were: a result that died with its owner, and that only
        this member has, is not the federation's; what most others have is."""
        replica, members = self.node.replica, len(self.node.agreement.view.members)
        for key, asked in list(self.disputed.items()):
            self.disputed[key] = asked + 1
            if asked > members:
                del self.disputed[key]
                if self.node.evidence.outvoted(key, replica.state_of(key)):
                    replica.astray.add(key)
                    replica.orphaned.add(key)

    def missing(self) -> str:
        """What keeps the model from being complete, in a line; empty if nothing does."""
        replica, view = self.node.replica, self.node.agreement.view
        keys = sorted({*self.unknown(), *replica.astray})
        if not keys:
            return ""
        shards = sorted({shard for shard, _ in keys})
        parts = [self._missing_of(shard, keys) for shard in shards[:MOST_NAMED]]
        if len(shards) > MOST_NAMED:
            parts.append(f"and {len(shards) - MOST_NAMED} more shards")
        segments = self.node.agreement.segments(1)
        never = sum(segments[key].size for key in keys if not replica.updates[key])
        others = [name for member, name in enumerate(view.members) if member != self.node.me]
        asked = ", ".join(others[:MOST_NAMED]) + (", …" if len(others) > MOST_NAMED else "")
        return (
            f"the model is not complete after {self.rounds} rounds: {'; '.join(parts)}; "
            f"{never} of {self.node.agreement.settings.places} coordinates were never trained; "
            f"asked in vain: {asked or 'nobody, there is nobody else'}"
        )

    def _missing_of(self, shard: int, keys: list[Key]) -> str:
        view = self.node.agreement.view
        owner = view.owners[shard]
        whose = "nobody's" if owner == NOBODY else f"of {view.members[owner]}"
        known = min(self.node.replica.versions[key] for key in keys if key[0] == shard)
        return f"shard {shard} ({whose}) is known up to round {known}"
