"""Stored runs as documents: one in full, or several side by side."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from eris.experiments.figures import NOTHING, figure
from eris.experiments.runs.printed import COMPARED, tables
from eris.experiments.runs.progress import described, duration, size
from eris.experiments.runs.recipe import identity
from eris.experiments.runs.report import Summary, budget, curve, main_metric, side_by_side
from eris.experiments.runs.store import CLIENTS, MODEL, ROUNDS, TRANSCRIPT, Line, Run
from eris.protocol.messages import Contribution, Result
from eris.protocol.transcript import Transcript
from eris.web import leaks
from eris.web.blocks import (
    Block,
    Curves,
    Document,
    Listing,
    Matrix,
    Section,
    Series,
    Span,
    Spans,
    Spot,
    Spots,
    Verbatim,
)  # fmt: skip

MOST_LINKS = 200
"""Members of a table of links."""
ALL = ("all", 1.0)
PAPERS = {"mnist": "ERIS table 12", "cifar10": "ERIS table 10", "imdb": "ERIS table 8"}
"""Where the paper prints figures of a data set, IID and unbiased."""


def of_runs(runs: Sequence[Run]) -> Document:
    """A document of one run, or of several beside each other."""
    for run in runs:
        if run.over:
            run.check(ROUNDS, CLIENTS, MODEL)
    return of_run(runs[0]) if len(runs) == 1 else of_several(runs)


def of_run(run: Run) -> Document:
    """All that is stored of a run."""
    one, lines = Summary.of(run), run.rounds()
    facts = [
        ("state", f"{one.state}, {one.done} of {one.asked} rounds"),
        *((f"{name} after round {one.evaluated}", f"{v:.4g}") for name, v in one.metrics.items()),
        ("up, a client and round", size(one.sent)),
        ("down, a client and round", size(one.received)),
        ("clients in the results", figure(one.included, ".1%")),
        ("privacy over all rounds", budget(one.privacy)),
        ("seconds", duration(one.seconds)),
    ]
    sections = [_training(run, lines), _traffic(lines)]
    if owned := _recorded(run):
        sections.append(owned)
    sections += [_faults(run, lines), _leaks(run), *_printed(run, one), _provenance(run)]
    alerts = [f"This run failed: {run.about['error']}"] if run.about.get("error") else []
    if not run.over:
        alerts.append(f"This run is not over ({run.state}); `{run.resuming()}` goes on with it.")
    return Document(
        run.name,
        f"{one.method} on {one.data}, {one.model}, seed {run.about.get('seed', NOTHING)}, "
        f"started {one.started}",
        [(name, value) for name, value in facts if value != NOTHING],
        sections,
        alerts,
    )


def of_several(runs: Sequence[Run]) -> Document:
    """Runs beside each other: figures, curves, and accuracy against leakage."""
    figures, differing = side_by_side(runs)
    names = [run.name for run in runs]
    metric = main_metric(runs)
    curves = {run.name: curve(run, metric) for run in runs}
    per_round = [Series(name, [(r, v) for r, _, v in points]) for name, points in curves.items()]
    per_byte = [Series(name, [(b, v) for _, b, v in points]) for name, points in curves.items()]
    training: list[Block] = [
        Curves(f"{metric} over rounds", x="round", y=metric, series=per_round),
        Curves(f"{metric} over bytes sent", "As encoded, summed over rounds.",
              x="bytes a client has sent", y=metric, series=per_byte),
    ]  # fmt: skip
    sections = [
        Section("Figures", [Listing("Side by side", columns=("", *names), rows=[
            (row, *cells) for row, cells in figures])]),
        Section("Training", training),
        _front(runs, metric),
        Section("Settings", [Listing("Where they differ", columns=("setting", *names), rows=[
            (key, *values) for key, values in differing])]),
    ]  # fmt: skip
    facts = [
        (run.name, described(Summary.of(run).metrics).replace("  ", ", ") or run.state)
        for run in runs
    ]
    return Document(" and ".join(names), f"{len(runs)} runs side by side", facts, sections)


# -- one run ----------------------------------------------------------------------------------


def _training(run: Run, lines: Sequence[Line]) -> Section:
    names = list(dict.fromkeys(name for line in lines for name in line["metrics"]))
    blocks: list[Block] = []
    for name in names:
        points = [
            (line["round"], line["metrics"][name]) for line in lines if name in line["metrics"]
        ]
        series = [Series("the model on test samples", points)]
        if name == "loss":
            series.append(Series("clients on their own", _column(lines, "client_loss")))
        blocks.append(Curves(name, x="round", y=name, series=series))
    blocks.append(Curves("Time a round", x="round", y="seconds", zero=True,
                        series=[Series("seconds", _column(lines, "seconds"))]))  # fmt: skip
    return Section("Training", blocks)


def _traffic(lines: Sequence[Line]) -> Section:
    def of_a_client(way: str) -> list[tuple[float, float | None]]:
        return [(line["round"], line[way] / max(1, line["clients"])) for line in lines]

    ways = [
        Series("up", of_a_client("clients_sent")),
        Series("down", of_a_client("clients_received")),
    ]
    kinds = list(dict.fromkeys(kind for line in lines for kind in line["sent"]))
    by_kind = [
        Series(kind, [(line["round"], line["sent"].get(kind, 0)) for line in lines])
        for kind in kinds
    ]
    return Section("Communication", [
        Curves("Bytes a client and round", "Encoded messages, not formulas.", x="round", y="bytes",
              zero=True, series=ways),
        Curves("Bytes sent by all, by kind of message", x="round", y="bytes", zero=True,
              series=by_kind),
        Curves("The busiest member", "Sent and received together.", x="round", y="bytes", zero=True,
              series=[Series("busiest", _column(lines, "busiest"))]),
    ])  # fmt: skip


def _recorded(run: Run) -> Section | None:
    """Bytes by link, and who aggregated what: of runs that kept their messages."""
    path = run.path / TRANSCRIPT
    if not path.is_file():
        return None
    transcript = Transcript.load(path)
    members = transcript.membership.members
    links: dict[tuple[int, int], int] = defaultdict(int)
    owned: dict[tuple[int, int], str] = {}
    for record in transcript.records:
        for to in record.receivers:
            if to != record.sender:
                links[record.sender, to] += len(record.data)
        message = record.message
        if isinstance(message, Result):
            owned[message.header.shard, message.header.round] = members[record.sender]
        elif isinstance(message, Contribution) and record.receivers:
            owned.setdefault((message.header.shard, message.header.round),
                             members[record.receivers[0]])  # fmt: skip
    blocks: list[Block] = []
    if len(members) <= MOST_LINKS:
        values = [[float(links[i, j]) if (i, j) in links else None for j in range(len(members))]
                  for i in range(len(members))]  # fmt: skip
        blocks.append(Matrix("Bytes over each link, all rounds", rows=members, columns=members,
                           values=values, unit="bytes"))  # fmt: skip
    if owned:
        blocks.insert(0, Spans("Who owned which shard", x="round", spans=spans(owned)))
    return Section("Shards and links", blocks, "From the messages that this run kept.")


def spans(owned: dict[tuple[int, int], str]) -> list[Span]:
    """Rounds in a row with one owner, joined; from (shard, round) and who.

    >>> [(s.row, s.start, s.stop, s.who) for s in spans({(0, 1): "a", (0, 2): "a", (0, 3): "b"})]
    [('shard 0', 1, 3, 'a'), ('shard 0', 3, 4, 'b')]
    """
    found: list[Span] = []
    for (shard, round), who in sorted(owned.items()):
        row, last = f"shard {shard}", found[-1] if found else None
        if last is not None and (last.row, last.who, last.stop) == (row, who, round):
            found[-1] = Span(row, last.start, round + 1, who)
        else:
            found.append(Span(row, round, round + 1, who))
    return found


def _faults(run: Run, lines: Sequence[Line]) -> Section:
    blocks: list[Block] = []
    shares = [(line["round"], line["included"]) for line in lines]
    if any(share is not None for _, share in shares):
        blocks.append(Curves("Share of the clients in the results", x="round", y="share",
                            zero=True, series=[Series("included", shares)],
                            levels=[ALL]))  # fmt: skip
    refused = [(line["round"], line["refused"]) for line in lines]
    if any(count for _, count in refused):
        blocks.append(Curves("Contributions that were refused", x="round", y="messages",
                            zero=True, series=[Series("refused", refused)]))  # fmt: skip
    last: dict[int, list[Line]] = defaultdict(list)
    for line in run.clients():
        last[line["client"]].append(line)
    rows = [
        (client, len(found), found[-1].get("loss"), sum(one["sent"] for one in found),
         sum(one["received"] for one in found))
        for client, found in sorted(last.items())
    ]  # fmt: skip
    columns = ("client", "rounds", "last loss of its own", "bytes sent", "bytes received")
    blocks.append(Listing("Clients", columns=columns, rows=rows))
    return Section("Clients and failures", blocks)


def _leaks(run: Run) -> Section:
    title = "What observers could tell"
    audit = leaks.read(run.path)
    if audit is None:
        recorded = (run.path / TRANSCRIPT).is_file()
        command = (
            f"eris audit {shlex.quote(run.name)}" if recorded else run.again("recorded", "--record")
        )
        return Section(title, [], f"Not audited. `{command}` is the next step.")
    about = audit.get("about", {})
    canaries = f"{about['canaries']} canaries; " if "canaries" in about else ""
    note = f"{canaries}method {about.get('method', NOTHING)}."
    return Section(title, leaks.blocks(run.path, audit), note)


def _printed(run: Run, one: Summary) -> list[Section]:
    """The paper's figures of the same setting, where it prints any."""
    settings, table = identity(run.recipe), PAPERS.get(one.data)
    if table is None or settings.get("data.partition", "iid") != "iid":
        return []
    found = tables()[table]
    rows = []
    for label, wanted in COMPARED.items():
        row = label.partition(",")[0]
        if row in found["rows"] and all(settings.get(k) == v for k, v in wanted.items()):
            suffix = f", {settings.get('data.samples')} samples"
            rows += [
                (row, column.removesuffix(suffix), f"{value} %")
                for column, value in zip(found["columns"], found["rows"][row], strict=True)
                if column.endswith(suffix)
            ]
    if not rows:
        return []
    note = f"{table}, {found['place']}. Rounds, folds and stopping may differ: docs/reproduce.md."
    return [Section("The paper beside it", [
        Listing("As printed", note, columns=("row", "figure", "paper"), rows=rows)])]  # fmt: skip


