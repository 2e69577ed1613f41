"""The live page over real sockets: what it serves, to whom, and what it says when it cannot."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from eris.cli import exits
from eris.core.errors import ErisError, InvalidSetting
from eris.runtimes.grpc.observe import NodeState, StatusServer
from eris.web.nodes import WatchedNodes
from eris.web.places import Places
from support.command import Eris
from support.dashboards import served

RUN = ("run", "--data", "digits", "--clients", "4", "--samples", "8", "--rounds", "2",
       "--method", "fedavg", "--evaluate-every", "1")  # fmt: skip


def get(port: int, path: str, **headers: str) -> tuple[int, dict[str, str], str]:
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()
    finally:
        connection.close()


def shown(page: str) -> dict[str, Any]:
    found = re.search(r'id="document">(.*?)</script>', page)
    assert found is not None
    document: dict[str, Any] = json.loads(found[1])
    return document


def test_runs_are_listed_and_each_has_a_page(eris: Eris, tmp_path: Path) -> None:
    assert eris(*RUN, "--name", "one") == 0
    assert eris(*RUN, "--name", "two", "--seed", "1") == 0
    with served(Places(tmp_path / "runs")) as port:
        status, headers, index = get(port, "/")
        assert status == 200
        assert "default-src 'none'" in headers["content-security-policy"]
        rows = shown(index)["sections"][0]["blocks"][0]["rows"]
        assert {row[0]["href"] for row in rows} == {"/runs/one", "/runs/two"}
        page = shown(get(port, "/runs/one")[2])
        assert page["title"] == "one"
        assert page["links"] == [{"text": "All runs", "href": "/"}]
        assert shown(get(port, "/runs/one+two")[2])["title"] == "one and two"
        ways = page["sections"][-1]["blocks"][0]["rows"]
        assert [row[0] for row in ways] == [{"text": "beside two", "href": "/runs/one+two"}]


def test_what_is_stored_later_comes_as_an_event(eris: Eris, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    with (
        served(Places(tmp_path / "runs")) as port,
        urllib.request.urlopen(f"http://127.0.0.1:{port}/events?page=/", timeout=30) as news,
    ):
        first = _event(news)
        assert dict(first["facts"])["runs"] == "0"
        assert eris(*RUN, "--name", "one") == 0
        titles: list[object] = []
        while not titles:
            rows = _event(news)["sections"][0]["blocks"][0]["rows"]
            titles = [row[0]["text"] for row in rows if row[1] == "finished"]
        assert titles == ["one"]


def _event(news: Any) -> dict[str, Any]:
    for raw in news:
        if raw.startswith(b"data: "):
            found: dict[str, Any] = json.loads(raw[6:])
            return found
    raise AssertionError("the stream ended")


@pytest.mark.parametrize("path", [
    "/runs/none", "/runs/..", "/runs/%2e%2e", "/runs/..%2fone", "/runs//etc", "/federations/x",
    "/nodes", "/other", "/events?page=/runs/none",
])  # fmt: skip
def test_what_is_not_there_is_said_not_to_be(tmp_path: Path, path: str) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "run.json").write_text("{}", encoding="utf-8")
    with served(Places(tmp_path / "runs")) as port:
        status, _, text = get(port, path)
    assert status == 404
    assert "expected" in text


def test_a_token_lets_in_and_stays_in_a_cookie(tmp_path: Path) -> None:
    token = "a-token-of-some-length"
    with served(Places(tmp_path), token) as port:
        assert get(port, "/")[0] == 401
        assert get(port, "/events")[0] == 401
        assert get(port, "/?token=another")[0] == 401
        status, headers, _ = get(port, f"/?token={token}")
        assert status == 200
        cookie = headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "samesite=strict" in cookie.lower()
        assert get(port, "/", Cookie=cookie.partition(";")[0])[0] == 200


def test_a_page_of_another_site_cannot_call_it_by_its_own_name(tmp_path: Path) -> None:
    with served(Places(tmp_path)) as port:
        assert get(port, "/", Host="attacker.example")[0] == 400
        assert get(port, "/")[0] == 200


def test_a_run_half_written_does_not_stop_the_list(eris: Eris, tmp_path: Path) -> None:
    assert eris(*RUN, "--name", "one") == 0
    broken = tmp_path / "runs" / "broken"
    broken.mkdir()
    (broken / "run.json").write_text('{"format": 1', encoding="utf-8")
    document = Places(tmp_path / "runs").document("/")
    assert dict(document.facts)["runs"] == "1"
    assert len(document.alerts) == 1
    assert "broken" in document.alerts[0]


def test_nodes_by_what_they_say_of_themselves() -> None:
    states = {
        name: NodeState(name=name, phase="training", ready=name != "ben", reason="catching up",
                        round=round, epoch=2, members=3, bytes_sent={"x": 5},
                        evaluated={"accuracy": round / 10, "samples": 3.0}).mapping()
        | {"owners": ["anna", None, "cleo"], "rounds": 40}
        for name, round in (("anna", 9), ("ben", 3), ("cleo", 9))
    }  # fmt: skip
    servers = [StatusServer(":0", partial(dict, state)) for state in states.values()]
    addresses = [f":{server.start()}" for server in servers]
    watched = WatchedNodes(addresses)
    document = watched.document()
    facts = dict(document.facts)
    assert facts["nodes that answer"] == "3 of 3"
    assert facts["round"] == "9 of 40"
    assert facts["stragglers"] == "ben"
    assert facts["accuracy"] == "0.7"
    accuracy = document.data()["sections"][0]["blocks"][2]
    assert accuracy["title"] == "accuracy"
    assert accuracy["series"][0]["points"] == [pytest.approx([9, 0.7])]
    assert document.alerts == ["ben is not ready: catching up"]
    for server in servers[1:]:
        server.stop()
    later = watched.document()
    assert dict(later.facts)["nodes that answer"] == "1 of 3"
    assert sum("does not answer" in alert for alert in later.alerts) == 2
    ring = later.data()["sections"][0]["blocks"][0]
    assert [seat["well"] for seat in ring["seats"]] == [True, False, False]
    assert ring["owners"] == ["anna", None, "cleo"]
    servers[0].stop()


def test_traffic_is_what_moved_between_two_looks() -> None:
    sent = iter([100, 300, 50])

    def ask(address: str) -> dict[str, Any]:
        state = NodeState(name="anna", ready=True, bytes_sent={"x": next(sent)})
        return state.mapping() | {"owners": []}

    watched = WatchedNodes(["anna:1"], ask)
    for _ in range(3):
        document = watched.document()
    points = document.data()["sections"][0]["blocks"][1]["series"][0]["points"]
    assert len(points) == 2
    assert points[0][1] > 0
    assert points[1][1] is None  # it started again


def test_ctrl_c_ends_it_while_somebody_looks_in_one_breath(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "eris.cli.main", "dashboard", "--listen", ":0", "--runs"]
    with subprocess.Popen(
        [*command, str(tmp_path)], env={**os.environ, "PYTHONUNBUFFERED": "1"}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        with urllib.request.urlopen(f"{address}events?page=/", timeout=60) as news:
            assert _event(news)["title"] == "Runs"
            process.send_signal(signal.SIGINT)
            _, wrong = process.communicate()
    assert process.returncode == exits.INTERRUPTED
    assert wrong == ""


def test_a_port_in_use_is_one_line(eris: Eris) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        line = eris.refused("dashboard", "--listen", f":{taken.getsockname()[1]}")
    assert "another program uses this port" in line
    assert "host:port" in eris.refused("dashboard", "--node", "nowhere")


def test_a_short_token_is_refused(eris: Eris, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ERIS_DASHBOARD_TOKEN", "short")
    assert "at least 16" in eris.refused("dashboard", "--listen", "0.0.0.0:0")


def test_an_error_of_the_reader_is_an_eris_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="page is '/x'"):
        Places(tmp_path).document("/x")
    assert issubclass(InvalidSetting, ErisError)
