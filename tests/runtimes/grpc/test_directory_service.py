"""The directory over the network: real sockets, mutual TLS, a real file."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from eris.core.errors import ErisError
from eris.protocol.authority.directory import (
    Directory,
    Impostor,
    Joined,
    NotAMember,
    OldKeys,
    Refused,
)
from eris.protocol.secure.certified import KeyStatement
from eris.protocol.secure.keys import MemberKeys
from eris.runtimes.grpc import pem
from eris.runtimes.grpc.directory import (
    LARGEST_REQUEST,
    DirectoryClient,
    DirectoryService,
    DirectoryUnavailable,
)
from eris.runtimes.grpc.ledger import Ledger
from eris.runtimes.grpc.tls import Identity, create_authority, issue
from support import registry
from support.limits import files_of_at_most
from support.registry import CHARTER, TERMS, founded

HOST = "anna"


@pytest.fixture(scope="module")
def identities(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Identity]:
    folder = tmp_path_factory.mktemp("authority")
    create_authority(folder, "hospitals")
    made = {name: issue(folder, name).identity for name in ("anna", "ben", "cleo")}
    # Another key for the same name, signed by the same authority.
    made["false ben"] = issue(folder, "ben", out=folder / "false", renew=True).identity
    return made


class World:
    """A node that hosts the directory, on a clock of its own, and lines to it."""

    def __init__(self, folder: Path, identities: dict[str, Identity]) -> None:
        self.folder, self.identities = folder, identities
        self.now, self.port = 0.0, 0

    @asynccontextmanager
    async def hosted(
        self, check: Callable[[KeyStatement], None] | None = None, **changes: Any
    ) -> AsyncIterator[DirectoryService]:
        """The directory, from its ledger if there is one; its process ends without a goodbye."""
        with closing(Ledger(self.folder / "directory.db")) as ledger:
            state = ledger.load()
            terms: dict[str, Any] = {"charter": CHARTER, **TERMS, **changes}
            directory = Directory.restore(state, self.now, **terms) if state else founded(**changes)
            service = DirectoryService(
                directory, ledger, lambda: self.now, check=check, wall_clock=lambda: 4_600.0
            )
            async with self.serving(service.handler()):
                yield service

    @asynccontextmanager
    async def serving(self, *handlers: grpc.GenericRpcHandler) -> AsyncIterator[None]:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers(handlers)
        self.port = server.add_secure_port(
            "127.0.0.1:0", self.identities[HOST].server_credentials()
        )
        await server.start()
        try:
            yield
        finally:
            await server.stop(grace=None)

    @asynccontextmanager
    async def line(
        self, who: str, host: str = HOST, timeout: float = 30.0
    ) -> AsyncIterator[DirectoryClient]:
        async with self.channel(who, host) as channel:
            address = f"127.0.0.1:{self.port}"
            yield DirectoryClient(channel, address, timeout=timeout, wall_clock=lambda: 1_000.0)

    def channel(self, who: str, host: str = HOST) -> grpc.aio.Channel:
        return grpc.aio.secure_channel(
            f"127.0.0.1:{self.port}",
            self.identities[who].channel_credentials(),
            options=[("grpc.ssl_target_name_override", host)],
        )

    def on_disk(self, number: int) -> dict[str, Any]:
        """A member as the disk has it now: what a restart after a kill would find."""
        copy = self.folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir()
        for file in self.folder.glob("directory.db*"):
            shutil.copy(file, copy)
        with closing(Ledger(copy / "directory.db")) as ledger:
            state = ledger.load()
        assert state is not None
        found: dict[str, Any] = state["members"][number]
        return found


async def join(line: DirectoryClient, who: str, **changes: Any) -> Joined:
    terms = {"address": f"{who}:7000", "charter": CHARTER, "client": True, "aggregator": True}
    return await line.join(**{**terms, "max_share": 1.0, **changes})


@pytest.fixture
def world(tmp_path: Path, identities: dict[str, Identity]) -> World:
    return World(tmp_path, identities)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


def test_members_join_renew_and_leave_under_the_names_of_their_certificates(world: World) -> None:
    async def test() -> None:
        async with world.hosted() as service, world.line("anna") as anna, world.line("ben") as ben:
            assert (await join(anna, "anna")).standing.views == ()
            joined = await join(ben, "ben", max_share=0.7)
            assert joined.number == 1
            assert joined.standing.addresses == ("anna:7000", "ben:7000")
            assert joined.standing == service.directory.standing(1)
            for round in (1, 2):
                await anna.renew(round)
                await ben.renew(round)
            standing = await anna.renew(3)
            assert standing == service.directory.standing(0)
            assert (standing.through, standing.views[0].view.members) == (5, ("anna", "ben"))
            await ben.leave()
            standing = await anna.renew(4)
            assert (standing.views[-1].from_round, standing.views[-1].view.clients) == (6, (0,))
            with pytest.raises(NotAMember, match="join first"):
                await ben.renew(4)
            described = await ben.describe()
            assert described == service.directory.describe(world.now)
            assert [(m.name, m.presence) for m in described.members] == [
                ("anna", "here"),
                ("ben", "left"),
            ]

    run(test)


def test_a_permit_is_on_disk_before_it_is_told_and_outlives_the_directory(world: World) -> None:
    async def test() -> None:
        async with world.hosted(), world.line("anna") as anna, world.line("ben") as ben:
            await join(anna, "anna")
            await join(ben, "ben")
            assert world.on_disk(1)["name"] == "ben"
            for round in range(1, 6):
                both = await asyncio.gather(anna.renew(round), ben.renew(2 * round))
                for number, standing in enumerate(both):
                    assert standing.through >= round + 2
                    assert world.on_disk(number)["through"] >= standing.through
            through = (await anna.renew(5)).through
        world.now = 10_000.0
        async with world.hosted(), world.line("anna") as again, world.line("ben") as ben:
            with pytest.raises(DirectoryUnavailable, match="1 of 2 members heard"):
                await join(again, "anna")
            assert (await join(ben, "ben")).incarnation == 2
            with pytest.raises(NotAMember):  # a process that started anew has to say so
                await again.renew(6)
            joined = await join(again, "anna")
            assert (joined.number, joined.abstain_through, joined.incarnation) == (0, through, 2)
            assert (await again.renew(6)).through == 8
            assert len((await ben.renew(6)).views) == 1  # and nobody was left out

    run(test)


def test_refusals_arrive_with_their_reasons(world: World) -> None:
    async def test() -> None:
        async with world.hosted(), world.line("ben") as ben, world.line("false ben") as impostor:
            with pytest.raises(NotAMember):
                await ben.renew(1)
            await join(ben, "ben")
            with pytest.raises(Impostor, match="the name ben belongs to another certificate"):
                await join(impostor, "ben")
            with pytest.raises(Refused, match="already a member at ben:7000"):
                await join(ben, "ben", address="elsewhere:1")
            async with world.line("cleo") as cleo:
                with pytest.raises(
                    Refused, match="the model has 61,706 parameters here, 44,426 in the federation"
                ):
                    await join(cleo, "cleo", charter=CHARTER.replace("44426", "61706"))
                with pytest.raises(Refused, match=r"max_share of cleo is 0\.0"):
                    await join(cleo, "cleo", max_share=0.0)
                with pytest.raises(Refused, match=f"at most {LARGEST_REQUEST}"):
                    await join(cleo, "cleo", charter="x" * LARGEST_REQUEST)
            # Two processes with one key and address: the one that joined last is the member.
            async with world.line("ben") as second:
                await join(second, "ben")
                with pytest.raises(Refused, match="another start of ben"):
                    await ben.renew(1)
                with pytest.raises(Refused, match="another start of ben"):
                    await ben.leave()
                await second.renew(1)

    run(test)


def test_bytes_that_are_no_request_are_refused_and_the_service_goes_on(world: World) -> None:
    async def test() -> None:
        async with world.hosted(), world.line("ben") as ben, world.channel("cleo") as channel:
            for method in ("Join", "Renew", "Leave"):
                call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]
                call = channel.unary_unary(f"/eris.v1.Directory/{method}")
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await call(b"\xff\xff\xff", timeout=30.0)
                assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
            await join(ben, "ben")

    run(test)


def test_a_disk_without_room_gives_no_permits_until_there_is_room(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with world.hosted(), world.line("anna") as anna, world.line("ben") as ben:
            await join(anna, "anna")
            await join(ben, "ben")
            assert (await anna.renew(1)).through == 3
            await ben.renew(1)
            with files_of_at_most(512):
                for _ in range(2):
                    with pytest.raises(DirectoryUnavailable, match="cannot write its ledger"):
                        await anna.renew(2)
                # Nor is anybody told what is not on disk yet, even if it asks for nothing new.
                with pytest.raises(DirectoryUnavailable):
                    await ben.renew(0)
            assert world.on_disk(0)["through"] == 3
            assert (await anna.renew(2)).through == 4
            assert world.on_disk(0)["through"] == 4

    run(test)
    assert [str(world.folder) in record.getMessage() for record in caplog.records] == [True]


def test_a_caller_that_gives_up_does_not_spoil_the_write_that_others_wait_for(world: World) -> None:
    async def test() -> None:
        async with world.hosted() as service:
            registry.join(service.directory, 0.0, "anna")
            gives_up, waits = (asyncio.create_task(service._save()) for _ in range(2))
            await asyncio.sleep(0)  # both have run up to where they wait for the disk
            gives_up.cancel()
            await waits
            assert world.on_disk(0)["name"] == "anna"
            assert gives_up.cancelled()

    run(test)


def test_a_directory_that_cannot_be_reached_is_named(world: World) -> None:
    async def test() -> None:
        async with world.serving():
            async with world.line("ben") as line:
                with pytest.raises(ErisError, match="hosts no directory"):
                    await line.describe()
            async with world.line("ben", host="cleo") as line:  # the address is another member's
                with pytest.raises(DirectoryUnavailable, match="cannot be reached"):
                    await line.describe()
        async with world.line("ben") as line:
            with pytest.raises(DirectoryUnavailable) as gone:
                await join(line, "ben")
            assert f"directory at 127.0.0.1:{world.port} cannot be reached: " in str(gone.value)
            assert line.clock_offset is None

        async def never(request: bytes, context: object) -> bytes:
            await asyncio.Event().wait()
            return b""

        silent: grpc.RpcMethodHandler[bytes, bytes]
        silent = grpc.unary_unary_rpc_method_handler(never)
        handler = grpc.method_handlers_generic_handler("eris.v1.Directory", {"Describe": silent})
        async with world.serving(handler), world.line("ben", timeout=0.5) as line:
            with pytest.raises(DirectoryUnavailable, match=r"no answer within 0\.5 s"):
                await line.describe()

    run(test)


def test_an_answer_that_is_none_is_refused(world: World) -> None:
    async def test() -> None:
        for data, says in ((b"\xff", "is none"), (b"\x08\x05", "makes no sense")):

            async def answer(request: bytes, context: object, data: bytes = data) -> bytes:
                return data

            method: grpc.RpcMethodHandler[bytes, bytes]
            method = grpc.unary_unary_rpc_method_handler(answer)
            handler = grpc.method_handlers_generic_handler("eris.v1.Directory", {"Renew": method})
            async with world.serving(handler), world.line("ben") as line:
                with pytest.raises(ErisError, match=says):
                    await line.renew(1)

    run(test)


def test_every_answer_tells_the_directorys_time(world: World) -> None:
    async def test() -> None:
        async with world.hosted():
            for ask in ("join", "renew", "describe"):
                async with world.line("ben") as line:
                    assert line.clock_offset is None
                    if ask != "describe":
                        await join(line, "ben")
                    if ask == "renew":
                        line.clock_offset = None
                        await line.renew(1)
                    if ask == "describe":
                        await line.describe()
                    assert line.clock_offset == 3_600.0

    run(test)


def test_time_passes_for_members_that_nobody_asks_about(world: World) -> None:
    async def test() -> None:
        async with world.hosted(), world.line("anna") as anna, world.line("ben") as ben:
            await join(anna, "anna")
            await join(ben, "ben")
            world.now = 6.0
            await ben.renew(1)
            assert world.on_disk(0)["presence"] == "here"
            world.now = 10.0
            await ben.renew(1)
            assert world.on_disk(0)["presence"] == "away"

    run(test)


def test_keys_arrive_are_checked_and_old_ones_are_told_the_newest(world: World) -> None:
    def stated(who: str, start: int, name: str | None = None) -> KeyStatement:
        certificate, key = world.identities[who].statement_signer()
        public = MemberKeys.of(start.to_bytes(96, "little")).public
        return KeyStatement.signed(7, name or who, start, public, certificate, key)

    authorities = pem.certificates(world.identities["anna"].authority)

    def check(keys: KeyStatement) -> None:
        keys.check(7, authorities, datetime.now(UTC), last=0)

    async def test() -> None:
        async with (
            world.hosted(check, seats=2) as service,
            world.line("anna") as anna,
            world.line("ben") as ben,
        ):
            with pytest.raises(Refused, match="ben states no keys"):
                await join(ben, "ben")
            for false in (stated("anna", 5, "ben"), stated("anna", 5)):  # by anna's certificate
                with pytest.raises(Refused, match='the keys of member "ben" are under the cert'):
                    await join(ben, "ben", keys=false)
            await join(anna, "anna", keys=stated("anna", 5))
            told = await join(ben, "ben", keys=stated("ben", 5))
            assert told.standing == service.directory.standing(1)
            seating = told.standing.views[-1].view.seating
            assert seating is not None
            assert [keys and keys.start for keys in seating.statements] == [5, 5]
            with pytest.raises(OldKeys, match="expected one after 5") as refused:
                await ben.renew(1, stated("ben", 4))
            assert refused.value.newest == 5
            # Keys that it knows already are not sent again, and are there all the same.
            await ben.renew(1, stated("ben", 6))
            assert await ben.renew(1) == service.directory.standing(1)
            assert await anna.renew(1) == service.directory.standing(0)
            before = service.directory.standing(0).views
        async with world.hosted(check, seats=2) as service:
            assert service.directory.standing(0).views == before, "a restart keeps seats and keys"

    run(test)
