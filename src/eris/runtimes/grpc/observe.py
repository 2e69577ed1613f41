"""What a node shows over HTTP: ``/metrics`` for Prometheus, ``/health``, ``/ready``, ``/status``.

The node hands over a callable that tells its state. It is called in a thread, one call at a time;
as long as it answers soon the node is alive, so it should pass through the node's event loop.
Nothing here can change the node, and there is no update or model in what it shows.
"""

from __future__ import annotations

import errno
import json
import logging
import socket
import socketserver
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from eris.core.errors import ErisError
from eris.protocol.round.ending import Phase
from eris.runtimes.grpc.addresses import LOOPBACK, endpoint, everywhere, ip, written
from eris.runtimes.grpc.driver import Driver
from eris.runtimes.grpc.journal import plain
from eris.runtimes.grpc.logs import event
from eris.runtimes.grpc.threads import started

PATHS = ("/metrics", "/health", "/ready", "/status")
MOST_REQUESTS = 16
"""Requests at a time; others are turned away, so that they cannot use up threads."""
SLOWEST_REQUEST = 10.0
"""Seconds that a request may take to arrive."""
ANSWERED_WITHIN = 5.0
"""Seconds that somebody who asks a node waits."""
_LOGGER = logging.getLogger("eris.observe")
Status = Callable[[], Mapping[str, Any]]


@dataclass(frozen=True)
class NodeState:
    """A node's state at one moment; counts are since its start.

    ``peers_connected`` is how many members this node has a connection to;
    ``checkpoint_age_seconds`` is None before the first; ``training_seconds`` is how long the last
    update took, ``training_for_seconds`` how long the one under way has taken.
    ``left_out_alone`` has, by owner, the most rounds in which it alone left out one client that
    most other owners included. A node is ``ready``
    once it is a member with a view and has caught up, and as long as its training works; otherwise
    ``reason`` says what is missing. ``evaluated`` is what the trainer last said of the model;
    nothing where there is noise, for it tells of the node's own data. The last four are None where
    there is no noise.
    """

    name: str = ""
    phase: str = "starting"
    ready: bool = False
    reason: str = "starting"
    round: int = 0
    epoch: int = 0
    members: int = 0
    peers_connected: int = 0
    bytes_sent: Mapping[str, int] = field(default_factory=dict)
    bytes_received: Mapping[str, int] = field(default_factory=dict)
    queue_bytes: Mapping[str, int] = field(default_factory=dict)
    messages_refused: int = 0
    contributions_left_out: int = 0
    results_applied: int = 0
    shares_mixed: int = 0
    shares_missed: int = 0
    shares_late: int = 0
    training_failures: int = 0
    keys_refused: int = 0
    left_out_alone: Mapping[str, int] = field(default_factory=dict)
    checkpoint_age_seconds: float | None = None
    training_seconds: float = 0.0
    training_for_seconds: float = 0.0
    evaluated: Mapping[str, float] = field(default_factory=dict)
    epsilon_readers: float | None = None
    epsilon_openers: float | None = None
    privacy_rounds_left: int | None = None
    noise_off: float | None = None

    def mapping(self) -> dict[str, Any]:
        """As a status."""
        return asdict(self)


def shown(
    driver: Driver, name: str, address: str, reason: str = "", saved_at: float | None = None
) -> dict[str, Any]:
    """The status of a node that has begun; ``reason`` is what it waits for beside its training."""
    now = time.monotonic()
    member, health, counters = driver.member, driver.health, driver.transport.counters
    view = member.agreement.view
    behind = member.phase is Phase.CATCHING_UP
    problem = "catching up with the others" if behind else driver.problem(now)
    seen = NodeState(
        name=name,
        phase=member.phase.value,
        ready=not problem and (driver.complete.is_set() or not member.exhausted),
        reason=problem or reason,
        round=member.round,
        epoch=member.view.epoch,
        members=len(view.roles),
        peers_connected=sum(counter.connected for counter in counters.values()),
        bytes_sent={peer: counter.sent_bytes for peer, counter in counters.items()},
        bytes_received={peer: counter.received_bytes for peer, counter in counters.items()},
        queue_bytes={peer: counter.queued_bytes for peer, counter in counters.items()},
        messages_refused=member.refused.count_of_all,
        training_failures=health.failures,
        checkpoint_age_seconds=None if saved_at is None else now - saved_at,
        training_seconds=driver.training_seconds,
        training_for_seconds=health.training_for(now),
        evaluated=driver.evaluated(),
        **driver.figures(),
    )
    owners = [view.members[owner] if owner >= 0 else None for owner in view.owners]
    return {
        **seen.mapping(),
        "address": address,
        "rounds": member.rounds,
        "owners": owners,
        "connected": sorted(peer for peer, counter in counters.items() if counter.connected),
        "refused": list(member.refused)[-5:],
        "left_out": [],
        **driver.besides(),
    }


