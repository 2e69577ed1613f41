"""Kills real node processes at random moments: ``python -m eris.testing.kills --runs 30``.

Four or five nodes train over mutual TLS on loopback. A seed decides who is killed (−9) in which
round and how far into it, for how long it is away, and whether it loses its disk: a member without
shards, an owner, or the node that hosts the directory (which keeps its ledger: a directory that
has forgotten who may publish would have to begin a new federation). Some are frozen instead, as a
suspended machine is, and go on as if nothing had happened.

With ``--secure`` six nodes have secure sums, "2 of 3", and two of them are killed: one that owns a
shard, and one that only helps.

Afterwards every process must have ended by itself with code 0, all models must have the same
SHA-256, the journals, those of lost disks included, must obey :mod:`eris.testing.journals`, and the
replay of the recorded included sets in this process must give the same results and the same model.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.progress import Progress

from eris.core.errors import ErisError
from eris.experiments.federations.processes import LocalFederation
from eris.experiments.federations.replay import Replayed, replay
from eris.protocol.settings import model_digest
from eris.runtimes.grpc.settings import NodeSettings
from eris.testing.journals import Line, Told, told
from eris.testing.quadratic import Quadratic, let_train

ROUNDS, LAST_ROUNDS = 30, 4
"""Rounds of a run; the last ones wait until everybody is back, or there would be no return."""
AHEAD = 5
"""Rounds after an incident's in which the others are not held back."""
TIMES: dict[str, Any] = {
    "membership.lease": 1.5,
    "federation.close_after": 0.6,
    "federation.catch_up_after": 1.0,
    "federation.retry_every": 0.2,
    "checkpoint.every_seconds": 0.3,
    "node.linger": 3.0,
}
PACE = 0.05
PATIENCE = 90.0
"""Seconds without which something is stuck, on the slowest machine."""

Role = Literal["client", "owner", "directory", "helper"]
Fate = Literal["killed", "killed without disk", "frozen"]
ROLES: tuple[Role, ...] = ("client", "owner", "owner", "directory")
FATES: tuple[Fate, ...] = ("killed", "killed", "killed without disk", "frozen")


@dataclass(frozen=True)
class NodeIncident:
    """Something happens to a node: ``delay`` seconds after it has begun a round, for a while."""

    victim: str
    role: Role
    fate: Fate
    round: int
    delay: float
    away: float

    def __str__(self) -> str:
        return f"{self.role} {self.victim} {self.fate} in round {self.round} for {self.away:.1f} s"


@dataclass(frozen=True)
class Plan:
    """A run: its members, the first of which hosts the directory, and what happens to them."""

    seed: int
    names: tuple[str, ...]
    clients_only: frozenset[str]
    kept_fraction: float | None
    incidents: tuple[NodeIncident, ...]
    secure_sums: str = "none"

    @classmethod
    def drawn(cls, seed: int, *, secure: bool = False) -> Plan:
        """The plan of a seed; with secure sums, if wanted.

        >>> [str(incident) for incident in Plan.drawn(3).incidents] == [
        ...     str(incident) for incident in Plan.drawn(3).incidents]
        True
        """
        draw = random.Random(seed)
        if secure:
            return cls._secured(seed, draw)
        names = tuple(f"node-{number}" for number in range(draw.choice((4, 5))))
        roles: dict[Role, Sequence[str]] = {
            "directory": names[:1], "owner": names[1:-1], "client": names[-1:]
        }  # fmt: skip
        incidents, round = [], 1
        for _ in range(draw.choice((1, 2, 2, 3))):
            round += draw.randint(1, 7)
            role: Role = draw.choice(ROLES)
            fate: Fate = draw.choice(FATES)
            away = draw.uniform(0.0, 2.5 * TIMES["membership.lease"])
            victim = draw.choice(roles[role])
            incidents.append(
                NodeIncident(victim, role, fate, round, draw.uniform(0, 2 * PACE), away)
            )
        kept = draw.choice((None, 0.3))
        return cls(seed, names, frozenset(roles["client"]), kept, tuple(incidents))

    @classmethod
    def _secured(cls, seed: int, draw: random.Random) -> Plan:
        """An owner and one that has seats alone are killed, in any order; with five of six there
        sums go on, and with four if all of them are in."""
        names = tuple(f"node-{number}" for number in range(6))
        victims: list[tuple[Role, str]] = [("owner", draw.choice(names[1:-1])),
                                           ("helper", names[-1])]  # fmt: skip
        draw.shuffle(victims)
        incidents, round = [], 1
        for role, victim in victims:
            round += draw.randint(1, 8)
            fate: Fate = draw.choice(("killed", "killed", "killed without disk"))
            away = draw.uniform(0.0, 2.5 * TIMES["membership.lease"])
            late = draw.uniform(0, 4 * PACE)  # into training, closing, opening
            incidents.append(NodeIncident(victim, role, fate, round, late, away))
        kept = draw.choice((None, 0.3))
        return cls(seed, names, frozenset(names[-1:]), kept, tuple(incidents), "2 of 3")


