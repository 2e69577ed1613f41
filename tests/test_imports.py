"""The rooms of the package import only towards the left (docs/design.md)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "eris"

MAY_SEE = {
    "core": set(),
    "protocol": {"core"},
    "methods": {"core", "protocol"},
    "runtimes": {"core", "protocol", "methods", "training", "files"},
    "training": {"core", "protocol"},
    "theory": {"core", "protocol"},
    "audit": {"core", "protocol", "methods", "training", "theory"},
    "data": {"core", "files"},
    "models": {"core"},
}
"""Rooms not named here (experiments, cli, testing, the front door) may see all."""

NOT_IN_CORE = {"torch", "os", "io", "pathlib", "socket", "subprocess", "asyncio", "time", "random"}
NOT_IN_PROTOCOL = {"torch", "os", "socket", "subprocess", "asyncio", "time", "random", "threading"}


def imported(path: Path) -> Iterator[str]:
    """Every module a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the direction"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def files(room: str) -> list[Path]:
    found = sorted((SOURCE / room).rglob("*.py"))
    return [path for path in found if not path.name.endswith("_pb2.py")]


@pytest.mark.parametrize("room", [room for room in MAY_SEE if (SOURCE / room).is_dir()])
def test_rooms_see_only_what_lies_to_their_left(room: str) -> None:
    assert files(room)
    for path in files(room):
        for module in imported(path):
            parts = module.split(".")
            if parts[0] != "eris" or len(parts) < 2:
                assert module != "eris", f"{path} imports the front door"
                continue
            assert parts[1] in MAY_SEE[room] | {room}, f"{path} imports {module}"


@pytest.mark.parametrize(
    ("room", "forbidden"), [("core", NOT_IN_CORE), ("protocol", NOT_IN_PROTOCOL)]
)
def test_mathematics_and_protocol_do_no_input_or_output(room: str, forbidden: set[str]) -> None:
    for path in files(room):
        roots = {module.split(".")[0] for module in imported(path)}
        assert not roots & forbidden, f"{path} imports {roots & forbidden}"


def test_the_check_sees_an_import_that_goes_the_wrong_way(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text("def late():\n    from eris.runtimes import local\n", encoding="utf-8")
    assert "eris.runtimes" in set(imported(wrong))


def test_nothing_is_pickled() -> None:
    for path in SOURCE.rglob("*.py"):
        roots = {module.split(".")[0] for module in imported(path)}
        assert not roots & {"pickle", "dill", "cloudpickle", "shelve", "marshal"}, path
