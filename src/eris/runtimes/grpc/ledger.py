"""The directory's state on disk: one SQLite file, written before anybody is told.

What has been saved survives the end of the process and of the power: an answer that left can never
be forgotten. One process at a time may hold the file; others may read it, for a copy
(:func:`backup`). Its newest revisions are in ``directory.sqlite-wal``: a copy of the one file alone
is of an older ledger, or of none.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from eris.core.errors import ErisError
from eris.files import PRIVATE
from eris.runtimes.grpc import storage

APPLICATION = 0x45524953  # "ERIS"
FORMAT = 4
FEDERATION = ("charter", "revision", "secret", "terms", "stale")
MEMBER = {
    "name": "TEXT NOT NULL UNIQUE",
    "fingerprint": "TEXT NOT NULL",
    "address": "TEXT NOT NULL",
    "client": "INTEGER NOT NULL",
    "aggregator": "INTEGER NOT NULL",
    "max_share": "REAL NOT NULL",
    "samples": "INTEGER NOT NULL",
    "incarnation": "INTEGER NOT NULL",
    "through": "INTEGER NOT NULL",
    "round": "INTEGER NOT NULL",
    "presence": "TEXT NOT NULL",
    "start": "INTEGER NOT NULL",
}
"""A member's columns beside its number; as in the directory's state."""
STATEMENT = ("member", "start", "exchange", "signing", "certificate", "signature")
"""A key statement's columns beside its place, which names member and start."""
KINDS = {"TEXT": str, "INTEGER": int, "REAL": float}
VIEW = ("epoch", "from_round", "members", "clients", "owners", "samples", "helpers", "starts")
LISTS = VIEW[3:]
"""Columns of a view that hold JSON."""

PATIENCE = 5.0
"""Seconds to wait for another process that has the file locked."""

Row = tuple[Any, ...]
Rows = dict[Any, Row]
"""By what names a row: a number, an epoch, a place."""


class LedgerDamaged(ErisError):
    """The file cannot be read; says which, and what to do."""

    def __init__(self, path: Path, what: object) -> None:
        super().__init__(
            f"{path}, the directory's ledger, is damaged ({what}); put its last copy back if "
            f"nothing has happened since, otherwise let all members begin anew with empty folders: "
            f"without the ledger nobody knows which rounds have been published"
        )


class LedgerUnwritable(ErisError):
    """The file cannot be written; nothing has changed in it."""

    def __init__(self, path: Path, what: object) -> None:
        super().__init__(
            f"cannot write {path}, the directory's ledger ({what}); make room on the disk and "
            f"check that this user may write there: members wait until it is possible again"
        )


