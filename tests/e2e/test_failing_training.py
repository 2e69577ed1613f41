"""Training code that fails: its administrator sees it at once, and the others go on."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from eris.experiments.federations.processes import free_ports
from eris.protocol.settings import model_digest
from eris.runtimes.grpc.addresses import LOOPBACK
from support.nodes import Nodes

ERIS = str(Path(sys.executable).parent / "eris")
TRAINER = """
import numpy as np

class Trainer:
    def __init__(self, name, kind):
        self.kind, self.calls = kind.get(name, "well"), 0

    def initial(self):
        return np.zeros(500, np.float32)

    def update(self, parameters, round):
        if self.kind == "raises":
            raise RuntimeError("zebra: the data base is locked")
        if self.kind == "wrong":
            self.calls += 1
            if self.calls == 1:
                raise SystemExit(3)
            size, samples = (499, 1) if self.calls == 2 else (500, -1)
            return np.ones(size, np.float32), samples, {}
        if self.kind == "nothing":
            return None
        made = np.full(500, np.nan if self.kind == "poison" else 1.0)
        return made.astype(np.float64 if self.kind == "wide" else np.float32), 1, {}

    def evaluate(self, parameters):
        if self.kind == "untested":
            raise RuntimeError("zebra: no test set")
        return {"mean": float(parameters.mean())}

def make(name, **kind):
    return Trainer(name, {key.replace("_", "-"): value for key, value in kind.items()})
"""


def page(port: int, path: str) -> tuple[int, str]:
    """What a node's administrator is shown."""
    try:
        with urlopen(f"http://{LOOPBACK}:{port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def agree(nodes: Nodes, *names: str) -> bool:
    """Whether these ended with the same model."""
    models = [nodes.model(name) for name in names]
    return len({model_digest(model) if model is not None else None for model in models}) == 1


def status(nodes: Nodes, name: str) -> str:
    """What `eris node status` says, with every space the same."""
    command = [ERIS, "node", "status", str(nodes.folder / name / "node.toml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return " ".join(done.stdout.split())


@pytest.mark.slow
def test_failures_are_shown_everywhere_and_after_some_the_node_stops(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    own = {"cleo": {"observe.http": f"{LOOPBACK}:{port}", "training.most_failures": 3}}
    options = {"cleo": {"fails": list(range(2, 100))}}
    with Nodes(tmp_path, 4, rounds=16, own=own, options=options) as nodes:
        nodes.lead(2)
        nodes.begin()
        nodes.until_round(3, "cleo")  # in which she waits for her leash
        error = "training failed in round 2: RuntimeError: no data in round 2"
        assert page(port, "/ready") == (503, f"not ready: {error}\n")
        assert "eris_training_failures_total 1.0" in page(port, "/metrics")[1]
        assert json.loads(page(port, "/status")[1])["reason"] == error
        assert f"not ready ({error})" in status(nodes, "cleo")
        nodes.finish("anna", "ben", "dora")
        assert nodes.ends("cleo") == 2
        assert "error: training failed 3 times in a row, the last time in round 4" in nodes.log(
            "cleo", 1
        )
        assert agree(nodes, "anna", "ben", "dora")
        assert len(list(nodes.events("cleo", "training failed"))) == 3


@pytest.mark.slow
def test_training_that_hangs_is_shown_and_ends_at_its_limit_and_the_others_go_on(
    tmp_path: Path,
) -> None:
    (port,) = free_ports(1)
    own: dict[str, dict[str, object]] = {
        "ben": {"observe.http": f"{LOOPBACK}:{port}", "training.slow_after": 0.2},
        "dora": {"training.time_limit": 1.0},
    }
    with Nodes(tmp_path, 4, rounds=10, own=own) as nodes:
        nodes.lead(2)
        nodes.begin()
        nodes.until_said("ben", "training takes long", "round=3")
        code, why = page(port, "/ready")
        assert code == 503
        assert why.startswith("not ready: training for ")
        assert "ben: training for " in status(nodes, "ben")
        assert nodes.ends("dora") == 2
        assert "error: an update was not made within training.time_limit (1 s) in round 3" in (
            nodes.log("dora", 1)
        )
        nodes.finish("anna", "ben", "cleo")
        assert agree(nodes, "anna", "ben", "cleo")
        told = [line["seconds"] for line in nodes.events("ben", "training takes long")]
        assert all(later > 1.5 * earlier for earlier, later in pairwise(told))
        assert nodes.said("anna", "staying for members that are behind")


def local(folder: Path, nodes: int, rounds: int, **kinds: str) -> tuple[int, str, str]:
    """`eris local` with nodes whose training code has its own ways; code, output, errors."""
    (folder / "mine.py").write_text(TRAINER, encoding="utf-8")
    options = [word for name, kind in kinds.items() for word in ("--option", f"{name}={kind}")]
    command = [ERIS, "local", str(nodes), "--rounds", str(rounds), "--trainer", "mine:make"]
    done = subprocess.run([*command, *options], cwd=folder, capture_output=True, text=True,
                          timeout=300, check=False)  # fmt: skip
    return done.returncode, " ".join(done.stdout.split()), " ".join(done.stderr.split())


@pytest.mark.slow
def test_the_terminal_tells_of_each_kind_of_trouble_and_the_rest_trains_on(tmp_path: Path) -> None:
    code, said, wrong = local(
        tmp_path, 6, 12, node_2="wide", node_3="untested", node_4="raises", node_5="wrong"
    )
    assert code == 1, said + wrong
    assert said.count("node-2: update of node-2 is float64; it is cast to float32") == 1
    problem = "evaluate() failed: RuntimeError: zebra: no test set"
    assert f"node-3: training is over, but {problem}" in said
    assert f"problem: node-3: {problem}" in said
    error = "RuntimeError: zebra: the data base is locked"
    assert f"node-4: training failed in round 1: {error}" in said
    assert "node-4 ended with code 2: error: training failed 3 times in a row" in said
    assert "node-5: training failed in round 1: RuntimeError: it raised SystemExit(3)" in said
    assert "update of node-5 is 'float32 array of shape (499,)'; expected 500 float32" in said
    assert "samples of node-5 is -1; expected a whole number from 1" in said
    assert "round 12/12" in said


@pytest.mark.slow
def test_training_that_gives_nothing_ends_and_says_why(tmp_path: Path) -> None:
    code, said, wrong = local(tmp_path, 3, 2, node_1="nothing", node_2="nothing", node_3="nothing")
    assert code == 2
    told = "what update() of node-1 returned is 'NoneType'; expected a LocalUpdate, or (update,"
    assert f"node-1: training failed in round 1: {told}" in said
    assert "ended with code 2; the end of its log:" in wrong
    assert "training failed 3 times in a row" in wrong


@pytest.mark.slow
def test_training_that_is_nan_from_end_to_end_is_no_success(tmp_path: Path) -> None:
    code, said, wrong = local(tmp_path, 3, 2, node_1="poison", node_2="poison", node_3="poison")
    assert code in (1, 2)
    assert "nan" in (said + wrong).lower()
    assert "training failed" in said or "none of 2 updates was taken" in said


def test_an_evaluation_that_fails_is_no_success_where_all_else_went_well(tmp_path: Path) -> None:
    code, said, wrong = local(tmp_path, 3, 1, node_3="untested")
    assert code == 1, said + wrong
    assert "bit for bit: yes" in said
    assert "problem: node-3: evaluate() failed: RuntimeError: zebra: no test set" in said
