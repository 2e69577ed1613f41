"""Small gossiping federations that learn by heart what they hold, and their records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from eris.audit.attack import show
from eris.audit.candidates import Candidates
from eris.audit.gradients import SampleModel
from eris.audit.linkability import true_owners
from eris.audit.linked import NeighbourAudit
from eris.audit.membership import Levels, MembershipReport
from eris.audit.neighbour import Neighbourhood, NeighbourWatch
from eris.core.rules import server_rule
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.federation import Federation
from eris.methods.method import GossipMethod
from eris.protocol.gossip.peer import GossipSettings
from eris.protocol.messages import Share
from eris.protocol.transcript import Record, Transcript
from eris.training.torch import flatten, torch_clients

NODES, WIDTH, CLASSES, EACH, RATE = 6, 60, 3, 12, 0.5
FEW = Levels(draws=20)


@dataclass(frozen=True, eq=False)
class Run:
    """What a federation left behind, and what it was asked to learn."""

    transcript: Transcript
    initial: Vector
    module: nn.Module
    candidates: Candidates

    @property
    def settings(self) -> GossipSettings:
        return GossipSettings.from_canonical(self.transcript.settings)

    @property
    def samples(self) -> SampleModel:
        data = self.candidates.inputs, self.candidates.targets
        return SampleModel(self.module, functional.cross_entropy, *data)

    def watch(self, member: int) -> NeighbourWatch:
        return NeighbourWatch(self.settings, self.initial, self.transcript.neighbour(member))

    def rounds(self, records: list[Record] | None = None) -> Iterator[tuple[int, list[Record]]]:
        return by_round(self.transcript.records if records is None else records)


def by_round(records: list[Record]) -> Iterator[tuple[int, list[Record]]]:
    for round, some in groupby(records, lambda record: share_of(record).header.round):
        yield round, list(some)


def share_of(record: Record) -> Share:
    message = record.message
    assert isinstance(message, Share)
    return message


def noise(count: int, what: str) -> tuple[Tensor, Tensor]:
    """Inputs without any pattern, with labels by lot: all that can be learnt is the samples."""
    inputs = Stream(5, f"test-{what}").normal(0, count * WIDTH).reshape(count, WIDTH)
    labels = Stream(5, f"test-{what}-labels").words(0, count) % CLASSES
    return torch.from_numpy(inputs.astype(np.float32)), torch.from_numpy(labels.astype(np.int64))


def learnt_by_heart(method: GossipMethod, rounds: int = 1, steps: int = 1) -> Run:
    """Every node trains on those of its samples that a coin put in."""
    inputs, targets = noise(NODES * EACH, "samples")
    client = np.repeat(np.arange(NODES), EACH)
    included = Stream(5, "test-coins").words(0, len(client)) < 1 << 31
    module = nn.Linear(WIDTH, CLASSES)
    nn.init.zeros_(module.weight)
    nn.init.zeros_(module.bias)
    parts = [np.flatnonzero(included & (client == node)) for node in range(NODES)]
    trainers = torch_clients(module, inputs, targets, parts, learning_rate=RATE, steps=steps)
    rule = server_rule("fedavg", learning_rate=RATE)
    federation = Federation(trainers, flatten(module), method, rule=rule, seed=1)
    transcript = federation.fit(rounds, record=True, progress=False).transcript
    assert transcript is not None
    truth = Candidates(inputs, targets, client, included)
    return Run(transcript, flatten(module), module, truth)


def audited(
    run: Run,
    members: tuple[int, ...] = (1,),
    *,
    told: bool = True,
    records: list[Record] | None = None,
) -> MembershipReport:
    """What neighbours find in their rounds."""
    owners = true_owners(run.settings, run.transcript.records) if told else None
    watches = tuple(run.watch(member) for member in members)
    audit = NeighbourAudit(watches, run.samples, run.candidates, FEW, owners=owners)
    for round, some in run.rounds(records):
        show(Neighbourhood(watches), round, some, [audit])
    return audit.report()
