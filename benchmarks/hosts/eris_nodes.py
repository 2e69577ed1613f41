"""Real nodes of this package, in the places they are given: seconds of a round.

A node is started in each place with a trainer that returns a random update at once, so that a round
is its messages; the times come from the nodes' journals.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.hosts.places import ROOT, Place

from eris.core.errors import ErisError
from eris.experiments.federations.processes import LocalFederation

PATIENCE = 600.0
POLL_S = 0.1
KILLED_IN = 3
IMPATIENT = {
    "federation.close_after": 10.0,
    "federation.catch_up_after": 12.0,
    "membership.lease": 5.0,
}
"""Where nodes are killed, the others are not to wait for minutes."""


class NodesFailed(ErisError):
    """A node did not end well; says which, and the end of its log."""


def eris_round_times(
    hosts: Sequence[Place],
    parameters: int,
    aggregators: int,
    kept_fraction: float | None,
    rounds: int,
) -> list[float]:
    """Seconds of each round: from the last member's last result of one round to that of the next.

    ``kept_fraction`` is DSC's p, None for dense updates. Everything is stopped before it returns.
    """
    charter = {} if kept_fraction is None else {"kept_fraction": kept_fraction}
    ends = eris_round_ends(hosts, parameters, aggregators, rounds, charter)
    return [after - before for before, after in pairwise(ends)]


def eris_round_ends(
    hosts: Sequence[Place],
    parameters: int,
    aggregators: int,
    rounds: int,
    charter: Mapping[str, Any],
    *,
    killed: int = 0,
) -> list[float]:
    """When round 1 began and when each round ended, in seconds since 1970.

    ``charter`` are further words of ``[federation]``, the same at all nodes. The last ``killed``
    nodes are killed early in round :data:`KILLED_IN`; the others go on, and it is they who count.
    """
    with tempfile.TemporaryDirectory(prefix="eris-bench-") as folder:
        values = {f"federation.{word}": value for word, value in charter.items()}
        if "epsilon" in charter:
            values["privacy.data"] = "random"
        if killed:
            values |= IMPATIENT
        federation = prepared(Path(folder) / "nodes", hosts, parameters, aggregators, rounds,
                              values)  # fmt: skip
        with federation:
            for name, host in zip(federation.names, hosts, strict=True):
                federation.start(name, prefix=host.command([]))
            staying = federation.names[: len(hosts) - killed]
            if killed:
                _wait_for_round(federation, KILLED_IN)
                for name in federation.names[len(staying) :]:
                    federation.kill(name)
            for name in staying:
                if federation.processes[name].wait(PATIENCE):
                    raise NodesFailed(f"{name} failed:\n{federation.log(name)}")
            return round_ends(federation, staying, rounds, whole=not killed)


def _wait_for_round(federation: LocalFederation, round: int) -> None:
    """Until the first node has begun a round."""
    first = federation.names[0]
    while not any(line["round"] >= round for line in federation.events(first, "began")):
        if not federation.running(first):
            raise NodesFailed(f"{first} ended early:\n{federation.log(first)}")
        time.sleep(POLL_S)


def prepared(
    folder: Path,
    hosts: Sequence[Place],
    parameters: int,
    aggregators: int,
    rounds: int,
    more: Mapping[str, Any] | None = None,
) -> LocalFederation:
    """Nodes that are ready to be started; the first ``aggregators`` own one shard each.

    ``more`` are further settings of all nodes, by their keys.
    """
    names = [f"node-{number}" for number in range(len(hosts))]
    values = {
        "federation.rounds": rounds,
        "federation.shards": aggregators,
        "training.trainer": "noise:make",
        "node.linger": 2.0,
        # A link may be busy for long with one round: nobody is to lose patience.
        "federation.close_after": 120.0,
        "federation.catch_up_after": 150.0,
        "membership.lease": 60.0,
        "checkpoint.every_seconds": 3600.0,
        **(more or {}),
    }
    own = {
        name: {
            "training.options": {"parameters": parameters, "seed": number},
            "node.aggregator": number < aggregators,
        }
        for number, name in enumerate(names)
    }
    federation = LocalFederation(folder, names, values, own, [host.address for host in hosts])
    for name in names:
        shutil.copy(ROOT / "benchmarks" / "hosts" / "noise.py", folder / name)
    return federation


def round_ends(
    federation: LocalFederation, names: Sequence[str], rounds: int, *, whole: bool
) -> list[float]:
    """When the slowest of some members was through with each round.

    ``whole``: refuse rounds that are not of everyone.
    """
    began: dict[int, list[float]] = {}
    for name in names:
        for line in federation.journal(name):
            if line["event"] in ("began", "done"):
                when = datetime.fromisoformat(line["time"]).timestamp()
                began.setdefault(line["round"], []).append(when)
            if whole and line["event"] == "round" and line["included"] < 1:
                raise NodesFailed(f"{name}: round {line['round']} was not whole: {line}")
    return [max(began[number]) for number in range(1, rounds + 2)]


def main() -> None:
    """Try it over loopback: four nodes, a model of 10 MB."""
    from benchmarks.hosts.places import Loopback

    times = eris_round_times([Loopback()] * 4, 2_500_000, 4, None, 8)
    print([round(one, 3) for one in times], "median", round(statistics.median(times[1:]), 3))


if __name__ == "__main__":
    main()
