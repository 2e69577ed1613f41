"""Real nodes over TLS, and the same training in process: the same bits, whatever failed."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eris.core.errors import ErisError, InvalidSetting
from eris.core.rules import server_rule
from eris.core.vectors import Vector
from eris.experiments.federations.live import LiveWatch
from eris.experiments.federations.processes import QUICK, LocalFederation, node_names
from eris.experiments.federations.replay import Replayed, published, replay
from eris.federation import Federation
from eris.methods.eris import ERIS
from eris.protocol.agreement import Key
from eris.protocol.messages import Contribution
from eris.protocol.settings import Settings, model_digest
from eris.testing import assert_same_bits
from eris.testing.quadratic import Quadratic, let_train

Journals = dict[str, list[dict[str, Any]]]
KEPT, LIMIT, ROUNDS, SEED = 0.3, 2.0, 5, 3
VALUES: dict[str, Any] = {
    "federation.kept_fraction": KEPT,
    "federation.seed": SEED,
    "federation.segment_size": 64,
    "federation.rule": "fedavgm",
    "federation.rule_options": {"learning_rate": 0.5},
    "training.trainer": "eris.testing.quadratic:Quadratic",
}
PATIENT = {"federation.close_after": 60.0, "federation.catch_up_after": 61.0, "node.linger": 60.0}
"""Nobody is ever left out, however slow the machine is."""


def started(federation: LocalFederation, rounds: int) -> LiveWatch:
    """Start all nodes; to follow them is up to the test."""
    for name in federation.names:
        federation.start(name)
    return LiveWatch(federation, rounds)


def again(federation: LocalFederation, journals: Journals | None = None) -> Replayed:
    learners = {name: Quadratic(name) for name in federation.names}
    return replay(
        agreed(federation), start(federation), learners, journals or federation.journals()
    )


def start(federation: LocalFederation) -> Any:
    return Quadratic(federation.names[0]).initial()


def agreed(federation: LocalFederation) -> Settings:
    initial = start(federation)
    settings = federation.settings(federation.names[0])
    return settings.agreement(len(initial), model_digest(initial))


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> LocalFederation:
    """Three nodes to which nothing happens; a round takes longer than asking the directory."""
    values = {**VALUES, **PATIENT, "federation.rounds": ROUNDS, "training.options": {"pace": 0.1},
              "federation.basis": "rotated", "federation.limit": LIMIT}  # fmt: skip
    folder = tmp_path_factory.mktemp("quiet") / "nodes"
    federation = LocalFederation(folder, node_names(3), values)
    with federation, started(federation, ROUNDS) as watch:
        watch.follow(watch.over)
    return federation


def test_a_quiet_network_gives_the_bits_of_the_simulator_and_of_the_replay(
    quiet: LocalFederation,
) -> None:
    replayed = again(quiet)
    assert replayed.equal, replayed.mismatches
    assert set(replayed.versions.values()) == {ROUNDS}
    assert replayed.results == ROUNDS * len(replayed.versions)
    clients = [Quadratic(name) for name in quiet.names]
    simulated = Federation(
        clients,
        start(quiet),
        ERIS(aggregators=3, kept_fraction=KEPT, basis="rotated", limit=LIMIT),
        rule=server_rule("fedavgm", learning_rate=0.5),
        seed=SEED,
    ).fit(ROUNDS, progress=False)
    assert_same_bits(replayed.model, simulated.model)
    for name in quiet.names:
        found = quiet.model(name)
        assert found is not None
        assert_same_bits(found, simulated.model, name)


def test_what_clients_had_to_send_is_what_they_send_in_the_simulator(
    quiet: LocalFederation,
) -> None:
    told: dict[tuple[str, int, Key], Vector] = {}
    replay(
        agreed(quiet), start(quiet), {name: Quadratic(name) for name in quiet.names},
        quiet.journals(),
        lambda client, result, values: told.update({(client, result.round, result.key): values}),
    )  # fmt: skip
    simulated = Federation(
        [Quadratic(name) for name in quiet.names], start(quiet),
        ERIS(aggregators=3, kept_fraction=KEPT, basis="rotated", limit=LIMIT),
        rule=server_rule("fedavgm", learning_rate=0.5), seed=SEED, segment_size=64,
    )  # fmt: skip
    transcript = simulated.fit(ROUNDS, progress=False, record=True).transcript
    agreement = simulated.agreement
    assert transcript is not None
    assert agreement is not None
    sent = [one.message for one in transcript.records if isinstance(one.message, Contribution)]
    assert len(told) == len(sent) == 3 * ROUNDS * len(agreement.keys)
    for one in sent:
        header = one.header
        values = agreement.coding.read(one, agreement.segments(header.round)[header.key])
        assert_same_bits(told[quiet.names[header.sender], header.round, header.key], values)


def test_a_kill_in_mid_round_changes_who_is_included_and_nothing_else(tmp_path: Path) -> None:
    rounds, leash, names = 12, tmp_path / "leash", node_names(4)
    options = {"leash": str(leash)}
    values = {
        **VALUES, **QUICK,
        "membership.lease": 1.0, "federation.close_after": 0.6, "federation.catch_up_after": 1.0,
        "federation.retry_every": 0.2, "checkpoint.every_seconds": 0.1, "node.linger": 60.0,
        "federation.rounds": rounds, "training.options": options,
    }  # fmt: skip
    let_train(leash, 2)
    federation = LocalFederation(tmp_path / "nodes", names, values)
    with federation, started(federation, rounds) as watch:
        board, victim = watch.board, names[2]
        # All are in the middle of round 3: the leash holds them there.
        watch.follow(lambda: all(row.round == 3 for row in board.rows.values()), 0.02)
        federation.kill(victim)
        let_train(leash, 10)
        watch.follow(lambda: board.round == 11, 0.02)
        federation.start(victim)
        watch.follow(lambda: board.rows[victim].round >= 11, 0.02)
        let_train(leash, rounds)
        watch.follow(watch.over, 0.02)
    found = again(federation)
    assert found.equal, found.mismatches
    models = [federation.model(name) for name in names]
    for name, model in zip(names, models, strict=True):
        assert model is not None
        assert_same_bits(model, found.model, name)
    # It was left out of some results, and its shard had another owner meanwhile.
    results = published(federation.journals())
    assert any(result.included and victim not in result.included for result in results)
    assert any(victim not in view["owners"] for view in board.views.values())
    assert board.views[max(board.views)]["owners"].count(victim) == 1


# -- journals that do not tell what happened ------------------------------------------------------


def result_of(journals: Journals, round: int) -> list[dict[str, Any]]:
    """All notes on the first segment's result of a round."""
    return [
        note
        for journal in journals.values()
        for note in journal
        if note["event"] == "result" and note["round"] == round and note["segment"] == [0, 0]
    ]


