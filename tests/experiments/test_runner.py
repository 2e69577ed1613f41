"""Runs: what they compute, what they keep, and that a stop changes nothing but the time."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import eris
from eris.core.errors import InvalidSetting
from eris.data import iid, load_mnist
from eris.experiments.runs import runner, store
from eris.experiments.runs.assembly import assemble
from eris.experiments.runs.checkpoint import STATE, RunDamaged
from eris.experiments.runs.progress import Progress
from eris.experiments.runs.recipe import UNBIASED, Recipe
from eris.experiments.runs.store import Line, Run
from eris.model_file import read_model
from eris.models.lenet import lenet5
from eris.protocol.transcript import Transcript
from eris.training.torch import evaluate, flatten, normalise, single_threaded, torch_clients

SMALL = {
    "name": "small",
    "data.name": "mnist",
    "data.clients": 4,
    "data.samples": 5,
    "training.rounds": 5,
    "training.learning_rate": 0.05,
    "training.momentum": 0.9,
    **UNBIASED,
    "training.evaluate_every": 2,
    "engine.checkpoint_every": 2,
}


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """That files are synced, and when, is tested beside checkpoints; nobody cuts the power here."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def small(stripes: Path, **changes: Any) -> Recipe:
    given = {key.replace("__", "."): value for key, value in changes.items()}
    return Recipe().changed({**SMALL, "data.path": str(stripes), **given})


class At(Progress):
    """Does something after a round."""

    def __init__(self, round: int, what: Callable[[], None]) -> None:
        self._round, self._what = round, what

    def round(self, line: Line) -> None:
        if line["round"] == self._round:
            self._what()


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


class Died(BaseException):
    """A kill, as far as a process can play it."""


def die() -> None:
    raise Died


def kept(run: Run) -> dict[str, Any]:
    """All that a run leaves behind, without times."""
    rounds = [{k: v for k, v in line.items() if k != "seconds"} for line in run.rounds()]
    record = run.path / store.TRANSCRIPT
    return {
        "rounds": rounds,
        "clients": (run.path / store.CLIENTS).read_bytes(),
        "model": (run.path / store.MODEL).read_bytes(),
        "transcript": record.read_bytes() if record.is_file() else None,
    }


def test_a_run_is_the_training_it_says_it_is(stripes: Path, tmp_path: Path) -> None:
    recipe = small(stripes, training__path="loop", method__kept_fraction=0.3)
    run = runner.start(recipe, tmp_path, Progress())
    data = load_mnist(stripes)
    module = lenet5(0)
    clients = torch_clients(
        module,
        normalise(data.train_images),
        torch.from_numpy(data.train_labels.astype(np.int64)),
        iid(120, 4, 5, seed=0),
        learning_rate=0.05,
        momentum=0.9,
        seed=0,
    )
    rule = eris.server_rule("fedavg", learning_rate=0.05)
    federation = eris.Federation(clients, flatten(module), eris.ERIS(kept_fraction=0.3), rule=rule)
    test, wanted = normalise(data.test_images), torch.from_numpy(data.test_labels.astype(np.int64))
    with single_threaded():
        fit = federation.fit(5, progress=False)
        scored = evaluate(module, fit.model, test, wanted)
    assert run.state == "finished"
    assert read_model(run.path / store.MODEL).tobytes() == fit.model.tobytes()
    lines = run.rounds()
    assert [line["round"] for line in lines] == list(range(1, 6))
    assert [line["round"] for line in lines if line["metrics"]] == [2, 4, 5]
    assert lines[-1]["metrics"] == {"accuracy": scored["accuracy"], "loss": scored["loss"]}
    assert sum(line["clients_sent"] for line in lines) / 4 / 5 == fit.sent()
    assert sum(line["received"]["Result"] for line in lines) / 4 / 5 == fit.received("Result")
    assert all(line["included"] == 1 and line["refused"] == 0 for line in lines)
    own = [line for line in run.clients() if line["client"] == 2]
    assert [line["round"] for line in own] == list(range(1, 6))
    assert [line["loss"] for line in own] == [record.clients[2]["loss"] for record in fit.history]
    assert sum(line["sent"] for line in run.clients()) == sum(
        line["clients_sent"] for line in lines
    )


