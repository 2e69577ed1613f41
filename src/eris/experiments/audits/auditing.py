"""Audits of whole runs: as they happen, or afterwards from what was recorded.

What an audit needs beside the messages is the attacker's: the architecture, the loss, the model
that everyone started from, and candidates; and the truth about those, which only the statistics
see. All of it follows from a recipe.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from eris.audit.accounting import Accounted, accounted
from eris.audit.attack import Attack, AttackReport, FinalModel, Noting, show
from eris.audit.candidates import Candidates
from eris.audit.completing import Completion
from eris.audit.eavesdropper import AggregatedTruth, Eavesdrop, Readers, Truth, gossiping
from eris.audit.exposure import Exposure
from eris.audit.gradients import SampleModel
from eris.audit.inversion import INVERSIONS, Ggl
from eris.audit.inversion.matching import Mode
from eris.audit.inversion.recorded import Reconstruction
from eris.audit.inversion.recorded import Truth as TrainedOn
from eris.audit.inversion.search import Inversion
from eris.audit.linkability import true_owners
from eris.audit.linked import NeighbourAudit
from eris.audit.mapping_attack import MappingAttack, TrueClients
from eris.audit.membership import Levels, Membership, MembershipAudit, MembershipReport
from eris.audit.neighbour import Neighbourhood
from eris.audit.similarity import Lpips
from eris.audit.watch import Watch
from eris.core.errors import DataUnavailable, InvalidSetting, one_of
from eris.core.noise import PrivacyClaim
from eris.core.vectors import Vector
from eris.data.cache import cache_root
from eris.data.lpips import load_lpips
from eris.experiments.audits.observers import FINAL_MODEL, named, usual
from eris.experiments.audits.priors import armed
from eris.experiments.runs.assembly import Assembly
from eris.experiments.runs.holdings import Holdings, canaries_of
from eris.experiments.runs.store import finite
from eris.protocol.enccluster.logarithms import LogarithmTable
from eris.protocol.gossip.peer import GossipSettings
from eris.protocol.observers import Observer
from eris.protocol.schemes import EncryptedClusters, Pruned
from eris.protocol.settings import Settings, model_digest
from eris.protocol.transcript import Record, Transcript
from eris.runtimes.logarithm_tables import kept_table
from eris.session import Budget
from eris.training.gradients import Loss
from eris.training.options import LocalTraining, RunningStatistics

Tell = Callable[[int, int], None]
"""Told of rounds done, and of how many."""


def kept_tables(reach: int) -> LogarithmTable:
    """Logarithms, for observers of encrypted sums: those that trainings keep."""
    return kept_table(cache_root() / "logarithms", reach)


@dataclass(frozen=True)
class AuditOptions(Levels):
    """What is asked: observers by name (all usual ones if none), and how thoroughly.

    ``every`` so many rounds are attacked. ``attacks`` are names in ``ATTACKS`` (the usual ones if
    none). ``mode`` is that of the inversions, which make ``restarts`` starts of ``iterations`` each
    (as many as is usual for each, if 0).
    """

    observers: tuple[str, ...] = ()
    every: int = 1
    attacks: tuple[str, ...] = ()
    mode: Mode = "mask-aware"
    restarts: int = 0
    iterations: int = 0

    def __post_init__(self) -> None:
        for name in self.attacks:
            if name not in ATTACKS:
                raise InvalidSetting("attack", name, one_of([*ATTACKS], name))
        if self.every < 1:
            raise InvalidSetting("every", self.every, "at least 1")
        if not 0 < self.confidence < 1:
            raise InvalidSetting("confidence", self.confidence, "a number between 0 and 1")


@dataclass(frozen=True, eq=False)
class Subject:
    """A run to audit: who was who, and what the attacker has beside the messages."""

    frame: Transcript
    """Membership and settings; its records are not looked at here."""
    module: nn.Module
    loss: Loss
    initial: Vector
    candidates: Candidates
    about: Mapping[str, Any]
    claim: PrivacyClaim | None = None
    openers: float | None = None
    """Of noise that clients share: ε towards an owner that has its helpers on its side."""
    delta: float = 1e-5
    noise: float = 0.0
    """Deviation of the noise on a client's update, as it arrives."""
    running_statistics: RunningStatistics = "refuse"
    local: LocalTraining | None = None
    """How clients train, where it is known."""
    trained: TrainedOn | None = None
    """What a client trained on, where more is known than of which candidates it had."""
    data: str | None = None
    """The data set's name, for attacks with a network that was trained on its like."""

    def __post_init__(self) -> None:
        agreed = self.settings.initial
        if len(self.initial) != self.settings.n:
            expected = f"{self.settings.n} parameters, as the transcript's"
            raise InvalidSetting("model to audit", f"{len(self.initial)} parameters", expected)
        if agreed and model_digest(self.initial) != agreed:
            found = f"of SHA-256 {model_digest(self.initial)[:16]}…"
            expected = f"the one the run started from, {agreed[:16]}…"
            raise InvalidSetting("initial model", found, expected)

    @property
    def settings(self) -> Settings | GossipSettings:
        """What was agreed."""
        return agreed(self.frame.settings)

    @property
    def places(self) -> int:
        """The coordinates of an update as it travels, of which an observer sees a share."""
        settings = self.settings
        return settings.places if isinstance(settings, Settings) else settings.n

    @property
    def samples(self) -> SampleModel:
        """What the attacker computes with."""
        data, choice = (self.candidates.inputs, self.candidates.targets), self.running_statistics
        return SampleModel(self.module, self.loss, *data, running_statistics=choice)


