"""Nodes that are at work, as a document: what each says of itself at its ``observe.http``."""

from __future__ import annotations

import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

from eris.core.errors import ErisError
from eris.experiments.runs.progress import size
from eris.runtimes.grpc.observe import node_status
from eris.web.blocks import Block, Cell, Curves, Document, Listing, Placed, Ring, Section, Series

KEPT = 240
"""Looks that a curve of traffic goes back."""
AT_ONCE = 32
MOST_LINES = 8
MOST_NAMES = 3
NO_METRICS = ("samples",)
"""Said beside metrics: how many samples they are of."""
BEHIND = 2
"""Rounds that a node may be behind the furthest before it is called a straggler."""
Status = Mapping[str, Any]
Ask = Callable[[str], Status]


class WatchedNodes:
    """Nodes by their addresses; every :meth:`document` is a look at all of them."""

    def __init__(self, addresses: Sequence[str], ask: Ask = node_status) -> None:
        self.addresses = tuple(addresses)
        self._ask = ask
        self._last: dict[str, Status] = {}
        self._looks: deque[tuple[float, dict[str, tuple[int, int]]]] = deque(maxlen=KEPT)
        self._means: dict[int, Mapping[str, float]] = {}
        """What nodes said of the model, by the round it was heard in."""
        self._began = time.monotonic()

    def document(self) -> Document:
        """The nodes as they are now; one that does not answer is shown as it was last."""
        failed: dict[str, str] = {}
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for address, found in zip(self.addresses, pool.map(self._asked, self.addresses),
                                      strict=True):  # fmt: skip
                if isinstance(found, ErisError):
                    failed[address] = str(found)
                else:
                    self._last[address] = found
        totals = {address: _totals(status) for address, status in self._last.items()}
        self._looks.append((time.monotonic() - self._began, totals))
        return self._shown(failed)

    def _asked(self, address: str) -> Status | ErisError:
        try:
            return self._ask(address)
        except ErisError as failed:
            return failed

    def _name(self, address: str) -> str:
        return str(self._last.get(address, {}).get("name") or address)

    def _shown(self, failed: Mapping[str, str]) -> Document:
        known = [self._last[address] for address in self.addresses if address in self._last]
        newest = max(known, key=lambda one: (one["epoch"], one["round"]), default={})
        furthest, rounds = newest.get("round", 0), newest.get("rounds", 0)
        means = _means(known)
        if means:
            self._means[furthest] = means
            self._means = dict(list(self._means.items())[-KEPT:])
        alerts = [f"{self._name(address)}: {why}" for address, why in failed.items()]
        for address in self.addresses:
            if address in failed or address not in self._last:
                continue
            one = self._last[address]
            if not one["ready"]:
                alerts.append(f"{one['name']} is not ready: {one['reason']}")
            alerts += [
                f"{one['name']} sees {owner} alone leave out a client for {count} rounds"
                for owner, count in one.get("left_out_alone", {}).items() if count > 2
            ]  # fmt: skip
        stragglers = [one["name"] for one in known if one["round"] < furthest - BEHIND]
        facts = [
            ("nodes that answer", f"{len(self.addresses) - len(failed)} of {len(self.addresses)}"),
            ("round", f"{furthest} of {rounds}" if rounds else f"{furthest}"),
            ("epoch", str(newest.get("epoch", 0))),
            ("members of the view", str(newest.get("members", 0))),
            ("stragglers", _few(stragglers)),
            *((name, f"{value:.4g}") for name, value in means.items()),
        ]
        owners = newest.get("owners", [])
        seats = around(
            [Placed(self._name(one), *self._word(one, failed)) for one in self.addresses], owners
        )
        centre = f"round {furthest}, epoch {newest.get('epoch', 0)}"
        blocks: list[Block] = [
            Ring("Shards and their owners", "Outside shards, inside nodes; grey ones own none.",
                 centre=centre, seats=seats, owners=owners),
            Curves("Traffic", "Bytes a second, both ways, between two looks; of the busiest nodes.",
                   x="seconds", y="bytes/s", zero=True, series=self._traffic()),
            *self._evaluations(),
        ]  # fmt: skip
        return Document("Nodes", "What nodes say of themselves", facts, [
            Section("Federation", blocks),
            Section("Nodes", [self._table(failed)]),
        ], alerts)  # fmt: skip

    def _word(self, address: str, failed: Mapping[str, str]) -> tuple[str, bool]:
        if address in failed:
            return "does not answer", False
        one = self._last[address]
        return f"{one['phase']}, round {one['round']}", bool(one["ready"])

    def _evaluations(self) -> list[Block]:
        """What nodes' trainers say of the model, a plot a metric."""
        return [
            Curves(name, "What nodes say of the model; the mean over them.", x="round", y=name,
                   series=[Series("mean", [(round, found[name])
                                           for round, found in self._means.items()
                                           if name in found])])
            for name in dict.fromkeys(key for found in self._means.values() for key in found)
        ]  # fmt: skip

    def _traffic(self) -> list[Series]:
        """Of the nodes that moved most; more lines than colours are no picture."""
        looks = list(self._looks)
        busiest = sorted(self._last, key=lambda one: -sum(_totals(self._last[one])))[:MOST_LINES]
        series = []
        for address in [one for one in self.addresses if one in busiest]:
            points: list[tuple[float, float | None]] = []
            for (then, before), (now, after) in pairwise(looks):
                if address in before and address in after and now > then:
                    moved = sum(after[address]) - sum(before[address])
                    # A node that started again counts from zero.
                    points.append((round(now, 1), moved / (now - then) if moved >= 0 else None))
            series.append(Series(self._name(address), points))
        return series

    def _table(self, failed: Mapping[str, str]) -> Listing:
        noisy = any(one.get("epsilon_readers") is not None for one in self._last.values())
        columns = ("node", "is", "round", "epoch", "peers", "sent", "received", "waiting",
                   "last update, s", "failures", "refused",
                   *(["ε of readers"] if noisy else []))  # fmt: skip
        rows: list[tuple[Cell, ...]] = []
        for address in self.addresses:
            word, one = self._word(address, failed)[0], self._last.get(address)
            if one is None:
                rows.append((address, word, *[None] * (len(columns) - 2)))
                continue
            sent, received = _totals(one)
            rows.append((
                one["name"], word, one["round"], one["epoch"], one["peers_connected"], size(sent),
                size(received), size(sum(one["queue_bytes"].values())),
                round(one["training_seconds"], 2), one["training_failures"],
                one["messages_refused"], *([one.get("epsilon_readers")] if noisy else []),
            ))  # fmt: skip
        return Listing("All nodes", columns=columns, rows=rows)


