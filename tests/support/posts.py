"""Transports over real sockets with TLS, and what reached them."""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import grpc
import pytest

from eris.runtimes.grpc.link import TransportLimits
from eris.runtimes.grpc.tls import Identity, peer_identity
from eris.runtimes.grpc.transport import Transport

QUICK = TransportLimits(connect_backoff=(0.01, 0.05))
KIB = 1 << 10
Context = grpc.aio.ServicerContext[Any, Any]


class Post:
    """A transport, what reached it and what it told; whoever waits for a change is woken."""

    def __init__(
        self,
        identity: Identity,
        listen: str = "127.0.0.1:0",
        limits: TransportLimits = QUICK,
        identify: Callable[[Context], str | None] = lambda context: peer_identity(context)[0],
    ) -> None:
        self.got: list[tuple[str, bytes]] = []
        self.states: list[tuple[str, bool, str]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.bad: dict[bytes, Exception] = {}
        self.address = ""
        self._changed = asyncio.Event()
        self.transport = Transport(
            identity,
            listen,
            receive=self._receive,
            identify=identify,
            limits=limits,
            on_state=self._on_state,
        )

    async def __aenter__(self) -> Post:
        self.address = f"127.0.0.1:{await self.transport.start()}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.transport.stop(0)

    async def _receive(self, peer: str, data: bytes) -> None:
        await self.gate.wait()
        self._changed.set()
        if data in self.bad:
            raise self.bad[data]
        self.got.append((peer, data))

    def _on_state(self, peer: str, up: bool, why: str) -> None:
        self.states.append((peer, up, why))
        self._changed.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._changed.clear()
            await self._changed.wait()

    async def received(self, count: int) -> list[bytes]:
        await self.until(lambda: len(self.got) >= count)
        return [data for _, data in self.got]

    async def told(self, why: str) -> str:
        await self.until(lambda: any(why in state[2] for state in self.states))
        return next(state[2] for state in self.states if why in state[2])

    async def send_all(self, peer: str, messages: list[bytes]) -> None:
        for data in messages:
            while not self.transport.send(peer, data):
                await self.transport.drained()


def run(scene: Coroutine[Any, Any, None]) -> None:
    """Play a scene; the limit is only there so that a fault does not hang the tests."""
    asyncio.run(asyncio.wait_for(scene, 60))


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return f"127.0.0.1:{probe.getsockname()[1]}"


def varied(count: int, seed: int) -> list[bytes]:
    draw = random.Random(seed)
    return [draw.randbytes(draw.choice([0, 1, 100, 5_000, 60_000])) for _ in range(count)]


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Neither asyncio nor gRPC has anything to complain of, in any test."""
    yield
    assert [record.getMessage() for record in complaints(caplog)] == []


def complaints(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """What was logged, but for what another test's loop left behind.

    gRPC has one poller for all loops of a process, and it stumbles over a loop that has ended.
    """
    foreign = "Exception in callback PollerCompletionQueue._handle_events"
    return [
        record
        for record in caplog.records
        if record.levelno >= logging.WARNING and not record.getMessage().startswith(foreign)
    ]
