"""Messages between members over real sockets with TLS: order, bounds, faults."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from eris.core.errors import ErisError, InvalidSetting
from eris.runtimes.grpc.link import TransportLimits
from eris.runtimes.grpc.tls import Identity
from support.posts import (
    KIB,
    Post,
    complaints,
    free_address,
    run,
    varied,
)
from support.posts import quiet as quiet  # a fixture that every test here uses


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
    transport = Transport(me, listen, receive=receive,
        identify=lambda context: peer_identity(context)[0])
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


def test_room_that_was_made_before_somebody_waits_for_it_is_not_forgotten(
    identities: dict[str, Identity],
) -> None:
    async def scene() -> None:
        soon = TransportLimits(queue_bytes=KIB, stale_after=1e-9, connect_backoff=(3600.0, 3600.0))
        async with Post(identities["anna"], limits=soon) as anna:
            transport = anna.transport
            transport.connect("ben", free_address())  # where nobody listens
            assert transport.send("ben", bytes(900))
            assert not transport.send("ben", bytes(900))
            await anna.told("nothing listens")  # what waited is gone, before somebody waits
            waiting = asyncio.ensure_future(transport.drained())
            for _ in range(3):  # as many turns of the loop as it takes to see an event
                await asyncio.sleep(0)
            assert waiting.done()
            again = asyncio.ensure_future(transport.drained())
            await asyncio.sleep(0)
            assert not again.done()  # nobody has made room since
            again.cancel()

    run(scene())
