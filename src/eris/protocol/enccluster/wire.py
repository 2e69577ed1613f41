"""The bytes of reveal requests and key shares; who is in the set, the messages say themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from eris.core.errors import MalformedMessage
from eris.protocol.enccluster.labels import BookLabel
from eris.protocol.enccluster.sets import SetMember, SetStatement
from eris.protocol.enccluster.shares import KeyShare

if TYPE_CHECKING:
    from eris.protocol.view import View

SIGNATURE, DIGEST, NAME = 64, 32, 32


def write_statement(statement: SetStatement, signature: bytes) -> bytes:
    """The signature, then the digests of contributions in order of the members' numbers."""
    return signature + b"".join(one.contribution for one in statement.members)


def read_statement(
    data: bytes, members: Sequence[int], label: BookLabel, view: View
) -> tuple[SetStatement, bytes]:
    """A statement and its signature; keys are those of this member's own copy of the view."""
    expected = SIGNATURE + DIGEST * len(members)
    if len(data) != expected:
        raise MalformedMessage("statement", f"has {len(data)} bytes; expected {expected}")
    known = view.seating.known if view.seating is not None else {}
    rows = []
    for place, client in enumerate(sorted(members)):
        if client not in known:
            raise MalformedMessage("statement", f"has member {client}, whose keys are not known")
        at = SIGNATURE + DIGEST * place
        rows.append(SetMember(client, 1, data[at : at + DIGEST], known[client].exchange))
    return SetStatement(label.first, tuple(rows)), data[:SIGNATURE]


def write_share(share: KeyShare) -> bytes:
    """The statement's name, then the scalars."""
    return share.statement + share.data


def read_share(data: bytes) -> KeyShare:
    """A member's share, whose scalars are not looked at yet."""
    if len(data) < NAME:
        raise MalformedMessage("share", f"has {len(data)} bytes; expected {NAME} and scalars")
    return KeyShare(data[:NAME], data[NAME:])
