"""Runs a recipe, keeps what happens, and goes on where it was stopped.

Every round is noted as it ends. A checkpoint is written every so many rounds and when the process
is asked to stop (SIGINT, SIGTERM: it finishes its round first). A run that goes on from a
checkpoint ends with the same bits as one that was never stopped.
"""

from __future__ import annotations

import json
import math
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from eris.core.errors import InvalidSetting
from eris.core.vectors import Vector
from eris.data.outputs import check_folder
from eris.experiments.runs.checkpoint import (
    Checkpoint,
    RunDamaged,
    TranscriptParts,
    write_transcript,
)
from eris.experiments.runs.prepared import ReadyRun, prepare
from eris.experiments.runs.progress import Progress
from eris.experiments.runs.recipe import Recipe, differences
from eris.experiments.runs.store import (
    CHECKPOINT,
    MODEL,
    PARTS,
    RECORD,
    TRANSCRIPT,
    Line,
    Run,
    free,
    timestamp,
)
from eris.files import replace
from eris.model_file import model_bytes
from eris.protocol.view import View
from eris.session import RoundRecord, Session, payers

REASONS = 3
"""How many refusals of a round are kept in words; all are counted."""


def start(recipe: Recipe, root: Path, progress: Progress) -> Run:
    """Run a recipe in a folder of its own, or go on if it is there, unfinished and the same."""
    path = _folder(recipe, root)
    if (path / RECORD).is_file():
        return resume(Run(path), progress, recipe)
    if path.exists():
        raise InvalidSetting("name", path.name, f"a new one: {path} is there and holds no run")
    # Before the data is read: a place that cannot be written to is an error at once.
    check_folder("--runs", root)
    assembly = prepare(recipe)
    # What cannot be trained is refused before there is a folder.
    with assembly.training() as training:
        run = Run.create(path, assembly.recipe, assembly.about())
        with run.locked():
            _carry_out(run, assembly, training, progress)
    return run


def _folder(recipe: Recipe, root: Path) -> Path:
    """Where a run is kept: under its name, or under the time and a number if that is taken."""
    if recipe.name is None:
        return free(root, timestamp())
    if Path(recipe.name).name != recipe.name or not recipe.name or recipe.name[0] in ".-":
        expected = "a folder's name, without / and not beginning with . or -"
        raise InvalidSetting("name", recipe.name, expected)
    return root / recipe.name


def resume(run: Run, progress: Progress, recipe: Recipe | None = None) -> Run:
    """Go on with an unfinished run; ``recipe``, if given, must be the one it was started with."""
    with run.locked():
        if run.over:
            expected = f"one that is not {run.state}; to run its recipe again: `{run.again()}`"
            raise InvalidSetting("run", run.name, expected)
        found = run.last_checkpoint()
        assembly = prepare(run.recipe if recipe is None else recipe)
        if changed := differences(run.recipe, assembly.recipe):
            expected = f"its own recipe; what differs is {'; '.join(changed)}"
            raise InvalidSetting("run to resume", run.name, expected)
        check_same_ground(run, assembly.about())
        with assembly.training() as training:
            _carry_out(run, assembly, training, progress, found)
    return run


def check_same_ground(run: Run, now: Line) -> None:
    """Data and model must be the ones the run started with."""
    for what in ("data", "model"):
        before, after = _spread(run.about[what]), _spread(now[what])
        name = now[what]["name"]
        for key in dict.fromkeys([*before, *after]):
            if before.get(key) != after.get(key):
                expected = f"{before.get(key)}, with which {run.name} started"
                raise InvalidSetting(f"{key} of the {what} {name}", after.get(key), expected)


def _spread(about: Line) -> dict[str, Any]:
    """The values of a table by name, those of a table in it too."""
    found: dict[str, Any] = {}
    for key, value in about.items():
        inner = isinstance(value, Mapping)
        found |= {f"{key} of {k}": v for k, v in value.items()} if inner else {key: value}
    return found


def _carry_out(
    run: Run, assembly: ReadyRun, training: Session, progress: Progress,
    found: Checkpoint | None = None,
) -> None:  # fmt: skip
    """Train until the recipe's rounds are done or the process is asked to stop."""
    rounds = assembly.recipe.training.rounds
    parts = TranscriptParts(run.path / PARTS)
    with asked_to_stop() as stop:
        _restore(run, training, found, parts)
        run.note(state="running", ended=None, error=None, privacy=_spent(training))
        progress.begin(run.name, training.round, rounds)
        try:
            while training.round < rounds and not stop:
                line = _one_round(run, assembly, training)
                every = assembly.recipe.engine.checkpoint_every
                if training.round % every == 0 and training.round < rounds:
                    _keep(run, assembly, training, parts)
                progress.round(line)
            if training.round == rounds:
                _finish(run, assembly, training)
            else:
                _keep(run, assembly, training, parts)
                run.ended("interrupted")
        except BaseException as error:
            run.ended("interrupted", error=f"{type(error).__name__}: {error}")
            raise
        finally:
            progress.end()


def _restore(run: Run, training: Session, found: Checkpoint | None, parts: TranscriptParts) -> None:
    if found is not None:
        if found.about != _belongs_to(training):
            what = "is of a training with other settings"
            remedy = "use the version of the package that wrote it, or remove it to start over"
            raise RunDamaged(run.path / CHECKPOINT, what, remedy)
        training.restore(found.round, found.state)
    run.rewind(found)
    if training.transcript is not None:
        training.transcript.records[:] = parts.load(training.round)


