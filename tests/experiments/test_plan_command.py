"""``eris plan`` as its user calls it, and whether other commands take what it writes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from eris.experiments.runs.recipe import Recipe
from eris.experiments.runs.store import Run
from eris.planning.sweep import parse_sweep
from eris.protocol.secure.terms import SecureSums
from eris.runtimes.grpc.settings import NodeSettings
from support.command import Eris

ASKED = ("plan", "--clients", "8", "--parameters", "1e6", "--rate", "20")
LINKS = "name,up,down\nanna,20,100\nben,20,100\ncleo,50,50\ndora,50,50\nemil,100,100\nfay,100,100\n"


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


@pytest.fixture
def links(tmp_path: Path) -> str:
    (tmp_path / "links.csv").write_text(LINKS, encoding="utf-8")
    return "links.csv"


# -- what it prints -------------------------------------------------------------------------------


def test_a_plan_says_what_it_costs_what_is_seen_and_what_it_assumes(eris: Eris) -> None:
    assert eris(*ASKED, "--secure", "none") == 0, eris.err
    for words in (
        "secure sums   none: an owner reads every client's values in its shard",
        "noise         none: over rounds nothing hides who was trained on",
        "broken: membership, an owner: an owner reads its shard of every client's update as it is",
        "12.5 % of it a round",
        "FedAvg, bound",
        "The limit is every member's link, 20 Mbit/s up.",
        "without noise C_max has no bound",
        "Assumed:",
    ):
        assert words in eris.out
    assert "safe" not in eris.out.lower()


def test_json_has_the_same_plan(eris: Eris, links: str) -> None:
    assert eris("plan", "--rates", links, "--parameters", "1M", "--json") == 0, eris.err
    found = json.loads(eris.out)
    assert found["owners"] == ["cleo", "dora", "emil", "fay"]
    assert found["secure_sums"] == "2 of 3"
    assert found["bytes"][0] == {"member": "anna", "up": pytest.approx(10.67e6, rel=1e-3),
                                 "down": pytest.approx(4.0e6, rel=2e-2)}  # fmt: skip
    assert found["judgements"][-1]["stand"] == "broken"
    assert found["seconds"] > found["limit_seconds"]


def test_a_model_file_gives_its_size_and_its_layers(eris: Eris, tmp_path: Path) -> None:
    layers = {"0.weight": (256, 784), "0.bias": (256,), "2.weight": (10, 256), "2.bias": (10,)}
    tensors = {name: np.zeros(shape, np.float32) for name, shape in layers.items()}
    save_file(tensors, tmp_path / "net.safetensors")
    given = ("plan", "--clients", "16", "--rate", "20", "--secure", "none", "--samples", "2")
    assert eris(*given, "--model", "net.safetensors") == 0, eris.err
    assert "16 clients, 203,530 parameters" in eris.out
    assert "with 2 samples behind an update: 256 × 785" in eris.out


def test_a_sweep_is_printed_drawn_and_says_where_there_is_no_plan(eris: Eris) -> None:
    sweep = ("--samples", "200", "--what-if", "epsilon=0.01,2,8")
    assert eris(*ASKED, *sweep, "--picture", "out/sweep.svg") == 0, eris.err
    assert "epsilon = 0.01: no such plan: ε = 0.01 over 100 rounds" in eris.out
    assert Path("out/sweep.svg").read_text().startswith("<?xml")
    assert eris(*ASKED, "--what-if", "clients=5:15:5", "--picture", "c.png", "--json") == 0
    points = json.loads(eris.out)["points"]
    assert [one["plan"]["clients"] for one in points] == [5, 10, 15]
    assert Path("c.png").read_bytes().startswith(b"\x89PNG")
    for quantity in ("aggregators=2,4,8", "kept=0.01,1", "rate=1,100"):
        assert eris(*ASKED, "--what-if", quantity) == 0, eris.err
    assert parse_sweep("kept=0.1:0.3:0.1")[1] == pytest.approx([0.1, 0.2, 0.3])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--seconds", "0.01"], "no such plan: 0.01 s a round is below the limit of the slowest"),
        (["--what-if", "rounds=1,2"], "--what-if is 'rounds'; expected one of aggregators, kept"),
        (["--what-if", "kept=a"], "expected values such as 0.01,0.05,0.2, or FIRST:LAST:STEP"),
        (["--what-if", "clients=1:1e9:1"], "expected 1 to 200 values"),
        (["--what-if", "clients=5.5"], "--what-if is 5.5; expected whole numbers of clients"),
        (["--picture", "a.png"], "--picture is 'a.png'; expected --what-if beside it"),
        (["--up", "5"], "the rate of links is given by --rate and --up; expected --rate, or --up"),
        (["--rate", "-1"], "--rate is -1.0; expected Mbit/s above 0"),
        (["--model", "gone.safetensors"], "expected one of the two"),
        (["--rates", "links.csv"], "--rate is 20.0; expected nothing beside --rates links.csv"),
        (
            ["--parameters", "2.5"],
            "expected a whole number up to 10^12, such as 61706, 1.2M or 1e6",
        ),
        (["--write", "plan.txt"], "--write is 'plan.txt'; expected a file that ends in .toml"),
        (["--write", "there.toml"], "one that is there is not written over"),
    ],
)
def test_refusals_are_one_line(eris: Eris, given: list[str], said: str) -> None:
    Path("there.toml").write_text("mine = 1\n")
    assert said in eris.refused(*ASKED, *given)
    assert Path("there.toml").read_text() == "mine = 1\n"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("l.csv", "name,speed\na,1\n", "l.csv, member 1 is 'speed'; expected name, rate, up, down"),
        ("l.csv", "name,up\na,1\n", "l.csv, member 1 is ['name', 'up']; expected rate, or up and"),
        ("l.csv", "rate\n1\n0\n", "l.csv, member 2 is '0'; expected a rate above 0, in Mbit/s"),
        ("l.csv", "name,rate\na,1\na,2\n", "name of member 2 is 'a'; expected one of its own"),
        ("l.csv", "", "l.csv is '0 members'"),
        ("l.toml", "[[member]]\nrate = true\n", "l.toml, member 1 is True"),
        ("l.toml", "member = 3\n", "expected [[member]] tables"),
        ("l.toml", "[[member]\n", "expected TOML"),
        ("l.txt", "", "expected a file that ends in .toml or .csv"),
    ],
)
def test_files_of_rates_that_cannot_be_read_are_refused(
    eris: Eris, name: str, text: str, said: str
) -> None:
    Path(name).write_text(text)
    assert said in eris.refused("plan", "--parameters", "1000", "--rates", name)


def test_toml_and_csv_are_the_same_members(eris: Eris, links: str, tmp_path: Path) -> None:
    rows = [line.split(",") for line in LINKS.splitlines()[1:]]
    text = "".join(f'[[member]]\nname = "{n}"\nup = {u}\ndown = {d}\n' for n, u, d in rows)
    (tmp_path / "links.toml").write_text(text, encoding="utf-8")
    said = []
    for path in (links, "links.toml"):
        assert eris("plan", "--rates", path, "--parameters", "1e6", "--json") == 0, eris.err
        said.append(eris.out)
    assert said[0] == said[1]


# -- what others take -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        ("--for", "run"),
        ("--for", "run", "--secure", "none", "--kept", "0.2"),
        ("--for", "run", "--epsilon", "18", "--samples", "6", "--rounds", "2", "--kept", "0.05"),
        ("--for", "run", "--epsilon", "18", "--samples", "6", "--rounds", "2", "--kept", "0.05",
         "--protects", "client"),
    ],
)  # fmt: skip
def test_eris_run_takes_the_recipe(
    eris: Eris, stripes: Path, links: str, given: tuple[str, ...]
) -> None:
    asked = ("plan", "--rates", links, "--parameters", "61706", "--write", "recipe.toml")
    assert eris(*asked, *given) == 0, eris.err
    planned = Recipe.load(Path("recipe.toml"))
    run = ("run", "recipe.toml", "--path", str(stripes), "--rounds", "2")
    assert eris(*run) == 0, eris.err
    done = Run(Path("runs/recipe"))
    assert done.state == "finished"
    used = done.recipe.method.settings
    assert {key: used[key] for key in planned.method.settings} == planned.method.settings
    assert len(used.get("capacities", used["aggregators"] * [1])) == used["aggregators"]
    assert (
        done.recipe.agreement.settings["min_included"] == planned.agreement.settings["min_included"]
    )


@pytest.mark.parametrize(
    "given",
    [
        (),
        ("--secure", "none", "--kept", "0.2"),
        ("--kept", "0.01", "--colluders", "3"),
        ("--epsilon", "8", "--samples", "500", "--rounds", "50"),
    ],
)
def test_eris_node_init_takes_the_charter(eris: Eris, links: str, given: tuple[str, ...]) -> None:
    asked = ("plan", "--rates", links, "--parameters", "100k", "--write", "charter.toml", "--json")
    assert eris(*asked, *given) == 0, eris.err
    plan: dict[str, Any] = json.loads(eris.out)
    for name in ("anna", "fay"):
        directory = ["--host-directory"] if name == "anna" else [
            "--directory", "anna.example.org:7400", "--directory-name", "anna"
        ]  # fmt: skip
        directory += ["--address", f"{name}.example.org:7400"]
        assert eris("node", "init", name, "--charter", "charter.toml", *directory) == 0, eris.err
        path = Path(name) / "node.toml"
        settings = NodeSettings.load(path, {"ERIS_PRIVACY_DATA": "ward-3"})
        agreed = settings.agreement(plan["parameters"])
        assert settings.node.aggregator == (name in plan["owners"])
        assert settings.start_with == 6
        assert agreed.plan.shards == plan["aggregators"]
        assert agreed.min_included == plan["min_included"]
        assert agreed.secure == SecureSums.parse(plan["secure_sums"], 8, _known(settings))
        assert (agreed.noise is None) == (plan["epsilon"] is None)
        if agreed.noise is not None:
            assert agreed.noise.epsilon == plan["epsilon"]
            assert agreed.noise.std == pytest.approx(plan["noise_of_a_client"], rel=2e-3)
        shutil.rmtree(name)


def _known(settings: NodeSettings) -> int | None:
    return None if settings.secure is None else settings.secure.known


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[federation]\nshrads = 3\n", "federation is 'shrads'; expected one of"),
        ("[node]\nname = 'x'\n", "table is 'node'; expected one of federation, membership, plan"),
        ("[plan]\nowners = 3\n", "plan.owners is 3; expected names in quotes"),
        ("federation = 3\n", "federation is 3; expected a table"),
    ],
)
def test_a_charter_that_says_something_else_is_refused(eris: Eris, text: str, said: str) -> None:
    Path("charter.toml").write_text(text)
    asked = ("node", "init", "anna", "--host-directory", "--charter", "charter.toml")
    assert said in eris.refused(*asked)
    assert not Path("anna").exists()
    Path("charter.toml").write_text("[federation]\nshards = 3\n")
    assert "nothing beside it that it says" in eris.refused(*asked, "--start-with", "3")
