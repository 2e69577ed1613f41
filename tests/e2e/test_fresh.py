"""``eris local --fresh`` and ``eris demo`` remove what they made, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from eris.experiments.federations.processes import LocalFederation, node_names
from eris.runtimes.grpc.tls import create_authority, issue
from support.command import broken, eris


@pytest.mark.parametrize(
    "command", [["local", "3", "--fresh", "--trainer", "nowhere:make"], ["demo", "--rounds", "10"]]
)
def test_the_authority_of_a_real_federation_is_never_removed(
    command: list[str], tmp_path: Path
) -> None:
    folder = tmp_path / "clinics"
    create_authority(folder / "ca", "clinics")
    issue(folder / "ca", "anna", out=folder / "anna")
    (folder / "results.txt").write_text("three years of work\n")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    done = eris(*command, "--folder", folder, cwd=tmp_path)
    assert done.returncode == 2
    assert f"{folder} is not removed" in done.stderr
    assert done.stderr.count("\n") == 1
    after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert after == before


def test_an_earlier_federation_is_removed_when_that_is_asked_for(tmp_path: Path) -> None:
    broken(tmp_path)
    values = {"federation.rounds": 1, "training.trainer": "broken:make"}
    LocalFederation(tmp_path / "runs" / "local", node_names(4), values)
    call = ["local", "3", "--trainer", "broken:make"]
    refused = eris(*call, cwd=tmp_path)
    assert refused.returncode == 2
    assert "is there already; give another --folder, or --fresh to remove it" in refused.stderr
    assert (tmp_path / "runs" / "local" / "node-4").exists()
    again = eris(*call, "--fresh", cwd=tmp_path)
    assert "ended with code 1; the end of its log:" in again.stderr
    assert not (tmp_path / "runs" / "local" / "node-4").exists()
    assert (tmp_path / "runs" / "local" / "node-3").exists()
