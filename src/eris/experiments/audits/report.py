"""What an audit found, for people and for programs: tables on a screen, and JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.table import Column, Table
from rich.text import Text

from eris.audit.alignment import ALIGNED, COSINE, NORMALISED, PAPER
from eris.audit.candidates import Candidates
from eris.audit.exposure import Exposed
from eris.audit.membership import FINAL, JOINT, LOSS, Everyone, Finding
from eris.audit.one_run import Bound
from eris.audit.paper_measure import PaperMeasure
from eris.data.cache import write_atomically
from eris.experiments.audits.auditing import Outcome
from eris.experiments.figures import NOTHING, percent

MEANINGS = {
    PAPER: "inner product with what was sent",
    ALIGNED: "inner product with the update",
    NORMALISED: "inner product by the gradient's norm",
    COSINE: "cosine of gradient and update",
    JOINT: "joint regression",
    LOSS: "loss of the completed model",
}
STRONGEST = (JOINT, COSINE, LOSS)
"""Which score speaks for an observer; chosen before any truth is looked at."""
HIGHEST = 10
WIDTH = 110
"""Columns that the tables take."""
NOT_SHOWN = ("versions", "metrics", "audited every", "audit seed")
LEGEND = (
    "max, null, p: share of right guesses by the papers' measure (thirds of each client's canaries,"
    " mean over clients, the best round), what the same measure gives with membership permuted"
    " (mean, and 95 % of draws below), and how often that reaches it.",
    "right: guesses over all clients' canaries and all rounds at once; chance is 50 %."
    " AUC, TPR: the area under the ROC curve, members found with 1 % and 0.1 % of others accused.",
    "ε ≥: the run is not (ε, δ)-private for less, at the confidence named; of: what perfect guesses"
    " would have given. A bound holds for the one look it is; best: of the best single round,"
    " corrected for having looked at all.",
)


def shown(outcome: Outcome, coordinates: int) -> Iterator[RenderableType]:
    """The audit on a screen; ``coordinates`` are those of a whole update as it travels."""
    yield about(outcome)
    blocks, folded = observers(outcome)
    exposed = outcome.report.exposed
    for name, findings in blocks.items():
        asked = "candidates" if "candidates" in outcome.about else "canaries"
        yield Text(f"\n{seen(name, findings[0], coordinates, asked)}", style="bold")
        yield block(findings)
        yield Text(verdict(findings))
        if reason := next((found.no_bound for found in findings if found.no_bound), ""):
            yield Text(f"No bound on ε: {reason}.")
    if outcome.report.everyone:
        yield Text(f"\nevery aggregator ({len(folded)} more than above; each is in the JSON)",
                   style="bold")  # fmt: skip
        yield everyone(outcome.report.everyone)
    yield Text("\nε promised and ε found", style="bold")
    yield promised(outcome, blocks)
    if exposed:
        yield Text("\nbound and measurement, in nats about one client (mean)", style="bold")
        yield theory(exposed)
    yield from others(outcome)
    if blocks:
        yield Text("")
        for line in LEGEND:
            yield Text(line, style="dim")


def others(outcome: Outcome) -> Iterator[RenderableType]:
    """What attacks found that have no tables made for them: every figure, by its title."""
    for name, rows in outcome.others().items():
        yield Text(f"\n{name}", style="bold")
        titles = dict.fromkeys(title for row in rows for title in row)
        table = _table(*titles, gap=2)
        for row in rows:
            table.add_row(*(_cell(row.get(title)) for title in titles))
        yield table


def about(outcome: Outcome) -> Table:
    """What was audited."""
    grid = Table.grid(Column(), Column(overflow="fold"), padding=(0, 2))
    for key, value in outcome.about.items():
        if key not in NOT_SHOWN:
            grid.add_row(Text(str(key), style="dim"), Text(str(value)))
    every = outcome.about.get("audited every", 1)
    rounds = "all rounds" if every == 1 else f"one round of {every}"
    grid.add_row(
        Text("audited", style="dim"), f"{rounds}, seed {outcome.about.get('audit seed', 0)}"
    )
    return grid


def observers(outcome: Outcome) -> tuple[dict[str, list[Finding]], list[str]]:
    """The findings by observer, and the aggregators that are left to the lines of everyone.

    Of many aggregators one is attacked in every way and shown; the others have few scores.
    """
    by_name: dict[str, list[Finding]] = {}
    for found in outcome.report.findings:
        by_name.setdefault(found.observer, []).append(found)
    folded = [
        name
        for name, findings in by_name.items()
        if outcome.report.everyone
        and name.startswith("aggregator")
        and not any(found.score in (JOINT, LOSS) for found in findings)
    ]
    return {name: each for name, each in by_name.items() if name not in folded}, folded


def seen(name: str, found: Finding, coordinates: int, what: str = "canaries") -> str:
    """Who looks, and at how much."""
    canaries = f"{found.canaries} {what}"
    if name == FINAL:
        return f"{name}, and no message; {canaries}"
    asked = f"{canaries}, {found.rounds} round{'s' if found.rounds > 1 else ''}"
    if not found.visible:
        return f"{name} sees no client's update, only what is published; {asked}"
    share = f"{percent(found.visible / coordinates)} %"
    size = f"{found.visible:,.0f} of {coordinates:,} coordinates"
    return f"{name} sees {size} of a client's update a round ({share}); {asked}"


def block(findings: list[Finding]) -> Table:
    """One observer's scores."""
    table = _table("score", "max %", "null (95 %)", "p", "right %", "AUC", "TPR 1 %", "0.1 %",
                   "ε ≥", "of", "best")  # fmt: skip
    for column in table.columns:
        column.no_wrap, column.justify = True, "left" if column.header == "score" else "right"
    for found in findings:
        curve, pooled = found.roc, found.pooled
        table.add_row(
            found.score,
            *_measured(found.paper),
            f"{percent(pooled.accuracy)} [{percent(pooled.low)}, {percent(pooled.high)}]",
            f"{curve.auc:.3f} [{curve.low:.2f}, {curve.high:.2f}]",
            percent(curve.tpr_at_1_percent),
            percent(curve.tpr_at_01_percent),
            *_bound(found.bound),
            _bound(found.best_round)[0],
        )
    return table


