"""``eris plan``: what a federation should agree on, for its links, its data and its targets."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from eris.cli.output import JsonOption, output
from eris.core.errors import ErisError, InvalidSetting
from eris.data.outputs import check_file, check_picture
from eris.experiments.figures import say

if TYPE_CHECKING:
    from eris.theory.distribution_time import Links


def plan(
    clients: Annotated[
        int | None, typer.Option(help="Members that train; a file of rates says it, too.")
    ] = None,
    parameters: Annotated[
        str | None, typer.Option(help="Size of the model: 61706, 1.2M, 1e9.")
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(help="A model in safetensors instead; its layers are judged, too."),
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Mbit/s of every link, both ways.")] = None,
    up: Annotated[float | None, typer.Option(help="Mbit/s up, of every link.")] = None,
    down: Annotated[float | None, typer.Option(help="Mbit/s down, of every link.")] = None,
    rates: Annotated[
        Path | None,
        typer.Option(help="A file with a row a member: name, and rate or up and down. TOML, CSV."),
    ] = None,
    server_rate: Annotated[
        float | None, typer.Option(help="Mbit/s of a server, for the methods that have one.")
    ] = None,
    samples: Annotated[int | None, typer.Option(help="Training samples a client.")] = None,
    rounds: Annotated[int, typer.Option(help="Rounds of training.")] = 100,
    colluders: Annotated[
        int, typer.Option(help="Members, an owner among them, that may pool what they see.")
    ] = 1,
    most_seen: Annotated[
        float | None, typer.Option(help="Target: share of an update that they may read a round.")
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Target: ε of everything that is published.")
    ] = None,
    delta: Annotated[float, typer.Option(help="δ beside it.")] = 1e-5,
    protects: Annotated[
        Literal["sample", "client"],
        typer.Option(help="What noise hides: one sample, or a client's whole data."),
    ] = "sample",
    clip: Annotated[float, typer.Option(help="Longest gradient that noise hides.")] = 1.0,
    seconds: Annotated[float | None, typer.Option(help="Target: seconds a round.")] = None,
    training: Annotated[float, typer.Option(help="Seconds that a client trains in a round.")] = 0.0,
    kept: Annotated[
        float | None, typer.Option(help="Share of coordinates that travel; chosen if left out.")
    ] = None,
    aggregators: Annotated[
        int | None, typer.Option(help="Members that own shards; chosen if left out.")
    ] = None,
    secure: Annotated[
        str, typer.Option(help="Secure sums: auto, none, or such as '2 of 3'.")
    ] = "auto",
    ring_bytes: Annotated[int, typer.Option(help="Bytes of a masked value: 4, 5, 6 or 8.")] = 8,
    for_: Annotated[
        Literal["nodes", "run"],
        typer.Option(
            "--for", help="nodes: equal shards; run: a simulation, which can weight them."
        ),
    ] = "nodes",
    members_per_core: Annotated[
        float, typer.Option(help="Nodes that share a core, as in a test on one machine.")
    ] = 1.0,
    what_if: Annotated[
        str | None,
        typer.Option(
            metavar="QUANTITY=VALUES",
            help="Sweep aggregators, kept, epsilon, rate or clients: kept=0.1,1, clients=5:50:5.",
        ),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(help="Draw the sweep into this file: .png, .svg, …")
    ] = None,
    write: Annotated[
        Path | None, typer.Option(help="Write the settings into this .toml: a charter or a recipe.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Recommend settings for a federation, and say what they cost and what they do not protect.

    Takes the model's size, the links and whom the federation must withstand; chooses owners,
    shards, the kept share, secure sums and noise; prints bytes, the predicted time of a round
    beside other methods', bounds, and what our own attacks got at that exposure. Targets that
    cannot be met are refused with the constraint that binds.

    \b
    eris plan --clients 8 --parameters 10M --rate 100
    eris plan --rates links.csv --model m.safetensors --write charter.toml
    eris node init anna --charter charter.toml --host-directory
    eris plan --clients 50 --parameters 61706 --rate 50 --samples 64 --epsilon 2
    eris plan --clients 20 --parameters 1M --rate 9 --secure none --most-seen 0.02
    eris plan --clients 20 --parameters 1M --rate 20 --what-if kept=0.01,0.1,1 \\
      --picture kept.svg
    eris plan --rates links.toml --parameters 1e6 --for run --write recipe.toml
    eris run recipe.toml
    """
    from eris.cli import planned as shown
    from eris.planning.inputs import parse_size, read_model
    from eris.planning.plan import MBIT, planned
    from eris.planning.question import Question
    from eris.planning.sweep import parse_sweep, swept
    from eris.planning.writing import text

    _check_outputs(write, picture, what_if)
    members, links, names = _members(clients, rate, up, down, rates)
    if server_rate is not None:
        _check_rate("--server-rate", server_rate)
        links = replace(links, server_up=server_rate * MBIT, server_down=server_rate * MBIT)
    if (parameters is None) == (model is None):
        found = "both given" if parameters is not None else "both missing"
        raise ErisError(f"--parameters and --model are {found}; expected one of the two")
    shape = None if model is None else read_model(model)
    question = Question(
        clients=members,
        parameters=parse_size(parameters or "") if shape is None else shape.parameters,
        layers=() if shape is None else shape.layers,
        links=links,
        names=names,
        rounds=rounds,
        samples=samples,
        colluders=colluders,
        most_seen=most_seen,
        epsilon=epsilon,
        delta=delta,
        protects=protects,
        clip=clip,
        seconds=seconds,
        training=training,
        kept=kept,
        aggregators=aggregators,
        secure=secure,
        ring_bytes=ring_bytes,
        shards="equal" if for_ == "nodes" else "weighted",
        members_per_core=members_per_core,
    )
    with output(as_json) as figures:
        if what_if is not None:
            quantity, values = parse_sweep(what_if)
            points = swept(question, quantity, values)
            shown.show_sweep(quantity, points)
            if picture is not None:
                shown.draw(quantity, points, picture)
                say(f"Picture: {picture}")
            figures(shown.sweep_json(quantity, points))
            return
        made = planned(question)
        shown.show(made)
        if write is not None:
            write.parent.mkdir(parents=True, exist_ok=True)
            write.write_text(text(made), encoding="utf-8")
            init = for_ == "nodes"
            then = f"eris node init NAME --charter {write}" if init else f"eris run {write}"
            say("", f"Wrote {write}; next: {then}")
        figures(shown.as_json(made))


