"""A plan, and a sweep of plans, in words, as JSON and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from eris.experiments.figures import NOTHING, figure, panels, saved, say, widened
from eris.planning.division import alike
from eris.planning.judgements import assumptions, cost_of_noise, judgements
from eris.planning.plan import MBIT, FederationPlan, planned
from eris.planning.rivals import rivals
from eris.planning.sweep import WhatIf
from eris.theory.leakage import leakage_bound
from eris.theory.shared_noise import best_auc

FEW = 12
"""Members that are listed one by one."""


def show(plan: FederationPlan) -> None:
    """Print a plan."""
    asked = plan.question
    say(f"{asked.clients} clients, {asked.parameters:,} parameters, {asked.rounds:,} rounds", "")
    say(*(f"{name:<14}{value}" for name, value in _settings(plan).items()), "")
    console = widened(Console(highlight=False), 100)
    console.print(_methods(plan))
    say("", *_bytes(plan), "")
    say("What an attacker gets:")
    for one in judgements(plan):
        say(f"- {one.stand}: {one.about}: {one.says}.")
        say(*(f"  - {fact.says} ({fact.setting}): {fact.source}" for fact in one.measured))
    say("", "Bounds:", *(f"- {line}" for line in _bounds(plan)))
    say("", "Assumed:", *(f"- {line}" for line in assumptions(plan)))


def _settings(plan: FederationPlan) -> dict[str, str]:
    """The settings, a line each."""
    asked, shares = plan.question, plan.division.shares
    if alike(shares):
        sizes = f"equal, {100 * shares[0]:.3g} % each"
    else:
        sizes = f"weighted by links, {100 * min(shares):.3g} to {100 * max(shares):.3g} %"
    owners = f"{plan.aggregators} of {asked.clients}"
    if plan.aggregators < asked.clients and plan.aggregators <= FEW:
        owners += f": {', '.join(asked.name(one) for one in plan.division.owners)}"
    kept = f"{100 * plan.kept:g} %"
    if plan.kept < 1:
        kept += ", in a rotated basis" if plan.rotated else ", with shifted compression"
    found = {"owners": owners, "shards": sizes, "kept": kept}
    if plan.secure is None:
        found["secure sums"] = "none: an owner reads every client's values in its shard"
    else:
        found["secure sums"] = f"{plan.secure.threshold}, words of {asked.ring_bytes} bytes"
    found["min_included"] = str(plan.min_included)
    if plan.noise is None:
        found["noise"] = "none: over rounds nothing hides who was trained on"
    else:
        found["noise"] = (
            f"ε = {plan.noise.epsilon:g} for one {asked.protects} over all rounds; every client "
            f"adds {plan.noise.of_a_client:.3g} of its clip {asked.clip:g}"
        )
    return found


def _methods(plan: FederationPlan) -> Table:
    """Seconds and bytes beside other methods'."""
    table = Table(
        "a round on these links", *(f"{name}" for name in ("s", "× ours", "MB up", "down"))
    )
    for column in table.columns[1:]:
        column.justify = "right"
    sent, fetched = (max(load[way] for load in plan.traffic) for way in range(2))
    rows = [
        ("this plan, predicted", plan.seconds, sent, fetched),
        ("this plan, limit of the links", plan.limit, sent, fetched),
        *((f"{one.name}, bound", one.seconds, one.up, one.down) for one in rivals(plan)),
    ]
    for name, seconds, up, down in rows:
        table.add_row(name, f"{seconds:,.2f}", f"{seconds / plan.limit:.2f}",
                      f"{up / 1e6:,.2f}", f"{down / 1e6:,.2f}")  # fmt: skip
    table.caption = "MB of the busiest client; × ours: of the limit; bounds are without training"
    return table


