"""What a user brings to an audit: runs, nodes' transcripts and models; good and bad."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from torch.nn import functional

from eris.cli.reproduce import KEPT, PROGRAMS
from eris.core.errors import InvalidSetting, MalformedMessage
from eris.experiments.audits import files
from eris.experiments.audits import tables as audit_tables
from eris.experiments.audits.auditing import AuditOptions, audit_transcript
from eris.experiments.audits.candidate_files import candidates_of
from eris.experiments.audits.tables import AuditRow, AuditTable
from eris.experiments.runs import runner
from eris.experiments.runs.progress import Progress
from eris.experiments.runs.recipe import UNBIASED, Recipe
from eris.experiments.runs.reproduce import EXPERIMENTS
from eris.experiments.runs.store import TRANSCRIPT, Run
from eris.model_file import read_model
from eris.protocol.transcript import Record, Transcript
from support import audits
from support.command import Eris

SMALL: dict[str, Any] = {
    "data.name": "digits",
    "data.clients": 6,
    "data.samples": 12,
    "training.rounds": 2,
    "training.learning_rate": 0.1,
    **UNBIASED,
    "method.aggregators": 3,
    "engine.record": True,
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of small runs."""
    folder = tmp_path_factory.mktemp("audits") / "runs"
    gossip = {
        "data.canaries": 0.5,
        "method.name": "shatter",
        "method.virtual_nodes": 2,
        "method.degree": 2,
    }
    few = {"data.clients": 3, "data.samples": 3, "data.canaries": 0.34}
    for name, changes in (
        ("good", {"data.canaries": 0.5}),
        ("plain", {}),
        ("silent", {"engine.record": False}),
        ("gossip", gossip),
        ("few", few),
    ):
        shared = {k: v for k, v in SMALL.items() if name != "gossip" or k != "method.aggregators"}
        runner.start(Recipe().changed({**shared, **changes, "name": name}), folder, Progress())
    damaged = folder / "damaged"
    Run.create(damaged, Recipe(), {})
    whole = (folder / "good" / TRANSCRIPT).read_bytes()
    (damaged / TRANSCRIPT).write_bytes(whole[:-7])
    flipped = Transcript.load(folder / "good" / TRANSCRIPT)
    flipped.records[0].data = b"\xff" + flipped.records[0].data[1:]
    flipped.save(folder / "flipped" / TRANSCRIPT)
    return folder


def node_view(transcript: Transcript, me: int) -> Transcript:
    """What a node's recorder would have written of a run: it knows its own arrivals alone."""
    records = [
        Record(r.time, r.sender, r.receivers if r.sender == me else (me,), r.data, r.arrived & {me})
        for r in transcript.records
        if r.sender == me or me in r.arrived
    ]
    return replace(transcript, records=records)


# -- recordings -------------------------------------------------------------------------------


def test_a_run_is_found_by_name_folder_and_file(root: Path) -> None:
    for given in ("good", str(root / "good"), str(root / "good" / TRANSCRIPT)):
        found = files.recording(given, root)
        assert (found.path, found.name) == (root / "good" / TRANSCRIPT, "good")


def test_a_node_is_found_by_its_folder_and_its_state(root: Path, tmp_path: Path) -> None:
    state = tmp_path / "anna" / "state"
    Transcript.load(root / "good" / TRANSCRIPT).save(state / TRANSCRIPT)
    (state / "run.json").write_text("{}")  # a node has one, of another kind
    for given in (state.parent, state, state / TRANSCRIPT):
        found = files.recording(str(given), root)
        assert (found.path, found.run) == (state / TRANSCRIPT, None)
    (state / TRANSCRIPT).unlink()
    (state / "records.bin").touch()
    with pytest.raises(InvalidSetting, match="stop the node to get it"):
        files.recording(str(state.parent), root)


