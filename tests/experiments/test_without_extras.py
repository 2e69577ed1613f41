"""The package as it is installed without extras: what is missing is named at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BARE = """
import sys
for name in ("torch", "sklearn", "scipy", "ray", "transformers", "dp_accounting", "coincurve",
             "gmpy2", "phe"):
    sys.modules[name] = None
from eris.cli.main import main
main()
"""
"""The command in a process to which the libraries of the extras are not there."""
NEEDS = [
    (["demo"], "torch"),
    (["local", "3"], "torch"),
    (["run"], "torch"),
    (["run", "--data", "digits"], "torch,sklearn"),
    (["run", "--engine", "ray"], "torch,ray"),
    (["run", "--data", "imdb"], "torch,transformers"),
    (["run", "--set", "sampling_rate=0.5"], "torch,audit"),
    (["audit", "anything"], "torch,audit"),
    (["train-prior", "rog", "mnist"], "torch"),
    (["reproduce", "mnist"], "torch"),
    (["reproduce", "audit-mnist"], "torch,audit"),
    (["reproduce", "audit-shatter"], "torch,audit"),
    (["reproduce", "audit-spv"], "torch,audit"),
    (["data", "partition", "digits"], "sklearn"),
    (["data", "fetch", "digits"], "sklearn"),
]


def bare(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", BARE, *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("arguments", "extras"), NEEDS, ids=[" ".join(a) for a, _ in NEEDS])
def test_the_line_that_installs_it_is_named_and_nothing_has_begun(
    arguments: list[str], extras: str, tmp_path: Path
) -> None:
    done = bare(*arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stdout
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert f"`pip install 'eris-fl[{extras}]'`" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_what_needs_no_extra_works_without(tmp_path: Path) -> None:
    for arguments in (
        ["--help"],
        ["data", "list"],
        ["methods", "eris"],
        ["runs"],
        ["ca", "init", "ca", "--federation", "clinics"],
        ["ca", "issue", "anna"],
        ["ca", "show", "ca"],
        ["node", "init", "anna", "--host-directory", "--start-with", "3"],
    ):
        done = bare(*arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
