"""``eris audit``: what a recorded run gave away, and to whom."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table

from eris.cli import completion
from eris.cli.output import Figures, JsonOption, output
from eris.cli.run import RunsOption
from eris.core.errors import InvalidSetting
from eris.experiments.figures import parts, say, widened
from eris.experiments.runs.extras import AUDIT, need
from eris.experiments.runs.progress import bar
from eris.experiments.runs.store import kept_runs
from eris.model_file import read_model

if TYPE_CHECKING:
    from eris.experiments.audits.auditing import Outcome, Subject
    from eris.experiments.audits.candidate_files import Asked
    from eris.experiments.audits.files import Recording
    from eris.protocol.transcript import Transcript

Tell = Callable[[int, int], None]
Statistics = Literal["refuse", "ignore", "batch"]
Mode = Literal["mask-aware", "oblivious"]


def audit(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="A recorded run (name or folder), or a node's folder or transcript.",
            autocompletion=completion.runs,
        ),
    ],
    as_: Annotated[
        list[str] | None,
        typer.Option(
            "--as",
            metavar="OBSERVER",
            help="Who looks: aggregator, aggregator:3, member, coalition:N, server, neighbour or "
            "final-model; where sums are secure also openers:3 (owner 3 with helpers enough) and "
            "helper. A tap: link:3-7 is the wire between client 3 and member 7, both ways "
            "(where members aggregate, 7 owns a shard); link:3-all are all wires of 3; link is the "
            "first client's to the first owner. Repeat for several. All usual ones if left out.",
        ),
    ] = None,
    attack: Annotated[
        list[str] | None,
        typer.Option(
            help="membership (if left out); mappings: of encrypted clusters (in an EncCluster run "
            "also if left out); completion of linear layers; dlg, idlg, cosine, "
            "rog, ggl: reconstruct samples (rog, ggl: see `eris train-prior`); eavesdrop: tap "
            "links. Repeat for several."
        ),
    ] = None,
    mode: Annotated[
        Mode, typer.Option(help="Reconstructions: what is not seen is left out, or taken for 0.")
    ] = "mask-aware",
    restarts: Annotated[
        int, typer.Option(min=0, help="Reconstructions: starts at most; 0: as is usual.")
    ] = 0,
    iterations: Annotated[
        int, typer.Option(min=0, help="Reconstructions: steps of a start; 0: as is usual.")
    ] = 0,
    every: Annotated[int, typer.Option(min=1, help="Attack one round of so many.")] = 1,
    candidates: Annotated[
        Path | None,
        typer.Option(
            help="Your own samples instead of the run's canaries: .npz with inputs, targets, "
            "client and, if you know it, included and coins."
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="A node's: module:function that returns the torch module."),
    ] = None,
    loss: Annotated[
        str | None,
        typer.Option(help="A node's: module:function; cross entropy if left out."),
    ] = None,
    initial: Annotated[
        Path | None,
        typer.Option(help="A node's: the model all started from (safetensors), if not --model's."),
    ] = None,
    running_statistics: Annotated[
        Statistics, typer.Option(help="A node's: batch norm by its own numbers, or the batch's.")
    ] = "refuse",
    out: Annotated[
        Path | None, typer.Option(help="Where the figures go; audit.json beside the transcript.")
    ] = None,
    pictures: Annotated[
        Path | None, typer.Option(help="Where the plots go; audit/ beside the transcript.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of permutations and lots.")] = 0,
    confidence: Annotated[float, typer.Option(help="Of intervals and of the bounds on ε.")] = 0.95,
    delta: Annotated[float, typer.Option(help="δ of the bounds on ε.")] = 1e-5,
    runs: RunsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Learn what a run gave away, and to whom: membership of samples, from recorded messages.

    The audit sees what an observer saw and nothing else. A run needs --record and, for membership,
    --canaries (or --candidates); of a real node (observe.record = true) name the model and the
    candidates.

    \b
    eris run --data digits --samples 16 --canaries 0.5 --record --name r
    eris audit r
    eris audit r --json > r.json
    eris audit r --as aggregator:3 --as coalition:5 --every 4
    eris audit r --attack eavesdrop --as link:7-2 --as link:7-all
    eris audit anna/state --model clinic:network --candidates patients.npz
    """
    need(*AUDIT)
    from eris.experiments.audits import files
    from eris.experiments.audits.auditing import AuditOptions, audit_transcript, needs_canaries
    from eris.experiments.audits.candidate_files import candidates_of
    from eris.training.torch import single_threaded

    if not 0 <= delta < 1:
        raise InvalidSetting("--delta", delta, "a number in [0, 1)")
    options = AuditOptions(
        every=every, attacks=tuple(attack or ()), seed=seed, confidence=confidence, delta=delta,
        mode=mode, restarts=restarts, iterations=iterations,
    )  # fmt: skip
    about_members = needs_canaries(options.attacks)
    fitting = candidates is not None or not about_members
    found = files.recording(run, kept_runs(runs), candidates=fitting)
    folder = found.path.parent
    out, pictures = out or folder / "audit.json", pictures or folder / "audit"
    files.check_outputs(out, pictures)
    transcript = files.load(found.path)
    observers = files.observers_of(transcript, as_ or (), seed, attack or ())
    asked = None if candidates is None else candidates_of(candidates, transcript)
    own = (model, loss, initial, running_statistics)
    console = Console(highlight=False)
    # What there is to warn of was said when the run was made.
    with output(as_json) as figures, warnings.catch_warnings(), single_threaded():
        warnings.simplefilter("ignore", UserWarning)
        subject = _subject(found, transcript, asked, own, options.attacks)
        if about_members:
            files.check_askable(observers, transcript, subject.candidates, seed)
        answered = asked is None or asked.answered
        options = replace(options, observers=observers, draws=1000 if answered else 1)
        with telling(console, f"audit of {found.name}") as tell:
            outcome = audit_transcript(subject, transcript, options, tell)
        _show(
            console, outcome, subject, found.name, figures, answered=answered, out=out,
            pictures=pictures,
        )  # fmt: skip


