"""The generated code, and the two ends of the range of protobuf versions that it runs under.

The environment has the newest; ``make setup`` puts the oldest, and the compiler of its time, into a
folder beside it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import google.protobuf
import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
OLDEST = Path(sys.prefix, "oldest")
CODECS = ("test_codec.py", "test_wire.py", "test_directory_wire.py")


def under_oldest(*arguments: str) -> subprocess.CompletedProcess[str]:
    places = [str(OLDEST), str(ROOT / "src"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def version_under_oldest() -> str:
    return under_oldest("-c", "import google.protobuf as p; print(p.__version__)").stdout.strip()


@pytest.mark.parametrize("schema", ["eris", "directory"])
def test_the_generated_code_is_up_to_date(schema: str, tmp_path: Path) -> None:
    command = ["-m", "grpc_tools.protoc", "-Isrc", f"--python_out={tmp_path}"]
    made = under_oldest(*command, f"--pyi_out={tmp_path}", f"src/eris/protocol/{schema}.proto")
    assert made.returncode == 0, made.stderr
    for name in (f"{schema}_pb2.py", f"{schema}_pb2.pyi"):
        path = Path("eris", "protocol", name)
        assert (tmp_path / path).read_text() == (ROOT / "src" / path).read_text(), (
            f"{name} is not what `make proto` makes of {schema}.proto"
        )


def test_the_package_allows_both_ends_and_they_are_at_hand() -> None:
    wanted = [Requirement(line) for line in metadata.requires("eris-fl") or []]
    (allowed,) = [one.specifier for one in wanted if one.name == "protobuf"]
    oldest, newest = version_under_oldest(), google.protobuf.__version__
    assert allowed.contains(oldest)
    assert allowed.contains(newest)
    assert (oldest.split(".")[0], newest.split(".")[0]) == ("6", "7")


def test_messages_are_the_same_under_the_oldest() -> None:
    """The codecs' own tests, golden bytes among them, in a process with the oldest protobuf."""
    files = [f"tests/protocol/{name}" for name in CODECS]
    done = under_oldest("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *files)
    assert done.returncode == 0, done.stdout[-3000:]
