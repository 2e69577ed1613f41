"""A recipe that can be trained: what a runner needs, whoever the clients are."""

from __future__ import annotations

import platform
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, fields, is_dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from eris import __version__
from eris.core.rules import RULES, ServerRule, server_rule
from eris.core.vectors import Vector
from eris.experiments.runs.recipe import AgreementRecipe, MethodRecipe, Recipe, ServerRecipe
from eris.federation import OF_THE_METHOD, Federation
from eris.methods import registry
from eris.methods.method import GossipMethod, Method
from eris.methods.privacy import LocalPrivacy
from eris.runtimes.faults import FaultPlan
from eris.session import Session
from eris.tables import check_settings, mapping

LIBRARIES = ("numpy", "torch", "safetensors", "protobuf", "numba")


@dataclass(frozen=True, eq=False)
class ReadyRun(ABC):
    """A recipe and the federation that runs it."""

    recipe: Recipe
    """With every default spelled out."""
    initial: Vector
    federation: Federation

    @property
    def clients(self) -> int:
        """How many clients there are; they are the first members."""
        return len(self.federation.population)

    @property
    def faults(self) -> FaultPlan:
        """What goes wrong, from its beginning."""
        return FaultPlan(seed=self.recipe.seed, **mapping(self.recipe.faults))

    @contextmanager
    def training(self, *, record: bool = False) -> Iterator[Session]:
        """The training at its start, on one thread: the same bits whatever the machine's cores.

        Its messages are kept if the recipe or ``record`` says so.
        """
        recipe = self.recipe
        with _one_thread():
            training = self.federation.start(
                recipe.training.rounds,
                record=record or recipe.engine.record,
                faults=self.faults,
                engine=recipe.engine.name,
            )
            with closing(training):
                yield training

    @abstractmethod
    def evaluate(self, training: Session, *, nodes: bool = False) -> dict[str, float]:
        """How good the model is now."""

    @abstractmethod
    def about(self) -> dict[str, Any]:
        """What ``run.json`` says of the ground the run stands on."""

    def ground(self) -> dict[str, Any]:
        """Seed, engine, versions and machine."""
        return {
            "seed": self.recipe.seed,
            "engine": self.recipe.engine.name,
            "versions": {"eris": __version__, "python": platform.python_version(), **_versions()},
            "machine": platform.machine(),
        }


def prepare(recipe: Recipe) -> ReadyRun:
    """Put a recipe together, whoever its clients are: a user's trainer, or shares of data."""
    if recipe.trainer.name is not None:
        from eris.experiments.runs.own_training import with_trainer

        return with_trainer(recipe)
    from eris.experiments.runs.assembly import assemble

    return assemble(recipe)


def method_of(recipe: Recipe) -> Method | GossipMethod:
    """The method of a recipe, its settings checked."""
    name, settings = recipe.method.name, recipe.method.settings
    if name in registry.METHODS:
        # A compressor is text in a recipe, which the registry reads.
        text = {key: value for key, value in settings.items() if key == "compressor"}
        settings = {key: value for key, value in settings.items() if key not in text}
        for owner in (registry.METHODS[name], LocalPrivacy):
            settings = check_settings(owner, settings, "method")
        settings |= text
    return registry.create(name, **settings)


def rule_of(recipe: Recipe, step: float) -> ServerRule:
    """The server rule of a recipe, its settings checked."""
    name, settings = recipe.server.rule, recipe.server.settings
    if name in RULES:
        settings = check_settings(RULES[name], settings, "server")
    return server_rule(name, learning_rate=step, **settings)


def spelled_out(federation: Federation) -> dict[str, Any]:
    """What a federation's method, rule and agreement are in a recipe, every default said."""
    rule = federation.rule
    agreed = {}
    if federation.agreement is not None:  # nodes that gossip agree on nothing else
        agreed = simple(federation.agreement.settings, without=OF_THE_METHOD | {"seed"})
    step = rule.learning_rate
    return {
        "server": ServerRecipe(rule.name, step, simple(rule, without={"learning_rate"})),
        "method": MethodRecipe(federation.method.name, method_settings(federation.method)),
        "agreement": AgreementRecipe(agreed),
    }


def method_settings(method: Method | GossipMethod) -> dict[str, Any]:
    """What makes a method again, every default spelled out.

    >>> method_settings(registry.create("eris", epsilon=5.0))["epsilon"]
    5.0
    """
    settings = simple(method)
    if (compressor := getattr(method, "compressor", None)) is not None:
        settings["compressor"] = registry.compressor_text(compressor)
    privacy = getattr(method, "privacy", None)
    return settings if privacy is None else settings | simple(privacy)


def simple(settings: object, without: set[str] | frozenset[str] = frozenset()) -> dict[str, Any]:
    """The fields of a dataclass of settings that TOML can hold."""
    assert is_dataclass(settings)
    found = {item.name: getattr(settings, item.name) for item in fields(settings) if item.init}
    return writable({name: value for name, value in found.items() if name not in without})


def writable(values: dict[str, Any]) -> dict[str, Any]:
    """What TOML can hold."""
    return {k: v for k, v in values.items() if isinstance(v, bool | int | float | str | tuple)}


def _versions() -> dict[str, str]:
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # a trainer need not have torch
            continue
    return found


def _one_thread() -> Any:
    """PyTorch on one thread, if it is in use."""
    if "torch" not in sys.modules:
        return nullcontext()
    from eris.training.threads import single_threaded

    return single_threaded()
