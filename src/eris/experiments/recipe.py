"""What a run is: data, model, training, method and faults, as one typed value.

A recipe is read from TOML or put together from the command's options; both end here. To add an
option, add a field: it becomes a key of its TOML table, an option of ``eris run`` and a line of the
stored recipe.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from eris.core.errors import InvalidSetting
from eris.core.toml import one_of
from eris.experiments.tables import (
    Table,
    further,
    further_field,
    mapping,
    option,
    options,
    read,
    subtables,
    written,
)
from eris.training.options import LocalTraining

ABOVE_0 = "a finite number above 0"
AT_LEAST_0, AT_LEAST_1 = "at least 0", "at least 1"
RATE, SHARE = "a rate from 0 to 1", "a number in [0, 1)"

KINDS = {"alpha": "dirichlet", "classes": "by-class", "exponent": "quantity"}
"""Options that one partition alone takes."""
STEPS = 10
"""Local steps a round, if neither steps nor epochs are said."""
UNBIASED = {"training.steps": 1, "training.batch_size": 0}
"""The papers' unbiased setting: one step on all of a client's samples."""
USUAL = {"alpha": 0.5, "classes": 2, "exponent": 1.0}
"""What that partition takes if it is not said."""


@dataclass(frozen=True)
class DataRecipe(Table):
    """Which data, and who holds what of it."""

    title = "data"
    name: str = option(
        "mnist", "Data set of `eris data list`, or your own: file.npz, module:function.",
        flag="data",
    )  # fmt: skip
    path: str | None = option(None, "Your own copy instead of the cache.", empty="the cache")
    clients: int | None = option(
        None, "How many clients.", within=AT_LEAST_1, empty="10, or as many as there are users"
    )
    samples: int | None = option(
        None, "Samples a client trains on.", within=AT_LEAST_1, empty="all are shared out"
    )
    partition: Literal["iid", "dirichlet", "by-class", "by-user", "quantity", "drawn"] = option(
        "iid", "How samples are split among clients; drawn: each for itself, with repetition."
    )
    alpha: float | None = option(
        None, "dirichlet: small is skewed; usually 0.5.", within=ABOVE_0, empty="not dirichlet"
    )
    classes: int | None = option(
        None, "by-class: classes a client; usually 2.", within=AT_LEAST_1, empty="not by-class"
    )
    exponent: float | None = option(
        None, "quantity: 0 is equal sizes; usually 1.", within=AT_LEAST_0, empty="not quantity"
    )
    held_out: float = option(
        0.0, "Share of its samples a client keeps back (the papers: 0.3).", within=SHARE
    )
    canaries: float = option(
        0.0, "Share of its samples that are canaries, half of them trained on.", within=SHARE
    )
    test_samples: int | None = option(
        None, "Test samples in use, always the same ones.", within=AT_LEAST_1, empty="all"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, kind in KINDS.items():
            if getattr(self, name) is not None and self.partition != kind:
                expected = f"none: only the partition {kind} takes it, this is {self.partition}"
                raise InvalidSetting(f"data.{name}", getattr(self, name), expected)
        if self.partition == "drawn":
            if self.samples is None:
                raise InvalidSetting("data.samples", None, "a number: each client draws so many")
            if self.held_out or self.canaries:
                expected = "0: clients that draw for themselves share samples"
                raise InvalidSetting("data.held_out, data.canaries", (self.held_out, self.canaries),
                                     expected)  # fmt: skip
        if self.samples is not None and self.partition not in ("iid", "dirichlet", "drawn"):
            expected = f"none: the partition {self.partition} decides how many a client has"
            raise InvalidSetting("data.samples", self.samples, expected)

    def resolved(self) -> DataRecipe:
        """With the defaults of its partition."""
        own = {name: USUAL[name] for name, kind in KINDS.items() if kind == self.partition}
        missing = {name: value for name, value in own.items() if getattr(self, name) is None}
        if self.clients is None and self.partition != "by-user":
            missing["clients"] = 10
        return replace(self, **missing) if missing else self  # type: ignore[arg-type]


@dataclass(frozen=True)
class ModelRecipe(Table):
    """Which model; further keys are settings of its constructor."""

    title = "model"
    name: str | None = option(
        None,
        "Model: lenet5, resnet9, …, or your own: module:function.",
        flag="model",
        empty="the papers' for the data",
    )
    length: int | None = option(
        None, "Tokens a text is cut to.", within=AT_LEAST_1, empty="256, of texts"
    )
    settings: Mapping[str, Any] = further("Settings of the model.")


@dataclass(frozen=True)
class TrainingRecipe(Table):
    """How long, and what a client does in a round."""

    title = "training"
    rounds: int = option(30, "Rounds of training.", within=AT_LEAST_1)
    sampled: int | None = option(
        None, "Clients drawn for each round.", within=AT_LEAST_1, empty="all take part"
    )
    learning_rate: float = option(0.05, "Step of the clients.", within=ABOVE_0)
    optimiser: Literal["sgd", "adam", "adamw"] = option("sgd", "What the clients step by.")
    momentum: float = option(0.0, "Of sgd; the papers' MNIST takes 0.9.", within=SHARE)
    keep_momentum: bool = option(True, "Clients keep momentum and moments from round to round.")
    weight_decay: float = option(0.0, "As in torch.optim.", within=AT_LEAST_0)
    proximal: float = option(0.0, "FedProx's μ.", within=AT_LEAST_0)
    estimator: Literal["sgd", "svrg", "saga"] = option(
        "sgd", "How a batch's gradient estimates that of all data."
    )
    refresh: int = option(1, "svrg: rounds between snapshots.", within=AT_LEAST_1)
    steps: int | None = option(
        None, "Local steps a round.", within=AT_LEAST_1, empty="10, or what epochs make"
    )
    epochs: int | None = option(
        None, "Local passes over the data instead of steps.", within=AT_LEAST_1, empty="steps"
    )
    batch_size: int = option(16, "Samples a step; 0: all of a client's.", within=AT_LEAST_0)
    # The other choices leave no single model to test ("local") or to continue from ("ignore").
    running_statistics: Literal["refuse", "averaged", "batch"] = option(
        "refuse", "Batch norm's running statistics: refused, averaged, or of every batch."
    )
    scaffold: bool = option(False, "SCAFFOLD: control variates against drift.")
    path: Literal["auto", "loop", "fast"] = option(
        "auto", "Many clients in one pass (fast) or one by one (loop).", flag="training-path"
    )
    evaluate_every: int = option(10, "Rounds between evaluations.", within=AT_LEAST_1)

    def local(self) -> dict[str, Any]:
        """The options that are those of one client."""
        shared, own = LocalTraining.__dataclass_fields__, self.resolved()
        found = {item.name: getattr(own, item.name) for item in fields(own) if item.name in shared}
        return {**found, "batch_size": self.batch_size or None}

    def resolved(self) -> TrainingRecipe:
        """With the number of steps."""
        if self.steps is not None:
            return self
        return replace(self, steps=STEPS if self.epochs is None else 1)


@dataclass(frozen=True)
class ServerRecipe(Table):
    """What an aggregator does with a mean; further keys are settings of the rule."""

    title = "server"
    rule: str = option("fedavg", "Server rule: fedavg, fedavgm, fedadam, …")
    learning_rate: float | None = option(
        None, "Step of the server.", flag="server-learning-rate", within=ABOVE_0,
        empty="that of the clients",
    )  # fmt: skip
    settings: Mapping[str, Any] = further("Settings of the rule.")


@dataclass(frozen=True)
class MethodRecipe(Table):
    """The method; further keys are its settings (``eris methods NAME`` lists them)."""

    title = "method"
    name: str = option("eris", "Method, as `eris methods` names it.", flag="method")
    settings: Mapping[str, Any] = further("Settings of the method.")


@dataclass(frozen=True)
class AgreementRecipe(Table):
    """What members agree on besides, such as min_included: fields of protocol.Settings."""

    title = "agreement"
    settings: Mapping[str, Any] = further("Settings of the federation.")


@dataclass(frozen=True)
class FaultsRecipe(Table):
    """What goes wrong, as rates; zero is never."""

    title = "faults"
    dropout: float = option(0.0, "Aggregators away, of a round.", within=RATE)
    link: float = option(0.0, "Links down, of a round.", within=RATE)
    churn: float = option(0.0, "Members away, of a round.", within=RATE)
    correlation: float = option(
        0.0, "How much likelier a member that was away is away again.", within=AT_LEAST_0
    )
    straggle: float = option(0.0, "Clients too late, of a round.", within=RATE)
    drop: float = option(0.0, "Messages lost.", within=RATE)
    duplicate: float = option(0.0, "Messages that arrive twice.", within=RATE)
    delay: float = option(0.0, "Messages that are overtaken.", within=RATE)
    crash: float = option(0.0, "Nodes that crash, of a round.", within=RATE)


@dataclass(frozen=True)
class EngineRecipe(Table):
    """What carries the run."""

    title = "engine"
    name: Literal["local", "ray"] = option("local", "This process, or Ray's.", flag="engine")
    threads: int = option(1, "Passes of training side by side.", within=AT_LEAST_1)
    record: bool = option(False, "Keep every message, for an audit: transcript.eris.")
    checkpoint_every: int = option(
        10, "Rounds between checkpoints.", within=AT_LEAST_1, identity=False
    )


@dataclass(frozen=True)
class Recipe(Table):
    """A run, before it is run.

    >>> recipe = Recipe.from_toml('seed = 1\\n[method]\\nname = "eris"\\nkept_fraction = 0.05')
    >>> recipe.seed, recipe.method.settings
    (1, {'kept_fraction': 0.05})
    """

    name: str | None = option(None, "Name of the run's directory.", empty="the time it started")
    seed: int = option(0, "Seed of everything random.", within=AT_LEAST_0)
    data: DataRecipe = field(default_factory=DataRecipe)
    model: ModelRecipe = field(default_factory=ModelRecipe)
    training: TrainingRecipe = field(default_factory=TrainingRecipe)
    server: ServerRecipe = field(default_factory=ServerRecipe)
    method: MethodRecipe = field(default_factory=MethodRecipe)
    agreement: AgreementRecipe = field(default_factory=AgreementRecipe)
    faults: FaultsRecipe = field(default_factory=FaultsRecipe)
    engine: EngineRecipe = field(default_factory=EngineRecipe)

    @classmethod
    def from_toml(cls, text: str, where: object = "recipe") -> Recipe:
        """Read a recipe; an unknown key, a wrong type or a bad value is named."""
        try:
            found = tomllib.loads(text)
        except tomllib.TOMLDecodeError as broken:
            raise InvalidSetting("recipe", str(where), f"TOML: {broken}") from None
        return read(cls, found)

    def to_toml(self) -> str:
        """The recipe as TOML: read back, it is the same."""
        return "\n".join(written(self)) + "\n"

    def changed(self, values: Mapping[str, Any]) -> Recipe:
        """With other values, by their keys: "seed", "data.clients", "method.kept_fraction".

        >>> Recipe().changed({"data.clients": 5}).data.clients
        5
        """
        found = mapping(self)
        for key, value in values.items():
            table, _, name = key.rpartition(".")
            if table and table not in subtables(Recipe):
                raise InvalidSetting("table", table, one_of(subtables(Recipe), table))
            (found[table] if table else found)[name] = value
        return read(Recipe, found)


def differences(before: Recipe, after: Recipe) -> list[str]:
    """What differs between two recipes, of what makes a run the run it is.

    >>> differences(Recipe(seed=1), Recipe(seed=2))
    ['seed: 1, now 2']
    """
    one, other = _identity(before), _identity(after)
    return [
        f"{key}: {_shown(one.get(key))}, now {_shown(other.get(key))}"
        for key in dict.fromkeys([*one, *other])
        if one.get(key) != other.get(key)
    ]


def flat(table: Table, prefix: str = "") -> dict[str, Any]:
    """Every value by its key; what is unset is None."""
    found = {f"{prefix}{item.name}": getattr(table, item.name) for item, _ in options(type(table))}
    if (rest := further_field(type(table))) is not None:
        found |= {f"{prefix}{key}": value for key, value in getattr(table, rest).items()}
    for name in subtables(type(table)):
        found |= flat(getattr(table, name), f"{prefix}{name}.")
    return found


def _identity(recipe: Recipe) -> dict[str, Any]:
    passing = {
        f"{table.title}.{item.name}"
        for table in subtables(Recipe).values()
        for item, _ in options(table)
        if not item.metadata["identity"]
    }
    # The name says where a run lies, not what it is.
    return {k: v for k, v in flat(recipe).items() if k not in passing and k != "name"}


def _shown(value: object) -> str:
    return "not set" if value is None else str(value)
