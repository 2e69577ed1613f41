"""The least time of a round by other methods on the same links, as the papers count it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from eris.planning.division import VALUE_BYTES, rates
from eris.planning.plan import FederationPlan
from eris.theory.distribution_time import (
    Links,
    ako_round,
    fedavg_round,
    priprune_round,
    qdpsgd_round,
    shatter_round,
    soteriafl_round,
)
from eris.theory.secure_sums import secagg_bound_seconds

KEPT_BY_SOTERIAFL, KEPT_BY_PRIPRUNE, NEIGHBOURS = 0.05, 0.9, 4


@dataclass(frozen=True)
class Rival:
    """Another method: its bound in seconds, and the bytes of its busiest client."""

    name: str
    seconds: float
    up: float
    down: float


def rivals(plan: FederationPlan) -> list[Rival]:
    """Other methods for the same model and links, FedAvg first; bounds, without training.

    A server that nobody spoke of has the fastest link of all members.

    >>> from eris.planning.plan import planned
    >>> from eris.planning.question import Question
    >>> plan = planned(Question(clients=8, parameters=10**7, links=Links.uniform(12.5e6)))
    >>> rivals(plan)[0].seconds
    51.2
    """
    asked = plan.question
    clients, size, links = asked.clients, float(VALUE_BYTES * asked.parameters), served(plan)
    neighbours = min(NEIGHBOURS, clients - 1)
    costs = {
        "FedAvg": fedavg_round(size, clients, links),
        f"SoteriaFL, {KEPT_BY_SOTERIAFL:.0%} kept": soteriafl_round(
            size, clients, links, kept_fraction=KEPT_BY_SOTERIAFL
        ),
        f"PriPrune, {KEPT_BY_PRIPRUNE:.0%} kept": priprune_round(
            size, clients, links, kept_fraction=KEPT_BY_PRIPRUNE
        ),
        f"Shatter, {neighbours} neighbours": shatter_round(size, clients, neighbours, links),
        "Ako, 5 partitions": ako_round(size, clients, links),
        "Q-DPSGD-1, 6 bits": qdpsgd_round(size, clients, links),
    }
    found = [Rival(name, cost.seconds, cost.upload, cost.download) for name, cost in costs.items()]
    if plan.secure is not None:
        seconds = secagg_bound_seconds(asked.parameters, clients, links)
        found.append(Rival("SecAgg, one server", seconds, 2 * size, size))
    return found


def served(plan: FederationPlan) -> Links:
    """The links with a server's."""
    links, (up, down) = plan.question.links, rates(plan.question.links, plan.question.clients)
    return replace(
        links,
        server_up=links.server_up or float(up.max()),
        server_down=links.server_down or float(down.max()),
    )
