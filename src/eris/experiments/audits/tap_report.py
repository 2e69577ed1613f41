"""What came of the FLIP paper's experiments: tables beside its figures, and curves by round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from eris.experiments.audits.tap_images import CONTROL, FLIP, FLOP, NBAFL, SINGLE
from eris.experiments.figures import panels, percent, saved
from eris.experiments.runs.printed import printed

FIGURES, IMAGES = "FLIP section IV", "FLIP figure 3"
CURVES = {
    "client": ("client", "#0072B2"),
    "zero": ("tap from zero", "#999999"),
    "first": ("tap from the first model", "#E69F00"),
    "trained": ("tap from the first trained model", "#D55E00"),
    "first, all heard": ("from the first, all heard", "#009E73"),
    "models": ("tap, if models travel", "#56B4E9"),
    "NbAFL": ("client under NbAFL", "#CC79A7"),
}
Row = Mapping[str, Any]


def tables(found: Sequence[Row]) -> tuple[Table, ...]:
    """Figure 1; figures 2 and 3; figure 4 with (18); protection by γ. Ours beside the paper's."""
    return _accuracies(found), _images(found), _noise(found), _protections(found)


def _paper(row: str) -> str:
    return printed(FIGURES, row, "accuracy")


def _accuracies(found: Sequence[Row]) -> Table:
    table = Table("", "client", "paper", "from zero", "paper", "from the first model", "paper",
                  "from the first trained", "zero, all heard", "paper", "first, all heard",
                  "if models travel", "zero, other interceptions", "first, other interceptions",
                  "first, best scale",
                  title="FLIP figure 1: test accuracy, %")  # fmt: skip
    for one in found:
        taps = one["taps"]
        table.add_row(
            one["setting"], percent(one["client"]), _paper("client"), percent(taps["zero"]),
            _paper("from zero"), percent(taps["first"]), _paper("from the first model"),
            percent(taps["trained"]), percent(taps["zero, all heard"]), _paper("all heard"),
            percent(taps["first, all heard"]), percent(taps["models"]),
            *(_spread(one["interceptions"][name]) for name in ("zero", "first")),
            percent(max(one["scales"]["first"])),
        )  # fmt: skip
    return table


def _spread(shares: Sequence[float]) -> str:
    """
    >>> _spread([0.1, 0.25, 0.13])
    '10.0 to 25.0'
    """
    return f"{percent(min(shares))} to {percent(max(shares))}"


def _images(found: Sequence[Row]) -> Table:
    names = (FLIP, NBAFL, FLOP)
    labelled = [f"{name}, {labels}" for name in names for labels in ("DLG's labels", "closest's")]
    table = Table("", *labelled[:2], "paper", *labelled[2:4], "paper", *labelled[4:],
                  "FLIP to NbAFL: MSE", "paper", "SSIM", "paper",
                  *(f"SSIM to the closest: {name}" for name in (*names, CONTROL)),
                  f"SSIM: {SINGLE}",
                  title="FLIP figures 2 and 3: accuracy on DLG's images, %; how alike they are",
                  )  # fmt: skip
    for one in found:
        of = one["images"]
        asked = [
            [percent(of[name][f"accuracy, {labels}"])
             for labels in ("DLG's labels", "labels of the closest")]
            for name in names
        ]  # fmt: skip
        table.add_row(
            one["setting"], *asked[0], _paper("DLG, FLIP"), *asked[1], _paper("DLG, DP-FL"),
            *asked[2], f"{of['apart']:.1f}", printed(IMAGES, "FLIP, DP-FL", "MSE"),
            f"{of['alike']:.2f}", printed(IMAGES, "FLIP, DP-FL", "SSIM"),
            *(f"{of[name]['SSIM']:.3f}" for name in (*names, CONTROL, SINGLE)),
        )  # fmt: skip
    return table


def _noise(found: Sequence[Row]) -> Table:
    table = Table("", "client, %", "client under NbAFL, %", "‖x^c − x^a‖², zero, all heard",
                  "of (18)", "best p", title="FLIP figure 4, and equation (18)")  # fmt: skip
    for one in found:
        kept = one["protection"]
        table.add_row(
            one["setting"], percent(one["client"]), percent(one["client, NbAFL"]),
            f"{kept['measured']:.1f}", f"{kept['of (18)']:.1f}", f"{kept['best p']:.2f}",
        )  # fmt: skip
    return table


def _protections(found: Sequence[Row]) -> Table:
    gammas = [f"γ = {gamma:g}" for gamma in found[0]["protection"]["γ"]]
    table = Table("", "tap", *gammas, title="E‖x^c − x^a‖² after the last round over all "
                  "interceptions, in % of ‖x^c − x_0‖²")  # fmt: skip
    for one in found:
        kept = one["protection"]
        for name in ("increments, from zero", "increments, from first", "models, from zero"):
            shares = [100 * value / kept["moved"] for value in kept[name]]
            table.add_row(one["setting"], name, *(f"{share:.0f}" for share in shares))
    return table


def curves(found: Sequence[Row], path: Path) -> Path:
    """Figures 1 and 4: accuracy by round, in the rounds that the client is in."""
    picture, axes = panels(len(found), 4.2 * len(found), 3.8, sharey=True)
    for axis, one in zip(axes, found, strict=True):
        lines = {"client": one["client by round"], **one["taps by round"]}
        lines["NbAFL"] = one["client by round, NbAFL"]
        for name, (label, colour) in CURVES.items():
            axis.plot(one["rounds"], 100 * np.array(lines[name]), marker=".", linewidth=1.2,
                      color=colour, label=label)  # fmt: skip
        axis.axhline(10, color="grey", linewidth=0.8, linestyle=":")
        axis.set(xlabel="round", title=one["setting"])
    axes[0].set_ylabel("test accuracy, %")
    axes[0].legend(fontsize="x-small")
    return saved(picture, path)
