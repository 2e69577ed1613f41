"""What a node shows of itself counts all that happened, not what it still remembers."""

from __future__ import annotations

from threading import Event
from types import SimpleNamespace
from typing import Any

from eris.core.shards import RandomPlan
from eris.protocol.authority.standing import Scheduled, Standing
from eris.protocol.round.client import MOST_LEFT_OUT
from eris.protocol.round.member import Member
from eris.protocol.round.roles import MOST_REFUSALS
from eris.protocol.settings import Settings
from eris.protocol.view import View
from eris.runtimes.grpc.health import Health
from eris.runtimes.grpc.observe import shown
from eris.runtimes.grpc.omissions import Omissions
from eris.testing import initial_model

NAMES = ("anna", "ben", "cleo")


def test_counters_go_on_where_the_memory_has_reached_its_limit() -> None:
    view = View(NAMES, (0, 1, 2), (0, 1), None, 1)
    settings = Settings(n=24, plan=RandomPlan(2), quorum=2)
    standing = Standing(0, (Scheduled(view, 1),), NAMES, 9, 0)
    member = Member(settings, standing, initial_model(24, 1), rounds=9)
    for number in range(MOST_REFUSALS + 7):
        member.node.refused.append(f"refusal {number}")
    for _ in range(MOST_LEFT_OUT + 5):
        member.node.client.left_out.append((1, (0, 0)))
    omissions = Omissions()
    omissions.rounds.update({(1, 0): 2, (1, 2): 4, (0, 2): 1})
    driver: Any = SimpleNamespace(
        member=member, health=Health(), complete=Event(), results_applied=0, training_seconds=0.0,
        transport=SimpleNamespace(counters={}), keys=None, privacy=None, omissions=omissions,
    )  # fmt: skip
    seen = shown(driver, name="anna", address="localhost:7400")
    assert seen["messages_refused"] == MOST_REFUSALS + 7
    assert seen["contributions_left_out"] == MOST_LEFT_OUT + 5
    assert seen["refused"][-1] == f"refusal {MOST_REFUSALS + 6}"
    assert seen["left_out"][0] == {"owner": "ben", "client": "cleo", "rounds": 4}
    assert seen["left_out_alone"] == {"ben": 4, "anna": 1}
