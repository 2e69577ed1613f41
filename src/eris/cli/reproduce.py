"""``eris reproduce``: the papers' experiments, ours beside theirs."""

from __future__ import annotations

import importlib
import io
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from eris.cli.audit import Tell, telling
from eris.cli.output import Figures, JsonOption, output
from eris.cli.run import RunsOption
from eris.core.errors import InvalidSetting, one_of
from eris.data.outputs import check_folder, check_picture
from eris.experiments.figures import parts, say, widened
from eris.experiments.runs.extras import AUDIT, need
from eris.experiments.runs.store import runs_root

if TYPE_CHECKING:
    from rich.table import Table

    from eris.experiments.audits.tables import AuditTable
    from eris.experiments.runs.reproduce import Experiment
    from eris.experiments.runs.store import Run

WIDTH = 150
"""Columns that the table of an audit takes."""

EAVESDROPPER, COMPLETION = "eavesdropper", "audit-completion"
HURRIED = {
    EAVESDROPPER: "eris.experiments.audits.eavesdropping",
    "enccluster-costs": "eris.experiments.runs.encryption_costs",
}
"""Those that can be asked for less."""
CHOOSING, NOISE = "audit-choosing", "shared-noise"
CLUSTERS = "enccluster-attacks"
PROGRAMS = {
    "audit-shatter": "eris.experiments.audits.shatter_privacy",
    "audit-spv": "eris.experiments.audits.spv",
    COMPLETION: "eris.experiments.audits.completion_tables",
}
"""Experiments with measures of their own: each prints its table and a line of JSON."""
ATTACKED = ("audit-defences", "audit-visible")
"""Those with an attack of one's choice."""
KEPT = {
    "audit-defences": "eris.experiments.audits.defences",
    "audit-visible": "eris.experiments.audits.visible",
    CHOOSING: "eris.experiments.audits.beyond_masks",
    CLUSTERS: "eris.experiments.audits.enccluster_attacks",
}
"""The same, of which every line is kept."""
NARROWED = {
    "--only": (COMPLETION, CHOOSING, NOISE, CLUSTERS),
    "--instances": (COMPLETION, CHOOSING),
}
"""Which of them can be asked for a part, or for more of it."""
QUICK = (*HURRIED, CLUSTERS)
"""Those that can be had on few samples."""
BOUNDS = "one-run-bounds"
SEEDED = {
    NOISE: "eris.experiments.runs.shared_noise",
    BOUNDS: "eris.experiments.audits.one_run_bounds",
}
"""Those whose tables hold all seeds; every line is kept."""


