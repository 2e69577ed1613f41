"""Nodes over gRPC say what the simulator says: contributions and results, message by message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.nodes import Nodes
from support.same_bytes import PATIENT, ROUNDS, over_grpc, simulated

MODES: dict[str, dict[str, Any]] = {
    "plain": {"federation.segment_size": 50},
    "dsc": {"federation.kept_fraction": 0.2},
    "quantised": {"federation.compressor": "qsgd:16"},
    "rotated": {"federation.kept_fraction": 0.1, "federation.basis": "rotated"},
}


@pytest.mark.parametrize("mode", MODES)
def test_first_sends_over_grpc_are_the_simulators(mode: str, tmp_path: Path) -> None:
    with Nodes(tmp_path, 4, rounds=ROUNDS, values={**PATIENT, **MODES[mode]}) as nodes:
        nodes.begin()
        nodes.finish()
    sent, transcript = over_grpc(nodes)
    expected, cohort = simulated(transcript)
    assert sent.keys() == expected.keys()
    assert sent == expected
    assert len(expected) == ROUNDS * len(cohort.agreement.keys) * (4 + 1)
    assert transcript.final_model is not None
    assert transcript.final_model.tobytes() == cohort.replica.model.tobytes()