def less_included(journals: Journals) -> None:
    for note in result_of(journals, 2):
        note["included"] = note["included"][1:]


def another_digest(journals: Journals) -> None:
    for note in result_of(journals, 2):
        note["digest"] = "0" * 32


def older_model(journals: Journals) -> None:
    for note in journals["node-2"]:
        if note["event"] == "trained" and note["round"] == 2:
            note["based_on"] = [0] * len(note["based_on"])


def a_second_result(journals: Journals) -> None:
    note = result_of(journals, 2)[0]
    journals["node-3"].append(note | {"digest": "f" * 32})


@pytest.mark.parametrize("change", [less_included, another_digest, older_model, a_second_result])
def test_a_journal_that_tells_otherwise_is_found_out(
    change: Callable[[Journals], None], quiet: LocalFederation
) -> None:
    journals = deepcopy(quiet.journals())
    change(journals)
    found = again(quiet, journals)
    assert any(line.startswith("round 2, segment (0, 0): ") for line in found.mismatches)
    assert "published" in found.mismatches[0]


def test_what_is_not_recorded_is_said(quiet: LocalFederation) -> None:
    journals = deepcopy(quiet.journals())
    journals["node-1"] = [
        note for note in journals["node-1"] if (note["event"], note.get("round")) != ("trained", 4)
    ]
    found = again(quiet, journals)
    assert set(found.versions.values()) == {3}
    assert all("is not recorded" in line for line in found.mismatches)
    assert len(found.mismatches) == 2 * len(found.versions)


def test_of_two_trainings_in_a_round_the_one_that_was_sent_is_found(
    quiet: LocalFederation,
) -> None:
    journals = deepcopy(quiet.journals())
    for name in ("node-1", "node-3"):
        notes = [note for note in journals[name] if note["event"] == "trained"]
        other = deepcopy(notes[2])
        other["based_on"] = [1] * len(other["based_on"])
        place = journals[name].index(notes[2]) + (name == "node-3")
        journals[name].insert(place, other)
    found = again(quiet, journals)
    assert found.equal, found.mismatches
    assert_same_bits(found.model, again(quiet).model)


def test_journals_without_a_view_or_a_trainer_that_is_missing(quiet: LocalFederation) -> None:
    with pytest.raises(ErisError, match="none of the journals has a view"):
        again(quiet, {"node-1": [{"event": "began", "round": 1}]})
    with pytest.raises(InvalidSetting, match="also one of node-2"):
        replay(
            agreed(quiet),
            start(quiet),
            {name: Quadratic(name) for name in ("node-1", "node-3")},
            quiet.journals(),
        )


def test_what_no_node_can_do_is_refused() -> None:
    settings = Settings(n=4, plan=ERIS(aggregators=2, rotate=2).compose("abc", [1, 1, 1]).plan)
    with pytest.raises(InvalidSetting, match="a node on a network"):
        replay(settings, np.zeros(4, np.float32), {}, {})
