"""What must hold in a federation whatever fails, checked on every message and state change.

The witness sees what was said, what members hold and what the authority granted; it knows nothing
of how they got there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from eris.core.combine import VALUE_BITS, FixedPoint
from eris.core.compress import decode_values, encode_values
from eris.core.errors import MalformedMessage, RefusedContribution
from eris.core.grid import Integers
from eris.core.vectors import Vector
from eris.protocol.agreement import Key
from eris.protocol.authority.directory import OldCopy, Refused
from eris.protocol.authority.standing import Scheduled
from eris.protocol.messages import (
    CatchUp,
    Contribution,
    Message,
    Outgoing,
    Refusal,
    Result,
    Reveal,
    RevealRequest,
    Snapshot,
)
from eris.protocol.round.ending import Phase
from eris.protocol.round.member import Member
from eris.protocol.schemes.grid import Grid
from eris.protocol.settings import Settings
from eris.protocol.view import NOBODY, View
from eris.testing.grid_laws import GridLaws
from eris.testing.key_laws import KeyLaws
from eris.testing.reference_laws import ReferenceLaws
from eris.testing.sum_laws import Hidden, LawBroken, Place, SumLaws

__all__ = ["LawBroken", "Witness"]


@dataclass(frozen=True)
class Permit:
    """The rounds in which a start of a member may publish: after the first, up to the last."""

    after: int
    through: int


class Witness:
    """Checks the laws of a run as it goes; :class:`LawBroken` says which.

    ``saw`` counts what a run has come across, so that a campaign can show how far it went.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.results: dict[Place, Result] = {}
        self.views: dict[int, Scheduled] = {}
        self.saw: Counter[str] = Counter()
        self._encoded: dict[Place, bytes] = {}
        self._sent: dict[Place, dict[int, list[Contribution]]] = defaultdict(
            lambda: defaultdict(list)
        )
        self._updates: dict[tuple[Member, int], tuple[Vector, int]] = {}
        """By start of a member and round: the update, less the reference, and its samples."""
        self._plain: dict[Contribution, tuple[Hidden, int]] = {}
        """What contributions hold that are masked, and their samples; on a common grid their
        integers. Where every client has a mask of its own, their values in the whole segment."""
        self.sums: SumLaws | KeyLaws | None = None
        own = settings.scheme.own_references
        self.references = ReferenceLaws(self) if own else None
        self.grid = GridLaws(self) if isinstance(settings.scheme, Grid) else None
        self.disk: Callable[[int], bytes] = lambda member: b""
        """What is on the disk of a member."""
        self.places = settings.precision.fraction_bits
        """Binary places of a value in a sum."""
        if settings.scheme.keyed:
            self.sums = KeyLaws(self)
        elif settings.secure is not None:
            self.sums = SumLaws(self, settings.secure)
            self.places = settings.secure.fraction_bits(settings.precision)
        self._grid = FixedPoint(2.0 ** (VALUE_BITS - self.places))
        self._epochs: dict[tuple[int, int], int] = {}
        """By member and round: the epoch of its contributions."""
        self._contents: dict[tuple[int, int, Key], Contribution] = {}
        self._forgetful: set[int] = set()
        """Members that were brought back with their memory."""
        self._counts: dict[tuple[int, Key], int] = {}
        self._digests: dict[Place, bytes] = {}
        self._seen: dict[Member, dict[Key, int]] = defaultdict(dict)
        self._by: dict[Member, set[tuple[int, Key]]] = defaultdict(set)
        """What each start of a member has contributed to."""
        self._permits: dict[int, Permit] = {}
        self._published: Counter[int] = Counter()
        """By member: the last round it has published in."""

    # -- the authority ------------------------------------------------------------------------

    def announced(self, views: Sequence[Scheduled]) -> None:
        """The authority has told of these views."""
        for scheduled in views:
            known = self.views.get(scheduled.view.epoch)
            if known is None:
                self.views[scheduled.view.epoch] = scheduled
                self._note_view(scheduled.view)
                for result in self.results.values():
                    self._check_epoch(result)
            elif known != scheduled:
                raise LawBroken(f"epoch {scheduled.view.epoch} has two views")

    def refused(self, why: Refused) -> None:
        """The directory has turned a member down."""
        self.saw["an older ledger serves nobody"] += isinstance(why, OldCopy)
        self.saw["a member of another ledger is refused"] += "does not remember" in str(why)

    def started(self, member: int, abstain_through: int, *, unsure: bool = False) -> None:
        """A member starts, and was told what it may have published before, or is unsure of it."""
        self.saw["an owner abstains"] += abstain_through > 0
        if not unsure and self._published[member] > abstain_through:
            raise LawBroken(f"member {member} starts again after round {abstain_through}, but has "
                            f"published in round {self._published[member]}")  # fmt: skip
        self._permits[member] = Permit(abstain_through, 0)

    def permitted(self, member: int, through: int) -> None:
        """A member has been told how far it may publish."""
        before = self._permits[member]
        self._permits[member] = Permit(before.after, max(before.through, through))

    def _note_view(self, view: View) -> None:
        earlier = [s.view for epoch, s in self.views.items() if epoch < view.epoch]
        self.saw["a shard waits"] += NOBODY in view.owners
        self.saw["too few clients for a quorum"] += len(view.clients) < self.settings.quorum
        if earlier:
            last = max(earlier, key=lambda one: one.epoch)
            self.saw["a shard is taken over"] += last.owners != view.owners
            self.saw["a shard that waited goes on"] += any(
                old == NOBODY != new for old, new in zip(last.owners, view.owners, strict=True)
            )

    # -- messages -----------------------------------------------------------------------------

    def sent(self, said: Outgoing, member: Member, data: bytes = b"") -> None:
        """A member has said something, in these bytes; what stays with it counts too."""
        message = said.message
        name = (message.header.key, message.header.round)
        if isinstance(message, Contribution):
            self._check_address(said)
            self._check_once(message)
            self._check_slice(message, member)
            self._sent[name][member.me].append(message)
            self._by[member].add((name[1], name[0]))
        elif isinstance(message, RevealRequest | Reveal) and self.sums is not None:
            self.sums.said(message, said.to[0], member)
        elif isinstance(message, Result):
            if self._encoded.setdefault(name, data) != data:
                raise LawBroken(f"segment {name[0]} has two results in round {name[1]}")
            if name not in self.results:
                self.results[name] = message
                self._check(message, member)
                self._published[member.me] = max(self._published[member.me], name[1])

    def count(self, round: int, key: Key) -> int:
        """How many values are sent of a segment, as any member computes it."""
        return self._counts[round, key]

    def made_up(self, member: Member, message: Message, hides: Hidden | None = None) -> None:
        """A member lies. What it contributes itself counts like any other update, if it fits; where
        it is masked it ``hides`` these values."""
        if isinstance(message, Contribution):
            self._sent[message.header.key, message.header.round][member.me].append(message)
            if hides is not None:
                self.saw["a second content is sent"] += 1
                self._plain[message] = hides, self._updates[member, message.header.round][1]
        elif isinstance(message, RevealRequest) and message.included and self.sums is not None:
            self.saw["an owner asks for a sum that it may not have"] += 1
            self.sums.claimed(message)

    def rewound(self, before: Member, member: Member) -> None:
        """A member does not know any more what it has said since a snapshot was taken of it."""
        self._forgetful.add(member.me)
        trained = {round: made for (who, round), made in self._updates.items() if who is before}
        self._updates |= {(member, round): made for round, made in trained.items()}
        if self.sums is not None:
            self.sums.rewound(before, member)

    def received(self, message: Message, source: int, member: Member) -> None:
        """A message has reached a member."""
        if self.sums is not None:
            self.sums.heard(message, member)
        if isinstance(message, Snapshot):
            self.saw["a snapshot is sent"] += 1
        elif isinstance(message, CatchUp):
            self.saw["somebody asks for the whole state"] += message.whole
        elif isinstance(message, Refusal):
            self.saw["an owner says that no result will come"] += message.no_result
            self.saw["an early contribution is asked for again"] += message.again
            self.saw["a contribution is refused"] += not (message.no_result or message.again)

    def _check_address(self, said: Outgoing) -> None:
        """Nobody is given a contribution outside its shards."""
        header = said.message.header
        owner = self.views[header.epoch].view.owners[header.shard]
        if said.to != (owner,):
            raise LawBroken(f"member {header.sender} sent a segment of shard {header.shard} to "
                            f"{said.to}, but {owner} owns it in epoch {header.epoch}")  # fmt: skip

    def _check_once(self, sent: Contribution) -> None:
        """A client gives one content to a segment and round, and under one epoch."""
        header = sent.header
        if header.sender in self._forgetful:
            return
        where = f"round {header.round}, segment {header.key}: member {header.sender}"
        epoch = self._epochs.setdefault((header.sender, header.round), header.epoch)
        if epoch != header.epoch:
            raise LawBroken(f"{where} contributed in epochs {epoch} and {header.epoch}")
        first = self._contents.setdefault((header.sender, header.round, header.key), sent)
        if first != sent:
            raise LawBroken(f"{where} contributed two contents")

    def trained(self, member: Member, round: int, update: Vector, samples: int) -> None:
        """A member has trained; what it sends in this round is of this update."""
        reference = member.node.client.sender.reference(member.node.replica)
        update = member.agreement.coding.enter(update)
        sent = update.copy() if reference is None else update - reference
        self._updates[member, round] = sent, samples
        if self.references is not None:
            self.references.trained(member, round, update)

    def _check_slice(self, sent: Contribution, member: Member) -> None:
        """What is sent of a segment is what was trained, on the coordinates of that segment."""
        round, key = sent.header.round, sent.header.key
        coding, segment = member.agreement.coding, member.agreement.segments(round)[key]
        trained = self._updates.get((member, round))
        if trained is None:
            raise LawBroken(f"round {round}: member {member.me} sent what it has not trained")
        expected = trained[0][coding.coordinates(round, key, member.me)]
        if self.references is not None:
            self._plain[sent] = self.references.sent(sent, segment, member), sent.samples
        self._counts[round, key] = len(expected)
        if self.sums is not None:  # what was masked shows in the sum
            hidden: Hidden = expected
            if self.grid is not None:
                hidden = self.grid.integers(sent, expected, segment.coordinates)
            self._plain[sent] = hidden, trained[1]
            self.sums.contributed(sent, hidden, trained[1], member)
            return
        values = coding.read(sent, segment)
        if not np.array_equal(values, expected, equal_nan=True):
            raise LawBroken(f"round {round}, segment {key}: member {member.me} did not send its "
                            f"part of what it trained")  # fmt: skip

    def _check(self, result: Result, member: Member) -> None:
        """A result that was not heard of before: its owner, its right to publish, its value."""
        header = result.header
        where = f"round {header.round}, segment {header.key}"
        if self.sums is not None:
            self.sums.published(result, member)
        view = self.views[header.epoch].view
        if view.owners[header.shard] != header.sender:
            raise LawBroken(f"{where}: member {header.sender} published, who does not own it")
        if member.me != header.sender:
            raise LawBroken(
                f"{where}: member {member.me} has a result that its owner never published"
            )
        self._check_epoch(result)
        self._check_permit(result, where)
        if result.payload is None:
            self.saw["a result is withheld"] += 1
            if self.grid is not None:
                self.grid.published(result, where)
            return
        least = self.least(view, header.shard)
        if len(result.included) < least:
            raise LawBroken(f"{where} includes {len(result.included)} clients, fewer than {least}")
        if not result.included <= view.client_set:
            raise LawBroken(f"{where} includes somebody who is no client of its epoch")
        self.saw["a result leaves somebody out"] += result.included != view.client_set
        if self.sums is None or not self.sums.checks_values:
            self._check_value(result, where)

    def least(self, view: View, shard: int | None = None) -> int:
        """Clients that a result of a shard needs, or of any: a majority of the view's, as many as
        were agreed, and what the laws of sums ask for."""
        majority = len(view.clients) // 2 + 1
        lawful = 0 if self.sums is None else self.sums.least(view, shard)
        return max(self.settings.min_included, self.settings.quorum, majority, lawful)

    def _check_epoch(self, result: Result) -> None:
        """Every round belongs to one epoch, and its results with it: fencing."""
        header = result.header
        belongs = self.view_of(header.round).epoch
        if header.epoch != belongs:
            raise LawBroken(f"a result of round {header.round} is of epoch {header.epoch}, "
                            f"but the round belongs to {belongs}")  # fmt: skip

    def view_of(self, round: int) -> View:
        """The newest view that holds for a round."""
        epoch = max(e for e, s in self.views.items() if s.from_round <= round)
        return self.views[epoch].view

    def _check_permit(self, result: Result, where: str) -> None:
        permit, round = self._permits[result.header.sender], result.header.round
        if round > permit.through:
            raise LawBroken(f"{where}: member {result.header.sender} published without a permit")
        if round <= permit.after:
            raise LawBroken(f"{where}: member {result.header.sender} published in a round in which "
                            f"it may have before it restarted")  # fmt: skip

    def _check_value(self, result: Result, where: str) -> None:
        """The result is the mean of what the included clients sent, each counted once."""
        key, round = result.header.key, result.header.round
        choices = []
        for client in sorted(result.included):
            theirs = self._sent[key, round].get(client, [])
            fitting = {sent for sent in theirs if sent.based_on == result.previous}
            if not fitting:
                raise LawBroken(f"{where} includes {client}, who sent nothing for it")
            choices.append(fitting)
        # A client that restarted may have trained twice; either of its updates may count.
        if not any(self._is_mean(result, chosen) for chosen in product(*choices)):
            raise LawBroken(f"{where} is not the mean of its included clients, each once")
        if self.grid is not None:
            self.grid.published(result, where)

    def contributions(self, key: Key, round: int, client: int) -> list[Contribution]:
        """What a client has sent of a segment in a round."""
        return self._sent[key, round].get(client, [])

    def masked(self, key: Key, round: int, version: int) -> dict[int, list[Integers]]:
        """By client: the integers of what it sent of a segment, based on a version."""
        sent = self._sent[key, round].items()
        return {client: [self._plain[one][0].astype(np.int64) for one in said
                         if one in self._plain and one.based_on == version]
                for client, said in sent}  # fmt: skip

    def _is_mean(self, result: Result, contributions: Sequence[Contribution]) -> bool:
        assert result.payload is not None
        if self.grid is not None:
            if not all(sent in self._plain for sent in contributions):
                return False  # a liar's, in the clear
            words = [self._plain[sent][0].astype(np.int64) for sent in contributions]
            return self.grid.is_mean(result, words)
        encoded, settings = result.payload.encoded, self.settings
        mean = settings.rule.collector(encoded.count, self._grid, settings.non_finite)
        for sent in contributions:
            try:
                if sent in self._plain:
                    values, samples = self._plain[sent]
                else:
                    values = decode_values(sent.payload.encoded, encoded.encoding, encoded.count)
                    samples = sent.samples
                mean.add(values, samples, str(sent.header.sender))
            except (RefusedContribution, MalformedMessage):
                return False
        fits = encode_values(mean.result(), encoded.encoding) == encoded
        return fits and mean.weight == result.samples

    # -- states -------------------------------------------------------------------------------

    def look(self, member: Member) -> None:
        """A member may have moved: at the same version of a segment, all hold the same bits."""
        seen, replica = self._seen[member], member.node.replica
        if self.sums is not None:
            self.sums.look(member)
        if replica.astray:
            self.saw["a member is astray"] += 1
        elif seen == replica.versions:
            return
        for key, version in replica.versions.items():
            before = seen.get(key, 0)
            if version < before and member.phase is not Phase.DONE:
                raise LawBroken(f"segment {key} went back from version {before} to {version}")
            if (key not in seen or version != before) and key not in replica.astray:
                seen[key] = version
                digest = replica.digest(key)
                if version and not self._made(key, version, digest):
                    raise LawBroken(f"segment {key}: member {member.me} is at a version {version} "
                                    f"to which no result has led")  # fmt: skip
                if self._digests.setdefault((key, version), digest) != digest:
                    raise LawBroken(f"segment {key}: version {version} has two states")
                if self.references is not None and version:
                    self.references.held(member, key, version)

    def _made(self, key: Key, version: int, digest: bytes) -> bool:
        """Whether a result that its owner published leads to a state."""
        result = self.results.get((key, version))
        return result is not None and digest.startswith(result.digest)

    def conclude(self, members: list[Member], *, all_here: bool = True) -> None:
        """After the last round: one model, and nothing that a client has sent is lost silently.

        Whoever cannot tell that its model is complete says so, and has a reason: somebody who might
        have known is gone, or those that are here have been set back to different states.
        """
        finished = [member for member in members if member.finished]
        if self.sums is not None:
            self.sums.conclude()
        for member in members:
            self._check_kept(member)
            self.saw["a member ends incomplete"] += not member.finished
            for key in member.ending.unknown() if all_here else ():
                held = Counter((one.node.replica.state_of(key), one.node.replica.updates[key])
                               for one in members)  # fmt: skip
                (_, trained), times = held.most_common(1)[0]
                if trained and 2 * times > len(member.agreement.view.members):
                    raise LawBroken(f"member {member.me} does not know that segment {key} is "
                                    f"complete, although all are here")  # fmt: skip
        for member in finished:
            model, first = member.model.view(np.uint32), finished[0].model.view(np.uint32)
            if not np.array_equal(model, first):
                raise LawBroken(f"members {finished[0].me} and {member.me} end with two models")
        self._count_orphans(members[0].node.replica.versions)

    def _count_orphans(self, versions: dict[Key, int]) -> None:
        """Results that the chain went on without, as their owner stopped before they spread."""
        chain = set()
        for key, version in versions.items():
            while (last := self.results.get((key, version))) is not None:
                chain.add((key, version))
                version = last.previous
        self.saw["a result is orphaned"] += len(self.results.keys() - chain)

    def _check_kept(self, member: Member) -> None:
        """A contribution is in a result, or its client knows that it is in none (yet)."""
        client = member.node.client
        known = {*client.left_out, *client.unanswered}
        self.saw["a contribution is left out"] += len(client.left_out)
        self.saw["an update comes too late"] += member.discarded
        for round, key in self._by[member]:
            result = self.results.get((key, round))
            included = result is not None and member.me in result.included
            if not included and (round, key) not in known:
                raise LawBroken(f"member {member.me} does not know that its contribution to "
                                f"segment {key} of round {round} is in no result")  # fmt: skip

    def check_calm(self, round: int, here: frozenset[int], rested: bool) -> None:
        """A round in which, as in the one before, nothing was wrong has results.

        They are of everyone from the fourth such round on (``rested``): before, somebody may still
        be in another round than the others. Who went on before a result was there, though it is
        in it, finds that a segment has moved under the update it has trained.
        """
        view = self.view_of(round)
        if view != self.view_of(round - 1):
            return  # somebody may be new, and still on its way
        owners = set(view.owners) - {NOBODY}
        if not owners <= here:
            return  # all wait for an owner that does not come back, each by its own clock
        later = [one.view.roles for epoch, one in self.views.items() if epoch > view.epoch]
        if not all(owners <= set(roles) for roles in later):
            return  # nobody waits for an owner that has no role any more, though it may be there
        # Who was found to lie is left out.
        everyone = (view.client_set & here) - (self.sums.excused if self.sums else set())
        if len(everyone) < self.least(view):
            return
        self.saw["a round is calm"] += 1
        keys = {key for key, _ in self._digests if view.owners[key[0]] != NOBODY}
        # Whoever waited in vain for a result enters the next round by its own clock.
        before = [self.results.get((key, round - 1)) for key in keys]
        in_step = rested and all(one is not None for one in before)
        for key in keys:
            result = self.results.get((key, round))
            if result is None and round <= self._permits[view.owners[key[0]]].after:
                continue  # its owner restarted and abstains
            if result is None:
                raise LawBroken(f"round {round}, segment {key} has no result in fine weather")
            if self.grid is not None and (key, round) in self.grid.stepped_back:
                continue  # its sum did not fit
            absent = everyone - result.included
            if absent and in_step:
                raise LawBroken(f"round {round}, segment {key} leaves out {sorted(absent)} in fine "
                                f"weather")  # fmt: skip
