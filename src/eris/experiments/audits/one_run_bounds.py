"""Whether audits of single runs ever find more than shared noise promises.

``eris reproduce one-run-bounds``. Softmax regression on digits; every sample of the first client is
a canary, in or out by its own fair coin: an image with one bright pixel, so that gradients are
nearly at right angles, which is best for attackers. Two of them, who know all but these coins and
the noise of others, guess two thirds of the coins: a reader with its colluders, from opened sums,
and an owner with its helpers, from the words of that client. Each gets a lower bound on ε at 95 %
(:mod:`eris.audit.one_run`), so no more than 5 % of seeds may exceed what was promised to it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.table import Table
from scipy.stats import beta

from eris.audit.one_run import bound
from eris.core.composition import composed
from eris.core.errors import require
from eris.core.exact_clip import Content
from eris.core.noise import PrivacyClaim
from eris.core.rules import FedAvgM, Slots
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.data import load_digits
from eris.experiments.audits.programs import asked, told
from eris.experiments.figures import say
from eris.experiments.runs.store import runs_root
from eris.files import SHARED
from eris.files import replace as replace_file
from eris.models.softmax import softmax
from eris.protocol.secure.noise_terms import SharedNoise
from eris.protocol.secure.noising import SharedNoising
from eris.training.flat import FlatParameters, flatten
from eris.training.gradients import ClientGradients
from eris.training.slots import SlotGradients
from eris.training.torch import normalise, single_threaded
from eris.training.trainer import PerSampleClip

CLIENTS, COLLUDERS, OTHERS = 10, 1, 64
"""Members, those that a reader has on its side, and samples of a client without canaries."""
GUESSED = 2 / 3
"""The share of coins that is guessed, the surest; fixed beforehand."""
MOMENTUM, STEP = 0.9, 0.5
PIXELS, CLASSES, BRIGHT = 64, 10, 10.0
FOLDER = "one-run-bounds"
RATES = (1.0, 0.25)
ATTACKERS = ("readers", "openers")
Values = NDArray[np.float64]


@dataclass(frozen=True)
class AuditedRun:
    """One training and its audit."""

    seed: int = 0
    sampling_rate: float = 1.0
    epsilon: float = 1.0
    rounds: int = 20
    canaries: int = 256
    clip: float = 0.5
    shrunk: float = 1.0
    """Noise times this is drawn in fact: below 1 a mistake that must be found."""

    @property
    def terms(self) -> SharedNoise:
        """What was agreed."""
        return SharedNoise.planned(
            "sample", self.epsilon, clip=self.clip, rounds=self.rounds, clients=CLIENTS,
            samples=self.canaries, min_included=CLIENTS, colluders=COLLUDERS,
            sampling_rate=self.sampling_rate,
        )  # fmt: skip

    @property
    def promised(self) -> dict[str, float]:
        """ε of both attackers over all rounds."""
        terms = self.terms
        return {
            who: composed(
                (
                    PrivacyClaim(
                        "gaussian", terms.sensitivity, std, self.rounds, self.sampling_rate
                    ),
                ),
                terms.delta,
            )
            for who, std in zip(ATTACKERS, (float.fromhex(terms.sigma), terms.std), strict=True)
        }


@cache
def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Images and labels."""
    data = load_digits()
    images = np.concatenate([data.train_images, data.test_images])
    labels = np.concatenate([data.train_labels, data.test_labels]).astype(np.int64)
    return normalise(images), torch.from_numpy(labels)


