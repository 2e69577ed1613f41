"""What the program says to do works when it is done: each line is read off the output and run."""

from __future__ import annotations

import ast
import re
import shlex
import tomllib
from collections.abc import Iterator
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

import pytest
import typer.main

import eris as package
from eris.cli.main import app
from eris.experiments.runs import runner
from eris.experiments.runs.progress import Progress
from eris.experiments.runs.recipe import Recipe
from eris.experiments.runs.store import Line, Run
from eris.runtimes.grpc.tls import Identity
from support.command import Eris

SOURCE = Path(package.__file__).parent
COMMAND = typer.main.get_command(app)


def told(text: str) -> list[str]:
    """The one command in a text, as a shell would read it."""
    (line,) = re.findall(r"`eris ([^`]*)`", text)
    return shlex.split(line)


# -- runs -------------------------------------------------------------------------------------

ELSEWHERE = Path("kept for the paper")
QUICK = ("--as", "final-model")


def made(name: str, progress: Progress | None = None, **changes: object) -> Run:
    small = {
        "data.name": "digits", "data.clients": 4, "data.samples": 6, "training.rounds": 2,
        "data.canaries": 0.5, "model.name": "softmax", "name": name,
    }  # fmt: skip
    given = {key.replace("__", "."): value for key, value in changes.items()}
    return runner.start(Recipe().changed({**small, **given}), ELSEWHERE, progress or Progress())


@pytest.mark.parametrize("canaries", [0.5, 0.0])
def test_a_run_that_was_not_recorded_can_be_recorded_as_told(canaries: float, eris: Eris) -> None:
    made("plain", data__canaries=canaries)
    by_name, by_path = ["plain", "--runs", str(ELSEWHERE)], [str(ELSEWHERE / "plain")]
    for number, given in enumerate((by_name, by_path), start=1):
        line = told(eris.refused("audit", *given))
        assert eris(*line) == 0, eris.err
        name = line[line.index("--name") + 1]
        assert name == "plain-recorded" + ("" if number == 1 else f"-{number}")
        assert eris("audit", name, "--runs", str(ELSEWHERE), *QUICK) == 0, eris.err


def test_a_recorded_run_without_canaries_is_run_with_them_as_told(eris: Eris) -> None:
    made("plain", data__canaries=0.0, engine__record=True)
    refused = eris.refused("audit", "plain", "--runs", str(ELSEWHERE))
    line = shlex.split(re.findall(r"`eris (run [^`]*)`", refused)[0])
    assert eris(*line) == 0, eris.err
    assert eris("audit", "plain-recorded", "--runs", str(ELSEWHERE), *QUICK) == 0, eris.err


def test_a_finished_run_is_run_again_as_told(eris: Eris) -> None:
    made("plain")
    line = told(eris.refused("run", "--resume", "plain", "--runs", str(ELSEWHERE)))
    assert eris(*line) == 0, eris.err
    assert eris("compare", "plain", "plain-again", "--runs", str(ELSEWHERE)) == 0, eris.err


def stopped() -> None:
    class Stop(Progress):
        def round(self, line: Line) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made("cut", Stop(), engine__record=True, engine__checkpoint_every=1)


def test_a_run_that_was_stopped_goes_on_as_told(eris: Eris) -> None:
    stopped()
    line = told(eris.refused("audit", "cut", "--runs", str(ELSEWHERE)))
    assert eris(*line) == 0, eris.err
    assert eris("audit", "cut", "--runs", str(ELSEWHERE), *QUICK) == 0, eris.err


def test_a_damaged_checkpoint_is_removed_as_told(eris: Eris) -> None:
    stopped()
    folder = ELSEWHERE / "cut" / "checkpoint" / "round-000001"
    (folder / "state.safetensors").write_bytes(b"")
    said = eris.refused("run", "--resume", "cut", "--runs", str(ELSEWHERE))
    assert f"{folder} is damaged" in said
    assert "remove that folder to start the run again from its first round" in said
    for path in (*folder.iterdir(), folder):
        path.unlink() if path.is_file() else path.rmdir()
    assert eris("run", "--resume", "cut", "--runs", str(ELSEWHERE)) == 0, eris.err


# -- certificates and nodes -------------------------------------------------------------------


