"""Networks that an attacker trains beforehand on data of its own, and the files they are kept in.

A network follows from its recipe, whose hash is in the file's name and which the file holds in
full. So a file is never taken for what another recipe would have made of the same data.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from eris.core.errors import DataUnavailable
from eris.files import SHARED, replace

Tensors = Mapping[str, Tensor]
"""A network's weights by name, as ``nn.Module.state_dict`` has them."""

FOLDER = "trained"
"""Of the cache."""


@dataclass(frozen=True)
class PriorRecipe:
    """All that a trained network follows from.

    ``samples`` names the part of the data that is the attacker's: ``test``, which no client trains
    on. ``architecture`` and what else a kind needs are numbers by name. ``version`` changes with
    the code that trains.

    >>> recipe = PriorRecipe("rog", "mnist", "test", {"channels": 32}, 4, 32, 1e-3)
    >>> recipe.file, recipe.command
    ('rog-mnist-816212432472.safetensors', 'eris train-prior rog mnist')
    """

    kind: str
    data: str
    samples: str
    architecture: Mapping[str, int | float]
    epochs: int
    batch: int
    learning_rate: float
    seed: int = 0
    version: int = 1

    def canonical(self) -> str:
        """The recipe as JSON, the same text for the same recipe."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    def digest(self) -> str:
        """SHA-256 of that text."""
        return hashlib.sha256(self.canonical().encode()).hexdigest()

    @property
    def file(self) -> str:
        """What its network is kept as."""
        return f"{self.kind}-{self.data}-{self.digest()[:12]}.safetensors"

    @property
    def command(self) -> str:
        """What trains it."""
        return f"eris train-prior {self.kind} {self.data}"

    def path(self, cache: Path) -> Path:
        """Where it lies in a cache."""
        return cache / FOLDER / self.file


@dataclass(frozen=True, eq=False)
class TrainedPrior:
    """A network's weights, and what was measured when it was trained (figures by name)."""

    tensors: Tensors
    figures: Mapping[str, float]
    source: str = ""
    """Of the data, with its checksum."""


def store(recipe: PriorRecipe, trained: TrainedPrior, cache: Path) -> Path:
    """Write a network; its file is there as a whole or not at all."""
    path = recipe.path(cache)
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.detach().contiguous() for name, tensor in trained.tensors.items()}
    metadata = {
        "recipe": recipe.canonical(),
        "figures": json.dumps(dict(trained.figures)),
        "source": trained.source,
        "weights": _weights_digest(tensors),
    }
    replace(path, [save(tensors, metadata)], SHARED)
    return path


def load(recipe: PriorRecipe, cache: Path) -> TrainedPrior:
    """The network of a recipe; if it is not there, or not as it was written, what trains it."""
    path, again = recipe.path(cache), f"run `{recipe.command} --force`"
    if not path.is_file():
        raise DataUnavailable(
            f"no network for {recipe.kind} is trained on {recipe.data} ({path} is not there); "
            f"run `{recipe.command}`"
        )
    try:
        with safe_open(path, "pt") as file:
            said = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        found = said["recipe"], said["weights"]
        figures, source = json.loads(said["figures"]), said["source"]
    except (SafetensorError, KeyError, ValueError) as broken:
        raise DataUnavailable(f"{path} is damaged ({broken!r}); {again}") from broken
    if found[0] != recipe.canonical():
        raise DataUnavailable(
            f"{path} was trained by another recipe: {found[0]}; expected {recipe.canonical()}; "
            f"{again}"
        )
    if found[1] != _weights_digest(tensors):
        raise DataUnavailable(f"{path} is damaged: its weights are not those written; {again}")
    return TrainedPrior(tensors, figures, source)


def _weights_digest(tensors: Tensors) -> str:
    whole = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        whole.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        whole.update(tensor.numpy().tobytes())
    return whole.hexdigest()


def split(images: Tensor) -> tuple[Tensor, Tensor]:
    """The images that a network trains on, and the last tenth of them, by which it is judged.

    >>> [len(part) for part in split(Tensor(10_000, 1, 1, 1))]
    [9000, 1000]
    """
    kept_back = max(1, len(images) // 10)
    return images[:-kept_back], images[-kept_back:]
