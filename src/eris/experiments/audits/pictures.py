"""Pictures of an audit: ROC curves, accuracy by round, weights and updates, bound and measurement.

A score has the same colour in all of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from eris.audit.alignment import ALIGNED, COSINE, NORMALISED, PAPER
from eris.audit.candidates import Candidates
from eris.audit.exposure import Exposed
from eris.audit.gaussian import WeightHistogram
from eris.audit.inversion.recorded import ReconstructionReport
from eris.audit.membership import FINAL, JOINT, LOSS, Finding
from eris.audit.roc import roc_curve
from eris.experiments.audits.auditing import Outcome
from eris.experiments.audits.grids import grid
from eris.experiments.audits.report import observers
from eris.experiments.figures import panels, saved

COLOURS = {
    PAPER: "#E69F00",
    ALIGNED: "#56B4E9",
    NORMALISED: "#009E73",
    COSINE: "#0072B2",
    JOINT: "#D55E00",
    LOSS: "#CC79A7",
}
"""Told apart by people who see fewer colours, too (Okabe and Ito)."""
WIDTHS = dict(zip(COLOURS, (4.0, 3.0, 2.2, 1.5, 1.5, 1.5), strict=True))
"""Where scores agree, their lines lie on each other: the later ones are thinner."""
PANELS = 6
ROUNDS_SHOWN = 6


def draw(outcome: Outcome, candidates: Candidates, folder: Path) -> list[Path]:
    """All pictures there is something for."""
    folder.mkdir(parents=True, exist_ok=True)
    blocks = list(observers(outcome)[0].items())[:PANELS]
    made = []
    if blocks:
        made += [_roc(outcome, candidates, blocks, folder / "roc.png")]
    watched = [
        (name, findings)
        for name, findings in blocks
        if name != FINAL and any(found.paper is not None for found in findings)
    ]
    if watched:
        every = int(outcome.about.get("audited every", 1))
        made += [_rounds(every, watched, folder / "rounds.png")]
    looked = [one for one in outcome.report.exposures if one.updates.statistics]
    if looked:
        seen = [one.observer for one in outcome.report.exposed]
        names = seen if len(seen) == len(looked) else [f"observer {o.observer}" for o in looked]
        for what in ("weights", "updates"):
            histograms = [getattr(one, what) for one in looked]
            made += [_values(what, dict(zip(names, histograms, strict=True)), folder)]
    if outcome.report.exposed:
        made += [_bounds(outcome.report.exposed, folder / "bound.png")]
    for report in outcome.reports.values():
        if isinstance(report, ReconstructionReport):
            made += [grid(report, folder / f"{report.attack}.png")]
    return made


Blocks = Sequence[tuple[str, list[Finding]]]


def _roc(outcome: Outcome, candidates: Candidates, blocks: Blocks, path: Path) -> Path:
    """A panel an observer, a curve a score."""
    figure, axes = panels(len(blocks), 4.0 * len(blocks), 4.2)
    for axis, (name, findings) in zip(axes, blocks, strict=True):
        truth = candidates.included[outcome.report.judged[name]]
        for found in findings:
            curve = roc_curve(outcome.report.scores[name, found.score], truth)
            label = f"{found.score} {found.roc.auc:.2f}"
            axis.step(curve.false_positive, curve.true_positive, where="post", label=label,
                      color=COLOURS[found.score], linewidth=WIDTHS[found.score])  # fmt: skip
        axis.plot([0, 1], [0, 1], color="grey", linewidth=0.8, linestyle=":")
        axis.set(xlabel="others accused", title=name, xlim=(0, 1), ylim=(0, 1.01))
        axis.legend(fontsize="x-small", title="score, AUC", title_fontsize="x-small", loc=4)
    axes[0].set_ylabel("members found")
    return saved(figure, path)


def _rounds(every: int, blocks: Blocks, path: Path) -> Path:
    """The papers' accuracy round by round, and what permuted membership reaches in 5 % of draws."""
    figure, axes = panels(len(blocks), 4.4 * len(blocks), 3.6, sharey=True)
    for axis, (name, findings) in zip(axes, blocks, strict=True):
        for found in findings:
            if found.paper is None:
                continue
            accuracy = 100 * np.array(found.paper.by_round)
            style = {"color": COLOURS[found.score], "linewidth": WIDTHS[found.score]}
            if found.score == JOINT:
                axis.axhline(accuracy.max(), label=f"{JOINT}, rounds at once", **style)
            else:
                rounds = 1 + every * np.arange(len(accuracy))
                axis.plot(rounds, accuracy, marker=".", label=found.score, **style)
            level = 100 * found.paper.null_q95
            axis.axhline(level, linewidth=0.8, linestyle="--", color=COLOURS[found.score])
        axis.axhline(50, color="grey", linewidth=0.8, linestyle=":")
        axis.set(xlabel="round", title=name)
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.legend(fontsize="x-small")
    axes[0].set_ylabel("right guesses, %")
    figure.suptitle("by round; dashed: 95 % of permuted memberships stay below", fontsize="small")
    return saved(figure, path)


