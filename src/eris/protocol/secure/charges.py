"""What noisy rounds have cost a data set: charges, accounts of samples and of clients, budgets.

A charge is b = Δ²/σ² and charges add up, over rounds, runs and federations on the same data, also
where these were chosen by what was seen before; ε follows from their sum. Towards readers σ is the
noise that every opened sum holds; towards an owner whose helpers open single contributions for it
it is one client's. The text of a charge is a JSON text of a sequence (RFC 7464) with a checksum, so
that one whose end is missing is known as such.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, get_args

from eris.core.errors import ErisError, InvalidSetting, require
from eris.core.noise import PrivacyClaim, epsilon
from eris.core.shared_noise import mu_of, rounds_left
from eris.protocol.secure.noise_terms import Level, NoiseGrid, SharedNoise

LEVELS: tuple[Level, ...] = get_args(Level)
BEGIN = b"\x1e"
"""Before every record: what stands between two is one record, whole or not."""
Amount = tuple[float, float]
"""b towards readers, and towards an owner with its helpers."""


class BudgetSpent(ErisError):
    """A round would cost more than is left: the client abstains from it and says so."""


class AlreadyCharged(ErisError):
    """A round was charged before, under other noise: it is never trained or sent again."""


class ChargesDamaged(ErisError):
    """A ledger's text has something in it that is no charge, and not just a missing end."""


@dataclass(frozen=True)
class NoiseCharge:
    """One round of one federation, charged before its noise was drawn.

    ``tag`` names the noise and tells nothing about content. A round that hides samples with b is,
    for the whole client, one of w²·b (its w samples move together); one that hides clients with b
    is, for one of its samples, one of 4·b at most, for that can turn the update anywhere in the
    ball. ``stands_for`` counts records before this one whose end is missing.
    """

    federation: str
    epoch: int
    round: int
    model: str
    level: Level
    tag: str
    amounts: Mapping[str, Amount]
    """By level."""
    min_included: int
    colluders: int
    std: str
    places: int
    delta: float
    stands_for: int = 0

    @classmethod
    def of(
        cls, noise: SharedNoise, grid: NoiseGrid, *, federation: str, epoch: int, round: int,
        model: bytes, tag: bytes, samples: int, min_included: int, colluders: int,
    ) -> NoiseCharge:  # fmt: skip
        """What a round costs a client with so many samples."""
        readers, openers = noise.charges
        factors = {"sample": (1, samples**2), "client": (4, 1)}[noise.protects]
        amounts: dict[str, Amount] = {
            level: (factor * readers, factor * openers)
            for level, factor in zip(LEVELS, factors, strict=True)
        }
        return cls(
            federation, epoch, round, model.hex(), noise.protects, tag.hex(), amounts,
            min_included, colluders, noise.of_a_client, grid.places, noise.delta,
        )  # fmt: skip

    def record(self) -> bytes:
        """The charge as it is written."""
        plain = asdict(self) | {
            "amounts": {level: [b.hex() for b in pair] for level, pair in self.amounts.items()}
        }
        text = json.dumps(plain, separators=(",", ":"), sort_keys=True).encode()
        return BEGIN + text + b"\t" + _checksum(text) + b"\n"

    @classmethod
    def parse(cls, record: bytes) -> NoiseCharge | None:
        """From what was written between two beginnings; None if that is not whole."""
        text, tab, checksum = record.removesuffix(b"\n").rpartition(b"\t")
        if not tab or checksum != _checksum(text):
            return None
        found: dict[str, Any] = json.loads(text)
        amounts = {
            level: (float.fromhex(pair[0]), float.fromhex(pair[1]))
            for level, pair in found.pop("amounts").items()
        }
        return cls(amounts=amounts, **found)


@dataclass(frozen=True)
class PrivacyBudget:
    """The most that readers of results may learn: (ε, δ) about one sample, or one client."""

    level: Level
    epsilon: float
    delta: float = 1e-5

    def __post_init__(self) -> None:
        require(0 < self.epsilon < math.inf, "epsilon", self.epsilon, "a finite number above 0")
        require(0 < self.delta < 1, "delta", self.delta, "a number in (0, 1)")

    @property
    def most(self) -> float:
        """The sum of charges that it allows."""
        return mu_of(self.epsilon, self.delta) ** 2


