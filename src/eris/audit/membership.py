"""The membership audit of a run: from an observer's views over scores to statistics.

Scores never look at the truth, and what is guessed from them is fixed in advance: the top third is
in, the bottom third is out. Statistics compare with the truth afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from eris.audit.alignment import ALIGNED, COSINE, NAMES, PAPER, Aligner, Alignment, Scores
from eris.audit.candidates import Candidates
from eris.audit.gradients import SampleModel
from eris.audit.joint import JointRegression
from eris.audit.one_run import Bound, bound
from eris.audit.paper_measure import PaperMeasure, paper_measure, paper_measures
from eris.audit.roc import Roc, roc
from eris.audit.statistics import FEWEST, Pooled, pooled
from eris.audit.watch import Sight, Watch
from eris.core.errors import InvalidSetting
from eris.core.vectors import Indices, Vector
from eris.protocol.observers import Observer
from eris.protocol.transcript import Record

LOSS, JOINT = "loss", "joint"


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

    findings: tuple[Finding, ...]
    everyone: tuple[Everyone, ...]
    scores: Mapping[tuple[str, str], Scores] = field(repr=False)
    """By observer and score: summed over the rounds, of the candidates that were judged."""
    judged: Mapping[str, Indices] = field(repr=False)

    def finding(self, observer: str, score: str) -> Finding:
        """The finding of that observer and score."""
        for found in self.findings:
            if (found.observer, found.score) == (observer, score):
                return found
        known = ", ".join(sorted({f"{f.observer}/{f.score}" for f in self.findings}))
        raise InvalidSetting("finding", f"{observer}/{score}", f"one of {known}")


class MembershipAudit:
    """Attacks what the observers of a :class:`Watch` see, round by round.

    ``joint`` and ``losses`` are the numbers of the observers for which the regression and the loss
    of the completed model are computed as well: they cost more than the alignment, which every
    observer has. ``also`` are shown every sight.
    """

    def __init__(
        self,
        watch: Watch,
        samples: SampleModel,
        candidates: Candidates,
        *,
        joint: Sequence[int] = (),
        losses: Sequence[int] = (),
        also: Sequence[Callable[[Sight], None]] = (),
        seed: int = 0,
    ) -> None:
        self.watch, self.samples, self.candidates = watch, samples, candidates
        self._also = tuple(also)
        self._seed, self._losses = seed, tuple(losses)
        self._joint = {o: JointRegression(candidates, seed=seed) for o in joint}
        self._scores: dict[str, list[Scores]] = {name: [] for name in NAMES}
        self._visible: list[Scores] = []
        self._loss: dict[int, list[Scores]] = {o: [] for o in losses}

    @property
    def rounds(self) -> int:
        """How many rounds have been taken in."""
        return len(self._visible)

    def take(self, round: int, records: Iterable[Record]) -> None:
        """Attack a round; one of which nothing reached anybody does not count."""
        count = len(self.watch.observers)
        scores = {name: np.zeros((count, len(self.candidates))) for name in NAMES}
        visible = np.zeros((count, len(self.candidates.clients)))
        any_seen = False
        for sight in self.watch.follow(round, records):
            any_seen = True
            rows = list(sight.observers)
            for look in self._also:
                look(sight)
            aligned = self._attack(sight)
            visible[rows] = aligned.visible
            for name in NAMES:
                scores[name][rows] = aligned.scores[name]
            for observer in self._losses:
                if observer in rows:
                    self._loss[observer].append(self._completed(sight, observer))
        if not any_seen:
            return
        for name in NAMES:
            self._scores[name].append(scores[name].astype(np.float32))
        self._visible.append(visible)

    def skip(self, round: int, records: Iterable[Record]) -> None:
        """Follow a round without attacking it."""
        for _ in self.watch.follow(round, records):
            pass

    def _attack(self, sight: Sight) -> Alignment:
        """Everything that takes the candidates' gradients, in one pass over them."""
        aligner = Aligner(self.candidates, sight)
        regressions = []
        for observer, regression in self._joint.items():
            if observer in sight.observers and not regression.full:
                regression.begin(sight, observer)
                regressions.append(regression)
        for place, gradient in self.samples.gradients(sight.model):
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

    def report(
        self, *, draws: int = 1000, delta: float = 1e-5, confidence: float = 0.95
    ) -> MembershipReport:
        """Compare the guesses with the truth."""
        if not self.rounds:
            raise InvalidSetting("rounds", 0, "at least one round to audit")
        judge = Judge(self.candidates, self._seed, draws, delta, confidence)
        for number, observer in enumerate(self.watch.observers):
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
        owners = [o for o, w in enumerate(self.watch.observers) if w.kind == "aggregator"]
        told = self.candidates.included.any() and not self.candidates.included.all()
        shown = (PAPER, ALIGNED, COSINE) if len(owners) > 1 and told else ()
        return judge.report(tuple(self._everyone(judge, name, owners) for name in shown))

    def _everyone(self, judge: Judge, name: str, owners: Sequence[int]) -> Everyone:
        truth, client = self.candidates.included, self.candidates.client
        scores = np.stack([each[list(owners)] for each in self._scores[name]], axis=1)
        summed = scores.sum(axis=1)
        curves = [roc(one, truth).auc for one in summed]
        guessed = [pooled(one, truth) for one in summed]
        worst = int(np.argmax([found.right for found in guessed]))
        mean = most = None
        if np.bincount(client).max() >= FEWEST:
            each = paper_measures(scores, client, truth, seed=self._seed, draws=judge.draws)
            mean, most, worst = each.mean, each.worst, each.worst_observer
        best = max(guessed, key=lambda found: found.right)
        return Everyone(
            name,
            len(owners),
            mean,
            most,
            self.watch.observers[owners[worst]].name,
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
    if observer.kind == "coalition":
        return np.flatnonzero(~np.isin(candidates.client, list(observer.members)))
    return np.arange(len(candidates))


def final_model(
    samples: SampleModel, candidates: Candidates, model: Vector, judge: Judge | None = None
) -> MembershipReport:
    """The audit of someone who is given the trained model and nothing else: −ℓ of every candidate.

    This is the least that any training gives away.
    """
    judge = judge or Judge(candidates)
    scores = -samples.losses(model)[None]
    judge.add("final model", LOSS, scores, np.arange(len(candidates)), 0.0)
    return judge.report(())


class Judge:
    """Turns scores into findings."""

    def __init__(
        self,
        candidates: Candidates,
        seed: int = 0,
        draws: int = 1000,
        delta: float = 1e-5,
        confidence: float = 0.95,
    ) -> None:
        self.candidates, self.draws = candidates, draws
        self._seed, self._delta, self._confidence = seed, delta, confidence
        self._findings: list[Finding] = []
        self._scores: dict[tuple[str, str], Scores] = {}
        self._judged: dict[str, Indices] = {}

    def add(self, observer: str, score: str, each: Scores, places: Indices, visible: float) -> None:
        """An observer's scores (rounds, candidates)."""
        truth, client = self.candidates.included[places], self.candidates.client[places]
        each = each[:, places]
        summed = each.sum(axis=0)
        self._scores[observer, score], self._judged[observer] = summed, places
        if len(places) == 0 or truth.all() or not truth.any():
            return  # nobody to tell apart
        over_all = pooled(summed, truth, self._confidence)
        shown, reason = self.bound(over_all)
        right = max((pooled(one, truth) for one in each), key=lambda found: found.right)
        best, _ = self.bound(right, looks=len(each))
        measure = None
        if np.bincount(client).max() >= FEWEST:
            measure = paper_measure(each, client, truth, seed=self._seed, draws=self.draws)
        self._findings.append(
            Finding(observer, score, len(places), len(each), visible, measure, over_all,
                    roc(summed, truth, self._confidence), shown, best, reason)
        )  # fmt: skip

    def bound(self, found: Pooled, looks: int = 1) -> tuple[Bound | None, str]:
        """The one-run lower bound on ε, or why there is none."""
        if not self.candidates.coins:
            return None, "membership was not decided by fair coins"
        try:
            count, right = found.guesses, found.right
            return bound(
                found.canaries, count, right, self._delta, self._confidence, looks=looks
            ), ""
        except InvalidSetting as few:
            return None, str(few)

    def report(self, everyone: tuple[Everyone, ...]) -> MembershipReport:
        """All findings so far."""
        return MembershipReport(tuple(self._findings), everyone, self._scores, self._judged)
