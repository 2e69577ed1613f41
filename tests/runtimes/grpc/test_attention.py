"""Leases end by the silence of members, not by that of the machine that hosts the directory."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest

from eris.runtimes.grpc.parts import hosted_directory, renewed_after
from support.node_files import load
from support.registry import join, renew

NAMES = ("anna", "ben", "cleo")


def test_a_host_that_was_stopped_takes_nobody_for_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    true_time, ahead = time.monotonic, 0.0
    monkeypatch.setattr(time, "monotonic", lambda: true_time() + ahead)
    membership = "host_directory = true\nstart_with = 3\nlease = 3000.0"
    few = "+min_included = 2\nquorum = 2"
    state = f'+folder = "{tmp_path}"'
    settings = load(tmp_path, node=state, membership=membership, federation=few)
    service = hosted_directory(settings, settings.agreement(30))
    directory, clock, pause = service.directory, service._clock, renewed_after(settings)

    def epoch_after(seconds: float, *heard: str) -> int:
        """What the directory has made of it when these are heard after a while."""
        nonlocal ahead
        ahead += seconds
        for name in heard:
            standing = renew(directory, clock(), name, 1)
        return standing.views[-1].view.epoch

    with closing(service.ledger):
        for name in NAMES:
            join(directory, clock(), name, charter=directory.charter)
        assert epoch_after(pause, *NAMES) == 1
        # All have spoken all the time; one is read first.
        assert epoch_after(100 * directory.lease, *NAMES) == 1
        assert epoch_after(100 * directory.lease, *reversed(NAMES)) == 1
        # Nobody hears of cleo any more, while the host listens.
        epochs = [epoch_after(pause, "anna", "ben") for _ in range(4)]
        assert epochs[0] == 1
        assert epochs[-1] == 2
