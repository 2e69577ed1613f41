"""Who holds what: from a recipe's data table to the samples of every client and the test samples.

Inputs are normalised by the data set's published mean and deviation (those are public; statistics
of the clients' own samples would not be). Only what is used is kept, and its checksum with it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from eris.audit.candidates import Candidates
from eris.core.errors import InvalidSetting, one_of
from eris.core.streams import Stream
from eris.core.vectors import Indices
from eris.data import (
    NAMES,
    CanarySplit,
    Drawn,
    HoldoutSplit,
    ImageData,
    Partition,
    RatingData,
    by_class,
    by_user,
    canaries,
    dirichlet,
    holdout,
    iid,
    load,
    quantity_skew,
    samples_to_deal,
)
from eris.data.cache import recorded
from eris.data.catalogue import PIXELS, Data
from eris.data.own import OwnData, is_own, load_own
from eris.experiments.runs.recipe import DataRecipe
from eris.models.factorisation import mean_squared_error
from eris.training.gradients import Loss

Array = NDArray[Any]
Task = Literal["classes", "ratings", "texts"]
Tokenise = Callable[[Sequence[str]], Array]
"""Texts to what a model of texts reads."""

TEST_RATINGS = 0.3
"""Of the ratings, drawn once and for all, as much as Shatter tests on (its table 1). The package
that they come from has none of the five folds that the data set was published with."""


@dataclass(frozen=True, eq=False)
class Holdings:
    """The samples of a run, and which of them are whose."""

    task: Task
    source: str
    inputs: Array
    targets: Array
    parts: Sequence[Indices]
    """Of each client, the places of the samples it trains on."""
    held_out: Indices
    """The samples that clients keep back, of all of them together."""
    test_inputs: Array
    test_targets: Array
    checksums: dict[str, str]
    """sha256 of the arrays in use as they were loaded, of the archive and of its files."""

    @property
    def loss(self) -> Loss:
        """What clients minimise."""
        return mean_squared_error if self.task == "ratings" else functional.cross_entropy


def holdings(recipe: DataRecipe, seed: int, tokenise: Tokenise | None = None) -> Holdings:
    """Load the data and deal it out; ``tokenise`` is for texts."""
    if recipe.name not in NAMES and not is_own(recipe.name):
        expected = f"{one_of(NAMES, recipe.name)}, or your own: a file.npz, or module:function"
        raise InvalidSetting("data set", recipe.name, expected)
    data = _load(recipe)
    task, (train, labels, users), (test, wanted) = _split(data)
    deal, tested = _deal(recipe, labels, users, seed), _tested(recipe, len(wanted))
    used = deal.used
    checksums = {
        "train": _sha256(train[used], labels[used], deal.mark),
        "test": _sha256(test[tested], wanted[tested]),
        **_archive(recipe, data),
    }
    return Holdings(
        task,
        data.source,
        _readable(recipe.name, train[used], tokenise),
        labels[used].astype(np.int64),
        deal.parts,
        deal.held_out,
        _readable(recipe.name, test[tested], tokenise),
        wanted[tested].astype(np.int64),
        checksums,
    )


def canaries_of(recipe: DataRecipe, seed: int, tokenise: Tokenise | None = None) -> Candidates:
    """Deal a recipe's data again, and keep the canaries with their coins.

    The coins are the audit's: no observer is given them.
    """
    if not recipe.canaries:
        expected = (
            "a share above 0: half of them are trained on by a fair coin each; "
            "or ask about your own samples with `--candidates FILE`"
        )
        raise InvalidSetting("data.canaries", recipe.canaries, expected)
    _, (inputs, targets, users), _ = _split(_load(recipe))
    _, split = _dealt(recipe, targets, users, seed)
    places = np.concatenate(split.canaries)
    if len(places) == 0:
        expected = "enough samples a client that the share of canaries is at least one of them"
        raise InvalidSetting("data.canaries", recipe.canaries, expected)
    return Candidates(
        torch.from_numpy(_readable(recipe.name, inputs[places], tokenise)),
        torch.from_numpy(targets[places].astype(np.int64)),
        np.repeat(np.arange(len(split.canaries)), [len(part) for part in split.canaries]),
        np.concatenate(split.included),
    )


def _load(recipe: DataRecipe) -> Data | OwnData:
    if not is_own(recipe.name):
        return load(recipe.name, recipe.path)
    if recipe.path is not None:
        raise InvalidSetting("data.path", recipe.path, f"none beside {recipe.name}, which says it")
    return load_own(recipe.name)


class _Deal(NamedTuple):
    """The samples in use and, as places among them, whose they are."""

    used: Indices
    parts: Sequence[Indices]
    held_out: Indices
    mark: Array
    """What tells this deal from others of the same samples."""


def _deal(recipe: DataRecipe, labels: Array, users: Array | None, seed: int) -> _Deal:
    if recipe.partition == "drawn":
        assert recipe.samples is not None
        drawn = Drawn(len(labels), recipe.resolved().clients or 1, recipe.samples, seed)
        mark = np.array([len(drawn), recipe.samples, seed])
        return _Deal(np.arange(len(labels)), drawn, np.empty(0, np.int64), mark)
    split, asked = _dealt(recipe, labels, users, seed)
    trained = asked.train
    # Only the samples in use, renumbered in the order in which clients hold them.
    used = np.concatenate([*trained, *split.held_out])
    ends = np.cumsum([len(part) for part in trained])
    order = np.arange(len(used))
    parts = tuple(np.split(order[: ends[-1]], ends[:-1]))
    return _Deal(used, parts, order[ends[-1] :], ends)


def _split(
    data: Data | OwnData,
) -> tuple[Task, tuple[Array, Array, Array | None], tuple[Array, Array]]:
    """What kind of data it is; samples, targets and users to train on; those to test on."""
    if isinstance(data, OwnData):
        own = (data.train_inputs, data.train_targets, data.train_users)
        return "classes", own, (data.test_inputs, data.test_targets)
    if isinstance(data, ImageData):
        train = (data.train_images, data.train_labels, None)
        return "classes", train, (data.test_images, data.test_labels)
    if isinstance(data, RatingData):
        return "ratings", *_rated(data)
    train = (np.array(data.train_texts, object), data.train_labels, None)
    return "texts", train, (np.array(data.test_texts, object), data.test_labels)


def _tested(recipe: DataRecipe, count: int) -> Indices:
    """The test samples in use, the same ones for every seed."""
    if recipe.test_samples is None:
        return np.arange(count)
    if recipe.test_samples > count:
        expected = f"at most {count}, which {recipe.name} has for testing"
        raise InvalidSetting("data.test_samples", recipe.test_samples, expected)
    return np.sort(iid(count, 1, recipe.test_samples, 0)[0])


def _dealt(
    recipe: DataRecipe, labels: Array, users: Array | None, seed: int
) -> tuple[HoldoutSplit, CanarySplit]:
    """What every client is dealt, less what it holds out, and which of that are canaries."""
    split = holdout(_partition(recipe, labels, users, seed), recipe.held_out, seed)
    return split, canaries(split.train, recipe.canaries, seed)


def _partition(recipe: DataRecipe, labels: Array, users: Array | None, seed: int) -> Partition:
    """The split that the recipe asks for."""
    recipe = recipe.resolved()
    clients, samples = recipe.clients or 1, recipe.samples
    if samples is not None:
        # The papers count what a client trains on.
        samples = samples_to_deal(samples, held_out=recipe.held_out, canary_share=recipe.canaries)
        if clients * samples > len(labels):
            expected = (
                f"fewer: {clients} clients would be dealt {samples} each, with what they hold out, "
                f"and {recipe.name} has {len(labels)} to deal"
            )
            raise InvalidSetting("data.samples", recipe.samples, expected)
    match recipe.partition:
        case "dirichlet":
            return dirichlet(labels, clients, recipe.alpha or 0.0, seed, samples)
        case "by-class":
            return by_class(labels, clients, recipe.classes or 0, seed)
        case "quantity":
            return quantity_skew(labels, clients, recipe.exponent or 0.0, seed)
        case "by-user":
            if users is None:
                expected = f"another one: {recipe.name} does not name its users"
                raise InvalidSetting("data.partition", recipe.partition, expected)
            return by_user(users, recipe.clients, seed)
        case _:
            return iid(labels, clients, samples, seed)


def _rated(data: RatingData) -> tuple[tuple[Array, Array, Array], tuple[Array, Array]]:
    """Pairs from 0, ratings and users to train on; pairs and ratings to test on."""
    pairs = np.stack([data.users, data.items], axis=1) - 1
    order = np.argsort(Stream(0, "test ratings").words(0, len(pairs)), kind="stable")
    test, train = np.split(order, [int(TEST_RATINGS * len(order))])
    trained = pairs[train], data.ratings[train], data.users[train]
    return trained, (pairs[test], data.ratings[test])


def _readable(name: str, inputs: Array, tokenise: Tokenise | None) -> Array:
    """Samples as a model reads them."""
    if inputs.dtype != object:
        return _normalised(name, inputs)
    if tokenise is None:
        raise InvalidSetting("data set", name, "images or ratings: this model reads no texts")
    return tokenise(inputs.tolist())


def _normalised(name: str, inputs: Array) -> Array:
    """Images as float32 with a channel each, of mean 0 and deviation 1; anything else as it is."""
    if name not in PIXELS:
        return inputs
    most, mean, deviation = PIXELS[name]
    images = inputs if inputs.ndim == 4 else inputs[:, None]
    shape = (1, -1, 1, 1)
    scaled = images.astype(np.float32) / np.float32(most)
    scaled -= np.array(mean, np.float32).reshape(shape)
    scaled /= np.array(deviation, np.float32).reshape(shape)
    return scaled


def _archive(recipe: DataRecipe, data: Data | OwnData) -> dict[str, str]:
    """The checksums that were checked when the data was fetched, or those of the user's own."""
    if isinstance(data, OwnData):
        return dict(data.checksums)
    if recipe.path is not None or recipe.name == "digits":
        return {}  # `source` has the one of the user's own copy
    cached = recorded(recipe.name)
    return {"archive": cached.archive_sha256, **cached.files}


def _sha256(*arrays: Array) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        # Texts one by one, each with an end that no text holds.
        texts = array.dtype == object
        digest.update(
            b"".join(text.encode() + b"\xff" for text in array)
            if texts
            else np.ascontiguousarray(array).tobytes()
        )
    return digest.hexdigest()
