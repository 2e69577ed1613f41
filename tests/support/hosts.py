"""Separate hosts on one machine: network namespaces on a switch, with rates, cuts and counters.

Each host has an address and a link of its own to a bridge; the bridge lies in a namespace too, so
nothing of the machine's own network is seen or changed. A link's rate is held by ``tc tbf`` at both
its ends (netem is not in every kernel). Needs Linux, root and iproute2.

A watcher process holds the other end of a pipe: when the pipe closes, because we are done or were
killed, it ends what still runs in the namespaces and removes them.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from ipaddress import IPv4Address
from types import TracebackType
from typing import Any

from eris.core.errors import ErisError, InvalidSetting

FIRST_ADDRESS = IPv4Address("198.18.0.1")
"""Of the range set aside for measurements (RFC 2544); it is seen inside the namespaces only."""
MOST_HOSTS = 250
Printed = list[dict[str, Any]]
INTERFACE = "eth0"
SWITCH_MAC = "02:00:00:00:00:01"
"""Given, or the bridge's address would be that of one of its ports, and change with them."""
SETTINGS = """
cd /proc/sys/net
echo reno > ipv4/tcp_congestion_control
echo 1 > ipv4/tcp_no_metrics_save
if test -d ipv6; then echo 1 > ipv6/conf/all/disable_ipv6; fi
"""
"""Of a host's TCP. The default of some kernels, bbr, is 11–26 % slower on a shaped link; what a
connection learnt must not change the next measurement; neighbour discovery would be counted."""
WATCHER = """
cat > /dev/null
for host in "$@"; do ip netns pids "$host" 2>/dev/null | xargs -r kill -KILL 2>/dev/null; done
for host in "$@"; do ip netns delete "$host" 2>/dev/null; done
exit 0
"""


class HostsUnavailable(ErisError):
    """Namespaces cannot be made here; says what is missing, or which command failed and how."""


@dataclass(frozen=True)
class LinkShape:
    """What ``tc tbf`` lets through in one direction of a link.

    A burst below 64 KiB or a short queue drops packets, and one would measure TCP's recovery.

    >>> " ".join(LinkShape(rate_mbit=100).arguments())
    'tbf rate 100mbit burst 128kb latency 200ms'
    """

    rate_mbit: float = 100
    burst_kb: int = 128
    latency_ms: int = 200

    def __post_init__(self) -> None:
        for name, least in (("rate_mbit", 0.01), ("burst_kb", 64), ("latency_ms", 1)):
            if not getattr(self, name) >= least:
                raise InvalidSetting(name, getattr(self, name), f"at least {least}")

    @property
    def rate(self) -> float:
        """Bytes a second.

        >>> LinkShape(rate_mbit=100).rate
        12500000.0
        """
        return self.rate_mbit * 1e6 / 8

    def arguments(self) -> list[str]:
        """The queueing discipline as ``tc`` reads it."""
        rate, burst = f"{self.rate_mbit:g}mbit", f"{self.burst_kb}kb"
        return ["tbf", "rate", rate, "burst", burst, "latency", f"{self.latency_ms}ms"]


@dataclass(frozen=True)
class Counters:
    """Bytes at a host's link since the host was made.

    ``charged`` is what the shaper counted on the way out, with the headers of every packet; the
    interface counts what the kernel hands over, where many packets may share one header. It is 0
    on a link without a shape. ``dropped`` are packets that found a shaper's queue full, at either
    end of the link.
    """

    sent: int
    received: int
    charged: int
    dropped: int

    def __sub__(self, earlier: Counters) -> Counters:
        """What came on top.

        >>> Counters(30, 20, 33, 1) - Counters(10, 20, 11, 1)
        Counters(sent=20, received=0, charged=22, dropped=0)
        """
        return Counters(*(a - b for a, b in zip(astuple(self), astuple(earlier), strict=True)))

    def __add__(self, other: Counters) -> Counters:
        """Both together.

        >>> Counters(30, 20, 33, 1) + Counters(10, 20, 11, 1)
        Counters(sent=40, received=40, charged=44, dropped=2)
        """
        return Counters(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True)
class Namespace:
    """One namespace: its name, its address, and its port on the switch (also a namespace)."""

    name: str
    address: str
    switch: str
    port: str

    def command(self, command: Sequence[str]) -> list[str]:
        """The command as it is run on this host; the process keeps the pid of what starts it.

        >>> Namespace("eris-1-h0", "198.18.0.1", "eris-1-switch", "p0").command(["hostname"])
        ['ip', 'netns', 'exec', 'eris-1-h0', 'hostname']
        """
        return ["ip", "netns", "exec", self.name, *command]

    def counters(self) -> Counters:
        """What has gone over the host's link so far."""
        link = run_json("ip", "-n", self.name, "-s", "-j", "link", "show", "dev", INTERFACE)
        near = run_json("tc", "-n", self.name, "-s", "-j", "qdisc", "show", "dev", INTERFACE)
        far = run_json("tc", "-n", self.switch, "-s", "-j", "qdisc", "show", "dev", self.port)
        return read_counters(link, near, far)


def read_counters(link: Printed, near: Printed, far: Printed) -> Counters:
    """Counters from what ``ip -s -j link`` and ``tc -s -j qdisc`` print for a link's two ends."""
    stats = link[0]["stats64"]
    out, back = ([q for q in queues if q.get("kind") == "tbf"] for queues in (near, far))
    return Counters(
        sent=stats["tx"]["bytes"],
        received=stats["rx"]["bytes"],
        charged=sum(queue["bytes"] for queue in out),
        dropped=sum(queue["drops"] for queue in (*out, *back)),
    )


