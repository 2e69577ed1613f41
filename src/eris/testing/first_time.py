"""What a newcomer does, step by step, with the time that each step takes.

    make first-time                                   # from a fresh clone
    python -m eris.testing.first_time --here          # with the ERIS that is installed

A clone of the repository, its environment, a project of one's own, a simulated federation, its
audit and report, five real nodes. Nothing but Python's own library is used: the first steps install
the rest.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
PROJECT = "clinic"
STEPS = (
    ("a project of one's own", f"eris new {PROJECT}"),
    ("a simulated federation", "eris run recipe.toml"),
    ("the same with a server", "eris run recipe.toml --method fedavg --name central"),
    ("both side by side", f"eris compare {PROJECT} central"),
    ("what it gave away", f"eris audit {PROJECT} --every 5"),
    ("a page about it", f"eris report {PROJECT}"),
    ("real nodes", "eris local 5 --trainer training:make_trainer"),
    ("a page about them", "eris report runs/local"),
)
"""All but the first are typed in the project's folder."""


class FirstTime:
    """The steps in one folder, each timed and noted."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.taken = folder, list[tuple[str, float]]()

    def step(self, label: str, command: list[str], shown: str, cwd: Path) -> None:
        """Do one step; what it says is kept in a file, and shown if it fails."""
        print(f"{label}: {shown}", flush=True)
        began = time.monotonic()
        log = self.folder / f"{len(self.taken) + 1}.log"
        with log.open("wb") as out:
            # What is installed is found without help of this process's environment.
            clean = {key: value for key, value in os.environ.items() if key != "MAKEFLAGS"}
            done = subprocess.run(
                command, cwd=cwd, env=clean, stdout=out, stderr=subprocess.STDOUT, check=False
            )
        self.taken.append((label, time.monotonic() - began))
        if done.returncode:
            print(log.read_text(encoding="utf-8", errors="replace")[-3000:])
            sys.exit(f"failed with code {done.returncode}: {shown}; all it said: {log}")

    def table(self) -> str:
        """All steps and their times."""
        lines = [f"{seconds:8.1f} s  {label}" for label, seconds in self.taken]
        total = sum(seconds for _, seconds in self.taken)
        return "\n".join([*lines, f"{total:8.1f} s  in all"])


def main(given: list[str] | None = None) -> None:
    """Do all steps, and print how long each took."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--here", action="store_true", help="use this environment: no clone")
    parser.add_argument("--folder", type=Path, help="where to work; default: a new one, removed")
    options = parser.parse_args(given)
    folder = (options.folder or Path(tempfile.mkdtemp())).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    first = FirstTime(folder)
    python = sys.executable
    if not options.here:
        clone = folder / "eris"
        cloning = ["git", "clone", "--quiet", str(REPOSITORY), str(clone)]
        first.step("a clone", cloning, "git clone … eris", folder)
        first.step("its environment", ["make", "setup"], "make setup", clone)
        python = str(clone / ".venv" / "bin" / "python")
    for number, (label, line) in enumerate(STEPS):
        command = [python, "-m", "eris.cli.main", *shlex.split(line)[1:]]
        first.step(label, command, line, folder / PROJECT if number else folder)
    print(first.table())
    if options.folder is None:
        shutil.rmtree(folder)  # after a failure it is left, to look into


if __name__ == "__main__":
    main()