def agreed(text: str) -> Settings | GossipSettings:
    """The settings of a transcript."""
    gossip = '"kind": "gossip"' in text
    return GossipSettings.from_canonical(text) if gossip else Settings.from_canonical(text)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What an audit found, and what it found it on."""

    about: Mapping[str, Any]
    reports: Mapping[str, AttackReport]
    """By the attack's name."""
    accounted: Accounted | None = None
    openers: float | None = None
    """As the subject has it."""

    @property
    def report(self) -> MembershipReport:
        """That of the membership attack; an empty one if it was not asked for."""
        found = self.reports.get(Membership.name)
        return found if isinstance(found, MembershipReport) else MembershipReport()

    def others(self) -> dict[str, Any]:
        """The figures of all other attacks."""
        others = (report for name, report in self.reports.items() if name != Membership.name)
        return {title: rows for report in others for title, rows in report.figures().items()}

    def to_json(self) -> dict[str, Any]:
        """All figures as JSON has them; what is infinite is null."""
        spent = None
        if self.accounted is not None:
            spent = asdict(self.accounted) | {"epsilon": self.accounted.epsilon}
            spent |= {} if self.openers is None else {"epsilon of openers": self.openers}
        found = {
            "about": self.about,
            **self.report.figures(),
            "accounted": spent,
            **self.others(),
        }
        return {name: finite(value) for name, value in found.items()}