def canaries(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Images with one bright pixel, and labels: no two alike.

    >>> canaries(256)[1].unique().numel(), canaries(65)[0][64].argmax().item()
    (10, 0)
    """
    most = PIXELS * CLASSES
    require(1 <= count <= most, "canaries", count, f"1 to {most}, a pixel and a class each")
    numbers = torch.arange(count)
    images = torch.zeros(count, PIXELS)
    images[numbers, numbers % PIXELS] = BRIGHT
    return images.reshape(count, 1, 8, 8), (numbers + numbers // PIXELS) % CLASSES


def audited(run: AuditedRun) -> dict[str, Any]:
    """The bounds of one run, as JSON has them."""
    coins = Stream(run.seed, "canaries").words(0, run.canaries) < np.uint32(1 << 31)
    views = list(_rounds(run, coins))
    found: dict[str, Any] = {"run": asdict(run), "promised": run.promised}
    noises = {"readers": CLIENTS - 1 - COLLUDERS, "openers": 1}
    for place, who in enumerate(ATTACKERS):
        std = run.terms.std * math.sqrt(noises[who])
        seen = [(gradients, view[place]) for gradients, *view in views]
        guessed = _guesses(seen, std, run.sampling_rate)
        surest = np.argsort(-np.abs(guessed - 0.5), kind="stable")
        surest = surest[: round(GUESSED * run.canaries)]
        right = int(((guessed > 0.5) == coins)[surest].sum())
        lower = bound(run.canaries, len(surest), right, run.terms.delta)
        found[who] = {"right": right, "guesses": len(surest), "epsilon": lower.epsilon,
                      "ceiling": lower.ceiling}  # fmt: skip
    return found


def _guesses(seen: Sequence[tuple[Values, Values]], std: float, rate: float) -> Values:
    """How likely each canary is in: the best linear estimate from all rounds together."""
    count = len(seen[0][0])
    products, met = np.zeros((count, count)), np.zeros(count)
    for gradients, view in seen:
        taken = rate * gradients
        products += taken @ taken.T
        met += taken @ view
    met -= products.sum(1) / 2
    # A fair coin has variance 1/4.
    solved = np.linalg.solve(products / std**2 + 4 * np.eye(count), met / std**2)
    return np.asarray(0.5 + solved, np.float64)


def _rounds(run: AuditedRun, coins: NDArray[np.bool_]) -> Iterator[tuple[Values, Values, Values]]:
    """By round: the canaries' clipped gradients, and what is left for each attacker once all that
    it knows is taken off."""
    terms = run.terms
    grid = terms.grid(8)
    cuts = [run.canaries, *[OTHERS] * (CLIENTS - 1)]
    model = softmax(run.seed)
    flat = FlatParameters(model)
    bright, wanted = canaries(run.canaries)
    loss = torch.nn.functional.cross_entropy
    all_canaries = ClientGradients(flat, bright, wanted, loss)
    clients = [ClientGradients(flat, bright[coins], wanted[coins], loss)]
    inputs, labels = digits()
    order = Stream(run.seed, "digits").permutations(1, len(inputs))[0]
    for client in range(CLIENTS - 1):
        part = order[client * OTHERS : (client + 1) * OTHERS].copy()
        clients.append(ClientGradients(flat, inputs[part], labels[part], loss))
    noising = [
        SharedNoising(
            terms, grid, "audited",
            Stream(run.seed, "noise-chain", client=client).words(0, 8).tobytes(), _uncharged,
        )
        for client in range(CLIENTS)
    ]  # fmt: skip
    rule = FedAvgM(STEP, MOMENTUM)
    x: Vector = flatten(model)
    slots: Slots = (np.zeros_like(x),)
    divisor = terms.divisor(sum(cuts))
    for round in range(run.rounds):
        position = flat.checked(x)
        with single_threaded():
            rows, _ = all_canaries.each(position, None)
        lengths = rows.double().norm(dim=1, keepdim=True)
        gradients: Values = (rows.double() * (run.clip / lengths).clamp(max=1)).numpy()
        total, known = np.zeros(len(x)), np.zeros(len(x))
        alone = total
        for client, data in enumerate(clients):
            content = _content(run, terms, noising[client], data, position, round, cuts[client])
            exact = content * 2.0**-grid.fine_places
            noisy = noising[client].words(content, round) * 2.0**-grid.places
            noisy = exact + run.shrunk * (noisy - exact)
            total = total + noisy
            if client == 0:
                alone = noisy
            else:
                known += exact if client > 1 + COLLUDERS else noisy
        yield gradients, total - known, alone
        mean = (total / divisor).astype(np.float32)
        x, slots = rule.step(x, mean, slots, round + 1, 1.0)


def _content(
    run: AuditedRun, terms: SharedNoise, noising: SharedNoising, data: ClientGradients,
    position: torch.Tensor, round: int, count: int,
) -> Content:  # fmt: skip
    places = terms.grid(8).fine_places
    batch = None if run.sampling_rate == 1 else lambda slots: noising.batch(round, slots)
    clip = PerSampleClip(run.clip, places, lambda rows: rows, count, batch)
    return SlotGradients(data, count).clipped_sum(position, clip)


def _uncharged(round: int, tag: bytes) -> None:
    """A simulation has no ledger."""


@dataclass(frozen=True)
class BoundsCampaign:
    """How many seeds, from which on, and where figures are kept."""

    seeds: int = 3
    first_seed: int = 0
    runs: str = ""

    def kept(self, run: AuditedRun) -> dict[str, Any]:
        """The figures of a run, made unless they are there."""
        path = runs_root(Path(self.runs) if self.runs else None) / FOLDER / "figures.jsonl"
        known = path.read_text(encoding="utf-8") if path.is_file() else ""
        found: dict[str, Any]
        for found in map(json.loads, known.splitlines()):
            if found["run"] == asdict(run):
                return found
        found = audited(run)
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, [f"{known}{json.dumps(found)}\n".encode()], SHARED)
        return found


def summary(found: Sequence[dict[str, Any]], who: str) -> dict[str, float]:
    """How many bounds exceed the promise, with the exact 95 % interval of that share."""
    count = len(found)
    bounds = np.array([one[who]["epsilon"] for one in found])
    above = int(sum(one[who]["epsilon"] > one["promised"][who] for one in found))
    return {
        "promised": found[0]["promised"][who], "seeds": count, "above": above,
        "least share": float(beta.ppf(0.025, above, count - above + 1)) if above else 0.0,
        "most share": float(beta.ppf(0.975, above + 1, count - above)) if above < count else 1.0,
        "median": float(np.median(bounds)), "largest": float(bounds.max()),
        "ceiling": found[0][who]["ceiling"],
        "right": float(np.mean([one[who]["right"] / one[who]["guesses"] for one in found])),
    }  # fmt: skip


def main(given: list[str] | None = None) -> None:
    """Print the table."""
    options = ("seeds", "first_seed", "runs")
    campaign = asked(BoundsCampaign, __name__, __doc__, options, given)
    table = Table("sampling rate", "attacker", "ε promised", "above it", "95 % interval in %",
                  "bound: median", "largest", "possible", "right guesses in %")  # fmt: skip
    figures = []
    for rate in RATES:
        seeds = range(campaign.first_seed, campaign.first_seed + campaign.seeds)
        found = [campaign.kept(AuditedRun(seed, rate)) for seed in seeds]
        for who in ATTACKERS:
            one = summary(found, who)
            figures.append({"sampling rate": rate, "attacker": who, **one})
            table.add_row(
                f"{rate:g}", who, f"{one['promised']:.3f}", f"{one['above']} of {one['seeds']}",
                f"{100 * one['least share']:.1f} to {100 * one['most share']:.1f}",
                f"{one['median']:.3f}", f"{one['largest']:.3f}", f"{one['ceiling']:.2f}",
                f"{100 * one['right']:.1f}",
            )  # fmt: skip
    about = asdict(AuditedRun())
    say(f"digits, softmax regression, {CLIENTS} clients, {COLLUDERS} colluder; {about}")
    told(table, 150, {"rows": figures})


if __name__ == "__main__":
    main()
