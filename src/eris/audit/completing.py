"""The completion attack on a run: linear layers from what an observer saw of a client's update.

Each client's update is completed by itself, in the first round in which the observer saw some of
it. The inputs of a layer that takes the samples themselves stay the same while the model moves, so
of that layer later rounds are put on top.

What is published is read by everybody. It is a layer too, of the samples of all clients together,
and needs no completion where it is whole. The span test asks about all candidates; where the
samples are few they come out one by one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from eris.audit.attack import FinalModel
from eris.audit.candidates import Candidates
from eris.audit.completion import CompletedLayer, complete, precision_of_difference
from eris.audit.completion_report import CompletionReport, LayerFinding, area, images_shown
from eris.audit.gradients import SampleModel
from eris.audit.layers import LinearLayer, linear_layers, whole
from eris.audit.low_rank import Entries, Matrix, rms
from eris.audit.neighbour import NeighbourSight
from eris.audit.recovery import filled, into_range, psnr
from eris.audit.separation import separate, with_bias
from eris.audit.span import row_space, span_scores
from eris.audit.watch import Sight
from eris.core.vectors import Indices, Vector
from eris.protocol.observers import Observer
from eris.protocol.schemes import Scheme
from eris.theory.completion import redundancy

SWEPT = 4
"""Fewer samples than a contribution says, so many, are tried, too: it may be of a smaller batch."""
MOST_ROUNDS = 200
MOST_TOGETHER = 24
"""Samples behind a published mean up to which it is completed, and taken apart."""
READABLE = ("dense", "masked", "independent")
"""Schemes in which entries of a layer travel as they are."""
UNREADABLE = {
    "rotated": "coordinates are mixed before they are cut, so no entry of a layer is visible",
    "grouped": "coordinates are mixed before they are cut, so no entry of a layer is visible",
    "quantised": "what travels is rounded too coarsely for the certificate; eris.audit.completion "
    "takes a tolerance",
    "pruned": "which entries were pruned depends on the update: zeros say nothing",
}
GOSSIP = "members gossip: models travel, whose difference to what they began with nobody sees"
FINAL = "the trained model alone shows no update"


def unreadable(scheme: Scheme | None) -> str:
    """Why layers cannot be completed from what travels in a scheme (None: gossip); "" if they can.

    >>> from eris.protocol.schemes import Dense
    >>> unreadable(Dense()), unreadable(None)[:14]
    ('', 'members gossip')
    """
    if scheme is None:
        return GOSSIP
    if scheme.name in READABLE:
        return ""
    reason = UNREADABLE.get(scheme.name, "it does not show entries of a layer as they are")
    return f"scheme {scheme.name}: {reason}"


class Completion:
    """The attack; it looks through the eyes of the ``looking`` ones among the observers."""

    name: ClassVar[str] = "completion"

    def __init__(
        self,
        observers: Sequence[Observer],
        looking: Sequence[int],
        samples: SampleModel,
        candidates: Candidates,
        scheme: Scheme | None,
        *,
        seed: int = 0,
    ) -> None:
        self._observers, self._looking = observers, frozenset(looking)
        self._candidates, self._seed = candidates, seed
        self._layers = linear_layers(samples)
        self._refused = unreadable(scheme) if observers else FINAL
        if not self._layers and not self._refused:
            self._refused = "the model has no linear layers (torch.nn.Linear) that are trained"
        self._found: dict[tuple[int, int], list[LayerFinding]] = {}
        self._rounds: dict[tuple[int, int], list[tuple[Entries, float, int]]] = defaultdict(list)
        self._means: dict[int, list[dict[str, Any]]] = {}

    def see(self, sight: Sight | NeighbourSight | FinalModel) -> None:
        """Complete what is seen for the first time; of later rounds keep what is stacked."""
        if self._refused or not isinstance(sight, Sight):
            return
        for observer in sight.observers:
            if observer in self._looking:
                for client in self._candidates.clients:
                    self._look(sight, observer, client)
                if observer not in self._means:
                    self._published(sight, observer)

    def report(self) -> CompletionReport:
        """What was completed in single rounds, and of rounds on top of each other."""
        if self._refused:
            return CompletionReport(refused=self._refused)
        found = []
        for (observer, client), single in self._found.items():
            found += single
            rounds = self._rounds[observer, client]
            layer = self._first
            if layer is not None and len(rounds) > 1:
                entries = Entries.stacked([one for one, _, _ in rounds])
                tolerance = max(tolerance for _, tolerance, _ in rounds)
                found.append(
                    self._finding(observer, client, layer, entries, rounds[0][2], tolerance,
                                  len(rounds))
                )  # fmt: skip
        found.sort(key=lambda one: (one.observer, one.rounds > 1, one.client))
        means = tuple(row for rows in self._means.values() for row in rows)
        return CompletionReport(tuple(found), means)

    @property
    def _first(self) -> LinearLayer | None:
        """The layer that takes the samples themselves."""
        return next((layer for layer in self._layers if layer.takes_samples), None)

    # -- one client's update ------------------------------------------------------------------

    def _look(self, sight: Sight, observer: int, client: int) -> None:
        pieces = sight.pieces(client)
        samples = sight.declared(client).samples
        if pieces is None or not samples:
            return
        seen = sight.seen(client)[sight.observers.index(observer)]
        chosen = np.repeat(seen, pieces.sizes)
        if not chosen.any():
            return
        at, values = pieces.coordinates[chosen], pieces.update[chosen]
        who, tolerance = (observer, client), _tolerance(sight, pieces.update, pieces.sent)
        if who not in self._found:
            self._found[who] = [
                self._finding(observer, client, layer, layer.entries(at, values), samples,
                              tolerance)
                for layer in self._layers
            ]  # fmt: skip
        layer = self._first
        rounds = self._rounds[who]
        if layer is not None and len(rounds) < MOST_ROUNDS and not self._done(who):
            rounds.append((layer.entries(at, values), tolerance, samples))

    def _done(self, who: tuple[int, int]) -> bool:
        """Whether a single round gave the first layer whole: nothing is left for later ones."""
        return any(one.layer.takes_samples and one.found.columns.all() for one in self._found[who])

    def _finding(
        self,
        observer: int,
        client: int,
        layer: LinearLayer,
        entries: Entries,
        samples: int,
        tolerance: float,
        rounds: int = 1,
    ) -> LayerFinding:
        most = samples * layer.positions
        tried: list[int] = []
        best: CompletedLayer | None = None
        fewer = range(1, min(most, SWEPT + 1)) if layer.takes_samples else ()
        for rank in (most, *fewer):
            tries = None if rank == most else 1
            found = complete(
                entries, samples=rank, tolerance=tolerance, tries=tries, seed=self._seed
            )
            tried.append(rank)
            if found.certified and found.columns.any():
                best = found
                break
            best = best or found
        assert best is not None
        about = (self._observers[observer].name, client, rounds, layer, tuple(tried), best)
        if not layer.takes_samples or not best.columns.any():
            return LayerFinding(*about)
        places = self._candidates.of(client)
        scores = self._span(best, layer, places)
        truth = self._candidates.included[places]
        return LayerFinding(*about, self._recovered(best, layer, places[truth]), scores, truth)

    def _recovered(
        self, found: CompletedLayer, layer: LinearLayer, places: Indices
    ) -> tuple[float, ...]:
        """How near the separated inputs come to each of some candidates that were trained on."""
        inputs = separate(found.left, found.right, residual=found.residual, seed=self._seed)
        if inputs is None or not len(places):
            return (-np.inf,) * len(places)
        truth = self._candidates.inputs[places].double().cpu().numpy()
        everyone = self._candidates.inputs
        low, high = float(everyone.min()), float(everyone.max())
        if layer.bias is not None and found.columns[-1]:
            inputs = with_bias(inputs)[:, :-1]
        else:
            inputs = into_range(inputs[:, : layer.inputs], low, high)
        pictures = filled(inputs, tuple(everyone.shape[1:]))
        decibels = psnr(pictures, truth.reshape(len(places), -1), high - low)
        return tuple(np.nan_to_num(decibels, nan=-np.inf).max(axis=0).tolist())

    def _span(self, found: CompletedLayer, layer: LinearLayer, places: Indices) -> Matrix:
        """How near some candidates are to the row space."""
        basis = np.linalg.qr(found.right[found.columns])[0]
        return span_scores(basis, layer.taken(self._candidates.inputs[places]), found.columns)

    # -- what is published --------------------------------------------------------------------

    def _published(self, sight: Sight, observer: int) -> None:
        """The mean of all clients, of the first round that has one: span test and samples."""
        layer, published = self._first, sight.published
        some = (sight.pieces(client, published=True) for client in self._candidates.clients)
        pieces = next((one for one in some if one is not None), None)
        if layer is None or pieces is None or pieces.published is None or not published.any():
            return
        chosen = np.repeat(published, pieces.sizes)
        values = pieces.published[chosen]
        entries = layer.entries(pieces.coordinates[chosen], values)
        sent = np.zeros_like(values) if sight.shifted else values
        found = self._mean(layer, entries, sight.samples, _tolerance(sight, values, sent))
        truth, everyone = self._candidates.included, np.arange(len(self._candidates))
        row = {
            "observer": self._observers[observer].name,
            "round": sight.round,
            "layer": f"{layer.name}, {layer.shape[0]} × {layer.shape[1]}",
            "published %": 100 * entries.share,
            "samples": sight.samples,
            "rank": found.samples if found.certified else None,
            "outcome": found.why or "certified",
            "members": int(truth.sum()),
            "others": int((~truth).sum()),
            "AUC": None,
        }
        if found.columns.any():
            row["AUC"] = area(self._span(found, layer, everyone), truth)
            if found.samples <= MOST_TOGETHER:
                row |= images_shown(self._recovered(found, layer, everyone[truth]))
        self._means[observer] = [row]

    def _mean(
        self, layer: LinearLayer, entries: Entries, samples: int, tolerance: float
    ) -> CompletedLayer:
        """A mean: read off where it is whole, else completed if its samples are few."""
        mean = whole(layer, entries)
        if mean is not None:
            # Rounding, and noise, fill directions beyond those of the samples.
            basis = row_space(mean, samples)
            left, rank = mean @ basis, basis.shape[1]
            beside = float(np.linalg.norm(mean - left @ basis.T) / (np.linalg.norm(mean) or 1.0))
            spare = redundancy(mean.size, *layer.shape, rank)
            return CompletedLayer(rank, left, basis, beside, spare, 1.0)
        if samples <= MOST_TOGETHER:
            return complete(entries, samples=samples, tolerance=tolerance, seed=self._seed)
        none = np.full((layer.shape[0], 1), np.nan), np.full((layer.shape[1], 1), np.nan)
        spare = redundancy(len(entries), *layer.shape, samples)
        why = "count" if spare < samples else "not tried"
        return CompletedLayer(samples, *none, np.nan, spare, entries.share, why)


def _tolerance(sight: Sight, update: Vector, sent: Vector) -> float:
    """The precision of an update, relative to it.

    One that comes from models before and after training is rounded as the weights were, and one
    that a shift was undone of as the reference was.
    """
    weights = rms(sight.model) / sight.rate
    return precision_of_difference(weights + rms(update - sent), rms(update))
