"""A directory with three shards, and members that ask it."""

from __future__ import annotations

import json
from typing import Any

from eris.protocol.directory import Directory, Joined
from eris.protocol.standing import Standing

CHARTER = json.dumps({"n": 44426, "plan": {"shards": 3}, "seed": 1})
TERMS: dict[str, Any] = {"sizes": [4, 4, 4], "start_with": 2, "lease": 10.0}


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


def renew(directory: Directory, now: float, name: str, round: int) -> Standing:
    return directory.renew(now, name, f"key of {name}", round=round)


def restored(directory: Directory, now: float, **changes: Any) -> Directory:
    state = json.loads(json.dumps(directory.state()))
    return Directory.restore(state, now, **{"charter": CHARTER, **TERMS, **changes})


def newest(standing: Standing) -> tuple[int, int, tuple[int, ...], tuple[int, ...]]:
    last = standing.views[-1]
    return last.view.epoch, last.from_round, last.view.clients, last.view.owners
