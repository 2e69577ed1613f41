"""What is noted of a member that aggregates: each thing once, whatever its peers send."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eris.core.rules import FedAdam
from eris.protocol.authority.standing import Scheduled
from eris.protocol.codec import Limits
from eris.protocol.messages import CatchUp, Contribution, Outgoing, Refusal, Result
from eris.protocol.round.member import Member
from eris.runtimes.grpc.aggregating import AggregatingDriver
from eris.runtimes.grpc.health import Health
from eris.runtimes.grpc.journal import Journal, read
from eris.runtimes.grpc.tls import Identity
from eris.runtimes.grpc.transport import Transport
from eris.testing.quadratic import Quadratic
from support.members import NAMES, VIEW, N, member, of_kind, standing, train

ANNA, BEN, CLEO = range(3)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def driver_of(anna: Member, identity: Identity, journal: Journal) -> AggregatingDriver:
    async def nobody(peer: str, data: bytes) -> None:
        raise AssertionError("nothing listens")

    transport = Transport(identity, "127.0.0.1:0", receive=nobody, identify=lambda context: None)
    return AggregatingDriver(
        anna, Quadratic("anna", n=N), transport, journal, Health(), None, Limits()
    )


def to(owner: int, out: list[Outgoing]) -> list[Contribution]:
    """The contributions to an owner."""
    said = [one.message for one in out if one.to == (owner,)]
    return [one for one in said if isinstance(one, Contribution)]


def test_a_peer_that_names_rounds_at_will_fills_neither_log_nor_memory(
    identities: dict[str, Identity], path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    anna = member(ANNA)
    anna.start(0.0)
    with Journal(path) as journal:
        driver = driver_of(anna, identities[NAMES[ANNA]], journal)
        driver._round = 40

        async def refusing() -> None:
            for round in range(2000, 1, -1):
                header = replace(anna.node.agreement.header(BEN, 1, (0, 0)), round=round)
                await driver._take_in(Refusal(header, "no"), BEN)

        asyncio.run(refusing())
    said = [one for one in caplog.records if one.message == "contribution refused"]
    assert 0 < len(said) == len(driver._refusals) < 20


def journalled(path: Path) -> list[tuple[int, Any]]:
    return [(one["round"], one["segment"]) for one in read(path) if one["event"] == "result"]


def test_an_own_result_is_journalled_once_however_often_it_is_asked_for(
    identities: dict[str, Identity], path: Path
) -> None:
    agreed = {"rule": FedAdam()}  # its results are kept whole, and sent again
    anna, ben, cleo = (member(me, agreed=agreed) for me in range(3))
    with Journal(path) as journal:
        driver = driver_of(anna, identities[NAMES[ANNA]], journal)
        for one in (anna, ben, cleo):
            one.start(0.0)
        for one in (ben, cleo):
            for contribution in to(ANNA, train(one)):
                driver._send(anna.receive(contribution, one.me, 0.1))
        said = train(anna)
        driver._send(said)
        own = [one.message.header for one in of_kind(said, Result)]
        assert own
        assert journalled(path) == [(1, [*header.key]) for header in own]
        for _ in range(2):
            for header in own:
                asked = CatchUp(cleo.node.agreement.header(CLEO, 1, header.key), 0)
                again = anna.receive(asked, CLEO, 0.5)
                assert [one.message.header for one in of_kind(again, Result)] == [header]
                driver._send(again)
    assert journalled(path) == [(1, [*header.key]) for header in own]


def test_who_keeps_a_lease_does_not_wait_for_a_member_that_encrypts(
    identities: dict[str, Identity], path: Path
) -> None:
    anna = member(ANNA)
    anna.start(0.0)
    later = [Scheduled(replace(VIEW, epoch=epoch), 10 * epoch) for epoch in (2, 3)]
    with Journal(path) as journal:
        driver = driver_of(anna, identities[NAMES[ANNA]], journal)
        driver.slow = True

        async def renewing() -> None:
            async with driver.moving:  # as while it encrypts
                for number in (1, 2):  # it would never return
                    await driver.stand(standing(ANNA, Scheduled(VIEW, 1), *later[:number]))
                assert anna.agreement.view.epoch == 1
            await asyncio.gather(*driver._tasks)

        asyncio.run(renewing())
    assert anna.agreement.view.epoch == 3
    assert [note["epoch"] for note in read(path) if note["event"] == "view"] == [2, 3]
