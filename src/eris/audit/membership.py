"""The membership attack on a run: from an observer's views over scores to statistics.

Scores never look at the truth, and what is guessed from them is fixed in advance: the top third is
in, the bottom third is out. Statistics compare with the truth afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import numpy as np

from eris.audit.alignment import ALIGNED, COSINE, NAMES, PAPER, Aligner, Alignment, Scores
from eris.audit.attack import FinalModel
from eris.audit.candidates import Candidates
from eris.audit.exposure import Exposed, Exposure
from eris.audit.gradients import SampleModel
from eris.audit.joint import JointRegression
from eris.audit.neighbour import NeighbourSight
from eris.audit.one_run import Bound, bound
from eris.audit.paper_measure import PaperMeasure, paper_measure, paper_measures
from eris.audit.roc import Roc, roc
from eris.audit.statistics import FEWEST, Pooled, pooled
from eris.audit.watch import Sight
from eris.core.errors import InvalidSetting
from eris.core.vectors import Indices
from eris.protocol.observers import Observer

LOSS, JOINT = "loss", "joint"
FINAL = "final model"


@dataclass(frozen=True)
class Finding:
    """What one score of one observer tells: by the paper's measure, and over all rounds together.

    ``pooled``, ``roc`` and ``bound`` are of the scores summed over the rounds, one look that was
    fixed in advance; ``best_round`` is the bound of the best single round, corrected for having
    looked at all of them. ``no_bound`` says why there is none.
    """

    observer: str
    score: str
    canaries: int
    rounds: int
    visible: float
    """Coordinates of an asked client's own update that it saw a round, on average."""
    paper: PaperMeasure | None
    pooled: Pooled
    roc: Roc
    bound: Bound | None
    best_round: Bound | None
    no_bound: str = ""


@dataclass(frozen=True)
class Everyone:
    """All aggregators: each for itself, their mean, and the worst of them.

    The paper's measures are None where no client has three canaries to guess about; the others are
    of the scores summed over the rounds, canaries of all clients pooled.
    """

    score: str
    observers: int
    mean: PaperMeasure | None
    worst: PaperMeasure | None
    worst_observer: str
    mean_pooled: float
    worst_pooled: float
    mean_auc: float
    worst_auc: float
    bound: Bound | None
    """Of the aggregator with the most right guesses, corrected for having looked at all."""


@dataclass(frozen=True, eq=False)
class MembershipReport:
    """All findings of an audit, and the scores they come from."""

    findings: tuple[Finding, ...] = ()
    everyone: tuple[Everyone, ...] = ()
    exposed: tuple[Exposed, ...] = ()
    scores: Mapping[tuple[str, str], Scores] = field(default_factory=dict, repr=False)
    """By observer and score: summed over the rounds, of the candidates that were judged."""
    judged: Mapping[str, Indices] = field(default_factory=dict, repr=False)
    exposures: tuple[Exposure, ...] = field(default=(), repr=False)

    def figures(self) -> dict[str, list[dict[str, Any]]]:
        """All that was judged."""
        tables = {name: getattr(self, name) for name in ("findings", "everyone", "exposed")}
        return {name: [asdict(row) for row in rows] for name, rows in tables.items()}

    def finding(self, observer: str, score: str) -> Finding:
        """The finding of that observer and score."""
        for found in self.findings:
            if (found.observer, found.score) == (observer, score):
                return found
        known = ", ".join(sorted({f"{f.observer}/{f.score}" for f in self.findings}))
        raise InvalidSetting("finding", f"{observer}/{score}", f"one of {known}")


@dataclass(frozen=True, kw_only=True)
class Levels:
    """How scores are judged."""

    draws: int = 1000
    delta: float = 1e-5
    confidence: float = 0.95
    seed: int = 0


class Membership:
    """What the membership attacks on both kinds of runs share: the end of it.

    Whoever is given the trained model alone scores a candidate by −ℓ there.
    """

    name: ClassVar[str] = "membership"
    rounds = 0
    """How many rounds have been seen."""

    def __init__(
        self, samples: SampleModel, candidates: Candidates, levels: Levels | None = None
    ) -> None:
        self.samples, self.candidates, self.levels = samples, candidates, levels or Levels()
        self._final: Scores | None = None

    def see(self, sight: Sight | NeighbourSight | FinalModel) -> None:
        """Score every candidate."""
        if isinstance(sight, FinalModel):
            self._final = -self.samples.losses(sight.model)

    def report(self) -> MembershipReport:
        """Compare the guesses with the truth."""
        if not self.rounds and self._final is None:
            raise InvalidSetting("rounds", 0, "at least one round to audit")
        judge = Judge(self.candidates, self.levels)
        if self.rounds:
            self._judge(judge)
        if self._final is not None:
            judge.add(FINAL, LOSS, self._final[None], np.arange(len(self.candidates)), 0.0)
        return judge.report()

    def _judge(self, judge: Judge) -> None:
        """Hand in the scores of the rounds."""


