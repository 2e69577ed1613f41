"""A run whose clients are a user's own trainers: what ``make_trainer(name, **options)`` returns."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eris.core.errors import InvalidSetting
from eris.experiments.federations.processes import node_names
from eris.experiments.runs.prepared import ReadyRun, method_of, rule_of, spelled_out
from eris.experiments.runs.recipe import Recipe, flat
from eris.federation import Federation
from eris.named import code_sha256, named_function
from eris.protocol.settings import Settings, model_digest
from eris.runtimes.grpc.learner import load
from eris.session import Session
from eris.tables import check_settings
from eris.training.population import Trainers, evaluations, mean_metrics

TABLES = ("data.", "model.", "training.")
ITS_OWN = ("data.clients", "training.rounds", "training.sampled", "training.evaluate_every")
"""What a recipe with a trainer still says of data and training."""
MOST = 10_000
"""Trainers in one process."""


@dataclass(frozen=True, eq=False)
class OwnTraining(ReadyRun):
    """A recipe and the trainers that a user's function made for its clients."""

    def evaluate(self, training: Session, *, nodes: bool = False) -> dict[str, float]:
        """The mean of what the clients say of the model, by their samples where they tell them;
        ``nodes`` adds that of every node's own model, where each has one."""
        population, models = self.federation.population, training.models()
        found = mean_metrics(evaluations(population, training.model))
        if nodes and len(models) > 1:
            own = mean_metrics(evaluations(population, models))
            found |= {f"node_{name}": value for name, value in own.items()}
        return found

    def about(self) -> dict[str, Any]:
        """What ``run.json`` says of the ground the run stands on."""
        name = str(self.recipe.trainer.name)
        code = code_sha256(named_function("trainer", name))
        known = {} if code is None else {"code": code}
        about = {"name": name, "source": f"{name}()", "sha256": known, "clients": self.clients}
        model = {
            "name": name,
            "weights": None,
            "parameters": len(self.initial),
            "initial": model_digest(self.initial),
        }
        return {**self.ground(), "data": about, "model": model}


def with_trainer(recipe: Recipe) -> OwnTraining:
    """Make a trainer for every client, named as ``eris local`` names nodes."""
    where, standard = str(recipe.trainer.name), flat(Recipe())
    for key, value in flat(recipe).items():
        if key.startswith(TABLES) and key not in ITS_OWN and value != standard.get(key):
            raise InvalidSetting(key, value, f"nothing beside trainer {where}, which has its own")
    method, agreed = method_of(recipe), recipe.agreement.settings
    names = node_names(recipe.data.resolved().clients or 0)
    if len(names) > MOST:
        raise InvalidSetting("data.clients", len(names), f"at most {MOST} beside a trainer")
    function = named_function("trainer", where)
    options = dict(recipe.trainer.settings)
    trainers = [
        load(where, Path.cwd(), name, member_options(function, number, len(names)) | options)
        for number, name in enumerate(names)
    ]
    declared = [getattr(trainer, "samples", None) for trainer in trainers]
    step = recipe.server.learning_rate or Trainers(trainers).learning_rate
    if step is None:
        expected = f"a number above 0: the trainers of {where} do not say a `learning_rate`"
        raise InvalidSetting("server.learning_rate", None, expected)
    federation = Federation(
        trainers,
        None,
        method,
        rule=rule_of(recipe, step),
        names=names,
        samples=None if None in declared else declared,  # type: ignore[arg-type]
        seed=recipe.seed,
        sampled=recipe.training.sampled,
        **check_settings(Settings, agreed, "agreement"),
    )
    full = replace(recipe, data=replace(recipe.data, clients=len(names)), **spelled_out(federation))
    return OwnTraining(full, federation.initial, federation)


def member_options(function: Callable[..., Any], member: int, members: int) -> dict[str, int]:
    """A member's number, from 0, and how many there are, if a function that makes trainers asks.

    >>> member_options(lambda name, *, member, data="": None, 2, 5)
    {'member': 2}
    """
    asked = inspect.signature(function).parameters
    known = {"member": member, "members": members}
    return {name: value for name, value in known.items() if name in asked}
