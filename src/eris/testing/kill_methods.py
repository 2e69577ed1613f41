"""Every method on six real nodes, one killed and back: ``python -m eris.testing.kill_methods``.

Six clients, and a server where the method has one, train LeNet-5 on MNIST over mutual TLS on
loopback. One client is killed (−9) early in the run and started again; the others' training waits
until it has joined, for forty rounds take less time than to start a process. Then the simulator
trains with the same settings, data and seed where nothing fails, for the accuracy; and where what
the nodes did follows from their journals, every result is computed again from them, for the bits.

One line a method, and a line of JSON at the end; the exit status says whether a method fell behind
the simulator by more than two points, or had other bits.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from eris.core.errors import InvalidSetting
from eris.core.rules import server_rule
from eris.core.vectors import Vector
from eris.experiments.federations.learners import Mnist
from eris.experiments.federations.live import LiveWatch
from eris.experiments.federations.outcome import FederationOutcome
from eris.experiments.federations.processes import (
    METHOD,
    OPTIONS,
    SERVER,
    LocalFederation,
    federation_values,
    has_server,
    mnist_shares,
    node_names,
    role_values,
)
from eris.experiments.federations.replay import replay
from eris.federation import Federation
from eris.methods.method import GossipMethod
from eris.methods.registry import METHODS, create
from eris.protocol.settings import model_digest
from eris.runtimes.grpc.settings import usual_secure_sums
from eris.training.trainer import LocalUpdate, PerSampleNoise

NODES, SAMPLES, BATCH, RATE, KEPT = 6, 500, 25, 0.05, 0.1
POINTS = 0.02
"""By which nodes may be below the simulator."""
OF: dict[str, dict[str, Any]] = {
    "d-psgd": {"degree": 3},
    "el": {"degree": 3},
    "muffliato": {"degree": 3},
    "sefl": {"key_bits": 256},
    "soteriafl": {"noise": False},
}
"""Settings of methods, where the defaults do not do: six nodes, no security where it takes hours,
and no noise where bits can be compared without."""
SECURE = {"eris", "grid"}
"""Methods whose sums are secure on six nodes if nothing is said."""
DRAWN = {"fedavg-ldp", "grid", "priprune"}
"""Aggregating methods whose bits are not computed again from journals: secret noise, rounding at
random, a client's state."""
LEASH, LOOK_EVERY = "leash", 0.02
AHEAD = 6
"""Rounds that the others train at most while one is away."""
TRAINER = "eris.testing.kill_methods:leashed"


class Leashed(Mnist):
    """MNIST on a leash: training of a round waits until the number in a file is as large."""

    leash: Path

    def update(self, parameters: Vector, round: int) -> LocalUpdate:
        """As without a leash, once it may."""
        self._wait(round)
        return super().update(parameters, round)

    def private_update(self, parameters: Vector, round: int, noise: PerSampleNoise) -> LocalUpdate:
        """As without a leash, once it may."""
        self._wait(round)
        return super().private_update(parameters, round, noise)

    def _wait(self, round: int) -> None:
        while int(self.leash.read_text()) < round:
            time.sleep(LOOK_EVERY)


def leashed(
    name: str, *, leash: str, members: int, samples: int, seed: int, member: int | None = None
) -> Leashed:
    """What the nodes train with, and the simulator, when the leash is long enough for all."""
    learner = Leashed(member, members, samples, BATCH, RATE, seed)
    learner.leash = Path(leash)
    return learner


@dataclass(frozen=True)
class Survived:
    """What came of one method."""

    method: str
    options: Mapping[str, Any]
    rounds: int
    seed: int
    victim: str
    killed_in: int
    back_in: int
    nodes: float
    simulator: float
    finished: bool
    bits: str
    """Whether all results were computed again bit for bit: equal, the number of those that were
    not, or why they cannot be."""

    @property
    def good(self) -> bool:
        """Whether nothing was lost."""
        near = self.nodes > self.simulator - POINTS
        return self.finished and near and self.bits.partition(" ")[0] in ("equal", "–")

    def __str__(self) -> str:
        ran = f"MNIST, LeNet-5, {NODES} × {SAMPLES} images, {self.rounds} rounds, seed {self.seed}"
        away = f"{self.victim} killed in round {self.killed_in}, back in {self.back_in}"
        accuracy = f"nodes {self.nodes:.2%}, simulator {self.simulator:.2%} of 10,000 test images"
        named = f"{self.method} {dict(self.options)}" if self.options else self.method
        return f"{named}: {ran}; {away}; {accuracy}; bits: {self.bits}"