def verdict(findings: list[Finding]) -> str:
    """What the strongest of an observer's scores says, in words."""
    found = strongest(findings)
    pooled = found.pooled
    what = f"{meaning(found)}: {pooled.right} of {pooled.guesses} guesses right"
    low, high = (f"{100 * end:.0f}" for end in (pooled.low, pooled.high))
    interval = f"{100 * pooled.confidence:g} % interval {low} to {high} %"
    leaks = "membership leaks" if pooled.low > 0.5 else "no leak is shown"
    return f"{what} ({interval}): {leaks}."


def meaning(found: Finding) -> str:
    """What a score is, in words."""
    return "loss of the model" if found.observer == FINAL else MEANINGS[found.score]


def strongest(findings: list[Finding]) -> Finding:
    """The score that speaks for an observer."""
    by_score = {found.score: found for found in findings}
    return next((by_score[name] for name in STRONGEST if name in by_score), findings[0])


def everyone(found: tuple[Everyone, ...]) -> Table:
    """All aggregators: their mean, and the worst."""
    table = _table("score", "mean: max %", "null (95 %)", "p", "worst: max %", "null (95 %)", "p",
                   "mean AUC", "worst AUC", "ε ≥", "of")  # fmt: skip
    for one in found:
        cells: list[str] = []
        for measure, pooled in ((one.mean, one.mean_pooled), (one.worst, one.worst_pooled)):
            cells += _measured(measure) if measure else [f"{100 * pooled:.1f} pooled", "", ""]
        areas = (f"{one.mean_auc:.3f}", f"{one.worst_auc:.3f}")
        table.add_row(one.score, *cells, *areas, *_bound(one.bound))
    table.caption = f"ε ≥: of the aggregator with most right guesses of {found[0].observers}"
    table.caption_justify = "left"
    return table


def promised(outcome: Outcome, blocks: Mapping[str, list[Finding]]) -> Table:
    """The accounted ε, an upper bound, beside what the observers have shown."""
    grid = Table.grid(padding=(0, 2))
    spent = outcome.accounted
    if spent is None:
        known = "view of" not in outcome.about
        nothing = "nothing: the method adds no noise, so there is no ε to account"
        unknown = "not known: a transcript does not tell of noise; taken for none"
        grid.add_row("promised", nothing if known else unknown)
    else:
        claim = spent.claim
        terms = f"δ {spent.delta:g}; Gaussian, σ {claim.sigma:.4g} at sensitivity"
        terms += f" {claim.sensitivity:.4g}, {claim.rounds} rounds"
        if claim.sampling_rate < 1:
            terms += f", sampled at {claim.sampling_rate:g}"
        for name, value in (("exact", spent.exact), ("PLD", spent.epsilon_pld),
                            ("RDP", spent.epsilon_rdp)):  # fmt: skip
            if value is not None:
                grid.add_row(f"promised, {name}", f"ε ≤ {_number(value)}")
        if spent.note:
            grid.add_row("", spent.note)
        grid.add_row("", f"for every client alike ({terms})")
        if outcome.openers is not None:
            told = "if the shard's owner and its helpers collude"
            grid.add_row("promised", f"ε ≤ {_number(outcome.openers)} {told}")
    for name, findings in blocks.items():
        found = strongest(findings)
        if found.bound is not None:
            least, most = _bound(found.bound)
            grid.add_row(
                f"found by {name}",
                f"ε ≥ {least} of at most {most} ({meaning(found)}; "
                f"{100 * found.bound.confidence:g} %, δ {found.bound.delta:g})",
            )
    return grid


