"""``eris local``: a whole federation on this machine, for trying it out."""

from __future__ import annotations

import shlex
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from eris.cli import completion
from eris.cli.exits import FAILED, INTERRUPTED
from eris.cli.output import Figures, JsonOption, output
from eris.core.errors import ErisError, InvalidSetting
from eris.experiments.figures import say
from eris.experiments.runs.extras import need
from eris.named import named_function
from eris.tables import parsed

if TYPE_CHECKING:
    from eris.experiments.federations.processes import LocalFederation


def local(
    nodes: Annotated[int, typer.Argument(min=3, metavar="N", help="How many nodes, 3 or more.")],
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of training.")] = 10,
    samples: Annotated[
        int | None, typer.Option(min=1, help="Training images a node, of MNIST; default 500.")
    ] = None,
    method: Annotated[
        str,
        typer.Option(help="Method, as `eris methods` names it.", autocompletion=completion.methods),
    ] = "eris",
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="KEY=VALUE, a setting of the method.")
    ] = None,
    kept: Annotated[
        float | None,
        typer.Option(
            help="Share of coordinates that travel, in (0, 1]; 1: all.",
            show_default="0.1 with eris",
        ),
    ] = None,
    server_learning_rate: Annotated[
        float | None,
        typer.Option(help="Step of the server rule.", show_default="the trainer's own, else 0.05"),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
    folder: Annotated[Path, typer.Option(help="Where the nodes' folders go.")] = Path("runs/local"),
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Remove what an earlier `eris local` made in it first.")
    ] = False,
    epsilon: Annotated[
        float | None,
        typer.Option(help="ε of noise that the nodes share (docs/shared-noise.md); default: none."),
    ] = None,
    protects: Annotated[
        str, typer.Option(help="What noise hides: one sample, or one client's data.")
    ] = "sample",
    clip: Annotated[
        float, typer.Option(help="Longest gradient of a sample, or update, that it hides.")
    ] = 1.0,
    sampling_rate: Annotated[
        float, typer.Option(help="Share of its samples in a node's secret batches; 1: all.")
    ] = 1.0,
    trainer: Annotated[
        str | None, typer.Option(help="module:function that makes your trainer; default: MNIST.")
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="KEY=VALUE that the function is called with.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run N node processes with TLS on this machine, and watch them train one model.

    A method with a server has one more node, which aggregates and has no data. Each node has a
    folder with its settings, certificate, log, journal and model. While they run, kill one and look
    what happens; start it again by hand: eris node start FOLDER/node-2/node.toml. Ctrl-C stops all
    of them gracefully.

    \b
    eris local 5
    eris local 6 --method fedavg-wc --set clusters=16
    eris local 6 --method el --set degree=3
    eris local 6 --method fedavg-ldp --set epsilon=10
    eris local 8 --epsilon 8 --clip 0.5
    eris local 8 --epsilon 8 --clip 0.5 --sampling-rate 0.25
    eris local 3 --trainer my_training:make_trainer --option data=patients.csv
    eris local 5 --fresh --json | jq .nodes
    """
    from eris.experiments.federations.processes import (
        LOCAL,
        METHOD,
        MNIST,
        SERVER,
        LocalFederation,
        check_place,
        federation_values,
        has_server,
        method_values,
        mnist_shares,
        node_names,
        noise_values,
        remove,
        role_values,
    )  # fmt: skip
    from eris.experiments.runs.own_training import member_options

    chosen = method_values(method, set_ or [])
    if METHOD in chosen:
        for name, value in {"--kept": kept, "--epsilon": epsilon}.items():
            if value is not None:
                expected = f"nothing beside --method {method}; see --set"
                raise InvalidSetting(name, value, expected)
    served, kept = has_server(nodes, chosen), 0.1 if kept is None else kept
    if epsilon is None and sampling_rate != 1:
        raise InvalidSetting("--sampling-rate", sampling_rate, "1 without --epsilon")
    if trainer is None:
        need("torch", *(["dp_accounting"] if sampling_rate != 1 else []))
    console, clients = Console(highlight=False, stderr=as_json), node_names(nodes)
    names = [*clients, SERVER] if served else clients
    check_place(folder, LOCAL, fresh=fresh)
    options, count, noised = _options(option or []), samples or 500, dict[str, Any]()
    if epsilon is not None:
        if trainer is not None:
            expected = "nothing beside --trainer; say it in the nodes' node.toml"
            raise InvalidSetting("--epsilon", epsilon, expected)
        noised = noise_values(
            nodes, epsilon, protects=protects, clip=clip, samples=count, kept=kept,
            sampling_rate=sampling_rate,
        )  # fmt: skip
        if protects == "sample":
            options = {"batch_size": count} | options  # one step a round
    if trainer is None:
        own = mnist_shares(clients, count, seed, console.print, **options)
        for name in names if epsilon is not None else ():
            # A trial's ledger goes with the trial.
            own[name] |= {"privacy.data": name, "privacy.ledger": "state/privacy"}
    elif samples is None:
        function = named_function("--trainer", trainer)
        own = {
            name: {"training.options": member_options(function, number, nodes) | options}
            for number, name in enumerate(clients)
        }
        own |= {SERVER: {"training.options": options}} if served else {}
    else:
        raise InvalidSetting("--samples", samples, "nothing beside --trainer; see --option")
    if server_learning_rate is None:
        server_learning_rate = 0.05
        if trainer is not None:
            given = own[clients[0]]["training.options"]
            server_learning_rate = _own_step(trainer, clients[0], given) or server_learning_rate
    values = noised | federation_values(
        nodes, rounds=rounds, kept=kept, learning_rate=server_learning_rate, seed=seed,
        trainer=trainer or MNIST, method=chosen,
    )  # fmt: skip
    for name in names if served else ():
        own[name] = own[name] | role_values(name == SERVER)
    if fresh:
        remove(folder, LOCAL)
    # Ended by SIGTERM as by Ctrl-C: the nodes are not left behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with output(as_json) as figures:
        with LocalFederation(folder, names, values, own) as federation:
            done = _watched(federation, rounds, console)
        good = _report(federation, rounds, console, figures)
    if not (done and good):
        raise typer.Exit(FAILED if done else INTERRUPTED)


def _own_step(trainer: str, name: str, options: dict[str, Any]) -> float | None:
    """The learning rate that a user's trainer says, if it can be made."""
    from eris.runtimes.grpc.learner import load

    try:
        made = load(trainer, Path.cwd(), name, options)
    except ErisError:
        raise
    except Exception:  # of the user's code: it fails in a node, too, whose log says more
        return None
    return getattr(made, "learning_rate", None)


def _options(given: list[str]) -> dict[str, Any]:
    """What the trainer is made with."""
    options = {}
    for one in given:
        key, equals, text = one.partition("=")
        if not equals or not key:
            raise InvalidSetting("--option", one, "KEY=VALUE")
        options[key] = parsed(text)
    return options


def _watched(federation: LocalFederation, rounds: int, console: Console) -> bool:
    """Start all nodes and watch them to the end; whether nobody interrupted."""
    from eris.experiments.federations.live import LiveWatch

    with LiveWatch(federation, rounds, console) as watch:
        try:
            watch.say(f"{len(federation.names)} nodes start, each in {federation.folder}/NODE")
            for name in federation.names:
                federation.start(name)
            watch.follow(watch.over)
        except KeyboardInterrupt:
            watch.say("stopping all nodes …")
            return False
    return True


def _report(federation: LocalFederation, rounds: int, console: Console, figures: Figures) -> bool:
    """How it ended, and where everything is; whether all nodes trained well, to one model."""
    from eris.experiments.federations.outcome import FederationOutcome

    outcome = FederationOutcome.of(federation, rounds)
    figures({"folder": str(federation.folder), **outcome.document()})
    console.print(outcome.nodes())
    if outcome.finished and outcome.gossips:
        console.print("Every node has a model of its own.")
    elif outcome.finished:
        console.print(f"All nodes have the same model, bit for bit: {outcome.verdict}")
    for problem in outcome.problems:
        console.print(f"[bold red]problem:[/] {escape(problem)}", soft_wrap=True)
    console.print(
        f"\nEvery node has a folder {federation.folder}/NODE with\n"
        f"  node.toml                its settings, every key explained\n"
        f"  log.txt                  its log\n"
        f"  state/journal.jsonl      what it did, a line an event\n"
        f"  state/model.safetensors  the model it ended with",
        soft_wrap=True,
    )
    if not outcome.finished:
        console.print("Not all nodes are through. Start them again and they go on where they were:")
        for name in federation.names:
            path = shlex.quote(str(federation.folder / name / "node.toml"))
            say(f"  eris node start {path} &", console=console)
    return outcome.finished and (outcome.gossips or outcome.equal) and not outcome.problems
