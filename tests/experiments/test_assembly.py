"""From a recipe to a federation: defaults that are spelled out, models that fit their data."""

from __future__ import annotations

from pathlib import Path

import pytest

from eris.experiments.runs import runner
from eris.experiments.runs.assembly import assemble
from eris.experiments.runs.prepared import method_of, method_settings
from eris.experiments.runs.progress import Progress
from eris.experiments.runs.recipe import Recipe
from eris.methods import registry
from eris.protocol.schemes import Clustered


@pytest.mark.parametrize("name", registry.METHODS)
def test_spelled_out_settings_make_the_same_method(name: str) -> None:
    given = {"kept_fraction": 0.2, "epsilon": 3.0, "degree": 4, "capacities": (1.0, 2.0)}
    known = registry.settings_of(name)
    for settings in ({}, {key: value for key, value in given.items() if key in known}):
        method = registry.create(name, **settings)
        spelled = Recipe().changed({f"method.{k}": v for k, v in method_settings(method).items()})
        again = Recipe.from_toml(spelled.to_toml()).method.settings
        assert registry.create(name, **again) == method


def test_ratings_are_scored_by_their_error(tmp_path: Path) -> None:
    rows = [f"{user}\t{item}\t{1 + (user * item) % 5}\t0" for user in range(1, 7)
            for item in range(1, 6)]  # fmt: skip
    (tmp_path / "u.data").write_text("\n".join(rows) + "\n")
    recipe = Recipe().changed(
        {
            "name": "films",
            "data.name": "movielens-100k",
            "data.path": str(tmp_path / "u.data"),
            "data.partition": "by-user",
            "training.rounds": 3,
            "training.path": "loop",
            "model.dimensions": 3,
        }
    )
    run = runner.start(recipe, tmp_path / "runs", Progress())
    assert run.recipe.data.clients == 6
    assert run.recipe.model.name == "matrix-factorisation"
    assert run.recipe.model.settings["dimensions"] == 3
    assert 1 < run.rounds()[-1]["metrics"]["rmse"] < 2.5


@pytest.mark.parametrize(("scaffold", "layers"), [(False, (650,)), (True, (650, 650))])
def test_a_method_that_clusters_layers_is_told_of_them(
    scaffold: bool, layers: tuple[int, ...]
) -> None:
    """Softmax regression is one layer; SCAFFOLD's control variate has the same once more."""
    recipe = Recipe().changed(
        {
            "data.name": "digits",
            "data.clients": 4,
            "method.name": "fedavg-wc",
            "method.books": "layer",
            "method.clusters": 16,
            "training.scaffold": scaffold,
        }
    )
    agreement = assemble(recipe).federation.agreement
    assert agreement is not None
    scheme = agreement.settings.scheme
    assert isinstance(scheme, Clustered)
    assert (scheme.books, scheme.layers) == ("layer", layers)


@pytest.mark.parametrize("text", ["qsgd:16", "rand-k:100", "natural", "uniform:8"])
def test_a_compressor_is_chosen_by_its_text_and_written_back(text: str) -> None:
    recipe = Recipe().changed({"method.compressor": text})
    method = method_of(recipe)
    assert method_settings(method)["compressor"] == text
    assert method_of(Recipe.from_toml(recipe.to_toml())) == method
