"""``eris directory backup``: what it takes, and what it says when it cannot."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from eris.runtimes.grpc.ledger import Ledger
from support.command import eris
from support.node_files import write
from support.registry import founded, join


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    """Of a node that hosts a directory with one member."""
    directory = founded()
    join(directory, 0.0, "anna")
    (tmp_path / "state").mkdir()
    with closing(Ledger(tmp_path / "state" / "directory.sqlite")) as ledger:
        ledger.save(directory.state())
    return write(tmp_path)


def test_a_ledger_is_copied_by_its_nodes_settings_or_its_own_name(
    settings: Path, tmp_path: Path
) -> None:
    for number, source in enumerate((settings, tmp_path / "state" / "directory.sqlite")):
        copy = tmp_path / f"copy-{number}"
        done = eris("directory", "backup", copy, "--from", source)
        assert (done.returncode, done.stderr) == (0, "")
        assert "directory.sqlite at revision 1" in done.stdout
        with closing(Ledger(copy)) as ledger:
            found = ledger.load()
        assert found is not None
        assert [member["name"] for member in found["members"]] == ["anna"]
    again = eris("directory", "backup", copy, "--from", settings)
    assert again.returncode == 2
    assert "exists, and a backup overwrites nothing" in again.stderr


@pytest.mark.parametrize(
    ("tables", "says"),
    [
        ({"membership": 'directory = "ben:7400"\ndirectory_name = "ben"\nstart_with = 3'},
         "hosts no directory; its host is ben"),
        ({"membership": "host_directory = true\nstart_with = 5", "node": '+folder = "elsewhere"'},
         "there is no ledger at"),
    ],
)  # fmt: skip
def test_where_there_is_no_ledger_it_says_so_in_one_line(
    tmp_path: Path, tables: dict[str, str], says: str
) -> None:
    done = eris("directory", "backup", tmp_path / "copy", "--from", write(tmp_path, **tables))
    assert done.returncode == 2
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "copy").exists()


def test_without_settings_it_names_what_it_looked_for(tmp_path: Path) -> None:
    done = eris("directory", "backup", "copy", cwd=tmp_path)
    assert done.returncode == 2
    assert "node.toml" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_its_help_says_how_to_put_a_copy_back() -> None:
    said = eris("directory", "backup", "--help").stdout
    assert "directory.sqlite*" in said
    assert "--from" in said
