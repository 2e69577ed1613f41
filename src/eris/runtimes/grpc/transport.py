"""Carries messages between named members: one server, and one stream to each peer, with TLS.

Messages are bytes; what they mean is the codec's business. They arrive in the order in which they
were sent, urgent ones first; a stream that breaks loses what was under way, and the protocol
resends or catches up.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import grpc
import grpc.aio

from eris.core.errors import ErisError, InvalidSetting
from eris.protocol.view import NOBODY
from eris.runtimes.grpc.addresses import endpoint
from eris.runtimes.grpc.link import ADMITTED, Dialling, Link, PeerCounters, TransportLimits
from eris.runtimes.grpc.tls import Identity

Verdict = tuple[grpc.StatusCode, str]
RECEIPT = b""
"""The bytes of an empty ``eris.v1.Receipt``."""

_log = logging.getLogger(__name__)


class Transport:
    """A member's end of the network.

    ``receive(peer, data)`` is awaited for each message before the next is read from that peer, so
    a receiver that takes its time holds the sender, not memory. It is cancelled if the peer hangs
    up or opens a new stream. ``identify`` names the member at the other end by its certificate:
    None refuses it, an :class:`ErisError` refuses it with a reason. ``on_state(peer, up, why)`` is
    called when a link comes up, goes down or fails for another reason than before, not at each
    attempt. ``handlers`` are other services on the same port.
    """

    def __init__(
        self,
        identity: Identity,
        listen: str,
        *,
        receive: Callable[[str, bytes], Awaitable[None]],
        identify: Callable[[grpc.aio.ServicerContext[Any, Any]], str | None],
        limits: TransportLimits | None = None,
        handlers: Sequence[grpc.GenericRpcHandler] = (),
        on_state: Callable[[str, bool, str], None] = lambda peer, up, why: None,
    ) -> None:
        self.name, self.listen = identity.name, listen
        self.limits = limits or TransportLimits()
        self._server_credentials = identity.server_credentials()
        self._receive, self._identify, self._handlers = receive, identify, handlers
        self._room_made = asyncio.Event()
        self._dialling = Dialling(
            identity.channel_credentials(), self.limits, on_state, self._room_made.set
        )
        self._links: dict[str, Link] = {}
        self._counters: defaultdict[str, PeerCounters] = defaultdict(PeerCounters)
        self._incoming: dict[str, asyncio.Task[Verdict | None]] = {}
        self._server: grpc.aio.Server | None = None
        self._stopping = False

    async def start(self) -> int:
        """Listen; returns the port, which the system chooses if 0 was asked for."""
        check_free(self.listen)
        server = grpc.aio.server(options=self.limits.server_options())
        deliver: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_unary_rpc_method_handler(
            self._deliver
        )
        ours = grpc.method_handlers_generic_handler("eris.v1.Peer", {"Deliver": deliver})
        server.add_generic_rpc_handlers((ours, *self._handlers))
        try:
            port = server.add_secure_port(self.listen, self._server_credentials)
        except RuntimeError as error:
            await server.stop(None)
            raise ErisError(f"cannot listen on {self.listen}: {error}") from error
        await server.start()
        self._server = server
        return port

    def connect(self, peer: str, address: str) -> None:
        """Say where a peer is, or that it has moved. What waits for it goes to the new address.

        Addresses come from others: one that is none is told to ``on_state``, not raised.
        """
        if self._stopping:
            return
        if peer not in self._links:
            self._links[peer] = Link(peer, self._dialling, self._counters[peer])
        self._links[peer].dial(address)

    def send(self, peer: str, data: bytes, *, urgent: bool = False) -> bool:
        """Queue a message; False if the peer's queue is full or the peer is not known."""
        if len(data) > self.limits.message_bytes:
            allowed = f"at most {self.limits.message_bytes} bytes (limits.message_bytes)"
            raise InvalidSetting(f"message to {peer}", f"{len(data)} bytes", allowed)
        link = self._links.get(peer)
        return link is not None and link.send(data, urgent)

    def room(self, peer: str, *, urgent: bool = False) -> int:
        """The largest message that is sure to be queued now; 0 for a peer that is not known."""
        link = self._links.get(peer)
        return 0 if link is None else link.outbox.room(urgent=urgent)

    async def drained(self) -> None:
        """Wait until some queue is at most half full after a message has left it, or :meth:`stir`.

        Whoever was refused by :meth:`send` may wait for this and try again: a queue that refuses
        comes to it, and one that has run empty takes anything. Room that was made since the last
        wait counts, for it may be the room that was refused; so a wait may end for nothing.
        """
        await self._room_made.wait()
        self._room_made.clear()

    def stir(self) -> None:
        """There may be more to send: whoever waits in :meth:`drained` is to look again."""
        self._room_made.set()

    @property
    def counters(self) -> dict[str, PeerCounters]:
        """What passed to and from each peer ever heard of, as it stands now."""
        held = {peer: link.outbox.held for peer, link in self._links.items()}
        return {
            peer: replace(counters, queued_bytes=held.get(peer, 0))
            for peer, counters in self._counters.items()
        }

    async def stop(self, grace: float) -> None:
        """Send what waits for peers that can be reached, for ``grace`` seconds; then hang up."""
        self._stopping = True
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace
        for link in self._links.values():
            link.finish()
        sending = {task for link in self._links.values() for task in link.tasks}
        if sending:
            await asyncio.wait(sending, timeout=grace)
        for task in (*sending, *self._incoming.values()):
            task.cancel()
        await asyncio.gather(*sending, return_exceptions=True)
        if self._server is not None:
            await self._server.stop(max(0.0, deadline - loop.time()))
        self._room_made.set()

    async def _deliver(
        self, messages: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]
    ) -> bytes:
        """``Peer.Deliver``: takes in a peer's messages until it ends the stream."""
        peer = await self._admitted(context)
        taking = asyncio.create_task(
            self._take(peer, messages, self._incoming.get(peer)), name=f"messages of {peer}"
        )
        self._incoming[peer] = taking
        taking.add_done_callback(lambda task: self._ended(peer, task))
        if peer in self._links:
            self._links[peer].nudge()
        try:
            await context.send_initial_metadata(((ADMITTED, peer),))
            await asyncio.wait({taking})
        finally:
            taking.cancel()  # if the peer has hung up
        if taking.cancelled():
            why = "is stopping" if self._stopping else "got a newer stream from you"
            await context.abort(grpc.StatusCode.ABORTED, f"{self.name} {why}")
        verdict = taking.result()
        if verdict is not None:
            await context.abort(*verdict)
        return RECEIPT

    async def _admitted(self, context: grpc.aio.ServicerContext[bytes, bytes]) -> str:
        """The name of the member that calls; anybody else is told why not."""
        try:
            peer = self._identify(context)
        except ErisError as error:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, _short(error))
        if peer is None:
            why = "your certificate names no member of this federation"
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, why)
        if peer == self.name:
            why = f"this node is called {self.name!r}, too: every node needs a name of its own"
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, why)
        if self._stopping:
            await context.abort(grpc.StatusCode.ABORTED, f"{self.name} is stopping")
        return peer

    async def _take(
        self,
        peer: str,
        messages: AsyncIterator[bytes],
        before: asyncio.Task[Verdict | None] | None,
    ) -> Verdict | None:
        """Hand over message by message; says what was wrong with the last, if anything was."""
        if before is not None:
            # A peer has one stream: it was started again, or its connection broke unseen.
            before.cancel()
            await asyncio.wait({before})
        counters = self._counters[peer]
        async for data in messages:
            counters.received_messages += 1
            counters.received_bytes += len(data)
            try:
                await self._receive(peer, data)
            except ErisError as error:
                return grpc.StatusCode.INVALID_ARGUMENT, _short(error)
            except Exception:
                _log.exception("a message of %s could not be handled", peer)
                return grpc.StatusCode.INTERNAL, f"{self.name} failed on a message"
        return None

    def _ended(self, peer: str, task: asyncio.Task[Verdict | None]) -> None:
        if self._incoming.get(peer) is task:
            del self._incoming[peer]
        if not task.cancelled() and task.exception() is not None:
            _log.debug("a stream of %s ended: %r", peer, task.exception())


