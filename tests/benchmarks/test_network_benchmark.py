"""The benchmark of the network: its limits against hand-worked numbers, and its small parts."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import tomllib
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from benchmarks.hosts.certificates import issue
from benchmarks.hosts.cpu import CpuMeter
from benchmarks.hosts.exchange import exchange_round_times
from benchmarks.hosts.exchange_node import Task
from benchmarks.hosts.flower import superlink, supernode, write_app, write_connection
from benchmarks.hosts.limits import Round
from benchmarks.hosts.places import Loopback, environment
from benchmarks.hosts.stream import stream_rate
from benchmarks.network import (
    Measured,
    Plan,
    Timed,
    bare_run,
    cpu_of_a_round,
    figures,
    parse,
    table,
)
from rich.console import Console

from eris.core.errors import InvalidSetting
from support.hosts import Counters, Hosts, HostsUnavailable, LinkShape, read_counters

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "network.py"


# -- limits -----------------------------------------------------------------------------------


@pytest.mark.parametrize("members", [2, 5, 8])
def test_with_as_many_aggregators_as_clients_the_limit_is_that_of_an_all_reduce(
    members: int,
) -> None:
    case = Round(10_000_000, aggregators=members, clients=members)
    assert case.limit_s == pytest.approx(2 * (members - 1) / members * 40e6 / 12.5e6)
    assert case.limit_s == pytest.approx(case.papers_s)


def test_two_aggregators_of_eight_have_a_limit_below_the_papers_bound() -> None:
    case = Round(10_000_000, aggregators=2)
    # An aggregator sends half an update and its half of the model to seven: (0.5 + 3.5)·b.
    assert case.limit_s == pytest.approx(4 * 40e6 / 12.5e6)
    # The papers: 3.5·b in, then 3.5·b out.
    assert case.papers_s == pytest.approx(7 * 40e6 / 12.5e6)
    assert case.limit_s / case.papers_s == pytest.approx(0.57, abs=0.005)


def test_the_limits_of_the_measured_models() -> None:
    plan = Plan.full()
    assert {name: case.limit_s for name, case in plan.cases.items()} == pytest.approx(
        {"a8_40mb": 5.6, "a2_40mb": 12.8, "a8_10mb": 1.4}
    )
    assert plan.cases["a8_10mb"].central_s == pytest.approx(12.8)
    assert plan.cases["a8_40mb"].central_s == pytest.approx(51.2)


def test_a_kept_fraction_shrinks_both_directions_but_not_the_server_s_bound() -> None:
    dense, kept = (Round(1000, 8, kept_fraction=p) for p in (1.0, 0.05))
    assert kept.limit_s == pytest.approx(0.05 * dense.limit_s)
    assert kept.central_s == dense.central_s
    # Eight members each send 7/8 of an update and 7/8 of a model, 4 bytes a coordinate.
    assert dense.law_bytes == pytest.approx(8 * 2 * 7 / 8 * 4000)
    assert kept.law_bytes == pytest.approx(0.05 * dense.law_bytes)


def test_plain_clients_count_in_the_law() -> None:
    # Two aggregators send (1/2 + 7/2)·b each, six others b.
    assert Round(1000, 2).law_bytes == pytest.approx((2 * 4 + 6) * 4000)


# -- figures ----------------------------------------------------------------------------------


def test_figures_are_ratios_of_medians_without_the_first_round() -> None:
    plan = Plan.full()
    found = Measured()
    found.eris = {
        "a8_40mb": Timed((60.0, 5.6, 11.2, 8.4), cpu_s=4.5),
        "a2_40mb": Timed((14.08,)),
        "a8_10mb": Timed((9.0, 1.75)),
    }
    found.exchange = {"a8_40mb": Timed((9.0, 5.88), cpu_s=3.0)}
    found.flower = {"a8_40mb": Timed((99.0, 84.0)), "a8_10mb": Timed((99.0, 16.64))}
    sent = int(2 * plan.compressed.law_bytes * 1.03)
    found.compressed = Timed((1.0, 1.0), Counters(sent, sent, 2 * sent, 0))
    found.loopback = {"gRPC stream": 1000e6, "bare gRPC": 900e6, "gloo": 400e6, "ERIS": 500e6}
    assert figures(plan, found) == {
        "vs_limit_a8_40mb": 1.5,
        "bare_vs_limit_a8_40mb": 1.05,
        "flower_vs_bound_a8_40mb": 1.6406,
        "vs_limit_a2_40mb": 1.1,
        "vs_limit_a8_10mb": 1.25,
        "flower_vs_bound_a8_10mb": 1.3,
        "flower_over_eris": 10.0,
        "flower_bound_over_eris_bound": 9.1429,
        "cpu_over_bare": 1.5,
        "dsc_vs_limit": 3.5714,
        "wire_bytes_over_law": 1.03,
        "loopback_vs_grpc": 0.5,
        "bare_loopback_vs_grpc": 0.9,
        "loopback_vs_gloo": 1.25,
    }


def test_what_was_not_measured_has_no_figure() -> None:
    assert figures(Plan.full(), Measured()) == {}
    found = Measured(flower={"a8_40mb": Timed((60.0,))})
    assert set(figures(Plan.full(), found)) == {"flower_vs_bound_a8_40mb"}
    # Of one round there is no CPU figure: the first is not counted.
    single = Measured(eris={"a8_10mb": Timed((2.0,))}, exchange={"a8_10mb": Timed((2.0,))})
    assert "cpu_over_bare" not in figures(Plan.full(), single)


def test_the_table_shows_every_contestant_beside_its_own_bound() -> None:
    plan, console = Plan.full(), Console(width=110, file=StringIO())
    found = Measured(
        exchange={"a2_40mb": Timed((14.08,), Counters(560_000_000, 0, 588_000_000, 7))},
        flower={"a8_40mb": Timed((56.32,))},
    )
    console.print(table(plan, found))
    assert isinstance(console.file, StringIO)
    lines = console.file.getvalue().splitlines()
    bare, flower = (next(line for line in lines if who in line) for who in ("bare", "Flower"))
    assert bare.replace("│", " ").split()[3:] == [
        "14.08", "0%", "12.80", "1.100", "1.000", "1.050", "7"
    ]  # fmt: skip
    assert "51.20" in flower
    assert "1.100" in flower


# -- arguments --------------------------------------------------------------------------------


def test_arguments_choose_sizes_rounds_and_contestants() -> None:
    plan, wanted = parse([])
    assert plan == Plan.full()
    assert wanted == ["eris", "exchange", "flower", "loopback"]
    plan, wanted = parse(["--quick", "--rounds", "7", "--only", "flower", "exchange"])
    assert wanted == ["flower", "exchange"]
    assert (plan.rounds, plan.flower_rounds) == (7, 1)
    assert plan.cases["a2_40mb"] == replace(Plan.full().cases["a2_40mb"], parameters=250_000)
    assert plan.compressed.parameters == 250_000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rounds", "0"], "--rounds is 0; expected at least 1"),
        (["--flower-rounds", "-1"], "--flower-rounds is -1; expected at least 1"),
        (["--rounds", "many"], "invalid int value"),
        (["--only", "nvflare"], "invalid choice: 'nvflare'"),
    ],
)
def test_wrong_arguments_are_named(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse(arguments)
    assert said in capsys.readouterr().err


def test_without_iproute2_it_says_what_to_install(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--quick", "--only", "exchange"]
    without = {**os.environ, "PATH": str(tmp_path)}
    done = subprocess.run(command, env=without, capture_output=True, text=True)
    assert done.returncode == 1
    assert "ip, tc, sh, xargs: not found; install iproute2" in done.stderr


# -- hosts ------------------------------------------------------------------------------------


def test_counters_are_read_from_what_the_tools_print() -> None:
    link = [{"stats64": {"rx": {"bytes": 700}, "tx": {"bytes": 900}}}]
    near = [{"kind": "tbf", "bytes": 950, "drops": 2}, {"kind": "noqueue", "bytes": 1, "drops": 1}]
    far = [{"kind": "tbf", "bytes": 720, "drops": 3}]
    assert read_counters(link, near, far) == Counters(900, 700, charged=950, dropped=5)
    assert read_counters(link, [], []) == Counters(900, 700, charged=0, dropped=0)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: LinkShape(rate_mbit=0), "rate_mbit is 0"),
        (lambda: LinkShape(burst_kb=32), "burst_kb is 32; expected at least 64"),
        (lambda: Hosts(0), "count is 0; expected 1 to 250 hosts"),
        (lambda: Hosts(251), "count is 251"),
    ],
)
def test_hosts_that_cannot_be_are_refused(wrong: object, said: str) -> None:
    with pytest.raises(InvalidSetting, match=said):
        wrong()  # type: ignore[operator]


def test_hosts_without_tools_are_refused_before_anything_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostsUnavailable, match="install iproute2"), Hosts(2):
        pass


# -- contestants ------------------------------------------------------------------------------


def test_a_member_of_the_exchange_knows_its_pieces() -> None:
    task = Task(2, 8, 2, model_bytes=1000, piece_bytes=150, address="", certificates="")
    assert (task.shard_bytes, task.pieces) == (500, 4)
    assert [task.size(piece) for piece in range(4)] == [150, 150, 150, 50]
    assert task.to_come == 8
    assert replace(task, me=1).to_come == 4


def test_the_bare_exchange_ends_for_aggregators_and_others() -> None:
    times = exchange_round_times([Loopback()] * 3, 100_000, 2, rounds=2)
    assert len(times) == 2
    assert min(times) > 0


def test_cpu_seconds_are_of_the_rounds_after_the_first() -> None:
    with CpuMeter(read=iter([1.0, 9.0]).__next__) as meter:
        pass
    first, last = 0.0, 1e12  # before and after all that was read
    assert cpu_of_a_round(meter, [first, 1.0, last]) == pytest.approx(4.0)
    assert cpu_of_a_round(meter, [first]) is None
    run = bare_run([Loopback()] * 2, 100_000, 2, rounds=2)
    assert len(run.seconds) == 2
    assert run.cpu_s is not None


def test_a_bare_stream_has_a_rate() -> None:
    assert len(stream_rate(3 << 20, repeats=2)) == 2


def test_measured_processes_have_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    assert environment()["OMP_NUM_THREADS"] == "1"
    assert environment({"PYTHONPATH": ""})["PYTHONPATH"] == ""


def test_the_certificate_holds_for_its_addresses_only(tmp_path: Path) -> None:
    made = issue(tmp_path, ["198.18.0.9", "127.0.0.1", "127.0.0.1"])
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(made.certificate, made.key)

    def shake_hands(name: str) -> None:
        trusting = ssl.create_default_context(cafile=str(made.authority))
        to, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = trusting.wrap_bio(back, to, server_hostname=name)
        server = serving.wrap_bio(to, back, server_side=True)
        for side in (client, server, client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue

    shake_hands("198.18.0.9")
    shake_hands("127.0.0.1")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands("198.18.0.8")


def test_flower_is_told_what_to_do_in_files_of_its_own(tmp_path: Path) -> None:
    made = issue(tmp_path, ["198.18.0.9"])
    app = write_app(tmp_path / "app", {"clients": 8, "report": 'with "quotes"'})
    project = tomllib.loads((app / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["tool"]["flwr"]["app"]["config"] == {"clients": 8, "report": 'with "quotes"'}
    module, _, name = project["tool"]["flwr"]["app"]["components"]["clientapp"].partition(":")
    assert f"\n{name} = ClientApp()" in (app / f"{module}.py").read_text(encoding="utf-8")
    home = write_connection(tmp_path / "home", "198.18.0.9", made)
    connection = tomllib.loads((home / "config.toml").read_text(encoding="utf-8"))
    assert connection["superlink"]["benchmark"] == {
        "address": "198.18.0.9:8000",
        "root-certificates": str(made.authority),
    }
    commands = superlink("198.18.0.9", made) + supernode("198.18.0.9", made)
    assert "--insecure" not in commands


def test_a_run_ends_with_its_figures() -> None:
    command = [sys.executable, str(SCRIPT), "--quick", "--rounds", "1", "--only", "loopback"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    report = json.loads(done.stdout.strip().splitlines()[-1])
    assert report["benchmark"] == "network (quick)"
    assert report["figures"]["bare_loopback_vs_grpc"] > 0
    assert "loopback: gloo" in done.stdout
