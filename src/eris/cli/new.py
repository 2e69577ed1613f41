"""``eris new``: a small project of one's own, that trains at once."""

from __future__ import annotations

import shlex
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from eris.core.errors import InvalidSetting
from eris.data.outputs import check_folder
from eris.experiments.figures import say

ENDING = ".in"
"""Of templates: what is not yet a file of somebody's project is not collected, linted or run."""


def new(
    folder: Annotated[
        Path, typer.Argument(metavar="NAME", help="The project, and the folder to make for it.")
    ],
) -> None:
    """Make a small project of your own: data, model, settings and a test, to be changed.

    It trains as it is, in simulation and on nodes. A folder that has something in it is refused.

    \b
    eris new clinic
    cd clinic
    eris run recipe.toml
    eris local 5 --trainer training:make_trainer
    """
    check_folder("NAME", folder)
    if folder.is_dir() and any(folder.iterdir()):
        raise InvalidSetting("NAME", str(folder), "a new folder, or an empty one")
    name = folder.absolute().name
    if not all(part.isalnum() for part in name.replace("_", "-").split("-")):
        raise InvalidSetting("NAME", name, 'letters, digits, "-" and "_"')
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for template in sorted(files("eris.cli").joinpath("project").iterdir(), key=lambda t: t.name):
        if template.name.endswith(ENDING):
            file = folder / template.name.removesuffix(ENDING)
            text = template.read_text(encoding="utf-8").format(name=name)
            file.write_text(text, encoding="utf-8")
            made.append(file.name)
    say(
        f"Wrote {', '.join(made)} into {folder}. Next:",
        f"  cd {shlex.quote(str(folder))}",
        "  eris run recipe.toml                            simulate it",
        "  eris local 5 --trainer training:make_trainer    five real nodes on this machine",
        "  python -m pytest                                its tests",
    )
