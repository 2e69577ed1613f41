"""The directory: who is a member, where, on what terms, and which view holds for which rounds.

A machine without I/O: requests and the time of the directory's own clock go in, answers come out.
It never sees an update or a model. Time decides only *when* a silent member is left out. What
keeps a round from having two owners of a shard is counted in rounds: an owner publishes up to its
permit (``through``) only, and a new view holds from the first round that no permit reaches.

It is only as good as its memory. Before anything is registered or changed, what a member has seen
of the ledger is compared with it (:mod:`eris.protocol.authority.history`), and a directory that was
started again listens to all members it knows, for a lease at most, before it answers anybody: one
of them may know that its ledger is an older copy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from heapq import nlargest
from typing import Any

from eris.core.errors import ErisError, InvalidSetting
from eris.protocol.authority.charter import LONGEST_CHARTER, departures
from eris.protocol.authority.described import Description, ShardStatus
from eris.protocol.authority.enrolment import (
    Entry,
    Impostor,
    NotAMember,
    NotYet,
    OldKeys,
    Refused,
    check_server,
)
from eris.protocol.authority.history import History, Mark, OldCopy
from eris.protocol.authority.seating import seated
from eris.protocol.authority.standing import LOOKAHEAD, Joined, Scheduled, Standing
from eris.protocol.authority.stored import (
    members_from_json,
    members_to_json,
    statements_from_json,
    statements_to_json,
    views_from_json,
    views_to_json,
)
from eris.protocol.authority.succession import Candidate, assign, heirs
from eris.protocol.secure.certified import KeyStatement
from eris.protocol.secure.seats import MOST_SEATS
from eris.protocol.view import NOBODY, Seating, View

__all__ = [
    "Description",
    "Directory",
    "Impostor",
    "Joined",
    "NotAMember",
    "NotYet",
    "OldCopy",
    "OldKeys",
    "Refused",
]

FURTHEST = 4
"""Rounds more, at most, for an owner whose rounds are short: a round takes members a message there
and back, too, so that few of them are over before an answer is there."""
MOST_MEMBERS = 10_000
LAST_ROUND = 2**31
KEPT_VIEWS = 8
"""Older ones are forgotten: a member that far behind gets a snapshot and the view in force."""


class Directory:
    """The one authority over a federation's epochs.

    ``sizes`` are the shards' sizes, none where members gossip; the first view is made once
    ``start_with`` members are here; a member is away after ``lease`` seconds of silence. With fewer
    than ``least_clients``, or nobody who may own a shard, nothing can be published: there is no new
    view until they are back, for every one costs rounds. A view has at most ``most_clients``; who
    joins beyond them follows. With ``seats``, a number, members join with keys, and views have
    them; for secure sums it says how many help each shard. Where clients are ``weighed``, they join
    with their samples, which views declare. ``central``: one member alone may aggregate. With
    ``anew`` a client that joins again begins an epoch, whoever is there.
    ``entropy`` are random characters that nobody else has, new ones for every start.

    >>> directory = Directory("{}", sizes=[50, 50], start_with=1, lease=10.0, entropy="0" * 32)
    >>> anna = {"name": "anna", "fingerprint": "a1", "address": "10.0.0.1:7000"}
    >>> terms = {"charter": "{}", "client": True, "aggregator": True, "max_share": 1.0}
    >>> directory.join(0.0, **anna, **terms).standing.views[0].view.owners
    (0, 0)
    >>> directory.renew(1.0, "anna", "a1", round=1).through
    3
    """

    def __init__(
        self,
        charter: str,
        sizes: Sequence[int],
        start_with: int,
        lease: float,
        lookahead: int = LOOKAHEAD,
        least_clients: int = 1,
        *,
        most_clients: int = MOST_MEMBERS,
        seats: int | None = None,
        weighed: bool = False,
        central: bool = False,
        anew: bool = False,
        entropy: str,
    ) -> None:
        if len(charter.encode()) > LONGEST_CHARTER:
            raise InvalidSetting("charter", f"{charter[:40]}…", f"at most {LONGEST_CHARTER} bytes")
        if min(sizes, default=1) < 1:
            raise InvalidSetting("sizes", sizes, "shards of which none is empty")
        if not 1 <= start_with <= MOST_MEMBERS:
            raise InvalidSetting("start_with", start_with, f"1 to {MOST_MEMBERS} members")
        if not 0 < lease < math.inf:
            raise InvalidSetting("lease", lease, "a positive number of seconds")
        if lookahead < 1:
            raise InvalidSetting("lookahead", lookahead, "at least 1 round")
        if seats is not None and not 0 <= seats <= MOST_SEATS:
            raise InvalidSetting("seats", seats, f"0 to {MOST_SEATS} helpers of a shard")
        self.charter, self.sizes = charter, tuple(sizes)
        self.start_with, self.lease, self.lookahead = start_with, lease, lookahead
        self.least_clients, self.most_clients, self.seats = least_clients, most_clients, seats
        self.weighed, self.central, self.anew = weighed, central, anew
        self.revision = 0
        """Grows with every change that must be on disk before an answer tells of it."""
        self.stale = ""
        """Why nobody is served from this ledger, if it is an older copy."""
        self._history = History.new(entropy)
        self._unheard: set[str] = set()  # after a start: members that may know more
        self._listens_until = 0.0
        self._members: list[Entry] = []  # by number
        self._numbers: dict[str, int] = {}
        self._views: tuple[Scheduled, ...] = ()
        self._addresses: tuple[str, ...] = ()
        self._unsettled = self._begins_anew = False  # whether a new view may, or must, be made
        self._fronts: dict[int, int] = {}  # by member: the highest round when it last renewed

    # -- requests -----------------------------------------------------------------------------

    def join(
        self,
        now: float,
        *,
        name: str,
        fingerprint: str,
        address: str,
        charter: str,
        client: bool,
        aggregator: bool,
        max_share: float,
        samples: int = 0,
        keys: KeyStatement | None = None,
        mark: Mark | None = None,
    ) -> Joined:
        """Take a member in, or back in: at the address it had at once, elsewhere when it is away.

        A name belongs to the key that first joined with it, until that member leaves. ``samples``
        are what a client declares, ``keys`` are of this start of the member, ``mark`` is the newest
        that it has seen of this ledger.
        """
        self._admit(now, name, fingerprint, mark)
        entry = Entry(name, fingerprint, address, client, aggregator, max_share, samples)
        entry.check()
        number = self._numbers.get(name)
        if number is not None:
            entry = self._members[number].again(entry, now)
        elif len(self._members) >= MOST_MEMBERS:
            raise Refused(f"the federation has {MOST_MEMBERS} members and takes no more")
        if charter != self.charter:
            raise Refused(f"{name} has other settings: {departures(charter, self.charter)}")
        if self.central:
            check_server(entry, self._members)
        if self.weighed and client and not samples:
            raise Refused(f"{name} declares no samples; this federation weighs clients by them")
        if self.seats is not None:
            entry = entry.stating(keys)
        if number is None:
            number = self._numbers[name] = len(self._members)
            self._members.append(entry)
        self._begins_anew |= self.anew and client and entry.incarnation > 1
        self._note(number, replace(entry, expires=now + self.lease))
        self._addresses = tuple(member.address for member in self._members)
        self._fronts[number] = max(member.round for member in self._members)
        self._settle()
        return Joined(number, entry.through, self.standing(number), entry.incarnation)

    def renew(
        self,
        now: float,
        name: str,
        fingerprint: str,
        *,
        round: int,
        incarnation: int | None = None,
        number: int | None = None,
        keys: KeyStatement | None = None,
        mark: Mark | None = None,
    ) -> Standing:
        """Keep a member's lease and let an owner publish up to ``lookahead`` rounds further.

        With its ``incarnation`` given, a start of the member before its last one is refused; with
        its ``number``, a renewal that has been there. New ``keys`` make a view that has them.
        """
        self._admit(now, name, fingerprint, mark)
        whose = self._known(name, fingerprint, incarnation)
        if not 0 <= round <= LAST_ROUND:
            raise Refused(f"round is {round}; expected 0 to {LAST_ROUND}")
        member = self._members[whose].renewing(number)
        round = min(round, self._possible(whose))
        kept = replace(member, round=max(member.round, round), expires=now + self.lease)
        if self.seats is not None and keys is not None:
            kept = kept.stating(keys)
        if member.here and kept.keys == member.keys:
            self._members[whose] = kept  # nothing that has to be on disk
        else:
            self._note(whose, replace(kept, presence="here"))
        # Views first: a permit granted now would put off the next view.
        self._settle()
        through = max(kept.through, round + self.lookahead + self._pace(whose, member.round, round))
        if through > kept.through and self._acts(whose, round):
            self._members[whose] = replace(self._members[whose], through=through)
            self.revision += 1
        return self.standing(whose)

    def _possible(self, number: int) -> int:
        """The furthest round that a member is believed to be in: one more than any other has
        reported, or the first of the newest view. Nobody goes on alone, and permits, and with them
        the next view, follow what is believed."""
        others = [member.round for other, member in enumerate(self._members) if other != number]
        begun = self._views[-1].from_round if self._views else 0
        if not others:
            return LAST_ROUND
        if self._views and self._views[-1].view.clients == (number,):
            return 1 + max(self._members[number].through, begun)  # all others have gone
        return max(1 + max(others), begun)

    def _pace(self, number: int, before: int, round: int) -> int:
        """How much further permits reach where rounds are over faster than an answer travels.

        Rounds that a member skipped, because it was behind or a new view left them out, were not
        fast: a permit that reaches too far costs the next view all rounds up to it.
        """
        front = max(member.round for member in self._members)
        moved = front - self._fronts.get(number, front)
        self._fronts[number] = front
        own = round - max(before, self._begins(round) - 1)
        return min(2 * max(0, min(own, moved) - 1), FURTHEST) if before else 0

    def leave(
        self,
        now: float,
        name: str,
        fingerprint: str,
        *,
        incarnation: int | None = None,
        published: int | None = None,
        mark: Mark | None = None,
    ) -> None:
        """End a member's lease at once.

        What it was permitted still counts, unless it says that it ``published`` up to a round only:
        it gives the rest back, so that the next view need not leave those rounds out.
        """
        self._admit(now, name, fingerprint, mark)
        number = self._known(name, fingerprint, incarnation)
        member = self._members[number]
        through = member.through if published is None else min(member.through, max(0, published))
        self._note(number, replace(member, presence="left", through=through))
        self._settle()

    def tick(self, now: float) -> bool:
        """Let time pass; says whether there is a new view."""
        if self.stale or self._listening(now):
            return False
        self._expire(now)
        return self._settle()

    # -- what is known ------------------------------------------------------------------------

    def standing(self, number: int) -> Standing:
        """A member's place in the federation."""
        through, mark = self._members[number].through, self._history.mark(self.revision)
        held = max(member.through for member in self._members)
        return Standing(number, self._views, self._addresses, through, self._round, mark, held)

    def describe(self, now: float) -> Description:
        """Everything, for people; changes nothing."""
        if self.stale:
            raise OldCopy(self.stale)
        newest = self._views[-1] if self._views else None
        nobody = (NOBODY,) * len(self.sizes)
        owners = newest.view.owners if newest else nobody
        after = heirs(self.sizes, self._candidates()) if newest else nobody
        seating = newest.view.seating if newest else None
        helpers = seating.helpers if seating else ((),) * len(self.sizes)
        return Description(
            charter=self.charter,
            epoch=newest.view.epoch if newest else 0,
            from_round=newest.from_round if newest else 0,
            round=self._round,
            start_with=self.start_with,
            lease=self.lease,
            members=tuple(
                member.status(now, self._keys_from(number))
                for number, member in enumerate(self._members)
            ),
            shards=tuple(map(ShardStatus, self.sizes, owners, after, helpers)),
        )

    def state(self) -> dict[str, Any]:
        """Everything that must outlive a restart, as JSON has it."""
        return {
            "charter": self.charter,
            "revision": self.revision,
            "secret": self._history.secret,
            "terms": [list(term) for term in self._history.terms],
            "stale": self.stale,
            "members": members_to_json(self._members),
            "statements": statements_to_json(self._members, self._views),
            "views": views_to_json(self._views),
        }

    @classmethod
    def restore(
        cls,
        state: Mapping[str, Any],
        now: float,
        **terms: Any,
    ) -> Directory:
        """The directory as :meth:`state` described it, in a new term; ``terms`` are a new one's.

        Every lease counts as renewed now: nobody is left out because the directory was away.
        """
        directory = cls(**terms)
        charter, expires = directory.charter, now + directory.lease
        try:
            begun_with = state["charter"]
            names = tuple(str(member["name"]) for member in state["members"])
            statements = statements_from_json(state["statements"], names)
            directory._members = members_from_json(state["members"], statements, expires)
            directory._views = views_from_json(state["views"], names, statements)
            directory.revision, directory.stale = int(state["revision"]) + 1, str(state["stale"])
            history = History.restored(state["secret"], state["terms"])
            directory._history = history.goes_on(terms["entropy"], directory.revision)
        except (TypeError, LookupError, ValueError) as damaged:
            raise ErisError(f"the directory's stored state makes no sense: {damaged}") from damaged
        if charter != begun_with:
            told = f"with other settings: {departures(charter, begun_with)}"
            raise ErisError(f"the federation was begun {told}")
        directory._numbers = {name: number for number, name in enumerate(names)}
        directory._addresses = tuple(member.address for member in directory._members)
        directory._unsettled = True
        directory._begins_anew = directory.anew  # what was due before is not stored
        directory._unheard, directory._listens_until = set(names), expires
        return directory

    # -- whether it may decide ----------------------------------------------------------------

    def _admit(self, now: float, name: str, fingerprint: str, mark: Mark | None) -> None:
        """Refuse whoever may not be served, before anything is registered or changed."""
        if self.stale:
            raise OldCopy(self.stale)
        if mark is not None:
            try:
                self._history.compare(mark, self.revision, name)
            except OldCopy as known_by_the_member:
                self.stale = str(known_by_the_member)
                self.revision += 1
                raise
        self._hear(now, name, fingerprint)
        if self._listening(now):
            known = len(self._members)
            raise NotYet(
                f"it has started again and listens first whether its ledger is the newest, "
                f"{self.lease:g} s at most: {known - len(self._unheard)} of {known} members heard"
            )
        self._expire(now)

    def _hear(self, now: float, name: str, fingerprint: str) -> None:
        """A member that is told to wait has been heard all the same."""
        if name in self._unheard:
            number = self._numbers[name]
            if self._members[number].fingerprint == fingerprint:
                self._unheard.remove(name)
                self._members[number] = replace(self._members[number], expires=now + self.lease)

    def _listening(self, now: float) -> bool:
        if self._unheard and now >= self._listens_until:
            self._unheard.clear()
        return bool(self._unheard)

    # -- how it decides -----------------------------------------------------------------------

    @property
    def _round(self) -> int:
        """The highest round reported. What one member says alone is worth one round more than what
        all others do, or the first round of the newest view."""
        rounds = nlargest(2, (member.round for member in self._members))
        if len(rounds) < 2:
            return sum(rounds)
        begun = self._views[-1].from_round if self._views else 0
        return min(rounds[0], max(rounds[1] + 1, begun))

    def _known(self, name: str, fingerprint: str, incarnation: int | None) -> int:
        number = self._numbers.get(name)
        if number is None or self._members[number].presence == "left":
            raise NotAMember
        member = self._members[number]
        member.check_key(fingerprint)
        if incarnation is not None and incarnation != member.incarnation:
            raise Refused(
                f"another start of {name} at {member.address} has joined since; "
                f"stop one of the two, or give each a name and certificate of its own"
            )
        return number

    def _note(self, number: int, entry: Entry) -> None:
        """A member's entry has changed in a way that may change the view."""
        self._members[number] = entry
        self._unsettled = True
        self.revision += 1

    def _expire(self, now: float) -> None:
        for number, member in enumerate(self._members):
            if member.here and member.expires <= now:
                self._note(number, replace(member, presence="away"))

    def _candidates(self) -> list[Candidate]:
        return [
            Candidate(number, member.max_share, member.here)
            for number, member in enumerate(self._members)
            if member.aggregator
        ]

    def _settle(self) -> bool:
        """Make a new view if who is here asks for one."""
        if not self._unsettled:
            return False
        self._unsettled = False
        here = [n for n, member in enumerate(self._members) if member.here]
        trained = [number for number in here if self._members[number].client]
        clients = tuple(trained[: self.most_clients])
        if len(clients) < self.least_clients:
            return False
        if not clients or (not self._views and len(here) < self.start_with):
            return False
        names = tuple(member.name for member in self._members)
        owners = assign(self.sizes, self._candidates())
        if {*owners} == {NOBODY}:
            return False
        epoch = self._views[-1].view.epoch if self._views else 0
        seating = self._seating(owners)
        samples = tuple(self._members[c].samples for c in clients) if self.weighed else None
        view = View(names, clients, owners, samples, epoch, seating)
        if epoch and self._views[-1].view == view and not self._begins_anew:
            return False
        self._begins_anew = False
        from_round = 1 + max(member.through for member in self._members)
        # A view that begins where this one does holds for no round any more.
        before = [scheduled for scheduled in self._views if scheduled.from_round < from_round]
        newest = Scheduled(replace(view, epoch=epoch + 1), from_round)
        self._views = (*before, newest)[-KEPT_VIEWS:]
        self.revision += 1
        return True

    def _seating(self, owners: Sequence[int]) -> Seating | None:
        """Seats by party, those that are held kept, and the keys of who is here."""
        if self.seats is None:
            return None
        stated = tuple(member.keys if member.here else None for member in self._members)
        parties = {number: keys.party() for number, keys in enumerate(stated) if keys is not None}
        before = self._views[-1].view.seating if self._views else None
        helpers = seated(owners, parties, self.seats, before.helpers if before else ())
        return Seating(helpers, stated)

    def _keys_from(self, number: int) -> int | None:
        """The first round of the views that have a member's newest keys."""
        keys, first = self._members[number].keys, None
        for scheduled in reversed(self._views):
            seating = scheduled.view.seating
            stated = seating.statements[number : number + 1] if seating else ()
            if keys is None or keys not in stated:
                break
            first = scheduled.from_round
        return first

    def _begins(self, round: int) -> int:
        """The first round of the view that holds in a round."""
        begun = [view.from_round for view in self._views if view.from_round <= round]
        return begun[-1] if begun else 0

    def _acts(self, number: int, round: int) -> bool:
        """Whether a member has a role in the view of a round or in one to come."""
        for scheduled in reversed(self._views):
            if number in scheduled.view.roles:
                return True
            if scheduled.from_round <= round:
                return False
        return False
