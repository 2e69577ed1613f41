"""Trained networks in their files: what is kept, what is refused, and what to do then."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from eris.audit.inversion.trained import PriorRecipe, TrainedPrior, load, split, store
from eris.core.errors import DataUnavailable

RECIPE = PriorRecipe("rog", "mnist", "test", {"channels": 4, "noise": 0.5}, 2, 32, 1e-3)
NETWORK = TrainedPrior({"weight": torch.arange(6.0).reshape(2, 3)}, {"LPIPS": 0.25}, "some package")


def test_what_is_stored_is_loaded(tmp_path: Path) -> None:
    path = store(RECIPE, NETWORK, tmp_path)
    assert path == tmp_path / "trained" / f"rog-mnist-{RECIPE.digest()[:12]}.safetensors"
    found = load(RECIPE, tmp_path)
    assert torch.equal(found.tensors["weight"], NETWORK.tensors["weight"])
    assert (found.figures, found.source) == ({"LPIPS": 0.25}, "some package")
    assert [each.name for each in path.parent.iterdir()] == [path.name]  # nothing left half done


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "ggl"}, {"data": "cifar10"}, {"samples": "train"}, {"epochs": 3}, {"batch": 16},
        {"learning_rate": 2e-3}, {"seed": 1}, {"version": 2},
        {"architecture": {"channels": 4, "noise": 0.4}},
    ],
    ids=str,
)  # fmt: skip
def test_every_part_of_a_recipe_is_in_its_hash(change: dict[str, Any], tmp_path: Path) -> None:
    other = replace(RECIPE, **change)
    assert other.digest() != RECIPE.digest()
    # Also where someone gives the file of one the name of the other.
    store(RECIPE, NETWORK, tmp_path).rename(other.path(tmp_path))
    with pytest.raises(DataUnavailable, match=r"another recipe.*--force"):
        load(other, tmp_path)


def test_the_order_of_constants_does_not_matter() -> None:
    turned = replace(RECIPE, architecture={"noise": 0.5, "channels": 4})
    assert turned.digest() == RECIPE.digest()


def test_what_is_not_there_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(DataUnavailable, match="run `eris train-prior rog mnist`"):
        load(RECIPE, tmp_path)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = store(RECIPE, NETWORK, tmp_path)
    whole = path.read_bytes()
    for damaged in (b"", whole[:-4], whole[:20], whole[:-1] + bytes([whole[-1] ^ 1])):
        path.write_bytes(damaged)
        with pytest.raises(DataUnavailable, match=r"is damaged.*rog mnist --force"):
            load(RECIPE, tmp_path)
    save_file({"weight": torch.ones(2)}, path)  # whole, but nobody said what it is
    with pytest.raises(DataUnavailable, match=r"is damaged \(KeyError"):
        load(RECIPE, tmp_path)


def test_a_network_is_judged_by_images_that_it_was_not_trained_on() -> None:
    trained_on, judged_by = split(torch.arange(25.0).reshape(25, 1, 1, 1))
    assert sorted([*trained_on.flatten().tolist(), *judged_by.flatten().tolist()]) == [*range(25)]
    assert len(judged_by) == 2
