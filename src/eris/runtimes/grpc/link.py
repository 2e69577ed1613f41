"""The sending side of one peer: a stream that is opened again for as long as the peer is known."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

import grpc
import grpc.aio

from eris.core.errors import InvalidSetting
from eris.runtimes.grpc.addresses import endpoint
from eris.runtimes.grpc.outbox import Outbox

DELIVER = "/eris.v1.Peer/Deliver"
ADMITTED = "eris-admitted"
"""The key of the initial metadata by which a peer says that it knows who calls."""

Call = grpc.aio.StreamUnaryCall[bytes, bytes]
ChannelOptions = list[tuple[str, int | str]]
KEEPALIVE: ChannelOptions = [
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
]
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TransportLimits:
    """What a peer may cost at most, and how patient a node is with one.

    ``message_bytes`` is the largest message sent or received. ``queue_bytes`` bounds what
    waits for a peer; ``result_bytes`` bounds the urgent messages apart from it, which are the same
    objects in all peers' queues. After ``stale_after`` seconds without a connection what waits
    is thrown away: it is outdated, and the peer will catch up. ``connect_backoff`` is the shortest
    and the longest pause between two attempts, ``connect_timeout`` what an attempt may take.

    On the receiving side a peer's one stream holds at most a message or two and ``window_bytes``,
    the HTTP/2 window, which also bounds its speed to a window a round trip.
    """

    message_bytes: int = 16 << 20
    queue_bytes: int = 8 << 20
    result_bytes: int = 8 << 20
    window_bytes: int = 4 << 20
    stale_after: float = 30.0
    connect_backoff: tuple[float, float] = (0.1, 5.0)
    connect_timeout: float = 10.0

    def __post_init__(self) -> None:
        for name in ("message_bytes", "queue_bytes", "result_bytes", "window_bytes"):
            most = 1 << 62 if name in ("queue_bytes", "result_bytes") else (1 << 31) - 1
            if not 1 <= getattr(self, name) <= most:
                raise InvalidSetting(name, getattr(self, name), f"1 to {most} bytes")
        for name in ("stale_after", "connect_timeout"):
            if not getattr(self, name) > 0:
                raise InvalidSetting(name, getattr(self, name), "a positive number of seconds")
        shortest, longest = self.connect_backoff
        if not 0 < shortest <= longest:
            expected = "two positive numbers of seconds, the shortest pause first"
            raise InvalidSetting("connect_backoff", self.connect_backoff, expected)

    def channel_options(self, peer: str) -> ChannelOptions:
        """For a channel to a peer, whose certificate must bear its name."""
        return [
            *self._sizes(),
            *KEEPALIVE,
            ("grpc.ssl_target_name_override", peer),
            ("grpc.use_local_subchannel_pool", 1),
            # An address is where the peer is: no proxy of the environment in between.
            ("grpc.enable_http_proxy", 0),
            # The outbox is the only buffer; gRPC need keep nothing to send it again.
            ("grpc.enable_retries", 0),
        ]

    def server_options(self) -> ChannelOptions:
        """For the server: keepalive that suits the channels', and few streams a connection."""
        return [
            *self._sizes(),
            *KEEPALIVE,
            ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
            ("grpc.max_concurrent_streams", 16),
            ("grpc.so_reuseport", 0),
            # gRPC's own estimate of the window follows delays, so a slow peer could drive it up.
            ("grpc.http2.bdp_probe", 0),
            ("grpc.http2.lookahead_bytes", self.window_bytes),
        ]

    def _sizes(self) -> ChannelOptions:
        return [
            ("grpc.max_receive_message_length", self.message_bytes),
            ("grpc.max_send_message_length", self.message_bytes),
        ]


@dataclass
class PeerCounters:
    """What passed between this node and a peer since the start, and how things stand.

    ``refused`` counts messages that the full queue did not take, ``dropped`` those it took and
    then lost: outdated, or under way when a stream broke.
    """

    sent_messages: int = 0
    sent_bytes: int = 0
    received_messages: int = 0
    received_bytes: int = 0
    refused: int = 0
    dropped: int = 0
    queued_bytes: int = 0
    connected: bool = False


@dataclass(frozen=True)
class Dialling:
    """What the links of a node share."""

    credentials: grpc.ChannelCredentials
    limits: TransportLimits
    on_state: Callable[[str, bool, str], None]
    on_room: Callable[[], None]