def theory(exposed: Sequence[Exposed]) -> Table:
    """Theorem 3.3 for what was seen, and what right guesses prove."""
    table = _table("observer", "coordinates a round", "bound, as ERIS F.1 reads it",
                   "bound, given the data", "measured", "all there is")  # fmt: skip
    for found in exposed:
        honest = "infinite: none holds" if math.isinf(found.honest) else _number(found.honest)
        table.add_row(
            found.observer,
            f"{found.coordinates:,.0f} ({percent(found.share)} %)",
            _number(found.paper),
            honest,
            _number(found.measured),
            _number(found.ceiling),
        )
    return table


# -- scores without a truth -------------------------------------------------------------------


def ranked(
    outcome: Outcome, candidates: Candidates, members: Sequence[str]
) -> Iterator[RenderableType]:
    """Scores where nothing is known of the truth: the candidates that look most like members."""
    yield about(outcome)
    scores = outcome.report.scores
    for name in dict.fromkeys(observer for observer, _ in scores):
        known = [score for score in STRONGEST if (name, score) in scores]
        if known[0] != STRONGEST[0] and name.startswith("aggregator"):
            continue  # one of many, without the strongest attack: it is in the JSON
        score = known[0]
        values, places = scores[name, score], outcome.report.judged[name]
        yield Text(f"\n{name}, by {MEANINGS[score]}: highest of {len(places)} candidates",
                   style="bold")  # fmt: skip
        table = _table("candidate", "client", "score", "share of scores below", gap=2)
        for row in np.argsort(-values, kind="stable")[:HIGHEST].tolist():
            below = float(np.mean(values < values[row]))
            place = int(places[row])
            client = int(candidates.client[place])
            whose = Text(f"{client} ({members[client]})")
            table.add_row(str(place), whose, f"{values[row]:.4g}", f"{100 * below:.0f} %")
        yield table
    yield from others(outcome)
    yield Text(
        "\nNo truth was given, so nothing is judged: a score says who looks most like a member, "
        "not that it is one. Put samples beside it that are certainly out.",
        style="dim",
    )


# -- files ------------------------------------------------------------------------------------


def document(outcome: Outcome, run: str) -> dict[str, Any]:
    """The audit as JSON; what is infinite is null."""
    return {"run": run, **outcome.to_json()}


def scores_document(outcome: Outcome, candidates: Candidates, run: str) -> dict[str, Any]:
    """The scores alone, one for each candidate an observer was asked about."""
    scores = [
        {
            "observer": observer,
            "score": score,
            "candidates": outcome.report.judged[observer].tolist(),
            "clients": candidates.client[outcome.report.judged[observer]].tolist(),
            "values": values.tolist(),
        }
        for (observer, score), values in outcome.report.scores.items()
    ]
    exposed = [
        {key: asdict(found)[key] for key in ("observer", "rounds", "coordinates", "share")}
        for found in outcome.report.exposed
    ]
    whole = outcome.to_json()
    found = {"about": whole["about"], "scores": scores, "exposed": exposed}
    return {"run": run, **found, **{name: whole[name] for name in outcome.others()}}


def write(document: Mapping[str, Any], path: Path) -> None:
    """Write JSON, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, (json.dumps(document, indent=1, allow_nan=False) + "\n").encode())


def _table(*titles: str, gap: int = 1) -> Table:
    return Table(*titles, box=None, padding=(0, gap, 0, 0), pad_edge=False)


def _measured(found: PaperMeasure | None) -> tuple[str, str, str]:
    """The papers' measure, its null, and the p-value; a client with fewer than 3 has none."""
    if found is None:
        return NOTHING, NOTHING, NOTHING
    null = f"{percent(found.null_mean)} ({percent(found.null_q95)})"
    return percent(found.accuracy), null, f"{found.p_value:.3f}"


def _bound(found: Bound | None) -> tuple[str, str]:
    return (NOTHING,) * 2 if found is None else (f"{found.epsilon:.2f}", f"{found.ceiling:.2f}")


def _cell(value: Any) -> str:
    """
    >>> _cell(None), _cell(3), _cell(0.12345), _cell("anna")
    ('–', '3', '0.123', 'anna')
    """
    return NOTHING if value is None else _number(value) if isinstance(value, float) else str(value)


def _number(value: float) -> str:
    """
    >>> _number(math.inf), _number(0.0123), _number(1234.5)
    ('infinite', '0.0123', '1,234')
    """
    if math.isinf(value):
        return "infinite"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
