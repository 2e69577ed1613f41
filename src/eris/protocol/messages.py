"""What nodes say to each other, as plain frozen values (the schema is ``eris.proto``)."""

from __future__ import annotations

from dataclasses import dataclass

from eris.core.compress import Encoded


@dataclass(frozen=True)
class Header:
    """Who speaks of which segment of which round."""

    federation: int
    epoch: int
    sender: int
    round: int
    shard: int
    segment: int

    @property
    def key(self) -> tuple[int, int]:
        """(shard, segment)."""
        return self.shard, self.segment


@dataclass(frozen=True)
class Payload:
    """An encoded segment and, where coordinates were dropped, the name of the kept set's stream."""

    encoded: Encoded
    stream: int = 0


@dataclass(frozen=True)
class Contribution:
    """A client's segment, to the owner of its shard; where sums are secure its samples and steps
    are in the payload, masked, and 0 here."""

    header: Header
    based_on: int
    samples: int
    steps: int
    payload: Payload


@dataclass(frozen=True)
class Result:
    """The one result of a segment and round. ``payload`` is None where it was withheld."""

    header: Header
    previous: int
    included: frozenset[int]
    samples: int
    sample_steps: int
    payload: Payload | None
    digest: bytes = b""
    closed: bytes = b""
    """Names the statement that a secure sum was closed with."""
    exponent: int = 0
    """Where the unit of words follows the last mean: what that of the next round is."""


@dataclass(frozen=True)
class CatchUp:
    """Asks for every result of a segment after round ``have``, or for its ``whole`` state."""

    header: Header
    have: int
    whole: bool = False


@dataclass(frozen=True)
class Snapshot:
    """A segment's replicated state after the result of round ``at``."""

    header: Header
    at: int
    updates: int
    model: Payload
    reference: Payload | None
    slots: tuple[Payload, ...]
    closed: bytes = b""
    """Of the last result in it, where sums are secure."""
    last_included: tuple[int, ...] = ()
    """By client: the last round with it in results, as far as the sender knows; 0: none. Told where
    there is noise, to members whose ledger may have forgotten rounds."""
    exponent: int = 0
    """Of the last result in it."""


@dataclass(frozen=True)
class Holding:
    """What a member that is through with training holds: the state after the result of ``at``."""

    header: Header
    at: int
    digest: bytes


@dataclass(frozen=True)
class RevealRequest:
    """An owner's question to a helper: to open the sum over exactly these clients or, where none
    are named, to keep what it will need for that."""

    header: Header
    included: frozenset[int]
    data: bytes


@dataclass(frozen=True)
class Reveal:
    """The answer; a sum is opened over one included set of a segment and round."""

    header: Header
    included: frozenset[int]
    data: bytes


@dataclass(frozen=True)
class Refusal:
    """Tells a client that its contribution was left out, and why.

    With ``no_result`` there is nothing to wait for: the owner publishes none in this round. With
    ``again`` the contribution came too early, and is welcome now.
    """

    header: Header
    reason: str
    no_result: bool = False
    again: bool = False


@dataclass(frozen=True)
class Share:
    """A piece of a member's model or update, to its neighbours in a gossip round.

    ``header.sender`` is the (virtual) member that made it, whoever passes it on; ``header.shard``
    is the number of the chunk and ``header.segment`` the gossip step within the round. Where
    members carry virtual nodes for each other, ``names`` says which the payload is about.
    """

    header: Header
    payload: Payload
    names: bytes = b""


Message = (
    Contribution | Result | CatchUp | Snapshot | Holding | RevealRequest | Reveal | Refusal | Share
)


@dataclass(frozen=True)
class Outgoing:
    """A message and whom it is for."""

    to: tuple[int, ...]
    message: Message
