"""What may be removed: what was made and marked, and nothing beside it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from eris.core.errors import ErisError
from eris.experiments.federations.processes import LOCAL, LocalFederation, node_names, remove
from eris.experiments.runs.marks import MARK


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    values = {"federation.rounds": 1, "training.trainer": "mine:make"}
    made = LocalFederation(tmp_path / "nodes", node_names(3), values)
    for name in made.names:  # as a node does when it runs
        (made.folder / name / "log.txt").write_text("started\n")
        (made.folder / name / "state" / "journal.jsonl").write_text("{}\n")
    return made.folder


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_was_made_and_what_nodes_wrote_goes_as_a_whole(folder: Path) -> None:
    (folder / "node-1" / "node.toml").write_text("changed by its user")
    (folder / "node-2" / "node.toml").unlink()
    remove(folder, LOCAL)
    assert not folder.exists()
    remove(folder, LOCAL)
    folder.mkdir()
    remove(folder, LOCAL)
    assert folder.is_dir()


@pytest.mark.parametrize(
    "strange",
    ["results.txt", "anna/node.toml", "node-1/my_training.py", "ca/anna/anna.key", "state/model"],
)
def test_anything_else_is_named_and_nothing_is_removed(strange: str, folder: Path) -> None:
    path = folder / strange
    path.parent.mkdir(exist_ok=True)
    path.write_text("three years of work\n")
    before = contents(folder)
    with pytest.raises(ErisError, match=f"`eris local` did not make {path}"):
        remove(folder, LOCAL)
    assert contents(folder) == before


def test_an_authority_that_took_the_place_of_the_one_made_stays(folder: Path) -> None:
    (folder / "ca" / "ca.key").write_text("another key")
    with pytest.raises(ErisError, match=r"did not make .*ca/ca\.key"):
        remove(folder, LOCAL)
    assert (folder / "ca" / "ca.key").read_text() == "another key"


def test_a_link_leads_to_nothing_that_was_made(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "precious").touch()
    (folder / "node-1" / "state" / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ErisError, match=r"did not make .*state/link"):
        remove(folder, LOCAL)
    assert (tmp_path / "elsewhere" / "precious").exists()


def test_a_folder_without_a_mark_or_with_another_command_s_is_not_touched(folder: Path) -> None:
    before = contents(folder)
    with pytest.raises(ErisError, match="`eris local` made it"):
        remove(folder, "eris demo")
    assert contents(folder) == before
    for text in ("", "{}", "[]"):
        (folder / MARK).write_text(text)
        with pytest.raises(ErisError, match=r"it has no mark \(\.made-by-eris\.json\)"):
            remove(folder, LOCAL)
    (folder / MARK).unlink()
    with pytest.raises(ErisError, match="it has no mark"):
        remove(folder, LOCAL)
    assert contents(folder) == {path: data for path, data in before.items() if path.name != MARK}


def test_nodes_that_run_keep_their_folder(folder: Path) -> None:
    from eris.runtimes.grpc.addresses import endpoint
    from eris.runtimes.grpc.settings import NodeSettings

    address = endpoint(NodeSettings.load(folder / "node-2" / "node.toml", {}).address)
    with socket.create_server(address), pytest.raises(ErisError, match="node-2 still runs there"):
        remove(folder, LOCAL)
    assert (folder / "ca" / "ca.key").exists()