def _one_round(run: Run, assembly: ReadyRun, training: Session) -> Line:
    """Train a round, evaluate if it is time to, and note both."""
    options = assembly.recipe.training
    before = time.perf_counter()
    record = training.step()
    seconds = time.perf_counter() - before
    last = record.round == options.rounds
    due = record.round % options.evaluate_every == 0 or last
    metrics = assembly.evaluate(training, nodes=last) if due else {}
    line = round_line(record, training.view, metrics, seconds)
    run.append(line, client_lines(record, frozenset(training.view.clients)))
    return line


def _keep(run: Run, assembly: ReadyRun, training: Session, parts: TranscriptParts) -> None:
    """Write a checkpoint, of what can have one."""
    # Faults in the middle of a round leave messages under way, which no checkpoint holds: such a
    # run starts over. So does one that was stopped before its first round.
    if training.round == 0 or assembly.faults.in_mid_round:
        return
    if training.transcript is not None:
        parts.save(training.transcript, training.round)
    run.save_checkpoint(training.round, training.state(), _belongs_to(training))


def _belongs_to(training: Session) -> dict[str, str]:
    """What a state may be restored to."""
    return {"settings": training.settings}


def _spent(training: Session) -> Line | None:
    """The privacy that all rounds together spend, of methods that add noise."""
    budget = training.privacy
    if budget is None:
        return None
    found = {"epsilon": budget.epsilon, "delta": budget.delta, "claim": asdict(budget.claim)}
    return found if budget.openers is None else found | {"epsilon of openers": budget.openers}


def _finish(run: Run, assembly: ReadyRun, training: Session) -> None:
    """Write the model and the transcript, and only then say so."""
    model = training.model
    about = json.dumps({"rounds": training.round, **_belongs_to(training)}, sort_keys=True)
    replace(run.path / MODEL, model_bytes(model, assembly.federation.layout, {"eris": about}))
    if training.transcript is not None:
        training.transcript.final_model = model.copy()
        write_transcript(training.transcript, run.path / TRANSCRIPT)
    failure = failed(run.rounds(), model)
    run.ended("finished" if failure is None else "failed", error=failure)
    # What only a run that goes on needs.
    for name in (PARTS, CHECKPOINT):
        shutil.rmtree(run.path / name, ignore_errors=True)


def failed(lines: Sequence[Line], model: Vector) -> str | None:
    """Why the rounds of a run have come to nothing, in words; None if they have not."""
    last = lines[-1]
    if last["included"] == 0 and last["refused"]:
        since = next((x["round"] for x in reversed(lines) if x["included"]), 0) + 1
        reason = "; ".join(last.get("reasons", ())[:1])
        rounds = "in the last round" if since >= last["round"] else f"from round {since} on"
        return f"every contribution was refused {rounds} ({reason})"
    if not np.isfinite(model).all():
        return "it diverged: the model is not finite"
    measured = reversed([line for line in lines if line["metrics"]])
    for name, value in next(measured, {"metrics": {}})["metrics"].items():
        if value is None or not math.isfinite(value):
            return f"it diverged: {name} is not finite"
    return None


def round_line(
    record: RoundRecord, view: View, metrics: Mapping[str, float], seconds: float
) -> dict[str, Any]:
    """What is kept of a round: bytes by kind, over all members and of the clients alone."""
    sent, received = (_totals(way, 0) for way in (record.traffic.sent, record.traffic.received))
    paying = payers(view)
    line = {
        "round": record.round,
        "metrics": dict(metrics),
        "included": record.included,
        "refused": len(record.refused),
        "client_loss": _mean_loss(record),
        "sent": dict(sorted(_totals(record.traffic.sent, 1).items())),
        "received": dict(sorted(_totals(record.traffic.received, 1).items())),
        "clients": len(record.clients) or len(view.clients),
        "clients_sent": sum(size for member, size in sent.items() if member in paying),
        "clients_received": sum(size for member, size in received.items() if member in paying),
        "busiest": max((sent + received).values(), default=0),
        "seconds": round(seconds, 6),
    }
    line |= {"noise": record.noise} if record.noise else {}
    return line | ({"reasons": record.refused[:REASONS]} if record.refused else {})


def _mean_loss(record: RoundRecord) -> float | None:
    """The mean of what clients say of their own loss; None if they say nothing."""
    losses = [float(said["loss"]) for said in record.clients.values() if "loss" in said]
    return sum(losses) / len(losses) if losses else None


def client_lines(record: RoundRecord, clients: Set[int]) -> Iterator[dict[str, Any]]:
    """What is kept of each client that trained or exchanged anything in a round."""
    sent, received = (_totals(way, 0) for way in (record.traffic.sent, record.traffic.received))
    for client in sorted(({*sent, *received} & clients) | set(record.clients)):
        yield {
            "round": record.round,
            "client": client,
            **record.clients.get(client, {}),
            "sent": sent[client],
            "received": received[client],
        }


def _totals(traffic: Counter[tuple[int, str]], place: int) -> Counter[Any]:
    """Bytes by member (place 0 of a key), or by kind of message (1)."""
    total: Counter[Any] = Counter()
    for key, size in traffic.items():
        total[key[place]] += size
    return total


@contextmanager
def asked_to_stop() -> Iterator[list[int]]:
    """Inside the block SIGINT and SIGTERM are noted instead of ending the process; the second ends
    it at once.

    Python hands signals to the main thread only; in another one nothing is noted.
    """
    asked: list[int] = []

    def ask(number: int, frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    here = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGINT, signal.SIGTERM) if here else ()
    before = {number: signal.signal(number, ask) for number in numbers}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