GAUGES = {
    "round": "The round this node is in.",
    "epoch": "The epoch of the view it goes by.",
    "members": "Members of that view.",
    "peers_connected": "Members it has a connection to.",
    "checkpoint_age_seconds": "Seconds since the last checkpoint.",
    "training_seconds": "Seconds that the last update took.",
    "training_for_seconds": "Seconds that the update under way has taken.",
    "epsilon_readers": "ε that this node's data has cost so far, towards readers of results.",
    "epsilon_openers": "The same towards an owner that its helpers open contributions for.",
    "noise_off": "Standard deviations by which the size of the last sum's noise is off.",
    "privacy_rounds_left": "Rounds for which the budget of this node's data is enough.",
}
COUNTERS = {
    "messages_refused": "Messages of peers that were refused, and refusals of own contributions.",
    "contributions_left_out": "Contributions that no result of this node includes.",
    "results_applied": "Results applied to the model.",
    "shares_mixed": "Shares of neighbours mixed into the model, where members gossip.",
    "shares_missed": "Shares of neighbours that were not there at their deadline.",
    "shares_late": "Shares of neighbours that came after it.",
    "training_failures": "Times that training gave no update.",
    "keys_refused": "Key statements of members that this node did not believe.",
}
BY_PEER: dict[str, tuple[type[CounterMetricFamily] | type[GaugeMetricFamily], str]] = {
    "bytes_sent": (CounterMetricFamily, "Bytes sent to a peer."),
    "bytes_received": (CounterMetricFamily, "Bytes received from a peer."),
    "queue_bytes": (GaugeMetricFamily, "Bytes that wait to be sent to a peer."),
    "left_out_alone": (
        GaugeMetricFamily,
        "Most rounds in which an owner alone left out one client.",
    ),
}


@dataclass(frozen=True, eq=False)
class _Metrics(Collector):
    """A status as Prometheus has it; names begin with ``eris_``."""

    status: Mapping[str, Any]

    def collect(self) -> Iterator[Metric]:
        for name, doc in GAUGES.items():
            if (value := self.status[name]) is not None:
                yield GaugeMetricFamily(f"eris_{name}", doc, value=value)
        for name, doc in COUNTERS.items():
            yield CounterMetricFamily(f"eris_{name}", doc, value=self.status[name])
        for name, (kind, doc) in BY_PEER.items():
            family = kind(f"eris_{name}", doc, labels=["peer"])
            for peer, value in sorted(self.status[name].items()):
                family.add_metric([peer], value)
            yield family
        phase = GaugeMetricFamily("eris_phase", "1 for what this node is doing.", labels=["phase"])
        phase.add_metric([self.status["phase"]], 1)
        yield phase