class Audit:
    """An audit under way: rounds go in, an outcome comes out.

    ``makers`` make other attacks than those that the options name.
    """

    def __init__(
        self,
        subject: Subject,
        options: AuditOptions,
        tell: Tell = lambda done, of: None,
        makers: Sequence[Callable[[Audit], Attack]] | None = None,
    ) -> None:
        self.subject, self.options, self.samples = subject, options, subject.samples
        self.tell = tell
        names = options.observers or tuple(usual(subject.frame, options.attacks))
        self._final = FINAL_MODEL in names
        self.observers: list[Observer] = []
        self.thorough: list[int] = []
        """The first observer of each name, that every score is computed for."""
        for name in names:
            found = named(name, subject.frame, options.seed)
            found = [observer for observer in found if observer not in self.observers]
            self.thorough += [len(self.observers)] if found else []
            self.observers += found
        self.owners: dict[int, int] = {}
        """Who is behind a sender, in gossip: for an attacker that is told, and never for others."""
        self.truths: list[Noting] = []
        """Told all messages of every round, for the statistics of attacks that need the truth."""
        self.watch = self._watch()
        chosen = [ATTACKS[name] for name in options.attacks or usual_attacks(subject.settings)]
        self.attacks = [make(self) for make in (chosen if makers is None else makers)]

    def _watch(self) -> Watch | Neighbourhood:
        subject, settings = self.subject, self.subject.settings
        if not self.observers:
            return Neighbourhood(())  # nobody who is sent a message
        if isinstance(settings, GossipSettings):
            return Neighbourhood.of(settings, subject.initial, self.observers)
        return Watch(subject.frame, subject.initial, self.observers, tables=kept_tables)

    def take(self, round: int, records: Sequence[Record]) -> None:
        """A round's messages."""
        if isinstance(self.subject.settings, GossipSettings):
            self.owners |= true_owners(self.subject.settings, records)
        for truth in self.truths:
            truth.note(round, records)
        attacked = (round - 1) % self.options.every == 0
        show(self.watch, round, records, self.attacks if attacked else ())

    def outcome(self, model: Vector | None, **about: Any) -> Outcome:
        """What came of it; ``model`` is the trained one, for who sees that only."""
        options, subject = self.options, self.subject
        if self._final:
            if model is None:
                raise InvalidSetting("observer", FINAL_MODEL, "a run that is finished")
            for attack in self.attacks:
                attack.see(FinalModel(model))
        reports = {attack.name: attack.report() for attack in self.attacks}
        spent = None if subject.claim is None else accounted(subject.claim, subject.delta)
        asked = {"audited every": options.every, "audit seed": options.seed}
        return Outcome({**subject.about, **asked, **about}, reports, spent, subject.openers)


def _membership(audit: Audit) -> Attack:
    subject, asked, options = audit.subject, audit.subject.candidates, audit.options
    if not audit.observers:
        return Membership(audit.samples, asked, options)
    if isinstance(audit.watch, Neighbourhood):
        if not audit.watch.watches:
            expected = f"a neighbour; a tap where nodes gossip is for the attack {Eavesdrop.name}"
            raise InvalidSetting("observer", audit.observers[0].name, expected)
        return NeighbourAudit(
            audit.watch.watches, audit.samples, asked, options, owners=audit.owners
        )
    exposures = [
        Exposure(one, asked.clients, subject.places, noise=subject.noise, seed=options.seed)
        for one in audit.thorough
    ]
    return MembershipAudit(
        audit.observers, audit.samples, asked, options,
        joint=audit.thorough, losses=audit.thorough, exposures=exposures,
    )  # fmt: skip


def _completion(audit: Audit) -> Attack:
    settings = audit.subject.settings
    scheme = settings.scheme if isinstance(settings, Settings) else None
    asked, seed = audit.subject.candidates, audit.options.seed
    return Completion(audit.observers, audit.thorough, audit.samples, asked, scheme, seed=seed)


def reconstruction(attack: Inversion, audit: Audit, **options: Any) -> Reconstruction:
    """An inversion of what an audit's observers see; ``options`` are those of
    :class:`Reconstruction`."""
    subject, asked = audit.subject, audit.subject.candidates
    return Reconstruction(
        _knowing(attack, subject), audit.samples, audit.observers, audit.thorough, asked.clients,
        subject.trained or asked.trained_on, local=subject.local, lpips=_lpips(),
        owners=audit.owners, seed=audit.options.seed,
        tell=lambda share: audit.tell(round(1000 * share), 1000), **options,
    )  # fmt: skip


