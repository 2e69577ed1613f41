"""``eris run``, ``runs``, ``compare`` and ``methods``, as their user calls them (in process)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from eris.experiments.runs import store
from eris.experiments.runs.recipe import Recipe
from eris.experiments.runs.store import Run
from eris.methods.registry import METHODS
from support.command import Eris


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("ERIS_RUNS", raising=False)
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


@pytest.fixture
def eris(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Eris:
    return Eris(monkeypatch, capsys)


def options(stripes: Path, *more: str) -> list[str]:
    return [
        "run", "--path", str(stripes), "--clients", "4", "--samples", "5", "--rounds", "2",
        "--evaluate-every", "1", "--set", "kept_fraction=0.3", *more,
    ]  # fmt: skip


def test_options_and_toml_make_the_same_run(eris: Eris, stripes: Path, tmp_path: Path) -> None:
    assert eris(*options(stripes, "--momentum", "0.9", "--name", "by-options")) == 0, eris.err
    assert "by-options starts: 2 rounds" in eris.out
    assert "round 1/2  accuracy 0." in eris.out
    assert "by-options: finished, 2 rounds" in eris.out
    recipe = tmp_path / "by-file.toml"
    recipe.write_text(
        f'[data]\npath = "{stripes}"\nclients = 4\nsamples = 5\n[training]\nrounds = 9\n'
        "evaluate_every = 1\nmomentum = 0.9\n[method]\nkept_fraction = 0.3\n"
    )
    assert eris("run", "by-file.toml", "--rounds", "2") == 0, eris.err
    one, other = Run(Path("runs/by-options")), Run(Path("runs/by-file"))
    assert one.recipe.changed({"name": "by-file"}) == other.recipe
    model = [(run.path / store.MODEL).read_bytes() for run in (one, other)]
    assert model[0] == model[1]
    # What is done is done.
    assert eris("run", "by-file.toml", "--rounds", "2") == 2
    assert "expected one that is not finished" in eris.err
    assert eris("run", "--resume", "by-file") == 2

    assert eris("runs", "--sort", "accuracy") == 0
    assert "by-options" in eris.out
    assert "2/2" in eris.out
    assert eris("runs", "show", "by-file") == 0
    assert "kept_fraction = 0.3" in eris.out
    assert "model.safetensors" in eris.out
    assert eris("compare", "by-file", "by-options", "--picture", "p.png") == 0
    assert "Picture of accuracy: p.png" in eris.out
    assert Path("p.png").read_bytes().startswith(b"\x89PNG")


def test_warnings_are_a_line_each(eris: Eris, stripes: Path) -> None:
    assert (
        eris(
            *options(
                stripes,
                "--set",
                "plan=contiguous",
                "--set",
                "kept_fraction=0.01",
                "--set",
                "basis=coordinates",
                "--runs",
                "elsewhere",
            )
        )
        == 0
    )
    assert "warning: contiguous shards can be whole layers" in eris.err
    assert "warning: less than 2% of the coordinates are kept" in eris.err
    assert ".py" not in eris.err
    (run,) = Path("elsewhere").iterdir()
    assert Run(run).recipe.method.settings["plan"] == "contiguous"


@pytest.mark.parametrize(
    ("more", "verdict"),
    [
        (["--method", "eris"], "every contribution was refused from round 1 on"),
        (["--method", "eris", "--rounds", "1"], "every contribution was refused in the last round"),
    ],
    ids=str,
)
def test_a_run_that_came_to_nothing_says_so_and_is_marked(
    eris: Eris, more: list[str], verdict: str
) -> None:
    wild = ["run", "--data", "digits", "--clients", "4", "--rounds", "3", "--name", "wild"]
    assert eris(*wild, "--learning-rate", "3e38", "--steps", "3", *more) == 1
    last = eris.out.splitlines()[-1]
    assert "runs/wild: failed, " in last
    assert verdict in last
    run = Run(Path("runs/wild"))
    assert run.state == "failed"
    assert verdict in run.about["error"]
    assert eris("runs") == 0
    assert "failed" in eris.out
    assert eris("runs", "show", "wild") == 0
    assert f"error: {run.about['error']}" in eris.out
    assert eris("run", "--resume", "wild") == 2
    assert "expected one that is not failed" in eris.err


def test_the_first_run_of_a_new_user_trains(eris: Eris) -> None:
    """No option but the data, which here come without a download."""
    assert eris("run", "--data", "digits", "--name", "first") == 0, eris.err
    told = eris.out.splitlines()
    rounds = [line for line in told if line.startswith("round ")]
    assert len(rounds) == Recipe().training.rounds
    assert all(line.endswith(" left") for line in rounds[:-1])
    (last,) = [line for line in Run(Path("runs/first")).rounds() if line["round"] == len(rounds)]
    assert last["metrics"]["accuracy"] > 0.85


BAD = [
    (["run", "--data", "minst"], "data set is 'minst'; expected one of mnist"),
    (["run", "--data", "mnist", "--model", "lenet"], "(did you mean 'lenet5'?)"),
    (["run", "--method", "eirs"], "did you mean 'eris'?"),
    (["run", "--set", "kept_fractoin=0.5"], "did you mean 'kept_fraction'?"),
    (["run", "--set", "kept_fraction"], "--set is 'kept_fraction'; expected KEY=VALUE"),
    (["run", "--set", "modle.norm=none"], "(did you mean 'model'?)"),
    (["run", "--clients", "ten"], "data.clients is 'ten'; expected a whole number"),
    (["run", "--clients", "2.5"], "data.clients is 2.5; expected a whole number"),
    (["run", "--alpha", "0.2"], "only the partition dirichlet takes it"),
    (["run", "--partition", "dirichelt"], "(did you mean 'dirichlet'?)"),
    (["run", "--rounds", "0"], "training.rounds is 0; expected at least 1"),
    (["run", "--dropout", "1.5"], "faults.dropout is 1.5; expected a rate from 0 to 1"),
    (["run", "--name", "../up"], "a folder's name"),
    (["run", "--name=-x"], "a folder's name, without / and not beginning with . or -"),
    (["run", "--name", ""], "argument 3 after --name is ''; expected a value"),
    (["run", "--name="], "name is ''; expected a folder's name"),
    (["runs", "--runs", "nowhere"], "--runs is 'nowhere'; expected a folder with runs"),
    (["runs", "show", "a", "--runs", "nowhere"], "--runs is 'nowhere'; expected a folder with"),
    (["compare", "a", "--runs", "file"], "--runs is 'file'; expected a folder with runs"),
    (["audit", "a", "--runs", "nowhere"], "--runs is 'nowhere'; expected a folder with runs"),
    (["run", "--resume", "a", "--runs", "nowhere"], "--runs is 'nowhere'; expected a folder"),
    (["run", "nowhere.toml"], "recipe is 'nowhere.toml'; expected a file that can be read"),
    (["run", "unknown.toml"], "key in [data] is 'nmae'; expected one of"),
    (["run", "typed.toml"], "data.clients is 'ten'; expected a whole number"),
    (["run", "broken.toml"], "expected TOML:"),
    (["run", "--resume", "nothing"], "expected one of the runs in runs; there is none"),
    (["run", "--resume", "newer"], "expected 1, which this version reads"),
    (["run", "--name", "newer"], "expected 1, which this version reads"),
    (["run", "--runs", "file"], "file"),
    (["runs", "show", "nothing"], "expected one of the runs"),
    (["compare", "nothing"], "expected one of the runs"),
    (["compare", "a", "--metric", "loss"], "--picture beside it"),
    (["methods", "shater"], "(did you mean 'shatter'?)"),
    (["reproduce", "mnits"], "(did you mean 'mnist'?)"),
]


@pytest.mark.parametrize(("arguments", "says"), BAD, ids=[" ".join(a) for a, _ in BAD])
def test_a_refusal_is_one_line_with_code_2(
    arguments: list[str], says: str, eris: Eris, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "unknown.toml").write_text('[data]\nnmae = "mnist"\n')
    (tmp_path / "typed.toml").write_text('[data]\nclients = "ten"\n')
    (tmp_path / "broken.toml").write_text("seed =\n")
    if "newer" in arguments:
        run = Run.create(tmp_path / "runs" / "newer", Recipe(), {})
        record = run.path / store.RECORD
        record.write_text(record.read_text().replace('"format": 1', '"format": 2'))
    before = sorted(tmp_path.rglob("*"))
    assert eris(*arguments) == 2
    assert says in eris.err
    assert eris.err.startswith("error: ")
    assert eris.err.count("\n") == 1
    assert [path for path in sorted(tmp_path.rglob("*")) if path.name != "runs"] == [
        path for path in before if path.name != "runs"
    ]


def test_data_that_was_not_fetched_says_the_command(
    eris: Eris, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ERIS_CACHE", str(tmp_path / "cache"))
    assert eris("run", "--data", "cifar10") == 2
    assert "run `eris data fetch cifar10` to fetch it" in eris.err


def test_a_folder_of_runs_that_the_environment_names_has_to_be_there(
    eris: Eris, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ERIS_RUNS", "nowhere")
    assert "ERIS_RUNS is 'nowhere'; expected a folder with runs" in eris.refused("runs")


def test_a_cache_that_cannot_be_written_to_is_refused_at_once(
    eris: Eris, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("ERIS_CACHE", str(tmp_path / "file"))
    assert "file is none" in eris.refused("data", "fetch", "mnist")
    assert eris.out == ""  # nothing was downloaded


def test_a_changed_recipe_lists_what_differs(eris: Eris, stripes: Path) -> None:
    from eris.experiments.runs import runner
    from eris.experiments.runs.progress import Progress

    class Stop(Progress):
        def round(self, line: store.Line) -> None:
            raise KeyboardInterrupt

    asked = Recipe().changed(
        {"name": "cut", "data.path": str(stripes), "data.clients": 4, "training.rounds": 2}
    )
    with pytest.raises(KeyboardInterrupt):
        runner.start(asked, Path("runs"), Stop())
    assert eris("run", "--resume", "cut", "--momentum", "0.9", "--set", "rotate=2") == 2
    assert "training.momentum: 0.0, now 0.9; method.rotate: 0, now 2" in eris.err
    assert eris("runs") == 0
    assert "interrupted" in eris.out
    assert eris("run", "--resume", "cut", "--checkpoint-every", "1") == 0, eris.err


def test_runs_that_cannot_be_read_are_listed_after_the_others(eris: Eris) -> None:
    assert eris("runs") == 0
    assert "No runs in runs" in eris.out
    Run.create(Path("runs/good"), Recipe(), {})
    Run.create(Path("runs/bad"), Recipe(), {})
    Path("runs/bad/recipe.toml").write_text("=")
    Run.create(Path("runs/torn"), Recipe(), {})
    Path("runs/torn/rounds.jsonl").write_text("{}\n")
    assert eris("runs") == 0
    assert "good" in eris.out
    assert "not readable: runs/bad/recipe.toml is damaged" in eris.out
    assert "not readable: runs/torn/rounds.jsonl is damaged in line 1" in eris.out


def test_methods_are_listed_with_their_settings(eris: Eris) -> None:
    assert eris("methods") == 0
    assert all(name in eris.out for name in METHODS)
    assert "McMahan" in eris.out
    assert eris("methods", "eris") == 0
    for part in ("kept_fraction", "epsilon", "one of random, interleaved, contiguous", "--set"):
        assert part in eris.out
    assert eris("methods", "fedavg") == 0
    assert "setting" not in eris.out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run"], "eris run --data mnist --clients 50 --samples 16"),
        (["run"], "--checkpoint-every"),
        (["runs"], "eris runs --sort accuracy"),
        (["runs", "show"], "eris runs show mnist-eris"),
        (["compare"], "eris compare mnist-fedavg mnist-eris --picture mnist.png"),
        (["methods"], "eris methods eris"),
    ],
)
def test_help_teaches_by_example(arguments: list[str], says: str, eris: Eris) -> None:
    assert eris(*arguments, "--help") == 0
    assert says in eris.out


def test_help_does_not_wait_for_torch() -> None:
    code = (
        "import sys, eris.cli.main; "
        "print({'torch', 'matplotlib', 'sklearn', 'ray'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