def test_only_the_owner_reads_the_models_and_messages_of_a_run(
    stripes: Path, tmp_path: Path
) -> None:
    recipe = small(stripes, engine__record=True)
    modes: dict[str, int] = {}

    def look() -> None:
        for path in (tmp_path / "small").rglob("*"):
            if path.suffix in (".eris", ".safetensors"):
                modes[path.name] = stat.S_IMODE(path.stat().st_mode)

    before = os.umask(0)
    try:
        runner.start(recipe, tmp_path, At(4, look))
    finally:
        os.umask(before)
    look()
    assert modes.keys() > {store.MODEL, store.TRANSCRIPT, STATE, "000002.eris"}
    assert set(modes.values()) == {0o600}


def test_bytes_of_clients_are_told_from_those_of_a_server(stripes: Path, tmp_path: Path) -> None:
    recipe = small(stripes, method__name="fedavg", training__rounds=1)
    run = runner.start(recipe, tmp_path, Progress())
    (line,) = run.rounds()
    up, down = line["sent"]["Contribution"], line["sent"]["Result"]
    assert set(line["sent"]) == set(line["received"]) == {"Contribution", "Result"}
    assert (line["clients_sent"], line["clients_received"]) == (up, down)
    assert line["busiest"] == up + down
    assert min(up, down) > 4 * 4 * 61_706
    assert sum(one["sent"] for one in run.clients()) == up
    assert sum(one["received"] for one in run.clients()) == down


def test_what_is_kept_says_what_it_ran_on(stripes: Path, tmp_path: Path) -> None:
    run = runner.start(small(stripes, training__rounds=1), tmp_path, Progress())
    assert {path.name for path in run.path.iterdir()} == {
        "recipe.toml", "run.json", "run.lock", "rounds.jsonl", "clients.jsonl", "model.safetensors",
    }  # fmt: skip
    about = json.loads((run.path / store.RECORD).read_text())
    assert about["versions"]["torch"] == version("torch")
    assert about["data"]["source"] == load_mnist(stripes).source
    assert about["model"]["parameters"] == 61_706
    spelled = (run.path / store.RECIPE).read_text()
    for line in ('name = "lenet5"', "learning_rate = 0.05", 'plan = "random"', "min_included = 3"):
        assert line in spelled
    # The stored recipe makes the same run again, whatever the defaults become.
    assert assemble(run.recipe).recipe == run.recipe


CASES: dict[str, dict[str, Any]] = {
    "a server with moments": {"method__name": "fedavg", "server__rule": "fedadam"},
    "the paper's mode": {"method__kept_fraction": 0.3, "method__masks": "independent"},
    "rotating shards": {"method__rotate": 2, "training__momentum": 0.0},
    "adam in batches": {
        "training__momentum": 0.0, "training__optimiser": "adam", "training__epochs": 2,
        "training__batch_size": 3, "training__path": "loop",
    },
    "scaffold": {"training__scaffold": True, "training__momentum": 0.0, "training__steps": 2},
    "sampled": {"data__clients": 9, "training__sampled": 4, "engine__record": True},
    "virtual nodes": {"method__name": "shatter", "method__virtual_nodes": 2, "method__degree": 2,
                      "engine__record": True, "faults__churn": 0.3},
    "partial gossip": {"method__name": "ako"},
    "away and late": {
        "faults__straggle": 0.1, "faults__dropout": 0.2, "faults__churn": 0.3, "faults__link": 0.3,
        "agreement__min_included": 1,
    },
}  # fmt: skip


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES)
def test_a_stopped_run_goes_on_to_the_same_bits(
    changes: dict[str, Any], stripes: Path, tmp_path: Path
) -> None:
    recipe = small(stripes, **{"training__rounds": 4, **changes})
    whole = kept(runner.start(recipe, tmp_path / "whole", Progress()))
    stopped = runner.start(recipe, tmp_path / "cut", At(1, terminate))
    assert (stopped.state, len(stopped.rounds())) == ("interrupted", 1)
    # Once more, dead this time: round 3 was noted after the checkpoint of round 2.
    with pytest.raises(Died):
        runner.resume(stopped, At(3, die))
    assert (stopped.state, len(stopped.rounds())) == ("interrupted", 3)
    again = runner.start(recipe, tmp_path / "cut", Progress())
    assert again.state == "finished"
    assert kept(again) == whole
    assert len(whole["rounds"]) == 4


