"""The directory on the network: the service of the node that hosts it, and a member's client.

The service knows who asks from the certificate of the connection, and answers only what is on disk:
an answer may be lost on its way, a permit that was given never.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from eris.core.errors import ErisError
from eris.protocol import directory_pb2 as wire
from eris.protocol.authority.directory import (
    Description,
    Directory,
    Impostor,
    Joined,
    NotAMember,
    NotYet,
    OldKeys,
    Refused,
)
from eris.protocol.authority.standing import Standing
from eris.protocol.directory_codec import (
    description_from_wire,
    description_to_wire,
    joined_from_wire,
    joined_to_wire,
    keys_of,
    keys_to_wire,
    mark_of,
    mark_to_wire,
    standing_from_wire,
    standing_to_wire,
)
from eris.protocol.secure.certified import KeyStatement
from eris.protocol.secure.keys import RefusedKeys
from eris.protocol.view import Seating
from eris.runtimes.grpc.ledger import Ledger
from eris.runtimes.grpc.storage import Memory
from eris.runtimes.grpc.tls import peer_identity

SERVICE = "eris.v1.Directory"
LARGEST_REQUEST = 64 * 1024
LONGEST_REASON = 2_000
"""Characters; a status travels in the header of an answer, which peers limit to 8 KiB."""
TIMEOUT = 10.0

Context = grpc.aio.ServicerContext[bytes, bytes]
Request = TypeVar("Request", bound=Message)
Answer = TypeVar("Answer", bound=Message)
Result = TypeVar("Result")

REFUSALS: dict[grpc.StatusCode, type[Refused]] = {
    grpc.StatusCode.PERMISSION_DENIED: Impostor,
    grpc.StatusCode.NOT_FOUND: NotAMember,
    grpc.StatusCode.FAILED_PRECONDITION: Refused,
    grpc.StatusCode.UNAUTHENTICATED: Refused,
    grpc.StatusCode.INVALID_ARGUMENT: Refused,
}
"""What a status means to a client."""
CODES = {
    Impostor: grpc.StatusCode.PERMISSION_DENIED,
    NotAMember: grpc.StatusCode.NOT_FOUND,
    OldKeys: grpc.StatusCode.OUT_OF_RANGE,
}
NEWEST_START = "eris-newest-start"
"""In the trailer of a refusal of old keys: after which start they must be."""

_log = logging.getLogger(__name__)


class DirectoryUnavailable(ErisError):
    """The directory cannot be reached or cannot answer now; it may later."""


class Attention:
    """The clock by which a hosted directory measures leases: time in which it could have listened.

    Of each stretch between two looks, ``most`` seconds count at most. The directory looks at its
    clock with every request, and the node that hosts it is one that asks, ``most`` seconds after
    its last answer at the latest. A longer stretch was none of silence: the host itself was
    stopped, suspended or starved, and what its members said in the meantime waits to be read.

    >>> times = iter([0.0, 1.0, 100.0, 100.5])
    >>> clock = Attention(2.0, lambda: next(times))
    >>> clock(), clock(), clock()
    (1.0, 3.0, 3.5)
    """

    def __init__(self, most: float, clock: Callable[[], float] | None = None) -> None:
        self._most, self._clock = most, clock or time.monotonic
        self._seconds, self._looked = 0.0, self._clock()

    def __call__(self) -> float:
        """The seconds so far."""
        now = self._clock()
        self._seconds += min(now - self._looked, self._most)
        self._looked = now
        return self._seconds


class DirectoryService:
    """Offers a directory to whoever has a certificate; ``clock`` measures leases.

    ``check`` refuses keys that are not the member's: others would refuse them too, and leave seats
    empty that somebody else could have had.
    """

    def __init__(
        self,
        directory: Directory,
        ledger: Ledger,
        clock: Callable[[], float],
        *,
        check: Callable[[KeyStatement], None] | None = None,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.directory, self.ledger, self._check = directory, ledger, check
        self._clock, self._wall_clock = clock, wall_clock
        self._stored = -1  # the last revision on disk
        self._saving: asyncio.Task[None] | None = None
        self._writable = True

    def handler(self) -> grpc.GenericRpcHandler:
        """The service, for a server of :mod:`grpc.aio`."""
        methods = {
            "Join": self._method(wire.JoinRequest, self._join),
            "Renew": self._method(wire.RenewRequest, self._renew),
            "Leave": self._method(wire.LeaveRequest, self._leave),
            "Describe": self._method(wire.DescribeRequest, self._describe, saves=False),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    # -- methods ------------------------------------------------------------------------------

    def _join(self, caller: tuple[str, str], request: wire.JoinRequest) -> wire.Joined:
        name, fingerprint = caller
        joined = self.directory.join(
            self._clock(),
            name=name,
            fingerprint=fingerprint,
            address=request.address,
            charter=request.charter,
            client=request.client,
            aggregator=request.aggregator,
            max_share=request.max_share,
            samples=request.samples,
            keys=self._checked(keys_of(request, name)),
            mark=mark_of(request),
        )
        return joined_to_wire(joined, self._wall_clock())

    def _renew(self, caller: tuple[str, str], request: wire.RenewRequest) -> wire.Standing:
        incarnation = _joined_before(request.incarnation)
        standing = self.directory.renew(
            self._clock(),
            *caller,
            round=request.round,
            incarnation=incarnation,
            number=request.number,
            keys=self._checked(keys_of(request, caller[0])),
            mark=mark_of(request),
        )
        return standing_to_wire(standing, self._wall_clock(), request.knows)

    def _checked(self, keys: KeyStatement | None) -> KeyStatement | None:
        if keys is not None and self._check is not None:
            try:
                self._check(keys)
            except RefusedKeys as refused:
                raise Refused(str(refused)) from refused
        return keys

    def _leave(self, caller: tuple[str, str], request: wire.LeaveRequest) -> wire.Left:
        incarnation = _joined_before(request.incarnation)
        published = request.published if request.HasField("published") else None
        self.directory.leave(
            self._clock(),
            *caller,
            incarnation=incarnation,
            published=published,
            mark=mark_of(request),
        )
        return wire.Left(time=self._wall_clock())

    def _describe(self, caller: tuple[str, str], request: wire.DescribeRequest) -> wire.Description:
        description = self.directory.describe(self._clock())
        return description_to_wire(description, self._wall_clock())

    # -- answering ----------------------------------------------------------------------------

    def _method(
        self,
        kind: type[Request],
        act: Callable[[tuple[str, str], Request], Message],
        *,
        saves: bool = True,
    ) -> grpc.RpcMethodHandler[bytes, bytes]:
        async def answer(data: bytes, context: Context) -> bytes:
            told: tuple[tuple[str, str], ...] = ()
            try:
                caller = peer_identity(context)
                if len(data) > LARGEST_REQUEST:
                    raise Refused(f"a request has {len(data)} bytes; at most {LARGEST_REQUEST}")
                try:
                    decided = act(caller, kind.FromString(data))
                finally:
                    if saves:
                        await self._save()  # a refusal may be a decision, too
                return decided.SerializeToString()
            except DecodeError:
                code, reason = grpc.StatusCode.INVALID_ARGUMENT, f"no {kind.DESCRIPTOR.name}"
            except Refused as refused:
                code = CODES.get(type(refused), grpc.StatusCode.FAILED_PRECONDITION)
                reason = str(refused)
                if isinstance(refused, OldKeys):
                    told = ((NEWEST_START, str(refused.newest)),)
            except (DirectoryUnavailable, NotYet) as unavailable:
                code, reason = grpc.StatusCode.UNAVAILABLE, str(unavailable)
            except ErisError as unknown:
                code, reason = grpc.StatusCode.UNAUTHENTICATED, str(unknown)
            return await context.abort(code, reason[:LONGEST_REASON], told)

        return grpc.unary_unary_rpc_method_handler(answer)

    async def _save(self) -> None:
        """Wait until all that has been decided is on disk; who waits at once shares one write."""
        wanted = self.directory.revision
        while self._stored < wanted:
            if self._saving is None or self._saving.done():
                self._saving = asyncio.create_task(self._write())
                self._saving.add_done_callback(_seen)
            # Shielded: a caller that hangs up does not end a write that others wait for.
            await asyncio.shield(self._saving)

    async def _write(self) -> None:
        revision, state = self.directory.revision, self.directory.state()
        try:
            await asyncio.to_thread(self.ledger.save, state)
        except ErisError as error:
            if self._writable:
                _log.error("%s", error)
            self._writable = False
            # Paths and the like are for the log of this node, not for its peers.
            raise DirectoryUnavailable("cannot write its ledger; its log says why") from error
        self._stored, self._writable = revision, True


class DirectoryClient:
    """A member's line to the directory at an address, over a channel that proves who it is.

    What it answers is noted in the ``memory`` before anybody acts on it.
    """

    def __init__(
        self,
        channel: grpc.aio.Channel,
        address: str,
        memory: Memory | None = None,
        *,
        timeout: float = TIMEOUT,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.address = address
        self.clock_offset: float | None = None
        """Seconds by which the directory's clock is ahead of this one; None before an answer."""
        self._channel, self._timeout, self._wall_clock = channel, timeout, wall_clock
        self._memory, self._incarnation, self._renewals = memory, 0, 0
        self._seatings: dict[int, Seating] = {}  # by epoch, as told in this start

    async def join(
        self,
        *,
        address: str,
        charter: str,
        client: bool,
        aggregator: bool,
        max_share: float,
        samples: int = 0,
        keys: KeyStatement | None = None,
    ) -> Joined:
        """Become a member that listens at ``address``, or one again."""
        request = wire.JoinRequest(
            address=address,
            charter=charter,
            client=client,
            aggregator=aggregator,
            max_share=max_share,
            samples=samples,
            keys=keys_to_wire(keys),
            mark=self._mark(),
        )
        joined = await self._call("Join", request, wire.Joined, joined_from_wire)
        self._incarnation = joined.incarnation
        await self._note(joined.standing)
        return joined

    async def renew(self, round: int, keys: KeyStatement | None = None) -> Standing:
        """Keep the lease, having reached a round; with new ``keys``, state them."""
        self._renewals += 1
        request = wire.RenewRequest(
            round=round,
            incarnation=self._incarnation,
            number=self._renewals,
            keys=keys_to_wire(keys),
            knows=max(self._seatings, default=0),
            mark=self._mark(),
        )
        standing = await self._call(
            "Renew", request, wire.Standing, lambda told: standing_from_wire(told, self._seatings)
        )
        await self._note(standing)
        return standing

    async def leave(self, published: int | None = None) -> None:
        """End the lease, and give back what was permitted beyond the last round published in."""
        request = wire.LeaveRequest(
            incarnation=self._incarnation, published=published, mark=self._mark()
        )
        await self._call("Leave", request, wire.Left, lambda left: None)

    async def describe(self) -> Description:
        """What the directory knows, for people; not only members may ask."""
        request = wire.DescribeRequest()
        return await self._call("Describe", request, wire.Description, description_from_wire)

    def _mark(self) -> wire.Mark | None:
        return mark_to_wire(self._memory.mark if self._memory is not None else None)

    async def _note(self, standing: Standing) -> None:
        """Before the federation has begun there is nothing to act on, nor a run to belong to."""
        views = (scheduled.view for scheduled in standing.views)
        self._seatings = {view.epoch: view.seating for view in views if view.seating is not None}
        if self._memory is not None and standing.views:
            try:
                await asyncio.to_thread(self._memory.keep, standing.mark)
            except ErisError as failed:
                raise DirectoryUnavailable(str(failed)) from failed

    async def _call(
        self, method: str, request: Message, kind: type[Answer], read: Callable[[Answer], Result]
    ) -> Result:
        """The answer as it is read; its time is compared with halfway between question and it."""
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]
        call = self._channel.unary_unary(f"/{SERVICE}/{method}")
        asked = self._wall_clock()
        try:
            data = await call(request.SerializeToString(), timeout=self._timeout)
            answer, middle = kind.FromString(data), (asked + self._wall_clock()) / 2
            told: Any = answer.standing if isinstance(answer, wire.Joined) else answer
            self.clock_offset = told.time - middle
            return read(answer)
        except grpc.aio.AioRpcError as error:
            raise self._explained(error) from error
        except DecodeError as error:
            raise ErisError(f"the answer of the directory at {self.address} is none") from error
        except ErisError as error:
            where = f"the answer of the directory at {self.address}"
            raise ErisError(f"{where} makes no sense: {error}") from error

    def _explained(self, error: grpc.aio.AioRpcError) -> ErisError:
        code, reason = error.code(), error.details() or error.code().name
        if code in REFUSALS:
            return REFUSALS[code](reason)
        if code == grpc.StatusCode.OUT_OF_RANGE:
            trailer = {key: str(value) for key, value in error.trailing_metadata() or ()}
            newest = trailer.get(NEWEST_START, "")
            return OldKeys(reason, int(newest)) if newest.isdigit() else Refused(reason)
        if code == grpc.StatusCode.UNIMPLEMENTED:
            where = f"the node at {self.address} hosts no directory"
            return ErisError(f"{where}; give the address of the one that does")
        if code == grpc.StatusCode.DEADLINE_EXCEEDED:
            reason = f"no answer within {self._timeout:g} s"
        return DirectoryUnavailable(f"directory at {self.address} cannot be reached: {reason}")


def _seen(task: asyncio.Task[None]) -> None:
    """Whoever waited for a write knows how it ended; perhaps nobody waits any more."""
    if not task.cancelled():
        task.exception()


def _joined_before(incarnation: int) -> int:
    if not incarnation:  # it has not joined since it started
        raise NotAMember
    return incarnation
