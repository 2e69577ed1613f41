"""A plan as settings: a recipe for ``eris run``, a charter for ``eris node init``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eris.core.toml import toml_value
from eris.planning.division import alike
from eris.planning.plan import FederationPlan

MARK = "# Written by eris plan"


def recipe(plan: FederationPlan) -> dict[str, dict[str, Any]]:
    """The tables of a recipe.

    >>> from eris.planning.plan import planned
    >>> from eris.planning.question import Question
    >>> from eris.theory.distribution_time import Links
    >>> plan = planned(Question(clients=8, parameters=10**6, links=Links.uniform(1e6)))
    >>> recipe(plan)["method"]
    {'name': 'eris', 'aggregators': 8, 'secure': '2 of 3', 'colluders': 1}
    """
    asked = plan.question
    method: dict[str, Any] = {"name": "eris", "aggregators": plan.aggregators}
    shares = plan.division.shares
    if not alike(shares):
        method["capacities"] = [round(share, 6) for share in shares]
    method |= _compression(plan)
    if plan.secure is not None:
        method |= {"secure": str(plan.secure.threshold), "colluders": plan.secure.known}
        if asked.ring_bytes != 8:
            method["ring_bytes"] = asked.ring_bytes
    method |= _noise(plan)
    data: dict[str, Any] = {"clients": asked.clients}
    if asked.samples is not None:
        data["samples"] = asked.samples
    training: dict[str, Any] = {"rounds": asked.rounds}
    if plan.noise is not None and asked.protects == "sample":
        training |= {"steps": 1, "batch_size": 0}
    tables = {"data": data, "training": training, "method": method}
    return tables | {"agreement": {"min_included": plan.min_included}}


def charter(plan: FederationPlan) -> dict[str, dict[str, Any]]:
    """The tables of ``node.toml`` that are the same at all members, and who owns shards."""
    asked = plan.question
    words: dict[str, Any] = {"rounds": asked.rounds, "shards": plan.aggregators}
    words |= _compression(plan)
    words["secure_sums"] = "none" if plan.secure is None else str(plan.secure.threshold)
    if plan.secure is not None:
        words["colluders"] = plan.secure.known
        if asked.ring_bytes != 8:
            words["ring_bytes"] = asked.ring_bytes
    words |= _noise(plan)
    if plan.noise is not None:
        words["most_samples"] = asked.samples
    words["min_included"] = plan.min_included
    tables: dict[str, dict[str, Any]] = {
        "membership": {"start_with": asked.clients},
        "federation": words,
    }
    if plan.aggregators < asked.clients and asked.names:
        owners = [asked.name(member) for member in plan.division.owners]
        tables["plan"] = {"owners": owners}
    return tables


def text(plan: FederationPlan) -> str:
    """The settings as a file: a recipe where shards may be weighted, a charter otherwise."""
    if plan.question.shards == "weighted":
        tables = recipe(plan)
        told = "a recipe: eris run FILE; the owners are the first clients, in this order"
    else:
        tables = charter(plan)
        told = "a charter: eris node init NAME --charter FILE; the same file at all members"
        rest = plan.question.clients - plan.aggregators
        if rest and "plan" not in tables:
            told += f".\n# The {rest} members with the slowest links: aggregator = false in [node]"
    return f"{MARK}, {told}.\n{_written(tables)}"


def _compression(plan: FederationPlan) -> dict[str, Any]:
    if plan.kept == 1:
        return {}
    return {"kept_fraction": plan.kept, "basis": "rotated" if plan.rotated else "coordinates"}


def _noise(plan: FederationPlan) -> dict[str, Any]:
    if plan.noise is None:
        return {}
    asked = plan.question
    return {
        "epsilon": asked.epsilon,
        "delta": asked.delta,
        "clip": asked.clip,
        "protects": asked.protects,
    }


def _written(tables: Mapping[str, Mapping[str, Any]]) -> str:
    lines = []
    for title, table in tables.items():
        lines += ["", f"[{title}]"]
        lines += [f"{key} = {toml_value(value)}" for key, value in table.items()]
    return "\n".join(lines) + "\n"