class StatusServer:
    """Serves a node's state; ``status`` tells it, ``patience`` is how many seconds it may take.

    >>> server = StatusServer(":0", NodeState(phase="training").mapping)
    >>> port = server.start()
    >>> from urllib.request import urlopen
    >>> json.load(urlopen(f"http://127.0.0.1:{port}/status"))["phase"]
    'training'
    >>> server.stop()
    """

    def __init__(self, http: str, status: Status, *, patience: float = 5.0) -> None:
        self.host, self.port = endpoint(http, "observe.http", host=LOOPBACK, any_port=True)
        self.patience = patience
        self._status = status
        self._asking = threading.Lock()
        self._answer: Future[Mapping[str, Any]] | None = None
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> int:
        """Serve in a thread of its own; the port, also where 0 was asked for."""
        try:
            self._server = _Server(self, self.host, self.port)
        except OSError as failed:
            raise ErisError(self._why(failed)) from None
        port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="eris-observe", daemon=True
        )
        self._thread.start()
        where = written(self.host, port)
        event(_LOGGER, logging.INFO, "serving metrics and health", at=where)
        found = ip(str(self._server.server_address[0]))
        if found is None or not found.is_loopback:
            warning = "metrics and status can be read by whoever reaches this address"
            event(_LOGGER, logging.WARNING, warning, at=where)
        return port

    def stop(self) -> None:
        """Stop serving; nothing happens if it never began."""
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
            self._server = self._thread = None

    def _why(self, failed: OSError) -> str:
        where = f"observe.http: cannot listen at {written(self.host, self.port)}"
        reasons = {
            errno.EADDRINUSE: "another program uses this port; stop it or choose another port",
            errno.EADDRNOTAVAIL: "this machine has no such address",
            errno.EACCES: "not allowed; ports below 1024 need a privilege",
        }
        if isinstance(failed, socket.gaierror):
            return f"{where}: the host name is not known ({failed.strerror})"
        return f"{where}: {reasons.get(failed.errno or 0, failed.strerror)}"

    def ask(self) -> Mapping[str, Any]:
        """The node's status, or an :class:`ErisError` if it does not tell it in time."""
        with self._asking:
            # One call at a time: a node that hangs must not cost a thread for every request.
            if self._answer is None or self._answer.done():
                self._answer = started("eris-status", self._status)
            answer = self._answer
        try:
            return answer.result(self.patience)
        except TimeoutError:
            raise ErisError(f"the node has not answered for {self.patience:g} s") from None
        except Exception as failed:
            raise ErisError(
                f"the node's status failed: {type(failed).__name__}: {failed}"
            ) from None

    def answer(self, path: str) -> tuple[int, str, bytes]:
        """Status code, content type and body for a path."""
        if path not in PATHS:
            return 404, "text/plain; charset=utf-8", f"try {', '.join(PATHS)}\n".encode()
        try:
            status = self.ask()
            if path == "/status":
                body = json.dumps(plain(status), indent=2).encode() + b"\n"
                return 200, "application/json", body
            seen = {**NodeState().mapping(), **status}  # what it leaves out is as at the start
            if path == "/metrics":
                return 200, CONTENT_TYPE_PLAIN_0_0_4, generate_latest(_Metrics(seen))
        except ErisError as failed:
            return 503, "text/plain; charset=utf-8", f"{failed}\n".encode()
        except Exception as failed:  # the node's status is not what it should be
            reason = f"the node's status cannot be shown: {type(failed).__name__}: {failed}\n"
            return 503, "text/plain; charset=utf-8", reason.encode()
        if path == "/ready" and not seen["ready"]:
            return 503, "text/plain; charset=utf-8", f"not ready: {seen['reason']}\n".encode()
        word = b"ready\n" if path == "/ready" else b"alive\n"
        return 200, "text/plain; charset=utf-8", word


def node_status(http: str) -> dict[str, Any]:
    """What a node says of itself at its ``observe.http``."""
    host, port = endpoint(http, "observe.http", host=LOOPBACK)
    where = written(LOOPBACK if everywhere(host) else host, port)
    try:
        with urllib.request.urlopen(f"http://{where}/status", timeout=ANSWERED_WITHIN) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
    except (OSError, ValueError) as failed:
        reason = failed.reason if isinstance(failed, urllib.error.URLError) else failed
        raise ErisError(f"the node does not answer at {where}: {reason}; is it running?") from None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 2 * MOST_REQUESTS
    # A second node at the same port is a mistake to be told, on every platform.
    allow_reuse_port = False

    def __init__(self, owner: StatusServer, host: str, port: int) -> None:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        self.address_family = found[0][0]
        self.owner = owner
        self._free = threading.Semaphore(MOST_REQUESTS)
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        """Without http.server's look-up of this machine's name, which may take long."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        """In a thread, if one is free."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Give the thread back when done."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""
        event(_LOGGER, logging.DEBUG, "request broke off", client=client_address[0])


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version, sys_version = "eris", ""
    timeout = SLOWEST_REQUEST

    def do_GET(self) -> None:
        """Answer one request."""
        code, kind, body = self.server.owner.answer(self.path.partition("?")[0])
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are logged for those who look for them."""
        event(_LOGGER, logging.DEBUG, "request", client=self.client_address[0], line=format % args)
