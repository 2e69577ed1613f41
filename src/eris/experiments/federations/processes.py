"""A federation of real node processes on this machine: certificates, settings, starting, killing.

What ``eris local`` and the demonstration use, and the tests of real processes. Every node is its
own process with its own folder, certificate and port; nothing is shared but the directory that one
of them hosts.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from eris.core.compress import RandP
from eris.core.errors import DataUnavailable, ErisError, InvalidSetting, one_of
from eris.core.vectors import Vector
from eris.data import ImageData, fetch, iid, load_mnist
from eris.data.outputs import check_folder
from eris.experiments.runs import marks
from eris.methods.detrust import DeTrustFL
from eris.methods.eris import ERIS
from eris.methods.registry import create
from eris.methods.sefl import SEFL
from eris.model_file import read_model
from eris.protocol.enccluster.paillier import PaillierPair
from eris.protocol.gossip.peer import GossipSettings
from eris.protocol.secure.noise_terms import check_batches
from eris.runtimes.grpc import clients_key, journal, storage
from eris.runtimes.grpc.addresses import LOOPBACK, endpoint
from eris.runtimes.grpc.authority import write_ledger
from eris.runtimes.grpc.sections import OF_ERIS, FederationTable
from eris.runtimes.grpc.settings import NodeSettings, usual_secure_sums
from eris.runtimes.grpc.tls import create_authority, issue
from eris.tables import parsed

QUICK: Mapping[str, Any] = {
    "membership.lease": 3.0,
    "federation.close_after": 2.0,
    "federation.catch_up_after": 3.0,
    "federation.retry_every": 0.5,
    "checkpoint.every_seconds": 2.0,
    "training.slow_after": 20.0,
    "training.most_failures": 3,
}
"""Times that suit nodes on one machine, where nothing takes long."""
ENCRYPTING: Mapping[str, Any] = {
    "membership.lease": 15.0,
    "federation.close_after": 60.0,
    "federation.catch_up_after": 75.0,
}
"""Other times for methods that encrypt a model weight by weight: all nodes of a machine at it."""
LOCAL, SERVER = "eris local", "server"
MNIST = "eris.experiments.federations.learners:mnist"
"""The trainer that needs no code of the user's."""


class LocalFederation:
    """Node processes in folders of their own under ``folder``.

    The first member hosts the directory. ``values`` are settings of all nodes by their keys, such
    as "federation.rounds"; ``own`` those of single nodes, by name. ``addresses`` are the hosts they
    listen at, where that is not this machine's loopback. ``maker`` is the command that may remove
    the folder again (:mod:`eris.experiments.runs.marks`).
    """

    def __init__(
        self,
        folder: Path,
        names: Sequence[str],
        values: Mapping[str, Any],
        own: Mapping[str, Mapping[str, Any]] | None = None,
        addresses: Sequence[str] | None = None,
        maker: str = LOCAL,
    ) -> None:
        self.folder, self.names = Path(folder), list(names)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        self.addresses = dict(zip(names, addresses or [LOOPBACK] * len(names), strict=True))
        self._prepare(values, own or {})
        marks.mark(self.folder, maker)

    def _prepare(self, values: Mapping[str, Any], own: Mapping[str, Mapping[str, Any]]) -> None:
        check_place(self.folder)
        authority, host = self.folder / "ca", self.names[0]
        create_authority(authority, "local")
        values, key = _with_key(values)
        for name in self.names:
            place = self.folder / name
            issue(authority, name, hosts=[self.addresses[name]], out=place)
            chosen: dict[str, Any] = {
                "node.listen": f"{self.addresses[name]}:{self.ports[name]}",
                "membership.start_with": len(self.names),
                "federation.name": "local",
                **values,
                **own.get(name, {}),
            }
            if "membership.roster" not in chosen:
                if name == host:
                    chosen["membership.host_directory"] = True
                else:
                    chosen["membership.directory"] = f"{self.addresses[host]}:{self.ports[host]}"
                    chosen["membership.directory_name"] = host
            if key is not None and chosen.get("node.client", True):
                chosen["tls.clients_key"] = clients_key.CLIENTS_KEY
                clients_key.write(place / clients_key.CLIENTS_KEY, key)
            text = NodeSettings.template(name, chosen)
            (place / "node.toml").write_text(text, encoding="utf-8")
            (place / "state").mkdir()
            write_ledger(place / "state", 0)

    # -- processes ----------------------------------------------------------------------------

    def start(self, name: str, *, prefix: Sequence[str] = ()) -> None:
        """Start a node; ``prefix`` is a command to run it under."""
        if self.running(name):
            raise ErisError(f"{name} is running already")
        place = self.folder / name
        threads = dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
        command = [*prefix, sys.executable, "-m", "eris.cli.main", "node", "start"]
        with (place / "log.txt").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [*command, str(place / "node.toml")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **threads},
                start_new_session=True,
            )

    def kill(self, name: str) -> None:
        """End a node as a crash does, at once."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def stop(self, name: str, patience: float = 30.0) -> int:
        """Ask a node to end, and wait until it has."""
        process = self.processes.pop(name)
        process.terminate()
        code = _ended(process, patience)
        if code is None:
            raise ErisError(f"node {name} did not stop within {patience:g} s; killed")
        return code

    def running(self, name: str) -> bool:
        """Whether a node's process is there."""
        process = self.processes.get(name)
        return process is not None and process.poll() is None

    def exit_code(self, name: str) -> int | None:
        """How a node's process ended by itself: 0 is well, below 0 a signal; None if it did not."""
        process = self.processes.get(name)
        return None if process is None else process.poll()

    def close(self) -> None:
        """End all nodes: politely, then for sure."""
        with ExitStack() as stack:
            for process in self.processes.values():
                if process.poll() is None:
                    process.terminate()
                    stack.callback(_ended, process, 15)
        self.processes.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- reading ------------------------------------------------------------------------------

    def settings(self, name: str) -> NodeSettings:
        """A node's settings as it reads them."""
        return NodeSettings.load(self.folder / name / "node.toml")

    def journal_path(self, name: str) -> Path:
        """Where a node notes what happens."""
        return self.folder / name / "state" / "journal.jsonl"

    def journal(self, name: str) -> list[dict[str, Any]]:
        """What a node has noted so far."""
        path = self.journal_path(name)
        return list(journal.read(path)) if path.exists() else []

    def journals(self) -> dict[str, list[dict[str, Any]]]:
        """What all nodes have noted."""
        return {name: self.journal(name) for name in self.names}

    def events(self, name: str, event: str) -> Iterator[dict[str, Any]]:
        """Notes of one kind."""
        return (line for line in self.journal(name) if line["event"] == event)

    def model(self, name: str) -> Vector | None:
        """The model that a node ended with."""
        path = self.folder / name / "state" / storage.MODEL
        return read_model(path) if path.exists() else None

    def log(self, name: str, lines: int = 20) -> str:
        """The end of a node's log."""
        path = self.folder / name / "log.txt"
        text = path.read_text("utf-8", errors="replace") if path.exists() else ""
        return "\n".join(text.splitlines()[-lines:])