def test_a_node_s_own_view_is_told_from_a_whole_run() -> None:
    _, transcript = audits.recorded("dsc")
    assert files.whose(transcript) is None
    for me in (0, 3, 7):
        assert files.whose(node_view(transcript, me)) == me
    assert files.whose(replace(transcript, records=[])) is None
    # Of two members each is at an end of every message, but only a whole run knows both arrivals.
    data = transcript.records[0].data
    both = [Record(0.0, 0, (1,), data, {1}), Record(0.0, 1, (0,), data, {0})]
    assert files.whose(replace(transcript, records=both)) is None
    assert files.whose(replace(transcript, records=[Record(0.0, 0, (1,), data), both[1]])) == 0


def test_of_a_node_s_view_only_the_node_can_be_asked() -> None:
    _, transcript = audits.recorded("dsc")
    owner, client = node_view(transcript, 2), node_view(transcript, 7)
    assert files.observers_of(owner, ()) == ("aggregator:2", "member:2", "final-model")
    assert files.observers_of(client, ()) == ("member:7", "final-model")
    assert files.observers_of(owner, ["aggregator", "link"]) == ("aggregator:2", "link:2-0")
    assert files.observers_of(owner, ["link:5-2"]) == ("link:5-2",)
    for asked in ("aggregator:1", "member:1", "coalition:2", "coalition:4", "link:0-1"):
        with pytest.raises(InvalidSetting, match=r"is client-2's \(member 2\) own view"):
            files.observers_of(owner, [asked])
    with pytest.raises(InvalidSetting, match="own view"):
        files.observers_of(client, ["aggregator"])
    assert files.observers_of(transcript, ["coalition:2"]) == ("coalition:2",)


def test_too_few_candidates_for_an_observer_are_refused() -> None:
    subject, transcript = audits.subject("dsc")
    some = subject.candidates
    files.check_askable(["aggregator", "link:1-0"], transcript, some)
    first = some.of(1)[:2]
    few = replace(some, inputs=some.inputs[first], targets=some.targets[first],
                  client=some.client[first], included=np.array([True, False]))  # fmt: skip
    with pytest.raises(InvalidSetting, match="candidates for link 1 – 0 is '2, 1 of them"):
        files.check_askable(["link:1-0"], transcript, few)
    all_in = replace(some, included=some.included | (some.client == 1))
    with pytest.raises(InvalidSetting, match="some trained on and some not"):
        files.check_askable(["link:1-0"], transcript, all_in)


# -- a user's model ---------------------------------------------------------------------------


def test_a_user_s_model_loss_and_weights_are_used(tmp_path: Path) -> None:
    assembly, transcript = audits.recorded("dsc")
    own = audits.subject("dsc")[0]
    save_file({"model": assembly.initial}, tmp_path / "initial.safetensors")
    np.savez(tmp_path / "c.npz", inputs=own.candidates.inputs.numpy(),
             targets=own.candidates.targets.numpy(), client=own.candidates.client,
             included=own.candidates.included, coins=True)  # fmt: skip
    asked = candidates_of(tmp_path / "c.npz", transcript)
    (tmp_path / "brought.py").write_text(
        "from torch import nn\n"
        "def network():\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))\n"
        "def loss(outputs, targets):\n    return nn.functional.cross_entropy(outputs, targets)\n"
    )
    module = files.model_of("brought:network", [tmp_path])
    loss = files.loss_of("brought:loss", [tmp_path])
    assert loss.__module__ == "brought"
    assert files.loss_of(None, []) is functional.cross_entropy
    initial = read_model(tmp_path / "initial.safetensors")
    with pytest.raises(InvalidSetting, match="expected the one the run started from"):
        files.subject_of_node(transcript, module, loss, asked)
    subject = files.subject_of_node(transcript, module, loss, asked, initial=initial)
    options = AuditOptions(("aggregator:1", "final-model"), draws=50)
    found, expected = (audit_transcript(s, transcript, options) for s in (subject, own))
    assert found.to_json()["findings"] == expected.to_json()["findings"]
    assert subject.about["model"] == "Sequential, 650 parameters"
    assert subject.about["rounds"] == audits.ROUNDS


