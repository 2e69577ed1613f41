"""Bad input to real nodes: each is told what to do about it, and the federation goes on."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import grpc.aio
import pytest

from eris.experiments.federations.processes import free_ports
from eris.runtimes.grpc import storage
from eris.runtimes.grpc.addresses import LOOPBACK
from eris.runtimes.grpc.link import DELIVER
from eris.runtimes.grpc.tls import Identity, create_authority, issue
from support.nodes import Nodes, lawful

GARBAGE = bytes(range(256)) * 40
HOUR_AHEAD = """
import time
true_time = time.time
time.time = lambda: true_time() + 3600
"""
"""A wrong clock, for one process: put in its way as ``sitecustomize``."""
FULL_ONCE = """
import os
true_fsync, full = os.fsync, True
def fsync(descriptor):
    global full
    if full and "checkpoint" in os.readlink(f"/proc/self/fd/{descriptor}"):
        full = False
        raise OSError(28, os.strerror(28))
    true_fsync(descriptor)
os.fsync = fsync
"""
"""A disk that is full at the first checkpoint, likewise."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Anna, ben and cleo in the middle of their training; dora has a folder and is not there."""
    folder = tmp_path_factory.mktemp("running")
    values = {"membership.start_with": 3, "checkpoint.every_seconds": 60.0}
    with Nodes(folder, 4, rounds=60, values=values) as nodes:
        nodes.lead(2)
        nodes.begin("anna", "ben", "cleo")
        nodes.until_round(3, "anna", "ben", "cleo")
        yield nodes


def goes_on(nodes: Nodes) -> bool:
    """Whether the federation, having met something bad, trains on with all its members."""
    members = ("anna", "ben", "cleo")
    target = max(nodes.at(name) for name in members) + 2
    nodes.lead(target)
    nodes.until_round(target, *members)
    return all(nodes.results("ben")[target - 1, shard] == set(members) for shard in range(3))


def copied(nodes: Nodes, name: str, twin: str) -> Path:
    """Another folder of a member."""
    place = nodes.folder / twin
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(nodes.folder / name, place, ignore=shutil.ignore_patterns("state", "log.txt"))
    return place


def edit(place: Path, old: str, new: str) -> None:
    path = place / "node.toml"
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def refusal(nodes: Nodes, name: str) -> str:
    """The one line with which a node gives up."""
    nodes.start(name)
    assert nodes.ends(name) == 2
    lines = nodes.said(name, "error:")
    assert len(lines) == 1, nodes.log(name)
    assert "Traceback" not in nodes.log(name, 1000)
    return lines[0]


# -- before a node takes part -----------------------------------------------------------------


def test_a_wrong_key_is_named_with_its_file_and_the_nearest(running: Nodes) -> None:
    place = copied(running, "dora", "misspelt")
    edit(place, "[federation]\n", "[federation]\nroundz = 5\n")
    said = refusal(running, "misspelt")
    assert str(place / "node.toml") in said
    assert "roundz" in said
    assert "did you mean 'rounds'?" in said


def test_a_port_in_use_is_named(running: Nodes) -> None:
    place = copied(running, "dora", "squatter")
    edit(place, str(running.ports["dora"]), str(running.ports["ben"]))
    said = refusal(running, "squatter")
    assert f"{LOOPBACK}:{running.ports['ben']}" in said
    assert "the port is in use" in said
    assert goes_on(running)


def test_a_port_for_metrics_that_is_in_use_is_named(running: Nodes) -> None:
    place = copied(running, "dora", "watched")
    edit(place, "[observe]\n", f'[observe]\nhttp = "{LOOPBACK}:{running.ports["ben"]}"\n')
    said = refusal(running, "watched")
    assert f"observe.http: cannot listen at {LOOPBACK}:{running.ports['ben']}" in said
    assert "another program uses this port" in said


@pytest.mark.parametrize("member", ["anna", "dora"])  # the directory's host, and another
def test_a_damaged_checkpoint_is_blamed_on_nobody_else(running: Nodes, member: str) -> None:
    place = copied(running, member, f"{member}-with-junk")
    edit(place, str(running.ports[member]), str(free_ports(1)[0]))
    (place / "state").mkdir()
    junk = place / "state" / "checkpoint.safetensors"
    for damage in (b"", b"junk", GARBAGE):
        (place / "log.txt").unlink(missing_ok=True)
        junk.write_bytes(damage)
        said = refusal(running, place.name)
        assert f"{junk} is damaged" in said
        assert "remove it" in said
    assert goes_on(running)


def test_a_checkpoint_of_another_federation_is_named(running: Nodes) -> None:
    place = copied(running, "dora", "moved")
    (place / "state").mkdir()
    storage.save(place / "state" / storage.CHECKPOINT, {}, {"federation": "another"})
    said = refusal(running, "moved")
    assert "checkpoint.safetensors belongs to a federation with other settings" in said


