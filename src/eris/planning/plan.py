"""The plan itself: settings of the method for a question, and what follows from them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from eris.core.shared_noise import NoisePlan
from eris.planning.division import Division, Loads, alike, equal, rates, weighted
from eris.planning.evidence import (
    beside_noise,
    busy_seconds,
    cpu_seconds,
    noise_ratio,
    noisy_trainings,
    overhead,
)
from eris.planning.question import AUTO, LEAST_KEPT, ImpossiblePlan, Question
from eris.protocol.secure.noise_terms import usually_included
from eris.protocol.secure.seats import Threshold
from eris.protocol.secure.terms import SecureSums

THRESHOLDS = (Threshold(2, 3), Threshold(3, 4), Threshold(4, 4), Threshold(5, 5))
"""Those that are chosen from, each for one more colluder than the one before."""
EVEN = 2.0
"""Unless a target says otherwise no weighted shard is larger than this many even ones."""
NODE_SHARE = 0.5
"""The largest share that a node takes by default (``node.max_share``)."""
ROTATED_BELOW = 0.03
"""Kept shares below act in a rotated basis by default."""
MBIT = 1e6 / 8


@dataclass(frozen=True)
class FederationPlan:
    """What a federation is to agree on, and what follows: bytes, seconds, what is seen."""

    question: Question
    division: Division
    kept: float
    secure: SecureSums | None
    min_included: int
    noise: NoisePlan | None

    @property
    def aggregators(self) -> int:
        """A: members that own a shard."""
        return len(self.division.owners)

    @property
    def coordinates(self) -> int:
        """Coordinates that travel in a round."""
        return max(1, round(self.kept * self.question.parameters))

    @property
    def rotated(self) -> bool:
        """Whether kept sets act in a rotated basis: where they are small, and where single samples
        are clipped, which have no reference."""
        sample = self.noise is not None and self.question.protects == "sample"
        return self.kept < 1 and (self.kept < ROTATED_BELOW or sample)

    @cached_property
    def _loads(self) -> Loads:
        threshold = None if self.secure is None else self.secure.threshold
        asked = self.question
        return Loads(asked.clients, self.coordinates, threshold, asked.ring_bytes)

    @cached_property
    def traffic(self) -> list[tuple[float, float]]:
        """Bytes that every member sends and fetches in a round, its work as an owner included."""
        return self.division.loads(self._loads)

    @property
    def uneven_seats(self) -> tuple[int, int] | None:
        """The most seats that a member holds, and how many there are; None if all hold as many."""
        if self.secure is None or not alike(self.division.shares):
            return None
        seats = self.aggregators * self.secure.threshold.seats
        held = self._loads.most_seats(self.aggregators)
        return None if held * self.question.clients == seats else (held, seats)

    @cached_property
    def limit(self) -> float:
        """The least seconds that the links allow a round."""
        return self.division.limit(self._loads, self.question.links)

    @property
    def slowest(self) -> tuple[int, str, float]:
        """The member whose link is the limit, its direction, and its rate in bytes/s."""
        ways = zip(("up", "down"), rates(self.question.links, self.question.clients), strict=True)
        found = [
            (self.traffic[member][way] / rate, member, name, float(rate))
            for way, (name, those) in enumerate(ways)
            for member, rate in enumerate(those)
        ]
        _, member, name, rate = max(found, key=lambda one: one[0])
        return member, name, rate

    @property
    def seconds(self) -> float:
        """What a round is predicted to take, training included.

        Nodes on links took a·limit + c; what they compute beside that is added, and no round is
        shorter than what a node computes.
        """
        asked = self.question
        a, c = overhead("plain" if self.secure is None else "masked")
        beside = cpu_seconds("kept") * asked.parameters if self.kept < 1 else 0.0
        if self.noise is not None:
            beside += cpu_seconds("noise") * self.coordinates
        busy = busy_seconds("plain" if self.secure is None else "masked") * self.coordinates
        exchange = max(a * self.limit + c, asked.members_per_core * busy)
        return asked.training + exchange + asked.members_per_core * beside

    @property
    def seen(self) -> float:
        """Share of a client's update that the colluders read in a round; of sums that are secure
        nothing, as long as they are not helpers enough."""
        if self.secure is not None:
            return 0.0
        return self.kept * self.division.seen(self.question.colluders)

    @property
    def seen_by_owner(self) -> float:
        """Share of a client's update that the largest owner reads in a round."""
        return 0.0 if self.secure is not None else self.kept * self.division.seen(1)

    @property
    def noise_ratio(self) -> float | None:
        """Length of a round's noise over the longest that a mean gradient can be."""
        if self.noise is None:
            return None
        asked = self.question
        assert asked.samples is not None
        each = asked.samples if asked.protects == "sample" else 1
        std = self.noise.of_a_client * math.sqrt(asked.clients)
        return noise_ratio(std, self.coordinates, asked.clients * each)