def _ended(process: subprocess.Popen[bytes], patience: float) -> int | None:
    """How a process ended that was asked to; None if it had to be killed."""
    try:
        return process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None


def federation_values(
    members: int, *, rounds: int, kept: float, learning_rate: float, seed: int, trainer: str,
    method: Mapping[str, Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Settings of nodes on one machine; all coordinates travel if ``kept`` is 1.

    ``method`` are the settings of a method (:func:`method_values`), if it is not eris with what is
    kept.
    """
    RandP(kept)  # refuses what is no share before there is a folder
    values: dict[str, Any] = {
        **QUICK,
        "federation.rounds": rounds,
        "federation.seed": seed,
        "federation.rule_options": {"learning_rate": learning_rate},
        "training.trainer": trainer,
    }
    if METHOD not in (method or {}):
        values["federation.secure_sums"] = usual_secure_sums(members)
        if kept != 1 and "federation.compressor" not in (method or {}):
            values["federation.kept_fraction"] = kept
    elif (method or {})[METHOD] in (DeTrustFL.name, SEFL.name):
        values |= ENCRYPTING
    return values | dict(method or {})


METHOD, OPTIONS = "federation.method", "federation.method_options"
MANY = 1 << 20
"""Coordinates of a model that is not too small for any method."""


def _with_key(values: Mapping[str, Any]) -> tuple[Mapping[str, Any], PaillierPair | None]:
    """Settings with the public half of a key that is made here, where clients have one in common;
    and the key."""
    options = dict(values.get(OPTIONS, {}))
    if values.get(METHOD) != SEFL.name or "public_key" in options:
        return values, None
    key = clients_key.drawn(int(options.get("key_bits", SEFL.key_bits)))
    return {**values, OPTIONS: options | {"public_key": clients_key.public_key(key)}}, key


def method_values(method: str, given: Sequence[str]) -> dict[str, Any]:
    """A method and its settings, each ``KEY=VALUE``, by the keys of ``node.toml``.

    >>> method_values("fedavg-wc", ["clusters=16"])
    {'federation.method': 'fedavg-wc', 'federation.method_options': {'clusters': 16}}
    >>> method_values("eris", ["basis=rotated"])
    {'federation.basis': 'rotated'}
    """
    options = {}
    for one in given:
        key, equals, text = one.partition("=")
        if not equals or not key.strip():
            raise InvalidSetting("--set", one, "KEY=VALUE")
        options[key.strip()] = parsed(text.strip())
    if method != ERIS.name:
        return {METHOD: method, **({OPTIONS: options} if options else {})}
    for key in options:
        if key not in OF_ERIS:
            raise InvalidSetting("setting of eris", key, one_of(sorted(OF_ERIS), key))
    return {f"federation.{key}": value for key, value in options.items()}


def has_server(clients: int, method: Mapping[str, Any]) -> bool:
    """Whether a method of :func:`method_values` has one server; or why nodes cannot carry it."""
    if METHOD not in method:
        return False
    if method[METHOD] == SEFL.name:  # whose key is made with the folders
        made = create(SEFL.name, **method.get(OPTIONS, {}))
        return isinstance(made, SEFL) and made.compose(node_names(clients), [1] * clients).central
    words = {key.removeprefix("federation."): value for key, value in method.items()}
    table = FederationTable(name="local", rounds=1, **words)
    if (gossip := table.gossip()) is None:
        return table.parts(clients).central
    agreed = GossipSettings(MANY, max(2, clients), gossip.name, gossip.parameters)
    gossip.members(agreed, os.urandom)  # refuses too few for its graph
    return False


def role_values(server: bool) -> dict[str, Any]:
    """What the server of a method with one says of itself, or everybody else."""
    if server:
        return {"node.client": False, "node.aggregator": True, "node.max_share": 1.0}
    return {"node.aggregator": False}


def noise_values(
    members: int, epsilon: float, *, protects: str, clip: float, samples: int, kept: float,
    sampling_rate: float = 1.0,
) -> dict[str, Any]:  # fmt: skip
    """Settings for shared noise of nodes with so many samples each."""
    words: dict[str, Any] = {
        "epsilon": epsilon,
        "protects": protects,
        "clip": clip,
        "most_samples": samples,
    }
    FederationTable(name="local", rounds=1, **words)  # refuses before there is a folder
    if sampling_rate != 1:
        check_batches(sampling_rate, protects)
        words["sampling_rate"] = sampling_rate
    if usual_secure_sums(members) == "none":
        raise InvalidSetting("nodes", members, "at least 5: noise is shared in secure sums alone")
    values = {f"federation.{word}": value for word, value in words.items()}
    # Single samples are clipped without a reference.
    return values if kept == 1 else values | {"federation.basis": "rotated"}


def fetched_mnist(say: Callable[[str], None]) -> ImageData:
    """MNIST, which is fetched if it is not there."""
    try:
        return load_mnist()
    except DataUnavailable:
        fetch("mnist", progress=say)
        return load_mnist()


def mnist_shares(
    names: Sequence[str], samples: int, seed: int, say: Callable[[str], None], **options: Any
) -> dict[str, dict[str, Any]]:
    """The settings with which each node trains on its own share of MNIST, and a server on none."""
    data = fetched_mnist(say)
    iid(len(data.train_images), len(names), samples, seed)  # refuses more than there are
    say(f"{data.name} ({data.source})")
    shared = {"members": len(names), "samples": samples, "seed": seed, **options}
    # Ten thousand test images a round and node would take longer than their training.
    seldom = {"training.evaluate_every": 0}
    shares = {
        name: {"training.options": {"member": member, **shared}, **seldom}
        for member, name in enumerate(names)
    }
    return shares | {SERVER: {"training.options": shared, **seldom}}


def node_names(count: int) -> list[str]:
    """Names for nodes on one machine.

    >>> node_names(3)
    ['node-1', 'node-2', 'node-3']
    """
    return [f"node-{number}" for number in range(1, count + 1)]


def check_place(folder: Path, maker: str = LOCAL, *, fresh: bool = False) -> None:
    """Refuse a folder that is in use; ``fresh`` takes one that can be removed."""
    check_folder("--folder", folder)
    if fresh:
        marks.removable(folder, maker)
    elif folder.is_dir() and any(folder.iterdir()):
        way = ", or --fresh to remove it" if marks.is_marked(folder, LOCAL) else ""
        raise ErisError(f"{folder} is there already; give another --folder{way}")


def remove(folder: Path, maker: str) -> None:
    """Remove a federation that ``maker`` made, unless a node of it still runs."""
    for path in marks.removable(folder, maker):
        if path.name == "node.toml" and (port := _answers(path)):
            raise ErisError(
                f"{folder} is not removed: {path.parent.name} still runs there, or another program "
                f"listens at its port {port}; stop it, or give another --folder"
            )
    marks.remove(folder, maker)


def _answers(settings: Path) -> int | None:
    """The port of a node at which something listens."""
    try:
        address = endpoint(NodeSettings.load(settings, {}).address)
    except ErisError:  # settings that no node starts with
        return None
    with socket.socket() as dialling:
        return address[1] if dialling.connect_ex(address) == 0 else None


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
