"""What a node holds beyond the model's own vectors: ``python benchmarks/memory.py``.

Real nodes over loopback with TLS, dense updates that are ready at once; the peak of each process's
resident memory over two rounds, less that of a node with a tiny model (the interpreter and its
libraries) and less the vectors any training has: the model, the copy that is trained on, and the
update. What is left is what taking part costs: segments in flight, queues, gRPC's windows.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.hosts.eris_nodes import NodesFailed, prepared
from benchmarks.hosts.places import Loopback
from rich.console import Console
from rich.table import Table

VECTORS = 3
"""Of the model's size: the model, the trainer's copy, the update."""
MIB = 1 << 20


def peak(pid: int) -> int:
    """The largest resident memory of a process so far, in bytes; 0 if it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()
    except OSError:
        return 0
    found = [line.split()[1] for line in lines if line.startswith("VmHWM")]
    return int(found[0]) * 1024 if found else 0


def largest(parameters: int, members: int, rounds: int = 2) -> int:
    """The largest peak among the nodes of a federation."""
    with tempfile.TemporaryDirectory(prefix="eris-memory-") as folder:
        places = [Loopback()] * members
        federation = prepared(Path(folder) / "nodes", places, parameters, members, rounds)
        with federation:
            for name in federation.names:
                federation.start(name)
            peaks = dict.fromkeys(federation.names, 0)
            while any(federation.running(name) for name in federation.names):
                for name in federation.names:
                    peaks[name] = max(peaks[name], peak(federation.processes[name].pid))
                time.sleep(0.05)
            for name in federation.names:
                if federation.processes[name].returncode:
                    raise NodesFailed(f"{name} failed:\n{federation.log(name)}")
            return max(peaks.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--largest", type=float, default=1e8, help="largest model, in parameters")
    sizes = [n for n in (10**6, 10**7, 10**8) if n <= parser.parse_args().largest]
    table = Table("n", "A", "vectors, MiB", "peak, MiB", "beyond, MiB", "beyond ÷ model")
    figures: dict[str, float] = {}
    bare = {members: largest(1000, members) for members in (4, 8)}
    for n in sizes:
        for members in (4, 8):
            found, model = largest(n, members), 4 * n
            beyond = found - bare[members] - VECTORS * model
            table.add_row(f"10^{len(str(n)) - 1}", str(members), f"{VECTORS * model / MIB:,.0f}",
                          f"{found / MIB:,.0f}", f"{beyond / MIB:,.0f}",
                          f"{beyond / model:.2f}")  # fmt: skip
            figures[f"beyond_mib_n{n}_a{members}"] = round(beyond / MIB, 1)
    console = Console()
    console.print(table)
    base = {members: f"{value / MIB:.0f} MiB" for members, value in bare.items()}
    console.print(f"A node with a model of 1,000 parameters: {base}")
    print(json.dumps({"benchmark": "memory", "figures": figures}))


if __name__ == "__main__":
    main()
