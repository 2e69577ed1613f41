"""Whole federations on this machine, as their user starts, interrupts and watches them."""

from __future__ import annotations

import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from eris.experiments.federations.live import Board
from eris.experiments.federations.processes import node_names
from eris.model_file import read_model
from eris.runtimes.grpc import journal, storage
from eris.runtimes.grpc.addresses import endpoint
from eris.runtimes.grpc.settings import NodeSettings
from eris.testing.quadratic import let_train
from support.background import IGNORING
from support.command import broken

TRAINER = """
from eris.testing.quadratic import Quadratic

def make(name, *, n, city, leash=""):
    assert city == "Ulm"
    return Quadratic(name, n=n, pace=0.02, leash=leash)
"""


@contextmanager
def started(*arguments: str, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    command = [*IGNORING, str(Path(sys.executable).parent / "eris"), *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=cwd, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()  # of no effect if it has ended


def eris(*arguments: str, cwd: Path) -> tuple[int, str, str]:
    """The command's code, output and errors, with every space the same."""
    with started(*arguments, cwd=cwd) as process:
        said, wrong = (" ".join(text.split()) for text in process.communicate())
        return process.returncode, said, wrong


def listens(folder: Path, name: str) -> bool:
    address = endpoint(NodeSettings.load(folder / name / "node.toml").address)
    with socket.socket() as dialling:
        return dialling.connect_ex(address) == 0


def test_local_trains_a_users_code_and_says_where_everything_is(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(TRAINER, encoding="utf-8")
    call = ["local", "3", "--rounds", "4", "--trainer", "mine:make", "--option", "n=300",
            "--option", "city=Ulm", "--folder", "deep/nodes"]  # fmt: skip
    code, said, wrong = eris(*call, cwd=tmp_path)
    assert code == 0, said + wrong
    assert "epoch 1 from round 1" in said
    assert "round 4/4" in said
    assert "bit for bit: yes (SHA-256" in said
    assert "Start them again" not in said
    assert "\x1b" not in said
    for name in node_names(3):
        for what in ("node.toml", "log.txt", "state/journal.jsonl", "state/model.safetensors"):
            assert (tmp_path / "deep" / "nodes" / name / what).stat().st_size
    code, _, wrong = eris(*call, cwd=tmp_path)
    assert code == 2
    assert "deep/nodes is there already" in wrong


def test_a_method_with_a_server_has_a_node_more_which_aggregates(tmp_path: Path) -> None:
    quadratic = ("--trainer", "eris.testing.quadratic:Quadratic", "--rounds", "3")
    method = ("--method", "fedavg-wc", "--set", "clusters=16")
    code, said, wrong = eris("local", "3", *quadratic, *method, cwd=tmp_path)
    assert code == 0, said + wrong
    assert "epoch 1 from round 1: shard 0 server" in said
    assert "bit for bit: yes (SHA-256" in said
    roles = {
        name: NodeSettings.load(tmp_path / "runs" / "local" / name / "node.toml").node
        for name in (*node_names(3), "server")
    }
    assert [name for name, node in roles.items() if node.aggregator] == ["server"]
    assert [name for name, node in roles.items() if node.client] == node_names(3)


def test_init_writes_the_roles_of_a_method_with_a_server(tmp_path: Path) -> None:
    common = (
        "--start-with",
        "4",
        "--method",
        "priprune",
        "--set",
        "rate=0.2",
        "--address",
        "h:7400",
    )
    for name, more in {"hub": ("--server",), "anna": ()}.items():
        code, _, wrong = eris(
            "node", "init", name, "--host-directory", *common, *more, cwd=tmp_path
        )
        assert code == 0, wrong
    hub, anna = (NodeSettings.load(tmp_path / name / "node.toml", {}) for name in ("hub", "anna"))
    assert (hub.node.client, hub.node.aggregator, hub.node.max_share) == (False, True, 1.0)
    assert (anna.node.client, anna.node.aggregator) == (True, False)
    assert anna.federation.method_options == {"rate": 0.2}
    code, _, wrong = eris("node", "init", "ben", "--host-directory", "--server", cwd=tmp_path)
    assert code == 2
    assert "--server is True; expected nothing with eris" in wrong


def test_a_node_that_fails_shows_why(tmp_path: Path) -> None:
    code, _, wrong = eris("local", "3", "--trainer", "nowhere:make", cwd=tmp_path)
    assert code == 2
    assert "--trainer is 'nowhere:make'; expected a module in" in wrong
    assert "No module named 'nowhere'" in wrong
    assert not (tmp_path / "runs").exists(), "refused before anything is made"
    broken(tmp_path)
    code, _, wrong = eris("local", "3", "--trainer", "broken:make", cwd=tmp_path)
    assert code == 2
    assert "ended with code 1; the end of its log:" in wrong
    assert "no patients today" in wrong


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--kept", "1.5"], "kept_fraction is 1.5; expected a number in (0, 1]"),
        (["--samples", "60000"], "60000"),
        (["--method", "sefl", "--set", "key_bits=512"], "key_bits is 512; expected one of 3072"),
        (["--method", "shatter"], "the number of members is 3; expected at least 4: with fewer"),
        (["--method", "el"], "degree is 8; expected 1 to 2 for 3 nodes"),
        (["--method", "fedavg", "--kept", "0.2"], "--kept is 0.2; expected nothing beside --m"),
        (["--method", "fedavg-wc", "--set", "clusters"], "--set is 'clusters'; expected KEY=VALUE"),
        (["--method", "fedavg-wc", "--set", "clusters=1"], "clusters is 1; expected 2 to"),
        (["--set", "kept=1"], "setting of eris is 'kept'; expected one of basis, clip, colluders"),
        (["--samples", "5", "--trainer", "mine:make"], "--samples is 5; expected nothing beside"),
        (["--option", "city"], "--option is 'city'; expected KEY=VALUE"),
        (["--epsilon", "8"], "nodes is 3; expected at least 5: noise is shared in secure sums"),
        (["--epsilon", "8", "--trainer", "mine:make"], "--epsilon is 8.0; expected nothing beside"),
        (["--epsilon", "8", "--protects", "all"], "federation.protects is 'all'; expected"),
        (["--sampling-rate", "0.5"], "--sampling-rate is 0.5; expected 1 without --epsilon"),
        (["--epsilon", "8", "--sampling-rate", "2"], "sampling_rate is 2.0; expected a number in"),
        (["--epsilon", "8", "--sampling-rate", "0.5", "--protects", "client"],
         "sampling_rate is 0.5; expected 1 where whole clients are protected"),
    ],
)  # fmt: skip
def test_a_refusal_leaves_no_folder(arguments: list[str], says: str, tmp_path: Path) -> None:
    code, _, wrong = eris("local", "3", *arguments, cwd=tmp_path)
    assert code == 2
    assert says in wrong
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_an_interrupt_stops_all_nodes_gracefully_and_they_go_on_as_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(TRAINER, encoding="utf-8")
    folder, leash = tmp_path / "runs" / "local", tmp_path / "leash"
    let_train(leash, 3)
    options = ("n=300", "city=Ulm", f"leash='{leash}'")
    call = ("local", "3", "--rounds", "6", "--trainer", "mine:make")
    with started(*call, *(f"--option={one}" for one in options), cwd=tmp_path) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("round 2/"):
                break
        assert all(listens(folder, name) for name in node_names(3))
        process.send_signal(signal.SIGINT)
        said = process.stdout.read()
        assert process.wait() == 130
    assert not any(listens(folder, name) for name in node_names(3))
    assert "stopping all nodes" in said
    for name in node_names(3):
        # Saved on the way out: the last round it had begun, not that of some seconds ago.
        found = storage.load(folder / name / "state" / storage.CHECKPOINT)
        notes = journal.read(folder / name / "state" / "journal.jsonl")
        last = max(note["round"] for note in notes if note["event"] == "began")
        assert found is not None
        assert found[1]["round"] == str(last)

    # What nodes did was not recorded; what they do now shall be.
    code, _, wrong = eris("audit", "runs/local/node-2", cwd=tmp_path)
    assert code == 2
    assert "set `record = true` under [observe] in runs/local/node-2/node.toml and start" in wrong
    settings = folder / "node-2" / "node.toml"
    text = settings.read_text(encoding="utf-8")
    settings.write_text(text.replace("#record = false", "record = true"), encoding="utf-8")

    # The lines that say how to go on.
    _, told = said.split("Start them again and they go on where they were:\n")
    let_train(leash, 6)
    monkeypatch.setenv("ERIS_NODE_LINGER", "1")
    with ExitStack() as stack:
        again = [
            stack.enter_context(started(*shlex.split(line.strip(" &"))[1:], cwd=tmp_path))
            for line in told.splitlines()
        ]
        assert [process.wait() for process in again] == [0, 0, 0]
    models = [read_model(folder / name / "state" / storage.MODEL) for name in node_names(3)]
    assert len({model.tobytes() for model in models}) == 1
    code, _, wrong = eris("audit", "runs/local/node-2", cwd=tmp_path)
    assert code == 2
    assert "--model is None; expected module:function" in wrong


@pytest.mark.slow
def test_an_interrupt_stops_the_demo_and_leaves_no_node_behind(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "demo"
    call = ("demo", "--nodes", "4", "--samples", "20", "--rounds", "1000", "--kept", "0.5")
    with started(*call, cwd=tmp_path) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("round 1/"):
                break
        assert all(listens(folder, name) for name in ("node-1", "node-2"))
        process.send_signal(signal.SIGINT)
        _, wrong = process.communicate()
        assert process.returncode not in (0, 2)
    assert "Traceback" not in wrong
    assert not any(listens(folder, name) for name in node_names(4))


@pytest.mark.slow
def test_the_demo_survives_a_kill_and_equals_a_central_server(tmp_path: Path) -> None:
    code, said, wrong = eris(
        "demo", "--nodes", "4", "--samples", "60", "--rounds", "24", "--kept", "0.5",
        "--picture", "deep/down/picture.png", cwd=tmp_path,
    )  # fmt: skip
    assert code == 0, said + wrong
    assert "4 shards, 60 images a node, 24 rounds" in said
    assert "node-3 is killed (SIGKILL) in round" in said
    assert "node-3 is started again" in said
    assert "All 4 nodes ended with the same model, bit for bit: yes" in said
    assert "A central server with the same updates ends with it, bit for bit: yes" in said
    assert "Accuracy on 10,000 test images:" in said
    assert "the model has 61,706 parameters" in said
    assert (tmp_path / "deep" / "down" / "picture.png").read_bytes().startswith(b"\x89PNG")
    board = Board(node_names(4), 24)
    for name in node_names(4):
        for note in journal.read(tmp_path / "runs" / "demo" / name / "state" / "journal.jsonl"):
            board.take(name, note)
    first, *later = (view["owners"] for _, view in sorted(board.views.items()))
    assert set(first) == set(node_names(4))
    taken_over = [owners for owners in later if not {"node-3", "nobody"} & {*owners}]
    assert taken_over
    # Whoever owns two of four shards sees half of the half that is kept.
    seen = [note["seen"] for over in board.over.values() for note in over.values()]
    assert 0.2 < max(seen) < 0.3