class Hosts:
    """Hosts on one switch, while in a ``with`` block.

    ``shape`` holds for both directions of every link, or there is one a host; None leaves the links
    as fast as the machine.
    """

    def __init__(self, count: int, shape: LinkShape | Sequence[LinkShape] | None = None) -> None:
        if not 1 <= count <= MOST_HOSTS:
            raise InvalidSetting("count", count, f"1 to {MOST_HOSTS} hosts")
        shapes = shape if isinstance(shape, Sequence) else [shape] * count
        if len(shapes) != count:
            raise InvalidSetting("shape", f"{len(shapes)} shapes", f"one, or {count}")
        # Names of our own: several may be at work on one machine.
        prefix = f"eris-{os.getpid()}-{secrets.token_hex(2)}"
        self.shapes = tuple(shapes)
        self.switch = f"{prefix}-switch"
        self.hosts = tuple(
            Namespace(f"{prefix}-h{number}", str(FIRST_ADDRESS + number), self.switch, f"p{number}")
            for number in range(count)
        )
        self._watcher: subprocess.Popen[bytes] | None = None

    def __len__(self) -> int:
        return len(self.hosts)

    def __getitem__(self, number: int) -> Namespace:
        return self.hosts[number]

    def __iter__(self) -> Iterator[Namespace]:
        return iter(self.hosts)

    def __enter__(self) -> Hosts:
        require_tools()
        names = [*(host.name for host in self.hosts), self.switch]
        # In a session of its own, so that what ends ours does not end it. It comes first: whatever
        # happens from here on is cleaned up.
        self._watcher = subprocess.Popen(
            ["sh", "-c", WATCHER, "watcher", *names],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End what runs on the hosts and remove them."""
        if self._watcher is not None:
            self._watcher.communicate()
            self._watcher = None

    def _build(self) -> None:
        self._add(self.switch)
        run("ip", "-n", self.switch, "link", "add", "switch", "address", SWITCH_MAC,
            "type", "bridge")  # fmt: skip
        run("ip", "-n", self.switch, "link", "set", "switch", "up")
        for host, shape in zip(self.hosts, self.shapes, strict=True):
            self._plug_in(host, shape)

    @staticmethod
    def _add(name: str) -> None:
        run("ip", "netns", "add", name)
        run("ip", "netns", "exec", name, "sh", "-c", SETTINGS)

    def _plug_in(self, host: Namespace, shaped: LinkShape | None) -> None:
        self._add(host.name)
        run("ip", "-n", self.switch, "link", "add", host.port, "type", "veth",
            "peer", "name", INTERFACE, "netns", host.name)  # fmt: skip
        run("ip", "-n", host.name, "address", "add", f"{host.address}/24", "dev", INTERFACE)
        run("ip", "-n", host.name, "link", "set", "lo", "up")
        run("ip", "-n", self.switch, "link", "set", host.port, "master", "switch", "up")
        run("ip", "-n", host.name, "link", "set", INTERFACE, "up")
        if shaped is not None:
            shape = ["root", *shaped.arguments()]
            run("tc", "-n", host.name, "qdisc", "add", "dev", INTERFACE, *shape)
            run("tc", "-n", self.switch, "qdisc", "add", "dev", host.port, *shape)

    # -- cuts -------------------------------------------------------------------------------------

    def cut(self, number: int) -> None:
        """Cut a host off: nothing goes in or out, and nobody is told."""
        # Out of the bridge, not down: a host whose link goes down is told so by its kernel, but a
        # cut in the middle of a network is silent.
        run("ip", "-n", self.switch, "link", "set", self.hosts[number].port, "nomaster")

    def heal(self, number: int) -> None:
        """Connect a host again that :meth:`cut` cut off."""
        run("ip", "-n", self.switch, "link", "set", self.hosts[number].port, "master", "switch")

    def cut_way(self, sender: int, receiver: int) -> None:
        """Lose whatever ``sender`` sends to ``receiver``; the other direction stays open."""
        # The frames go to the switch itself, which drops them.
        self._neighbour(sender, "replace", receiver, "lladdr", SWITCH_MAC, "nud", "permanent")

    def heal_way(self, sender: int, receiver: int) -> None:
        """Open a direction again that :meth:`cut_way` closed."""
        self._neighbour(sender, "delete", receiver)

    def _neighbour(self, sender: int, verb: str, receiver: int, *rest: str) -> None:
        host, address = self.hosts[sender], self.hosts[receiver].address
        run("ip", "-n", host.name, "neighbour", verb, address, "dev", INTERFACE, *rest)


def require_tools() -> None:
    """Refuse, saying what is missing, where namespaces cannot be made."""
    needed = ("ip", "tc", "sh", "xargs")
    missing = [tool for tool in needed if shutil.which(tool) is None]
    if missing:
        raise HostsUnavailable(f"{', '.join(missing)}: not found; install iproute2 (Linux only)")
    if os.geteuid() != 0:
        raise HostsUnavailable("network namespaces need root: run this as root (sudo)")


def run(*command: str) -> str:
    """Run a command and hand back what it prints; an error carries the command's own words."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = done.stderr.strip() or f"exit code {done.returncode}"
        raise HostsUnavailable(f"{' '.join(command)}: {said}")
    return done.stdout


def run_json(*command: str) -> Printed:
    """Run a command that prints a list as JSON."""
    found: Printed = json.loads(run(*command))
    return found
