"""A tap on recorded runs: what it makes of increments, of models, and of what comes back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eris.audit.eavesdropper import (
    BOTH,
    FIRST,
    UPLINK,
    ZERO,
    AggregatedTruth,
    Eavesdrop,
    gossiping,
)
from eris.audit.watch import Watch
from eris.core.errors import InvalidSetting
from eris.core.vectors import Vector
from eris.experiments.audits.auditing import ATTACKS, AuditOptions, audit_transcript, by_round
from eris.experiments.runs import runner
from eris.experiments.runs.progress import Progress
from eris.methods.method import GossipMethod
from eris.methods.registry import METHODS as REGISTERED
from eris.methods.registry import create
from eris.protocol.gossip.peer import GossipSettings
from eris.protocol.observers import ANYBODY, Observer
from support.audits import METHODS, ROUNDS, digits, recorded, subject
from support.command import Eris

PAGE = Path(__file__).parents[2] / "docs" / "eavesdropper.md"
OTHERS: dict[str, dict[str, Any]] = {
    "d-psgd": {"method.name": "d-psgd"},
    "el": {"method.name": "el", "method.degree": 3},
    "shatter": {"method.name": "shatter", "method.virtual_nodes": 4, "method.degree": 3},
    "ako": {"method.name": "ako"},
    "sampled": {"method.name": "fedavg", "training.sampled": 6},
    "eris, sampled": {"method.name": "eris", "method.aggregators": 4, "training.sampled": 6},
    "scaffold": {"method.name": "fedavg", "training.scaffold": True},
    "fedprox": {"method.name": "fedavg", "training.proximal": 1.0, "training.steps": 5},
}
Row = dict[str, Any]
LEFT, SHARE = "left where heard, %", "of ‖x^c‖², %"


@pytest.fixture(autouse=True)
def others(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, changes in OTHERS.items():
        monkeypatch.setitem(METHODS, name, changes)


def tapped(method: str, *taps: str, seed: int = 0) -> tuple[list[Row], list[Row]]:
    """The lines at the end, and those of rounds."""
    found, transcript = subject(method)
    options = AuditOptions(taps, attacks=("eavesdrop",), seed=seed)
    tables = audit_transcript(found, transcript, options).others()
    lines, rounds = tables.values()
    return lines, rounds


def line(lines: list[Row], gamma: float, hears: str, start: str, tap: str = "") -> Row:
    wanted = (gamma, hears, start)
    (found,) = (
        one
        for one in lines
        if (one["γ"], one["hears"], one["starts at"]) == wanted and one["tap"].startswith(tap)
    )
    return found


@pytest.mark.parametrize(
    "method", ["fedavg", "fedprox", "scaffold", "eris", "dsc", "rotated masks"]
)
def test_increments_on_the_uplink_never_tell_the_model(method: str) -> None:
    lines, _ = tapped(method, "link:5-all")
    for gamma in (0.5, 1.0):
        for start in (ZERO, FIRST):
            one = line(lines, gamma, UPLINK, start)
            assert one["sends"] == "increments"
            assert one["0 when heard"] == "no"
            assert one[SHARE] > 0.1
    zero, first = (line(lines, 1.0, UPLINK, start)[SHARE] for start in (ZERO, FIRST))
    assert first < zero / 2
    assert zero == pytest.approx(100, abs=30), "as far away as an estimate of zero"


@pytest.mark.parametrize("method", ["fedavg", "fedprox", "scaffold", "eris"])
def test_published_means_tell_it_to_who_knows_the_start(method: str) -> None:
    """Update-only downloads: the start's error stays for ever, and is all there is."""
    lines, _ = tapped(method, "link:5-all")
    told = line(lines, 1.0, BOTH, FIRST)
    assert told["0 when heard"] == "yes"
    zero = line(lines, 1.0, BOTH, ZERO)
    assert zero["0 when heard"] == "no"
    start = recorded(method)[0].initial.astype(np.float64)
    assert zero["‖x^c − x^a‖²"] == pytest.approx(start @ start, rel=1e-4)
    assert told[SHARE] < 1e-6


@pytest.mark.parametrize("method", ["sampled", "eris, sampled"])
def test_snapshots_tell_it_to_anybody(method: str) -> None:
    """Dense downloads: whoever is sampled is sent the model."""
    lines, rounds = tapped(method, "link:5-all")
    for gamma in (0.5, 1.0):
        # In the first round nobody is sent a model: everyone has the agreed one.
        assert line(lines, gamma, BOTH, ZERO)["0 when heard"] == "yes"
    assert all(one["round"] > 1 for one in rounds), "client 5 is not in the first round"
    assert {one["heard"] for one in rounds} == {"yes", "no"}
    for one in rounds:
        if one["heard"] == "yes":
            assert one["both ways, from zero"] < 0.01
        assert one["uplink, from zero"] > 3