class Ledger:
    """The ledger in a file, made if there is none; held until :meth:`close`."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._one_at_a_time = threading.Lock()
        self._held = self._hold()
        try:
            # Whoever can read a ledger can make marks of it: it is its owner's alone.
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, PRIVATE))
            # Any thread may save: a commit waits for the disk.
            self._file = sqlite3.connect(
                self.path, timeout=PATIENCE, isolation_level=None, check_same_thread=False
            )
            self._open()
            self._saved = self._read()
        except BaseException as error:
            self.close()
            if isinstance(error, sqlite3.DatabaseError):
                raise self._explained(error) from error
            if isinstance(error, OSError):
                raise LedgerUnwritable(self.path, error.strerror) from error
            raise

    def _hold(self) -> int:
        """Keep other directories away, by a lock that ends with the process.

        Not on the file itself: where a process closes one, SQLite loses its own locks on it.
        """
        try:
            held = os.open(f"{self.path}-lock", os.O_CREAT | os.O_RDWR, PRIVATE)
        except OSError as error:
            raise LedgerUnwritable(self.path, error.strerror) from error
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(held)
            raise ErisError(
                f"another process holds {self.path}, the directory's ledger; a federation has one "
                f"directory: stop the other process, or let this node use that directory"
            ) from None
        return held

    def _open(self) -> None:
        # With FULL a commit is one write to the log, and on the disk when it returns.
        self._file.execute("PRAGMA journal_mode = WAL")
        self._file.execute("PRAGMA synchronous = FULL")
        with self._transaction():
            if not self._file.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                self._create()
            _check(self._file, self.path)

    def _create(self) -> None:
        columns = ", ".join(f"{name} {kind}" for name, kind in MEMBER.items())
        for statement in (
            f"PRAGMA application_id = {APPLICATION}",
            f"PRAGMA user_version = {FORMAT}",
            "CREATE TABLE federation (one INTEGER PRIMARY KEY CHECK (one = 1), "
            "charter TEXT NOT NULL, revision INTEGER NOT NULL, secret TEXT NOT NULL, "
            "terms TEXT NOT NULL, stale TEXT NOT NULL)",
            f"CREATE TABLE members (number INTEGER PRIMARY KEY, {columns})",
            "CREATE TABLE views (epoch INTEGER PRIMARY KEY, from_round INTEGER NOT NULL, "
            f"members INTEGER NOT NULL, {', '.join(f'{name} TEXT NOT NULL' for name in LISTS)})",
            "CREATE TABLE statements (place TEXT PRIMARY KEY, member INTEGER NOT NULL, "
            "start INTEGER NOT NULL, exchange TEXT NOT NULL, signing TEXT NOT NULL, "
            "certificate TEXT NOT NULL, signature TEXT NOT NULL)",
        ):
            self._file.execute(statement)

    def load(self) -> dict[str, Any] | None:
        """The state last saved, or None if there is none yet."""
        federation, members, views, statements = self._saved
        if federation is None:
            return None
        try:
            if list(members) != list(range(len(members))):
                raise LedgerDamaged(self.path, "a member is missing")
            whole = dict(zip(FEDERATION, federation, strict=True))
            return {
                **whole,
                "terms": json.loads(whole["terms"]),
                "members": [_member(row) for row in members.values()],
                "statements": [
                    dict(zip(STATEMENT, row[1:], strict=True)) for row in statements.values()
                ],
                "views": [_view(row) for row in views.values()],
            }
        except (ValueError, TypeError) as error:
            raise LedgerDamaged(self.path, error) from error

    def save(self, state: Mapping[str, Any]) -> None:
        """Store a state, whole or not at all; it is on the disk when this returns."""
        terms = {"terms": json.dumps(state["terms"])}
        federation = tuple({**state, **terms}[column] for column in FEDERATION)
        members = {
            number: (number, *(member[column] for column in MEMBER))
            for number, member in enumerate(state["members"])
        }
        views = {view["epoch"]: _view_row(view) for view in state["views"]}
        statements = {
            (place := f"{each['member']}/{each['start']}"): (
                place,
                *(each[column] for column in STATEMENT),
            )
            for each in state["statements"]
        }
        was = self._saved
        try:
            with self._one_at_a_time, self._transaction():
                if federation != was[0]:
                    statement = "INSERT OR REPLACE INTO federation VALUES (1, ?, ?, ?, ?, ?)"
                    self._file.execute(statement, federation)
                self._write("members", "number", members, was[1])
                self._write("views", "epoch", views, was[2])
                self._write("statements", "place", statements, was[3])
        except sqlite3.DatabaseError as error:
            raise self._explained(error) from error
        self._saved = federation, members, views, statements

    def close(self) -> None:
        """Let go of the file, after a write that is under way."""
        with self._one_at_a_time:
            if hasattr(self, "_file"):
                self._file.close()
            os.close(self._held)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._file.execute("BEGIN EXCLUSIVE")
        try:
            yield
            self._file.execute("COMMIT")
        except BaseException:
            if self._file.in_transaction:  # a full disk may have ended it already
                self._file.execute("ROLLBACK")
            raise

    def _read(self) -> tuple[Row | None, Rows, Rows, Rows]:
        federation = self._file.execute(
            f"SELECT {', '.join(FEDERATION)} FROM federation"
        ).fetchone()
        members = self._rows(f"number, {', '.join(MEMBER)}", "members")
        views = self._rows(", ".join(VIEW), "views")
        statements = self._rows(f"place, {', '.join(STATEMENT)}", "statements")
        return federation, members, views, statements

    def _rows(self, columns: str, table: str) -> Rows:
        rows = self._file.execute(f"SELECT {columns} FROM {table} ORDER BY 1").fetchall()
        return {row[0]: tuple(row) for row in rows}

    def _write(self, table: str, key: str, rows: Rows, were: Rows) -> None:
        """Only what has changed."""
        for name in were.keys() - rows.keys():
            self._file.execute(f"DELETE FROM {table} WHERE {key} = ?", (name,))
        for name, row in rows.items():
            if were.get(name) != row:
                places = ", ".join("?" * len(row))
                self._file.execute(f"INSERT OR REPLACE INTO {table} VALUES ({places})", row)

    def _explained(self, error: sqlite3.DatabaseError) -> ErisError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR):
            return LedgerDamaged(self.path, error)
        return LedgerUnwritable(self.path, error)


def _member(row: Row) -> dict[str, Any]:
    member = dict(zip(MEMBER, row[1:], strict=True))
    for name, kind in MEMBER.items():
        if not isinstance(member[name], KINDS[kind.split()[0]]):
            raise TypeError(f"{name} of member {row[0]} is {member[name]!r}")
    return {**member, "client": bool(member["client"]), "aggregator": bool(member["aggregator"])}


def _view(row: Row) -> dict[str, Any]:
    view = dict(zip(VIEW, row, strict=True))
    return {**view, **{name: json.loads(view[name]) for name in LISTS}}


def _view_row(view: Mapping[str, Any]) -> Row:
    return tuple(json.dumps(view[name]) if name in LISTS else view[name] for name in VIEW)


def holds_federation(path: Path) -> bool:
    """Whether there is a ledger in which a directory has noted something; makes none."""
    if not path.exists():
        return False
    with closing(Ledger(path)) as ledger:
        return ledger.load() is not None


def backup(source: Path, target: Path) -> int:
    """Write a copy of a ledger, which a directory may be using; the revision that is in it.

    SQLite's own backup: it reads one revision, whole, while others are made. The copy is one file
    that can be moved about; it is there only when it is complete, and replaces nothing.
    """
    if not source.is_file():
        raise ErisError(f"there is no ledger at {source}; a directory makes one when it starts")
    if target.exists():
        raise ErisError(f"{target} exists, and a backup overwrites nothing; name another file")
    revision, data = _copied(source)
    storage.replace(target, [data], "there is no copy")
    return revision


def _copied(source: Path) -> tuple[int, bytes]:
    try:
        with (
            closing(sqlite3.connect(source, timeout=PATIENCE)) as original,
            closing(sqlite3.connect(":memory:")) as copy,
        ):
            original.backup(copy)
            _check(copy, source)
            found = copy.execute("SELECT revision FROM federation").fetchone()
            data = copy.serialize()
    except sqlite3.OperationalError as error:
        raise ErisError(f"{source} cannot be copied: {error}") from error
    except sqlite3.DatabaseError as error:
        raise LedgerDamaged(source, error) from error
    if found is None:
        raise ErisError(f"{source} holds no federation yet; there is nothing to copy")
    return int(found[0]), data


def _check(file: sqlite3.Connection, path: Path) -> None:
    """Refuse what is no ledger of this version, or damaged."""
    if file.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
        raise LedgerDamaged(path, "it is another program's database")
    version = file.execute("PRAGMA user_version").fetchone()[0]
    if version != FORMAT:
        raise ErisError(f"{path} has format {version}; this version of eris reads {FORMAT}")
    verdict = file.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if verdict != "ok":
        raise LedgerDamaged(path, verdict)
