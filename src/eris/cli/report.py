"""``eris report``: what is stored of runs or a federation, as one page of HTML."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eris.cli import completion
from eris.cli.output import JsonOption, output
from eris.cli.run import RunsOption
from eris.core.errors import InvalidSetting
from eris.data.outputs import check_file
from eris.experiments.figures import say
from eris.experiments.runs.progress import size
from eris.experiments.runs.store import RECORD, find, kept_runs

if TYPE_CHECKING:
    from eris.web.blocks import Document

MARK = "Written by ERIS"
"""Stands in every report, so that nothing else is written over."""


def report(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN…", help="Runs, or one folder of nodes.", autocompletion=completion.runs
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="The file to write; default: beside the run.")
    ] = None,
    runs: RunsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write one page about a run, about several beside each other, or about a federation of nodes.

    The page is a single file that loads nothing from anywhere: settings and provenance, learning
    curves, bytes by link and round, who owned which shard, failures, and what an audit found. Every
    plot in it can be saved as SVG, PNG and CSV.

    \b
    eris report mnist-eris
    eris report plain sharded --out comparison.html
    eris report runs/local                          # the nodes of `eris local`
    """
    from eris.web.runs import default_place, of_runs

    root = kept_runs(runs)
    place = Path(names[0])
    if len(names) == 1 and place.is_dir() and not (place / RECORD).is_file():
        of_nodes(place, out, as_json=as_json)
        return
    found = [find(name, root) for name in names]
    path = out or default_place(found)
    _check_place(path)
    _write(of_runs(found), path, as_json)


def of_nodes(folder: Path, out: Path | None = None, *, as_json: bool = False) -> None:
    """Write the page of the nodes in a folder."""
    from eris.web.federation import StoredFederation

    path = out or folder / "report.html"
    _check_place(path)
    _write(StoredFederation.at(folder).document(), path, as_json)


def _write(document: Document, path: Path, as_json: bool) -> None:
    from eris.web.page import written

    text = written(document).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)
    with output(as_json) as figures:
        say(f"Report: {path} ({document.title}, {size(len(text))}); open it in a browser")
        figures({"report": str(path), "title": document.title, "bytes": len(text)})


def _check_place(path: Path) -> None:
    """Refuse to write over what is no report."""
    check_file("--out", path, (".html", ".htm"))
    if path.is_file() and MARK.encode() not in path.read_bytes():
        expected = "a new file, or an earlier report: another is not written over"
        raise InvalidSetting("--out", str(path), expected)