@pytest.mark.parametrize("method", ["d-psgd", "el", "shatter"])
def test_a_model_that_is_heard_leaves_no_error_and_between_them_it_grows(method: str) -> None:
    lines, rounds = tapped(method, "link:0-all")
    for one in lines:
        assert one["sends"] == "models"
        assert one[LEFT] == 0
        assert one["0 when heard"] == "yes"
        assert one["coordinates, %"] == 100
    assert line(lines, 1.0, UPLINK, ZERO)["‖x^c − x^a‖²"] == 0
    assert [one["heard"] for one in rounds] == ["yes", "yes", "no", "no"]
    errors = [one["uplink, from zero"] for one in rounds]
    assert errors[0] == errors[1] == 0 < errors[2] < errors[3]


def test_one_link_of_eris_has_one_shard_and_all_links_all_but_the_own() -> None:
    lines, _ = tapped("eris", "link:5-3", "link:5-all", "link:0-all")
    shares = {one["tap"]: one["coordinates, %"] for one in lines}
    assert shares["link 5 – 3"] == pytest.approx(25, abs=0.5)
    assert shares["all links of 5"] == 100, "which owns nothing"
    assert shares["all links of 0"] == pytest.approx(75, abs=0.5), "what it owns stays with it"
    one, every = (line(lines, 1.0, BOTH, FIRST, tap) for tap in ("link 5", "all links of 5"))
    assert one["0 when heard"] == "yes"
    assert one[SHARE] > 1 > 1e-6 > every[SHARE]


def test_of_shatter_a_virtual_node_has_one_chunk() -> None:
    lines, _ = tapped("shatter", "link:12-all", "link:0-12")
    chunk = line(lines, 1.0, UPLINK, ZERO, "all links of 12")
    assert chunk["coordinates, %"] == pytest.approx(25, abs=0.5)
    assert chunk["0 when heard"] == "yes"
    assert 50 < chunk[SHARE] < 90


def test_what_the_tap_knows_comes_from_its_wire() -> None:
    """Another tap gives the same of the same transcript without all that was not on it."""
    found, transcript = subject("eris")
    tap = Observer("link", link=(5, ANYBODY), both_ways=True)
    options = AuditOptions(("link:5-all",), attacks=("eavesdrop",))
    expected = audit_transcript(found, transcript, options).others()

    class Known:
        """The truth, from all messages."""

        def __init__(self) -> None:
            self.whole = AggregatedTruth(transcript, found.initial, [5])

        def note(self, round: int, records: object) -> None:
            self.whole.note(round, by_round(transcript)[round])

        def model(self, client: int) -> Vector | None:
            return self.whole.model(client)

    truth = Known()
    attack = Eavesdrop([tap], found.initial, truth)
    watch = Watch(transcript, found.initial, [tap])
    for round, records in sorted(by_round(transcript).items()):
        truth.note(round, records)
        for sight in watch.follow(round, [one for one in records if tap.sees(one)]):
            attack.see(sight)
    assert attack.report().figures() == expected


def test_the_first_round_is_known_to_who_starts_where_everyone_does() -> None:
    _, rounds = tapped("fedavg", "link")
    assert rounds[0]["heard"] == "yes"
    assert rounds[0]["uplink, from first model"] == pytest.approx(0, abs=1e-9)
    assert rounds[1]["uplink, from first model"] > 0.01


def test_akos_partitions_add_up_to_the_nodes_model_for_who_hears_both_ways() -> None:
    """Ten nodes, five partitions: in every round each is sent to somebody."""
    lines, rounds = tapped("ako", "link:2-all", "link:2-3")
    both = line(lines, 1.0, BOTH, FIRST, "all")
    assert (both["sends"], both["coordinates, %"]) == ("increments", 100)
    assert both["of ‖x^c − x_0‖², %"] == pytest.approx(0, abs=1e-6)
    uplink = line(lines, 1.0, UPLINK, FIRST, "all")
    assert 20 < uplink["of ‖x^c − x_0‖², %"] < 100, "the others' nine tenths are missing"
    assert uplink["0 when heard"] == "no"
    zero = line(lines, 1.0, BOTH, ZERO, "all")
    start = recorded("ako")[0].initial.astype(np.float64)
    assert zero["‖x^c − x^a‖²"] == pytest.approx(start @ start, rel=1e-5)
    one = line(lines, 1.0, BOTH, FIRST, "link 2")
    assert one["coordinates, %"] == pytest.approx(100 * ROUNDS / 5, abs=1), "a partition a round"
    assert one["of ‖x^c − x_0‖², %"] > 50
    assert both["‖x^c − x^a‖²"] <= line(lines, 0.5, BOTH, FIRST, "all")["‖x^c − x^a‖²"]
    assert {row["tap"] for row in rounds} == {"all links of 2", "link 2 – 3"}