@dataclass
class KillsOutcome:
    """What came of a run."""

    plan: Plan
    seconds: float = 0.0
    epochs: int = 0
    counted: int = 0
    made: int = 0
    findings: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        what = "; ".join(map(str, self.plan.incidents))
        verdict = "ok" if not self.findings else f"{len(self.findings)} FINDINGS"
        return (
            f"seed {self.plan.seed}: {verdict}, {len(self.plan.names)} nodes, {self.epochs} epochs,"
            f" {self.counted} of {self.made} contributions counted, {self.seconds:.1f} s ({what})"
        )


class Campaign:
    """One plan, carried out in a folder."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan, self.folder = plan, folder
        self.outcome = KillsOutcome(plan)
        self.leash = folder / "leash"
        self.lost: dict[str, list[Line]] = {name: [] for name in plan.names}
        """What was in the journals of lost disks."""
        self._lives: dict[str, int] = {}
        """How many lines were in a node's journal when it was last started."""
        values: dict[str, Any] = {
            **TIMES,
            "federation.rounds": ROUNDS,
            "federation.seed": plan.seed,
            "federation.segment_size": 64,
            "federation.secure_sums": plan.secure_sums,
            "training.trainer": "eris.testing.quadratic:Quadratic",
            "training.options": {"pace": PACE, "leash": str(self.leash)},
        }
        if plan.kept_fraction is not None:
            values["federation.kept_fraction"] = plan.kept_fraction
        own = {name: {"node.aggregator": False} for name in plan.clients_only}
        self.federation = LocalFederation(folder / "nodes", plan.names, values, own)

    def run(self) -> KillsOutcome:
        """Start the nodes, let happen what is planned, and look at what is left."""
        began = time.monotonic()
        let_train(self.leash, 0)
        with self.federation:
            for name in self.plan.names:
                self._start(name)
            try:
                for incident in self.plan.incidents:
                    self._happen(incident)
                self._gather()
                let_train(self.leash, ROUNDS)
                self._end()
            except ErisError as stuck:
                self.outcome.findings.append(str(stuck))
        found, wrong = examine(self.federation, self.lost)
        self.outcome.findings += wrong
        self.outcome.epochs = max(found.views, default=0)
        self.outcome.counted, self.outcome.made = found.included()
        self.outcome.seconds = time.monotonic() - began
        return self.outcome

    # -- what happens -------------------------------------------------------------------------

    def _happen(self, incident: NodeIncident) -> None:
        federation, victim = self.federation, incident.victim
        # Not too far: the next incident is to find them at work, too.
        let_train(self.leash, min(incident.round + AHEAD, ROUNDS - LAST_ROUNDS))
        reached = partial(self._has_begun, victim, incident.round)
        self._until(reached, f"{victim} reaches round {incident.round}")
        time.sleep(incident.delay)
        if incident.fate == "frozen":
            process = federation.processes[victim]
            process.send_signal(signal.SIGSTOP)
            time.sleep(incident.away)
            process.send_signal(signal.SIGCONT)
            return
        federation.kill(victim)
        time.sleep(incident.away)
        if incident.fate == "killed without disk":
            self._lose_disk(victim)
        self._start(victim)

    def _start(self, name: str) -> None:
        self.federation.start(name)
        self._lives[name] = len(self.federation.journal(name))

    def _gather(self) -> None:
        """Wait until all are where the leash ends: whoever came after the end would find nobody."""
        let_train(self.leash, ROUNDS - LAST_ROUNDS)
        for name in self.plan.names:
            self._until(partial(self._has_begun, name, ROUNDS - LAST_ROUNDS + 1), f"{name} is back")

    def _has_begun(self, name: str, round: int) -> bool:
        """Whether a node is in a round, or beyond, in its present life."""
        lines = self.federation.journal(name)[self._lives[name] :]
        return any(line["event"] == "began" and line["round"] >= round for line in lines)

    def _lose_disk(self, name: str) -> None:
        state = self.federation.folder / name / "state"
        self.lost[name] += self.federation.journal(name)
        for path in state.iterdir():
            if not path.name.startswith("directory.sqlite"):
                path.unlink()

    def _end(self) -> None:
        """Every process ends by itself."""
        processes = self.federation.processes
        self._until(
            lambda: all(process.poll() is not None for process in processes.values()),
            "all nodes end",
        )
        for name, process in processes.items():
            if process.returncode != 0:
                log = self.federation.log(name, 5)
                self.outcome.findings.append(f"{name} ended with {process.returncode}:\n{log}")

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not holds():
            if time.monotonic() > deadline:
                raise ErisError(f"stuck: after {PATIENCE:g} s not yet that {what}\n{self._where()}")
            time.sleep(0.05)

    def _where(self) -> str:
        lines = []
        for name in self.plan.names:
            last = self.federation.log(name, 1) or "no log"
            lines.append(f"  {name}: {'runs' if self.federation.running(name) else 'down'}: {last}")
        return "\n".join(lines)


