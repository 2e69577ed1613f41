"""Gradient inversion on a recorded run: what each observer makes of the updates that reached it.

An observer attacks the first round in which it gets something of clients' updates
(:mod:`observed` says what): later rounds are about the same samples. It knows the protocol, how
clients train, how many samples an update is of, and between what ends pixels lie. What the samples
are meets what it found only in the figures.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from eris.audit.attack import FinalModel
from eris.audit.gradients import SampleModel
from eris.audit.inversion.judging import (
    RECONSTRUCTED,
    Measure,
    assigned,
    likeness,
    pictures,
)
from eris.audit.inversion.matching import Matching, Mode
from eris.audit.inversion.observed import ObservedUpdate, contributions, mean, neighbours
from eris.audit.inversion.search import Inversion, Inverted, SearchBudget, Tell, search
from eris.audit.inversion.simulation import Simulation
from eris.audit.neighbour import NeighbourSight
from eris.audit.similarity import Pictures
from eris.audit.watch import Sight
from eris.core.errors import InvalidSetting
from eris.protocol.observers import Observer
from eris.training.options import LocalTraining

MOST_SAMPLES = 8
"""Of a client; the mean gradient of more tells next to nothing of each."""

Truth = Callable[[int], tuple[Tensor, Tensor]]
"""The samples that a client trained on, and their labels."""


@dataclass(frozen=True, eq=False)
class Shown:
    """Originals, what an observer made of them, and what the attack made of random numbers."""

    observer: str
    round: int
    originals: Pictures
    found: Pictures
    control: Pictures
    clients: int
    samples: str
    visible: float
    """Of an update's coordinates, on average."""
    labels: float
    """Share of the updates all of whose labels were read right."""


@dataclass(frozen=True, eq=False)
class ReconstructionReport:
    """What was reconstructed, by observer."""

    attack: str
    shown: tuple[Shown, ...]
    lpips: Measure | None = None
    mode: Mode = "mask-aware"

    def figures(self) -> dict[str, list[dict[str, Any]]]:
        """A line an observer, and below each its control."""
        how = "" if self.mode == "mask-aware" else f", {self.mode}"
        title = f"reconstruction by {self.attack}{how} (of the first round that each saw; medians)"
        return {title: [row for shown in self.shown for row in self._rows(shown)]}

    def _rows(self, shown: Shown) -> Iterator[dict[str, Any]]:
        for of, found in (("update", shown.found), ("random", shown.control)):
            like = likeness(shown.originals, found, self.lpips)
            yield {
                "observer": shown.observer,
                "of": of,
                "clients": shown.clients,
                "samples": shown.samples,
                "seen, %": 100 * shown.visible,
                "labels, %": 100 * shown.labels if of == "update" else None,
                f"MSE < {RECONSTRUCTED:g}": f"{like.reconstructed} of {len(found)}",
                **like.medians(),
            }


