"""A node's state as it shows it to its administrator."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from eris.protocol.round.member import Phase
from eris.runtimes.grpc.driver import Driver
from eris.runtimes.grpc.link import PeerCounters
from eris.runtimes.grpc.observe import NodeState


def shown(
    driver: Driver,
    counters: Mapping[str, PeerCounters],
    *,
    name: str,
    address: str,
    reason: str = "",
    saved_at: float | None = None,
) -> dict[str, Any]:
    """The status of a node that has begun; ``reason`` is what it waits for beside its training."""
    now = time.monotonic()
    member, health = driver.member, driver.health
    view, node = member.agreement.view, driver.member.node
    behind = member.phase is Phase.CATCHING_UP
    problem = "catching up with the others" if behind else health.problem(now)
    seen = NodeState(
        name=name,
        phase=member.phase.value,
        ready=not problem and (driver.complete.is_set() or not member.exhausted),
        reason=problem or reason,
        round=member.round,
        epoch=member.view.epoch,
        members=len(view.roles),
        peers_connected=sum(counter.connected for counter in counters.values()),
        bytes_sent={peer: counter.sent_bytes for peer, counter in counters.items()},
        bytes_received={peer: counter.received_bytes for peer, counter in counters.items()},
        queue_bytes={peer: counter.queued_bytes for peer, counter in counters.items()},
        messages_refused=node.refused.count_of_all,
        contributions_left_out=node.client.left_out.count_of_all,
        results_applied=driver.results_applied,
        training_failures=health.failures,
        checkpoint_age_seconds=None if saved_at is None else now - saved_at,
        training_seconds=driver.training_seconds,
        training_for_seconds=health.training_for(now),
    )
    owners = [view.members[owner] if owner >= 0 else None for owner in view.owners]
    return seen.mapping() | {
        "address": address,
        "rounds": member.rounds,
        "owners": owners,
        "connected": sorted(peer for peer, counter in counters.items() if counter.connected),
        "refused": list(node.refused)[-5:],
    }
