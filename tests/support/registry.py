"""A directory with three shards, and members that ask it."""

from __future__ import annotations

import itertools
import json
from typing import Any

from eris.protocol.authority.directory import Directory, Joined
from eris.protocol.authority.history import Mark
from eris.protocol.authority.standing import Standing
from eris.protocol.secure.certified import KeyStatement
from eris.protocol.secure.keys import PublicKeys

ENTROPY = (f"{number:032x}" for number in itertools.count())

CHARTER = json.dumps({"n": 44426, "plan": {"shards": 3}, "seed": 1})
TERMS: dict[str, Any] = {"sizes": [4, 4, 4], "start_with": 2, "lease": 10.0, "entropy": "0" * 32}


def founded(**changes: Any) -> Directory:
    return Directory(CHARTER, **{**TERMS, **changes})


def join(directory: Directory, now: float, name: str, **changes: Any) -> Joined:
    asked = {
        "fingerprint": f"key of {name}",
        "address": f"{name}:7000",
        "charter": CHARTER,
        "client": True,
        "aggregator": True,
        "max_share": 1.0,
        **changes,
    }
    return directory.join(now, name=name, **asked)


def renew(
    directory: Directory, now: float, name: str, round: int, mark: Mark | None = None
) -> Standing:
    return directory.renew(now, name, f"key of {name}", round=round, mark=mark)


def restored(directory: Directory, now: float, **changes: Any) -> Directory:
    """The directory after a start, when all members have been heard."""
    begun = started_again(directory.state(), now, **changes)
    begun._unheard.clear()
    return begun


def started_again(state: dict[str, Any], now: float, **changes: Any) -> Directory:
    """The directory as its ledger has it, and it listens."""
    state = json.loads(json.dumps(state))
    terms = {"charter": CHARTER, **TERMS, "entropy": next(ENTROPY)}
    return Directory.restore(state, now, **{**terms, **changes})


def newest(standing: Standing) -> tuple[int, int, tuple[int, ...], tuple[int, ...]]:
    last = standing.views[-1]
    return last.view.epoch, last.from_round, last.view.clients, last.view.owners


def stated(name: str, start: int) -> KeyStatement:
    """Keys of a member without a certificate, as in a simulation."""
    key = f"{name}/{start}".encode().ljust(32, b".")
    return KeyStatement(name, start, PublicKeys(key, key[::-1]))