def _bytes(plan: FederationPlan) -> list[str]:
    """What every member sends and fetches, where they are few or alike."""
    asked, owners = (
        plan.question,
        dict(zip(plan.division.owners, plan.division.shares, strict=True)),
    )
    member, way, rate = plan.slowest
    uniform = len(set(plan.traffic)) == 1 and not isinstance(asked.links.up, Sequence)
    whose = "every member's" if uniform else f"{asked.name(member)}'s"
    lines = [f"The limit is {whose} link, {rate / MBIT:g} Mbit/s {way}."]
    if (weighted := _weighted_limit(plan)) is not None:
        lines.append(
            f"Shards weighted by links, which simulations can have (--for run): {weighted:,.2f} s."
        )
    loads = sorted(set(plan.traffic))
    if len(loads) > 1 and asked.clients <= FEW:
        lines.append("MB a round up and down:")
        for number, (up, down) in enumerate(plan.traffic):
            owned = f"owns {100 * owners[number]:.3g} %" if number in owners else "owns nothing"
            lines.append(f"- {asked.name(number)}, {owned}: {up / 1e6:,.2f}, {down / 1e6:,.2f}")
    else:
        up, down = (max(load[way] for load in loads) for way in range(2))
        lines.append(
            f"A member sends up to {up / 1e6:,.2f} MB a round and fetches {down / 1e6:,.2f}."
        )
    return lines


def _weighted_limit(plan: FederationPlan) -> float | None:
    """The limit with shards weighted by links, where that is less."""
    if plan.question.shards == "weighted" or plan.question.aggregators is not None:
        return None
    asked = replace(plan.question, shards="weighted", kept=plan.kept, seconds=None)
    limit = planned(asked).limit
    return limit if limit < 0.98 * plan.limit else None


def _bounds(plan: FederationPlan) -> list[str]:
    asked = plan.question
    if plan.secure is None:
        bound = leakage_bound(coordinates=asked.parameters, rounds=asked.rounds,
                              kept_fraction=plan.kept, share=plan.division.seen(asked.colluders),
                              capacity=1.0)  # fmt: skip
        lines = [
            f"{asked.colluders} owner{'s' if asked.colluders > 1 else ''} together: "
            f"{100 * bound.seen_share:.3g} % of an update a round, {bound.nats:,.0f} values over "
            "all rounds; times C_max that is ERIS theorem 3.3, and without noise C_max has no bound"
        ]
    else:
        lines = [
            f"{asked.colluders} colluder{'s' if asked.colluders > 1 else ''}: no value of a single "
            f"update; sums of {plan.min_included} clients at least"
        ]
    if plan.noise is not None:
        readers, openers = plan.noise.epsilon, plan.noise.epsilon_of_openers
        lines.append(
            f"ε ≤ {readers:g} for readers with up to {plan.noise.colluders} colluders, ε ≤ "
            f"{openers:.1f} for an owner whose helpers collude (δ = {plan.noise.delta:g})"
        )
    if (cost := cost_of_noise(plan)) is not None:
        lines.append(cost)
    return lines


def as_json(plan: FederationPlan) -> dict[str, Any]:
    """A plan as data."""
    asked, noise = plan.question, plan.noise
    return {
        "clients": asked.clients,
        "parameters": asked.parameters,
        "rounds": asked.rounds,
        "aggregators": plan.aggregators,
        "owners": [asked.name(member) for member in plan.division.owners],
        "shares": list(plan.division.shares),
        "kept": plan.kept,
        "basis": None if plan.kept == 1 else "rotated" if plan.rotated else "coordinates",
        "secure_sums": "none" if plan.secure is None else str(plan.secure.threshold),
        "min_included": plan.min_included,
        "epsilon": None if noise is None else noise.epsilon,
        "epsilon_of_openers": None if noise is None else noise.epsilon_of_openers,
        "noise_of_a_client": None if noise is None else noise.of_a_client,
        "noise_over_gradient": plan.noise_ratio,
        "best_auc": None if noise is None else best_auc(noise.epsilon, noise.delta),
        "seen": plan.seen,
        "limit_seconds": plan.limit,
        "seconds": plan.seconds,
        "bytes": [
            {"member": asked.name(number), "up": up, "down": down}
            for number, (up, down) in enumerate(plan.traffic)
        ],
        "methods": [
            {"name": one.name, "bound_seconds": one.seconds, "up": one.up, "down": one.down}
            for one in rivals(plan)
        ],
        "judgements": [
            {
                "about": one.about,
                "stand": one.stand,
                "says": one.says,
                "measured": [asdict(fact) for fact in one.measured],
            }
            for one in judgements(plan)
        ],
        "assumed": assumptions(plan),
    }


# -- what if --------------------------------------------------------------------------------------

COLUMNS = ("owners", "kept", "secure", "s", "MB up", "down", "seen", "ε openers", "noise", "AUC ≤")


