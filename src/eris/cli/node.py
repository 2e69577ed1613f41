"""``eris node``: set a node up, run it, look at it."""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from eris.cli import completion
from eris.cli.exits import FAILED
from eris.cli.output import JsonOption, output
from eris.core.errors import ErisError, InvalidSetting
from eris.experiments.figures import say

MANY = 1000
"""Clients enough for any method."""

app = typer.Typer(
    help="""One organisation's node: set it up, run it, look at it (docs/deploy.md).

\b
eris node init anna --host-directory --start-with 3
eris node start anna/node.toml
eris node status anna/node.toml
""",
    no_args_is_help=True,
)
Settings = Annotated[Path, typer.Argument(help="The node's settings.", metavar="NODE.TOML")]


@app.command()
def init(
    name: Annotated[str, typer.Argument(help="The name in the node's certificate.")],
    folder: Annotated[
        Path | None, typer.Option(help="Where node.toml goes; default: a folder of that name.")
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="host:port that the other members dial.")
    ] = None,
    listen: Annotated[str, typer.Option(help="host:port to listen at.")] = "0.0.0.0:7400",
    directory: Annotated[
        str | None, typer.Option(help="host:port of the member that hosts the directory.")
    ] = None,
    directory_name: Annotated[str | None, typer.Option(help="That member's name.")] = None,
    host_directory: Annotated[
        bool, typer.Option("--host-directory", help="This node hosts the directory.")
    ] = False,
    roster: Annotated[
        str | None, typer.Option(help="A file with all members, instead of a directory.")
    ] = None,
    start_with: Annotated[
        int | None, typer.Option(min=1, help="Members that begin together.")
    ] = None,
    federation: Annotated[str, typer.Option(help="The federation's name.")] = "our-federation",
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of training.")] = 100,
    method: Annotated[
        str,
        typer.Option(help="Method, as `eris methods` names it.", autocompletion=completion.methods),
    ] = "eris",
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="KEY=VALUE, a setting of the method.")
    ] = None,
    server: Annotated[
        bool, typer.Option("--server", help="This node aggregates, for a method with a server.")
    ] = False,
    trainer: Annotated[
        str, typer.Option(help="module:function that makes the trainer.")
    ] = "my_training:make_trainer",
    charter: Annotated[
        Path | None, typer.Option(help="What all members agree on, as `eris plan --write` has it.")
    ] = None,
) -> None:
    """Write a commented node.toml and the node's state folder.

    Certificates come from `eris ca issue NAME`: put NAME.pem, NAME.key and ca.pem beside
    node.toml. Then write your training code and run `eris node start node.toml`.

    \b
    eris node init anna --host-directory --start-with 3
    eris node init anna --directory hub:7400 --directory-name hub --method fedavg
    eris node init hub --server --host-directory --start-with 4 --method fedavg
    eris node init anna --host-directory --charter charter.toml
    """
    from eris.experiments.federations.charters import charter_values
    from eris.experiments.federations.processes import (
        METHOD,
        has_server,
        method_values,
        role_values,
    )
    from eris.runtimes.grpc.authority import LEDGER, write_ledger
    from eris.runtimes.grpc.settings import NodeSettings, usual_secure_sums

    place = folder or Path(name)
    path = place / "node.toml"
    if path.exists():
        raise InvalidSetting("node.toml", str(path), "a folder without one: it is not overwritten")
    given = {
        "node.listen": listen,
        "federation.name": federation,
        "federation.rounds": rounds,
        "training.trainer": trainer,
        "node.address": address,
        "membership.directory": directory,
        "membership.directory_name": directory_name,
        "membership.host_directory": host_directory or None,
        "membership.roster": roster,
        "membership.start_with": start_with,
    }
    chosen = method_values(method, set_ or [])
    if METHOD not in chosen:
        given["federation.secure_sums"] = usual_secure_sums(0 if roster else start_with or 0)
    served = has_server(MANY, chosen)
    if server and not served:
        expected = f"nothing with {method}: every node may own shards"
        raise InvalidSetting("--server", True, expected)
    given |= chosen | (role_values(server) if served and roster is None else {})
    if charter is not None:
        if METHOD in chosen or start_with is not None:
            found = f"--method {method}" if METHOD in chosen else f"--start-with {start_with}"
            raise InvalidSetting(
                "--charter", str(charter), f"nothing beside it that it says: {found}"
            )
        given |= charter_values(charter, name) | chosen
    values = {key: value for key, value in given.items() if value is not None}
    text = NodeSettings.template(name, values)
    place.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    state = place / "state"
    state.mkdir(exist_ok=True)
    if not (state / LEDGER).exists():
        write_ledger(state, 0)
    steps = [
        f"look through {path}: every key is explained",
        f"put your training code beside it ({trainer})",
        f"eris node start {shlex.quote(str(path))}",
    ]
    if not (place / f"{name}.pem").exists():
        out = shlex.quote(str(place))
        issue = f"eris ca issue {name} --ca CA-FOLDER --out {out}   (where the authority is)"
        steps.insert(0, issue)
    numbered = (f"  {number}. {step}" for number, step in enumerate(steps, start=1))
    say(f"Wrote {path} and {state}/. Next:", *numbered)