class Reconstruction:
    """One inversion, for the observers with the numbers ``watching``, about some clients.

    ``local`` is how clients train, as far as it is known. ``sparse``: a zero that was sent stands
    for what was not. ``owners`` is who is behind a sender in gossip.
    """

    def __init__(
        self,
        attack: Inversion,
        samples: SampleModel,
        observers: Sequence[Observer],
        watching: Sequence[int],
        clients: Sequence[int],
        truth: Truth,
        *,
        local: LocalTraining | None = None,
        lpips: Measure | None = None,
        mode: Mode = "mask-aware",
        sparse: bool = False,
        owners: Mapping[int, int] | None = None,
        budget: SearchBudget | None = None,
        seed: int = 0,
        tell: Tell = lambda share: None,
    ) -> None:
        self.sparse, self.owners = sparse, {} if owners is None else owners
        self.attack, self.samples, self.truth = attack, samples, truth
        self.observers, self.watching, self.clients = observers, tuple(watching), tuple(clients)
        self.local, self.lpips, self.mode, self.budget = local, lpips, mode, budget
        self.seed, self.tell = seed, tell
        self._targets: list[ObservedUpdate] = []
        self._why = "seen by none"
        dims = tuple(d for d in range(samples.inputs.dim()) if d != 1 or samples.inputs.dim() < 4)
        self._low = samples.inputs.amin(dims, keepdim=True)[0]
        self._high = samples.inputs.amax(dims, keepdim=True)[0]

    @property
    def name(self) -> str:
        """The inversion's."""
        return self.attack.name

    def see(self, sight: Sight | NeighbourSight | FinalModel) -> None:
        """Note what was seen of every client's update, the first time that something was."""
        if isinstance(sight, NeighbourSight):
            observer = self.observers.index(sight.observer)
            if observer in self.watching and not self._has(observer):
                told = {client: self._trained(client) for client in self.clients}
                found = neighbours(sight, observer, self.owners, told, sparse=self.sparse)
                self._note(found)
        if isinstance(sight, Sight):
            for observer in sight.observers:
                if observer in self.watching and not self._has(observer):
                    self._look(sight, observer)

    def _look(self, sight: Sight, observer: int) -> None:
        own = self.observers[observer].members
        found = contributions(sight, observer, own, self.clients, sparse=self.sparse)
        if not self._note(found) and (target := mean(sight, observer)) is not None:
            if target.steps != 1:
                self._why = f"of means of {target.steps} local steps each"
                return
            self._note([target])

    def _has(self, observer: int) -> bool:
        return any(target.observer == observer for target in self._targets)

    def _trained(self, client: int) -> tuple[int, int]:
        """The samples and steps of a client, where its messages do not say them."""
        samples = len(self.truth(client)[0])
        return samples, 1 if self.local is None else self.local.local_steps(samples)

    def _note(self, targets: Iterable[ObservedUpdate]) -> bool:
        """Keep those that are of few samples; false if there was none at all."""
        some = False
        flat = self.samples.flat
        for target in targets:
            some = True
            # Behind the parameters lie averaged statistics, which are no gradient.
            size = flat.trained if target.basis is None else len(target.values)
            if target.basis is not None and flat.trained < len(flat):
                expected = "none in a rotated basis, which mixes them with the gradient"
                raise InvalidSetting("averaged statistics", len(flat) - flat.trained, expected)
            if target.samples > MOST_SAMPLES:
                self._why = f"of at least {target.samples} samples each"
            elif target.values[:size].any():
                self._targets.append(
                    replace(target, values=target.values[:size], seen=target.seen[:size])
                )
        return some

    def report(self) -> ReconstructionReport:
        """Attack all that was noted, as much of it at once as has the same model and size."""
        if not self._targets:
            expected = (
                f"of at most {MOST_SAMPLES} samples, sent to an observer that is audited (an "
                "aggregator, a server, a coalition, a link or, in round 1 of gossip, a neighbour), "
                "or the mean of so few after one local step, published to a member; run with fewer "
                "`--samples`, or name such an observer with `--as`"
            )
            raise InvalidSetting(f"updates that {self.name} could invert", self._why, expected)
        alike: dict[tuple[int, int, bytes], list[ObservedUpdate]] = defaultdict(list)
        for target in self._targets:
            alike[target.samples, target.steps, target.model.tobytes()].append(target)
        pairs: list[tuple[ObservedUpdate, Inverted, int]] = []
        for number, ((count, steps, _), group) in enumerate(alike.items()):
            made = self._attacked(group, count, steps, number / len(alike), 1 / len(alike))
            pairs += [(target, made, place) for place, target in enumerate(group)]
        shown = tuple(
            self._shown(number, [pair for pair in pairs if pair[0].observer == number])
            for number in self.watching
            if any(pair[0].observer == number for pair in pairs)
        )
        return ReconstructionReport(self.name, shown, self.lpips, self.mode)

    def _attacked(
        self, group: list[ObservedUpdate], count: int, steps: int, done: float, width: float
    ) -> Inverted:
        flat = self.samples.flat
        rate = unrolled(self.local, steps, self.name)
        model = torch.from_numpy(group[0].model)
        # A module with averaged statistics takes those of the model that was trained from.
        flat.write(model)
        simulation = Simulation(flat, self.samples.loss, model[: flat.trained], steps, rate)
        matching = Matching(
            simulation,
            torch.from_numpy(np.stack([target.values for target in group])),
            torch.from_numpy(np.stack([target.seen for target in group])),
            tuple(self.samples.inputs.shape[1:]),
            count,
            self._low,
            self._high,
            self.mode,
            group[0].basis,
        )
        return search(
            self.attack, matching, self.budget, seed=self.seed,
            tell=lambda share: self.tell(done + width * share),
        )  # fmt: skip

    def _shown(self, number: int, pairs: list[tuple[ObservedUpdate, Inverted, int]]) -> Shown:
        originals: list[Pictures] = []
        found: list[Pictures] = []
        control: list[Pictures] = []
        right = []
        for target, inverted, place in pairs:
            truths = [self.truth(client) for client in target.clients]
            inputs, labels = (torch.cat([truth[part] for truth in truths]) for part in (0, 1))
            original = pictures(inputs, self._low, self._high)
            originals.append(original)
            for rows, kept in ((inverted.inputs, found), (inverted.control, control)):
                kept.append(assigned(original, pictures(rows[place], self._low, self._high)))
            right.append(sorted(labels.tolist()) == sorted(inverted.labels[place].tolist()))
        sizes = sorted({target.samples for target, _, _ in pairs})
        return Shown(
            self.observers[number].name,
            pairs[0][0].round,
            np.concatenate(originals),
            np.concatenate(found),
            np.concatenate(control),
            len({client for target, _, _ in pairs for client in target.clients}),
            " to ".join(str(size) for size in sorted({sizes[0], sizes[-1]})),
            float(np.mean([target.seen.mean() for target, _, _ in pairs])),
            float(np.mean(right)),
        )


def unrolled(local: LocalTraining | None, steps: int, name: str) -> float:
    """The step size of clients whose training can be unrolled; others are refused.

    >>> unrolled(LocalTraining(learning_rate=0.1, steps=3), 3, "idlg")
    0.1
    """
    if local is None:
        if steps == 1:
            return 1.0
        expected = "1: how clients step is not known, and more cannot be unrolled without it"
        raise InvalidSetting(f"local steps of an update for {name}", steps, expected)
    odd = [
        what
        for what, found in (
            (f"optimiser {local.optimiser}", local.optimiser != "sgd"),
            (f"momentum {local.momentum}", bool(local.momentum)),
            (f"weight decay {local.weight_decay}", bool(local.weight_decay)),
            (f"proximal term {local.proximal}", bool(local.proximal)),
            (f"estimator {local.estimator}", local.estimator != "sgd"),
            (f"batches of {local.batch_size}", local.batch_size is not None),
        )
        if found
    ]
    if odd:
        expected = (
            "plain SGD on all samples (`--batch-size 0`, no momentum): what clients do otherwise "
            "hangs on what an observer does not see"
        )
        raise InvalidSetting(f"training of clients for {name}", ", ".join(odd), expected)
    return local.learning_rate
