"""Six node processes with encrypted sums over TLS; one is killed between ciphertext and share."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from eris.runtimes.grpc.answers import ANSWERS
from support.nodes import Nodes, lawful

VICTIM, ROUND, ROUNDS = "emil", 3, 12


def missed(nodes: Nodes) -> list[str]:
    """What owners have found out about the round."""
    owners = [name for name in nodes.names if nodes.views(name)[0]["owners"].count(name)]
    return [
        line["what"]
        for name in owners
        for line in nodes.events(name, "found")
        if line["what"].startswith(f"round {ROUND},")
    ]


def test_who_is_killed_between_its_ciphertext_and_its_share_is_named_and_comes_back(
    tmp_path: Path,
) -> None:
    values = {
        "federation.method": "enccluster",
        "federation.method_options": {
            "clusters": 4, "aggregators": 3, "weight_range": 15.0, "fraction_bits": 11,
        },
        "training.trainer": "eris.testing.vanishing:Vanishing",
    }  # fmt: skip
    marker = tmp_path / "vanished"
    options = {VICTIM: {"vanishes": ROUND, "marker": str(marker)}}
    # No owner: it would die by its own question first, and nobody would wait for its ciphertexts.
    own = {VICTIM: {"node.aggregator": False}}
    with Nodes(tmp_path, 6, rounds=ROUNDS, values=values, own=own, options=options) as nodes:
        nodes.lead(ROUND)
        nodes.begin()
        assert nodes.ends(VICTIM) == -signal.SIGKILL
        assert marker.exists()
        nodes.until(lambda: bool(missed(nodes)), "an owner has waited in vain for a share")
        nodes.begin(VICTIM)
        nodes.until(lambda: len(nodes.said(VICTIM, "joined")) > 1, f"{VICTIM} is back")
        nodes.step(ROUND + 1, ROUNDS)
        nodes.finish()
    # What was closed on it is withheld, and its owner says whose share was missing.
    told = missed(nodes)
    assert told
    assert all(f"the key shares of {VICTIM} are missing" in what for what in told)
    results = [line for line in nodes.events("anna", "result") if line["round"] == ROUND]
    assert [line["withheld"] for line in results] == [True] * len(told)
    # It takes part again, and the model is that of the plain integers of the sets that were opened:
    # every result is computed again, bit for bit.
    assert any(VICTIM in clients for clients in nodes.results("anna").values())
    last = {r: c for (r, _), c in nodes.results("anna").items() if r > ROUND}
    assert any(VICTIM in clients for clients in last.values())
    lawful(nodes)
    # What a client has answered is on its disk, and about one statement a segment and round.
    written = (nodes.settings("anna").node.folder / ANSWERS).read_text()
    answers = [json.loads(line) for line in written.splitlines()]
    places = [(one["round"], one["shard"], one["segment"]) for one in answers]
    assert len(places) == len(set(places)) > 6
