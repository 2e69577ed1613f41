"""What stored runs say: a table of all, one in full, several side by side and as a picture.

Everything is read from the files of the runs, so a run can be looked at while it goes on.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Column, Table
from rich.text import Text

from eris.core.errors import InvalidSetting, did_you_mean, one_of
from eris.experiments.figures import NOTHING, figure, panels, saved
from eris.experiments.runs.checkpoint import RunDamaged
from eris.experiments.runs.progress import described, size
from eris.experiments.runs.recipe import identity
from eris.experiments.runs.store import Line, Run

DERIVED = ("held_out_", "node_")
LOWER_IS_BETTER = ("loss", "rmse")


@dataclass(frozen=True)
class Summary:
    """A run in a few figures."""

    name: str
    method: str
    data: str
    model: str
    done: int
    asked: int
    state: str
    started: str
    metrics: Mapping[str, float]
    """The last evaluation."""
    evaluated: int
    """The round of the last evaluation; 0 if there was none."""
    sent: float
    """Encoded bytes a client sends in a round."""
    received: float
    included: float | None
    """Mean share of the clients in a round's results; None where nothing is published."""
    refused: int
    seconds: float
    privacy: Line | None
    """The ε and δ that all rounds together spend, of methods that add noise."""

    @classmethod
    def of(cls, run: Run) -> Summary:
        """The figures of a run as its files are now."""
        try:
            return cls._of(run)
        except (LookupError, TypeError, ZeroDivisionError) as broken:
            what = f"is damaged: its lines lack what is told of a run ({broken!r})"
            raise RunDamaged(run.path, what, "put its files back as they were") from broken

    @classmethod
    def _of(cls, run: Run) -> Summary:
        recipe, lines = run.recipe, run.rounds()
        last = next((line for line in reversed(lines) if line["metrics"]), None)
        shares = [line["included"] for line in lines if line["included"] is not None]
        return cls(
            name=run.name,
            method=recipe.method.name,
            data=recipe.trainer.name or recipe.data.name,
            model="its own" if recipe.trainer.name else str(recipe.model.name),
            done=len(lines),
            asked=recipe.training.rounds,
            state="damaged" if run.damage() else run.state,
            started=str(run.about["started"]),
            metrics=_numbers(last["metrics"]) if last else {},
            evaluated=last["round"] if last else 0,
            sent=_mean(line["clients_sent"] / line["clients"] for line in lines),
            received=_mean(line["clients_received"] / line["clients"] for line in lines),
            included=_mean(shares) if shares else None,
            refused=sum(line["refused"] for line in lines),
            seconds=sum(line["seconds"] for line in lines),
            privacy=run.about.get("privacy"),
        )

    def key(self, sort: str) -> tuple[bool, Any]:
        """What to sort by: the best first; runs without the figure last."""
        if sort in SORTS:
            return False, getattr(self, sort)
        value = self.metrics.get(sort, math.nan)
        return math.isnan(value), value if lower_is_better(sort) else -value


SORTS = ("started", "name", "method", "data", "model", "state", "done", "sent", "received",
         "seconds")  # fmt: skip


def lower_is_better(metric: str) -> bool:
    """Whether a smaller figure is the better one.

    >>> lower_is_better("held_out_loss"), lower_is_better("accuracy")
    (True, False)
    """
    return metric.endswith(LOWER_IS_BETTER)


def runs_table(summaries: Sequence[Summary], sort: str = "started") -> Table:
    """One line a run."""
    metrics = list(dict.fromkeys(name for one in summaries for name in one.metrics))
    known = (*SORTS, *metrics)
    if summaries and sort not in known:
        raise InvalidSetting("--sort", sort, one_of(known, sort))
    # What is derived is in `eris runs show`; here there is room for the main figures.
    metrics = [name for name in metrics if name == sort or not name.startswith(DERIVED)]
    # Narrow, and words that do not fit are folded: a name cut short cannot be typed.
    table = Table(box=None, padding=(0, 1, 0, 0))
    for heading in ("run", "method", "data"):
        table.add_column(heading, overflow="fold")
    for heading in ("rounds", *metrics, "up", "down", "state"):
        table.add_column(heading, no_wrap=True)
    for one in sorted(summaries, key=lambda one: one.key(sort)):
        figures = [figure(one.metrics.get(name), ".4g") for name in metrics]
        table.add_row(
            Text(one.name), one.method, one.data, f"{one.done}/{one.asked}", *figures,
            size(one.sent), size(one.received), one.state,
        )  # fmt: skip
    table.caption = "up, down: encoded bytes a client and round"
    return table


def shown(run: Run) -> list[str]:
    """A run in full: what was asked, what it stands on, how it stands, which files it has."""
    one, about = Summary.of(run), run.about
    versions = ", ".join(f"{name} {found}" for name, found in about["versions"].items())
    lines = [
        f"{one.name}: {one.state}, {one.done} of {one.asked} rounds in {one.seconds:,.1f} s",
        f"started {about['started']}, ended {about['ended'] or NOTHING}",
    ]
    if damage := run.damage():
        lines.append(f"damaged: {damage}")
    if about.get("error"):
        lines.append(f"error: {about['error']}")
    if one.evaluated:
        lines.append(f"after round {one.evaluated}: {described(one.metrics)}")
    if one.privacy:
        lines.append(f"privacy of a sample over all rounds: {budget(one.privacy)}")
    lines += [
        f"a client and round: {size(one.sent)} up, {size(one.received)} down, encoded",
        f"clients in the results: {figure(one.included, '.1%')}; refused: {one.refused:,}",
        f"versions: {versions}, on {about['machine']}",
        f"data: {about['data']['source']}",
        *(f"  sha256 {digest}  {what}" for what, digest in about["data"]["sha256"].items()),
        f"model: {about['model']['parameters']:,} values, initial {about['model']['initial']}",
        "",
        *run.recipe.to_toml().splitlines(),
        "",
    ]
    for path in sorted(run.path.rglob("*")):
        if path.is_file():
            lines.append(f"{size(path.stat().st_size):>9}  {path.relative_to(run.path)}")
    return lines


