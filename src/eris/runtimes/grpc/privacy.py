"""A node's side of shared noise: what its data may still be used for, and what that has cost.

Whether a round is entered depends on charges alone, never on data: a round that was charged, in
this start or another, is not trained again, and one for which nothing is left is abstained from.
A node that abstains goes on following the others, and helping them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.core.errors import ErisError, InvalidSetting, MissingExtra
from eris.core.vectors import Vector
from eris.protocol.agreement import networked
from eris.protocol.authority.standing import Scheduled
from eris.protocol.round.giving import Job
from eris.protocol.secure.charges import (
    AlreadyCharged,
    BudgetSpent,
    Charges,
    NoiseCharge,
    PrivacyBudget,
)
from eris.protocol.secure.noise_terms import Level, SharedNoise
from eris.protocol.secure.noising import NoiseFault, sent_rows
from eris.protocol.secure.sending import SecureSender
from eris.protocol.settings import Settings
from eris.runtimes.grpc import storage
from eris.runtimes.grpc.journal import Journal
from eris.runtimes.grpc.logs import event
from eris.runtimes.grpc.sections import PrivacyTable
from eris.runtimes.privacy_ledger import LedgerRecord, PrivacyLedger, PrivacyLedgerRefused
from eris.training.trainer import ClippingTrainer, Learner, LocalUpdate, PerSampleClip

_log = logging.getLogger("eris.node")
FAULT = "noise-fault.txt"
"""Beside a checkpoint: why this node's noise is not to be trusted."""
MADE_UP = b"made up"
"""In place of the tag of noise that nobody here remembers: a round with it is never trained."""
RECORD = "privacy"
"""What a checkpoint calls its note of the ledger."""
REFUSALS = (BudgetSpent, AlreadyCharged, NoiseFault, PrivacyLedgerRefused, MissingExtra)
"""Why a client abstains whose training is as good as any other."""