def _reconstruction(name: str, audit: Audit) -> Attack:
    options, attack = audit.options, armed(name, audit.subject.data)
    budget = replace(
        attack.usual,
        iterations=options.iterations or attack.usual.iterations,
        restarts=options.restarts or attack.usual.restarts,
    )
    return reconstruction(attack, audit, mode=options.mode, budget=budget)


def _knowing(attack: Inversion, subject: Subject) -> Inversion:
    """An attack that models what was done to updates, told what this run's method does."""
    if not isinstance(attack, Ggl):
        return attack
    if isinstance(getattr(subject.settings, "scheme", None), Pruned):
        return replace(attack, defence="pruned")
    return attack if subject.claim is None else replace(attack, defence="noisy")


def _lpips() -> Lpips | None:
    """The metric, if its weights have been fetched."""
    try:
        return Lpips(load_lpips().folder)
    except DataUnavailable:
        return None


def _eavesdrop(audit: Audit) -> Attack:
    subject, settings, taps = audit.subject, audit.subject.settings, audit.observers
    clients = [tap.link[0] for tap in taps if tap.link is not None]
    truth: Truth
    readers: Readers | None = None
    if isinstance(settings, GossipSettings):
        truth, readers = gossiping(settings, subject.initial, audit.owners, clients)
    else:
        truth = AggregatedTruth(subject.frame, subject.initial, clients, tables=kept_tables)
    audit.truths.append(truth)
    own = len(audit.samples.flat)
    parameters = own if own < settings.n else None
    return Eavesdrop(
        taps, subject.initial, truth, parameters=parameters, seed=audit.options.seed,
        readers=readers,
    )  # fmt: skip


def _mappings(audit: Audit) -> Attack:
    if not isinstance(audit.watch, Watch):
        expected = "membership or eavesdrop: where nodes gossip nobody opens a sum"
        raise InvalidSetting("attack", MappingAttack.name, expected)
    truth = TrueClients(audit.subject.frame, audit.subject.initial, tables=kept_tables)
    audit.truths.append(truth)
    return MappingAttack(audit.observers, audit.thorough, truth, audit.options.seed)


ATTACKS: dict[str, Callable[[Audit], Attack]] = {
    Membership.name: _membership,
    MappingAttack.name: _mappings,
    Completion.name: _completion,
    Eavesdrop.name: _eavesdrop,
    **{name: partial(_reconstruction, name) for name in INVERSIONS},
}
"""What makes each attack, from all that an audit has."""
USUAL = [Membership.name]
"""The attacks of an audit for which none is named; the others take minutes."""


def usual_attacks(settings: Settings | GossipSettings) -> list[str]:
    """Those of a run: where centroids are encrypted, that on mappings is one of them."""
    scheme = getattr(settings, "scheme", None)
    clustered = isinstance(scheme, EncryptedClusters) and not scheme.unread
    return [*USUAL, MappingAttack.name] if clustered else USUAL


def needs_canaries(attacks: Sequence[str]) -> bool:
    """Whether some of these attacks (the usual ones if none) are judged by fair coins.

    >>> needs_canaries([]), needs_canaries(["eavesdrop", "idlg"])
    (True, False)
    """
    return Membership.name in (attacks or USUAL)


