"""Hosts in namespaces: cuts, counters, and that nothing is left behind (root and iproute2).

What a cut swallows is seen by what comes first after it is healed: datagrams keep their order.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.hosts import Hosts, HostsUnavailable, LinkShape, Namespace, run

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[1]
PORT = 5000
LISTEN = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
    listening.bind((sys.argv[1], int(sys.argv[2])))
    print("bound", flush=True)
    while True:
        print(listening.recv(2000).decode(), flush=True)
"""
SEND = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sending:
    for word in sys.argv[3:]:
        sending.sendto(word.encode(), (sys.argv[1], int(sys.argv[2])))
"""
HOLD = """
import subprocess, sys
sys.path.append(sys.argv[1])
from support.hosts import Hosts
with Hosts(2) as hosts:
    held = subprocess.Popen(hosts[0].command(["sleep", "1000"]))
    print(hosts._watcher.pid, held.pid, hosts.switch, *(host.name for host in hosts), flush=True)
    sys.stdin.read()
"""


def send(sender: Namespace, receiver: Namespace, *words: str) -> None:
    run(*sender.command([sys.executable, "-c", SEND, receiver.address, str(PORT), *words]))


class Ear:
    """What arrives at a host, in order."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def hear(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@contextmanager
def listening(host: Namespace) -> Iterator[Ear]:
    command = host.command([sys.executable, "-c", LISTEN, host.address, str(PORT)])
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        ear = Ear(process)
        assert ear.hear() == "bound"
        try:
            yield ear
        finally:
            process.kill()


def names() -> set[str]:
    return {line.split()[0] for line in run("ip", "netns", "list").splitlines() if line}


def test_a_host_that_is_cut_off_hears_and_says_nothing_until_it_is_healed() -> None:
    with Hosts(3, LinkShape()) as hosts, listening(hosts[0]) as near, listening(hosts[1]) as far:
        send(hosts[0], hosts[1], "before")
        send(hosts[1], hosts[0], "before")
        assert (near.hear(), far.hear()) == ("before", "before")
        hosts.cut(1)
        send(hosts[0], hosts[1], "lost")
        send(hosts[1], hosts[0], "lost")
        send(hosts[2], hosts[0], "others go on")
        assert near.hear() == "others go on"
        hosts.heal(1)
        send(hosts[0], hosts[1], "after")
        send(hosts[1], hosts[0], "after")
        assert (near.hear(), far.hear()) == ("after", "after")


def test_one_direction_is_cut_and_the_other_stays_open() -> None:
    with Hosts(3, LinkShape()) as hosts, listening(hosts[0]) as near, listening(hosts[1]) as far:
        hosts.cut_way(0, 1)
        send(hosts[0], hosts[1], "lost")
        send(hosts[1], hosts[0], "back")
        assert near.hear() == "back"
        send(hosts[2], hosts[1], "from another")
        assert far.hear() == "from another"
        hosts.heal_way(0, 1)
        send(hosts[0], hosts[1], "after")
        assert far.hear() == "after"


def test_counters_see_every_byte_and_the_shaper_charges_headers() -> None:
    with Hosts(2, LinkShape()) as hosts, listening(hosts[1]) as ear:
        send(hosts[0], hosts[1], "known by now")
        ear.hear()
        before = [host.counters() for host in hosts]
        send(hosts[0], hosts[1], *["x" * 1000] * 20)
        for _ in range(20):
            ear.hear()
        sent, received = (host.counters() - old for host, old in zip(hosts, before, strict=True))
    frames = 20 * (1000 + 8 + 20 + 14)
    # Neighbours may greet one another meanwhile, with a frame of 42 bytes.
    assert 0 <= sent.sent - frames <= 4 * 42
    assert 0 <= received.received - frames <= 4 * 42
    assert sent.charged == sent.sent
    assert sent.dropped == 0


def test_hosts_use_reno_and_have_the_asked_rate() -> None:
    with Hosts(1, LinkShape(rate_mbit=7)) as hosts:
        control = "/proc/sys/net/ipv4/tcp_congestion_control"
        assert run(*hosts[0].command(["cat", control])).strip() == "reno"
        for end in (("-n", hosts[0].name), ("-n", hosts.switch)):
            assert "tbf" in (shown := run("tc", *end, "qdisc", "show"))
            assert "rate 7Mbit burst 128Kb lat 200ms" in shown


def fail_within(made: set[str], held: list[subprocess.Popen[bytes]]) -> None:
    with Hosts(2) as hosts:
        made |= {hosts.switch, *(host.name for host in hosts)}
        assert made <= names()
        held.append(subprocess.Popen(hosts[0].command(["sleep", "1000"])))
        run("ip", "-n", hosts[0].name, "link", "show", "dev", "eth7")


def test_an_error_within_leaves_nothing_behind() -> None:
    made: set[str] = set()
    held: list[subprocess.Popen[bytes]] = []
    with pytest.raises(HostsUnavailable, match=r"ip -n \S+-h0 link show dev eth7: .*eth7"):
        fail_within(made, held)
    assert held[0].wait() == -signal.SIGKILL
    assert not made & names()


def test_a_kill_leaves_nothing_behind() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(TESTS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holding:
        assert holding.stdout is not None
        watcher, held, *made = holding.stdout.readline().split()
        assert set(made) <= names()
        ends = [os.pidfd_open(int(pid)) for pid in (watcher, held)]
        holding.kill()
    for end in ends:
        select.select([end], [], [])  # ready once the process has ended
        os.close(end)
    assert not set(made) & names()
