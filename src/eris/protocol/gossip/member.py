"""One gossiping member over the rounds: when to train, send, mix, ask and go on.

A machine without I/O for members that may fail (:mod:`eris.protocol.machine`); what is sent and how
it is mixed is the method's (:class:`~eris.protocol.gossip.peer.Peer`). Nobody waits for all: in
every phase of a round a member waits for its neighbours, as long as they may still send. What it
does without:

- who has been silent for ``close_after`` seconds, unless nobody else is known to have come as far:
  members do not go on alone;
- who says that it has gone on, or is not in the newest view.

Shares of later rounds wait for theirs, late ones change nothing, and one that comes twice counts
once. The graph of a round is drawn over the clients of its view, so that it is a public function of
seed, round and view; a member sends in rounds that it has a permit for, and none of a round that it
may have sent in before a restart (:mod:`eris.protocol.authority.standing`). So of a round and phase
a member says one thing, and no model takes the same in twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.core.errors import ErisError, InvalidSetting
from eris.core.exact_clip import Content
from eris.core.vectors import Vector
from eris.protocol.authority.standing import Epochs, Standing
from eris.protocol.gossip.peer import GossipSettings, Nodes, Peer
from eris.protocol.messages import CatchUp, Header, Message, Outgoing, Refusal, Share
from eris.protocol.recent import Recent
from eris.protocol.round.ending import Phase
from eris.protocol.round.giving import Job
from eris.protocol.settings import starting_model
from eris.protocol.view import View

AHEAD = 64
"""Rounds beyond the own one of which shares are kept until it is reached."""
MOST_EARLY = 8
"""Shares that are kept of one sender: neighbours are few steps ahead."""
MOST_AGAIN = 8
"""Times that one member is sent the same again."""
LISTENING = 4
"""Every so many times of asking, everybody is asked, not the missing neighbours alone."""
MOST_REFUSED = 100
_PEER = "peer/"


@dataclass
class _Batch:
    """What was sent in a phase, and how often again."""

    round: int
    step: int
    sent: Sequence[Outgoing]
    again: Counter[int] = field(default_factory=Counter)


class GossipMember:
    """One gossiping member's whole logic, moved by a runtime.

    ``settings`` and ``standing`` say what was agreed and who is there, ``initial`` is the model all
    start from, ``rounds`` where training ends. ``nodes`` gives the method's machines for as many as
    are there (``GossipMethod.among``). A member that has restarted sends nothing in rounds up to
    ``abstain_through``.
    """

    def __init__(
        self,
        settings: GossipSettings,
        standing: Standing,
        initial: Vector,
        *,
        rounds: int,
        nodes: Callable[[GossipSettings], Nodes],
        abstain_through: int = 0,
    ) -> None:
        self.settings, self.agreement = settings, Epochs(standing.views)
        self.me, self.rounds = standing.me, rounds
        self.through, self.abstain_through = standing.through, abstain_through
        self.phase = Phase.CATCHING_UP
        self.round = self.step = 0
        self.begun = 0
        """The last round that was sent in."""
        self.job: Job | None = None
        self.renewal_due = False
        self.refused: Recent[str] = Recent(MOST_REFUSED)
        self.late = 0
        """Shares that came after their phase."""
        self.mixed = self.missed = 0
        """Shares that were mixed in the round that was last sent in, and those that were not there
        in time."""
        self._nodes, self._phases = nodes, 1
        self._peer: Peer | None = None
        self._clients: tuple[int, ...] = ()
        self._epoch = 0
        model = starting_model(settings.n, settings.initial, initial)
        self._kept: tuple[tuple[int, ...], dict[str, Vector]] = (), {"model": model}
        """The state to begin with, and among whom it was so."""
        self._reached = standing.round
        self._words: dict[int, tuple[int, int]] = {}
        """By member: the furthest round and step that it has named."""
        self._early: dict[int, dict[tuple[int, int, int], Share]] = {}
        """By sender: shares of rounds to come, by round, chunk and step."""
        self._sent: list[_Batch] = []
        """What others may still ask for again: of a round's phases and of the one before them, as
        far as somebody that it was for is not known to be past it."""
        self._got: set[tuple[int, int, int]] = set()
        """(step, source, chunk) of the round's shares that are here."""
        self._gone: set[int] = set()
        """Who is past this phase, and not waited for."""
        self._going: dict[int, float] = {}
        """Who has said so, and until when something of it may still be on its way."""
        self._deadline = self._ask_at = 0.0
        self._overdue, self._retries = False, 0

    # -- reading ------------------------------------------------------------------------------

    @property
    def model(self) -> Vector:
        """The current model."""
        return self._kept[1]["model"] if self._peer is None else self._peer.model

    @property
    def view(self) -> View:
        """The view of the current round."""
        return self.agreement.view_at(max(1, self.round))

    @property
    def acted(self) -> int | None:
        """The last round in which this member may have sent; what it tells when it leaves."""
        return max(self.abstain_through, self.begun)

    @property
    def wakes_at(self) -> float:
        """When :meth:`tick` should be called at the latest."""
        if self.phase in (Phase.TRAINING, Phase.DONE):
            return float("inf")
        if self.phase is Phase.CATCHING_UP:
            return self._ask_at
        deadline = float("inf") if self._overdue else self._deadline
        return min(self._ask_at, deadline, *self._going.values())

    @property
    def finished(self) -> bool:
        """Whether training is over: nothing is missing in a model of one's own."""
        return self.phase is Phase.DONE

    @property
    def exhausted(self) -> bool:
        """Never: see :attr:`finished`."""
        return False

    def awaited(self) -> frozenset[int]:
        """The members whose shares of this phase may still come."""
        if self._peer is None or self.phase is not Phase.EXCHANGING:
            return frozenset()
        missing = {self._clients[place] for place in self._peer.awaited(self.step)}
        return frozenset(missing - self._gone) & self.agreement.view.client_set

    # -- what goes in -------------------------------------------------------------------------

    def start(self, now: float) -> list[Outgoing]:
        """Begin, or go on after a restart where the others are by now."""
        if self.round == self.abstain_through == 0:
            return self._enter(1, now)
        return self._enter(max(self.round, self.abstain_through, self._reached - 1) + 1, now)

    def stand(self, standing: Standing, now: float) -> list[Outgoing]:
        """Take in what the authority says; an answer older than what is known changes nothing."""
        self._reached = max(self._reached, standing.round)
        if standing.views and standing.views[-1].view.epoch >= self.agreement.view.epoch:
            self.agreement.schedule(standing.views)
            self.through = max(self.through, standing.through)
        return self._proceed(now)

    def receive(self, message: Message, source: int, now: float) -> list[Outgoing]:
        """Take a message in from a member."""
        header = message.header
        if header.epoch > self.agreement.view.epoch:
            self.renewal_due = True
        if problem := self._wrong(message, source):
            self._refuse(message, source, problem)
            return []
        place = (header.round, header.segment)
        self._words[source] = max(self._words.get(source, place), place)
        out: list[Outgoing] = []
        if isinstance(message, Share):
            self._hear(message, source)
        elif isinstance(message, CatchUp):
            out = self._answer(header, source)
        elif place > (self.round, self.step) and source not in self._gone:
            self._going.setdefault(source, now + self.settings.retry_every)
        return out + self._proceed(now)

    def trained(
        self, update: Vector, samples: int, steps: int, now: float,
        content: Content | None = None,
    ) -> list[Outgoing]:  # fmt: skip
        """Take the local step and send; an update that cannot be applied is refused whole, and
        counts as ``failed``."""
        return self._begin(update, now)

    def failed(self, now: float) -> list[Outgoing]:
        """Training gave nothing: this member sends what it has, without a local step."""
        return self._begin(None, now)

    def pull(self, now: float, full: Container[int] = ()) -> list[Outgoing] | None:
        """Nothing: shares leave when they are made."""
        return None

    def take_stayed(self) -> list[Message]:
        """Nothing: what a member has for itself is no message."""
        return []

    def tick(self, now: float) -> list[Outgoing]:
        """Let time pass."""
        self._overdue |= self.phase is Phase.EXCHANGING and now >= self._deadline
        out = self._proceed(now)
        waits = self.phase in (Phase.EXCHANGING, Phase.CATCHING_UP)
        return out + self._ask(now) if waits and now >= self._ask_at else out

    # -- the course of a round ----------------------------------------------------------------

    def _enter(self, round: int, now: float) -> list[Outgoing]:
        """Enter a round, or the first one after it in which this member can take part; without a
        view or a permit for it, wait for them."""
        found = self._open_from(round)
        self.round, self.step = min(round if found is None else found, self.rounds + 1), 0
        self.job, self.phase, self.renewal_due = None, Phase.CATCHING_UP, True
        self._ask_at = now + self.settings.retry_every
        if self.round > self.rounds:
            self.phase = Phase.DONE
            self._early.clear()
        elif found is not None and self.round <= self.through:
            self._sit()
            self.phase = Phase.TRAINING
            self.job = Job(self.round, self.model.copy())
        return []

    def _open_from(self, round: int) -> int | None:
        """The first round from one on in whose view this member has enough to exchange with."""
        if round > self.rounds:
            return round
        for first in self.agreement.begins(round):
            clients = self.agreement.view_at(first).client_set
            if self.me in clients and len(clients) >= self.settings.least_clients:
                return first
        return None

    def _sit(self) -> None:
        """Take the place among the clients of the round's view; others than before get a machine of
        its own, with the model alone: whatever else was kept was for those before."""
        view = self.view
        if self._peer is not None and (view.epoch, view.clients) == (self._epoch, self._clients):
            return
        clients, state = self._kept if self._peer is None else (self._clients, self._peer.state())
        nodes = self._nodes(self.settings.in_view(len(view.clients), view.epoch))
        self._peer = nodes.build(view.clients.index(self.me), state["model"])
        if clients == view.clients:
            self._peer.restore(state)
        self._phases, self._clients, self._epoch = nodes.phases, view.clients, view.epoch

    def _begin(self, update: Vector | None, now: float) -> list[Outgoing]:
        assert self._peer is not None
        assert self.phase is Phase.TRAINING, "what was trained belongs to a job"
        out = self._peer.begin(self.round, update)
        self.job, self.phase, self.begun = None, Phase.EXCHANGING, self.round
        self._got.clear()
        self._gone.clear()
        self._going.clear()
        self.mixed = self.missed = 0
        for source, shares in self._early.items():
            for share in [one for one in shares.values() if one.header.round == self.round]:
                self._take(share, source)
            later = {key: one for key, one in shares.items() if one.header.round > self.round}
            self._early[source] = later
        return self._say(0, out, now)

    def _say(self, step: int, out: Sequence[Outgoing], now: float) -> list[Outgoing]:
        """Send what belongs to a phase, and wait for the others'."""
        made = [
            Outgoing(tuple(self._clients[place] for place in one.to), self._signed(one.message))
            for one in out
        ]
        wanted = [batch for batch in self._sent if not self._past(batch)]
        self._sent = [*wanted[-self._phases :], _Batch(self.round, step, made)]
        self.step, self._retries, self._overdue = step, 0, False
        self._going.clear()
        self._gone = {one for one in self._gone if self._known_in(one) > self.round}
        self._deadline = now + self.settings.close_after
        # Who is known to be further on has sent what is missing here: it was lost, or overtaken.
        ahead = any(self._known_in(one) > self.round for one in self.awaited())
        self._ask_at = now if ahead else now + self.settings.retry_every
        return made + self._proceed(now)

    def _proceed(self, now: float) -> list[Outgoing]:
        """Go on if all is in that can be."""
        if self.phase is Phase.CATCHING_UP and self.round:
            return self._enter(self.round, now) if self._may_enter() else []
        if self.phase is not Phase.EXCHANGING or self._peer is None:
            return []
        self._gone |= {member for member, until in self._going.items() if until <= now}
        self._going = {member: until for member, until in self._going.items() if until > now}
        if self.awaited() and not (now >= self._deadline and self._not_alone()):
            return []
        here = sum(step == self.step for step, _, _ in self._got)
        self.mixed += here
        self.missed += len(self._peer.awaited(self.step))
        out = self._peer.turn(self.step)
        if self.step + 1 < self._phases:
            return self._say(self.step + 1, out, now)
        following = self.round + 1
        if not self.mixed or self._left_behind():
            following = max(following, self._furthest())
        return self._enter(following, now)

    def _may_enter(self) -> bool:
        found = self._open_from(self.round)
        return found is not None and (found <= self.through or found != self.round)

    def _not_alone(self) -> bool:
        """Whether somebody else has come as far as this phase."""
        return any(word >= (self.round, self.step) for word in self._words.values())

    def _past(self, batch: _Batch) -> bool:
        """Whether all that something was for are known to be further on."""
        here = (batch.round, batch.step)
        receivers = {member for one in batch.sent for member in one.to}
        return all(self._words.get(member, here) > here for member in receivers)

    def _left_behind(self) -> bool:
        """Whether a neighbour has gone on from a later round without waiting for this member."""
        return any(
            round > self.round and self._known_in(source) > round
            for source, kept in self._early.items()
            for round, _, _ in kept
        )

    def _known_in(self, member: int) -> int:
        """The furthest round that a member has named."""
        return self._words.get(member, (0, 0))[0]

    def _furthest(self) -> int:
        """The round that the others have reached: as the authority says, or two of them."""
        others = self.agreement.view.client_set - {self.me}
        words = sorted(map(self._known_in, others), reverse=True)
        return max(self._reached, words[min(1, len(words) - 1)] if words else 0)

    # -- messages -----------------------------------------------------------------------------

    def _wrong(self, message: Message, source: int) -> str:
        """Why a message cannot be one of this federation; nothing if it can."""
        header = message.header
        if header.federation != self.settings.fingerprint:
            return "belongs to a federation with other settings"
        if header.sender != source:
            return f"claims to be from member {header.sender}"
        if not 1 <= header.round <= self.rounds + 1:
            return f"names round {header.round}; training ends after round {self.rounds}"
        if not isinstance(message, Share | CatchUp | Refusal):
            return "has no place in gossip"
        return ""

    def _refuse(self, message: Message, source: int, why: str) -> None:
        self.refused.append(f"{type(message).__name__.lower()} from member {source}: {why}")

    def _hear(self, share: Share, source: int) -> None:
        """Keep a share for its turn, or leave it where that is over."""
        header, exchanging = share.header, self.phase is Phase.EXCHANGING
        if header.round > self.round or (header.round == self.round and not exchanging):
            self._keep_early(share, source)
        elif header.round < self.round or header.segment < self.step:
            self.late += 1
        else:
            self._take(share, source)

    def _keep_early(self, share: Share, source: int) -> None:
        header = share.header
        if header.round > self.round + AHEAD or self.phase is Phase.DONE:
            self._refuse(share, source, f"round {header.round} is far from here")
            return
        kept = self._early.setdefault(source, {})
        key = (header.round, *header.key)
        if key not in kept and len(kept) >= MOST_EARLY:
            self._refuse(share, source, f"{MOST_EARLY} of its shares wait for their rounds")
            return
        kept.setdefault(key, share)

    def _take(self, share: Share, source: int) -> None:
        header = share.header
        key = (header.segment, source, header.shard)
        if key in self._got:
            return  # it was asked for again
        try:
            if source not in self._clients:
                raise ErisError(f"is not in the view of round {header.round}")
            assert self._peer is not None
            place = self._clients.index(source)
            self._peer.receive(replace(share, header=replace(header, sender=place)), place)
        except ErisError as error:
            self._refuse(share, source, str(error))
        else:
            self._got.add(key)

    def _signed(self, message: Message) -> Message:
        """A machine's message, which knows places, under the member's number."""
        return replace(message, header=replace(message.header, sender=self.me))

    # -- silence ------------------------------------------------------------------------------

    def _header(self, step: int) -> Header:
        view = self.agreement.view_at(max(1, self.round))
        return Header(self.settings.fingerprint, view.epoch, self.me, self.round, 0, step)

    def _ask(self, now: float) -> list[Outgoing]:
        """Ask the authority for a permit or a view, or members for what is missing."""
        self._ask_at = now + self.settings.retry_every
        self._retries += 1
        if self.phase is Phase.CATCHING_UP:
            self.renewal_due = True
            return []
        whom = self.awaited()
        if self._retries % LISTENING == 0:
            whom = self.agreement.view.client_set - {self.me}
        question = CatchUp(self._header(self.step), have=self.round - 1)
        return [Outgoing(tuple(sorted(whom)), question)] if whom else []

    def _answer(self, asked: Header, source: int) -> list[Outgoing]:
        """Send again what was sent to a member, or say that this one is past it."""
        for batch in self._sent:
            if (batch.round, batch.step) == (asked.round, asked.segment):
                wanted = [one.message for one in batch.sent if source in one.to]
                if wanted and batch.again[source] < MOST_AGAIN:
                    batch.again[source] += 1
                    return [Outgoing((source,), message) for message in wanted]
        if (self.round, self.step) <= (asked.round, asked.segment):
            return []
        past = Refusal(self._header(self.step), "this member has gone on", no_result=True)
        return [Outgoing((source,), past)]

    # -- checkpoints --------------------------------------------------------------------------

    def state(self) -> dict[str, NDArray[Any]]:
        """All that is needed to go on after a restart."""
        clients, kept = self._kept if self._peer is None else (self._clients, self._peer.state())
        about = {"round": np.array([self.begun]), "clients": np.array(clients, np.int64)}
        return {**about, **{f"{_PEER}{name}": value for name, value in kept.items()}}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a ``state()``, before :meth:`start`.

        What was kept for others is left out if some of it may have been sent since.
        """
        kept = {name.removeprefix(_PEER): v for name, v in state.items() if name.startswith(_PEER)}
        if "round" not in state or "clients" not in state or "model" not in kept:
            raise InvalidSetting("checkpoint", sorted(state), "one of a federation that gossips")
        self.round = self.begun = int(state["round"][0])
        kept["model"] = starting_model(self.settings.n, "", kept["model"])
        clients = tuple(state["clients"].tolist())
        self._kept = (clients if self.abstain_through <= self.begun else ()), kept