def _values(what: str, histograms: Mapping[str, WeightHistogram], folder: Path) -> Path:
    """How what is visible of a client is distributed, in some of the rounds.

    ERIS figure 7 has its weights; what is attacked, and gives members away, are its updates.
    """
    import matplotlib.pyplot as plt

    figure, axes = panels(len(histograms), 4.6 * len(histograms), 3.8)
    for axis, (who, histogram) in zip(axes, histograms.items(), strict=True):
        middle = (histogram.edges[1:] + histogram.edges[:-1]) / 2
        width = histogram.edges[1] - histogram.edges[0]
        picked = np.unique(np.linspace(0, len(histogram.statistics) - 1, ROUNDS_SHOWN).astype(int))
        shades = plt.get_cmap("viridis")(np.linspace(0, 0.85, len(picked)))
        for row, shade in zip(picked.tolist(), shades, strict=True):
            found = histogram.statistics[row]
            density = histogram.counts[row] / (found.count * width)
            axis.step(middle, density, where="mid", color=shade, linewidth=1,
                      label=f"round {found.round}, σ {found.deviation:.2g}")  # fmt: skip
        last = histogram.statistics[int(picked[-1])]
        if last.deviation > 0:
            bell = np.exp(-(((middle - last.mean) / last.deviation) ** 2) / 2)
            bell /= last.deviation * math.sqrt(2 * math.pi)
            axis.plot(middle, bell, color="black", linewidth=0.8, linestyle="--",
                      label="a Gaussian of the last σ")  # fmt: skip
        rounds = len(histogram.statistics)
        rejected = round(histogram.rejected * rounds)
        # From one value in a bin up, and where there are any.
        floor = 0.5 / (last.count * width)
        filled = np.flatnonzero(histogram.counts.any(axis=0))
        ends = (histogram.edges[filled[0]], histogram.edges[filled[-1] + 1])
        axis.set(xlabel=f"{what}, by coordinate", ylabel="density", yscale="log", xlim=ends)
        axis.set_ylim(bottom=floor)
        told = f"{who}: Gaussian rejected in {rejected} of {rounds} rounds"
        axis.set_title(f"{told}, excess kurtosis {last.excess_kurtosis:.2g}", fontsize="small")
        axis.legend(fontsize="x-small")
    return saved(figure, folder / f"{what}.png")


def _bounds(exposed: Sequence[Exposed], path: Path) -> Path:
    """Bound and measurement on one axis; an infinite bound is written, not drawn."""
    figure, axes = panels(1, 7.5, 1.2 + 0.9 * len(exposed))
    (axis,) = axes
    axis.set_axisbelow(True)
    places = np.arange(len(exposed))
    least = 0.1
    rows = (
        ("measured", "#D55E00", [one.measured for one in exposed]),
        ("bound as ERIS F.1 reads it", "#E69F00", [one.paper for one in exposed]),
        ("bound given the data", "#0072B2", [one.honest for one in exposed]),
        ("all there is", "#999999", [one.ceiling for one in exposed]),
    )
    largest = max(value for _, _, values in rows for value in values if math.isfinite(value))
    for offset, (label, colour, values) in enumerate(rows):
        at = places + 0.2 * (offset - 1.5)
        drawn = [max(least, value) if math.isfinite(value) else least for value in values]
        axis.barh(at, drawn, height=0.18, color=colour, label=label)
        for place, value in zip(at, values, strict=True):
            if math.isinf(value):
                axis.text(1.2 * least, place, "infinite: no bound holds", va="center",
                          fontsize="x-small", color=colour)  # fmt: skip
    axis.set(xscale="log", xlim=(least, 3 * max(largest, 1)), xlabel="nats about one client")
    axis.set_yticks(places, [one.observer for one in exposed])
    axis.invert_yaxis()
    figure.legend(fontsize="x-small", ncols=4, loc="outside upper center")
    return saved(figure, path)