def check_free(listen: str) -> None:
    """Refuse an address that this machine cannot listen on, and say why.

    gRPC's own message does not name the cause.
    """
    host, port = endpoint(listen, "listen", any_port=True)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise ErisError(f"cannot listen on {listen}: no address for {host!r} ({error})") from error
    family, kind, protocol, _, where = found[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(where)
        except OSError as error:
            why = _WHY_NOT.get(error.errno or 0, str(error))
            raise ErisError(f"cannot listen on {listen}: {why}") from error


_WHY_NOT = {
    errno.EADDRINUSE: "the port is in use, by another program or by this node started twice",
    errno.EADDRNOTAVAIL: "that is no address of this machine (0.0.0.0 means all that it has)",
    errno.EACCES: "this user may not use that port (those below 1024 are reserved)",
}


def _short(error: Exception) -> str:
    return str(error)[:500]


class FullQueues:
    """The members whose queue has no room for another contribution; asked for one by one.

    ``members`` are the names by number, ``me`` is the number that needs no queue.
    """

    def __init__(self, transport: Transport, members: Sequence[str], me: int) -> None:
        self._transport, self._members, self._me = transport, members, me
        limits = transport.limits
        self._needed = min(limits.message_bytes, limits.queue_bytes // 2)

    def __contains__(self, member: object) -> bool:
        if not isinstance(member, int) or member in (NOBODY, self._me):
            return False
        return self._transport.room(self._members[member]) < self._needed
