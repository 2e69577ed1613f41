"""What members agree on about shared noise: for whom, how much, and on what grid."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from eris.core.errors import InvalidSetting, one_of, require
from eris.core.exact_clip import ROOM_BITS
from eris.core.rounded_normal import MOST
from eris.core.shared_noise import SPAN, NoisePlan, check_grid, most_fraction_bits

if TYPE_CHECKING:
    from eris.protocol.settings import Settings

Level = Literal["sample", "client"]
"""What is hidden: whether one sample of one client took part, or one client's whole data."""
RESERVE = 1 + 2.0**-10
"""Charged for a sample beside its clip: gradients as computed, of honest models."""
USUALLY_IN = 0.9
"""The share of clients that a round with noise counts on."""
FINE_BITS = (10, 20)
"""Binary places of the fine grid beyond the ring's: at least, and as many as are of use."""


@dataclass(frozen=True)
class NoiseGrid:
    """The ring's grid 2^−``places``, and a client's finer one by ``fine_bits`` more."""

    places: int
    fine_bits: int

    @property
    def fine_places(self) -> int:
        """F: binary places of what is clipped and summed inside a client."""
        return self.places + self.fine_bits


@dataclass(frozen=True)
class SharedNoise:
    """Noise such that readers of ``rounds`` sums learn no more than (ε, δ) about a sample or a
    client, which is there or counts as 0; its weight is public and stays.

    ``clip`` bounds what is protected, ``clients`` is the most that one sum may hold and ``samples``
    the most of one client. ``sigma`` and ``of_a_client`` are float64 in hexadecimal, in units of
    values: agreed, so that no member computes another number. :meth:`planned` computes them. With
    ``sampling_rate`` q below 1 each sample is in a round's batch with probability q, by a coin of
    its client that nobody else sees; the batch's size is told to nobody.

    >>> noise = SharedNoise.planned("sample", 8, clip=1.0, rounds=160, clients=50, samples=64,
    ...                             min_included=50, colluders=1)
    >>> round(noise.std, 3), noise.grid(8), noise.grid(4).places
    (1.097, NoiseGrid(places=33, fine_bits=20), 19)
    """

    protects: Level
    epsilon: float
    clip: float
    rounds: int
    clients: int
    samples: int
    sigma: str
    of_a_client: str
    delta: float = 1e-5
    sampling_rate: float = 1.0

    @classmethod
    def planned(
        cls, protects: Level, epsilon: float, *, clip: float, rounds: int, clients: int,
        samples: int, min_included: int, colluders: int, delta: float = 1e-5,
        sampling_rate: float = 1.0,
    ) -> SharedNoise:  # fmt: skip
        """The least noise that keeps the promise where every sum is of ``min_included`` at least
        and a reader has up to ``colluders``."""
        check_batches(sampling_rate, protects)  # before what takes a second
        plan = NoisePlan(epsilon, rounds, min_included, colluders, delta, sampling_rate)
        sigma = math.nextafter(sensitivity(protects, clip) * plan.sigma, math.inf)
        each = math.nextafter(sigma / math.sqrt(plan.honest), math.inf)
        return cls(
            protects, epsilon, clip, rounds, clients, samples, sigma.hex(), each.hex(), delta,
            sampling_rate,
        )  # fmt: skip

    def __post_init__(self) -> None:
        if self.protects not in get_args(Level):
            raise InvalidSetting("protects", self.protects, one_of(get_args(Level), self.protects))
        above = "a finite number above 0"
        require(0 < self.epsilon < math.inf, "epsilon", self.epsilon, above)
        require(0 < self.clip < math.inf, "clip", self.clip, above)
        require(0 < self.delta < 1, "delta", self.delta, "a number in (0, 1)")
        check_batches(self.sampling_rate, self.protects)
        for name in ("rounds", "clients", "samples"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        for name in ("sigma", "of_a_client"):
            text = getattr(self, name)
            try:
                fits = 0 < float.fromhex(text) < math.inf
            except (ValueError, TypeError):
                fits = False
            require(fits, name, text, "a number above 0, as float.hex() writes it")

    @property
    def std(self) -> float:
        """s: what one client adds, in units of values."""
        return float.fromhex(self.of_a_client)

    @property
    def sensitivity(self) -> float:
        """Δ: how far the sum moves at most, as it is charged."""
        return sensitivity(self.protects, self.clip)

    @property
    def largest(self) -> float:
        """The largest magnitude of a coordinate of one client."""
        return self.clip * (self.samples if self.protects == "sample" else 1)

    @property
    def charges(self) -> tuple[float, float]:
        """What a round of all samples costs, b = Δ²/σ²: towards readers, and towards an owner with
        its helpers. One of a secret batch costs (b, q), which is less."""
        sigmas = (float.fromhex(self.sigma), self.std)
        found = [math.nextafter((self.sensitivity / sigma) ** 2, math.inf) for sigma in sigmas]
        return found[0], found[1]

    def weight(self, samples: int) -> float:
        """ω: by what a client's clipped contribution is multiplied; its samples are its own sum.

        >>> SharedNoise("client", 8, 1.0, 1, 50, 64, "0x1p+3", "0x1p+0").weight(16)
        0.25
        """
        most = self.samples
        require(1 <= samples <= most, "samples of a client", samples, f"1 to the agreed {most}")
        return 1.0 if self.protects == "sample" else samples / most

    def divisor(self, samples: float) -> float:
        """What an opened sum, of clients with so many samples in all, is divided by for a mean,
        in units of values."""
        return self.sampling_rate * samples if self.protects == "sample" else samples / self.samples

    def bounds(self, included: int, grid: NoiseGrid) -> tuple[float, float]:
        """The largest magnitude of a word for one sample, and what a sum of so many clients may
        have besides, noise above all."""
        each = self.clip if self.protects == "sample" else 0.0
        whole = 0.0 if self.protects == "sample" else included * self.clip
        beyond = whole + SPAN * self.std * math.sqrt(included)
        return math.ldexp(each, grid.places), math.ldexp(beyond, grid.places) + included / 2

    def largest_mean(self, samples: int, included: int) -> float:
        """The largest magnitude of a published mean over so many clients with so many samples.

        Rounding is within the last of the standard deviations: one has √(6·clients) units of the
        grid, and every client rounds by half a unit.

        >>> noise = SharedNoise("sample", 8, 0.5, 1, 50, 64, "0x1p+3", "0x1p+0")
        >>> round(noise.largest_mean(800, 50), 4)
        0.6149
        """
        content = self.clip * (samples if self.protects == "sample" else included)
        spread = (SPAN + 1) * self.std * math.sqrt(included)
        return (content + spread) / self.divisor(samples)

    def grid(self, ring_bytes: int, most: int = 33) -> NoiseGrid:
        """The finest grid that a ring of so many bytes allows, of ``most`` places at most."""
        ring = most_fraction_bits(ring_bytes, self.clients, self.largest, self.std)
        sampler = math.floor(math.log2(MOST / self.std))
        own = ROOM_BITS - math.frexp(self.largest)[1]
        places = min(most, ring, sampler, own - FINE_BITS[0])
        check_grid(places, self.std, self.clients)
        return NoiseGrid(places, min(FINE_BITS[1], own - places))

    def check(self, settings: Settings) -> None:
        """Refuse what breaks the promise, or does not go together with it."""
        if settings.secure is None:
            raise without_secure_sums()
        if settings.non_finite != "zero":
            expected = "'zero': a client that sends nothing tells that its data did it"
            raise InvalidSetting("non_finite", settings.non_finite, expected)
        if self.protects == "sample" and settings.scheme.shifted:
            expected = (
                "False with noise per sample, which clips gradients and no differences; masks "
                "without a reference, rotated ones among them, work"
            )
            raise InvalidSetting("shift", True, expected)
        plan = NoisePlan(
            self.epsilon, self.rounds, settings.min_included, settings.secure.known, self.delta,
            self.sampling_rate,
        )  # fmt: skip
        needed = self.sensitivity * plan.sigma, self.sensitivity * plan.of_a_client
        for name, agreed, least in zip(
            ("sigma", "of_a_client"), (float.fromhex(self.sigma), self.std), needed, strict=True
        ):
            if agreed < least * (1 - 2.0**-41):
                expected = (
                    f"at least {least:.6g} for ε = {self.epsilon:g} over {self.rounds} rounds, "
                    f"min_included {settings.min_included} and {plan.colluders} colluders"
                )
                raise InvalidSetting(name, agreed, expected)
        self.grid(settings.secure.ring_bytes, settings.precision.fraction_bits)


def without_secure_sums() -> InvalidSetting:
    """Why noise is refused that nobody would share."""
    expected = (
        'some, such as "2 of 3": without them an owner reads single contributions, and noise that '
        "is shared protects none (local noise does: method fedavg-ldp)"
    )
    return InvalidSetting("secure_sums", "none", expected)


def check_batches(rate: float, protects: str) -> None:
    """Refuse batches that hide nothing.

    >>> check_batches(0.25, "sample")
    """
    require(0 < rate <= 1, "sampling_rate", rate, "a number in (0, 1]")
    if rate < 1 and protects != "sample":
        expected = (
            "1 where whole clients are protected: who takes part in a round is drawn in public"
        )
        raise InvalidSetting("sampling_rate", rate, expected)


def usually_included(clients: int) -> int:
    """The fewest clients of a sum that a federation of so many counts on, unless it says others.

    Each client's noise is for a sum of the fewest: the fewer, the more of it.

    >>> usually_included(50), usually_included(5)
    (45, 5)
    """
    return math.ceil(USUALLY_IN * clients)


def sensitivity(protects: Level, clip: float) -> float:
    """How far a sum moves if one sample, or one client, counts as 0, as it is charged."""
    return clip * RESERVE if protects == "sample" else clip