def _subject(
    found: Recording,
    transcript: Transcript,
    asked: Asked | None,
    own: tuple[str | None, str | None, Path | None, Statistics],
    attacks: Sequence[str],
) -> Subject:
    """What is audited: a run by its recipe, a node by what its user says."""
    from eris.experiments.audits import files
    from eris.experiments.audits.candidate_files import IN_A_FILE

    model, loss, initial, statistics = own
    if found.run is not None:
        for name, value in (("--model", model), ("--loss", loss), ("--initial", initial)):
            if value is not None:
                raise InvalidSetting(name, str(value), "none: the run's recipe says it")
        return files.subject_of_run(found.run, transcript, asked, attacks)
    if model is None:
        expected = "module:function: a node's transcript does not tell the architecture"
        raise InvalidSetting("--model", None, expected)
    if asked is None:
        raise InvalidSetting("--candidates", None, IN_A_FILE)
    folders = [Path.cwd(), found.path.parent, found.path.parent.parent]
    start = None if initial is None else read_model(initial, "--initial")
    return files.subject_of_node(
        transcript,
        files.model_of(model, folders),
        files.loss_of(loss, folders),
        asked,
        initial=start,
        running_statistics=statistics,
    )


def _show(
    console: Console,
    outcome: Outcome,
    subject: Subject,
    name: str,
    figures: Figures,
    *,
    answered: bool,
    out: Path,
    pictures: Path,
) -> None:
    from eris.experiments.audits import report
    from eris.experiments.audits.pictures import draw

    widened(console, report.WIDTH)
    candidates = subject.candidates
    if answered:
        for part in report.shown(outcome, subject.places):
            console.print(*(parts(part, console) if isinstance(part, Table) else [part]))
        document = report.document(outcome, name)
        made = draw(outcome, candidates, pictures)
        if made:
            say(f"\nPictures: {', '.join(map(str, made))}")
    else:
        for part in report.ranked(outcome, candidates, subject.frame.membership.members):
            console.print(part)
        document = report.scores_document(outcome, candidates, name)
        console.print("")
    report.write(document, out)
    say(f"Figures: {out}")
    figures(document)


@contextmanager
def telling(console: Console, name: str) -> Iterator[Tell]:
    """A bar on a terminal, else one line."""
    if not console.is_terminal:
        say(name, console=console)
        yield lambda done, rounds: None
        return
    with bar(console) as shown:
        task = shown.add_task(name, total=None)
        yield lambda done, rounds: shown.update(task, completed=done, total=rounds)