def planned(question: Question) -> FederationPlan:
    """The plan for a question, or an :class:`ImpossiblePlan` that says what binds.

    The fewest seconds that the targets allow; of plans that are as fast the one with most owners.
    All coordinates travel unless a target needs fewer.

    >>> from eris.theory.distribution_time import Links
    >>> plan = planned(Question(clients=8, parameters=10**7, links=Links.uniform(12.5e6)))
    >>> plan.aggregators, plan.kept, str(plan.secure.threshold), round(plan.limit, 2)
    (8, 1.0, '2 of 3', 10.0)
    """
    secure = _secure(question)
    usual = 3 if secure is None else secure.least_included
    noise, min_included = None, usual
    if question.epsilon is not None:
        assert secure is not None
        min_included = max(usual, usually_included(question.clients))
        noise = NoisePlan(
            question.epsilon, question.rounds, min_included, secure.known, question.delta
        )

    def plan(kept: float) -> FederationPlan | None:
        division = _divided(question, secure, kept)
        if division is None:
            return None
        return FederationPlan(question, division, kept, secure, min_included, noise)

    found = _kept(question, plan)
    _check_noise(found)
    return found


def _kept(question: Question, plan: Callable[[float], FederationPlan | None]) -> FederationPlan:
    """The plan with the largest kept share that meets the targets on what is seen and on time."""

    def meets(one: FederationPlan | None) -> FederationPlan | None:
        slow = one is not None and question.seconds is not None and one.seconds > question.seconds
        return None if slow else one

    first = plan(1.0 if question.kept is None else question.kept)
    if (met := meets(first)) is not None:
        return met
    least = first
    if question.kept is None:
        low, high = max(LEAST_KEPT, 1 / question.parameters), 1.0
        least = plan(low)
        if (met := meets(least)) is not None:
            for _ in range(40):
                middle = math.sqrt(low * high)
                fits = meets(plan(middle))
                low, high = (low, middle) if fits is None else (middle, high)
                met = fits or met
            return meets(plan(_shorter(met.kept))) or met
    raise _too_slow(question, least) if least is not None else _sees_too_much(question)


def _shorter(share: float) -> float:
    """Cut to two digits.

    >>> _shorter(0.03377), _shorter(0.5)
    (0.033, 0.5)
    """
    unit = 10.0 ** (math.floor(math.log10(share)) - 1)
    return round(math.floor(share / unit * (1 + 1e-9)) * unit, 12)


def _divided(question: Question, secure: SecureSums | None, kept: float) -> Division | None:
    """Who owns what, with shares small enough for the target on what is seen."""
    threshold = None if secure is None else secure.threshold
    coordinates = max(1, round(kept * question.parameters))
    loads = Loads(question.clients, coordinates, threshold, question.ring_bytes)
    largest = 1.0
    if question.most_seen is not None and secure is None:
        largest = min(1.0, question.most_seen / (kept * question.colluders))
    if question.aggregators is not None:
        return equal(loads, question.links, largest=largest, aggregators=question.aggregators)
    if question.shards == "equal":
        return equal(loads, question.links, largest=min(largest, NODE_SHARE))
    if question.most_seen is None or secure is not None:
        largest = min(1.0, EVEN / question.clients)
    return weighted(loads, question.links, largest=largest)


# -- secure sums and noise ------------------------------------------------------------------------


def _secure(question: Question) -> SecureSums | None:
    """The secure sums that withstand the colluders: an owner and the others as its helpers."""
    wanted, colluders = question.secure, question.colluders
    if wanted == "none":
        if question.epsilon is not None:
            raise ImpossiblePlan(
                f"ε = {question.epsilon:g} needs secure sums: noise is shared in sums that nobody "
                "opens alone",
                "secure sums such as 2 of 3",
            )
        return None
    if wanted != AUTO:
        threshold = Threshold.parse(wanted)
        if threshold.need < colluders:
            raise ImpossiblePlan(
                f'"{threshold}" is made against an owner and {threshold.need - 1} of its helpers, '
                f"and {colluders} colluders may be an owner and {colluders - 1} of them",
                _withstands(colluders),
            )
        return _fitting(question, threshold, spare=0)
    threshold = next((one for one in THRESHOLDS if one.need >= colluders), THRESHOLDS[-1])
    if threshold.need < colluders:
        if question.epsilon is None:
            return None
        raise ImpossiblePlan(
            f"no secure sums withstand {colluders} colluders: 5 of 5 are made against an owner and "
            "4 of its helpers",
            "5 colluders or fewer",
        )
    try:
        return _fitting(question, threshold, spare=1)
    except ImpossiblePlan:
        if question.epsilon is not None or colluders > 1:
            raise
        return None