class NodePrivacy:
    """The ledger of a node's data, and the rounds in which it may draw noise.

    ``known`` is what the node's checkpoint says of itself: a ledger that is missing or behind it is
    refused here.
    """

    def __init__(
        self, agreed: Settings, table: PrivacyTable, folder: Path,
        known: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        assert agreed.noise is not None
        assert agreed.secure is not None
        assert table.data is not None
        self.noise: SharedNoise = agreed.noise
        self.grid = self.noise.grid(agreed.secure.ring_bytes, agreed.precision.fraction_bits)
        self.data = table.data
        self._agreed, self._colluders = agreed, agreed.secure.known
        self._run = agreed.name
        self._fault = folder / FAULT
        if self._fault.exists():
            raise ErisError(
                f"{self._fault} says: {self._fault.read_text('utf-8')}; remove the file when the "
                "fault is found and mended"
            )
        self._weight, self._steps = table.weight, 0
        note = (known or {}).get(RECORD)
        record = None if note is None else LedgerRecord.parse(note)
        try:
            table.ledger.mkdir(parents=True, exist_ok=True)
        except OSError as failed:
            expected = f"a folder that this node may write to ({failed.strerror})"
            raise InvalidSetting("privacy.ledger", str(table.ledger), expected) from None
        self.ledger = PrivacyLedger(table.ledger, self.data, budgets(self.noise, table), record)
        self.abstains = ""
        """Why this node gives nothing to the current round, if so."""
        self.behind = ""
        """What the ledger had forgotten, if so."""
        self._included, self._made_up = 0, 0
        self._looked, self._may = 0, False
        self._broken: ErisError | None = None
        self._told: type[ErisError] | None = None
        """The kind of reason that was last said."""
        # What figures need that is not installed is said before anybody is told of this node; and
        # what takes long to compute is known when the first round asks for it.
        self.figures(self.ledger.charges)

    def attach(
        self, sender: SecureSender, run: str, views: Sequence[Scheduled], journal: Journal
    ) -> None:
        """Watch over a member's noise, in a run of the federation."""
        self._sender, self._journal = sender, journal
        # A federation that is begun anew has other rounds: they add up, and are no repetition.
        if run:
            self._run = f"{self._agreed.name}/{run}"
        # Of its own: it is used while the member's is, in another thread.
        self._coding = networked(self._agreed, views).coding
        sender.charge, sender.allows = self._charge, self.allows
        self.tell()

    def tell(self) -> None:
        """Log what the data has cost so far."""
        event(_log, logging.INFO, "privacy", data=self.data, spent=self.said)

    # -- what may be drawn --------------------------------------------------------------------

    def allows(self, round: int) -> bool:
        """Whether noise may be drawn for a round; looked up once a round."""
        if round > self.noise.rounds:
            return False  # training is over
        if round != self._looked:
            self._looked, self._may = round, True
            try:
                if self._broken is not None:
                    raise self._broken
                self._make_up()
                self.ledger.check(self._cost(round, 0, b"", b""))
            except REFUSALS as refused:
                self.refuse(round, refused)
            else:
                self.abstains, self._told = "", None
        return self._may

    def hear(self, included: int) -> None:
        """This client is in results of a round, as far as is known here or peers tell.

        If it was never charged, this machine was brought back with an old ledger. The round and
        those before it that the ledger may have lost are charged now, as agreed; as long as that
        cannot be done, nothing is given.
        """
        included = min(included, self.noise.rounds)
        if included > self._included:
            self._included = included
            try:
                self._make_up()
            except REFUSALS as refused:
                self.refuse(self._looked, refused)

    def _make_up(self) -> None:
        if self._made_up == self._included:
            return
        cost = self._cost(self._included, 0, b"", MADE_UP, self._weight or self.noise.samples)
        rounds = self.ledger.make_up(cost)
        self._made_up = self._included
        if rounds:
            self._looked = 0  # what may be drawn is another question now
            self.behind = (
                f"the ledger was behind: this client is in results of round {rounds[-1]}, which it "
                f"did not hold; rounds {rounds[0]} to {rounds[-1]} are charged now"
            )
            event(_log, logging.WARNING, "ledger behind", data=self.data, problem=self.behind)
            self._journal.write("ledger behind", rounds=rounds)

    def refuse(self, round: int, why: ErisError) -> None:
        """Abstain from a round, and say so once; from all that are to come, in this start and in
        others, if the noise itself is at fault."""
        self._looked, self._may, self.abstains = round, False, str(why)
        if isinstance(why, NoiseFault) and self._broken is None:
            self._broken = why
            try:
                storage.replace(self._fault, [str(why).encode()], "this node abstains all the same")
            except ErisError as failed:
                event(_log, logging.ERROR, "privacy", problem=str(failed))
        if self._told is not type(why):
            self._told = type(why)
            event(_log, logging.WARNING, "abstains", round=round, data=self.data, reason=str(why))
            self._journal.write("abstains", round=round, reason=str(why))

    def _charge(self, round: int, tag: bytes) -> None:
        training = self._sender.training
        assert training is not None
        self._make_up()
        self.ledger.charge(self._cost(round, training.view.epoch, training.model, tag))

    def _cost(
        self, round: int, epoch: int, model: bytes, tag: bytes, samples: int | None = None
    ) -> NoiseCharge:
        return NoiseCharge.of(
            self.noise, self.grid, federation=self._run, epoch=epoch, round=round, model=model,
            tag=tag, samples=samples or self._weight or 1,
            min_included=self._agreed.min_included, colluders=self._colluders,
        )  # fmt: skip

    # -- training -----------------------------------------------------------------------------

    def update(self, learner: Learner, job: Job) -> object:
        """What training gives in a round; with noise per sample, each sample clipped exactly."""
        if self.noise.protects == "client":
            return learner.update(job.model, job.round)
        assert isinstance(learner, ClippingTrainer)
        select = sent_rows(self._coding, job.round, 0)
        clip = PerSampleClip(self.noise.clip, self.grid.fine_places, select, self._weight)
        if self.noise.sampling_rate == 1:
            return learner.clipped_update(job.model, job.round, clip)
        self._foresee(job.round)
        asked: list[int] = []

        def batch(slots: int) -> NDArray[np.bool_] | None:
            asked.append(slots)
            return self._sender.batch(job.round, slots)

        made = learner.clipped_update(job.model, job.round, replace(clip, batch=batch))
        if not asked:
            expected = (
                "one whose clipped_update takes the samples of clip.batch alone: what a round "
                "costs counts on it"
            )
            raise InvalidSetting("training.trainer", type(learner).__name__, expected)
        return made

    def _foresee(self, round: int) -> None:
        """Compute what will be shown after a round while it is trained, in that thread: of secret
        batches it takes a while, and the others are not to wait for it."""
        charges = self.ledger.charges
        self.figures(replace(charges, whole=(*charges.whole, self._cost(round, 0, b"", b""))))

    def weighed(self, update: LocalUpdate) -> LocalUpdate:
        """An update with this client's public weight and steps: those of its first, for they are
        opened as they are, and must not follow the data."""
        samples, steps = self._weight or int(update.samples), self._steps or int(update.steps)
        if samples > (most := self.noise.samples):
            expected = f"at most {most}, federation.most_samples"
            raise InvalidSetting("samples of this client", samples, expected)
        self._weight, self._steps = samples, steps
        return replace(update, samples=samples, steps=steps, metrics={})

    def nothing(self, job: Job) -> LocalUpdate | None:
        """What is sent where training failed, for to send nothing could tell why: zeros, which get
        noise like all; None as long as this client's weight is not known."""
        if self._weight is None:
            return None
        count = int(self._coding.edges(job.round, 0)[-1])
        zeros, content = np.zeros_like(job.model), np.zeros(count, np.int64)
        return LocalUpdate(zeros, self._weight, self._steps or 1, content=content)

    # -- showing ------------------------------------------------------------------------------

    @property
    def said(self) -> str:
        """Both figures of the data so far."""
        charges, rate = self.ledger.charges, self.noise.sampling_rate
        try:
            if not len(charges):
                left = int(charges.rounds_left(self._each, self.ledger.budgets, rate))
                return f"nothing yet, 0 of {left} rounds (one {self.noise.protects})"
            return charges.said(self._budget, self._each, rate)
        except MissingExtra as missing:  # others have drawn batches of the same data meanwhile
            return str(missing)

    def figures(self, charges: Charges) -> tuple[float, float, float]:
        """ε of readers and of openers after these charges, and the rounds that are left."""
        each, rate = self._each, self.noise.sampling_rate
        left = charges.rounds_left(each, self.ledger.budgets, rate)
        return *charges.epsilons(self._budget, each, rate), left

    def shown(self) -> dict[str, Any]:
        """What a status has of it."""
        try:
            readers, openers, left = self.figures(self.ledger.charges)
        except MissingExtra:  # as it says
            readers, openers, left = None, None, 0
        return {
            "epsilon_readers": readers,
            "epsilon_openers": openers,
            "privacy_rounds_left": int(left),
            "privacy": {
                "data": self.data,
                "protects": self.noise.protects,
                "said": self.said,
                "abstains": self.abstains,
                "behind": self.behind,
            },
        }

    @property
    def _budget(self) -> PrivacyBudget:
        return next(one for one in self.ledger.budgets if one.level == self.noise.protects)

    @property
    def _each(self) -> Mapping[str, tuple[float, float]]:
        return self._cost(0, 0, b"", b"").amounts


def budgets(noise: SharedNoise, table: PrivacyTable) -> list[PrivacyBudget]:
    """What the data may cost in all: as its operator has it, otherwise as the federation does."""
    given: dict[Level, float | None]
    given = {"sample": table.epsilon_sample, "client": table.epsilon_client}
    given[noise.protects] = given[noise.protects] or noise.epsilon
    return [
        PrivacyBudget(level, epsilon, noise.delta)
        for level, epsilon in given.items()
        if epsilon is not None
    ]


def check_learner(learner: Learner, noise: SharedNoise, initial: Vector) -> None:
    """Refuse training that cannot keep the promise, before anybody is told of this node."""
    if noise.protects == "client":
        return
    if not isinstance(learner, ClippingTrainer):
        expected = (
            "one with check_clipping and clipped_update for noise per sample, as TorchTrainer has "
            'them; with federation.protects = "client" any training works'
        )
        raise InvalidSetting("training.trainer", type(learner).__name__, expected)
    # Only those that know of batches are asked about them.
    packed = {"packed": True} if noise.sampling_rate < 1 else {}
    learner.check_clipping(initial.copy(), **packed)
