"""How real nodes end: with a complete model, or with a line that says what is missing."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest

from eris.experiments.federations.processes import free_ports
from eris.protocol.settings import model_digest
from eris.runtimes.grpc import storage
from eris.runtimes.grpc.addresses import LOOPBACK
from support.nodes import Nodes


def left(nodes: Nodes, name: str) -> bool:
    """Whether a node has left a model."""
    return (nodes.folder / name / "state" / storage.MODEL).exists()


def model_of(nodes: Nodes, name: str) -> str:
    """The digest of the model that a node has left."""
    found = nodes.model(name)
    assert found is not None
    return model_digest(found)


@pytest.mark.slow
def test_who_comes_back_when_all_have_gone_fails_and_goes_on_when_they_are_there(
    tmp_path: Path,
) -> None:
    others = ("ben", "cleo", "dora")
    own = {name: {"node.linger": 120.0} for name in others}
    with Nodes(tmp_path, 4, rounds=4, own=own) as nodes:
        nodes.begin()
        assert nodes.ends("anna") == 0
        for name in others:
            nodes.until(lambda name=name: bool(list(nodes.events(name, "finished"))), name)  # type: ignore[misc]
            assert nodes.stop(name) == 0
        # The directory's host has its ledger, but nothing of what was trained.
        for file in (storage.MODEL, storage.CHECKPOINT):
            (nodes.folder / "anna" / "state" / file).unlink()
        nodes.begin("anna")
        assert nodes.ends("anna") == 2
        said = nodes.said("anna", "error:", "the model is not complete after 4 rounds")[-1]
        for part in (
            "is known up to round 0; shard",
            "coordinates were never trained; asked in vain: ",
            *others,
            "start this node again",
        ):
            assert part in said
        assert not left(nodes, "anna")
        assert list(nodes.events("anna", "incomplete"))
        nodes.begin()
        assert nodes.ends("anna") == 0
        assert [nodes.stop(name) for name in others] == [0, 0, 0]
        models = {model_of(nodes, name) for name in nodes.names}
        assert len(models) == 1


@pytest.mark.slow
def test_an_owner_that_cannot_be_dialled_leaves_nobody_with_half_a_model(tmp_path: Path) -> None:
    (closed, http) = free_ports(2)
    own: dict[str, dict[str, object]] = {
        "cleo": {"node.address": f"{LOOPBACK}:{closed}"},
        "anna": {"observe.http": f"{LOOPBACK}:{http}", "node.linger": 8.0},
    }
    with Nodes(tmp_path, 4, rounds=3, own=own) as nodes:
        nodes.begin()
        nodes.until(lambda: bool(nodes.said("anna", "incomplete")), "anna knows")
        with urllib.request.urlopen(f"http://{LOOPBACK}:{http}/status", timeout=30) as answer:
            status = json.load(answer)
        assert not status["ready"]
        assert "of cleo) is known up to round 0" in status["reason"]
        assert {name: nodes.ends(name) for name in nodes.names} == dict.fromkeys(nodes.names, 2)
        for name in nodes.names:
            assert not left(nodes, name)
            assert nodes.said(name, "error:", "coordinates were never trained")
            assert not list(nodes.events(name, "finished"))
