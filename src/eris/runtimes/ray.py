"""Stations as Ray actors: the same rounds as in one process, on a cluster or on all cores here.

A phase is one call to every actor. What an actor sends to another stays in Ray's object store, as
one object for each receiver; this process passes references on and never sees an update. It gets
counts, metrics and, if asked for, the transcript and the model.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from eris.core.errors import InvalidSetting, library
from eris.core.vectors import Vector
from eris.runtimes.station import Outbox, Parcel, Place, Report, Station, joined, train_apart

log = logging.getLogger("eris.training")


class _Actor:
    """One station, in a process of its own. Its methods are what Ray calls."""

    def __init__(self, build: Callable[..., Station], number: int, stations: int) -> None:
        self._stations = stations
        self._station = build(place=Place(number, stations))

    def phases(self) -> int:
        return self._station.phases

    def act(self, round: int, phase: int, *inbox: list[Parcel]) -> Any:
        """One phase; returns one list of parcels for every station."""
        parcels = [parcel for some in inbox for parcel in some]
        out: Outbox = self._station.act(round, phase, parcels)
        lists = [out.get(number, []) for number in range(self._stations)]
        return lists[0] if self._stations == 1 else lists

    def report(self) -> Report:
        return self._station.report()

    def train_apart(self, after: int) -> None:
        train_apart(self._station, after)

    def models(self) -> dict[int, Vector]:
        return self._station.models()

    def state(self) -> dict[str, Vector]:
        return self._station.state()

    def restore(self, round: int, state: Mapping[str, Vector]) -> None:
        # What Ray hands over is read-only and shared.
        self._station.restore(round, {name: value.copy() for name, value in state.items()})


class RayStations:
    """An engine of ``count`` stations (default: one for every core of the cluster).

    Uses the Ray cluster this process is connected to or, if ``RAY_ADDRESS`` names one, that;
    otherwise starts one on this machine, and stops it at the end.
    """

    def __init__(self, build: Callable[..., Station], count: int | None = None) -> None:
        self._started = not _ray().is_initialized()
        self._ray = connect()
        count = count or max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        if count < 1:
            raise InvalidSetting("stations", count, "at least 1")
        # One copy of the population in the object store, however many actors read it.
        shared = self._ray.put(build)
        remote = self._ray.remote(_Actor)
        self.actors = [remote.remote(shared, number, count) for number in range(count)]
        self._phases = self._ray.get(self.actors[0].phases.remote())

    def run_round(self, round: int) -> Report:
        """All phases of a round; only references pass through here."""
        count = len(self.actors)
        inboxes: Sequence[Sequence[Any]] = [[] for _ in self.actors]
        for phase in range(self._phases):
            outboxes = [
                actor.act.options(num_returns=count).remote(round, phase, *inbox)
                for actor, inbox in zip(self.actors, inboxes, strict=True)
            ]
            if count == 1:
                outboxes = [[outbox] for outbox in outboxes]
            inboxes = [[outbox[number] for outbox in outboxes] for number in range(count)]
        # The last phase sends nothing; this waits for it, and says what went wrong in any phase.
        self._ray.get([ref for inbox in inboxes for ref in inbox])
        report = joined(self._ray.get([actor.report.remote() for actor in self.actors]))
        if report.apart is not None:
            if report.apart == round:  # what an actor logs does not get here
                log.warning(
                    "in round %d a pass of several clients differed from the plain loop; from now "
                    "on clients are trained one after another",
                    round,
                )
            self._ray.get([actor.train_apart.remote(report.apart) for actor in self.actors])
        return report

    def models(self) -> dict[int, Vector]:
        """The models of all members by number; a single one where all hold the same."""
        return self._merged("models")

    def state(self) -> dict[str, Vector]:
        """Everything that is needed to continue, whatever the number of stations."""
        return self._merged("state")

    def restore(self, round: int, state: Mapping[str, Vector]) -> None:
        """Continue from a ``state()`` after a round."""
        shared = self._ray.put(dict(state))
        self._ray.get([actor.restore.remote(round, shared) for actor in self.actors])

    def close(self) -> None:
        """Stop the actors, and the cluster if it was started here."""
        for actor in self.actors:
            self._ray.kill(actor)
        for actor in self.actors:
            self._await_end(actor)
        if self._started:
            self._ray.shutdown()

    def _await_end(self, actor: Any) -> None:
        # Ray's kill returns at once; an actor still answers until the cluster has acted on it.
        with contextlib.suppress(self._ray.exceptions.RayActorError):
            while True:
                self._ray.get(actor.phases.remote())

    def _merged(self, what: str) -> dict[Any, Vector]:
        found: dict[Any, Vector] = {}
        for part in self._ray.get([getattr(actor, what).remote() for actor in self.actors]):
            found.update(part)
        return found


def connect() -> Any:
    """Ray, connected to a cluster: the one at hand, or a new one on this machine.

    Every worker computes on one thread, so that results do not depend on a machine's cores.
    """
    ray = _ray()
    if not ray.is_initialized():
        ray.init(
            log_to_driver=False,
            include_dashboard=False,
            logging_level="ERROR",
            runtime_env={"env_vars": {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}},
        )
    return ray


def _ray() -> Any:
    # Ray's usage statistics are a network connection nobody asked for.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    return library("ray", "ray", "ray")