def test_what_a_tap_takes_for_akos_truth_is_the_nodes_own_model() -> None:
    assembly, transcript = recorded("ako")
    settings = GossipSettings.from_canonical(transcript.settings)
    truth, readers = gossiping(settings, assembly.initial, {}, [2])
    assert readers is not None
    with assembly.training() as training:
        for round, records in sorted(by_round(transcript).items()):
            truth.note(round, records)
            training.step()
            own = truth.model(2)
            assert own == pytest.approx(training.models()[2], abs=1e-6)


def test_what_is_heard_is_drawn_from_a_named_stream() -> None:
    drawn = {
        seed: [one["heard"] for one in tapped("fedavg", "link", seed=seed)[1]] for seed in range(6)
    }
    assert drawn[0] == [one["heard"] for one in tapped("fedavg", "link")[1]]
    assert len({tuple(one) for one in drawn.values()}) > 2


def test_what_cannot_be_tapped_is_refused() -> None:
    found, transcript = subject("eris")
    with pytest.raises(InvalidSetting, match="observer is 'aggregator 1'; expected a link to tap"):
        audit_transcript(found, transcript, AuditOptions(("aggregator:1",), attacks=("eavesdrop",)))
    el, gossip = subject("el")
    with pytest.raises(InvalidSetting, match="is for the attack eavesdrop"):
        audit_transcript(el, gossip, AuditOptions(("link:0-all",)))
    with pytest.raises(InvalidSetting, match="interception is 0"):
        Eavesdrop([Observer("link", link=(0, 1))], found.initial, AggregatedTruth(
            transcript, found.initial, [0]), interceptions=(0,))  # fmt: skip
    with pytest.raises(InvalidSetting, match="link:A-all"):
        tapped("eris", "link:5")


def test_it_is_not_among_the_attacks_unless_it_is_named() -> None:
    assert "eavesdrop" in ATTACKS
    found, transcript = subject("fedavg")
    outcome = audit_transcript(found, transcript, AuditOptions(("server",), draws=20))
    assert {*outcome.reports} == {"membership"}


def test_the_command_taps_the_first_client_if_nobody_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runner.start(digits("eris", name="r", **{"data.canaries": 0.0}), tmp_path / "runs", Progress())
    eris = Eris(monkeypatch, capsys)
    assert eris("audit", "r", "--attack", "eavesdrop") == 0, eris.err
    assert "canaries" not in eris.out
    written = json.loads((tmp_path / "runs" / "r" / "audit.json").read_text(encoding="utf-8"))
    assert {one["tap"] for one in written["eavesdropper"]} == {"link 0 – 1", "all links of 0"}
    assert len(written["eavesdropper, ‖x^c − x^a‖² by round"]) == 2 * ROUNDS
    assert "both ways, from first model" in eris.out


@pytest.mark.parametrize("attack", ["completion", "idlg"])
def test_a_run_without_canaries_is_shown_to_all_attacks_but_membership(
    attack: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    few = {"data.canaries": 0.0, "data.samples": 2, "data.clients": 3, "training.rounds": 1}
    runner.start(digits("fedavg", name="r", **few), tmp_path / "runs", Progress())
    eris = Eris(monkeypatch, capsys)
    assert eris("audit", "r", "--attack", attack, "--as", "server") == 0, eris.err
    written = json.loads((tmp_path / "runs" / "r" / "audit.json").read_text(encoding="utf-8"))
    assert any(rows for name, rows in written.items() if attack in name)
    assert eris("audit", "r") != 0
    assert "canaries to judge by" in eris.err
    assert eris("audit", "r", "--attack", "eavesdrop", "--as", "link:0-1") != 0
    assert "link:A-B with a client's number and an owner's (3)" in eris.err


def test_the_page_says_of_every_method_what_it_sends() -> None:
    rows = [one for one in PAGE.read_text(encoding="utf-8").splitlines() if one.startswith("| `")]
    told = {one.split("`")[1]: one.split("|")[2].strip() for one in rows}
    sends = {}
    for name, kind in REGISTERED.items():
        sends[name] = "increments"
        if not issubclass(kind, GossipMethod):
            made = create(name)
            assert not isinstance(made, GossipMethod)
            scheme = made.compose([f"client-{i}" for i in range(6)], [1] * 6).scheme
            if scheme.relative and not scheme.shifted:
                sends[name] = "models"
        else:
            settings: dict[str, Any] = {"sigma": 0.1} if name == "muffliato" else {}
            gossip = create(name, **settings)
            assert isinstance(gossip, GossipMethod)
            public = tuple((key, getattr(gossip, key)) for key in gossip.public)
            agreed = GossipSettings(n=100, nodes=20, method=name, parameters=public)
            sends[name] = gossip.neighbour(agreed, 0, np.zeros(100, np.float32)).sends
    assert told == sends
