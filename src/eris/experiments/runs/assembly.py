"""From a recipe to a federation that can be trained, with every default spelled out.

Whatever is wrong with a recipe is found here, before a folder is made or a round is trained.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from eris.core.errors import InvalidSetting
from eris.core.vectors import Vector
from eris.data.weights import Weights, load_minilm
from eris.experiments.runs.holdings import Array, Holdings, Tokenise, holdings
from eris.experiments.runs.own_model import OwnModel
from eris.experiments.runs.own_model import create as create_model
from eris.experiments.runs.own_model import entry as model_entry
from eris.experiments.runs.prepared import (
    ReadyRun,
    method_of,
    rule_of,
    spelled_out,
    writable,
)
from eris.experiments.runs.recipe import (
    ModelRecipe,
    Recipe,
)
from eris.federation import Federation
from eris.models import MODELS, ModelEntry
from eris.protocol.schemes import Rotated
from eris.protocol.settings import Settings, model_digest
from eris.session import Session
from eris.tables import check_settings
from eris.training.evaluation import evaluate, evaluate_ratings
from eris.training.flat import layer_sizes
from eris.training.population import Population, Trainers
from eris.training.scaffold import ScaffoldTrainer, scaffold_initial, scaffold_model
from eris.training.torch import flatten, torch_clients
from eris.training.vectorised import TorchPopulation

TEXTS = ("imdb",)
LENGTH = 256
SAMPLES_AT_ONCE, TEXTS_AT_ONCE = 1024, 50
"""Of the test samples, in one pass."""
LIBRARIES = ("numpy", "torch", "safetensors", "protobuf", "numba")


@dataclass(frozen=True, eq=False)
class Assembly(ReadyRun):
    """A recipe and all that it needs to run."""

    samples: Holdings
    module: nn.Module
    weights: str | None = None
    """Where the weights came from that the model starts from, if it was trained before."""
    tokenise: Tokenise | None = None
    """How texts are read, where the samples are texts."""

    def evaluate(self, training: Session, *, nodes: bool = False) -> dict[str, float]:
        """How well the model does on the test samples, and on what clients held out.

        Where every node has a model of its own, that is their mean; ``nodes`` adds the mean over
        the nodes of how each does by itself, which takes as many evaluations.
        """
        data = self.samples
        found = self._score(training.model, data.test_inputs, data.test_targets)
        if len(data.held_out):
            places = data.held_out
            kept = self._score(training.model, data.inputs[places], data.targets[places])
            found |= {f"held_out_{name}": value for name, value in kept.items()}
        if nodes and len(models := training.models()) > 1:
            each = [self._score(one, data.test_inputs, data.test_targets) for one in models]
            for name in each[0]:
                found[f"node_{name}"] = float(np.mean([scores[name] for scores in each]))
        return found

    def _score(self, model: Vector, inputs: Array, targets: Array) -> dict[str, float]:
        if self.recipe.training.scaffold:
            model = scaffold_model(model)
        given, wanted = torch.from_numpy(inputs), torch.from_numpy(targets)
        if self.samples.task == "ratings":
            return {"rmse": evaluate_ratings(self.module, model, given, wanted)["rmse"]}
        choice = self.recipe.training.running_statistics
        batch = TEXTS_AT_ONCE if self.samples.task == "texts" else SAMPLES_AT_ONCE
        scored = evaluate(
            self.module, model, given, wanted, batch_size=batch, running_statistics=choice
        )
        return {"accuracy": scored["accuracy"], "loss": scored["loss"]}

    def about(self) -> dict[str, Any]:
        """What ``run.json`` says of the ground the run stands on."""
        recipe, sizes = self.recipe, [len(part) for part in self.samples.parts]
        return {
            **self.ground(),
            "data": {
                "name": recipe.data.name,
                "source": self.samples.source,
                "sha256": self.samples.checksums,
                "clients": self.clients,
                "fewest samples": min(sizes),
                "most samples": max(sizes),
                "test samples": len(self.samples.test_targets),
            },
            "model": {
                "name": recipe.model.name,
                "weights": self.weights,
                "parameters": len(self.initial),
                "initial": model_digest(self.initial),
                **self._code(),
            },
        }

    def _code(self) -> dict[str, str | None]:
        """The checksum of the code of a user's own model."""
        found = model_entry(str(self.recipe.model.name))
        return {"sha256": found.sha256} if isinstance(found, OwnModel) else {}


