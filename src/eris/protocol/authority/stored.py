"""What a directory must not forget, as JSON has it: members, their keys, and views.

Keys are noted once: a statement is known by its member and its start, which are in a member's entry
and in the views. Everything here is public; no ledger holds a private key.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any

from eris.protocol.authority.enrolment import Entry
from eris.protocol.authority.standing import Scheduled
from eris.protocol.secure.certified import KeyStatement
from eris.protocol.secure.keys import PublicKeys
from eris.protocol.view import Seating, View

Statements = Mapping[tuple[int, int], KeyStatement]
"""By member and start."""


def members_to_json(members: Sequence[Entry]) -> list[dict[str, Any]]:
    """The members by number; a lease is of a clock that will be another one."""
    rest = ("expires", "keys", "renewals")
    return [
        {name: value for name, value in vars(member).items() if name not in rest}
        | {"start": _start(member.keys)}
        for member in members
    ]


def members_from_json(
    stored: Sequence[Mapping[str, Any]], statements: Statements, expires: float
) -> list[Entry]:
    """The members, with leases that run from now on."""
    found = []
    for number, member in enumerate(stored):
        fields = {**member, "expires": expires}
        start = fields.pop("start")
        found.append(Entry(**fields, keys=statements[number, start] if start else None))
    return found


def views_to_json(views: Sequence[Scheduled]) -> list[dict[str, Any]]:
    """The views, with seats and the starts whose keys they go by."""
    return [
        {
            "epoch": scheduled.view.epoch,
            "from_round": scheduled.from_round,
            "members": len(scheduled.view.members),
            "clients": list(scheduled.view.clients),
            "owners": list(scheduled.view.owners),
            "samples": list(scheduled.view.samples or ()),
            "helpers": [list(line) for line in seating.helpers] if seating else [],
            "starts": [_start(keys) for keys in seating.statements] if seating else [],
        }
        for scheduled in views
        for seating in (scheduled.view.seating,)
    ]


def views_from_json(
    stored: Sequence[Mapping[str, Any]], names: tuple[str, ...], statements: Statements
) -> tuple[Scheduled, ...]:
    """The views of members by their names."""
    return tuple(
        Scheduled(
            View(
                names[: view["members"]], tuple(view["clients"]), tuple(view["owners"]),
                tuple(view["samples"]) or None, view["epoch"], _seating(view, statements),
            ),
            view["from_round"],
        )
        for view in stored
    )  # fmt: skip


def statements_to_json(
    members: Sequence[Entry], views: Sequence[Scheduled]
) -> list[dict[str, Any]]:
    """Every statement that a member or a view goes by, once."""
    seatings = [view.view.seating for view in views]
    lists = [[member.keys for member in members]]
    lists += [list(seating.statements) for seating in seatings if seating is not None]
    found = {
        (number, keys.start): keys
        for statements in lists
        for number, keys in enumerate(statements)
        if keys is not None
    }
    return [
        {
            "member": number,
            "start": start,
            "exchange": keys.keys.exchange.hex(),
            "signing": keys.keys.signing.hex(),
            "certificate": b64encode(keys.certificate).decode(),
            "signature": keys.signature.hex(),
        }
        for (number, start), keys in sorted(found.items())
    ]


def statements_from_json(stored: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Statements:
    """The statements as they were noted."""
    return {
        (each["member"], each["start"]): KeyStatement(
            names[each["member"]],
            each["start"],
            PublicKeys(bytes.fromhex(each["exchange"]), bytes.fromhex(each["signing"])),
            b64decode(each["certificate"], validate=True),
            bytes.fromhex(each["signature"]),
        )
        for each in stored
    }


def _start(keys: KeyStatement | None) -> int:
    return 0 if keys is None else keys.start


def _seating(view: Mapping[str, Any], statements: Statements) -> Seating | None:
    if not view["helpers"]:
        return None
    return Seating(
        tuple(map(tuple, view["helpers"])),
        tuple(
            statements[number, start] if start else None
            for number, start in enumerate(view["starts"])
        ),
    )