def test_an_expired_certificate_is_told_when_it_ended(running: Nodes) -> None:
    place = copied(running, "dora", "late")
    long_ago = datetime.now(UTC) - timedelta(days=400)
    authority = running.folder / "old-ca"
    create_authority(authority, "old", now=long_ago)
    for name in ("dora.pem", "dora.key", "ca.pem"):
        (place / name).unlink()
    issue(authority, "dora", days=30, out=place, now=long_ago)
    ended = long_ago + timedelta(days=30)
    said = refusal(running, "late")
    assert str(place / "dora.pem") in said
    assert f"{ended:%Y-%m-%d}" in said
    assert "eris ca issue dora --renew" in said


# -- at the door ------------------------------------------------------------------------------


def test_a_second_node_of_a_name_is_refused_by_its_address(running: Nodes) -> None:
    place = copied(running, "ben", "ben-again")
    edit(place, str(running.ports["ben"]), str(free_ports(1)[0]))
    said = refusal(running, "ben-again")
    assert f"ben is already a member at {LOOPBACK}:{running.ports['ben']}" in said
    assert goes_on(running)


def test_a_name_with_another_key_is_refused(running: Nodes) -> None:
    place = copied(running, "ben", "impostor")
    edit(place, str(running.ports["ben"]), str(free_ports(1)[0]))
    careless = running.folder / "careless-ca"  # an authority that has lost its records
    shutil.copytree(running.folder / "ca", careless)
    (careless / "issued.json").write_text("[]")
    for name in ("ben.pem", "ben.key", "ca.pem"):
        (place / name).unlink()
    issue(careless, "ben", hosts=[LOOPBACK], out=place)
    assert "the name ben belongs to another certificate" in refusal(running, "impostor")
    assert goes_on(running)


def test_another_model_is_refused_with_both_sizes(running: Nodes) -> None:
    place = copied(running, "dora", "larger")
    edit(place, "leash =", "n = 700, leash =")
    said = refusal(running, "larger")
    assert "the model has 700 parameters here, 600 in the federation" in said
    assert goes_on(running)


def refused(context: ssl.SSLContext, where: tuple[str, int]) -> None:
    """Send garbage in a TLS connection until the other side hangs up, which is an error here."""
    with socket.create_connection(where) as plain, context.wrap_socket(plain) as secured:
        secured.sendall(GARBAGE)
        while secured.recv(1 << 16):
            pass
    raise ConnectionResetError("reset without a word")


def test_garbage_and_strangers_at_the_port_change_nothing(running: Nodes) -> None:
    where = LOOPBACK, running.ports["ben"]
    with socket.create_connection(where) as bare:
        bare.sendall(GARBAGE)
    unnamed = ssl._create_unverified_context()
    strange = ssl._create_unverified_context()
    create_authority(running.folder / "strangers", "strangers")
    mallory = running.folder / "mallory"
    issue(running.folder / "strangers", "ben", out=mallory)
    strange.load_cert_chain(mallory / "ben.pem", mallory / "ben.key")
    for context in (unnamed, strange):
        context.set_alpn_protocols(["h2"])
        # In TLS 1.3 whoever dials hears of a refusal only when it reads.
        with pytest.raises(OSError, match=r"certificate|reset|EOF"):
            refused(context, where)
    assert goes_on(running)


async def deliver(nodes: Nodes, sender: str, data: bytes) -> grpc.StatusCode:
    """Send ben a message that a member's node would not send; how its stream ends."""
    place = nodes.folder / sender
    files = (place / f"{sender}.pem", place / f"{sender}.key", place / "ca.pem")
    target = f"{LOOPBACK}:{nodes.ports['ben']}"
    options = [("grpc.ssl_target_name_override", "ben")]
    credentials = Identity(*files).channel_credentials()
    async with grpc.aio.secure_channel(target, credentials, options=options) as channel:
        stream: grpc.aio.StreamUnaryMultiCallable[bytes, bytes] = channel.stream_unary(DELIVER)
        call = stream(iter([data]))
        with pytest.raises(grpc.aio.AioRpcError):
            await call
        return await call.code()


def test_garbage_from_a_member_ends_its_stream_alone(running: Nodes) -> None:
    unknown = asyncio.run(deliver(running, "dora", GARBAGE))
    assert unknown is grpc.StatusCode.PERMISSION_DENIED
    member = asyncio.run(deliver(running, "cleo", GARBAGE))
    assert member is grpc.StatusCode.INVALID_ARGUMENT
    assert goes_on(running)