class MembershipAudit(Membership):
    """Attacks what the observers of a run with aggregators see, round by round.

    ``joint`` and ``losses`` are the numbers of the observers for which the regression and the loss
    of the completed model are computed as well: they cost more than the alignment, which every
    observer has. ``exposures`` collect what the theory's bounds need of observers with a
    regression.
    """

    def __init__(
        self,
        observers: Sequence[Observer],
        samples: SampleModel,
        candidates: Candidates,
        levels: Levels | None = None,
        *,
        joint: Sequence[int] = (),
        losses: Sequence[int] = (),
        exposures: Sequence[Exposure] = (),
    ) -> None:
        super().__init__(samples, candidates, levels)
        self.observers, self.exposures = tuple(observers), tuple(exposures)
        self._joint = {o: JointRegression(candidates, seed=self.levels.seed) for o in joint}
        self._round = 0
        self._scores: dict[str, list[Scores]] = {name: [] for name in NAMES}
        self._visible: list[Scores] = []
        self._loss: dict[int, list[Scores]] = {o: [] for o in losses}

    def see(self, sight: Sight | NeighbourSight | FinalModel) -> None:
        """Score every candidate by what these observers have of a round."""
        if not isinstance(sight, Sight):
            super().see(sight)
            return
        if sight.round != self._round:
            self._begin(sight.round)
        for exposure in self.exposures:
            exposure(sight)
        rows, aligned = list(sight.observers), self._attack(sight)
        self._visible[-1][rows] = aligned.visible
        for name in NAMES:
            self._scores[name][-1][rows] = aligned.scores[name]
        for observer, scores in self._loss.items():
            if observer in rows:
                scores.append(self._completed(sight, observer))

    def _begin(self, round: int) -> None:
        """What an observer does not see of a round scores 0."""
        count = len(self.observers)
        self._round, self.rounds = round, self.rounds + 1
        for name in NAMES:
            self._scores[name].append(np.zeros((count, len(self.candidates)), np.float32))
        self._visible.append(np.zeros((count, len(self.candidates.clients))))

    def _attack(self, sight: Sight) -> Alignment:
        """Everything that takes the candidates' gradients, in one pass over them."""
        aligner = Aligner(self.candidates, sight)
        regressions = []
        for observer, regression in self._joint.items():
            if observer in sight.observers and not regression.full:
                regression.begin(sight, observer)
                regressions.append(regression)
        for place, found in self.samples.gradients(sight.model):
            gradient = sight.placed(found)
            aligner.add(place, gradient)
            for regression in regressions:
                regression.add(place, gradient)
        for regression in regressions:
            regression.finish()
        return aligner.finish()

    def _completed(self, sight: Sight, observer: int) -> Scores:
        """−ℓ of every candidate at the model moved by what was seen of its client's update."""
        scores = np.zeros(len(self.candidates))
        for client in self.candidates.clients:
            places = self.candidates.of(client)
            scores[places] = -self.samples.losses(sight.completed(observer, client), places)
        return scores

    # -- what came of it ----------------------------------------------------------------------

    def _judge(self, judge: Judge) -> None:
        for number, observer in enumerate(self.observers):
            places = judged_places(observer, self.candidates)
            asked = np.isin(self.candidates.clients, self.candidates.client[places])
            visible = float(np.mean([seen[number][asked] for seen in self._visible]))
            for name in NAMES:
                each = np.stack([scores[number] for scores in self._scores[name]])
                judge.add(observer.name, name, each, places, visible)
            if number in self._loss:
                each = np.stack(self._loss[number])
                judge.add(observer.name, LOSS, each, places, visible)
            if number in self._joint:
                once = self._joint[number].scores()[None]
                judge.add(observer.name, JOINT, once, places, visible)
        owners = [o for o, w in enumerate(self.observers) if w.kind == "aggregator"]
        told = self.candidates.included.any() and not self.candidates.included.all()
        shown = (PAPER, ALIGNED, COSINE) if len(owners) > 1 and told else ()
        judge.everyone = tuple(self._everyone(judge, name, owners) for name in shown)
        judge.exposed, judge.exposures = tuple(self._theory(judge)), self.exposures

    def _theory(self, judge: Judge) -> Iterator[Exposed]:
        for exposure in self.exposures:
            name = self.observers[exposure.observer].name
            for finding in judge.findings:
                if (finding.observer, finding.score) == (name, JOINT):
                    asked = self.candidates.client[judge.judged[name]]
                    found = exposure.exposed(name, finding.pooled, len(set(asked.tolist())))
                    yield from () if found is None else (found,)

    def _everyone(self, judge: Judge, name: str, owners: Sequence[int]) -> Everyone:
        truth, client = self.candidates.included, self.candidates.client
        scores = np.stack([each[list(owners)] for each in self._scores[name]], axis=1)
        summed = scores.sum(axis=1)
        curves = [roc(one, truth).auc for one in summed]
        guessed = [pooled(one, truth) for one in summed]
        worst = int(np.argmax([found.right for found in guessed]))
        mean = most = None
        if np.bincount(client).max() >= FEWEST:
            seed, draws = self.levels.seed, self.levels.draws
            each = paper_measures(scores, client, truth, seed=seed, draws=draws)
            mean, most, worst = each.mean, each.worst, each.worst_observer
        best = max(guessed, key=lambda found: found.right)
        return Everyone(
            name,
            len(owners),
            mean,
            most,
            self.observers[owners[worst]].name,
            float(np.mean([found.accuracy for found in guessed])),
            best.accuracy,
            float(np.mean(curves)),
            float(np.max(curves)),
            judge.bound(best, looks=len(owners))[0],
        )