class Link:
    """Sends one peer's outbox over one stream after another, in order."""

    def __init__(self, peer: str, dialling: Dialling, counters: PeerCounters) -> None:
        self.peer, self.address = peer, ""
        self.outbox = Outbox(dialling.limits.queue_bytes, dialling.limits.result_bytes)
        self.tasks: set[asyncio.Task[None]] = set()
        self._dialling, self._counters = dialling, counters
        self._stir, self._nudged = asyncio.Event(), asyncio.Event()
        self._known: tuple[bool, str] | None = None
        self._down_since = asyncio.get_running_loop().time()

    def dial(self, address: str) -> None:
        """Send to this address from now on; what waits goes there, too."""
        if address == self.address:
            return
        self.address = address
        task = asyncio.create_task(self._run(self.hang_up()), name=f"link to {self.peer}")
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def send(self, data: bytes, urgent: bool) -> bool:
        """Queue a message; False if there is no room."""
        if not self.outbox.put(data, urgent=urgent):
            self._counters.refused += 1
            return False
        self._stir.set()
        return True

    def nudge(self) -> None:
        """The peer has been heard of: do not wait for the next attempt."""
        self._nudged.set()

    def finish(self) -> None:
        """End once the outbox is empty and received; at once if the peer cannot be reached."""
        self.outbox.close()
        self._stir.set()
        if not self._counters.connected:
            self.hang_up()

    def hang_up(self) -> set[asyncio.Task[None]]:
        """Break off what is under way; gives the tasks that are then about to end."""
        for task in self.tasks:
            task.cancel()
        return set(self.tasks)

    async def _run(self, before: set[asyncio.Task[None]]) -> None:
        if before:
            await asyncio.wait(before)
        shortest, longest = self._dialling.limits.connect_backoff
        pause, loop = shortest, asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                why = await self._stream()
            except Exception as error:  # whatever gRPC comes up with, the peer is tried again
                _log.exception("the link to %s failed", self.peer)
                why = repr(error)
            finally:
                self._note_down()
            if self.outbox.closed:
                return
            self._tell(False, why)
            self._throw_away_what_is_stale()
            if loop.time() - began > pause:
                pause = shortest
            await self._rest(pause)
            pause = min(2 * pause, longest)

    async def _stream(self) -> str:
        """One stream from its opening to its end; says why it ended."""
        try:
            endpoint(self.address)
        except InvalidSetting as error:
            return str(error)
        limits = self._dialling.limits
        # Without "dns:" a host called "unix" would be taken for a scheme.
        async with grpc.aio.secure_channel(
            f"dns:///{self.address}",
            self._dialling.credentials,
            options=limits.channel_options(self.peer),
        ) as channel:
            call: Call = channel.stream_unary(DELIVER)()
            call.add_done_callback(lambda _: self._stir.set())
            try:
                async with asyncio.timeout(limits.connect_timeout):
                    answer = await call.initial_metadata()
                if any(key == ADMITTED for key, _ in answer):
                    self._counters.connected = True
                    self._tell(True, f"connected to {self.address}")
                    await self._pump(call)
            except TimeoutError:
                return f"no answer from {self.address} within {limits.connect_timeout:g} s"
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                pass  # the call's status says more
            return explained(self.peer, self.address, await call.code(), await call.details())

    async def _pump(self, call: Call) -> None:
        while True:
            self._stir.clear()
            if call.done():
                return
            data = self.outbox.get()
            if data is not None:
                await self._write(call, data)
            elif self.outbox.closed:
                await call.done_writing()
                await call
                return
            else:
                await self._stir.wait()

    async def _write(self, call: Call, data: bytes) -> None:
        try:
            await call.write(data)
        except BaseException:
            # Not sent again: if it is the message that broke the stream, it would break the next.
            self._counters.dropped += 1
            raise
        else:
            self._counters.sent_messages += 1
            self._counters.sent_bytes += len(data)
        finally:
            if self.outbox.sent():
                self._dialling.on_room()

    def _note_down(self) -> None:
        if self._counters.connected:
            self._counters.connected = False
            self._down_since = asyncio.get_running_loop().time()

    def _throw_away_what_is_stale(self) -> None:
        down_for = asyncio.get_running_loop().time() - self._down_since
        if down_for >= self._dialling.limits.stale_after and self.outbox.held:
            self._counters.dropped += self.outbox.clear()
            self._dialling.on_room()

    async def _rest(self, seconds: float) -> None:
        self._nudged.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._nudged.wait()
        except TimeoutError:
            pass

    def _tell(self, up: bool, why: str) -> None:
        if self._known != (up, why):
            self._known = up, why
            try:
                self._dialling.on_state(self.peer, up, why)
            except Exception:
                _log.exception("the state of the link to %s could not be told", self.peer)


def explained(peer: str, address: str, code: grpc.StatusCode, details: str | None) -> str:
    """Why a stream ended, so that a system administrator can act on it.

    >>> refused = "connect to ipv4:10.0.0.7:7000: Connection refused"
    >>> explained("north", "10.0.0.7:7000", grpc.StatusCode.UNAVAILABLE, refused)
    'nothing listens at 10.0.0.7:7000 (connection refused)'
    """
    said = "".join(c if c.isprintable() else " " for c in details or "")[:300]
    if code is grpc.StatusCode.OK:
        return f"{peer} at {address} closed the stream"
    if code is not grpc.StatusCode.UNAVAILABLE:
        return f"{peer} at {address} refused: {said} ({code.name.lower()})"
    if "Connection refused" in said:
        return f"nothing listens at {address} (connection refused)"
    if "Hostname Verification" in said:
        return f"the node at {address} is not {peer!r}: its certificate bears another name"
    at_first, _, cause = said.rpartition("last error: ")
    if "handshake" in cause.lower():
        return f"the node at {address} has no valid certificate of this federation: {cause}"
    if at_first and "Socket closed" in cause:
        return f"the node at {address} hung up; perhaps it refuses this node's certificate"
    return f"the connection to {address} failed: {cause}"
