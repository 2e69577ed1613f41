"""Real nodes of this package, in the places they are given: seconds of a round.

A node is started in each place with a trainer that returns a random update at once, so that a round
is its messages; the times come from the nodes' journals.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from benchmarks.hosts.places import ROOT, Place

from eris.core.errors import ErisError
from eris.experiments.federations.processes import LocalFederation

PATIENCE = 600.0


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
    with tempfile.TemporaryDirectory(prefix="eris-bench-") as folder:
        federation = prepared(Path(folder) / "nodes", hosts, parameters, aggregators,
                              kept_fraction, rounds)  # fmt: skip
        with federation:
            for name, host in zip(federation.names, hosts, strict=True):
                federation.start(name, prefix=host.command([]))
            for name in federation.names:
                if federation.processes[name].wait(PATIENCE):
                    raise NodesFailed(f"{name} failed:\n{federation.log(name)}")
            return round_times(federation, rounds)


def prepared(
    folder: Path,
    hosts: Sequence[Place],
    parameters: int,
    aggregators: int,
    kept_fraction: float | None,
    rounds: int,
) -> LocalFederation:
    """Nodes that are ready to be started; the first ``aggregators`` own one shard each."""
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
    }
    if kept_fraction is not None:
        values["federation.kept_fraction"] = kept_fraction
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


def round_times(federation: LocalFederation, rounds: int) -> list[float]:
    """When the slowest member was through with each round, one after another."""
    began: dict[int, list[float]] = {}
    for name in federation.names:
        for line in federation.journal(name):
            if line["event"] in ("began", "done"):
                when = datetime.fromisoformat(line["time"]).timestamp()
                began.setdefault(line["round"], []).append(when)
            if line["event"] == "round" and line["included"] < 1:
                raise NodesFailed(f"{name}: round {line['round']} was not whole: {line}")
    ends = [max(began[number]) for number in range(1, rounds + 2)]
    return [after - before for before, after in pairwise(ends)]


def main() -> None:
    """Try it over loopback: four nodes, a model of 10 MB."""
    from benchmarks.hosts.places import Loopback

    times = eris_round_times([Loopback()] * 4, 2_500_000, 4, None, 8)
    print([round(one, 3) for one in times], "median", round(statistics.median(times[1:]), 3))


if __name__ == "__main__":
    main()
