"""What our own attacks say of a plan. Nothing here is a promise but ε.

``broken``: an attack of ours gets through at this exposure. ``withstood``: the attacks that were
measured do not, which says nothing about others. ``bounded``: a proof bounds every attacker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from eris.planning.evidence import Fact, beside_noise, facts
from eris.planning.plan import NODE_SHARE, FederationPlan
from eris.theory.completion import completes
from eris.theory.reconstruction import Advice, advise
from eris.theory.shared_noise import best_auc, best_hits

Stand = Literal["broken", "withstood", "bounded"]
LITTLE = 0.85
"""The best attacker's area under the curve from which a bound promises little."""


@dataclass(frozen=True)
class Judgement:
    """Who asks what, how the plan stands, in words, and what was measured."""

    about: str
    stand: Stand
    says: str
    measured: tuple[Fact, ...]


def judgements(plan: FederationPlan) -> list[Judgement]:
    """Every attacker that the plan meets.

    >>> from eris.planning.plan import planned
    >>> from eris.planning.question import Question
    >>> from eris.theory.distribution_time import Links
    >>> plan = planned(Question(clients=3, parameters=1000, links=Links.uniform(1e6)))
    >>> [one.stand for one in judgements(plan)]
    ['broken', 'broken', 'broken']
    """
    if plan.secure is None:
        return [_owner(plan), *_pictures(plan), _members(plan)]
    return [_masked_owner(plan), _openers(plan), _members(plan)]


def _facts(*names: str) -> tuple[Fact, ...]:
    return tuple(facts()[name] for name in names)


def _owner(plan: FederationPlan) -> Judgement:
    many = plan.question.colluders
    together = f", {many} of them together {_share(plan.seen)}" if many > 1 else ""
    says = (
        f"an owner reads its shard of every client's update as it is, {_share(plan.seen_by_owner)} "
        f"of it a round{together}; that is enough to tell who was trained on"
    )
    measured = _facts("owner", *(["compressed-owner"] if plan.kept < 1 else []))
    return Judgement("membership, an owner", "broken", says, measured)


def _pictures(plan: FederationPlan) -> list[Judgement]:
    """Reconstruction from what colluders see; and by counting, where the layers are known."""
    samples, seen = plan.question.samples or 1, plan.seen
    through = [one for one in advise(1, seen, samples) if not one.stopped]
    about, measured = "reconstruction, an owner", _facts("visible")
    if through:
        says = f"at {_share(seen)} seen not stopped, of one sample: {_through(through)}"
        if samples > 1:
            says += f"; {samples:,} samples behind an update are harder to tell apart"
        found = [Judgement(about, "broken", says, measured)]
    else:
        says = f"at {_share(seen)} seen no attack that was measured got through"
        found = [Judgement(about, "withstood", says, measured)]
    done = [
        f"{rows} × {columns}"
        for rows, columns in plan.question.layers
        if completes(rows, columns, 1, seen, samples) != "no"
    ]
    if done:
        says = (
            "linear layers (rows × columns with the bias) that an owner may complete by counting, "
            f"with {samples:,} samples behind an update: {', '.join(done)}"
        )
        found.append(Judgement("completion, an owner", "broken", says, _facts("completion")))
    return found


def _through(advice: Sequence[Advice]) -> str:
    """Attacks that get through, and on which data: those that know the mask, and the others."""
    found: dict[tuple[str, str], set[str]] = {}
    for one in advice:
        found.setdefault((one.attack, one.mode), set()).add(one.data)
    return "; ".join(
        f"{attack} ({mode}) on {', '.join(sorted(data))}"
        for (attack, mode), data in sorted(found.items())
    )


def _masked_owner(plan: FederationPlan) -> Judgement:
    assert plan.secure is not None
    threshold = plan.secure.threshold
    says = (
        f"an owner, with up to {threshold.need - 1} of its {threshold.seats} helpers, reads sums "
        f"of {plan.min_included} clients at least, and no single update"
    )
    about = "single updates, an owner in one round"
    return Judgement(about, "withstood", says, _facts("masked-owner"))