@app.command()
def start(settings: Settings) -> None:
    """Take part in the federation until training is over.

    Stops gracefully on SIGTERM and Ctrl-C: it saves, tells the directory, and ends. Started again,
    it goes on where it was; without its disk, from its peers. Any key of node.toml can be
    overridden by the environment: ERIS_NODE_LISTEN, ERIS_OBSERVE_LOG_LEVEL, …

    \b
    eris node start anna/node.toml
    ERIS_OBSERVE_LOG_LEVEL=debug eris node start anna/node.toml
    """
    from eris.data.cache import cache_root
    from eris.runtimes.grpc.logs import configure
    from eris.runtimes.grpc.serving import serve
    from eris.runtimes.grpc.settings import NodeSettings

    loaded = NodeSettings.load(settings)
    configure(loaded.observe.log_level, loaded.observe.log_format)
    serve(loaded, cache_root() / "logarithms")


@app.command()
def status(
    settings: Settings,
    as_json: JsonOption = False,
) -> None:
    """Show what a node does, and the federation as its directory knows it.

    The node is asked at observe.http of its settings; the directory over the network with this
    node's certificate, so this works while the node is down.

    \b
    eris node status anna/node.toml
    eris node status anna/node.toml --json
    """
    from eris.runtimes.grpc.observe import node_status
    from eris.runtimes.grpc.parts import describe
    from eris.runtimes.grpc.settings import NodeSettings

    loaded = NodeSettings.load(settings)
    own: dict[str, Any] | None = None
    problems = []
    if loaded.observe.http:
        try:
            own = node_status(loaded.observe.http)
        except ErisError as failed:
            problems.append(str(failed))
    else:
        problems.append("the node itself is not asked: observe.http is not set")
    federation = None
    if loaded.roster is None:
        try:
            federation = asyncio.run(describe(loaded))
        except ErisError as failed:
            problems.append(str(failed))
    with output(as_json) as figures:
        _show(own, federation, problems)
        figures({"node": own, "federation": federation, "problems": problems})
    if own is None and federation is None:
        raise typer.Exit(FAILED)


def _show(
    own: dict[str, Any] | None, federation: dict[str, Any] | None, problems: list[str]
) -> None:
    from eris.runtimes.grpc.omissions import NAMED_AT

    console = Console(highlight=False)
    if own is not None:
        state = "ready" if own["ready"] else "not ready"
        reason = f" ({escape(own['reason'])})" if own["reason"] else ""
        taken = own.get("training_for_seconds", 0.0)
        console.print(
            f"[bold]{own['name']}[/bold]: {own['phase']}{f' for {taken:.0f} s' if taken else ''}, "
            f"round {own['round']} of {own.get('rounds', '?')}, epoch {own['epoch']}, "
            f"{state}{reason}; connected to {', '.join(own.get('connected', [])) or 'nobody'}",
            soft_wrap=True,
        )
        if privacy := own.get("privacy"):
            told = "; ".join(
                privacy[part] for part in ("abstains", "behind", "said") if privacy[part]
            )
            console.print(f"Privacy of {privacy['data']}: {escape(told)}", soft_wrap=True)
        for one in own.get("left_out", []):
            if one["rounds"] >= NAMED_AT:
                owner, client = escape(one["owner"]), escape(one["client"])
                console.print(
                    f"[yellow]note:[/yellow] {owner} alone left {client} out of its sums in "
                    f"{one['rounds']} rounds in which most other owners included it",
                    soft_wrap=True,
                )
    if federation is not None:
        console.print(
            f"Federation: round {federation['round']}, epoch {federation['epoch']} "
            f"from round {federation['from_round']}"
        )
        words = (Column(heading, overflow="fold") for heading in ("member", "address"))
        seats = [shard["helpers"] for shard in federation["shards"]]
        headings = ("helps", "keys", "party") if any(seats) else ()
        secure = [Column(heading, overflow="fold") for heading in headings]
        table = Table(*words, "is", "round", "lease", "owns", *secure)
        names = [member["name"] for member in federation["members"]]
        for number, member in enumerate(federation["members"]):
            shards = [i for i, s in enumerate(federation["shards"]) if s["owner"] == number]
            table.add_row(
                member["name"],
                member["address"],
                member["presence"],
                str(member["round"]),
                f"{member['lease_left']:.0f} s",
                ", ".join(map(str, shards)),
                *_secured(number, member, seats, federation["round"])[: len(secure)],
            )
        console.print(table)
        waiting = [i for i, s in enumerate(federation["shards"]) if s["owner"] < 0]
        if waiting:
            console.print(f"Shards that wait for their owner: {', '.join(map(str, waiting))}")
        vacant = [i for i, helpers in enumerate(seats) if -1 in helpers]
        if vacant:
            console.print(f"Shards with vacant seats: {', '.join(map(str, vacant))}")
        heirs = ", ".join(
            f"{i}: {names[s['heir']] if s['heir'] >= 0 else 'nobody'}"
            for i, s in enumerate(federation["shards"])
        )
        console.print(f"Who would take a shard over: {heirs}", soft_wrap=True)
    for problem in problems:
        console.print(f"[yellow]note:[/yellow] {problem}", soft_wrap=True)


def _secured(
    number: int, member: dict[str, Any], seats: list[list[int]], round: int
) -> tuple[str, str, str]:
    """A member's seats, whether its newest keys are in force, and whose it is."""
    helps = ", ".join(str(shard) for shard, helpers in enumerate(seats) if number in helpers)
    begin = member["keys_from"]
    keys = "in no view"
    if begin is not None:
        keys = "in force" if begin <= max(round, 1) else f"from round {begin}"
    return helps, keys, escape(member["party"])
