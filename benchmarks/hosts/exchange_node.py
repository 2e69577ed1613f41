"""One member of the bare exchange: ``python -m benchmarks.hosts.exchange_node TASK``.

The traffic of a sharded round and nothing else: pieces on gRPC streams with mutual TLS, a piece of
a result to everybody as soon as all have sent theirs. No arithmetic, no protocol. A member says its
port, is told all addresses, and then runs a round for every line it reads.
"""

from __future__ import annotations

import asyncio
import json
import os
import struct
import sys
import time
from collections import Counter, deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from benchmarks.hosts.certificates import Certificates
from benchmarks.hosts.serving import served

METHOD = "/eris.benchmark.Exchange/Deliver"
WINDOW = 4
"""Pieces that an update may be ahead of its results. On links of 100 Mbit/s and 64 KiB a piece this
is what two aggregators need: without a window they take twice as long as with it."""
HEADER = struct.Struct("<BBI")
CONTRIBUTION, RESULT = 0, 1
Piece = tuple[int, int]
"""What it is, and its number in the shard."""


@dataclass(frozen=True)
class Task:
    """Which member this is, and what everybody does."""

    me: int
    members: int
    aggregators: int
    model_bytes: int
    piece_bytes: int
    address: str
    certificates: str

    @property
    def shard_bytes(self) -> int:
        """Bytes of one aggregator's shard.

        >>> task = Task(0, 3, 2, model_bytes=9, piece_bytes=2, address="", certificates="")
        >>> task.shard_bytes, task.pieces, task.size(0), task.size(2), task.to_come
        (5, 3, 2, 1, 3)
        """
        return -(-self.model_bytes // self.aggregators)

    @property
    def pieces(self) -> int:
        """How many pieces a shard has."""
        return -(-self.shard_bytes // self.piece_bytes)

    def size(self, piece: int) -> int:
        """Bytes of one piece; the last one is what is left."""
        return min(self.piece_bytes, self.shard_bytes - piece * self.piece_bytes)

    @property
    def to_come(self) -> int:
        """Pieces of results that others send to this member."""
        others = self.aggregators - (self.me < self.aggregators)
        return others * self.pieces


class Outbox:
    """What is to go to one peer: results first, then the update, but not far ahead of the others.

    Whoever sends faster than the others fills a queue that their pieces must pass, and no result
    is complete without theirs. So the update keeps to a window behind the peer's results.
    """

    def __init__(self, window: int) -> None:
        self._window = window
        self._results: deque[Piece] = deque()
        self._update: deque[Piece] = deque()
        self._credit = 0
        self._changed = asyncio.Event()

    def publish(self, piece: int) -> None:
        """Queue a result."""
        self._results.append((RESULT, piece))
        self._changed.set()

    def contribute(self, pieces: int) -> None:
        """Queue an update's shard."""
        self._update.extend((CONTRIBUTION, piece) for piece in range(pieces))
        self._credit = self._window
        self._changed.set()

    def go_on(self) -> None:
        """A result has come from the peer: the update may go on by one piece."""
        self._credit += 1
        self._changed.set()

    async def next(self) -> Piece:
        """The next piece to send, once there is one."""
        while True:
            if self._results:
                return self._results.popleft()
            if self._update and self._credit > 0:
                self._credit -= 1
                return self._update.popleft()
            self._changed.clear()
            await self._changed.wait()


class Member:
    """Sends its update, collects its shard, publishes it, and knows when a round is over."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self._block = os.urandom(task.piece_bytes)
        peers = (peer for peer in range(task.members) if peer != task.me)
        self._outboxes = {peer: Outbox(WINDOW) for peer in peers}
        self._arrived: Counter[int] = Counter()
        self._results = 0
        self._complete = asyncio.Event()

    def receive(self, message: bytes) -> None:
        """Count a piece; the last of its number makes a result."""
        kind, sender, piece = HEADER.unpack_from(message)
        if kind == RESULT:
            self._outboxes[sender].go_on()
            self._results += 1
            if self._results == self.task.to_come:
                self._complete.set()
            return
        self._arrived[piece] += 1
        if self._arrived[piece] == self.task.members - 1:
            for outbox in self._outboxes.values():
                outbox.publish(piece)

    async def send(self, peer: int, call: Any) -> None:
        """Write to one peer for ever; a write waits until the peer's window has room."""
        while True:
            kind, piece = await self._outboxes[peer].next()
            body = memoryview(self._block)[: self.task.size(piece)]
            await call.write(b"".join((HEADER.pack(kind, self.task.me, piece), body)))

    async def round(self) -> None:
        """One round of this member: until it has every result."""
        for aggregator in range(self.task.aggregators):
            if aggregator != self.task.me:
                self._outboxes[aggregator].contribute(self.task.pieces)
        if self.task.to_come:
            await self._complete.wait()

    def reset(self) -> None:
        """Forget the round that ended everywhere."""
        self._arrived.clear()
        self._results = 0
        self._complete.clear()


async def serve(member: Member, task: Task) -> tuple[grpc.aio.Server, int]:
    """Listen for the peers' streams; the server and its port."""

    async def deliver(requests: AsyncIterator[bytes], context: Any) -> bytes:
        async for message in requests:
            member.receive(message)
        return b""

    return await served(METHOD, deliver, task.address, Certificates(Path(task.certificates)))


async def dial(member: Member, task: Task, targets: list[str]) -> list[grpc.aio.Channel]:
    """Open a stream to every other member; the channels, which must be kept."""
    authority, certificate, key = Certificates(Path(task.certificates)).contents()
    credentials = grpc.ssl_channel_credentials(authority, key, certificate)
    channels, senders = [], []
    for peer, target in enumerate(targets):
        if peer != task.me:
            channel = grpc.aio.secure_channel(target, credentials)
            await channel.channel_ready()
            call: Any = channel.stream_unary(METHOD)()
            senders.append(asyncio.create_task(member.send(peer, call)))
            channels.append(channel)
    for sender in senders:
        sender.add_done_callback(_stop_on_error)
    return channels


def _stop_on_error(sender: asyncio.Task[None]) -> None:
    if not sender.cancelled() and sender.exception() is not None:
        sys.stderr.write(f"{sender.exception()}\n")
        os._exit(1)


async def main() -> None:
    task = Task(**json.loads(sys.argv[1]))
    member = Member(task)
    server, port = await serve(member, task)
    say({"port": port})
    channels = await dial(member, task, json.loads(await line()))
    say({"ready": len(channels)})
    while await line():
        started = time.monotonic()
        await member.round()
        say({"started": started, "ended": time.monotonic()})
        # Others may still be busy with this round: what they send belongs to it.
        await line()
        member.reset()
        say({"reset": True})
    await server.stop(None)


async def line() -> str:
    """The next line of our orders; empty at their end."""
    return await asyncio.to_thread(sys.stdin.readline)


def say(what: dict[str, Any]) -> None:
    """One line to whoever started us."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main())
