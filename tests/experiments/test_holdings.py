"""Who holds what: as dealt by the partitioners, normalised as published, with its checksum."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from eris.core.errors import DataUnavailable, InvalidSetting
from eris.data import canaries, dirichlet, holdout, load, load_mnist
from eris.data.catalogue import PIXELS
from eris.experiments.runs.holdings import holdings
from eris.experiments.runs.recipe import DataRecipe
from eris.training.evaluation import PIXELS as EVALUATED


def recipe(path: Path, **settings: object) -> DataRecipe:
    return DataRecipe(name="mnist", path=str(path), **settings)  # type: ignore[arg-type]


def test_clients_hold_what_they_are_dealt_less_what_they_keep_back(stripes: Path) -> None:
    asked = recipe(
        stripes, clients=4, samples=8, partition="dirichlet", alpha=0.3, held_out=0.3, canaries=0.5
    )
    found = holdings(asked, seed=5)
    data = load_mnist(stripes)
    # 15 dealt: 4 held out, 11 left, 5 canaries of which half are trained on: 8 and a half.
    dealt = dirichlet(data.train_labels, 4, 0.3, 5, 15)
    split = holdout(dealt, 0.3, 5)
    trained = canaries(split.train, 0.5, 5).train
    for part, places in zip(found.parts, trained, strict=True):
        assert np.array_equal(found.targets[part], data.train_labels[places])
        pixels = data.train_images[places].astype(np.float32)
        assert np.allclose(found.inputs[part][:, 0], (pixels / 255 - 0.1307) / 0.3081, atol=1e-5)
    kept_back = np.concatenate(split.held_out)
    assert np.array_equal(found.targets[found.held_out], data.train_labels[kept_back])
    everything = np.concatenate([*found.parts, found.held_out])
    assert sorted(everything.tolist()) == list(range(len(found.inputs)))
    assert len(found.test_targets) == 40
    assert found.inputs.dtype == np.float32
    assert found.inputs.shape[1:] == (1, 28, 28)


def test_checksums_tell_other_samples_and_another_deal_apart(stripes: Path) -> None:
    asked = recipe(stripes, clients=4, samples=8)
    first, second = holdings(asked, seed=0), holdings(asked, seed=0)
    assert first.checksums == second.checksums
    other = holdings(asked, seed=1)
    assert other.checksums["train"] != first.checksums["train"]
    assert other.checksums["test"] == first.checksums["test"]
    # The same samples in the same order, cut elsewhere.
    ends = {holdings(recipe(stripes, clients=n), seed=0).checksums["train"] for n in (2, 3, 4)}
    assert len(ends) == 3


def test_the_checksum_is_of_the_arrays_as_they_were_loaded(stripes: Path) -> None:
    found = holdings(recipe(stripes, clients=2, samples=3), seed=0)
    data = load_mnist(stripes)
    digest = hashlib.sha256()
    for array in (data.test_images, data.test_labels):
        digest.update(f"|u1{array.shape}".encode() + array.tobytes())
    assert found.checksums["test"] == digest.hexdigest()
    assert "contents sha256" in found.source


def test_published_means_and_deviations_are_those_of_the_training_images() -> None:
    data = load("mnist")
    most, mean, deviation = PIXELS["mnist"]
    images = data.train_images.reshape(60, -1)  # type: ignore[union-attr]
    total = sum(float(some.sum(dtype=np.int64)) for some in images) / images.size / most
    squares = sum(float(np.square(some, dtype=np.float64).sum()) for some in images)
    assert round(total, 4) == mean[0]
    assert round((squares / images.size / most**2 - total**2) ** 0.5, 4) == deviation[0]
    assert (PIXELS["mnist"][1:], PIXELS["cifar10"][1:]) == (EVALUATED[1], EVALUATED[3])


def ratings(folder: Path) -> Path:
    rows = [f"{user}\t{item}\t{1 + (user * item) % 5}\t0" for user in range(1, 7)
            for item in range(1, 6)]  # fmt: skip
    (folder / "u.data").write_text("\n".join(rows) + "\n")
    return folder


def test_ratings_are_split_once_and_for_all_and_users_stay_together(tmp_path: Path) -> None:
    asked = DataRecipe(name="movielens-100k", path=str(ratings(tmp_path)), partition="by-user")
    found, again = holdings(asked, seed=0), holdings(asked, seed=9)
    assert found.task == "ratings"
    assert np.array_equal(found.test_inputs, again.test_inputs)
    assert len(found.test_targets) == 9  # three in ten, as Shatter tests on
    assert len(found.inputs) == 21
    assert found.inputs.min() == 0
    both = np.concatenate([found.inputs, found.test_inputs])
    assert len({tuple(pair) for pair in both.tolist()}) == 30
    for part in found.parts:
        assert len(set(found.inputs[part][:, 0].tolist())) == 1
    for pairs, values in ((found.inputs, found.targets), (found.test_inputs, found.test_targets)):
        assert np.array_equal(values, 1 + ((pairs[:, 0] + 1) * (pairs[:, 1] + 1)) % 5)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"clients": 200}, "clients is 200; expected at most 120"),
        ({"clients": 10, "samples": 13}, "10 clients would be dealt 13 each"),
        ({"clients": 8, "samples": 12, "held_out": 0.3}, "would be dealt 16 each, with what they"),
        ({"clients": 100, "partition": "dirichlet", "alpha": 0.01}, "would have no sample"),
        ({"clients": 60, "partition": "quantity", "exponent": 3.0}, "would have none"),
        ({"partition": "by-user"}, "mnist does not name its users"),
    ],
)
def test_a_deal_that_cannot_be_made_is_refused(
    settings: dict[str, object], says: str, stripes: Path
) -> None:
    with pytest.raises(InvalidSetting) as refused:
        holdings(recipe(stripes, **settings), seed=0)
    assert says in str(refused.value)


def test_data_that_is_not_there_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ERIS_CACHE", str(tmp_path))
    with pytest.raises(DataUnavailable, match="eris data fetch mnist"):
        holdings(DataRecipe(), seed=0)
    with pytest.raises(InvalidSetting, match=r"data set is 'minst'.*\(did you mean 'mnist'\?\)"):
        holdings(DataRecipe(name="minst"), seed=0)


def reviews(folder: Path, tests: int = 3) -> Path:
    for name, count in (("train.jsonl", 12), ("test.jsonl", tests)):
        rows = [f'{{"text": "{name} {i}", "label": {i % 2}}}' for i in range(count)]
        (folder / name).write_text("\n".join(rows) + "\n")
    return folder


def lengths(texts: Sequence[str]) -> NDArray[np.int32]:
    return np.array([[len(text), int(text.split()[1])] for text in texts], np.int32)


def test_texts_are_read_by_the_models_tokeniser(tmp_path: Path) -> None:
    asked = DataRecipe(name="imdb", path=str(reviews(tmp_path)), clients=3, samples=2)
    found = holdings(asked, 0, lengths)
    assert found.task == "texts"
    assert found.inputs.shape == (6, 2)
    # The labels are still those of the texts.
    assert np.array_equal(found.targets, found.inputs[:, 1] % 2)
    assert np.array_equal(found.test_targets, found.test_inputs[:, 1] % 2)
    other = holdings(asked, 1, lengths)
    assert other.checksums["train"] != found.checksums["train"]
    assert other.checksums["test"] == found.checksums["test"]
    with pytest.raises(InvalidSetting, match="this model reads no texts"):
        holdings(asked, 0)


def test_a_part_of_the_test_samples_is_the_same_for_every_seed(tmp_path: Path) -> None:
    folder = str(reviews(tmp_path, tests=30))
    asked = DataRecipe(name="imdb", path=folder, clients=3, samples=2, test_samples=10)
    parts = [holdings(asked, seed, lengths).test_inputs[:, 1].tolist() for seed in (0, 1)]
    assert parts[0] == parts[1] == sorted(set(parts[0]))
    assert len(parts[0]) == 10
    with pytest.raises(InvalidSetting, match=r"data.test_samples is 31; expected at most 30"):
        holdings(replace(asked, test_samples=31), 0, lengths)
