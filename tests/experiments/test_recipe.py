"""Recipes: one value from TOML or from options, spelled out and compared."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eris.cli.run import keys
from eris.core.errors import InvalidSetting
from eris.core.toml import unwrapped
from eris.experiments.runs.recipe import DataRecipe, FaultsRecipe, Recipe, differences, flat
from eris.runtimes.faults import PER_MESSAGE, PER_ROUND
from eris.tables import is_choice, settings_of, subtables

FULL = """
name = "mine"
seed = 3
[data]
name = "cifar10"
clients = 50
samples = 16
partition = "dirichlet"
alpha = 0.2
held_out = 0.3
[model]
name = "resnet20"
norm = "none"
[training]
rounds = 120
momentum = 0.9
learning_rate = 1
[server]
rule = "fedadam"
beta1 = 0.5
[method]
name = "eris"
kept_fraction = 0.05
capacities = [1, 2.5]
[agreement]
min_included = 2
[faults]
dropout = 0.3
[engine]
record = true
"""


def test_a_recipe_is_read_and_written_without_loss() -> None:
    recipe = Recipe.from_toml(FULL)
    assert recipe.name == "mine"
    assert (recipe.data.alpha, recipe.data.samples, recipe.data.held_out) == (0.2, 16, 0.3)
    assert recipe.model.settings == {"norm": "none"}
    assert recipe.training.learning_rate == 1.0
    assert recipe.method.settings == {"kept_fraction": 0.05, "capacities": (1, 2.5)}
    assert recipe.engine.record is True
    assert Recipe.from_toml(recipe.to_toml()) == recipe
    assert recipe.changed({}) == recipe


def test_what_is_written_names_every_option_even_one_that_is_not_set() -> None:
    text = Recipe().to_toml()
    for item, _ in settings_of(Recipe):
        assert re.search(rf"^(# )?{item.name}( =|:)", text, re.MULTILINE)
    for name, table in subtables(Recipe).items():
        section = text.split(f"[{name}]\n")[1].split("\n[")[0]
        for item, _ in settings_of(table):
            assert re.search(rf"^(# )?{item.name}( =|:)", section, re.MULTILINE), item.name


def test_every_option_has_a_flag_of_its_own() -> None:
    flags = [flag for _, flag, _, _ in keys()]
    assert len(flags) == len(set(flags))
    expected = {
        "data", "model", "clients", "samples", "method", "rounds", "learning-rate", "momentum",
        "seed", "partition", "alpha", "engine", "dropout", "link", "churn", "straggle", "sampled",
        "record", "name", "checkpoint-every",
    }  # fmt: skip
    assert expected <= set(flags)
    # TOML cannot say that something is not set, so that must be what is not said.
    for _, flag, item, kind in keys():
        assert unwrapped(kind)[1] == (item.default is None), flag


def test_every_fault_of_the_plan_can_be_asked_for() -> None:
    assert {item.name for item in fields(FaultsRecipe)} == {*PER_MESSAGE, *PER_ROUND, "correlation"}


def example(kind: Any, within: str | None) -> st.SearchStrategy[Any]:
    inner, optional = unwrapped(kind)
    if is_choice(inner):
        made: st.SearchStrategy[Any] = st.sampled_from(inner.__args__)
    elif inner is bool:
        made = st.booleans()
    elif inner is int:
        made = st.integers(1, 1000)
    elif inner is float:
        most = 0.9 if within and "1" in within else 1e9
        made = st.floats(min(1e-3, most), most)
    else:
        made = st.text("ab/ \"'\\#=é", min_size=1)
    return st.one_of(st.none(), made) if optional else made


@st.composite
def recipes(draw: st.DrawFn) -> Recipe:
    values = {}
    for key, _, item, kind in keys():
        if key.startswith("data.") and key != "data.name":
            continue  # these depend on each other
        value = draw(example(kind, item.metadata["within"]))
        if value is not None:
            values[key] = value
    return Recipe().changed(values)


@settings(max_examples=25)
@given(recipes())
def test_any_recipe_survives_toml(recipe: Recipe) -> None:
    assert Recipe.from_toml(recipe.to_toml()) == recipe
    assert differences(recipe, Recipe.from_toml(recipe.to_toml())) == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sede = 1", "key is 'sede'; expected one of name, seed, data"),
        ("sede = 1", "(did you mean 'seed'?)"),
        ("[dta]\nname = 'x'", "(did you mean 'data'?)"),
        ("[data]\nclient = 3", "key in [data] is 'client'; expected one of"),
        ("[data]\nclient = 3", "(did you mean 'clients'?)"),
        ("[data]\nclients = 'ten'", "data.clients is 'ten'; expected a whole number"),
        ("[data]\nalpha = 0.2", "only the partition dirichlet takes it, this is iid"),
        ("[data]\npartition = 'by-class'\nsamples = 3", "data.samples is 3; expected none"),
        ("[training]\nmomentum = 1", "training.momentum is 1.0; expected a number in [0, 1)"),
        ("[engine]\nname = 'rya'", "one of local, ray (did you mean 'ray'?)"),
        ("seed = ", "expected TOML: Invalid value (at end of document)"),
        ("data = 3", "data is 3; expected a table: [data]"),
    ],
)
def test_a_bad_recipe_says_what_and_where(text: str, says: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        Recipe.from_toml(text)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_differences_name_keys_and_both_values() -> None:
    before = Recipe.from_toml(FULL)
    after = before.changed(
        {"data.samples": 32, "method.kept_fraction": 0.1, "method.rotate": 2, "name": "other"}
    )
    assert differences(before, after) == [
        "data.samples: 16, now 32",
        "method.kept_fraction: 0.05, now 0.1",
        "method.rotate: not set, now 2",
    ]
    # How often it is saved does not make it another run.
    assert differences(before, before.changed({"engine.checkpoint_every": 1})) == []


def test_a_partition_spells_out_its_own_defaults_only() -> None:
    spelled = DataRecipe(partition="dirichlet").resolved()
    assert (spelled.alpha, spelled.classes, spelled.exponent, spelled.clients) == (
        0.5, None, None, 10,
    )  # fmt: skip
    assert DataRecipe(partition="by-class", classes=3).resolved().classes == 3
    assert DataRecipe(partition="quantity").resolved().exponent == 1.0
    assert DataRecipe(partition="by-user").resolved().clients is None


def test_a_changed_key_must_be_in_a_table_that_exists() -> None:
    with pytest.raises(InvalidSetting, match=r"table is 'modle'; .* \(did you mean 'model'\?\)"):
        Recipe().changed({"modle.norm": "none"})
    assert flat(Recipe().changed({"model.norm": "none"}))["model.norm"] == "none"


def test_the_documented_recipe_and_program_work() -> None:
    text = (Path(__file__).parents[2] / "docs" / "runs.md").read_text(encoding="utf-8")
    (toml,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    assert Recipe.from_toml(toml).method.settings == {"kept_fraction": 0.05}
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(compile(program, "runs.md", "exec"), {})
