"""One command line: help by examples, figures as JSON, codes by which it ends, completion."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from eris.cli import exits
from support.command import Eris
from support.commands import TREE, examples, leaves, options_of

COMMANDS = dict(leaves())
WITHOUT_FIGURES = {
    "eris ca init", "eris ca issue", "eris node init", "eris node start", "eris directory backup",
    "eris dashboard", "eris new", "eris ca clients-key",
}  # fmt: skip
PAGE = Path(__file__).parents[2] / "docs" / "commands.md"


@pytest.fixture
def eris(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Eris:
    monkeypatch.chdir(tmp_path)
    return Eris(monkeypatch, capsys)


# -- help -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_an_example_of_the_command_and_all_of_its_examples_can_be_typed(
    name: str,
) -> None:
    shown = examples(COMMANDS[name].help or "")
    assert any(re.match(rf"{name}( |$)", line) for line in shown), f"{name} --help has no example"
    for line in shown:
        options_of(line)


def test_examples_of_the_whole_and_of_groups_can_be_typed() -> None:
    groups = [TREE, *(one for one in TREE.commands.values() if hasattr(one, "commands"))]
    for group in groups:
        shown = examples(group.help)
        assert shown, group.name
        for line in shown:
            options_of(line)


def test_help_flows_and_its_examples_fit_a_terminal_of_eighty_columns() -> None:
    for one in (TREE, *TREE.commands.values(), *COMMANDS.values()):
        paragraphs = one.help.split("\n\n")
        assert "\b" not in one.help
        for paragraph in paragraphs:
            lines = paragraph.splitlines()
            assert len(lines) == 1 or examples(lines[0]), f"{one.name}: {lines[0]} is broken"
            assert len(lines) == 1 or max(map(len, lines)) <= 78, f"{one.name}: {lines}"


def test_the_check_sees_an_example_that_cannot_be_typed() -> None:
    for line, says in (
        ("eris run --round 3", "No such option"),
        ("eris rum", "No such command"),
        ("eris local", "Missing parameter"),
        ("eris local two", "valid integer"),
    ):
        with pytest.raises(Exception, match=says):
            options_of(line)


def test_options_of_one_name_are_of_one_kind() -> None:
    kinds: dict[str, set[bool]] = {}
    for command in COMMANDS.values():
        for option in command.params:
            for flag in option.opts:
                kinds.setdefault(flag, set()).add(getattr(option, "is_flag", False))
    assert len(kinds) > 100
    assert [flag for flag, found in kinds.items() if len(found) > 1] == []


# -- figures ----------------------------------------------------------------------------------


def test_everything_that_prints_figures_prints_them_as_json() -> None:
    with_json = {
        name for name, one in COMMANDS.items() if any("--json" in p.opts for p in one.params)
    }
    assert with_json == COMMANDS.keys() - WITHOUT_FIGURES


def test_json_is_one_document_and_words_go_to_stderr(eris: Eris, tmp_path: Path) -> None:
    def document(*arguments: str) -> Any:
        assert eris(*arguments, "--json") == exits.DONE, eris.err
        return json.loads(eris.out)

    small = ("--data", "digits", "--clients", "4", "--samples", "20", "--rounds", "2")
    first = document("run", *small, "--name", "first")
    assert "round 2/2" in eris.err
    assert first["state"] == "finished"
    assert first["path"] == "runs/first"
    lines = (tmp_path / "runs/first/rounds.jsonl").read_text(encoding="utf-8").splitlines()
    assert first["metrics"] == json.loads(lines[-1])["metrics"]
    document("run", *small, "--method", "fedavg", "--name", "second")

    listed = document("runs")
    assert [run["name"] for run in listed["runs"]] == ["first", "second"]
    assert listed["runs"][0]["metrics"] == first["metrics"]
    assert document("runs", "show", "first")["recipe"]["method"]["name"] == "eris"
    compared = document("compare", "first", "second")
    assert compared["differing"]["method.name"] == ["eris", "fedavg"]
    best = compared["runs"][0]["best"]["accuracy"]
    assert best["value"] >= first["metrics"]["accuracy"]
    page = document("report", "first")
    assert Path(page["report"]).stat().st_size == page["bytes"]

    kept = document("methods", "eris")["settings"]["kept_fraction"]
    assert kept["takes"] == "a number"
    names = [one["name"] for one in document("methods")["methods"]]
    settings = [
        (name, *one) for name in names for one in document("methods", name)["settings"].items()
    ]
    assert not [one for one in settings if "only a program" in one[2]["takes"]]
    assert document("methods", "eris")["settings"]["compressor"]["takes"].startswith("rand-p:KEPT")
    assert {"eris", "fedavg"} <= set(names)
    assert "mnist" in [one["name"] for one in document("data", "list")["data"]]
    assert document("data", "verify", "digits")["name"] == "digits"
    split = document("data", "partition", "digits", "--clients", "3", "--samples", "5")
    assert split["samples"] == [5, 5, 5]

    assert eris("ca", "init", "ca", "--federation", "clinics") == 0
    assert eris("ca", "issue", "anna", "--ca", "ca") == 0
    assert [one["name"] for one in document("ca", "show", "ca")["members"]] == ["anna"]


def test_a_refusal_prints_no_document(eris: Eris) -> None:
    assert eris("compare", "nobody", "--json") == exits.REFUSED
    assert eris.out == ""
    assert eris.err.startswith("error: ")


# -- codes ------------------------------------------------------------------------------------


def test_the_page_has_the_codes() -> None:
    rows = re.findall(r"^\| (\d+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    known = {value for name, value in vars(exits).items() if name.isupper()}
    assert {int(code) for code in rows} == known


def test_usage_and_bad_input_are_refused_alike(eris: Eris) -> None:
    assert eris("run", "--nonsense") == exits.REFUSED
    assert eris("nonsense") == exits.REFUSED
    assert eris("runs", "show", "nonsense") == exits.REFUSED
    assert eris("run", "--data", "mnits") == exits.REFUSED


def test_a_node_that_does_not_answer_is_a_failure(eris: Eris) -> None:
    assert eris("ca", "init", "ca", "--federation", "clinics") == 0
    assert eris("ca", "issue", "anna", "--ca", "ca", "--out", "anna") == 0
    alone = ("--directory", "127.0.0.1:1", "--directory-name", "ben", "--address", "127.0.0.1:2")
    assert eris("node", "init", "anna", "--start-with", "3", *alone) == 0
    assert eris("node", "status", "anna/node.toml", "--json") == exits.FAILED
    assert json.loads(eris.out)["node"] is None


INTERRUPTING = """
import os, signal, sys
from eris.cli import data, main
sys.argv = ["eris", "data", "list"]
data.recorded = lambda name: os.kill(os.getpid(), signal.SIGINT)
main.main()
"""


def test_an_interrupt_ends_any_command_by_its_code(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTING], cwd=tmp_path, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == exits.INTERRUPTED == 128 + signal.SIGINT, done.stderr
    assert "Traceback" not in done.stderr


# -- completion -------------------------------------------------------------------------------


def offered(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> list[str]:
    """What bash is offered for the last word of a line."""
    monkeypatch.setenv("_ERIS_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
    with pytest.raises(SystemExit):
        TREE.main(args=[], prog_name="eris")
    return capsys.readouterr().out.split()


def test_a_shell_completes_commands_runs_methods_and_data(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs" / "broken"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text("{", encoding="utf-8")
    assert offered("eris rep", monkeypatch, capsys) == ["report", "reproduce"]
    assert offered("eris methods fedavg-", monkeypatch, capsys) == ["fedavg-wc", "fedavg-ldp"]
    assert offered("eris data fetch mni", monkeypatch, capsys) == ["mnist"]
    assert offered("eris report br", monkeypatch, capsys) == []