def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            help="mnist, cifar10, sparse, dropout, links; audit-mnist, audit-mnist-64, "
            "audit-mnist-4, audit-mnist-dirichlet, audit-mnist-biased, audit-cifar10, audit-imdb, "
            "audit-aggregators, audit-compression, audit-collusion, audit-layouts, audit-shatter, "
            "audit-spv, audit-completion, audit-defences, audit-visible, audit-secure, "
            "audit-choosing, eavesdropper, shared-noise, one-run-bounds; enccluster-attacks, "
            "enccluster-cifar10, enccluster-mnist, enccluster-table3, enccluster-table3-cifar100, "
            "enccluster-table5 or enccluster-costs."
        ),
    ],
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds.")] = 3,
    first_seed: Annotated[int, typer.Option(min=0, help="The first of them.")] = 0,
    picture: Annotated[
        Path | None, typer.Option(help="Where to draw a curve (default: beside the runs).")
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="eavesdropper, enccluster-…: on few samples, in minutes."),
    ] = False,
    attack: Annotated[
        str | None, typer.Option(help="audit-defences, audit-visible: cosine, idlg, rog or ggl.")
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            help="audit-completion: grid, layers, precision, training or means alone; "
            "audit-choosing: choosing, dropout or false-model; "
            "enccluster-attacks: digits or resnet20; "
            "shared-noise: softmax-16, softmax-64-dsc, lenet5-64 and so on."
        ),
    ] = None,
    instances: Annotated[
        int | None, typer.Option(min=1, help="audit-completion, audit-choosing: how many a row.")
    ] = None,
    path: Annotated[
        Path | None,
        typer.Option(help="enccluster-table3-cifar100: the folder of your own CIFAR-100."),
    ] = None,
    runs: RunsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run an experiment of the papers and print its figures beside the paper's.

    Every row is kept, as a run of its own or, of an audit, as its figures (runs/audits); what is
    finished is not run again, and after Ctrl-C or a kill the same command goes on.

    \b
    eris data fetch mnist
    eris reproduce mnist --seeds 3
    eris reproduce audit-mnist --seeds 1
    eris reproduce eavesdropper --seeds 1 --quick
    eris reproduce sparse --seeds 3 --json
    """
    images = ("torch", "skimage") if name == EAVESDROPPER else ("torch",)
    needed = (*AUDIT, "sklearn") if name in (BOUNDS, CLUSTERS) else AUDIT
    audited = name.startswith("audit-") or name in (BOUNDS, CLUSTERS)
    need(*(needed if audited else images))
    from eris.experiments.audits.secure import SECURE
    from eris.experiments.audits.tables import AUDITS
    from eris.experiments.runs import reproduce as experiments
    from eris.experiments.runs.enccluster import ENCCLUSTER, adapted
    from eris.experiments.runs.enccluster import table as enccluster_table

    audits = {**AUDITS, SECURE.name: SECURE}
    trained = {**experiments.EXPERIMENTS, **ENCCLUSTER}
    console, root = Console(highlight=False), runs_root(runs)
    check_folder("--runs", root)
    if picture is not None:
        check_picture("--picture", picture)
        chosen = audits.get(name) or trained.get(name)
        if chosen is not None and chosen.curve is None:
            raise InvalidSetting("--picture", str(picture), f"none: {name} has no curve")
    if quick and name not in (*QUICK, *ENCCLUSTER):
        few = ", ".join((*QUICK, *ENCCLUSTER))
        raise InvalidSetting("--quick", name, f"none: only {few} have fewer samples")
    if path is not None and name not in ENCCLUSTER:
        raise InvalidSetting("--path", str(path), f"none: {name} takes what was fetched")
    if attack is not None and name not in ATTACKED:
        expected = f"none: it is chosen in {' and '.join(ATTACKED)} only"
        raise InvalidSetting("--attack", attack, expected)
    given = {"--only": only, "--instances": instances}
    narrowed = [text for key, value in given.items() if value for text in (key, str(value))]
    for key, value in given.items():
        if value and name not in NARROWED[key]:
            raise InvalidSetting(key, value, f"none: only {', '.join(NARROWED[key])} have it")
    known = (*trained, *audits, *PROGRAMS, *KEPT, *SEEDED, *HURRIED)
    if name not in known:
        raise InvalidSetting("experiment", name, one_of(known, name))
    if as_json and name == EAVESDROPPER:
        expected = "none: its figures are files in runs/eavesdropper"
        raise InvalidSetting("--json", name, expected)
    numbers = list(range(first_seed, first_seed + seeds))
    with output(as_json) as figures:
        if name in audits:
            _audits(audits[name], numbers, root, picture, console, figures)
        elif name in ENCCLUSTER:
            own = None if path is None else str(path)
            experiment = adapted(ENCCLUSTER[name], quick=quick, path=own)
            _runs(experiment, numbers, root, picture, console, enccluster_table, figures)
        elif name in trained:
            _runs(trained[name], numbers, root, picture, console, experiments.table, figures)
        else:
            less = ["--quick"] if quick else []
            chosen_attack = [] if attack is None else ["--attack", attack]
            lines = []
            for given_options in _options(name, numbers, root):
                called = [*given_options, *chosen_attack, *narrowed, *less]
                lines += _program(name, called, as_json=as_json)
            figures({"experiment": name, "seeds": numbers, "figures": lines})


def _options(name: str, seeds: Sequence[int], root: Path) -> list[list[str]]:
    """How a program is called: once a seed, or once for all; most keep what they found."""
    if name in SEEDED:
        all_seeds = ["--seeds", str(len(seeds)), "--first-seed", str(seeds[0])]
        return [[*all_seeds, "--runs", str(root)]]
    kept = [] if name in PROGRAMS else ["--runs", str(root)]
    return [["--seed", str(seed), *kept] for seed in seeds]


def _program(name: str, options: list[str], *, as_json: bool) -> list[dict[str, Any]]:
    """Call an experiment that is a program of its own; its lines of JSON, if they are wanted."""
    main = importlib.import_module({**PROGRAMS, **KEPT, **SEEDED, **HURRIED}[name]).main
    if not as_json:
        main(options)
        return []
    said = io.StringIO()
    try:
        with redirect_stdout(said):
            main(options)
    finally:
        sys.stderr.write(said.getvalue())
    return [json.loads(line) for line in said.getvalue().splitlines() if line.startswith('{"')]


def _runs(
    experiment: Experiment,
    seeds: Sequence[int],
    root: Path,
    picture: Path | None,
    console: Console,
    table: Callable[[Experiment, Mapping[str, Sequence[Run]]], Table],
    figures: Figures,
) -> None:
    """Tables of accuracy and bytes."""
    from eris.experiments.runs import reproduce as experiments
    from eris.experiments.runs.progress import shown_on

    done = experiments.reproduce(experiment, seeds, root, shown_on(console))
    figures({"seeds": list(seeds), **experiments.document(experiment, done)})
    console.print(*parts(table(experiment, done), console))
    base = ", ".join(f"{key} {value}" for key, value in experiment.base.items())
    told = f"Seeds {seeds[0]} to {seeds[-1]}; {base}. Mean ± deviation over the seeds."
    console.print(told, markup=False)
    for row in experiment.rows:
        other = {key: row.changes[key] for key in experiment.base if key in row.changes}
        if other:
            changed = ", ".join(f"{key} {value}" for key, value in other.items())
            console.print(f"{row.label}: {changed}.", markup=False)
    if done:
        about = next(iter(done.values()))[0].about
        data, model = about["data"], about["model"]
        console.print(
            f"{data['source']}, tested on {data['test samples']:,} samples; {model['name']}, "
            f"{model['parameters']:,} parameters.",
            markup=False,
        )
    missing = len(experiment.rows) - len(done)
    if missing:
        console.print(f"{missing} rows are not finished; the same command goes on.", markup=False)
    elif experiment.curve is not None:
        path = picture or root / f"{experiment.name}.png"
        experiments.draw(experiment, done, path)
        console.print(f"Picture: {path}", markup=False)


def _audits(
    table: AuditTable, seeds: Sequence[int], root: Path, picture: Path | None, console: Console,
    figures: Figures,
) -> None:  # fmt: skip
    """Tables of what was given away; every row is trained and audited as it trains."""
    from eris.experiments.audits import tables as audit_tables

    with ExitStack() as bars:

        def begin(label: str) -> Tell:
            bars.close()  # that of the row before
            return bars.enter_context(telling(console, label))

        outcomes = audit_tables.audited(table, seeds, root, begin)
    rows = [
        {"label": row.label, "paper": row.paper, **audit_tables.line(outcomes[row.label])}
        for row in table.rows
    ]
    figures({"experiment": table.name, "title": table.title, "seeds": list(seeds), "rows": rows})
    widened(console, WIDTH)
    console.print(*parts(table.shown(outcomes), console))
    first = next(iter(outcomes.values()))[0]["about"]
    said = ", ".join(f"{key} {first[key]}" for key in ("data", "model", "clients", "rounds"))
    say(
        f"Seeds {seeds[0]} to {seeds[-1]}, means over them; {said}; attacked one round of "
        f"{table.every}. {table.reading}"
    )
    if table.curve is not None:
        path = picture or root / f"{table.name}.png"
        audit_tables.draw(table, outcomes, path)
        say(f"Picture: {path}")
