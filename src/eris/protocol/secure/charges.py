"""What noisy rounds have cost a data set: charges, accounts of samples and of clients, budgets.

A charge is b = Δ²/σ² and charges add up, over rounds, runs and federations on the same data, also
where these were chosen by what was seen before; ε follows from their sum. Towards readers σ is the
noise that every opened sum holds; towards an owner whose helpers open single contributions for it
it is one client's. A round of a secret batch is charged (b, q) on the account of samples; then ε
follows from Σ b of the others and from how many there are of each (b, q), in no order.

The text of a charge is a JSON text of a sequence (RFC 7464) with a checksum, so that one whose end
is missing is known as such.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, get_args

from eris.core.composition import composed
from eris.core.errors import ErisError, InvalidSetting, require
from eris.core.noise import PrivacyClaim
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
    ball. Coins of a batch (``sampling_rate`` q) hide single samples: for the whole client they
    count as if all samples had been taken. ``stands_for`` counts records before this one whose end
    is missing.
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
    sampling_rate: float = 1.0

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
            sampling_rate=noise.sampling_rate,
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
class Releases:
    """What an account's ε follows from: Σ b of rounds with all samples, and of rounds with secret
    batches how many there are of each (b, q).

    >>> Releases.of([(0.5, 1, 1.0), (0.25, 1, 0.1), (0.25, 2, 1.0), (0.25, 1, 0.1)])
    Releases(plain=0.75, sampled=((0.25, 0.1, 2),))
    """

    plain: float
    sampled: tuple[tuple[float, float, int], ...]

    @classmethod
    def of(cls, charges: Sequence[tuple[float, int, float]]) -> Releases:
        """From amounts, of how many rounds each is, and at what rate."""
        counts: Counter[tuple[float, float]] = Counter()
        for amount, count, rate in charges:
            if rate < 1:
                counts[_upward(amount / count), rate] += count
        plain = math.fsum(amount for amount, _, rate in charges if rate == 1)
        return cls(plain, tuple((b, q, count) for (b, q), count in sorted(counts.items())))

    @property
    def changed(self) -> bool:
        """Whether there are several kinds of rounds, some with batches: nobody can tell from a
        ledger that the later ones were not chosen by what the earlier ones had shown."""
        return len(self.sampled) + (self.plain > 0) > 1 and bool(self.sampled)

    def epsilon(self, delta: float) -> float:
        """ε of all of it: exact without batches; else by PLD or, if something :attr:`changed`, by
        RDP."""
        claims = [
            PrivacyClaim("gaussian", math.sqrt(b), 1.0, count, q) for b, q, count in self.sampled
        ]
        if self.plain:
            claims.append(PrivacyClaim("gaussian", math.sqrt(self.plain), 1.0, 1))
        return composed(tuple(claims), delta, adaptive=self.changed)


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

    def releases(
        self, level: Level, side: int, each: Amount = (0.0, 0.0), rate: float = 1.0, more: int = 0
    ) -> Releases:
        """What was released on an account, towards readers (``side`` 0) or openers (1), and
        ``more`` rounds of ``each``; what is torn counts as one of them at least."""
        torn_rate = max([rate, *(charge.sampling_rate for charge in self.whole)])
        found = [
            (charge.amounts[level][side], max(1, charge.stands_for), charge.sampling_rate)
            for charge in self.whole
        ]
        found += [(self.most(level, each)[side], 1, torn_rate)] * self.torn
        found += [(each[side], 1, rate)] * more
        return Releases.of(found if level == "sample" else [(b, n, 1.0) for b, n, _ in found])

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

    def last(self, federation: str, through: int) -> int:
        """The last round of a federation that was charged, up to a round; 0 if there is none."""
        return max(
            (
                charge.round for charge in self.whole
                if charge.federation == federation and not charge.stands_for
                and charge.round <= through
            ),
            default=0,
        )  # fmt: skip

    def rounds_left(
        self, charge: Mapping[str, Amount], budgets: Iterable[PrivacyBudget],
        sampling_rate: float = 1.0,
    ) -> float:  # fmt: skip
        """How many more rounds of a charge all budgets allow; infinite without a budget."""
        left = math.inf
        for budget in budgets:
            each = charge[budget.level]
            if self.releases(budget.level, 0, each, sampling_rate, 1).sampled:
                found = self._most_rounds(budget, each, sampling_rate)
            else:
                spent = self.spent(budget.level, each)[0]
                found = rounds_left(budget.epsilon, spent, each[0], budget.delta)
            left = min(left, found)
        return left

    def _most_rounds(self, budget: PrivacyBudget, each: Amount, rate: float) -> int:
        """The most rounds that fit, found by halving: a round more never costs less.

        What is tried is how many there are in all, which is the same in every round of a plan: ε of
        those is known by then, and a round costs no look into distributions.
        """
        require(each[0] > 0, "charge", each[0], "a number above 0")
        made = len(self)

        def fits(total: int) -> bool:
            if total <= made:
                return True
            found = self.releases(budget.level, 0, each, rate, total - made)
            return found.epsilon(budget.delta) <= budget.epsilon

        high = 1
        while fits(high):
            high *= 2
        low = high // 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low - made

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
            after = self.releases(budget.level, 0, each, charge.sampling_rate, 1)
            if after.sampled:
                spent = self._most_rounds(budget, each, charge.sampling_rate) < 1
            else:
                spent = after.plain > budget.most
            if spent:
                raise BudgetSpent(
                    f"budget ε = {budget.epsilon:g} is spent: {len(self)} of {len(self)} rounds "
                    f"(δ = {_short(budget.delta)}, one {budget.level}); this client abstains"
                )
        return True

    def standing_for_torn(self, charge: NoiseCharge) -> list[NoiseCharge]:
        """What is written for charges without an end, before the next one."""
        if not self.torn:
            return []
        amounts: dict[str, Amount] = {
            level: _times(self.torn, self.most(level, charge.amounts[level])) for level in LEVELS
        }
        rate = max(one.sampling_rate for one in (charge, *self.whole))
        standing = replace(charge, amounts=amounts, tag="", sampling_rate=rate)
        return [replace(standing, stands_for=self.torn)]

    def epsilons(
        self, budget: PrivacyBudget, each: Mapping[str, Amount], sampling_rate: float = 1.0
    ) -> Amount:
        """What an account has cost so far: ε of readers, and of an owner with its helpers."""
        readers, openers = (
            self.releases(budget.level, side, each[budget.level], sampling_rate) for side in (0, 1)
        )
        return readers.epsilon(budget.delta), openers.epsilon(budget.delta)

    def said(
        self, budget: PrivacyBudget, each: Mapping[str, Amount], sampling_rate: float = 1.0
    ) -> str:
        """Both figures of an account, and how many rounds of a charge it has and had."""
        readers, openers = self.epsilons(budget, each, sampling_rate)
        found = self.releases(budget.level, 0, each[budget.level], sampling_rate)
        colluders = min((charge.colluders for charge in self.whole), default=0)
        total = len(self) + int(self.rounds_left(each, [budget], sampling_rate))
        how = ", by RDP: noise or batches have changed" if found.changed else ""
        return (
            f"ε ≤ {readers:.2f} for anyone who sees results and has up to {colluders} colluders; "
            f"ε ≤ {openers:.1f} if the shard's owner and its helpers collude "
            f"(δ = {_short(budget.delta)}, one {budget.level}, {len(self)} of {total} rounds{how})"
        )


def _upward(amount: float) -> float:
    """An amount with 40 bits, not less: so that one is the same after it was added up and divided.

    >>> _upward(0.25), _upward(0.1) >= 0.1, _upward(3 * 0.1 / 3) == _upward(0.1)
    (0.25, True, True)
    """
    digits, power = math.frexp(amount)
    return math.ldexp(math.ceil(math.ldexp(digits, 40)), power - 40)


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
