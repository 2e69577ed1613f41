"""The bare exchange as a reference: how near gRPC with TLS comes to the limit, without us.

Starts a member (:mod:`benchmarks.hosts.exchange_node`) in every place and times its rounds.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.hosts.certificates import issue
from benchmarks.hosts.exchange_node import Task
from benchmarks.hosts.limits import BYTES
from benchmarks.hosts.places import Place, ended_at_last, environment, module

LINK_PIECE = 64 << 10
"""On a shaped link small pieces keep the last result's way to everybody short."""
LOOPBACK_PIECE = 1 << 20
"""Without a link a message's own cost counts."""


def exchange_round_times(
    places: Sequence[Place],
    parameters: int,
    aggregators: int,
    rounds: int,
    *,
    piece_bytes: int = LINK_PIECE,
) -> list[float]:
    """Seconds of each round: from the first member's start to the last one's last result."""
    rounds_run = exchange_rounds(places, parameters, aggregators, rounds, piece_bytes=piece_bytes)
    return [seconds for seconds, _ in rounds_run]


def exchange_rounds(
    places: Sequence[Place],
    parameters: int,
    aggregators: int,
    rounds: int,
    *,
    piece_bytes: int = LINK_PIECE,
) -> list[tuple[float, float]]:
    """Of each round its seconds, and when it was over everywhere (seconds since 1970)."""
    sizes = (len(places), aggregators, BYTES * parameters, piece_bytes)
    with tempfile.TemporaryDirectory() as folder:
        issue(Path(folder), [place.address for place in places])
        tasks = [Task(me, *sizes, place.address, folder) for me, place in enumerate(places)]
        members = [_start(place, task) for place, task in zip(places, tasks, strict=True)]
        with ended_at_last(members):
            ports = [answer["port"] for answer in _answers(members)]
            targets = [f"{p.address}:{port}" for p, port in zip(places, ports, strict=True)]
            _tell(members, json.dumps(targets))
            _answers(members)
            return [(_round(members), time.time()) for _ in range(rounds)]


def _start(place: Place, task: Task) -> subprocess.Popen[str]:
    command = place.command(module("exchange_node", json.dumps(asdict(task))))
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )


def _round(members: Sequence[subprocess.Popen[str]]) -> float:
    _tell(members, "go")
    times = _answers(members)
    _tell(members, "reset")
    _answers(members)
    return float(max(t["ended"] for t in times) - min(t["started"] for t in times))


def _tell(members: Sequence[subprocess.Popen[str]], what: str) -> None:
    for member in members:
        assert member.stdin is not None
        member.stdin.write(what + "\n")
        member.stdin.flush()


def _answers(members: Sequence[subprocess.Popen[str]]) -> list[dict[str, Any]]:
    """One line of each member, whichever is first."""
    found: list[dict[str, Any]] = []
    for number, member in enumerate(members):
        assert member.stdout is not None
        line = member.stdout.readline()
        if not line:
            assert member.stderr is not None
            said = member.stderr.read()[-2000:]
            raise SystemExit(f"member {number} of the bare exchange ended early:\n{said}")
        found.append(json.loads(line))
    return found
