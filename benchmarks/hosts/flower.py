"""Flower 1.41.0 on the same hosts: a SuperLink, a SuperNode a client, TLS; FedAvg or SecAgg+.

The SuperLink has the last host to itself. That a client is a process started for every message to
it is Flower's own way to run it, so its start counts; making the random arrays does not.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.hosts.certificates import Certificates, issue
from benchmarks.hosts.cpu import count_of_descendants
from benchmarks.hosts.places import Place, ended_at_last, environment
from benchmarks.peers.environments import FLOWER

FEDAVG, SECAGG = "flower_app", "flower_secagg_app"
"""Apps of ours: modules beside this one that run in Flower's environment."""
PORT = 8000
POLL_S, LOOK_S = 0.2, 1.0
MOST_PROCESSES = 8
"""Of a place. A client that does not come up in time is started again, and yet again: on two
starved cores a hundred of them have been seen, each too slow because of the others."""
START_S = 180.0
"""The SuperLink imports for seconds, and longer on a busy machine."""
PROJECT = """
[project]
name = "benchmark"
version = "1.0.0"
dependencies = []

[tool.flwr.app]
publisher = "benchmark"

[tool.flwr.app.components]
serverapp = "APP:server"
clientapp = "APP:client"

[tool.flwr.app.config]
"""


def flower_round_times(
    places: Sequence[Place], parameters: int, rounds: int, *, deadline_s: float
) -> list[float]:
    """Seconds of each round of FedAvg less training; all places but the last are clients."""
    wanted = {"parameters": parameters, "rounds": rounds}
    found = flower_report(places, FEDAVG, wanted, deadline_s=deadline_s)
    return [float(seconds) for seconds in found]


def flower_report(
    places: Sequence[Place], app: str, wanted: Mapping[str, int | str], *, deadline_s: float
) -> Any:
    """What an app of ours reports at its end; all places but the last are clients."""
    *clients, middle = places
    with tempfile.TemporaryDirectory() as name, ExitStack() as running:
        folder = Path(name)
        certificates = issue(folder, [middle.address, "127.0.0.1"])
        report = folder / "report.json"
        wanted = {**wanted, "clients": len(clients), "report": str(report)}
        project = write_app(folder / "app", wanted, app)
        home = write_connection(folder / "home", middle.address, certificates)
        started = _Processes(folder, home, running)
        started.run(middle, "superlink", superlink(middle.address, certificates))
        _wait_for_port(middle, started)
        for number, client in enumerate(clients):
            started.run(client, f"client{number}", supernode(middle.address, certificates))
        started.run(middle, "run", ["flwr", "run", str(project), "benchmark"], ends=True)
        began = time.monotonic()
        while not report.exists():
            started.check()
            if time.monotonic() - began > deadline_s:
                raise SystemExit(f"Flower took longer than {deadline_s:.0f} s\n{started.said()}")
            if count_of_descendants() > MOST_PROCESSES * len(places):
                raise SystemExit(
                    "Flower starts clients faster than they come up: too busy a machine"
                )
            time.sleep(LOOK_S)
        return json.loads(report.read_text(encoding="utf-8"))


def superlink(address: str, certificates: Certificates) -> list[str]:
    """The command of the server in the middle."""
    return [
        "flower-superlink", "--host", address, "--port", str(PORT),
        "--ssl-certfile", str(certificates.certificate),
        "--ssl-keyfile", str(certificates.key),
        "--ssl-ca-certfile", str(certificates.authority),
        # It would install the app's requirements anew, from the network.
        "--disable-runtime-dependency-installation",
    ]  # fmt: skip


def supernode(address: str, certificates: Certificates) -> list[str]:
    """The command of a client's node."""
    return [
        "flower-supernode", "--superlink", f"{address}:{PORT}",
        "--root-certificates", str(certificates.authority),
    ]  # fmt: skip


def write_app(folder: Path, config: Mapping[str, int | str], app: str = FEDAVG) -> Path:
    """An app as a project of its own, with what it is to do."""
    folder.mkdir()
    shutil.copy(Path(__file__).with_name(f"{app}.py"), folder)
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in config.items())
    project = PROJECT.replace("APP:", f"{app}:") + lines
    (folder / "pyproject.toml").write_text(project, encoding="utf-8")
    return folder


def write_connection(home: Path, address: str, certificates: Certificates) -> Path:
    """Flower's own folder, so that the user's is neither read nor written."""
    home.mkdir()
    trusted = json.dumps(str(certificates.authority))
    connection = f'address = "{address}:{PORT}"\nroot-certificates = {trusted}\n'
    (home / "config.toml").write_text(f"[superlink.benchmark]\n{connection}", encoding="utf-8")
    return home


class _Processes:
    """Flower's processes, each with a log, ended when the measurement is over."""

    def __init__(self, folder: Path, home: Path, running: ExitStack) -> None:
        self._folder, self._running = folder, running
        self._lasting: dict[str, subprocess.Popen[str]] = {}
        binaries = str(FLOWER.python.parent)
        self._environment = environment({
            "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
            "FLWR_HOME": str(home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "PYTHONPATH": "",
        })  # fmt: skip

    def run(self, place: Place, name: str, command: Sequence[str], ends: bool = False) -> None:
        """Start a command in its place; if it is one that ends, wait until it has."""
        log = (self._folder / f"{name}.log").open("w", encoding="utf-8")
        self._running.enter_context(log)
        process = subprocess.Popen(
            place.command(command), stdin=subprocess.DEVNULL, stdout=log,
            stderr=subprocess.STDOUT, text=True, env=self._environment, cwd=self._folder,
        )  # fmt: skip
        self._running.enter_context(ended_at_last([process]))
        if not ends:
            self._lasting[name] = process
        elif process.wait():
            raise SystemExit(f"Flower's {name} failed\n{self.said()}")

    def check(self) -> None:
        """Stop if a process ended that should go on."""
        for name, process in self._lasting.items():
            if process.poll() is not None:
                raise SystemExit(f"Flower's {name} ended early\n{self.said()}")

    def said(self) -> str:
        """The end of every log."""
        logs = sorted(self._folder.glob("*.log"))
        return "\n".join(f"{log.name}:\n{log.read_text(encoding='utf-8')[-1500:]}" for log in logs)


def _wait_for_port(place: Place, started: _Processes) -> None:
    """Until the SuperLink listens."""
    dial = f"import socket; socket.create_connection(({place.address!r}, {PORT}), 1).close()"
    began = time.monotonic()
    while subprocess.run(
        place.command([str(FLOWER.python), "-c", dial]), stderr=subprocess.DEVNULL
    ).returncode:
        started.check()
        if time.monotonic() - began > START_S:
            raise SystemExit(f"Flower's SuperLink does not listen\n{started.said()}")
        time.sleep(POLL_S)
