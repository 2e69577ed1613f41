"""What must hold in a federation whatever fails, checked on every message and state change.

The witness sees what was sent and what members hold; it knows nothing of how they got there.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from eris.core.compress import decode_values, encode_values
from eris.protocol.agreement import Key
from eris.protocol.codec import encode
from eris.protocol.member import Member
from eris.protocol.membership import View
from eris.protocol.messages import Contribution, Message, Result
from eris.protocol.settings import Settings
from eris.protocol.standing import Scheduled
from eris.testing.laws import LawBroken


class Witness:
    """Checks the laws of a run as it goes; :class:`~eris.testing.laws.LawBroken` says which."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.results: dict[tuple[Key, int], Result] = {}
        self.views: dict[int, Scheduled] = {}
        self._encoded: dict[tuple[Key, int], bytes] = {}
        self._sent: dict[tuple[Key, int], dict[int, list[Contribution]]] = defaultdict(
            lambda: defaultdict(list)
        )
        self._digests: dict[tuple[Key, int], bytes] = {}
        self._seen: dict[int, dict[Key, int]] = defaultdict(dict)

    # -- messages -----------------------------------------------------------------------------

    def announced(self, views: tuple[Scheduled, ...]) -> None:
        """The authority has told of these views."""
        for scheduled in views:
            known = self.views.setdefault(scheduled.view.epoch, scheduled)
            if known != scheduled:
                raise LawBroken(f"epoch {scheduled.view.epoch} has two views")

    def sent(self, message: Message, sender: int) -> None:
        """A member has said something; what stays with it counts too."""
        name = (message.header.key, message.header.round)
        if isinstance(message, Contribution):
            self._sent[name][sender].append(message)
        elif isinstance(message, Result):
            data = encode(message)
            if self._encoded.setdefault(name, data) != data:
                raise LawBroken(f"segment {name[0]} has two results in round {name[1]}")
            if name not in self.results:
                self.results[name] = message
                self._check(message)

    def received(self, message: Message, receiver: int) -> None:
        """A message has reached a member."""
        if isinstance(message, Contribution):
            view = self._view(message.header.epoch)
            if view.owners[message.header.shard] != receiver:
                raise LawBroken(f"member {receiver} was sent a segment of shard "
                                f"{message.header.shard}, which it does not own")  # fmt: skip

    def _view(self, epoch: int) -> View:
        return self.views[epoch].view

    def _check(self, result: Result) -> None:
        header = result.header
        where = f"round {header.round}, segment {header.key}"
        view = self._view(header.epoch)
        if view.owners[header.shard] != header.sender:
            raise LawBroken(f"{where}: member {header.sender} published, who does not own it")
        if result.payload is None:
            return
        least = max(self.settings.min_included, self.settings.quorum)
        if len(result.included) < least:
            raise LawBroken(f"{where} includes {len(result.included)} clients, fewer than {least}")
        if not result.included <= view.client_set:
            raise LawBroken(f"{where} includes somebody who is no client of its epoch")
        self._check_value(result, where)

    def _check_value(self, result: Result, where: str) -> None:
        """The result is the mean of what the included clients sent, each counted once."""
        assert result.payload is not None
        key, round = result.header.key, result.header.round
        count = result.payload.encoded.count
        settings, encoding = self.settings, result.payload.encoded.encoding
        mean = settings.rule.collector(count, settings.precision, settings.non_finite)
        for client in sorted(result.included):
            theirs = self._sent[key, round].get(client, [])
            fitting = [sent for sent in theirs if sent.based_on == result.previous]
            if not fitting:
                raise LawBroken(f"{where} includes {client}, who sent nothing for it")
            values = decode_values(fitting[-1].payload.encoded, encoding, count)
            mean.add(values, fitting[-1].samples, str(client))
        expected = encode_values(mean.result(), encoding)
        if mean.weight != result.samples or expected != result.payload.encoded:
            raise LawBroken(f"{where} is not the mean of its included clients, each once")

    # -- states -------------------------------------------------------------------------------

    def look(self, member: Member) -> None:
        """A member may have moved: at the same version of a segment, all hold the same bits."""
        seen, replica = self._seen[id(member)], member.node.replica
        for key, version in replica.versions.items():
            if seen.get(key) != version and key not in replica.astray:
                seen[key] = version
                digest = replica.digest(key)
                if self._digests.setdefault((key, version), digest) != digest:
                    raise LawBroken(f"segment {key}: version {version} has two states")

    def conclude(self, members: list[Member]) -> None:
        """After the last round: one model, and every result of the epoch its round belongs to."""
        for member in members:
            same = np.array_equal(member.model.view(np.uint32), members[0].model.view(np.uint32))
            if not same:
                raise LawBroken(f"members {members[0].me} and {member.me} end with two models")
        schedule = [self.views[epoch] for epoch in sorted(self.views)]
        for result in self.results.values():
            round = result.header.round
            holding = [s.view.epoch for s in schedule if s.from_round <= round]
            if result.header.epoch != holding[-1]:
                raise LawBroken(f"a result of round {round} is of epoch {result.header.epoch}, "
                                f"but the round belongs to {holding[-1]}")  # fmt: skip
