"""The engine for faults in the middle of a round: every node for itself, under a virtual clock."""

from __future__ import annotations

from collections.abc import Mapping

from eris.core.errors import InvalidSetting
from eris.core.vectors import Vector
from eris.protocol.agreement import Agreement
from eris.protocol.transcript import Transcript
from eris.runtimes.faults import FaultPlan
from eris.runtimes.local import LocalRuntime
from eris.runtimes.station import Report
from eris.training.population import Population
from eris.training.trainer import PerSampleNoise, check_update


class EventEngine:
    """Drives a :class:`~eris.runtimes.local.LocalRuntime` with a population's updates."""

    def __init__(
        self,
        agreement: Agreement,
        initial: Vector,
        population: Population,
        *,
        faults: FaultPlan,
        noise: PerSampleNoise | None = None,
        record: bool = False,
    ) -> None:
        transcript = Transcript(agreement.view) if record else None
        self.runtime = LocalRuntime(agreement, initial, faults=faults, transcript=transcript)
        self._population, self._noise = population, noise
        self._metrics: dict[int, Mapping[str, float]] = {}

    def run_round(self, round: int) -> Report:
        """One round of the runtime; messages under way at its end arrive in a later one."""
        traffic = self.runtime.run_round(self.train)
        refused: list[str] = []
        for node in self.runtime.nodes:
            refused += node.refused
            node.refused.clear()
        included = self.runtime.nodes[self._first].replica.included_in(round)
        report = Report(traffic, included, refused, self._metrics)
        for client in self._metrics:
            name = self.runtime.agreement.view.members[client]
            report.note_faint(name, self.runtime.nodes[client].client.sender.lost)
        self._metrics = {}
        if self.runtime.transcript is not None:
            report.records = self.runtime.transcript.records
            self.runtime.transcript.records = []
        return report

    def train(self, member: int, model: Vector, round: int) -> tuple[Vector, int, int]:
        """Ask a member for its update (what the runtime calls)."""
        (update,) = self._population.updates([member], model, round, self._noise)
        check_update(update, self.runtime.agreement.view.members[member], len(model))
        self._metrics[member] = update.metrics
        return update.vector, int(update.samples), int(update.steps)

    def models(self) -> dict[int, Vector]:
        """The model of the first live node (all settled nodes hold the same)."""
        return {0: self.runtime.nodes[self._first].model}

    def state(self) -> dict[str, Vector]:
        """Refused: messages under way belong to the state, too."""
        raise InvalidSetting("faults", "in mid-round", "faults decided once a round, to checkpoint")

    def restore(self, round: int, state: Mapping[str, Vector]) -> None:
        """Refused, as there are no states."""
        self.state()

    def close(self) -> None:
        """Nothing to give back."""

    @property
    def _first(self) -> int:
        return self.runtime.live[0] if self.runtime.live else 0
