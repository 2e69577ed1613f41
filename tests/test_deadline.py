"""The time limit of tests: it names the process that was waited for, and leaves none behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from support.deadline import command as command_of

STUCK = """
import subprocess, sys

# It ignores polite requests, as does what it starts.
DEAF = '''
import signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if sys.argv[1:]:
    subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()", "grandchild"])
print("ready", flush=True)
signal.pause()
'''

def test_stuck():
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", DEAF, "child"], stdout=pipe) as process:
        assert process.stdout.readline()
        try:
            process.wait()
        finally:
            process.terminate()
            process.wait()

def test_next():
    pass
"""


def test_a_test_that_waits_for_ever_is_ended_with_what_it_started(tmp_path: Path) -> None:
    (tmp_path / "test_stuck.py").write_text(STUCK)
    (tmp_path / "conftest.py").write_text(
        "from support.deadline import pytest_runtest_call, pytest_runtest_setup\n"
    )
    here = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_stuck.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "ERIS_TEST_LIMIT": "10", "PYTHONPATH": here},
    )
    assert "call of test_stuck.py::test_stuck: not done after 10 s" in done.stdout, done.stdout
    assert "1 failed, 1 passed" in done.stdout
    told = re.findall(r"^E +(\d+): (.*)$", done.stdout, re.MULTILINE)
    assert [command.split()[-1] for _, command in told] == ["child", "grandchild"]
    for pid, command in told:
        assert command_of(int(pid)) != command


def test_a_test_that_is_in_time_has_its_alarm_taken_off() -> None:
    remaining, _ = signal.getitimer(signal.ITIMER_REAL)
    assert remaining > 0  # that of this test
