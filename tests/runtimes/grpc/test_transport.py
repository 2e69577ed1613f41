"""Messages between members over real sockets with TLS: order, bounds, faults, refusals."""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import grpc
import pytest

from eris.core.errors import ErisError, InvalidSetting
from eris.runtimes.grpc.tls import Identity, create_authority, issue, peer_identity
from eris.runtimes.grpc.transport import Transport, TransportLimits

QUICK = TransportLimits(connect_backoff=(0.01, 0.05))
KIB = 1 << 10
Context = grpc.aio.ServicerContext[Any, Any]


@pytest.fixture(scope="module")
def identities(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Identity]:
    folder = tmp_path_factory.mktemp("ca")
    create_authority(folder / "ours", "test")
    create_authority(folder / "theirs", "other")
    known = {name: issue(folder / "ours", name).identity for name in ("anna", "ben", "carl")}
    return known | {"stranger": issue(folder / "theirs", "anna").identity}


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


class Post:
    """A transport, what reached it and what it told; whoever waits for a change is woken."""

    def __init__(
        self,
        identity: Identity,
        listen: str = "127.0.0.1:0",
        limits: TransportLimits = QUICK,
        identify: Callable[[Context], str | None] = lambda context: peer_identity(context)[0],
        jitter: Callable[[float], float] = lambda seconds: seconds,
    ) -> None:
        self.got: list[tuple[str, bytes]] = []
        self.states: list[tuple[str, bool, str]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.bad: dict[bytes, Exception] = {}
        self.address = ""
        self._changed = asyncio.Event()
        self.transport = Transport(
            identity.name,
            listen,
            identity.server_credentials(),
            identity.channel_credentials(),
            receive=self._receive,
            identify=identify,
            limits=limits,
            on_state=self._on_state,
            jitter=jitter,
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


def test_a_thousand_messages_each_way_arrive_whole_and_in_order(
    identities: dict[str, Identity],
) -> None:
    async def scene() -> None:
        limits = TransportLimits(queue_bytes=256 * KIB)
        async with (
            Post(identities["anna"], limits=limits) as anna,
            Post(identities["ben"], limits=limits) as ben,
        ):
            anna.transport.connect("ben", ben.address)
            ben.transport.connect("anna", anna.address)
            to_ben, to_anna = varied(1000, seed=1), varied(1000, seed=2)
            await asyncio.gather(anna.send_all("ben", to_ben), ben.send_all("anna", to_anna))
            assert await ben.received(1000) == to_ben
            assert await anna.received(1000) == to_anna
            assert {peer for peer, _ in ben.got} == {"anna"}
            size = sum(map(len, to_ben))
            sent, taken = anna.transport.counters["ben"], ben.transport.counters["anna"]
            assert (sent.sent_messages, sent.sent_bytes) == (1000, size)
            assert (taken.received_messages, taken.received_bytes) == (1000, size)
            assert (sent.dropped, sent.queued_bytes, sent.connected) == (0, 0, True)

    run(scene())


def test_a_peer_that_starts_later_gets_what_waits_with_the_urgent_first(
    identities: dict[str, Identity],
) -> None:
    async def scene() -> None:
        address = free_address()
        async with Post(identities["anna"]) as anna:
            anna.transport.connect("ben", address)
            for data in (b"1", b"2"):
                assert anna.transport.send("ben", data)
            await anna.told(f"nothing listens at {address}")
            for data in (b"a", b"b"):
                assert anna.transport.send("ben", data, urgent=True)
            async with Post(identities["ben"], listen=address) as ben:
                assert await ben.received(4) == [b"a", b"b", b"1", b"2"]
            assert not anna.transport.send("nobody", b"")

    run(scene())


def test_a_slow_receiver_holds_its_sender_at_a_bound_and_nobody_else(
    identities: dict[str, Identity],
) -> None:
    async def scene() -> None:
        limits = TransportLimits(queue_bytes=1024 * KIB, window_bytes=1024 * KIB)
        async with (
            Post(identities["anna"], limits=limits) as anna,
            Post(identities["ben"], limits=limits) as ben,
            Post(identities["carl"]) as carl,
        ):
            ben.gate.clear()
            for peer, post in (("ben", ben), ("carl", carl)):
                anna.transport.connect(peer, post.address)
            piece, accepted = bytes(128 * KIB), 0
            for turn in range(300):
                while anna.transport.send("ben", piece):
                    accepted += 1
                assert anna.transport.counters["ben"].queued_bytes <= limits.queue_bytes
                assert anna.transport.room("ben") < len(piece)
                assert anna.transport.send("carl", piece)
                await carl.received(turn + 1)
            # What is beyond the two bounds: messages under way, the system's socket buffers.
            assert accepted * len(piece) < limits.queue_bytes + 2 * limits.window_bytes
            assert ben.transport.counters["anna"].received_messages == 1
            ben.gate.set()
            await ben.received(accepted)
            assert anna.transport.counters["ben"].dropped == 0

    run(scene())


def test_a_peer_that_restarts_at_its_address_is_found_again(
    identities: dict[str, Identity],
) -> None:
    async def scene() -> None:
        address = free_address()
        async with Post(identities["anna"]) as anna:
            anna.transport.connect("ben", address)
            for life in range(3):
                async with Post(identities["ben"], listen=address) as ben:
                    anna.transport.send("ben", bytes([life]))
                    assert await ben.received(1) == [bytes([life])]
                await anna.until(lambda: not anna.states[-1][1])
            ups = [up for _, up, _ in anna.states]
            assert ups.count(True) == 3

    run(scene())


PEER = """
import asyncio, sys
from pathlib import Path
from eris.runtimes.grpc.tls import Identity, peer_identity
from eris.runtimes.grpc.transport import Transport

async def main(folder, listen):
    me = Identity(folder / "ben.pem", folder / "ben.key", folder / "ca.pem")
    async def receive(peer, data):
        transport.send(peer, data)
    transport = Transport("ben", listen, me.server_credentials(), me.channel_credentials(),
        receive=receive, identify=lambda context: peer_identity(context)[0])
    await transport.start()
    transport.connect("anna", sys.argv[3])
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await transport.stop(5)

asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
"""


def test_a_process_is_killed_and_its_successor_stops_without_a_word(
    identities: dict[str, Identity],
) -> None:
    async def scene() -> None:
        address = free_address()
        async with Post(identities["anna"]) as anna:
            anna.transport.connect("ben", address)
            folder = str(identities["ben"].key.parent)
            command = [sys.executable, "-c", PEER, folder, address, anna.address]

            def begin() -> subprocess.Popen[bytes]:
                return subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)

            with begin() as first:
                anna.transport.send("ben", b"echo")
                await anna.received(1)
                first.kill()
                await anna.until(lambda: not anna.states[-1][1])
            with begin() as second:
                anna.transport.send("ben", b"again")
                assert await anna.received(2) == [b"echo", b"again"]
                _, said = await asyncio.to_thread(second.communicate, b"")
                assert (said, second.returncode) == (b"", 0)

    run(scene())


def test_an_oversized_message_ends_a_stream_and_not_a_node(
    identities: dict[str, Identity],
) -> None:
    async def scene() -> None:
        small = TransportLimits(message_bytes=KIB, connect_backoff=(0.01, 0.05))
        async with Post(identities["anna"]) as anna, Post(identities["ben"], limits=small) as ben:
            anna.transport.connect("ben", ben.address)
            anna.transport.send("ben", bytes(KIB))
            await ben.received(1)
            anna.transport.send("ben", bytes(KIB + 1))
            await anna.told("larger than max")
            anna.transport.send("ben", b"next")
            assert await ben.received(2) == [bytes(KIB), b"next"]
            with pytest.raises(InvalidSetting, match=r"message to anna is '1025 bytes'"):
                ben.transport.send("anna", bytes(KIB + 1))

    run(scene())


@pytest.mark.parametrize("fault", [ErisError("no message"), ValueError("a bug")])
def test_a_message_that_cannot_be_handled_is_told_to_its_sender(
    identities: dict[str, Identity], fault: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        async with Post(identities["anna"]) as anna, Post(identities["ben"]) as ben:
            ben.bad[b"bad"] = fault
            anna.transport.connect("ben", ben.address)
            anna.transport.send("ben", b"bad")
            await anna.told("no message" if isinstance(fault, ErisError) else "failed on a message")
            anna.transport.send("ben", b"good")
            assert await ben.received(1) == [b"good"]

    run(scene())
    logged = [record.exc_info and record.exc_info[1] for record in complaints(caplog)]
    assert logged == ([] if isinstance(fault, ErisError) else [fault])
    caplog.clear()


def nobody(context: Context) -> None:
    return None


def barred(context: Context) -> str:
    raise ErisError(f"{peer_identity(context)[0]} has left")


@pytest.mark.parametrize(
    ("caller", "dialled", "identify", "why"),
    [
        ("anna", "ben", nobody, "names no member"),
        ("anna", "ben", barred, "anna has left"),
        ("anna", "carl", None, "is not 'carl'"),
        ("stranger", "ben", None, "no valid certificate of this federation"),
        ("ben", "ben", None, "called 'ben', too"),
    ],
)
def test_who_is_not_a_member_gets_nothing_through_and_is_told_why(
    identities: dict[str, Identity],
    caller: str,
    dialled: str,
    identify: Callable[[Context], str | None] | None,
    why: str,
) -> None:
    async def scene() -> None:
        identify_ = identify or (lambda context: peer_identity(context)[0])
        async with (
            Post(identities[caller]) as anna,
            Post(identities["ben"], identify=identify_) as ben,
        ):
            anna.transport.connect(dialled, ben.address)
            anna.transport.send(dialled, b"secret")
            await anna.told(why)
            assert not any(up for _, up, _ in anna.states)
            assert ben.transport.counters == {}
            assert anna.transport.counters[dialled].sent_messages == 0

    run(scene())


def test_a_stranger_is_refused_by_the_server_too(identities: dict[str, Identity]) -> None:
    """It trusts the federation's authority, but has a certificate of another one."""
    theirs, ours = identities["stranger"], identities["ben"]
    forged = Identity(theirs.certificate, theirs.key, ours.authority)

    async def scene() -> None:
        async with Post(forged) as stranger, Post(ours) as ben:
            stranger.transport.connect("ben", ben.address)
            stranger.transport.send("ben", b"secret")
            await stranger.told("perhaps it refuses this node's certificate")
            assert not any(up for _, up, _ in stranger.states)
            assert ben.transport.counters == {}

    run(scene())


def test_a_newer_stream_of_a_member_replaces_the_older(identities: dict[str, Identity]) -> None:
    async def scene() -> None:
        once = TransportLimits(connect_backoff=(3600.0, 3600.0))
        async with Post(identities["ben"]) as ben, Post(identities["anna"], limits=once) as first:
            ben.gate.clear()
            first.transport.connect("ben", ben.address)
            first.transport.send("ben", b"old")
            await first.told("connected")
            async with Post(identities["anna"]) as second:
                second.transport.connect("ben", ben.address)
                assert "newer stream" in await first.told("refused")
                ben.gate.set()
                second.transport.send("ben", b"new")
                await ben.until(lambda: ("anna", b"new") in ben.got)
                assert ben.got.count(("anna", b"old")) <= 1

    run(scene())


def test_an_address_that_cannot_be_listened_on_is_named_with_its_cause(
    identities: dict[str, Identity],
) -> None:
    async def scene() -> None:
        async with Post(identities["ben"]) as ben:
            for listen, why in (
                (ben.address, "the port is in use"),
                ("192.0.2.1:7000", "no address of this machine"),
                ("no-such-host.invalid:7000", "no address for 'no-such-host.invalid'"),
                ("7000", "expected host:port"),
            ):
                with pytest.raises(ErisError, match=why) as refusal:
                    await Post(identities["anna"], listen=listen).transport.start()
                assert listen in str(refusal.value)

    run(scene())


def test_a_peer_that_moves_gets_the_rest_at_its_new_address(
    identities: dict[str, Identity],
) -> None:
    async def scene() -> None:
        async with (
            Post(identities["anna"]) as anna,
            Post(identities["ben"]) as old,
            Post(identities["ben"]) as new,
        ):
            anna.transport.connect("ben", old.address)
            anna.transport.connect("ben", old.address)
            anna.transport.send("ben", b"1")
            await old.received(1)
            anna.transport.connect("ben", "unix:/run/other.sock")
            await anna.told("'unix:/run/other.sock'; expected host:port")
            anna.transport.connect("ben", new.address)
            anna.transport.send("ben", b"2")
            assert await new.received(1) == [b"2"]
            assert len(old.got) == 1
            assert old.transport.counters["anna"].received_messages == 1
            assert [up for _, up, _ in anna.states] == [True, False, True]

    run(scene())


def test_what_waits_too_long_for_an_unreachable_peer_is_thrown_away(
    identities: dict[str, Identity],
) -> None:
    async def scene() -> None:
        limits = TransportLimits(
            queue_bytes=10 * KIB, stale_after=0.05, connect_backoff=(0.01, 0.02)
        )
        async with Post(identities["anna"], limits=limits) as anna:
            anna.transport.connect("ben", free_address())
            while anna.transport.send("ben", bytes(KIB)):
                pass
            assert anna.transport.room("ben") < KIB
            await anna.transport.drained()
            assert anna.transport.room("ben") > 9 * KIB
            counters = anna.transport.counters["ben"]
            assert (counters.dropped, counters.refused, counters.queued_bytes) == (9, 1, 0)

    run(scene())


def test_a_host_that_never_answers_is_given_up_and_tried_again(
    identities: dict[str, Identity],
) -> None:
    async def scene() -> None:
        limits = TransportLimits(connect_timeout=0.05, connect_backoff=(0.01, 0.01))
        with socket.create_server(("127.0.0.1", 0)) as silent:
            async with Post(identities["anna"], limits=limits) as anna:
                address = f"127.0.0.1:{silent.getsockname()[1]}"
                anna.transport.connect("ben", address)
                await anna.told(f"no answer from {address} within 0.05 s")
                for _ in range(2):
                    connection, _ = await asyncio.to_thread(silent.accept)
                    connection.close()

    run(scene())


def test_an_outage_is_told_once_and_attempts_grow_rarer(identities: dict[str, Identity]) -> None:
    async def scene() -> None:
        pauses: list[float] = []
        enough = asyncio.Event()

        def noted(seconds: float) -> float:
            pauses.append(seconds)
            if len(pauses) == 8:
                enough.set()
            return 0.0

        async with Post(identities["anna"], jitter=noted, limits=TransportLimits()) as anna:
            address = free_address()
            anna.transport.connect("ben", address)
            await enough.wait()
            assert pauses[:8] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
            assert anna.states == [
                ("ben", False, f"nothing listens at {address} (connection refused)")
            ]

    run(scene())


def test_a_peer_that_is_heard_of_is_dialled_at_once(identities: dict[str, Identity]) -> None:
    async def scene() -> None:
        patient = TransportLimits(connect_backoff=(3600.0, 3600.0))
        address = free_address()
        async with Post(identities["anna"], limits=patient) as anna:
            anna.transport.connect("ben", address)
            anna.transport.send("ben", b"waiting")
            await anna.told("nothing listens")
            async with Post(identities["ben"], listen=address) as ben:
                ben.transport.connect("anna", anna.address)
                assert await ben.received(1) == [b"waiting"]

    run(scene())


def test_to_stop_delivers_what_was_accepted_and_leaves_nothing_running(
    identities: dict[str, Identity],
) -> None:
    async def scene() -> None:
        patient = TransportLimits(connect_backoff=(3600.0, 3600.0))
        async with Post(identities["ben"]) as ben, Post(identities["carl"]) as carl:
            anna = Post(identities["anna"], limits=patient)
            await anna.__aenter__()
            anna.transport.connect("ben", ben.address)
            anna.transport.connect("carl", free_address())
            ben.transport.connect("anna", anna.address)
            carl.transport.connect("anna", anna.address)
            anna.gate.clear()  # ben and carl send to someone who reads no more
            await anna.told("connected")
            await anna.told("nothing listens")
            for _ in range(40):
                assert anna.transport.send("ben", bytes(100 * KIB))
                assert ben.transport.send("anna", bytes(100 * KIB))
                assert anna.transport.send("carl", bytes(100 * KIB))
            await anna.transport.stop(3600)
            assert len(await ben.received(40)) == 40
            assert not anna.transport.send("ben", b"late")
            names = {task.get_name() for task in asyncio.all_tasks()}
            assert not names & {"link to ben", "link to carl", "messages of carl"}

    run(scene())


def test_to_stop_without_grace_does_not_wait_for_anybody(
    identities: dict[str, Identity],
) -> None:
    async def scene() -> None:
        async with Post(identities["ben"]) as ben:
            anna = Post(identities["anna"])
            await anna.__aenter__()
            ben.gate.clear()
            anna.transport.connect("ben", ben.address)
            await anna.told("connected")
            while anna.transport.send("ben", bytes(100 * KIB)):
                pass
            await anna.transport.stop(0)
            assert anna.transport.counters["ben"].queued_bytes > 0
            assert not ben.got

    run(scene())


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ({"message_bytes": 0}, "message_bytes is 0"),
        ({"message_bytes": 1 << 31}, "message_bytes is 2147483648"),
        ({"result_bytes": 0}, "result_bytes is 0"),
        ({"window_bytes": 1 << 31}, "window_bytes is 2147483648"),
        ({"stale_after": 0.0}, "stale_after is 0.0"),
        ({"connect_timeout": -1.0}, "connect_timeout is -1.0"),
        ({"connect_backoff": (2.0, 1.0)}, "the shortest pause first"),
    ],
)
def test_limits_that_mean_nothing_are_refused(setting: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidSetting, match=why):
        TransportLimits(**setting)
