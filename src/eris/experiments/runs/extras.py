"""Libraries that come with an extra: what a command needs is looked for before it begins."""

from __future__ import annotations

from importlib.util import find_spec

from eris.core.errors import MissingExtra
from eris.experiments.runs.recipe import Recipe

EXTRAS = {
    "torch": "torch",
    "transformers": "transformers",
    "ray": "ray",
    "sklearn": "sklearn",
    "scipy": "audit",
    "skimage": "audit",
    "dp_accounting": "audit",
    "starlette": "web",
    "uvicorn": "web",
}
AUDIT = ("torch", "scipy", "dp_accounting")


def need(*libraries: str) -> None:
    """Refuse to begin without libraries, and name the line that installs all of them."""
    missing = [library for library in libraries if find_spec(library) is None]
    if missing:
        extras = dict.fromkeys(EXTRAS[library] for library in missing)
        raise MissingExtra(", ".join(missing), ",".join(extras))


def need_for(recipe: Recipe) -> None:
    """Refuse to begin a run without what its recipe needs."""
    libraries = ["torch"] if recipe.trainer.name is None else []
    if recipe.engine.name == "ray":
        libraries.append("ray")
    if libraries and recipe.data.name == "digits" and recipe.data.path is None:
        libraries.append("sklearn")
    if recipe.data.name == "imdb":
        libraries.append("transformers")
    if recipe.method.settings.get("sampling_rate", 1) != 1:
        libraries.append("dp_accounting")
    need(*libraries)
