"""Runs on disk: what was asked, what happened in every round, and enough to go on after a kill.

A run is a folder:

- ``recipe.toml``, what was asked, every default spelled out;
- ``run.json``, what it ran on: versions, data and model with their checksums, its state and, once
  it is finished, the size and checksum of each of its files;
- ``rounds.jsonl`` and ``clients.jsonl``, a line a round, and a line a round and client;
- ``checkpoint/``, the newest checkpoint (:mod:`eris.experiments.runs.checkpoint`);
- ``model.safetensors``, and ``transcript.eris`` if messages were kept, once it is finished.

One process at a time may work on a run: ``run.lock`` is locked as long as it does.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import math
import os
import secrets
import shlex
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

from eris.core.errors import ErisError, InvalidSetting, did_you_mean
from eris.data.cache import sha256_of, write_atomically
from eris.experiments.runs import checkpoint
from eris.experiments.runs.checkpoint import Checkpoint, RunDamaged
from eris.experiments.runs.recipe import Recipe
from eris.files import synced

FORMAT = 1
RECIPE, RECORD, LOCK = "recipe.toml", "run.json", "run.lock"
ROUNDS, CLIENTS = "rounds.jsonl", "clients.jsonl"
CHECKPOINT, PARTS = "checkpoint", "transcript"
MODEL, TRANSCRIPT = "model.safetensors", "transcript.eris"
KEPT = (ROUNDS, CLIENTS, MODEL, TRANSCRIPT)
"""What is left of a finished run, of which ``run.json`` notes size and checksum."""

State = Literal["running", "finished", "failed", "interrupted"]
OVER = ("finished", "failed")
"""All rounds are done."""
Line = Mapping[str, Any]


class RunBusy(ErisError):
    """Another process works on the run."""


def runs_root(given: str | os.PathLike[str] | None = None) -> Path:
    """The folder of all runs: ``given``, ``$ERIS_RUNS``, or ``runs``."""
    return Path(given or os.environ.get("ERIS_RUNS") or "runs")


def kept_runs(given: str | os.PathLike[str] | None = None) -> Path:
    """The folder of all runs, to look for some; one that was named has to be there."""
    root, named = runs_root(given), given or os.environ.get("ERIS_RUNS")
    if named and not root.is_dir():
        raise InvalidSetting("--runs" if given else "ERIS_RUNS", str(root), "a folder with runs")
    return root


def timestamp() -> str:
    """The time as the name of a run that was given none."""
    return datetime.now(UTC).strftime("%Y%m%d-%H%M%S")


def free(root: Path, name: str) -> Path:
    """A folder of that name, or with a number after it if that is taken."""
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    return next(path for one in names if not (path := root / one).exists())


class Run:
    """One run's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.about = _read_record(path)
        """What ``run.json`` says."""

    @classmethod
    def create(cls, path: Path, recipe: Recipe, about: Line) -> Run:
        """Make the folder of a run that has not started, whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
        temporary.mkdir()
        try:
            started = {"format": FORMAT, "state": "running", "started": _now(), "ended": None}
            (temporary / RECIPE).write_text(recipe.to_toml(), encoding="utf-8")
            write_atomically(temporary / RECORD, _document({**started, **about}))
            temporary.rename(path)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        return cls(path)

    # -- what is known of it ------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.path.name

    @cached_property
    def recipe(self) -> Recipe:
        """What was asked, with every default."""
        path = self.path / RECIPE
        try:
            return Recipe.from_toml(path.read_text(encoding="utf-8"), where=path)
        except (OSError, UnicodeDecodeError, InvalidSetting) as broken:
            raise RunDamaged(path, f"is damaged ({broken})", "put it back as it was") from broken

    @property
    def state(self) -> State:
        """Whether it runs, is finished, failed, or was interrupted (a killed run says it is
        running, but nobody holds its lock)."""
        state: State = self.about["state"]
        return "interrupted" if state == "running" and not self._locked() else state

    @property
    def over(self) -> bool:
        """Whether all its rounds are done: it is finished, or failed."""
        return self.state in OVER

    def rounds(self) -> list[Line]:
        """The lines of the rounds done; a half-written last one is left out."""
        return list(_lines(self.path / ROUNDS))

    def clients(self) -> list[Line]:
        """The lines of clients."""
        return list(_lines(self.path / CLIENTS))

    def damage(self, *read: str) -> RunDamaged | None:
        """What is missing of the files that the run wrote, or has another size; those to ``read``
        are held to their checksums as well."""
        for name, noted in self._noted().items():
            path = self.path / name
            if not path.is_file():
                return self._damaged(path, "is missing")
            size = path.stat().st_size
            written = noted.get("bytes", max(size, noted.get("least", 0)))
            if size != written:
                return self._damaged(path, f"has {size:,} bytes; {written:,} were written")
            if name in read and noted.get("sha256") not in (None, sha256_of(path)):
                return self._damaged(path, "is not what was written: its sha256 differs")
        return None

    def check(self, *read: str) -> None:
        """Refuse a damaged run; see :meth:`damage`."""
        if (found := self.damage(*read)) is not None:
            raise found

    def _noted(self) -> Mapping[str, Line]:
        """What is known of the files: of a finished run all, before that what a checkpoint rests
        on, to which rounds are added."""
        if self.about["state"] in OVER:
            noted: Mapping[str, Line] = self.about.get("files", {ROUNDS: {}, MODEL: {}})
            return noted
        sizes = checkpoint.sizes(self.path / CHECKPOINT)
        return {name: {"least": size} for name, size in sizes.items()}

    def _damaged(self, path: Path, what: str) -> RunDamaged:
        again = self.again()
        return RunDamaged(path, what, f"put it back as it was, or run the recipe again: `{again}`")

    def again(self, ending: str = "again", *options: str) -> str:
        """The command that runs the recipe once more, under a name that is free."""
        name = free(self.path.parent, f"{self.name}-{ending}").name
        return self._command("run", str(self.path / RECIPE), *options, "--name", name)

    def resuming(self) -> str:
        """The command that goes on with the run."""
        return self._command("run", "--resume", self.name)

    def _command(self, *words: str) -> str:
        """A line that can be typed as it is: it looks for runs where this one is kept."""
        root = self.path.parent
        where = [] if root == runs_root() else ["--runs", str(root)]
        return shlex.join(["eris", *words, *where])

    # -- working on it ------------------------------------------------------------------------

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run, so that no other process works on it."""
        with (self.path / LOCK).open("ab") as file:
            _lock(file.fileno(), self.path)
            self.about = _read_record(self.path)
            yield

    def note(self, **values: Any) -> None:
        """Change what ``run.json`` says."""
        self.about = {**self.about, **values}
        write_atomically(self.path / RECORD, _document(self.about))

    def ended(self, state: State, **values: Any) -> None:
        """Note how a run ended and, if all its rounds are done, what it leaves behind."""
        if state in OVER:
            there = [path for name in KEPT if (path := self.path / name).is_file()]
            for path in there:
                synced(path)
            values["files"] = {
                path.name: {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
                for path in there
            }
        self.note(state=state, ended=_now(), **values)

    def append(self, line: Line, clients: Iterable[Line]) -> None:
        """Add a round."""
        for name, lines in ((CLIENTS, clients), (ROUNDS, [line])):
            with (self.path / name).open("ab") as file:
                file.write(b"".join(_encoded(one) for one in lines))

    def save_checkpoint(self, round: int, state: Mapping[str, Any], about: Line) -> None:
        """Write a checkpoint; the rounds up to it are on disk before it counts."""
        sizes = {}
        for name in (CLIENTS, ROUNDS):
            synced(self.path / name)
            sizes[name] = (self.path / name).stat().st_size
        checkpoint.save(self.path / CHECKPOINT, Checkpoint(round, state, about, sizes))

    def last_checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint, checked."""
        return checkpoint.latest(self.path / CHECKPOINT)

    def rewind(self, to: Checkpoint | None) -> None:
        """Cut off what was noted after a checkpoint, and what a kill left half-written."""
        checkpoint.clean(self.path / CHECKPOINT)
        for name in (CLIENTS, ROUNDS):
            path = self.path / name
            path.touch()
            size = to.sizes.get(name, 0) if to else 0
            last = 0
            for line, end in _with_ends(path):
                if end > size or line is None:
                    break
                last = line["round"]
            if path.stat().st_size < size or (to and name == ROUNDS and last != to.round):
                what = f"is not what it was at the checkpoint of round {to.round if to else 0}"
                remedy = f"put it back, or remove {CHECKPOINT} to start over"
                raise RunDamaged(path, what, remedy)
            with path.open("r+b") as file:
                file.truncate(size)
                os.fsync(file.fileno())

    def _locked(self) -> bool:
        try:
            with (self.path / LOCK).open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except FileNotFoundError:
            pass
        return False


def find(name: str, root: Path) -> Run:
    """The run of that name, or at that path."""
    for path in (root / name, Path(name)):
        if path.name and (path / RECORD).is_file():
            return Run(path)
    known = [path.name for path in _folders(root)]
    hint = did_you_mean(name, known) or (
        f": {', '.join(known[-5:])}" if known else "; there is none"
    )
    raise InvalidSetting("run", name, f"one of the runs in {root}{hint}")


def all_runs(root: Path) -> Iterator[Run | ErisError]:
    """Every run, and of one that cannot be read why."""
    for path in _folders(root):
        try:
            run = Run(path)
            _ = run.recipe
            yield run
        except ErisError as unreadable:
            yield unreadable


def _folders(root: Path) -> list[Path]:
    if not root.is_dir():
        return []
    return sorted(p for p in root.iterdir() if (p / RECORD).is_file() and p.name[0] != ".")


def _read_record(path: Path) -> Line:
    file = path / RECORD
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        version, state = record["format"], record["state"]
    except FileNotFoundError:
        raise InvalidSetting("run", str(path), f"a folder with {RECORD}") from None
    except (ValueError, KeyError, TypeError) as broken:
        raise RunDamaged(file, f"is damaged ({broken!r})", "put it back as it was") from broken
    if version != FORMAT:
        raise InvalidSetting(f"format of {path}", version, f"{FORMAT}, which this version reads")
    if state not in get_args(State):
        raise RunDamaged(file, f"has the state {state!r}", "put it back as it was")
    return dict(record)


def _lock(descriptor: int, path: Path) -> None:
    # Twice again: someone who lists runs holds the lock for a moment to see whether it is free.
    for pause in (0.05, 0.05, None):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if pause is None:
                raise RunBusy(f"another process works on {path}; wait for it or stop it") from None
            time.sleep(pause)


def _lines(path: Path) -> Iterator[Line]:
    if path.is_file():
        yield from (line for line, _ in _with_ends(path) if line is not None)


def _with_ends(path: Path) -> Iterator[tuple[Line | None, int]]:
    """Lines and where each ends; None for the last one if it was cut off."""
    end = 0
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            end += len(raw)
            if not raw.endswith(b"\n"):
                yield None, end
                return
            try:
                line = json.loads(raw)
                int(line["round"])
            except (ValueError, LookupError, TypeError) as broken:
                what = f"is damaged in line {number} ({broken!r})"
                raise RunDamaged(path, what, "put it back as it was") from broken
            yield line, end


def _encoded(line: Line) -> bytes:
    return json.dumps(finite(line), allow_nan=False).encode() + b"\n"


def _document(record: Line) -> bytes:
    return (json.dumps(finite(record), indent=2, ensure_ascii=False) + "\n").encode()


def finite(value: Any) -> Any:
    """JSON has no word for a loss that is not a number: null."""
    if hasattr(value, "item"):  # a number of NumPy's
        value = value.item()
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