def _members(
    clients: int | None,
    rate: float | None,
    up: float | None,
    down: float | None,
    rates: Path | None,
) -> tuple[int, Links, tuple[str, ...]]:
    """How many members there are, their links and their names, from options or a file."""
    from eris.planning.inputs import read_links
    from eris.planning.plan import MBIT
    from eris.theory.distribution_time import Links

    options = {"--rate": rate, "--up": up, "--down": down}
    given = {name: value for name, value in options.items() if value is not None}
    if rates is not None:
        for name, value in given.items():
            raise InvalidSetting(name, value, f"nothing beside --rates {rates}")
        listed = read_links(rates)
        if clients not in (None, len(listed.up)):
            raise InvalidSetting("--clients", clients, f"{len(listed.up)}, the members in {rates}")
        return len(listed.up), listed.links, listed.names
    if clients is None:
        raise ErisError("--clients is missing: how many members train, or a file of --rates")
    for name, value in given.items():
        _check_rate(name, value)
    if set(given) not in ({"--rate"}, {"--up", "--down"}):
        expected = "--rate, or --up and --down, or a file of --rates"
        found = f"given by {' and '.join(given)}" if given else "missing"
        raise ErisError(f"the rate of links is {found}; expected {expected}")
    sent, *_, fetched = *given.values(), *given.values()
    return clients, Links(sent * MBIT, fetched * MBIT), ()


def _check_rate(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise InvalidSetting(name, value, "Mbit/s above 0")


def _check_outputs(write: Path | None, picture: Path | None, what_if: str | None) -> None:
    """Refuse places that cannot be written to, and files that are there."""
    if picture is not None:
        if what_if is None:
            raise InvalidSetting("--picture", str(picture), "--what-if beside it: a sweep is drawn")
        check_picture("--picture", picture)
    if write is not None:
        if what_if is not None:
            expected = "nothing beside --what-if: one plan at a time"
            raise InvalidSetting("--write", str(write), expected)
        check_file("--write", write, (".toml",))
        if write.exists():
            expected = "a new file: one that is there is not written over"
            raise InvalidSetting("--write", str(write), expected)