def test_any_round_will_do_to_stop_at(stripes: Path, tmp_path: Path) -> None:
    recipe = small(stripes, method__kept_fraction=0.3, engine__record=True)
    whole = kept(runner.start(recipe, tmp_path / "whole", Progress()))
    for number, (stop, how) in enumerate([(1, die), (2, terminate), (2, die), (5, die)]):
        root = tmp_path / str(number)
        with pytest.raises(Died) if how is die else contextlib.nullcontext():
            runner.start(recipe, root, At(stop, how))
        with (root / "small" / store.ROUNDS).open("ab") as file:
            file.write(b'{"round": 9')
        assert kept(runner.start(recipe, root, Progress())) == whole
    transcript = Transcript.load(tmp_path / "whole" / "small" / store.TRANSCRIPT)
    assert {c.header.round for c in transcript.as_aggregator(0).contributions()} == set(range(1, 6))


def test_faults_in_mid_round_start_over(stripes: Path, tmp_path: Path) -> None:
    recipe = small(stripes, faults__delay=0.2, faults__crash=0.1, engine__record=True)
    whole = kept(runner.start(recipe, tmp_path / "whole", Progress()))
    stopped = runner.start(recipe, tmp_path / "cut", At(3, terminate))
    assert not (stopped.path / store.CHECKPOINT).exists()
    assert kept(runner.resume(stopped, Progress())) == whole


def test_the_same_seed_gives_the_same_run_and_another_does_not(
    stripes: Path, tmp_path: Path
) -> None:
    runs = [
        kept(runner.start(small(stripes, name=name, seed=seed), tmp_path, Progress()))
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    ]
    assert runs[0] == runs[1]
    assert runs[0]["model"] != runs[2]["model"]


def test_a_run_resumes_only_as_itself(stripes: Path, tmp_path: Path) -> None:
    recipe = small(stripes)
    stopped = runner.start(recipe, tmp_path, At(2, terminate))
    changed = recipe.changed({"training.momentum": 0.5, "method.aggregators": 2})
    with pytest.raises(InvalidSetting) as refused:
        runner.start(changed, tmp_path, Progress())
    assert "training.momentum: 0.9, now 0.5; method.aggregators: not set, now 2" in str(
        refused.value
    )
    assert len(stopped.rounds()) == 2
    finished = runner.resume(stopped, Progress(), recipe.changed({"engine.checkpoint_every": 5}))
    assert finished.state == "finished"
    with pytest.raises(InvalidSetting, match="one that is not finished"):
        runner.resume(finished, Progress())


def test_other_data_or_another_initial_model_is_not_the_same_run(
    stripes: Path, tmp_path: Path
) -> None:
    stopped = runner.start(small(stripes), tmp_path, At(2, terminate))
    record = dict(stopped.about)
    stopped.note(data={**record["data"], "sha256": {"train": "00"}})
    with pytest.raises(
        InvalidSetting, match=r"sha256 of train of the data mnist is .* with which small started"
    ):
        runner.resume(stopped, Progress())
    stopped.note(data=record["data"], model={**record["model"], "initial": "00"})
    with pytest.raises(InvalidSetting, match="initial of the model"):
        runner.resume(stopped, Progress())