# -- what is left -----------------------------------------------------------------------------


def examine(
    federation: LocalFederation,
    lost: Mapping[str, Sequence[Line]] | None = None,
    left: Sequence[str] | None = None,
) -> tuple[Told, list[str]]:
    """What the nodes of a federation that trained :class:`Quadratic` have left; what is wrong.

    ``lost`` is what was in journals that are gone, ``left`` are those that must have left a model
    if it is not all.
    """
    names = federation.names
    journals = {name: [*(lost or {}).get(name, ()), *federation.journal(name)] for name in names}
    found = {name: federation.model(name) for name in left or names}
    models = {
        name: "none" if model is None else model_digest(model) for name, model in found.items()
    }
    wrong = [f"the models differ: {models}"] if len(set(models.values())) > 1 else []
    for name in models:
        said = [line["model"] for line in federation.events(name, "finished")]
        if said[-1:] != [models[name]]:
            wrong.append(f"{name} said its model is {said}, not {models[name]}")
    tale = told(journals)
    again = _replayed(federation, journals)
    wrong += [*tale.broken, *(f"replay: {mismatch}" for mismatch in again.mismatches)]
    if model_digest(again.model) not in models.values():
        wrong.append(f"replay: the model is {model_digest(again.model)}, not {models}")
    return tale, wrong


def _replayed(federation: LocalFederation, journals: Mapping[str, Sequence[Line]]) -> Replayed:
    settings = NodeSettings.load(federation.folder / federation.names[0] / "node.toml", {})
    options = {**settings.training.options, "pace": 0.0, "leash": ""}
    learners = {name: Quadratic(name, **options) for name in federation.names}
    initial = learners[federation.names[0]].initial()
    agreed = settings.agreement(len(initial), model_digest(initial))
    return replay(agreed, initial, learners, journals)


# -- campaigns --------------------------------------------------------------------------------


def carry_out(seed: int, folder: Path, *, secure: bool = False) -> KillsOutcome:
    """One run; the folder is kept where something was found."""
    outcome = Campaign(Plan.drawn(seed, secure=secure), folder).run()
    if not outcome.findings:
        shutil.rmtree(folder)
    return outcome


def main() -> int:
    """Run a campaign, with a progress bar; the exit status says whether a law was broken."""
    parser = argparse.ArgumentParser(prog="python -m eris.testing.kills", description=__doc__)
    parser.add_argument("--runs", type=int, default=30, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="of the first run")
    parser.add_argument("--secure", action="store_true", help="six nodes with secure sums")
    wanted = parser.parse_args()
    seeds, outcomes = range(wanted.seed, wanted.seed + wanted.runs), []
    place = Path(tempfile.mkdtemp(prefix="eris-kills-"))
    with Progress(console=Console(stderr=True, highlight=False)) as progress:
        for seed in progress.track(seeds, description="runs"):
            outcome = carry_out(seed, place / f"seed-{seed}", secure=wanted.secure)
            outcomes.append(outcome)
            print("\n  ".join((str(outcome), *outcome.findings)), flush=True)
    return _summary(outcomes, place)


def _summary(outcomes: Sequence[KillsOutcome], place: Path) -> int:
    found = [outcome.plan.seed for outcome in outcomes if outcome.findings]
    happened = [incident for outcome in outcomes for incident in outcome.plan.incidents]
    roles, fates = (Counter(getattr(one, what) for one in happened) for what in ("role", "fate"))
    kinds = ", ".join(f"{count} × {kind}" for kind, count in (roles + fates).items())
    print(f"{len(outcomes)} runs, {len(happened)} incidents: {kinds}; findings: {len(found)}")
    if found:
        print(f"seeds {found}: logs and journals are in {place}")
        return 1
    shutil.rmtree(place, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
