"""``eris train-prior``: what it says, what it keeps, and what it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import Tensor

from eris.audit.inversion import Ggl, enhancement, generator
from eris.audit.inversion.trained import PriorRecipe, load
from eris.core.errors import DataUnavailable
from eris.data import cache_root
from eris.experiments.audits import priors
from eris.experiments.audits.priors import PriorKind
from support.command import Eris
from support.lpips import use_stand_in


@pytest.fixture(autouse=True)
def metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_stand_in(monkeypatch, tmp_path / "lpips", priors)


@pytest.fixture
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PriorRecipe:
    """A tiny network on a few digits, kept elsewhere."""
    small: Mapping[str, int | float] = {**enhancement.RECIPES["mnist"].architecture,
                                        "channels": 4, "deep": 4, "blocks": 1}  # fmt: skip
    recipe = replace(enhancement.RECIPES["mnist"], architecture=small, epochs=1)
    kind = replace(priors.PRIORS["rog"], recipes={"mnist": recipe})
    known: dict[str, PriorKind] = {"rog": kind}
    monkeypatch.setattr(priors, "PRIORS", known)
    every = priors.images_of

    def few(data: str) -> tuple[Tensor, str]:
        images, source = every(data)
        return images[:40], source

    monkeypatch.setattr(priors, "images_of", few)
    monkeypatch.setattr("eris.cli.train_prior.cache_root", lambda: tmp_path)
    return recipe


def test_a_network_is_trained_once_and_described(
    quick: PriorRecipe,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    eris = Eris(monkeypatch, capsys)
    assert eris("train-prior", "rog", "mnist") == 0, eris.err
    path = quick.path(tmp_path)
    for told in ("left", "test part of", "seed 0", "held-out images: 4", "LPIPS:", str(path)):
        assert told in eris.out
    first = path.read_bytes()
    assert eris("train-prior", "rog", "mnist") == 0
    assert "There already" in eris.out
    assert "held-out images: 4" in eris.out
    path.write_bytes(first[:100])
    assert eris("train-prior", "rog", "mnist") == 2
    assert "rog mnist --force" in eris.err
    assert eris("train-prior", "rog", "mnist", "--force") == 0
    again, before = load(quick, tmp_path), safetensors.torch.load(first)
    torch.testing.assert_close(dict(again.tensors), before)  # the same recipe, the same network


def test_a_generator_is_trained_and_arms_the_attack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usual = generator.RECIPES["mnist"]
    recipe = replace(usual, architecture={**usual.architecture, "latents": 4}, epochs=1)
    kind = replace(priors.PRIORS["ggl"], recipes={"mnist": recipe})
    monkeypatch.setattr(priors, "PRIORS", {"ggl": kind})
    images, source = priors.images_of("mnist")
    monkeypatch.setattr(priors, "images_of", lambda data: (images[:40], source))
    for module in ("eris.cli.train_prior", "eris.experiments.audits.priors"):
        monkeypatch.setattr(f"{module}.cache_root", lambda: tmp_path)
    with pytest.raises(DataUnavailable, match="run `eris train-prior ggl mnist`"):
        priors.armed("ggl", "mnist")
    eris = Eris(monkeypatch, capsys)
    assert eris("train-prior", "ggl", "mnist") == 0, eris.err
    assert "LPIPS of principal components:" in eris.out
    attack = priors.armed("ggl", "mnist")
    assert isinstance(attack, Ggl)
    assert attack.generator is not None
    assert attack.generator(torch.zeros(2, 4)).shape == (2, 1, 28, 28)


def test_unknown_kinds_and_data_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    eris = Eris(monkeypatch, capsys)
    assert "kind of network is 'rgo'; expected one of rog, ggl" in eris.refused(
        "train-prior", "rgo", "mnist"
    )
    said = eris.refused("train-prior", "rog", "cifra10")
    assert "data set for rog is 'cifra10'" in said
    assert "did you mean 'cifar10'" in said
    assert "data set for ggl is 'imdb'" in eris.refused("train-prior", "ggl", "imdb")
    assert not (cache_root() / "trained" / "rgo").exists()