CODE = """
from torch import nn
NUMBER = 3
def needs(size):
    return nn.Linear(size, 2)
def wrong():
    return [1, 2]
def fails():
    raise OSError("no weights here")
"""


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("brought_bad", "expected module:function"),
        (":network", "expected module:function"),
        ("not_there_at_all:network", "ModuleNotFoundError"),
        ("broken_code:network", "SyntaxError"),
        ("brought_bad:NUMBER", "expected a function NUMBER in .*brought_bad.py"),
        ("brought_bad:needs", "a function that works .*size"),
        ("brought_bad:wrong", "what brought_bad:wrong returned is 'list'; .*torch.nn.Module"),
        ("brought_bad:fails", "OSError: no weights here"),
    ],
)
def test_a_model_that_cannot_be_made_is_refused(
    where: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "brought_bad", raising=False)
    (tmp_path / "brought_bad.py").write_text(CODE)
    (tmp_path / "broken_code.py").write_text("def network(:\n")
    with pytest.raises(InvalidSetting, match=says):
        files.model_of(where, [tmp_path])


# -- the command ------------------------------------------------------------------------------


@pytest.fixture
def eris(root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Eris:
    monkeypatch.chdir(root.parent)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("ERIS_RUNS", raising=False)
    return Eris(monkeypatch, capsys)


REFUSED: list[tuple[Sequence[str], str]] = [
    (["nothing"], "expected one of the runs in runs"),
    (["goood"], "did you mean 'good'?"),
    (["silent"], "by `eris run runs/silent/recipe.toml --record --canaries 0.5 --name silent-rec"),
    (
        ["silent", "--candidates", "narrow.npz"],
        "get it by `eris run runs/silent/recipe.toml --record --name silent-recorded`",
    ),
    (["good", "--out", "runs/good/run.json"], "expected a new file, or the figures of an earlie"),
    (["good", "--out", "runs"], "--out is 'runs'; expected a file, not a folder"),
    (["good", "--out", "narrow.npz/x"], "expected a place in a folder; narrow.npz is none"),
    (["good", "--pictures", "narrow.npz"], "--pictures is 'narrow.npz'; expected a place in a"),
    (
        ["plain"],
        "(`eris run runs/plain/recipe.toml --record --canaries 0.5 --name plain-recorded`), or ask "
        "about your own samples with `--candidates FILE`",
    ),
    (["plain"], "`client` (a member's number or name for each)"),
    (["good", "--as", "agregator"], "(did you mean 'aggregator'?)"),
    (["good", "--as", "aggregator:5"], "expected a member that owns a shard: 0, 1, 2"),
    (["good", "--as", "server"], "this run had 3"),
    (["good", "--as", "neighbour"], "expected a run in which nodes gossip"),
    (["good", "--as", "coalition:4"], "N from 1 to 3"),
    (["good", "--as", "link:1"], "link:A-B"),
    (["good", "--as", "link:1-9"], "a member's number, 0 to 5"),
    (["gossip", "--as", "aggregator"], "in this run nobody aggregates"),
    (["gossip", "--as", "member"], "in this run nodes gossip"),
    (["gossip", "--as", "coalition:2"], "in this run nodes gossip"),
    (["gossip", "--as", "neighbour:66"], "a member's number"),
    (["damaged"], "runs/damaged/transcript.eris: ends in the middle of a record"),
    (["runs/flipped"], "runs/flipped/transcript.eris: "),
    (["runs/good/model.safetensors"], "is not a transcript of this package"),
    (["good", "--confidence", "1.5"], "confidence is 1.5; expected"),
    (["good", "--delta", "2"], "--delta is 2.0; expected"),
    (["good", "--model", "a:b"], "--model is 'a:b'; expected none: the run's recipe says it"),
    (["good", "--initial", "a"], "--initial is 'a'; expected none"),
    (["good", "--candidates", "absent.npz"], "expected an .npz file with"),
    (["plain", "--candidates", "narrow.npz"], "expected what the model and the loss take"),
]


@pytest.mark.parametrize(("arguments", "says"), REFUSED, ids=[" ".join(a) for a, _ in REFUSED])
def test_bad_input_is_one_line_with_code_2(
    arguments: Sequence[str], says: str, eris: Eris, root: Path
) -> None:
    narrow, numbers = np.zeros((12, 1, 8, 7)), np.arange(12)
    np.savez(root.parent / "narrow.npz", inputs=narrow, targets=numbers % 10, client=numbers % 3)
    assert eris("audit", *arguments) == 2, eris.out
    assert says in eris.err
    assert eris.err.startswith("error: ")
    assert eris.err.count("\n") == 1
    assert not list(root.rglob("audit.json"))


def test_too_few_canaries_for_a_bound_are_told_of(eris: Eris) -> None:
    assert eris("audit", "few", "--as", "aggregator:0", "--out", "few.json",
                "--pictures", "p") == 0, eris.err  # fmt: skip
    assert "No bound on ε: canaries is 3; expected at least 9" in eris.out
    read = json.loads(Path("few.json").read_text())
    assert all(found["bound"] is None for found in read["findings"])


def test_a_user_s_candidates_take_the_place_of_canaries(eris: Eris, root: Path) -> None:
    own = audits.subject("dsc")[0].candidates
    count = 30
    np.savez("mine.npz", inputs=own.inputs[:count].numpy(), targets=own.targets[:count].numpy(),
             client=np.arange(count) % 6, included=np.arange(count) % 2 == 0)  # fmt: skip
    options = ["--as", "aggregator:1", "--seed", "3", "--every", "2", "--out", "mine.json"]
    asked = ["--candidates", "mine.npz", "--pictures", "p"]
    assert eris("audit", "plain", *asked, *options) == 0, eris.err
    assert "No bound on ε: membership was not decided by fair coins." in eris.out
    assert "one round of 2, seed 3" in eris.out
    read = json.loads(Path("mine.json").read_text())
    assert {found["canaries"] for found in read["findings"]} == {count}
    assert read["about"]["candidates"] == count


def test_a_gossiping_run_is_audited_as_a_neighbour(eris: Eris) -> None:
    assert eris("audit", "gossip", "--out", "g.json", "--pictures", "g") == 0, eris.err
    assert "neighbour 0, linked sees" in eris.out
    assert (Path("g") / "roc.png").is_file()


def test_transcripts_of_other_settings_or_messages_say_where(root: Path) -> None:
    with pytest.raises(MalformedMessage, match="flipped"):
        files.load(root / "flipped" / TRANSCRIPT)


def test_an_attack_is_chosen_where_there_is_a_choice(eris: Eris) -> None:
    assert eris("reproduce", "mnist", "--attack", "rog") == 2
    assert "chosen in audit-defences and audit-visible only" in " ".join(eris.err.split())
    assert eris("reproduce", "audit-visible", "--attack", "rogue") == 2
    assert "attack is 'rogue'; expected one of" in " ".join(eris.err.split())


def test_reproduce_audits_a_table_and_names_all_of_them(
    eris: Eris, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert eris("reproduce", "--help") == 0
    listed = {word.strip(" ,.;") for word in eris.out.replace("│", " ").split()}
    assert listed >= {*EXPERIMENTS, *audit_tables.AUDITS, *PROGRAMS, *KEPT}
    base = {key: value for key, value in SMALL.items() if key != "engine.record"}
    rows = tuple(
        AuditRow(f"A = {count}", {"method.aggregators": count}, "55.6", ("aggregator",), at=count)
        for count in (2, 3)
    )
    base["data.canaries"] = 0.5
    table = AuditTable("tiny", "A small table", base, rows, every=2, curve="owners")
    monkeypatch.setattr(audit_tables, "AUDITS", {"tiny": table})
    for again in (False, True):
        asked = ("--seeds", "1", "--first-seed", "4", "--picture", "t.png")
        assert eris("reproduce", "tiny", *asked) == 0, eris.err
        assert ("A = 2, 4\n" in eris.out) != again  # what is there is not audited again
        assert "A small table" in eris.out
        assert "attacked one round of 2" in eris.out
        assert "Picture: t.png" in eris.out
    assert Path("t.png").read_bytes().startswith(b"\x89PNG")
    assert eris("reproduce", "tini") == 2
    assert "did you mean 'tiny'?" in eris.err
