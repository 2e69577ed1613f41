"""What a node shows over HTTP, asked for with real requests."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from eris.core.errors import ErisError, InvalidSetting
from eris.runtimes.grpc.observe import MOST_REQUESTS, NodeState, Status, StatusServer

SEEN = NodeState(
    name="anna", phase="training", ready=True, round=7, epoch=2, members=5, peers_connected=4,
    bytes_sent={"ben": 1000, "cleo": 2000}, bytes_received={"ben": 30}, queue_bytes={"cleo": 5},
    messages_refused=3, contributions_left_out=2, results_applied=21,
    shares_mixed=8, shares_missed=6, shares_late=9, checkpoint_age_seconds=1.5,
    training_failures=4, keys_refused=1, training_for_seconds=12.5, training_seconds=0.25,
    left_out_alone={"ben": 3},
)  # fmt: skip


@contextmanager
def observed(status: Status, patience: float = 60.0, http: str = "127.0.0.1:0") -> Iterator[str]:
    observer = StatusServer(http, status, patience=patience)
    port = observer.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        observer.stop()


def ask(url: str) -> tuple[int, str, str]:
    """Code, content type and body."""
    try:
        with urlopen(url, timeout=60) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except HTTPError as refused:
        with refused:
            return refused.code, refused.headers["Content-Type"], refused.read().decode()


def samples(text: str) -> dict[str, float]:
    return {
        sample.name + "".join(f"{{{value}}}" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics_are_those_of_the_observation() -> None:
    with observed(SEEN.mapping) as url:
        code, kind, body = ask(f"{url}/metrics")
    assert code == 200
    assert kind.startswith("text/plain; version=0.0.4")
    assert samples(body) == {
        "eris_round": 7, "eris_epoch": 2, "eris_members": 5, "eris_peers_connected": 4,
        "eris_bytes_sent_total{ben}": 1000, "eris_bytes_sent_total{cleo}": 2000,
        "eris_bytes_received_total{ben}": 30, "eris_queue_bytes{cleo}": 5,
        "eris_messages_refused_total": 3, "eris_contributions_left_out_total": 2,
        "eris_results_applied_total": 21, "eris_checkpoint_age_seconds": 1.5,
        "eris_training_seconds": 0.25, "eris_training_for_seconds": 12.5,
        "eris_training_failures_total": 4, "eris_keys_refused_total": 1, "eris_phase{training}": 1,
        "eris_left_out_alone{ben}": 3, "eris_shares_mixed_total": 8,
        "eris_shares_missed_total": 6, "eris_shares_late_total": 9,
    }  # fmt: skip
    types = {family.name: family.type for family in text_string_to_metric_families(body)}
    assert types["eris_bytes_sent"] == "counter"
    assert types["eris_queue_bytes"] == "gauge"


def test_metrics_follow_the_node_and_leave_out_what_is_not_known() -> None:
    state: dict[str, Any] = {}
    with observed(lambda: state) as url:
        first = samples(ask(f"{url}/metrics")[2])
        assert first["eris_round"] == 0
        assert "eris_checkpoint_age_seconds" not in first
        state |= {"round": 8, "phase": "waiting", "bytes_sent": {'a"b\n': 1}}
        second = samples(ask(f"{url}/metrics")[2])
    assert second["eris_round"] == 8
    assert second['eris_bytes_sent_total{a"b\n}'] == 1
    assert {name for name in second if name.startswith("eris_phase")} == {"eris_phase{waiting}"}


def test_ready_once_it_has_caught_up_and_says_what_it_waits_for() -> None:
    state: dict[str, Any] = {"ready": False, "reason": "round 3 of 7 is missing"}
    with observed(lambda: state) as url:
        code, _, body = ask(f"{url}/ready")
        assert (code, body) == (503, "not ready: round 3 of 7 is missing\n")
        assert ask(f"{url}/health")[0] == 200
        state["ready"] = True
        assert ask(f"{url}/ready?verbose") == (200, "text/plain; charset=utf-8", "ready\n")


def test_status_is_all_that_the_node_tells() -> None:
    state: Mapping[str, Any] = SEEN.mapping() | {"owners": ("anna", "ben"), "mine": {2, 0}}
    with observed(lambda: state) as url:
        code, kind, body = ask(f"{url}/status")
    assert (code, kind) == (200, "application/json")
    assert json.loads(body) == SEEN.mapping() | {"owners": ["anna", "ben"], "mine": [0, 2]}


def test_a_node_that_hangs_is_not_alive_and_costs_one_thread() -> None:
    hangs, goes_on = threading.Event(), threading.Event()
    goes_on.set()
    calls: list[int] = []

    def status() -> Mapping[str, Any]:
        calls.append(1)
        if hangs.is_set():
            goes_on.wait()
        return SEEN.mapping()

    observer = StatusServer(":0", status, patience=60.0)
    url = f"http://127.0.0.1:{observer.start()}"
    try:
        assert ask(f"{url}/health") == (200, "text/plain; charset=utf-8", "alive\n")
        goes_on.clear()
        hangs.set()
        observer.patience = 0.01
        for path in ("/health", "/ready", "/metrics", "/status", "/health"):
            code, _, body = ask(url + path)
            assert (code, body) == (503, "the node has not answered for 0.01 s\n")
        assert len(calls) == 2
        observer.patience = 60.0
        goes_on.set()
        assert ask(f"{url}/health")[0] == 200
    finally:
        goes_on.set()
        observer.stop()


def test_a_status_that_fails_is_told() -> None:
    def status() -> Mapping[str, Any]:
        raise RuntimeError("event loop is closed")

    with observed(status) as url:
        code, _, body = ask(f"{url}/health")
    assert (code, body) == (503, "the node's status failed: RuntimeError: event loop is closed\n")


@pytest.mark.parametrize("path", ["/status", "/metrics"])
def test_a_status_with_an_update_in_it_is_not_shown(path: str) -> None:
    with observed(lambda: {"round": b"123", "bytes_sent": b"456"}) as url:
        code, _, body = ask(url + path)
    assert code == 503
    assert body.startswith("the node's status cannot be shown: ")


def test_other_paths_and_methods_are_refused() -> None:
    with observed(SEEN.mapping) as url:
        code, _, body = ask(f"{url}/metric")
        assert (code, body) == (404, "try /metrics, /health, /ready, /status\n")
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(b"DELETE /status HTTP/1.0\r\n\r\n")
            assert b" 501 " in connection.makefile("rb").readline()


def test_idle_connections_cannot_use_up_threads() -> None:
    with observed(SEEN.mapping) as url:
        host, port = url.removeprefix("http://").split(":")
        idle = [socket.create_connection((host, int(port))) for _ in range(MOST_REQUESTS)]
        try:
            # Accepted in order, so by now every place is taken: this one is turned away.
            with socket.create_connection((host, int(port))) as one_more:
                assert one_more.recv(1) == b""
        finally:
            for connection in idle:
                connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
                assert b" 200 " in connection.makefile("rb").readline()
                connection.close()


def test_a_place_is_free_again_after_its_request() -> None:
    with observed(SEEN.mapping) as url:
        assert {ask(f"{url}/health")[0] for _ in range(3 * MOST_REQUESTS)} == {200}


def test_a_port_in_use_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        told = rf"observe.http: cannot listen at 127.0.0.1:{port}: another program uses this port"
        observer = StatusServer(f":{port}", SEEN.mapping)
        with pytest.raises(ErisError, match=told):
            observer.start()
        observer.stop()


@pytest.mark.parametrize(
    ("http", "told"),
    [
        ("192.0.2.1:0", r"cannot listen at 192.0.2.1:0: this machine has no such address"),
        ("no-such-host.invalid:0", r"cannot listen at no-such-host.invalid:0: the host name is"),
    ],
)
def test_an_address_that_is_not_ours_is_told(http: str, told: str) -> None:
    with pytest.raises(ErisError, match=told):
        StatusServer(http, SEEN.mapping).start()


def test_a_malformed_address_is_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"observe.http is 'here'; expected host:port"):
        StatusServer("here", SEEN.mapping)


def test_loopback_is_the_default_and_others_are_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "eris")
    with observed(SEEN.mapping, http=":0"):
        assert [record.levelname for record in caplog.records] == ["INFO"]
        assert "127.0.0.1:" in str(caplog.records[0].__dict__["fields"])
    with observed(SEEN.mapping, http="0.0.0.0:0") as url:
        assert ask(f"{url}/health")[0] == 200
        assert caplog.records[-1].levelname == "WARNING"


def test_after_stop_nobody_listens_and_it_can_start_again() -> None:
    observer = StatusServer(":0", SEEN.mapping)
    observer.stop()
    port = observer.start()
    observer.stop()
    observer.stop()
    with socket.create_server(("127.0.0.1", port)):
        pass
    assert observer.start() > 0
    observer.stop()
