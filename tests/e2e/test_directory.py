"""A federation whose directory's ledger is copied, put back, lost or of another run.

Nodes are started again when they have failed, as a supervisor does it (``Restart=on-failure``).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from support.nodes import Nodes, lawful


class Supervised(Nodes):
    """Nodes that are started again whenever they have failed."""

    def tend(self, holds: Callable[[Counter[str]], bool], what: str) -> None:
        """Look after them until something holds, which is told how often each has failed."""
        failures: Counter[str] = Counter()

        def held() -> bool:
            for name, process in list(self.processes.items()):
                if process.poll():
                    del self.processes[name]
                    failures[name] += 1
                    self.start(name)
            return holds(failures)

        self.until(held, what)

    def power_cut(self) -> None:
        """All end at once."""
        for name in list(self.processes):
            self.kill(name)

    @property
    def ledger(self) -> Path:
        return self.folder / "anna" / "state" / "directory.sqlite"

    def backup(self, target: Path) -> None:
        """As its host's operator does it."""
        command = [sys.executable, "-m", "eris.cli.main", "directory", "backup", str(target)]
        settings = self.folder / "anna" / "node.toml"
        done = subprocess.run([*command, "--from", str(settings)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "at revision" in done.stdout

    def put_back(self, copy: Path) -> None:
        """As the help of the command says, with the node stopped."""
        for path in self.ledger.parent.glob("directory.sqlite*"):
            path.unlink()
        shutil.copy(copy, self.ledger)


@pytest.mark.slow
def test_a_copy_that_is_up_to_date_goes_on_and_an_older_one_is_refused_by_all(
    tmp_path: Path,
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    with Supervised(tmp_path, 3, rounds=20) as nodes:
        nodes.step(1, 4)
        nodes.backup(old)  # while they train
        nodes.step(4, 9)
        nodes.until_said("cleo", "joined number=")
        nodes.power_cut()
        nodes.backup(new)  # nothing runs, and what is in the log is copied, too
        nodes.put_back(old)
        nodes.lead(12)
        nodes.begin()
        nodes.tend(lambda failed: all(failed[n] >= 2 for n in nodes.names), "all refuse")
        for name in nodes.names:
            assert nodes.said(name, "the directory's ledger is not the newest")
            assert nodes.at(name) <= 9, "nothing was trained with the older copy"
        nodes.power_cut()
        nodes.put_back(new)
        nodes.begin()
        nodes.tend(lambda _: nodes.at("anna") >= 12, "they go on")
        nodes.lead(nodes.rounds)
        nodes.finish()
        lawful(nodes)


@pytest.mark.slow
def test_a_ledger_that_was_lost_is_refused_however_often_the_nodes_are_started(
    tmp_path: Path,
) -> None:
    with Supervised(tmp_path, 3, rounds=1000) as nodes:
        nodes.step(1, 5)
        nodes.power_cut()
        for path in nodes.ledger.parent.glob("directory.sqlite*"):
            path.unlink()
        nodes.begin("anna")
        nodes.tend(lambda failed: failed["anna"] >= 3, "its host makes no new one")
        assert not nodes.ledger.exists()
        assert "the directory does not remember this federation" in nodes.log("anna", 1)
        nodes.power_cut()
        shutil.rmtree(nodes.folder / "anna" / "state")  # it begins another run; the others do not
        nodes.begin()
        others = ("ben", "cleo")
        nodes.tend(lambda failed: all(failed[n] >= 3 for n in others), "the others refuse")
        for name in others:
            assert "the directory does not remember this federation" in nodes.log(name)
            assert nodes.at(name) <= 5


@pytest.mark.slow
def test_a_folder_of_another_run_is_refused_each_time_and_never_called_finished(
    tmp_path: Path,
) -> None:
    with Supervised(tmp_path, 3, rounds=3) as nodes:
        nodes.begin()
        nodes.finish()
        nodes.processes.clear()
        for name in ("anna", "ben"):
            shutil.rmtree(nodes.folder / name / "state")
        memory = nodes.folder / "cleo" / "state" / "run.json"
        memory.unlink(missing_ok=True)  # its checkpoint knows it, too
        nodes.begin()
        nodes.tend(lambda failed: failed["cleo"] >= 3, "cleo is refused")
        assert "belongs to run" in nodes.log("cleo")
        shutil.rmtree(nodes.folder / "cleo" / "state")
        nodes.tend(lambda _: not any(nodes.running(name) for name in nodes.names), "all end")
        assert {process.returncode for process in nodes.processes.values()} == {0}