def _provenance(run: Run) -> Section:
    about = run.about
    rows = [
        ("started", about["started"]),
        ("ended", about["ended"] or NOTHING),
        *((name, version) for name, version in about["versions"].items()),
        ("machine", about["machine"]),
        ("data", about["data"]["source"]),
        *((f"sha256 of {what}", digest) for what, digest in about["data"]["sha256"].items()),
        ("model", f"{about['model']['name']}, {about['model']['parameters']:,} values"),
        ("sha256 of the initial model", about["model"]["initial"]),
        *((f"sha256 of {name}", file["sha256"]) for name, file in about.get("files", {}).items()),
    ]
    return Section("Settings and provenance", [
        Verbatim("recipe.toml", "Every default spelled out; `eris run recipe.toml` repeats it.",
                 text=run.recipe.to_toml()),
        Listing("What it ran on", columns=("what", "which"), rows=rows),
    ])  # fmt: skip


def _column(lines: Sequence[Line], key: str) -> list[tuple[float, float | None]]:
    return [(line["round"], line.get(key)) for line in lines]


# -- several ----------------------------------------------------------------------------------


def _front(runs: Sequence[Run], metric: str) -> Section:
    """The metric against what the strongest observer could tell, of runs that were audited."""
    title = f"{metric} against leakage"
    marks = []
    for run in runs:
        audit = leaks.read(run.path)
        found = None if audit is None else leaks.worst(audit)
        value = Summary.of(run).metrics.get(metric)
        if found is not None and value is not None:
            marks.append(Spot(run.name, found["roc"]["auc"], value, group=Summary.of(run).method))
    if not marks:
        return Section(title, [], "None of these runs was audited: `eris audit RUN`.")
    sign = -1 if metric.endswith(("loss", "rmse")) else 1
    front = [
        one.name for one in marks
        if not any(other.x <= one.x and sign * other.y >= sign * one.y
                   and (other.x, other.y) != (one.x, one.y) for other in marks)
    ]  # fmt: skip
    note = (
        "AUC of the observer of messages that guessed best (0.5 is chance); joined: runs that no "
        "other one beats in both."
    )
    return Section(title, [Spots(title, note, x="AUC of the strongest observer", y=metric,
                                 marks=marks, front=front)])  # fmt: skip


def default_place(runs: Sequence[Run]) -> Path:
    """Where the report goes unless it is said: beside what it is about."""
    if len(runs) == 1:
        return runs[0].path / "report.html"
    return runs[0].path.parent / ("-".join(run.name for run in runs)[:120] + ".html")