def assemble(recipe: Recipe) -> Assembly:
    """Put a recipe together; names and settings first, for they are quickly checked."""
    if recipe.trainer.name is not None:
        expected = "none: only the trainer knows its data and model"
        raise InvalidSetting("trainer", recipe.trainer.name, expected)
    method = method_of(recipe)
    step = recipe.server.learning_rate or recipe.training.learning_rate
    rule = rule_of(recipe, step)
    agreed = check_settings(Settings, recipe.agreement.settings, "agreement")
    _check_model(recipe)
    weights = _weights(recipe)
    length = recipe.model.length or LENGTH
    tokenise = None if weights is None else partial(_tokens, weights.folder, length)
    samples = holdings(recipe.data.resolved(), recipe.seed, tokenise)
    entry = _fitting_model(recipe.model.name, samples)
    made = dict(recipe.model.settings) | ({"path": str(weights.folder)} if weights else {})
    module = create_model(entry.name, recipe.seed, **made)
    _check_outputs(entry, module, samples)
    plain = flatten(module, running_statistics=recipe.training.running_statistics)
    layers = layer_sizes(module, running_statistics=recipe.training.running_statistics)
    initial = scaffold_initial(plain) if recipe.training.scaffold else plain
    federation = Federation(
        _population(recipe, samples, module, step),
        initial,
        method,
        rule=rule,
        samples=[len(part) for part in samples.parts],
        seed=recipe.seed,
        sampled=recipe.training.sampled,
        layers=layers * (len(initial) // len(plain)),
        **agreed,
    )
    _check_statistics(recipe, federation)
    full = replace(
        recipe,
        data=replace(recipe.data.resolved(), clients=len(samples.parts)),
        training=recipe.training.resolved(),
        model=ModelRecipe(
            entry.name,
            length if weights else None,
            _constructor_settings(entry) | dict(recipe.model.settings),
        ),
        **spelled_out(federation),
    )
    source = None if weights is None else weights.source
    return Assembly(full, initial, federation, samples, module, source, tokenise)


def _check_statistics(recipe: Recipe, federation: Federation) -> None:
    """Running statistics are no weights: rotated among them, a variance may come out below 0."""
    agreed = federation.settings
    if (
        isinstance(agreed, Settings)
        and isinstance(agreed.scheme, Rotated)
        and recipe.training.running_statistics == "averaged"
    ):
        expected = "coordinates, or training.running_statistics other than averaged"
        raise InvalidSetting("method.basis", "rotated", expected)


def _check_model(recipe: Recipe) -> None:
    """What can be said of a model before there is data for it."""
    asked = recipe.model
    if asked.name is not None:
        # A path is text here, whatever a program may give.
        own = {key: value for key, value in asked.settings.items() if key != "path"}
        check_settings(model_entry(asked.name).constructor, own, "model")
    if asked.length is not None and recipe.data.name not in TEXTS:
        expected = f"none: {recipe.data.name} has no texts to cut"
        raise InvalidSetting("model.length", asked.length, expected)


def _weights(recipe: Recipe) -> Weights | None:
    """The encoder that texts are read by: the user's own, or the fetched one."""
    name = recipe.model.name
    pretrained = name is not None and model_entry(name).weights is not None
    if not pretrained and (name is not None or recipe.data.name not in TEXTS):
        return None
    return load_minilm(recipe.model.settings.get("path"))


def _tokens(folder: Path, length: int, texts: Sequence[str]) -> Array:
    from eris.models.text import tokenise

    return tokenise(folder, texts, length).numpy()


def _population(recipe: Recipe, data: Holdings, module: nn.Module, step: float) -> Population:
    inputs, targets = torch.from_numpy(data.inputs), torch.from_numpy(data.targets)
    training = recipe.training
    local = {**training.local(), "loss": data.loss, "seed": recipe.seed}
    if not training.scaffold:
        side_by_side = recipe.engine.threads
        return TorchPopulation(
            module, inputs, targets, data.parts, path=training.path, threads=side_by_side, **local
        )
    if training.path == "fast":
        expected = f"auto or loop: {ScaffoldTrainer.fast_path_obstacle}"
        raise InvalidSetting("training.path", training.path, expected)
    if recipe.server.rule != "fedavg":
        expected = "fedavg under SCAFFOLD: any other would treat control variates as a model"
        raise InvalidSetting("server.rule", recipe.server.rule, expected)
    share = 1.0 if training.sampled is None else min(1.0, training.sampled / len(data.parts))
    return Trainers(
        [
            ScaffoldTrainer(trainer, server_learning_rate=step, participation=share)
            for trainer in torch_clients(module, inputs, targets, data.parts, **local)
        ]
    )


def _fitting_model(name: str | None, data: Holdings) -> ModelEntry:
    """The model, if it reads such samples; without a name the first that does."""
    if name is not None and isinstance(own := model_entry(name), OwnModel):
        return own
    shape = data.inputs.shape[1:]
    fitting = [
        known
        for known in MODELS.values()
        if (known.weights is not None) == (data.task == "texts")
        and (data.task == "texts" or known.input_shape == shape)
        and (known.classes is None) == (data.task == "ratings")
    ]
    if name is None and fitting:
        return fitting[0]
    if name is not None and MODELS[name] in fitting:
        return MODELS[name]
    size = " × ".join(map(str, shape))
    known = ", ".join(model.name for model in fitting) or "none is known"
    expected = f"one for samples of {size}: {known}, or your own as module:function"
    raise InvalidSetting("model", name, expected)


def _check_outputs(entry: ModelEntry, module: nn.Module, data: Holdings) -> None:
    """Refuse a model that does not read the samples, or has no output for a class among them."""
    if data.task == "ratings":
        return
    training, some = module.training, torch.from_numpy(data.inputs[:2])
    module.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            outputs = module(some)
    except Exception as refusal:
        said = next(iter(str(refusal).splitlines()), "")
        shape = " × ".join(map(str, some.shape[1:]))
        expected = f"one that reads {some.dtype} samples of {shape} ({said})"
        raise InvalidSetting("model", entry.name, expected) from refusal
    finally:
        module.train(training)
    classes = 1 + max(int(labels.max()) for labels in (data.targets, data.test_targets))
    found = tuple(getattr(outputs, "shape", ()))
    if len(found) != 2 or found[1] < classes:
        expected = f"(2, {classes}) or wider for two samples: targets go up to {classes - 1}"
        raise InvalidSetting(f"shape of what {entry.name} returns", found, expected)


def _constructor_settings(entry: ModelEntry) -> dict[str, Any]:
    """What a model is made with if nothing is said."""
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(entry.constructor).parameters.items()
        if parameter.default is not parameter.empty and name != "seed"
    }
    return writable({**defaults, **entry.settings})
