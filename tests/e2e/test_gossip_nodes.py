"""Members that gossip, over gRPC: their bytes, their models, one that is killed and comes back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eris.methods.method import GossipComposition
from eris.methods.registry import agreed
from eris.protocol.gossip.peer import GossipSettings
from eris.protocol.messages import Share
from eris.protocol.transcript import Record, Transcript
from eris.runtimes.grpc.recorder import TRANSCRIPT
from eris.runtimes.station import Stations
from eris.runtimes.swarm import Swarm
from eris.testing.quadratic import Quadratic
from eris.training.population import Trainers
from support.node_files import load
from support.nodes import Nodes
from support.same_bytes import PATIENT, ROUNDS

DETERMINISTIC: dict[str, dict[str, Any]] = {
    "d-psgd": {"degree": 2},
    "el": {"degree": 2},
    "muffliato": {"degree": 2, "sigma": 0.0, "steps": 3},
    "ako": {"partitions": 3},
}
First = dict[tuple[int, int, int, int], tuple[tuple[int, ...], bytes]]


def chosen(method: str, options: dict[str, Any], **values: Any) -> dict[str, Any]:
    return {"federation.method": method, "federation.method_options": options, **values}


def first_sent(records: list[Record]) -> First:
    """By sender, round, chunk and step: to whom a share first went, and its bytes."""
    sent: First = {}
    for record in records:
        if isinstance(share := record.message, Share):
            place = (record.sender, share.header.round, *share.header.key)
            sent.setdefault(place, (record.receivers, record.data))
    return sent


def simulated(transcript: Transcript) -> tuple[Swarm, First]:
    """The same federation of quadratics, moved in step."""
    (view,) = transcript.epochs.values()
    settings = GossipSettings.from_canonical(transcript.settings)
    settings = settings.in_view(len(view.clients), view.epoch)
    nodes, clients = agreed(settings).nodes(settings), view.clients
    trainers = [Quadratic(name) for name in view.members]
    composition = GossipComposition(
        view.members, clients, clients, nodes.phases, settings, nodes.build
    )
    swarm = Swarm(composition, trainers[0].initial(), Trainers(trainers), record=True)
    engine = Stations([swarm])
    records = [r for round in range(1, ROUNDS + 1) for r in engine.run_round(round).records]
    return swarm, first_sent(records)


@pytest.mark.slow
def test_quantised_shares_have_the_swarms_sizes(tmp_path: Path) -> None:
    values = chosen("q-dpsgd-1", {"density": 1.0}, **PATIENT)  # its rounding is drawn in secret
    with Nodes(tmp_path, 3, rounds=ROUNDS, values=values) as nodes:
        nodes.begin()
        nodes.finish()
    sent: First = {}
    for name in nodes.names:
        transcript = Transcript.load(nodes.folder / name / "state" / TRANSCRIPT)
        (view,) = transcript.epochs.values()
        me = view.members.index(name)
        sent |= first_sent([r for r in transcript.records if r.sender == me])
    _, expected = simulated(transcript)
    assert {name: (to, len(data)) for name, (to, data) in sent.items()} == {
        name: (to, len(data)) for name, (to, data) in expected.items()
    }


@pytest.mark.parametrize(
    "method",
    [
        name if name == "ako" else pytest.param(name, marks=pytest.mark.slow)
        for name in DETERMINISTIC
    ],
)
def test_nodes_that_gossip_say_and_learn_what_the_swarm_does(method: str, tmp_path: Path) -> None:
    values = chosen(method, DETERMINISTIC[method], **PATIENT)
    with Nodes(tmp_path, 4, rounds=ROUNDS, values=values) as nodes:
        nodes.begin()
        nodes.finish()
    sent: First = {}
    models = {}
    for name in nodes.names:
        transcript = Transcript.load(nodes.folder / name / "state" / TRANSCRIPT)
        (view,) = transcript.epochs.values()
        me = view.members.index(name)
        sent |= first_sent([r for r in transcript.records if r.sender == me])
        assert transcript.final_model is not None
        models[me] = transcript.final_model.tobytes()
    swarm, expected = simulated(transcript)
    assert sent == expected
    assert models == {me: model.tobytes() for me, model in swarm.models().items()}
    over = [line for line in nodes.journal("anna") if line["event"] == "round"]
    assert [line["missed"] for line in over] == [0] * ROUNDS
    assert all(line["mixed"] for line in over)


def test_a_node_that_is_killed_comes_back_and_goes_on_with_the_others(tmp_path: Path) -> None:
    values = chosen("q-dpsgd-1", {"density": 1.0}, **{"federation.close_after": 2.0})
    with Nodes(tmp_path, 3, rounds=24, values=values) as nodes:
        nodes.step(1, 4)
        nodes.kill("cleo")
        nodes.lead(8)
        nodes.until_round(9, "anna", "ben")
        before = len(nodes.views("cleo"))
        nodes.begin("cleo")
        nodes.until(lambda: len(nodes.views("cleo")) > before, "cleo is in a view again")
        nodes.finish()
        trained = [line["round"] for line in nodes.journal("cleo") if line["event"] == "trained"]
        assert trained == sorted(set(trained)), "no round is trained twice"
        assert trained[-1] == 24
        over = [line for line in nodes.journal("cleo") if line["event"] == "round"]
        assert over[-1]["mixed"] == 2, "it is among the others again"
        models = [nodes.model(name) for name in nodes.names]
    # All have mixed with each other at the end: nobody is far from the others.
    assert all(model is not None for model in models)
    spread = np.ptp(np.stack([model for model in models if model is not None]), axis=0)
    assert float(spread.max()) < 2.0


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('+method = "el"', "degree is 8; expected 1 to 4 for 5 nodes"),
        ('+method = "ako"\nrule = "fedadam"', "federation.rule is 'fedadam'; expected 'fedavg'"),
        (
            '+method = "q-dpsgd-1"\nmethod_options = {noise_secret = 5}',
            "federation.method_options.noise_secret is 5; expected nothing: a secret",
        ),
    ],
)
def test_what_nodes_cannot_gossip_by_is_refused_in_one_line(
    lines: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="expected") as refused:
        load(tmp_path, federation=lines)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