def test_a_node_is_set_up_by_the_steps_it_is_told(eris: Eris) -> None:
    assert eris("ca", "init", "our ca", "--federation", "clinics") == 0
    make = "--ca 'our ca'"
    assert f"Next: eris ca issue NAME {make}" in eris.out
    assert eris("node", "init", "anna", "--folder", "a b", "--host-directory", "--start-with", "3")\
        == 0  # fmt: skip
    (issue,) = re.findall(r"1\. eris (ca issue .*?)   \(", eris.out)
    (start,) = re.findall(r"4\. eris (node start .*)", eris.out)
    assert eris(*shlex.split(issue.replace("CA-FOLDER", "'our ca'"))) == 0, eris.err
    # All is where the node looks for it, and nothing is to be taken away from there.
    assert "delete" not in eris.out
    assert "The node's folder, a b, now has all three files; leave them there" in eris.out
    settings = Path(shlex.split(start)[-1])
    identity = Identity(*(settings.parent / name for name in ("anna.pem", "anna.key", "ca.pem")))
    assert identity.check("anna") == []
    # To ask again leads to a renewal, and that to the same key.
    key = identity.key.read_bytes()
    for out in ([], ["--out", "a b"]):
        line = told(eris.refused("ca", "issue", "anna", "--ca", "our ca", *out))
        line = [word.replace("FOLDER", "a b") for word in line]
        assert eris(*line) == 0, eris.err
        assert "its key is the same" in eris.out
        assert "is where the node reads it: start the node again" in eris.out
    assert identity.key.read_bytes() == key
    assert identity.check("anna") == []


def test_a_node_whose_certificate_is_there_is_not_told_to_get_one(eris: Eris) -> None:
    assert eris("ca", "init", "ca", "--federation", "clinics") == 0
    assert eris("ca", "issue", "anna", "--out", "anna") == 0
    assert "Move into the node's folder, over a safe way:" in eris.out
    assert eris("node", "init", "anna", "--host-directory", "--start-with", "3") == 0
    assert "ca issue" not in eris.out
    assert "3. eris node start anna/node.toml" in eris.out


def test_an_authority_that_is_not_there_is_made_as_told(eris: Eris) -> None:
    for command in (["ca", "issue", "anna", "--ca", "our ca"], ["ca", "show", "our ca"]):
        line = told(eris.refused(*command))
    assert eris(*(word.replace("NAME", "clinics") for word in line)) == 0, eris.err
    assert eris("ca", "issue", "anna", "--ca", "our ca") == 0, eris.err
    assert eris("ca", "show", "our ca") == 0


def test_an_authority_that_forgot_what_it_issued_says_so(eris: Eris) -> None:
    assert eris("ca", "init", "ca", "--federation", "clinics") == 0
    assert eris("ca", "show", "ca") == 0
    assert eris("ca", "issue", "anna") == 0
    copy = Path("ca/issued.json").read_text()
    Path("ca/issued.json").unlink()
    for command in (["show", "ca"], ["issue", "anna"], ["issue", "ben"]):
        assert "issued.json is missing; restore it from a copy" in eris.refused("ca", *command)
    assert "write [] into it" in eris.err
    Path("ca/issued.json").write_text("[]")
    assert eris("ca", "issue", "ben") == 0, eris.err
    Path("ca/issued.json").write_text(copy)
    assert "anna has a certificate" in eris.refused("ca", "issue", "anna")


# -- all others: commands that are named exist, with the options that are named ------------------


def texts(path: Path) -> Iterator[str]:
    """The strings of a file, what is put into them left as a word."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            parts = (p.value if isinstance(p, ast.Constant) else "VALUE" for p in node.values)
            yield "".join(map(str, parts))


def commands() -> set[str]:
    found = set()
    for path in SOURCE.rglob("*.py"):
        for text in texts(path):
            found |= set(re.findall(r"`(eris [a-z][^`]*)`", text))
            found |= set(re.findall(r"^ *(?:\d\. )?(eris [a-z].*?)(?: &|   .*)?$", text, re.M))
    return {line for line in found if "\n" not in line}


@pytest.mark.parametrize("line", sorted(commands()))
def test_a_command_that_is_named_exists(line: str) -> None:
    command: Any = COMMAND
    words = shlex.split(line.replace("…", "").rstrip("\\"))[1:]
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        command = command.commands[words.pop(0)]
    known = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
    asked = {word.partition("=")[0] for word in words if word.startswith("--")} - {"--help"}
    assert asked <= known, line


def test_what_is_to_be_installed_can_be() -> None:
    extras = set(metadata("eris-fl").get_all("Provides-Extra") or ())
    written = {
        extra
        for path in SOURCE.rglob("*.py")
        for text in texts(path)
        for extra in re.findall(r"eris-fl\[([a-z]+)\]", text)
    }
    missing = re.findall(
        r'(?:MissingExtra|library\("[^"]+", )\(?"[^"]+", "([a-z]+)"\)',
        "\n".join(path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")),
    )
    declared = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text())
    assert extras == set(declared["project"]["optional-dependencies"])
    assert {*missing, *written} <= extras
    assert missing