# -- at work ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_members_with_troubles_of_their_own_do_not_keep_the_others_from_ending(
    tmp_path: Path,
) -> None:
    options = {"dora": {"fails": [3, 4]}, "emil": {"poisoned": [5, 6]}}
    own = os.environ.get("PYTHONPATH", "")
    with Nodes(tmp_path, 5, rounds=12, options=options) as nodes:
        (tmp_path / "sitecustomize.py").write_text(HOUR_AHEAD)
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "sitecustomize.py").write_text(FULL_ONCE)
        (nodes.folder / "dora" / "state" / "model.safetensors" / "in the way").mkdir(parents=True)
        nodes.lead(8)
        nodes.start("ben", prefix=["env", f"PYTHONPATH={tmp_path}:{own}"])
        nodes.start("cleo", prefix=["env", f"PYTHONPATH={tmp_path / 'full'}:{own}"])
        nodes.begin("dora", "emil")
        nodes.until_said("ben", "waiting for the directory", str(nodes.ports["anna"]))
        nodes.begin("anna")
        nodes.until_said("cleo", "ERROR", "checkpoint")
        nodes.lead(nodes.rounds)
        codes = {name: nodes.ends(name) for name in nodes.names}
        lawful(nodes, models=("anna", "ben", "cleo", "emil"))

        assert len(nodes.said("ben", "waiting for the directory")) == 1
        assert "3600 s ahead of the directory's" in nodes.said("ben", "clock")[0]
        assert "No space left on device" in nodes.said("cleo", "ERROR", "checkpoint")[0]
        assert len(nodes.said("cleo", "ERROR")) == 1
        assert "error: " in nodes.said("dora", "model.safetensors cannot be written")[-1]
        assert codes == {"anna": 0, "ben": 0, "cleo": 0, "dora": 2, "emil": 0}
        known = nodes.results("anna")
        everyone = set(nodes.names)
        for round, without in ((2, ""), (3, "dora"), (4, "dora"), (5, "emil"), (6, "emil")):
            for shard in range(5):
                assert known[round, shard] <= everyone - {without}
                assert len(known[round, shard]) >= 3
        assert "no data in round 3" in nodes.said("dora", "training failed")[0]
        (line,) = nodes.said("emil", "training failed", "round=5")
        assert "emil" in line
        assert "nan" in line.lower()


@pytest.mark.slow
def test_updates_too_small_for_the_precision_are_told_of_once(tmp_path: Path) -> None:
    with Nodes(tmp_path, 3, rounds=3, options={"cleo": {"faint": [1, 2]}}) as nodes:
        nodes.begin()
        nodes.lead(nodes.rounds)
        assert {nodes.ends(name) for name in nodes.names} == {0}
        (line,) = nodes.said("cleo", "WARNING", "update too small")
        assert "lost=1.0" in line
        assert not nodes.said("anna", "update too small")


@pytest.mark.slow
def test_a_directory_that_has_lost_its_ledger_is_not_believed(tmp_path: Path) -> None:
    with Nodes(tmp_path, 3, rounds=1000) as nodes:
        nodes.begin()
        nodes.until_round(5, *nodes.names)
        saved = nodes.folder / "anna" / "state" / "checkpoint.safetensors"
        nodes.until(saved.exists, "anna has saved")
        nodes.kill("anna")
        for path in saved.parent.glob("directory.sqlite*"):
            path.unlink()
        assert "the directory does not remember this federation" in refusal(nodes, "anna")
        shutil.rmtree(saved.parent)  # whoever goes on all the same begins another federation
        nodes.start("anna")
        for name in ("ben", "cleo"):
            assert nodes.ends(name) == 2
            assert "the directory does not remember this federation" in nodes.log(name, 1)
        assert nodes.stop("anna") == 0


@pytest.mark.slow
def test_a_lost_ledger_is_noticed_when_all_others_have_begun_anew(tmp_path: Path) -> None:
    """Then the new federation has the same members, numbers and owners as the old one."""
    with Nodes(tmp_path, 3, rounds=1000) as nodes:
        for name in nodes.names:  # in this order, so that they get the same numbers again
            nodes.start(name)
            nodes.until_said(name, "joined number=")
        nodes.until_round(3, *nodes.names)
        nodes.processes["cleo"].send_signal(signal.SIGSTOP)
        for name in ("anna", "ben"):
            nodes.kill(name)
            shutil.rmtree(nodes.folder / name / "state")
        for name in ("anna", "ben"):
            before = len(nodes.said(name, "joined number="))
            nodes.start(name)
            joined = lambda n=name, b=before: len(nodes.said(n, "joined number=")) > b  # noqa: E731
            nodes.until(joined, f"{name} has joined anew")
        nodes.processes["cleo"].send_signal(signal.SIGCONT)
        assert nodes.ends("cleo") == 2
        assert nodes.said("cleo", "the directory does not remember this federation")