def judged_places(observer: Observer, candidates: Candidates) -> Indices:
    """The candidates an observer is asked about: not those of colluders, of a link its sender's.

    An aggregator is asked about its own too, as if somebody else owned its shards.
    """
    if observer.link is not None:
        return candidates.of(observer.link[0])
    if observer.kind in ("coalition", "openers"):
        return np.flatnonzero(~np.isin(candidates.client, list(observer.members)))
    return np.arange(len(candidates))


class Judge:
    """Turns scores into findings."""

    def __init__(self, candidates: Candidates, levels: Levels | None = None) -> None:
        self.candidates, self.levels = candidates, levels or Levels()
        self.findings: list[Finding] = []
        self.scores: dict[tuple[str, str], Scores] = {}
        self.judged: dict[str, Indices] = {}
        self.everyone: tuple[Everyone, ...] = ()
        self.exposed: tuple[Exposed, ...] = ()
        self.exposures: tuple[Exposure, ...] = ()

    def add(self, observer: str, score: str, each: Scores, places: Indices, visible: float) -> None:
        """An observer's scores (rounds, candidates)."""
        levels = self.levels
        truth, client = self.candidates.included[places], self.candidates.client[places]
        each = each[:, places]
        summed = each.sum(axis=0)
        self.scores[observer, score], self.judged[observer] = summed, places
        if len(places) == 0 or truth.all() or not truth.any():
            return  # nobody to tell apart
        over_all = pooled(summed, truth, levels.confidence)
        shown, reason = self.bound(over_all)
        right = max((pooled(one, truth) for one in each), key=lambda found: found.right)
        best, _ = self.bound(right, looks=len(each))
        measure = None
        if np.bincount(client).max() >= FEWEST:
            measure = paper_measure(each, client, truth, seed=levels.seed, draws=levels.draws)
        self.findings.append(
            Finding(observer, score, len(places), len(each), visible, measure, over_all,
                    roc(summed, truth, levels.confidence), shown, best, reason)
        )  # fmt: skip

    def bound(self, found: Pooled, looks: int = 1) -> tuple[Bound | None, str]:
        """The one-run lower bound on ε, or why there is none."""
        if not self.candidates.coins:
            return None, "membership was not decided by fair coins"
        try:
            levels = self.levels.delta, self.levels.confidence
            return bound(found.canaries, found.guesses, found.right, *levels, looks=looks), ""
        except InvalidSetting as few:
            return None, str(few)

    def report(self) -> MembershipReport:
        """All of it."""
        return MembershipReport(tuple(self.findings), self.everyone, self.exposed, self.scores,
                                self.judged, self.exposures)  # fmt: skip
