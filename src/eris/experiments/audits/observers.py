"""Observers by name, as ``eris audit --as`` takes them."""

from __future__ import annotations

from collections.abc import Sequence

from eris.audit.eavesdropper import Eavesdrop
from eris.core.errors import InvalidSetting, one_of
from eris.core.streams import Stream
from eris.protocol.agreement import Agreement
from eris.protocol.observers import ANYBODY, Observer
from eris.protocol.secure.simulated import Opener
from eris.protocol.settings import Settings
from eris.protocol.transcript import Transcript
from eris.protocol.view import NOBODY

KINDS = (
    "aggregator", "member", "coalition", "openers", "helper", "link", "server", "neighbour",
    "final-model",
)  # fmt: skip
FINAL_MODEL = "final-model"


def usual(transcript: Transcript, attacks: Sequence[str] = ()) -> list[str]:
    """Whom a run is audited as if nobody is named: all who could look, or for an eavesdropper a tap
    on the first client, on one of its links and on all."""
    if tuple(attacks) == (Eavesdrop.name,):
        one = ["link"] if len(transcript.owners) > 1 else []
        return [*one, f"link:{transcript.membership.clients[0]}-all"]
    if not transcript.owners:
        return ["neighbour", FINAL_MODEL]
    if len(transcript.owners) == 1:
        return ["server", "member", FINAL_MODEL]
    together = f"coalition:{max(2, len(transcript.owners) // 5)}"
    opening = ["openers"] if _settings(transcript).secure is not None else []
    return ["aggregator", *opening, "member", together, FINAL_MODEL]


def named(text: str, transcript: Transcript, seed: int = 0) -> list[Observer]:
    """The observers that a name means in a run.

    ``aggregator`` is every owner, ``aggregator:3`` one of them; ``coalition:5`` five owners, drawn
    by lot (or members, where nobody owns anything); ``openers:3`` owner 3 with as many helpers of
    its shard as open single contributions to a secure sum, ``helper:3`` a helper alone; ``link``
    the first client's link to the first owner that is another, ``link:3-7`` a link between two
    members, ``link:3-all`` all links
    of one, both ways.
    """
    kind, _, which = text.partition(":")
    if kind not in KINDS:
        raise InvalidSetting("observer", text, one_of(KINDS, kind))
    clients = transcript.membership.clients
    owners = sorted(transcript.owners)
    match kind:
        case "aggregator" if not which:
            if not owners:
                raise InvalidSetting("observer", text, "neighbour: in this run nobody aggregates")
            return [transcript.aggregator(owner) for owner in owners]
        case "aggregator":
            return [transcript.aggregator(_number(text, which))]
        case "server":
            return [transcript.server()]
        case "member":
            plain = [c for c in clients if c not in owners] or list(clients)
            return [transcript.member(_number(text, which) if which else plain[0])]
        case "neighbour":
            return [transcript.neighbour(_number(text, which) if which else clients[0])]
        case "coalition":
            return [transcript.coalition(_drawn(text, which, owners or list(clients), seed))]
        case "openers":
            owner = _number(text, which) if which else min(owners, default=0)
            return [Observer("openers", _openers(text, transcript, owner))]
        case "helper":
            return [transcript.helper(_helper(text, which, transcript))]
        case "link":
            return [transcript.link(*_ends(text, which, transcript), both_ways=True)]
    return []  # the final model needs no messages


def _settings(transcript: Transcript) -> Settings:
    return Settings.from_canonical(transcript.settings)


def _opener(text: str, transcript: Transcript, instead: str) -> Opener:
    """Who helps whom, where sums are secure."""
    settings = _settings(transcript) if transcript.owners else None
    if settings is None or settings.secure is None:
        expected = f"{instead}: the sums of this run are in the clear"
        raise InvalidSetting(
            "observer", text, expected if settings else "neighbour: there are none"
        )
    return Opener(Agreement(settings, transcript.view_of()))


def _openers(text: str, transcript: Transcript, owner: int) -> frozenset[int]:
    """An owner, and helpers of its first shard that open single contributions to it."""
    opener = _opener(text, transcript, "aggregator")
    transcript.aggregator(owner)  # refuses whoever owns nothing
    return opener.openers(transcript.view_of().owned_by(owner)[0])


def _helper(text: str, which: str, transcript: Transcript) -> int:
    """A member with a seat; the first seat's of the first shard unless one is named."""
    seats = _opener(text, transcript, "member").seating(transcript.view_of()).helpers
    if not which:
        return seats[0][0]
    number, known = _number(text, which), {member for line in seats for member in line} - {NOBODY}
    if number not in known:
        raise InvalidSetting("observer", text, f"a helper: {', '.join(map(str, sorted(known)))}")
    return number


def _number(text: str, which: str) -> int:
    if not which.isdecimal():
        raise InvalidSetting("observer", text, "a member's number after the colon")
    return int(which)


def _drawn(text: str, which: str, members: list[int], seed: int) -> list[int]:
    if not which.isdecimal() or not 1 <= int(which) <= len(members):
        expected = f"coalition:N with N from 1 to {len(members)}, of those who can collude here"
        raise InvalidSetting("observer", text, expected)
    order = Stream(seed, "coalition").permutations(1, len(members))[0]
    return sorted(members[place] for place in order[: int(which)].tolist())


def _ends(text: str, which: str, transcript: Transcript) -> tuple[int, int]:
    owners, clients = sorted(transcript.owners), transcript.membership.clients
    if not which:
        others = [owner for owner in owners if owner != clients[0]]
        if not others:
            raise InvalidSetting("observer", text, _wires(transcript))
        return clients[0], others[0]
    sender, dash, receiver = which.partition("-")
    if not dash or not sender.isdecimal() or not (receiver.isdecimal() or receiver == "all"):
        raise InvalidSetting("observer", text, _wires(transcript))
    if receiver == "all":
        return int(sender), ANYBODY
    ends = int(sender), int(receiver)
    if owners and not {*ends} & {*owners}:
        raise InvalidSetting("observer", text, f"{_wires(transcript)}; no update passes here")
    return ends


def _wires(transcript: Transcript) -> str:
    """The taps that there can be."""
    owners = ", ".join(map(str, sorted(transcript.owners)))
    other = f"an owner's ({owners})" if owners else "another's"
    return f"link:A-B with a client's number and {other}, or link:A-all for all wires of A"
