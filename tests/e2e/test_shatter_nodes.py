"""Nodes that carry each other's virtual nodes over gRPC; one is killed and comes back."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from eris.core.compress import Encoding, decode_values
from eris.methods.registry import agreed
from eris.methods.shatter import Shatter
from eris.protocol.gossip.carried import EXCHANGE, HAND_BACK, HAND_OUT
from eris.protocol.gossip.peer import GossipSettings
from eris.protocol.gossip.roll import LABEL_BYTES, NAME_BYTES, Label
from eris.protocol.messages import Share
from eris.protocol.transcript import Transcript
from eris.runtimes.grpc.recorder import TRANSCRIPT
from support.node_files import load
from support.nodes import Nodes

ROUNDS = 20
OPTIONS = {"virtual_nodes": 2, "degree": 2}
VALUES = {
    "federation.method": "shatter",
    "federation.method_options": OPTIONS,
    "federation.close_after": 2.0,
    "observe.record": True,
}


def chunks(share: Share, transcript: Transcript) -> dict[Label, bytes]:
    """What a share has of every virtual node in it."""
    settings = GossipSettings.from_canonical(transcript.settings)
    method = agreed(settings)
    assert isinstance(method, Shatter)
    before = NAME_BYTES if share.header.segment == HAND_BACK else 0
    size = before + LABEL_BYTES
    parts = [share.names[at + before : at + size] for at in range(0, len(share.names), size)]
    labels = [(part[:NAME_BYTES], int.from_bytes(part[NAME_BYTES:], "little")) for part in parts]
    cut = method.carrying(settings).chunking
    sizes = [cut.size(share.header.round, chunk) for _, chunk in labels]
    values = decode_values(share.payload.encoded, Encoding.DENSE, sum(sizes))
    pieces = np.split(values, np.cumsum(sizes)[:-1]) if sizes else []
    return {label: piece.tobytes() for label, piece in zip(labels, pieces, strict=True)}


@pytest.mark.slow
def test_nodes_carry_for_each_other_and_go_on_without_one_that_is_killed(tmp_path: Path) -> None:
    with Nodes(tmp_path, 5, rounds=ROUNDS, values=VALUES) as nodes:
        nodes.step(1, 4)
        nodes.kill("emil")
        nodes.lead(8)
        nodes.until_round(9, "anna", "ben", "cleo", "dora")
        before = len(nodes.views("emil"))
        nodes.begin("emil")
        nodes.until(lambda: len(nodes.views("emil")) > before, "emil is in a view again")
        nodes.finish()
        trained = [line["round"] for line in nodes.journal("emil") if line["event"] == "trained"]
        assert trained == sorted(set(trained)), "no round is trained twice"
        assert trained[-1] == ROUNDS
        over = [line for line in nodes.journal("emil") if line["event"] == "round"]
        assert over[-1]["missed"] == 0
        assert over[-1]["mixed"] >= 3 * 4, "it is among the others again, in every hop"
        models = [nodes.model(name) for name in nodes.names]
        found = [
            Transcript.load(nodes.folder / name / "state" / TRANSCRIPT) for name in nodes.names
        ]
    assert all(model is not None for model in models)
    spread = np.ptp(np.stack([model for model in models if model is not None]), axis=0)
    assert float(spread.max()) < 3.0

    # What travels under a name is what its owner has handed out in that round, and nothing else.
    handed: dict[tuple[int, Label], tuple[int, int, bytes]] = {}
    passed: dict[int, set[tuple[Label, bytes]]] = defaultdict(set)
    rounds: dict[bytes, set[int]] = defaultdict(set)
    for transcript in found:
        for record in transcript.records:
            share = record.message
            if not isinstance(share, Share) or share.header.segment not in (
                HAND_OUT, EXCHANGE, HAND_BACK,
            ):  # fmt: skip
                continue
            round = share.header.round
            for label, values in chunks(share, transcript).items():
                rounds[label[0]].add(round)
                if share.header.segment == HAND_OUT:
                    place = (record.sender, record.receivers[0], values)
                    assert handed.setdefault((round, label), place) == place
                    assert record.receivers[0] != record.sender
                else:
                    passed[round].add((label, values))
    assert all(len(of) == 1 for of in rounds.values()), "a name lasts a round"
    assert len(passed) == ROUNDS
    for round, told in passed.items():
        for label, values in told:
            assert handed[round, label][2] == values


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        (
            {"membership": "host_directory = true\nstart_with = 3"},
            "the number of members is 3; expected at least 4: with fewer whoever gets a chunk "
            "knows whose it is",
        ),
        (
            {"federation": "degree = 90"},
            "federation.method_options.degree is 90; expected 1 to 39 for 40 nodes",
        ),
        (
            {"federation": "owner_secret = 5"},
            "federation.method_options.owner_secret is 5; expected nothing: a secret",
        ),
        (
            {"federation": "virtual_nodes = 2000000, degree = 2"},
            "federation.method_options.virtual_nodes is 2000000; expected 1 to n",
        ),
    ],
)
def test_what_members_cannot_carry_is_refused_in_one_line(
    tables: dict[str, str], said: str, tmp_path: Path
) -> None:
    options = f"method_options = {{{tables.pop('federation', '')}}}"
    with pytest.raises(ValueError, match="expected") as refused:
        load(tmp_path, federation=f'+method = "shatter"\n{options}', **tables)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