def _openers(plan: FederationPlan) -> Judgement:
    assert plan.secure is not None
    says = f"an owner with {plan.secure.threshold.need} helpers reads every update in its shard"
    stand: Stand = "broken"
    if plan.noise is not None:
        epsilon = plan.noise.epsilon_of_openers
        auc = best_auc(epsilon, plan.noise.delta)
        says += f"; towards them noise promises ε = {epsilon:.1f}, AUC {auc:.3f} at most"
        if auc >= LITTLE:
            says += ", which is next to nothing"
        else:
            stand = "bounded"
    return Judgement("membership, an owner with its helpers", stand, says, _facts("openers"))


def _members(plan: FederationPlan) -> Judgement:
    """Whoever reads results, over all rounds."""
    about = "membership, every member over all rounds"
    if plan.noise is None and plan.secure is None:
        return Judgement(about, "broken", "no noise: means tell", _facts("means", "span"))
    if plan.noise is None:
        says = "masks hide a client inside one sum; over rounds only noise does"
        measured = _facts("means", "span", "choosing", "dropout", "false-model")
        return Judgement(about, "broken", says, measured)
    epsilon, delta = plan.noise.epsilon, plan.noise.delta
    auc, hits = best_auc(epsilon, delta), best_hits(epsilon, delta=delta)
    whose = "one sample" if plan.question.protects == "sample" else "one client's whole data"
    says = (
        f"ε = {epsilon:g} for {whose} over {plan.question.rounds:,} rounds (δ = {delta:g}) leaves "
        f"the best attacker AUC {auc:.3f} and {100 * hits:.1f} % hits at 1 % false alarms, at most"
    )
    if auc >= LITTLE:
        says += "; that is not much of a promise"
    return Judgement(about, "bounded", says, _facts("noisy"))


def cost_of_noise(plan: FederationPlan) -> str | None:
    """What noise of this size left of accuracy where it was measured."""
    ratio = plan.noise_ratio
    if ratio is None:
        return None
    near = beside_noise(ratio)
    assert near is not None, "a plan with more noise than was ever measured is refused"
    return (
        f"a round's noise is {ratio:.3g} times as long as the longest mean gradient; at "
        f"{near.ratio:.3g} times {near.model} had {near.accuracy:g} % instead of {near.clipped:g} "
        f"% (MNIST, 50 clients of {near.samples} samples, 160 rounds, seed 0; "
        "eris reproduce shared-noise)"
    )


def assumptions(plan: FederationPlan) -> list[str]:
    """What the figures take for granted."""
    asked = plan.question
    found = [
        "links are busy with this alone and have round trips of a few milliseconds; nobody is away",
        "seconds are those of nodes on shaped links (eight on two cores), scaled by the limit of "
        "these links; "
        + ("training is in them" if asked.training else "training comes on top of them"),
        "honest but curious members: one that lies about its own shard is believed",
    ]
    if plan.secure is not None:
        found.append(
            f"owner and helpers of a shard are of different parties, and no more "
            f"than {plan.secure.threshold.need - 1} of its helpers side with an owner"
        )
        if (uneven := plan.uneven_seats) is not None:
            held, seats = uneven
            found.append(
                f"{seats} seats of helpers are not spread evenly over {asked.clients} members: "
                f"every member is counted with {held}, the most that one holds"
            )
    elif asked.colluders > 5:
        found.append("no secure sums: they withstand an owner and 4 helpers at most")
    if plan.noise is not None:
        found.append(
            f"every sum is of {plan.min_included} clients at least, or is withheld; one record of "
            "one client is meant, and weights are public"
        )
    if asked.shards == "equal" and plan.division.seen(1) > NODE_SHARE:
        found.append(
            f"owners take {_share(plan.division.seen(1))} of an update: max_share in [node] says so"
        )
    if plan.kept < 1:
        basis = "a rotated basis" if plan.rotated else "the model's coordinates"
        found.append(
            f"kept sets are shared, in {basis}; whether training bears {100 * plan.kept:g} % kept "
            "is for a run to show"
        )
    return found


def _share(part: float) -> str:
    """A share of an update in percent.

    >>> _share(0.125), _share(0.00066)
    ('12.5 %', '0.066 %')
    """
    return f"{100 * part:.3g} %"