def around(seats: Sequence[Placed], owners: Sequence[str | None]) -> list[Placed]:
    """Seats in a circle, each owner as near to its first shard as can be, the others between them.

    >>> seats = [Placed(name, "") for name in ("anna", "ben", "cleo", "dora")]
    >>> [one.name for one in around(seats, ["cleo", "anna"])]
    ['cleo', 'ben', 'anna', 'dora']
    """
    shards = {owner: shard for shard, owner in reversed(list(enumerate(owners)))}
    owning = sorted((one for one in seats if one.name in shards), key=lambda one: shards[one.name])
    others = iter([one for one in seats if one.name not in shards])
    places: list[Placed] = []
    for one in owning:
        wanted = (shards[one.name] + 0.5) / len(owners) * len(seats) - 0.5
        while len(places) < math.floor(wanted) and (between := next(others, None)) is not None:
            places.append(between)
        places.append(one)
    return [*places, *others]


def _few(names: Sequence[str]) -> str:
    """Some of the names, and how many there are.

    >>> _few(["anna"]), _few(["anna", "ben", "cleo", "dora"]), _few([])
    ('anna', '4: anna, ben, cleo, …', 'none')
    """
    if len(names) <= MOST_NAMES:
        return ", ".join(names) or "none"
    return f"{len(names)}: {', '.join(names[:MOST_NAMES])}, …"


def _means(known: Sequence[Status]) -> dict[str, float]:
    """What nodes say of the model, a mean a metric.

    >>> _means([{"evaluated": {"loss": 1.0}}, {"evaluated": {"loss": 2.0}}, {}])
    {'loss': 1.5}
    """
    said: dict[str, list[float]] = {}
    for one in known:
        for name, value in one.get("evaluated", {}).items():
            if isinstance(value, int | float) and math.isfinite(value) and name not in NO_METRICS:
                said.setdefault(name, []).append(value)
    return {name: statistics.fmean(values) for name, values in said.items()}


def _totals(status: Status) -> tuple[int, int]:
    return sum(status["bytes_sent"].values()), sum(status["bytes_received"].values())
