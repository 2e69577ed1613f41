"""docs/deploy.md as a newcomer would follow it: its commands, its code, three real nodes."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

from eris.experiments.federations.processes import free_ports
from eris.runtimes.grpc.authority import roster_view
from eris.runtimes.grpc.roster import Roster
from eris.runtimes.grpc.settings import NodeSettings
from eris.runtimes.grpc.storage import load

PAGE = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text(encoding="utf-8")
ERIS = [sys.executable, "-m", "eris.cli.main"]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def commands() -> list[list[str]]:
    lines = "\n".join(blocks("sh")).replace("\\\n", " ").splitlines()
    return [shlex.split(line) for line in lines if line.strip()]


def test_the_page_trains_a_model_from_certificates_to_the_end(tmp_path: Path) -> None:
    for words in commands():
        assert words[0] == "eris"
        if words[1:3] not in (["node", "start"], ["node", "status"]):
            subprocess.run([*ERIS, *words[1:]], cwd=tmp_path, check=True, capture_output=True)
    cleo = ["node", "init", "cleo", "--directory", "anna.example.org:7400", "--directory-name",
            "anna", "--address", "cleo.example.org:7400", "--start-with", "3"]  # fmt: skip
    subprocess.run([*ERIS, *cleo], cwd=tmp_path, check=True, capture_output=True)
    names = ("anna", "ben", "cleo")
    ports = dict(zip(names, free_ports(3), strict=True))
    nodes = {}
    for name in names:
        for suffix in (f"{name}.pem", f"{name}.key", "ca.pem"):
            shutil.copy(tmp_path / "ca" / name / suffix, tmp_path / name)
        (tmp_path / name / "my_training.py").write_text(blocks("python")[0], encoding="utf-8")
        here = f"127.0.0.1:{ports[name]}"
        environment = {
            **os.environ,
            "ERIS_NODE_LISTEN": here,
            "ERIS_NODE_ADDRESS": here,
            "ERIS_NODE_LINGER": "1",
            "ERIS_FEDERATION_ROUNDS": "5",
            "ERIS_FEDERATION_RULE_OPTIONS": "{learning_rate = 0.5}",
        }
        if name != "anna":
            environment["ERIS_MEMBERSHIP_DIRECTORY"] = f"127.0.0.1:{ports['anna']}"
        nodes[name] = subprocess.Popen(
            [*ERIS, "node", "start", str(tmp_path / name / "node.toml")],
            env=environment,
            stderr=subprocess.PIPE,
        )
    for name, node in nodes.items():
        _, log = node.communicate()
        assert node.returncode == 0, f"{name}: {log.decode()}"
    found = [load(tmp_path / name / "state" / "model.safetensors") for name in names]
    models = [arrays["model"] for arrays, _ in filter(None, found)]
    assert len(models) == 3
    # The page's loss is a parabola around 1: five steps of one half from 0.
    assert all(np.array_equal(model, np.full(1000, 1 - 0.5**5, np.float32)) for model in models)


def test_the_roster_on_the_page_is_one(tmp_path: Path) -> None:
    path = tmp_path / "roster.toml"
    path.write_text(blocks("toml")[0], encoding="utf-8")
    roster = Roster.load(path)
    settings = NodeSettings.template("anna", {"membership.roster": str(path)})
    (tmp_path / "node.toml").write_text(settings, encoding="utf-8")
    loaded = NodeSettings.load(tmp_path / "node.toml", {})
    assert roster_view(roster, loaded.agreement(1000)).owners == (0, 1, 2)


def test_messages_on_the_page_are_messages_of_the_package() -> None:
    said = re.findall(r"^\| `([^|]*)` \|", PAGE.split("## When it does not start")[1], re.MULTILINE)
    sources = Path(__file__).parents[2] / "src" / "eris"
    code = "".join(path.read_text(encoding="utf-8") for path in sources.rglob("*.py"))
    flat = re.sub(r'"\s*\n\s*f?"', "", code)
    for row in said:
        for message in row.split("`, `"):
            for piece in filter(None, (part.strip(" :;") for part in message.split("…"))):
                assert piece in flat, f"nothing says {piece!r}"
