"""gloo's reduce-scatter and all-gather over loopback: ``python -m benchmarks.hosts.gloo TASK``.

What a cluster's library does for the same exchange, without TLS and without members that fail. Run
as a program it is one member.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.hosts.places import ended_at_last, environment, module


def gloo_round_times(members: int, parameters: int, rounds: int) -> list[float]:
    """Seconds of each round: the slowest member's."""
    padded = -(-parameters // members) * members
    with tempfile.TemporaryDirectory() as folder:
        task = {"members": members, "parameters": padded, "rounds": rounds}
        task["store"] = str(Path(folder) / "store")  # type: ignore[assignment]
        started = [
            subprocess.Popen(
                module("gloo", json.dumps({**task, "me": me})),
                stdout=subprocess.PIPE,
                text=True,
                env=environment({"GLOO_SOCKET_IFNAME": "lo"}),
            )
            for me in range(members)
        ]
        with ended_at_last(started):
            said = [process.communicate()[0] for process in started]
    times = [json.loads(lines) for lines in said if lines]
    if len(times) != members:
        raise SystemExit(f"{members - len(times)} members of the gloo exchange ended early")
    return [max(each) for each in zip(*times, strict=True)]


def member(me: int, members: int, parameters: int, rounds: int, store: str) -> list[float]:
    """One member: seconds of each round, from a barrier to having the whole mean."""
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    where = f"file://{store}"
    distributed.init_process_group("gloo", init_method=where, rank=me, world_size=members)
    update = torch.rand(parameters, generator=torch.Generator().manual_seed(me))
    shard, model = torch.empty(parameters // members), torch.empty(parameters)
    times = []
    for _ in range(rounds):
        distributed.barrier()
        started = time.monotonic()
        distributed.reduce_scatter_single(shard, update)
        distributed.all_gather_single(model, shard)
        times.append(time.monotonic() - started)
    # With uniform values the mean of the sum is members/2: nobody is fast by doing less.
    found = float(model.double().mean())
    if abs(found - members / 2) > 0.1:
        raise SystemExit(f"gloo's sum has mean {found:.3f}; expected {members / 2}")
    distributed.destroy_process_group()
    return times


if __name__ == "__main__":
    sys.stdout.write(json.dumps(member(**json.loads(sys.argv[1]))) + "\n")