def _fitting(question: Question, threshold: Threshold, spare: int) -> SecureSums:
    """Secure sums of so many members, ``spare`` of whom may be away."""
    known = max(threshold.need, question.colluders) - 1
    secure = SecureSums(threshold, question.ring_bytes, known)
    needed = max(threshold.seats + 1, secure.least_included + spare)
    if question.clients < needed:
        away = ", of whom one may be away" if spare else ""
        without = " without ε and secure sums" if question.epsilon else " without secure sums"
        raise ImpossiblePlan(
            f'"{threshold}" needs {needed} members{away}, and there are {question.clients}',
            f"{needed} members, or{without}, where an owner reads single updates",
        )
    return secure


def _withstands(colluders: int) -> str:
    fits = next((str(one) for one in THRESHOLDS if one.need >= colluders), None)
    return "5 colluders or fewer" if fits is None else f"secure sums {fits}"


def _check_noise(plan: FederationPlan) -> None:
    """Refuse noise beside which nothing that was measured has learnt."""
    ratio, asked = plan.noise_ratio, plan.question
    if ratio is None or beside_noise(ratio) is not None:
        return
    assert plan.noise is not None
    assert asked.samples is not None
    most = noisy_trainings()[-1]
    over = ratio / most.ratio
    data = f"{asked.clients} clients"
    remedies = [f"{math.ceil(asked.clients * over):,} clients or more"]
    if asked.protects == "sample":
        data += f" × {asked.samples:,} samples"
        remedies = [f"{math.ceil(asked.samples * over):,} samples a client"]
    if (rounds := math.floor(asked.rounds / over**2)) >= 1:
        remedies.append(f"{rounds:,} rounds")
    if (weaker := _weaker(plan, over)) is not None:
        remedies.append(f"ε = {weaker:.1f}")
    raise ImpossiblePlan(
        f"ε = {asked.epsilon:g} over {asked.rounds:,} rounds with {data} leaves noise {ratio:,.0f} "
        f"times as long as the longest mean gradient of {plan.coordinates:,} coordinates; at "
        f"{most.ratio:.0f} times {most.model} had {most.accuracy:g} %, not {most.clipped:g} %",
        ", or ".join(remedies),
    )


def _weaker(plan: FederationPlan, over: float) -> float | None:
    """The least ε that leaves so many times less noise, if it is one that still says something."""
    assert plan.noise is not None
    wanted = plan.noise.sigma / over
    low, high = plan.noise.epsilon, 20.0
    if low >= high or replace(plan.noise, epsilon=high).sigma > wanted:
        return None
    for _ in range(15):
        middle = math.sqrt(low * high)
        enough = replace(plan.noise, epsilon=middle).sigma <= wanted
        low, high = (low, middle) if enough else (middle, high)
    return math.ceil(high * 10) / 10


# -- what binds -----------------------------------------------------------------------------------


def _too_slow(question: Question, least: FederationPlan) -> ImpossiblePlan:
    """Why a round cannot be as short as is wanted."""
    assert question.seconds is not None
    member, way, rate = least.slowest
    size = least.traffic[member][0 if way == "up" else 1]
    masked = "" if least.secure is None else f" in secure sums {least.secure.threshold}"
    link = (
        f"{question.name(member)} moves {size / 1e6:,.2f} MB {way} at {rate / MBIT:g} Mbit/s, "
        f"which takes {least.limit:,.2f} s with {100 * least.kept:g} % kept{masked}"
    )
    beside = least.seconds - least.limit
    if question.seconds <= least.limit:
        constraint = (
            f"{question.seconds:g} s a round is below the limit of the slowest link: {link}"
        )
    else:
        constraint = (
            f"{question.seconds:g} s a round is below what nodes take: {link}, and headers, "
            f"computing and training {beside:,.2f} s more"
        )
    remedies = [f"{math.ceil(least.seconds * 100) / 100:g} s a round"]
    if question.kept is not None and question.kept > LEAST_KEPT:
        remedies.append("fewer coordinates kept")
    if (room := question.seconds - beside) > 0:
        remedies.append(f"{rate / MBIT * least.limit / room:,.3g} Mbit/s there")
    if least.secure is not None and question.epsilon is None:
        remedies.append("no secure sums, where owners read single updates")
    return ImpossiblePlan(constraint, ", or ".join(remedies))


def _sees_too_much(question: Question) -> ImpossiblePlan:
    """Why colluders cannot see as little as is wanted."""
    assert question.most_seen is not None
    owners = question.aggregators or question.clients
    kept = LEAST_KEPT if question.kept is None else question.kept
    least = kept * min(1.0, question.colluders / owners)
    constraint = (
        f"{question.colluders} of {owners} owners together read {100 * least:.3g} % of an update "
        f"with {100 * kept:g} % kept, more than {100 * question.most_seen:g} %"
    )
    needed = math.ceil(question.colluders * kept / question.most_seen)
    return ImpossiblePlan(constraint, f"{needed:,} owners, fewer colluders, or secure sums")
