"""Encrypted federations of a few clients, and what their model must be, by plain integers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from eris.core.clustering import clustered
from eris.core.errors import PrivacyWarning
from eris.core.vectors import Vector
from eris.federation import Federation, RefusedWarning
from eris.methods.registry import create
from eris.protocol.messages import Message, Payload, Result
from eris.protocol.schemes import Sender
from eris.session import Fit
from eris.testing import initial_model
from support.crowd import Crowd

N, CLIENTS, ROUNDS, CLUSTERS, PLACES = 300, 9, 3, 8, 10
START = initial_model(N)
SMALL: dict[str, Any] = {"weight_range": 8.0, "fraction_bits": PLACES}
"""A table of logarithms that is quick to build has room for these."""
SAMPLES = [Crowd(CLIENTS, N).samples(client) for client in range(CLIENTS)]


def fitted(
    name: str = "enccluster", rounds: int = ROUNDS, crowd: Crowd | None = None,
    agreed: dict[str, Any] | None = None, faults: Any = None, start: Vector = START, **method: Any,
) -> tuple[Fit, Crowd, Federation]:  # fmt: skip
    """A recorded training, who trained it, and what was agreed."""
    crowd = Crowd(CLIENTS, N, momentum=0.5) if crowd is None else crowd
    usual: dict[str, Any] = {"enccluster": SMALL | {"clusters": CLUSTERS}, "detrust": SMALL,
             "fedavg-wc": {"clusters": CLUSTERS}, "sefl": {"key_bits": 256}}[name]  # fmt: skip
    samples = [crowd.samples(client) for client in range(len(crowd))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        made = Federation(
            crowd, start, create(name, **(usual | method)), samples=samples, seed=2,
            rule="fedavg", **(agreed or {}),
        )  # fmt: skip
        warnings.simplefilter("ignore", RefusedWarning)  # the history has what was refused
        fit = made.fit(rounds, progress=False, record=True, faults=faults)
    return fit, crowd, made


class Still(Crowd):
    """Clients that do not move."""

    def updates(self, *about: Any, **more: Any) -> Any:
        """Of zeros."""
        for one in super().updates(*about, **more):
            yield replace(one, vector=np.zeros_like(one.vector))


def damage(
    monkeypatch: pytest.MonkeyPatch, sender: type[Sender], change: Callable[[bytes], bytes],
    client: int = 4,
) -> None:  # fmt: skip
    """Have the bytes of one client be others on their way."""
    payload = sender.payload

    def other(self: Sender, *about: Any) -> Payload:
        made = payload(self, *about)
        if self.me != client:
            return made
        return replace(made, encoded=replace(made.encoded, data=change(made.encoded.data)))

    monkeypatch.setattr(sender, "payload", other)


def messages(fit: Fit, kind: type[Message]) -> list[Any]:
    """All messages of a kind, in the order in which they were sent."""
    assert fit.transcript is not None
    return [r.message for r in fit.transcript.records if isinstance(r.message, kind)]


Cut = Callable[[Vector], Vector]


def in_clusters(weights: Vector) -> Vector:
    """Weights as their centroids."""
    return clustered(weights, CLUSTERS, fewer="allow").values()


def plain_model(
    fit: Fit, crowd: Crowd, made: Federation, cut: Cut = in_clusters, start: Vector = START,
    weigh: Callable[[int], int] | None = None, layers: Sequence[int] = (N,),
) -> Vector:  # fmt: skip
    """The model by whole numbers and fractions alone, of the updates that were trained and of the
    sets that were published; nothing here has heard of ciphertexts."""
    weigh = weigh or crowd.samples
    agreement = made.agreement
    assert agreement is not None
    rule, model = agreement.settings.rule, start.copy()
    rate, total = rule.learning_rate, sum(map(weigh, range(len(crowd))))
    results: dict[int, list[Result]] = {}
    for result in messages(fit, Result):
        results.setdefault(result.header.round, []).append(result)
    for round in sorted(results):
        before = model.copy()
        for result in results[round]:
            if result.payload is None:
                continue
            at = agreement.segments(round)[result.header.key].coordinates
            x, sums = before[at], np.zeros(len(at), np.int64)
            for client in result.included:
                update = crowd.given[client, round][1][at]
                sent = (x.astype(np.float64) - rate * update.astype(np.float64)).astype(np.float32)
                layer = np.searchsorted(np.cumsum(layers), at, side="right")
                for number in np.unique(layer):
                    sent[layer == number] = cut(sent[layer == number])
                sums += [_scaled(value, weigh(client), total) for value in sent.tolist()]
            included = sum(map(weigh, result.included))
            mean = (sums / 2.0**PLACES * (total / included)).astype(np.float32)
            direction = ((x.astype(np.float64) - mean.astype(np.float64)) / rate).astype(np.float32)
            model[at] = rule.step(x, direction, (), round, 1.0)[0]
    return model


def _scaled(value: float, samples: int, total: int) -> int:
    """x·2^f·S/S_ref to the nearest integer, by fractions; ties to even."""
    exact = Fraction(value) * (1 << PLACES) * Fraction(samples, total)
    return round(exact)