def subject_of(
    assembly: Assembly,
    frame: Transcript,
    candidates: Candidates | None = None,
    *,
    attacks: Sequence[str] = (),
) -> Subject:
    """What a recipe says of a run of it; candidates are its canaries unless others are given.

    A run without canaries can be shown to ``attacks`` that do not need them.
    """
    recipe, data = assembly.recipe, assembly.samples
    asked = {"candidates": len(candidates)} if candidates is not None else {}
    if candidates is None and not recipe.data.canaries and not needs_canaries(attacks):
        candidates = _everything(data)
    elif candidates is None:
        candidates = canaries_of(recipe.data.resolved(), recipe.seed, assembly.tokenise)
        asked = {"canaries": len(candidates)}
    about = assembly.about()
    sizes = [len(part) for part in data.parts]
    budget, noise = _privacy(assembly, frame, sum(sizes) / len(sizes))
    return Subject(
        frame,
        assembly.module,
        assembly.samples.loss,
        assembly.initial,
        candidates,
        {
            "data": f"{data.source}",
            "partition": recipe.data.partition,
            "clients": assembly.clients,
            "samples trained on": f"{min(sizes)} to {max(sizes)} a client",
            **asked,
            "model": f"{recipe.model.name}, {len(assembly.initial):,} parameters",
            "method": recipe.method.name,
            "rounds": recipe.training.rounds,
            "seed": recipe.seed,
            "versions": about["versions"],
        },
        None if budget is None else budget.claim,
        None if budget is None else budget.openers,
        1e-5 if budget is None else budget.delta,
        noise,
        recipe.training.running_statistics,
        None if recipe.training.scaffold else LocalTraining(**recipe.training.local()),
        lambda client: (
            torch.as_tensor(data.inputs[data.parts[client]]),
            torch.as_tensor(data.targets[data.parts[client]]),
        ),
        recipe.data.name,
    )


def _everything(data: Holdings) -> Candidates:
    """What clients trained on, and test samples that none did, dealt to them in turn."""
    sizes = [len(part) for part in data.parts]
    own, others = np.concatenate(data.parts), np.arange(min(sum(sizes), len(data.test_targets)))
    return Candidates(
        torch.from_numpy(np.concatenate([data.inputs[own], data.test_inputs[others]])),
        torch.from_numpy(np.concatenate([data.targets[own], data.test_targets[others]])),
        np.concatenate([np.repeat(np.arange(len(sizes)), sizes), others % len(sizes)]),
        np.arange(len(own) + len(others)) < len(own),
        coins=False,
    )


def _privacy(assembly: Assembly, frame: Transcript, samples: float) -> tuple[Budget | None, float]:
    """What is promised, and the noise on an update: σ on the sum of a step's gradients or, where
    clients share it, each one's own part."""
    _, budget = assembly.federation.noise(assembly.recipe.training.rounds)
    if budget is None:
        return None, 0.0
    settings = agreed(frame.settings)
    shared = settings.noise if isinstance(settings, Settings) else None
    if shared is not None:
        return budget, shared.std / shared.divisor(samples)
    return budget, budget.claim.sigma / samples


def audit_live(assembly: Assembly, options: AuditOptions, tell: Tell | None = None) -> Outcome:
    """Train a recipe and audit it round by round, without keeping its messages."""
    rounds = assembly.recipe.training.rounds
    with assembly.training(record=True) as training:
        frame = training.transcript
        assert frame is not None
        training.note_views(*range(1, rounds + 1))  # they say who will be there to look
        subject = subject_of(assembly, frame, attacks=options.attacks)
        audit = Audit(subject, options, tell or (lambda done, of: None))
        for round, records in training.rounds_seen(rounds):
            audit.take(round, records)
            if tell is not None:
                tell(round, rounds)
        metrics = assembly.evaluate(training)
        return audit.outcome(training.model, metrics=metrics)


def audit_transcript(
    subject: Subject, transcript: Transcript, options: AuditOptions, tell: Tell | None = None
) -> Outcome:
    """Audit a recorded run."""
    audit = Audit(subject, options, tell or (lambda done, of: None))
    rounds = by_round(transcript)
    for done, (round, records) in enumerate(sorted(rounds.items()), start=1):
        audit.take(round, records)
        if tell is not None:
            tell(done, len(rounds))
    return audit.outcome(transcript.final_model)


def by_round(transcript: Transcript) -> dict[int, list[Record]]:
    """A run's messages by the round they are of."""
    found: dict[int, list[Record]] = defaultdict(list)
    for record in transcript.records:
        found[record.message.header.round].append(record)
    if not found:
        raise InvalidSetting("transcript", "without a message", "a recorded run")
    return found
