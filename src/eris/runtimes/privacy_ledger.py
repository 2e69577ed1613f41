"""A privacy ledger on disk: one file a data set, for all federations and runs on it.

A charge is on the disk before noise is drawn. A kill in between leaves a round charged and unsent,
never the reverse. Whoever restores a whole machine from a snapshot restores its ledger with it,
which the machine alone cannot see; what its peers know it to have contributed to is made up for.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from eris.core.errors import ErisError
from eris.files import PRIVATE, synced
from eris.protocol.secure.charges import (
    LEVELS,
    Charges,
    ChargesDamaged,
    NoiseCharge,
    PrivacyBudget,
    data_name,
)


class PrivacyLedgerRefused(ErisError):
    """A ledger with which nobody may train under noise; says what is wrong with it."""

    def __init__(self, path: Path, what: object) -> None:
        super().__init__(
            f"{path}, the privacy ledger of this data, {what}; put its newest copy back, or treat "
            "the data's budget as spent: what it has cost so far cannot be known without it"
        )


@dataclass(frozen=True)
class LedgerRecord:
    """What a checkpoint notes of a ledger: one that is behind it later has lost charges."""

    count: int
    sample: float
    client: float

    @property
    def text(self) -> str:
        """As a checkpoint keeps it."""
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> LedgerRecord:
        """From a checkpoint."""
        return cls(**json.loads(text))


class PrivacyLedger:
    """The ledger of the data set called ``data`` in a folder; made if there is none.

    ``known`` is what a checkpoint noted of it: then a ledger that is missing or behind is refused.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     ledger = PrivacyLedger(Path(folder), "ward-3", [PrivacyBudget("sample", 8.0)])
    ...     ledger.record()
    LedgerRecord(count=0, sample=0.0, client=0.0)
    """

    def __init__(
        self, folder: Path, data: str, budgets: Sequence[PrivacyBudget],
        known: LedgerRecord | None = None,
    ) -> None:  # fmt: skip
        self.path = folder / f"{data_name(data)}.charges"
        self.budgets = tuple(budgets)
        if known is not None and known.count and not self.path.exists():
            raise PrivacyLedgerRefused(self.path, f"is missing, {known.count} charges were in it")
        self._size = 0
        self.charges = Charges()
        """What it holds, as it was last looked at."""
        with self._locked():
            pass
        now = self.record()
        if known is not None and (
            now.count < known.count or now.sample < known.sample or now.client < known.client
        ):
            what = f"has {now.count} charges; the checkpoint knows of {known.count}"
            raise PrivacyLedgerRefused(self.path, what)

    def charge(self, charge: NoiseCharge) -> None:
        """Charge a round, on the disk on return; refuse what is spent, or was charged before.

        The same round under the same noise is not charged again.
        """
        with self._locked() as file:
            if not self.charges.check(charge, self.budgets):
                return
            self._write(file, [charge])

    def make_up(self, charge: NoiseCharge) -> list[int]:
        """Charge a round that results are known of, if it is missing, and all before it that may
        be; returns which, whatever the budget.

        A ledger is only ever added to: an old copy of it lacks rounds after its last one.
        """
        with self._locked() as file:
            last = self.charges.last(charge.federation, charge.round)
            rounds = list(range(last + 1, charge.round + 1))
            if rounds:
                self._write(file, [replace(charge, round=round) for round in rounds])
            return rounds

    def _write(self, file: int, charges: Sequence[NoiseCharge]) -> None:
        made = [*self.charges.standing_for_torn(charges[0]), *charges]
        data = b"".join(one.record() for one in made)
        written = os.write(file, data)
        os.fsync(file)
        synced(self.path.parent)
        if written < len(data):
            raise PrivacyLedgerRefused(self.path, "took a part of a charge only")
        self._size += written
        self.charges = Charges((*self.charges.whole, *made))

    def check(self, charge: NoiseCharge) -> None:
        """Refuse what would not be charged; charges nothing."""
        with self._locked():
            self.charges.check(charge, self.budgets)

    def record(self) -> LedgerRecord:
        """What a checkpoint notes."""
        sums = [self.charges.spent(level)[0] for level in LEVELS]
        return LedgerRecord(len(self.charges), *sums)

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """The file, held by nobody else, and :attr:`charges` as it has them."""
        try:
            new = not self.path.exists()
            if new and self._size:
                raise PrivacyLedgerRefused(self.path, "has gone while it was in use")
            with self._opened() as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                if new:
                    synced(self.path.parent)
                size = os.fstat(file).st_size
                if size < self._size:
                    raise PrivacyLedgerRefused(self.path, "has become shorter while it was in use")
                if size != self._size:
                    self.charges = self._read(file, size)
                    self._size = size
                yield file
        except OSError as failed:
            raise PrivacyLedgerRefused(self.path, f"cannot be used ({failed.strerror})") from failed

    @contextmanager
    def _opened(self) -> Iterator[int]:
        file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, PRIVATE)
        try:
            yield file
        finally:
            os.close(file)

    def _read(self, file: int, size: int) -> Charges:
        with open(file, "rb", closefd=False) as stream:
            stream.seek(0)
            data = stream.read(size)
        try:
            return Charges.parse(data)
        except ChargesDamaged as damaged:
            raise PrivacyLedgerRefused(self.path, f"is damaged ({damaged})") from None