def survive(method: str, rounds: int, seed: int, folder: Path) -> Survived:
    """Let nodes train by a method, kill one in the middle, and compare."""
    options = OF.get(method, {})
    chosen: dict[str, Any] = {} if method == "eris" else {METHOD: method, OPTIONS: options}
    names, clients = node_names(NODES), node_names(NODES)
    early = max(2, rounds // 10)
    leash = folder.with_suffix(f".{LEASH}")
    leash.write_text(str(early + AHEAD))
    own = mnist_shares(clients, SAMPLES, seed, lambda line: None, leash=str(leash))
    if has_server(NODES, chosen):
        names = [*clients, SERVER]
        own = {name: own[name] | role_values(name == SERVER) for name in names}
    values = federation_values(
        NODES, rounds=rounds, kept=KEPT, learning_rate=RATE, seed=seed, trainer=TRAINER,
        method=chosen,
    )  # fmt: skip
    federation, victim = LocalFederation(folder, names, values, own), clients[1]
    with federation, LiveWatch(federation, rounds, Console(quiet=True)) as watch:
        board = watch.board
        for name in names:
            federation.start(name)
        watch.follow(lambda: board.rows[victim].round >= early, 0.05)
        federation.kill(victim)
        killed_in = board.rows[victim].round
        watch.follow(lambda: board.round > killed_in + 1)
        lived = len(federation.journal(victim))
        federation.start(victim)
        watch.follow(
            lambda: any(n["event"] == "view" for n in federation.journal(victim)[lived:]), 0.05
        )
        leash.write_text(str(rounds))
        watch.follow(watch.over)
    outcome = FederationOutcome.of(federation, rounds)
    again = outcome.journals[victim][lived:]
    back_in = next((note["round"] for note in again if note["event"] == "trained"), 0)
    given = {name: federation.settings(name).training.options for name in clients}
    learners = {name: leashed(name, **options) for name, options in given.items()}
    found = [row.metrics.get("accuracy", 0.0) for row in outcome.board.rows.values()]
    return Survived(
        method, options, rounds, seed, victim, killed_in, back_in, float(np.mean(found)),
        simulated(method, rounds, seed, list(learners.values())), outcome.finished,
        bits(federation, outcome, learners),
    )  # fmt: skip


def simulated(method: str, rounds: int, seed: int, learners: Sequence[Mnist]) -> float:
    """The accuracy of the simulator with the same settings, nothing failing; a mean over nodes
    where each has a model of its own."""
    options: dict[str, Any] = dict(OF.get(method, {}))
    if method == "eris":
        options = {"aggregators": NODES, "kept_fraction": KEPT}
    if method in SECURE:
        options["secure"] = usual_secure_sums(NODES)
    made = create(method, **options)
    fit = Federation(
        list(learners), learners[0].initial(), made, samples=[SAMPLES] * NODES,
        rule=server_rule("fedavg", learning_rate=RATE), seed=seed,
    ).fit(rounds, progress=False)  # fmt: skip
    models = fit.models if isinstance(made, GossipMethod) else (fit.model,)
    return float(np.mean([learners[0].evaluate(model)["accuracy"] for model in models]))


def bits(
    federation: LocalFederation, outcome: FederationOutcome, learners: Mapping[str, Mnist]
) -> str:
    """Whether all that nodes published comes out again, bit for bit."""
    settings = federation.settings(federation.names[0])
    if settings.gossip is not None:
        return "– each node has its own model"
    if settings.federation.method in DRAWN:
        return "– not from journals"
    initial = next(iter(learners.values())).initial()
    agreed = settings.agreement(len(initial), model_digest(initial))
    again = replay(agreed, initial, learners, outcome.journals)
    if not again.equal:
        return f"{len(again.mismatches)} of {again.results} results differ"
    if set(outcome.models.values()) != {model_digest(again.model)}:
        return "another model"
    return f"equal ({again.results} results, SHA-256 {model_digest(again.model)[:8]}…)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the methods one after another."""
    parser = argparse.ArgumentParser(
        prog="python -m eris.testing.kill_methods", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--method", default="all", choices=["all", *METHODS])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    wanted = parser.parse_args(arguments)
    place = Path(tempfile.mkdtemp(prefix="eris-kill-methods-"))
    methods = [wanted.method] if wanted.method != "all" else list(METHODS)
    found = []
    for method in methods:
        try:
            found.append(survive(method, wanted.rounds, wanted.seed, place / method))
            print(found[-1], flush=True)
        except InvalidSetting as refused:  # nodes cannot carry it
            print(f"{method}: {refused}", flush=True)
    print(json.dumps({one.method: asdict(one) | {"good": one.good} for one in found}))
    if bad := [one.method for one in found if not one.good]:
        print(f"{', '.join(bad)}: logs and journals are in {place}", file=sys.stderr)
        return 1
    shutil.rmtree(place, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