def test_a_checkpoint_of_another_training_is_refused_before_any_round(
    stripes: Path, tmp_path: Path
) -> None:
    stopped = runner.start(small(stripes), tmp_path, At(2, terminate))
    record = stopped.path / store.CHECKPOINT / "round-000002" / "checkpoint.json"
    record.write_text(record.read_text().replace("min_included", "min_excluded"))
    before = (stopped.path / store.ROUNDS).read_bytes()
    with pytest.raises(RunDamaged, match="is of a training with other settings"):
        runner.resume(stopped, Progress())
    state = record.with_name("state.safetensors")
    state.write_bytes(state.read_bytes()[:-1])
    with pytest.raises(RunDamaged, match="the sha256 of state"):
        runner.resume(stopped, Progress())
    assert (stopped.path / store.ROUNDS).read_bytes() == before


def test_what_cannot_be_trained_leaves_no_run(stripes: Path, tmp_path: Path) -> None:
    refused = small(stripes, method__name="soteriafl", faults__drop=0.1)
    with pytest.raises(InvalidSetting, match="expected another one with faults in mid-round"):
        runner.start(refused, tmp_path, Progress())
    assert list(tmp_path.iterdir()) == []


def test_a_failure_is_noted_and_the_run_can_go_on(stripes: Path, tmp_path: Path) -> None:
    def fail() -> None:
        raise RuntimeError("no memory left")

    with pytest.raises(RuntimeError):
        runner.start(small(stripes), tmp_path, At(3, fail))
    failed = Run(tmp_path / "small")
    assert failed.state == "interrupted"
    assert failed.about["error"] == "RuntimeError: no memory left"
    finished = runner.resume(failed, Progress())
    assert (finished.state, finished.about["error"]) == ("finished", None)


def test_a_second_signal_does_not_wait_for_the_round(stripes: Path, tmp_path: Path) -> None:
    def twice() -> None:
        terminate()
        terminate()

    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        runner.start(small(stripes), tmp_path, At(1, twice))
    assert signal.getsignal(signal.SIGTERM) is handler


