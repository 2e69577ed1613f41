"""Who is let in, and how links come up, fail, move and end, over real sockets with TLS."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest

from eris.core.errors import ErisError, InvalidSetting
from eris.runtimes.grpc.link import Link, TransportLimits
from eris.runtimes.grpc.tls import Identity, peer_identity
from support.posts import (
    KIB,
    Context,
    Post,
    free_address,
    run,
)
from support.posts import quiet as quiet  # a fixture that every test here uses


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


def test_an_outage_is_told_once_and_attempts_grow_rarer(
    identities: dict[str, Identity], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        pauses: list[float] = []
        enough = asyncio.Event()

        async def noted(link: Link, seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 8:
                enough.set()

        monkeypatch.setattr(Link, "_rest", noted)
        async with Post(identities["anna"], limits=TransportLimits()) as anna:
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
