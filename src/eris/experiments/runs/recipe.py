"""What a run is: data, model, training, method and faults, as one typed value.

A recipe is read from TOML or put together from the command's options; both end here. To add an
option, add a field: it becomes a key of its TOML table, an option of ``eris run`` and a line of the
stored recipe.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from eris.core.errors import InvalidSetting
from eris.tables import (
    Table,
    document,
    document_in,
    further,
    located,
    mapping,
    own,
    put,
    read,
    setting,
    settings_of,
    subtables,
    written,
)
from eris.training.options import LocalTraining

ABOVE_0, AT_LEAST_0, AT_LEAST_1 = "a number above 0", "at least 0", "at least 1"
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

    title: ClassVar[str] = "data"
    name: str = setting(
        "Data set of `eris data list`, or your own: file.npz, module:function.", "mnist",
        flag="data",
    )  # fmt: skip
    path: str | None = setting("Your own copy instead of the cache.", None, empty="the cache")
    clients: int | None = setting(
        "How many clients.", None, within=AT_LEAST_1, empty="10, or as many as there are users"
    )
    samples: int | None = setting(
        "Samples a client trains on.", None, within=AT_LEAST_1, empty="all are shared out"
    )
    partition: Literal["iid", "dirichlet", "by-class", "by-user", "quantity", "drawn"] = setting(
        "How samples are split among clients; drawn: each for itself, with repetition.", "iid"
    )
    alpha: float | None = setting(
        "dirichlet: small is skewed; usually 0.5.", None, within=ABOVE_0, empty="not dirichlet"
    )
    classes: int | None = setting(
        "by-class: classes a client; usually 2.", None, within=AT_LEAST_1, empty="not by-class"
    )
    exponent: float | None = setting(
        "quantity: 0 is equal sizes; usually 1.", None, within=AT_LEAST_0, empty="not quantity"
    )
    held_out: float = setting(
        "Share of its samples a client keeps back (the papers: 0.3).", 0.0, within=SHARE
    )
    canaries: float = setting(
        "Share of its samples that are canaries, half of them trained on.", 0.0, within=SHARE
    )
    test_samples: int | None = setting(
        "Test samples in use, always the same ones.", None, within=AT_LEAST_1, empty="all"
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
        usual = {name: USUAL[name] for name, kind in KINDS.items() if kind == self.partition}
        missing = {name: value for name, value in usual.items() if getattr(self, name) is None}
        if self.clients is None and self.partition != "by-user":
            missing["clients"] = 10
        return replace(self, **missing) if missing else self  # type: ignore[arg-type]


@dataclass(frozen=True)
class ModelRecipe(Table):
    """Which model; further keys are settings of its constructor."""

    title: ClassVar[str] = "model"
    name: str | None = setting(
        "Model: lenet5, resnet9, …, or your own: module:function.",
        None,
        flag="model",
        empty="the papers' for the data",
    )
    length: int | None = setting(
        "Tokens a text is cut to.", None, within=AT_LEAST_1, empty="256, of texts"
    )
    settings: Mapping[str, Any] = further()


@dataclass(frozen=True)
class TrainerRecipe(Table):
    """Your own training code in place of data, model and training; further keys are its options."""

    title: ClassVar[str] = "trainer"
    name: str | None = setting(
        "Your own training: module:function, called with a client's name.",
        None,
        flag="trainer",
        empty="data and model",
    )
    settings: Mapping[str, Any] = further()


@dataclass(frozen=True)
class TrainingRecipe(Table):
    """How long, and what a client does in a round."""

    title: ClassVar[str] = "training"
    rounds: int = setting("Rounds of training.", 30, within=AT_LEAST_1)
    sampled: int | None = setting(
        "Clients drawn for each round.", None, within=AT_LEAST_1, empty="all take part"
    )
    learning_rate: float = setting("Step of the clients.", 0.05, within=ABOVE_0)
    optimiser: Literal["sgd", "adam", "adamw"] = setting("What the clients step by.", "sgd")
    momentum: float = setting("Of sgd; the papers' MNIST takes 0.9.", 0.0, within=SHARE)
    keep_momentum: bool = setting("Clients keep momentum and moments from round to round.", True)
    weight_decay: float = setting("As in torch.optim.", 0.0, within=AT_LEAST_0)
    proximal: float = setting("FedProx's μ.", 0.0, within=AT_LEAST_0)
    estimator: Literal["sgd", "svrg", "saga"] = setting(
        "How a batch's gradient estimates that of all data.", "sgd"
    )
    refresh: int = setting("svrg: rounds between snapshots.", 1, within=AT_LEAST_1)
    steps: int | None = setting(
        "Local steps a round.", None, within=AT_LEAST_1, empty="10, or what epochs make"
    )
    epochs: int | None = setting(
        "Local passes over the data instead of steps.", None, within=AT_LEAST_1, empty="steps"
    )
    batch_size: int = setting("Samples a step; 0: all of a client's.", 16, within=AT_LEAST_0)
    # The other choices leave no single model to test ("local") or to continue from ("ignore").
    running_statistics: Literal["refuse", "averaged", "batch"] = setting(
        "Batch norm's running statistics: refused, averaged, or of every batch.", "refuse"
    )
    augment: Literal["none", "crop-flip"] = setting(
        "Pictures shifted by up to 4 pixels and mirrored at random: crop-flip.", "none"
    )
    scaffold: bool = setting("SCAFFOLD: control variates against drift.", False)
    path: Literal["auto", "loop", "fast"] = setting(
        "Many clients in one pass (fast) or one by one (loop).", "auto", flag="training-path"
    )
    evaluate_every: int = setting("Rounds between evaluations.", 10, within=AT_LEAST_1)

    def local(self) -> dict[str, Any]:
        """The options that are those of one client."""
        shared = LocalTraining.__dataclass_fields__
        found = {name: value for name, value in own(self.resolved()).items() if name in shared}
        return {**found, "batch_size": self.batch_size or None}

    def resolved(self) -> TrainingRecipe:
        """With the number of steps."""
        if self.steps is not None:
            return self
        return replace(self, steps=STEPS if self.epochs is None else 1)


@dataclass(frozen=True)
class ServerRecipe(Table):
    """What an aggregator does with a mean; further keys are settings of the rule."""

    title: ClassVar[str] = "server"
    rule: str = setting("Server rule: fedavg, fedavgm, fedadam, …", "fedavg")
    learning_rate: float | None = setting(
        "Step of the server.", None, flag="server-learning-rate", within=ABOVE_0,
        empty="that of the clients",
    )  # fmt: skip
    settings: Mapping[str, Any] = further()


@dataclass(frozen=True)
class MethodRecipe(Table):
    """The method; further keys are its settings (``eris methods NAME`` lists them)."""

    title: ClassVar[str] = "method"
    name: str = setting("Method, as `eris methods` names it.", "eris", flag="method")
    settings: Mapping[str, Any] = further()


@dataclass(frozen=True)
class AgreementRecipe(Table):
    """What members agree on besides, such as min_included: fields of protocol.Settings."""

    title: ClassVar[str] = "agreement"
    settings: Mapping[str, Any] = further()


@dataclass(frozen=True)
class FaultsRecipe(Table):
    """What goes wrong, as rates; zero is never."""

    title: ClassVar[str] = "faults"
    dropout: float = setting("Aggregators away, of a round.", 0.0, within=RATE)
    link: float = setting("Links down, of a round.", 0.0, within=RATE)
    churn: float = setting("Members away, of a round.", 0.0, within=RATE)
    correlation: float = setting(
        "How much likelier a member that was away is away again.", 0.0, within=AT_LEAST_0
    )
    straggle: float = setting("Clients too late, of a round.", 0.0, within=RATE)
    drop: float = setting("Messages lost.", 0.0, within=RATE)
    duplicate: float = setting("Messages that arrive twice.", 0.0, within=RATE)
    delay: float = setting("Messages that are overtaken.", 0.0, within=RATE)
    crash: float = setting("Nodes that crash, of a round.", 0.0, within=RATE)


@dataclass(frozen=True)
class EngineRecipe(Table):
    """What carries the run."""

    title: ClassVar[str] = "engine"
    name: Literal["local", "ray"] = setting("This process, or Ray's.", "local", flag="engine")
    threads: int = setting("Passes of training side by side.", 1, within=AT_LEAST_1)
    record: bool = setting("Keep every message, for an audit: transcript.eris.", False)
    checkpoint_every: int = setting(
        "Rounds between checkpoints.", 10, within=AT_LEAST_1, identity=False
    )


@dataclass(frozen=True)
class Recipe(Table):
    """A run, before it is run.

    >>> recipe = Recipe.from_toml('seed = 1\\n[method]\\nname = "eris"\\nkept_fraction = 0.05')
    >>> recipe.seed, recipe.method.settings
    (1, {'kept_fraction': 0.05})
    """

    name: str | None = setting("Name of the run's directory.", None, empty="the time it started")
    seed: int = setting("Seed of everything random.", 0, within=AT_LEAST_0)
    data: DataRecipe = field(default_factory=DataRecipe)
    model: ModelRecipe = field(default_factory=ModelRecipe)
    trainer: TrainerRecipe = field(default_factory=TrainerRecipe)
    training: TrainingRecipe = field(default_factory=TrainingRecipe)
    server: ServerRecipe = field(default_factory=ServerRecipe)
    method: MethodRecipe = field(default_factory=MethodRecipe)
    agreement: AgreementRecipe = field(default_factory=AgreementRecipe)
    faults: FaultsRecipe = field(default_factory=FaultsRecipe)
    engine: EngineRecipe = field(default_factory=EngineRecipe)

    @classmethod
    def from_toml(cls, text: str, where: object = "recipe") -> Recipe:
        """Read a recipe; an unknown key, a wrong type or a bad value is named."""
        return read(cls, document(text, "recipe", where))

    @classmethod
    def load(cls, path: Path) -> Recipe:
        """Read a recipe's file; what is wrong is named with the file."""
        found = document_in(path, "recipe")
        with located(path):
            return read(cls, found)

    def to_toml(self) -> str:
        """The recipe as TOML: read back, it is the same."""
        return "\n".join(written(self)) + "\n"

    def changed(self, values: Mapping[str, Any]) -> Recipe:
        """With other values, by their keys: "seed", "data.clients", "method.kept_fraction".

        >>> Recipe().changed({"data.clients": 5}).data.clients
        5
        """
        return read(Recipe, put(Recipe, mapping(self), values))


def differences(before: Recipe, after: Recipe) -> list[str]:
    """What differs between two recipes, of what makes a run the run it is.

    >>> differences(Recipe(seed=1), Recipe(seed=2))
    ['seed: 1, now 2']
    """
    one, other = identity(before), identity(after)
    return [
        f"{key}: {_shown(one.get(key))}, now {_shown(other.get(key))}"
        for key in dict.fromkeys([*one, *other])
        if one.get(key) != other.get(key)
    ]


def flat(table: Table, prefix: str = "") -> dict[str, Any]:
    """Every value by its key; what is unset is None."""
    found = {f"{prefix}{key}": value for key, value in own(table).items()}
    for name in subtables(type(table)):
        found |= flat(getattr(table, name), f"{prefix}{name}.")
    return found


def identity(recipe: Recipe) -> dict[str, Any]:
    """Every value by its key, of what makes a run the run it is."""
    passing = {
        f"{table.title}.{item.name}"
        for table in subtables(Recipe).values()
        for item, _ in settings_of(table)
        if not item.metadata["identity"]
    }
    # The name says where a run lies, not what it is.
    return {k: v for k, v in flat(recipe).items() if k not in passing and k != "name"}


def _shown(value: object) -> str:
    return "not set" if value is None else str(value)