def show_sweep(quantity: str, points: Sequence[WhatIf]) -> None:
    """Print a sweep: a row a value, and why where there is no plan."""
    table = Table(quantity, *COLUMNS)
    for column in table.columns:
        column.justify = "right"
    for one in points:
        table.add_row(f"{one.value:g}", *_cells(one.plan))
    console = widened(Console(highlight=False), 110)
    console.print(table)
    say(
        "s: predicted; MB: of the busiest member; seen: of an update, by the colluders, a round; "
        "noise: its length over the longest mean gradient; AUC ≤: of the best attacker on results."
    )
    say(*(f"{quantity} = {one.value:g}: {one.refusal}" for one in points if one.plan is None))


def _cells(plan: FederationPlan | None) -> list[str]:
    if plan is None:
        return [NOTHING] * len(COLUMNS)
    noise = plan.noise
    up, down = (max(load[way] for load in plan.traffic) for way in range(2))
    return [
        str(plan.aggregators),
        f"{plan.kept:.3g}",
        NOTHING if plan.secure is None else str(plan.secure.threshold),
        f"{plan.seconds:,.2f}",
        f"{up / 1e6:,.2f}",
        f"{down / 1e6:,.2f}",
        f"{100 * plan.seen:.3g} %",
        figure(None if noise is None else noise.epsilon_of_openers, ".1f"),
        figure(plan.noise_ratio, ".3g"),
        figure(None if noise is None else best_auc(noise.epsilon, noise.delta), ".3f"),
    ]


def sweep_json(quantity: str, points: Sequence[WhatIf]) -> dict[str, Any]:
    """A sweep as data."""
    return {
        "what_if": quantity,
        "points": [
            {
                "value": one.value,
                "plan": None if one.plan is None else as_json(one.plan),
                "refusal": one.refusal,
            }
            for one in points
        ],
    }


def draw(quantity: str, points: Sequence[WhatIf], path: Path) -> None:
    """Seconds and bytes against the quantity; and what is seen, or what noise allows."""
    found = [(one.value, one.plan) for one in points if one.plan is not None]
    values = [value for value, _ in found]
    plans = [plan for _, plan in found]
    picture, (time, size, seen) = panels(3, 12, 3.6)
    time.plot(values, [one.seconds for one in plans], "o-", label="this plan, predicted")
    time.plot(values, [one.limit for one in plans], "o--", label="limit of the links")
    time.plot(values, [rivals(one)[0].seconds for one in plans], "s:", label="FedAvg, bound")
    time.set(ylabel="seconds a round", yscale="log")
    for way, name in enumerate(("up", "down")):
        loads = [max(load[way] for load in one.traffic) / 1e6 for one in plans]
        size.plot(values, loads, "o-", label=name)
    size.set(ylabel="MB a round, busiest member", yscale="log")
    if any(one.noise is not None for one in plans):
        noisy = [(v, one.noise) for v, one in found if one.noise is not None]
        aucs = [best_auc(noise.epsilon, noise.delta) for _, noise in noisy]
        openers = [best_auc(noise.epsilon_of_openers, noise.delta) for _, noise in noisy]
        seen.plot([v for v, _ in noisy], aucs, "o-", label="readers")
        seen.plot([v for v, _ in noisy], openers, "s:", label="owner with its helpers")
        seen.set(ylabel="AUC of the best attacker", ylim=(0.5, 1.01))
    else:
        seen.plot(values, [100 * one.seen for one in plans], "o-", label="colluders")
        most = max((one.seen for one in plans), default=0.0)
        seen.set(ylabel="% of an update read a round", ylim=(0, 105 * most or 1))
    for axis in (time, size):
        _plain_ticks(axis.yaxis)
    for axis in (time, size, seen):
        axis.set_xlabel("rate, Mbit/s" if quantity == "rate" else quantity)
        if values and min(values) > 0 and max(values) > 20 * min(values):
            axis.set_xscale("log")
            _plain_ticks(axis.xaxis)
        axis.legend(fontsize="small")
    saved(picture, path)


def _plain_ticks(axis: Any) -> None:
    """Numbers as people write them, where an axis is logarithmic."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axis.set_minor_locator(LogLocator(subs="all"))
    axis.set_minor_formatter("")