@dataclass(frozen=True)
class Charges:
    """All charges of one data set; ``torn`` more at the end of which only a beginning is known."""

    whole: tuple[NoiseCharge, ...] = ()
    torn: int = 0

    @classmethod
    def parse(cls, data: bytes) -> Charges:
        """From a ledger's text.

        A record without its end was never followed by a message, and counts all the same: by the
        record that stands for it or, at the end, as much as any other.
        """
        first, *records = data.split(BEGIN)
        if first:
            raise ChargesDamaged("it does not begin with a charge")
        found, torn = [], 0
        for number, record in enumerate(records):
            charge = NoiseCharge.parse(record)
            if charge is None:
                torn += 1
                continue
            if charge.stands_for != torn:
                raise ChargesDamaged(f"charge {number - torn} is not whole, and later ones are")
            torn = 0
            found.append(charge)
        return cls(tuple(found), torn)

    def __len__(self) -> int:
        return sum(max(1, charge.stands_for) for charge in self.whole) + self.torn

    def most(self, level: Level, least: Amount = (0.0, 0.0)) -> Amount:
        """The largest charge there is, for readers and for openers: what a torn one counts as."""
        amounts = [least, *(charge.amounts[level] for charge in self.whole)]
        return max(a for a, _ in amounts), max(a for _, a in amounts)

    def spent(self, level: Level, least: Amount = (0.0, 0.0)) -> Amount:
        """Σ b on an account, in no order; what is torn counts as ``least`` at least."""
        torn = [self.most(level, least)] * self.torn
        amounts = [*(charge.amounts[level] for charge in self.whole), *torn]
        return math.fsum(a for a, _ in amounts), math.fsum(a for _, a in amounts)

    def find(self, federation: str, round: int) -> NoiseCharge | None:
        """The charge of a round, in whatever epoch."""
        for charge in reversed(self.whole):
            if (charge.federation, charge.round) == (federation, round) and not charge.stands_for:
                return charge
        return None

    def rounds_left(self, charge: Mapping[str, Amount], budgets: Iterable[PrivacyBudget]) -> float:
        """How many more rounds of a charge all budgets allow; infinite without a budget."""
        left = math.inf
        for budget in budgets:
            each = charge[budget.level]
            spent = self.spent(budget.level, each)[0]
            left = min(left, rounds_left(budget.epsilon, spent, each[0], budget.delta))
        return left

    def check(self, charge: NoiseCharge, budgets: Sequence[PrivacyBudget]) -> bool:
        """Whether a round is to be charged: it is new, and no budget is exceeded.

        False for the same round under the same noise, which is sent again.
        """
        if (known := self.find(charge.federation, charge.round)) is not None:
            if known.tag == charge.tag:
                return False
            raise AlreadyCharged(
                f"round {charge.round} of {charge.federation} was charged under other noise: two "
                "noisy versions of one gradient would average out; this client abstains from it"
            )
        for budget in budgets:
            each = charge.amounts[budget.level]
            spent = self.spent(budget.level, each)[0]
            if math.fsum([spent, each[0]]) > budget.most:
                raise BudgetSpent(
                    f"budget ε = {budget.epsilon:g} is spent: {len(self)} of {len(self)} rounds "
                    f"(δ = {_short(budget.delta)}, one {budget.level}); this client abstains"
                )
        return True

    def standing_for_torn(self, charge: NoiseCharge) -> list[NoiseCharge]:
        """What is written for charges without an end, before the next one."""
        if not self.torn:
            return []
        amounts = {
            level: _times(self.torn, self.most(level, charge.amounts[level])) for level in LEVELS
        }
        fields = {item: getattr(charge, item) for item in charge.__dataclass_fields__}
        return [NoiseCharge(**fields | {"amounts": amounts, "tag": "", "stands_for": self.torn})]

    def epsilons(self, budget: PrivacyBudget, each: Mapping[str, Amount]) -> Amount:
        """What an account has cost so far: ε of readers, and of an owner with its helpers."""
        readers, openers = (
            epsilon(PrivacyClaim("gaussian", math.sqrt(b), 1.0, 1), budget.delta) if b else 0.0
            for b in self.spent(budget.level, each[budget.level])
        )
        return readers, openers

    def said(self, budget: PrivacyBudget, each: Mapping[str, Amount]) -> str:
        """Both figures of an account, and how many rounds of a charge it has and had."""
        readers, openers = self.epsilons(budget, each)
        colluders = min((charge.colluders for charge in self.whole), default=0)
        total = len(self) + int(self.rounds_left(each, [budget]))
        return (
            f"ε ≤ {readers:.2f} for anyone who sees results and has up to {colluders} colluders; "
            f"ε ≤ {openers:.1f} if the shard's owner and its helpers collude "
            f"(δ = {_short(budget.delta)}, one {budget.level}, {len(self)} of {total} rounds)"
        )


def _times(count: int, amount: Amount) -> Amount:
    return count * amount[0], count * amount[1]


def _checksum(text: bytes) -> bytes:
    return hashlib.sha256(text).hexdigest()[:16].encode()


def _short(delta: float) -> str:
    """As one writes it.

    >>> _short(1e-5), _short(0.25)
    ('1e-5', '0.25')
    """
    return f"{delta:g}".replace("e-0", "e-")


def data_name(name: str, setting: str = "data") -> str:
    """The name of a data set, if there is one that a file can bear."""
    if not name or len(name) > 100 or not all(c.isalnum() or c in "-_." for c in name):
        expected = (
            "a name of letters, digits, - _ and .: its ledger bears it, and budgets belong to data"
        )
        raise InvalidSetting(setting, name, expected)
    return name