Rows = list[tuple[str, list[str]]]


def side_by_side(runs: Sequence[Run]) -> tuple[Rows, Rows]:
    """Figures of runs, a row each; and the settings in which they differ."""
    summaries = [Summary.of(run) for run in runs]
    metrics = list(dict.fromkeys(name for one in summaries for name in one.metrics))
    best = [best_values(run) for run in runs]
    rows: Rows = [
        ("method", [one.method for one in summaries]),
        ("data", [one.data for one in summaries]),
        ("state", [one.state for one in summaries]),
        ("rounds", [f"{one.done}/{one.asked}" for one in summaries]),
        *((name, [figure(one.metrics.get(name), ".4g") for one in summaries]) for name in metrics),
        *((f"best {name}", [_found(one.get(name)) for one in best]) for name in metrics),
        ("up, a client and round", [size(one.sent) for one in summaries]),
        ("down, a client and round", [size(one.received) for one in summaries]),
        ("up, a client, in all", [size(one.sent * one.done) for one in summaries]),
        ("clients in the results", [figure(one.included, ".1%") for one in summaries]),
        ("privacy over all rounds", [budget(one.privacy) for one in summaries]),
        ("seconds", [f"{one.seconds:,.1f}" for one in summaries]),
    ]
    settings = [identity(run.recipe) for run in runs]
    differing: Rows = []
    for key in dict.fromkeys(itertools.chain.from_iterable(settings)):
        values = [NOTHING if one.get(key) is None else str(one[key]) for one in settings]
        if len(set(values)) > 1 and key != "method.name":
            differing.append((key, values))
    return [(row, cells) for row, cells in rows if set(cells) != {NOTHING}], differing


def comparison(runs: Sequence[Run]) -> Table:
    """Runs side by side: figures, and the settings in which they differ."""
    headings = (Text(""), *(Text(run.name) for run in runs))
    table = Table(*(Column(heading, overflow="fold") for heading in headings))
    figures, differing = side_by_side(runs)
    for row, cells in figures:
        table.add_row(row, *cells)
    table.add_section()
    for key, values in differing:
        table.add_row(key, *(Text(value) for value in values))
    return table


def curve(run: Run, metric: str) -> list[tuple[int, float, float]]:
    """(round, bytes a client has sent until then, metric) of every evaluation."""
    points, sent = [], 0.0
    for line in run.rounds():
        sent += line["clients_sent"] / line["clients"]
        if metric in line["metrics"]:
            points.append((line["round"], sent, _numbers(line["metrics"])[metric]))
    return points


def main_metric(runs: Sequence[Run]) -> str:
    """The first metric that all of the runs were evaluated by."""
    names = [list(Summary.of(run).metrics) for run in runs]
    common = [name for name in names[0] if all(name in other for other in names)]
    if not common:
        found = "; ".join(
            f"{run.name}: {', '.join(n) or 'none'}" for run, n in zip(runs, names, strict=True)
        )
        raise InvalidSetting("runs to compare", found, "runs evaluated by a metric in common")
    return common[0]


def draw(runs: Sequence[Run], path: Path, metric: str | None = None) -> str:
    """Plot a metric against rounds and against bytes sent; returns the metric."""
    metric = metric or main_metric(runs)
    curves = {run.name: curve(run, metric) for run in runs}
    if missing := [name for name, points in curves.items() if not points]:
        known = {name for run in runs for line in run.rounds() for name in line["metrics"]}
        expected = f"one that {missing[0]} was evaluated by: {', '.join(sorted(known)) or 'none'}"
        raise InvalidSetting("--metric", metric, expected + did_you_mean(metric, known))
    picture, (left, right) = panels(2, 11, 4, sharey=True)
    for name, points in curves.items():
        rounds, sent, values = zip(*points, strict=True)
        left.plot(rounds, values, marker=".", label=name)
        right.plot([count / 1e6 for count in sent], values, marker=".", label=name)
    left.set(xlabel="round", ylabel=metric, title=f"{metric} over rounds")
    left.xaxis.get_major_locator().set_params(integer=True)
    right.set(xlabel="MB a client has sent", title=f"{metric} over bytes sent, as encoded")
    for panel in (left, right):
        panel.legend()
    saved(picture, path)
    return metric


def best_values(run: Run) -> dict[str, tuple[float, int]]:
    """The best value of every metric and its round."""
    best: dict[str, tuple[float, int]] = {}
    for line in run.rounds():
        for name, value in _numbers(line["metrics"]).items():
            sign = 1 if lower_is_better(name) else -1
            if not math.isnan(value) and (name not in best or sign * value < sign * best[name][0]):
                best[name] = value, line["round"]
    return best


def _found(value: tuple[float, int] | None) -> str:
    return NOTHING if value is None else f"{value[0]:.4g} (round {value[1]})"


def budget(privacy: Line | None) -> str:
    """What noise costs over all rounds, in words."""
    if not privacy:
        return NOTHING
    said = f"ε = {privacy['epsilon']:.4g}, δ = {privacy['delta']:g}"
    if "epsilon of openers" in privacy:
        said += f" (ε = {privacy['epsilon of openers']:.4g} if an owner and its helpers collude)"
    return said


def _numbers(metrics: Line) -> dict[str, float]:
    return {name: math.nan if value is None else value for name, value in metrics.items()}


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found) if found else 0.0