def test_runs_without_a_name_get_the_time_and_never_meet(
    stripes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "timestamp", lambda: "20260101-000000")
    recipe = small(stripes, training__rounds=1)
    nameless = Recipe.from_toml(recipe.to_toml().replace('name = "small"\n', "", 1))
    names = [runner.start(nameless, tmp_path, Progress()).name for _ in range(3)]
    assert names == ["20260101-000000", "20260101-000000-2", "20260101-000000-3"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"method__name": "eirs"}, "did you mean 'eris'?"),
        ({"method__kept_fractoin": 0.1}, "did you mean 'kept_fraction'?"),
        ({"method__kept_fraction": "much"}, "method.kept_fraction is 'much'; expected a number"),
        ({"method__kept_fraction": 1.5}, "kept_fraction is 1.5; expected a number in (0, 1]"),
        ({"method__plan": "randm"}, "(did you mean 'random'?)"),
        ({"method__compressor": "qsdg:16"}, "compressor is 'qsdg:16'; expected"),
        ({"method__epsilon": "low"}, "method.epsilon is 'low'; expected a number"),
        ({"model__name": "lenet"}, "did you mean 'lenet5'?"),
        ({"model__name": "resnet9"}, "one for samples of 1 × 28 × 28: lenet5"),
        ({"model__name": "lenet5", "model__width": 3}, "lenet5 setting is 'width'"),
        ({"model__length": 9}, "model.length is 9; expected none: mnist has no texts to cut"),
        ({"server__rule": "fedadm"}, "did you mean 'fedadam'?"),
        ({"server__rule": "fedadam", "server__beta1": "x"}, "server.beta1 is 'x'"),
        ({"server__beta9": 1}, "fedavg setting is 'beta9'"),
        ({"agreement__min_inclded": 2}, "min_included"),
        ({"agreement__quorum": "two"}, "agreement.quorum is 'two'; expected a whole number"),
        ({"training__sampled": 9}, "sampled is 9; expected 1 to 4"),
        ({"training__epochs": 2, "training__steps": 3}, "steps is 3"),
        ({"training__optimiser": "adam"}, "momentum is 0.9; expected 0 beside optimiser"),
        ({"training__scaffold": True}, "momentum is 0.9; expected 0.0 under SCAFFOLD"),
        (
            {"training__scaffold": True, "training__path": "fast", "training__momentum": 0.0},
            "SCAFFOLD keeps a control variate",
        ),
        (
            {"training__scaffold": True, "server__rule": "fedadam", "training__momentum": 0.0},
            "fedavg under SCAFFOLD",
        ),
        ({"data__samples": 31}, "4 clients would be dealt 31 each"),
        ({"data__clients": 2}, "min_included is 3; expected at most 2"),
        ({"name": "a/b"}, "a folder's name"),
        ({"name": ".."}, "a folder's name"),
    ],
)
def test_a_bad_recipe_leaves_nothing_behind(
    changes: dict[str, Any], says: str, stripes: Path, tmp_path: Path
) -> None:
    with pytest.raises(InvalidSetting) as refused:
        runner.start(small(stripes, **changes), tmp_path, Progress())
    assert says in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_no_run_is_left_alone(stripes: Path, tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    with pytest.raises(InvalidSetting, match="holds no run"):
        runner.start(small(stripes), tmp_path, Progress())
    with pytest.raises(OSError, match="small"):
        runner.start(small(stripes), tmp_path / "small" / store.RECORD, Progress()).path.mkdir()


def test_held_out_samples_are_evaluated_beside_the_test_samples(
    stripes: Path, tmp_path: Path
) -> None:
    run = runner.start(small(stripes, data__held_out=0.3), tmp_path, Progress())
    last = run.rounds()[-1]["metrics"]
    assert list(last) == ["accuracy", "loss", "held_out_accuracy", "held_out_loss"]
    samples = assemble(run.recipe).samples
    assert (len(samples.held_out), [len(part) for part in samples.parts]) == (4, [5] * 4)


def test_nodes_with_models_of_their_own_are_scored_one_by_one_at_the_end(
    stripes: Path, tmp_path: Path
) -> None:
    recipe = small(stripes, method__name="el", method__degree=2, training__rounds=2)
    run = runner.start(recipe, tmp_path, Progress())
    assembly = assemble(recipe)
    with assembly.training() as training:
        training.step()
        training.step()
        models = training.models()
    assert len({model.tobytes() for model in models}) == 4
    data = load_mnist(stripes)
    test, wanted = normalise(data.test_images), torch.from_numpy(data.test_labels.astype(np.int64))
    scores = [evaluate(assembly.module, model, test, wanted) for model in models]
    last = run.rounds()[-1]["metrics"]
    assert last["node_accuracy"] == pytest.approx(np.mean([one["accuracy"] for one in scores]))
    assert last["node_loss"] == pytest.approx(np.mean([one["loss"] for one in scores]))
    mean = np.mean(np.array(models, np.float64), axis=0).astype(np.float32)
    assert last["loss"] == pytest.approx(evaluate(assembly.module, mean, test, wanted)["loss"])


def test_a_model_or_a_loss_that_is_not_finite_is_a_failure() -> None:
    line: dict[str, Any] = {"round": 1, "included": None, "refused": 0, "metrics": {"loss": 2.0}}
    good, bad = np.zeros(3, np.float32), np.array([0, np.nan, 0], np.float32)
    assert runner.failed([line], good) is None
    assert runner.failed([line], bad) == "it diverged: the model is not finite"
    for value in (None, float("inf")):
        wild = {**line, "metrics": {"accuracy": 0.1, "loss": value}}
        assert (
            runner.failed([line, {**wild, "round": 2}], good) == "it diverged: loss is not finite"
        )
    some = {**line, "refused": 3, "included": 0.5}
    assert runner.failed([some], good) is None
