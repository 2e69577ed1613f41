"""A federation of machines that a test speaks to message by message."""

from __future__ import annotations

from typing import Any

from eris.core.errors import RefusedContribution
from eris.core.rules import FedAvgM
from eris.core.shards import RandomPlan
from eris.core.vectors import Vector
from eris.protocol.agreement import Agreement, Key
from eris.protocol.messages import CatchUp, Contribution, Message, Outgoing, Result
from eris.protocol.round.roles import Node
from eris.protocol.settings import Settings
from eris.protocol.view import View
from eris.testing import SyntheticTraining, initial_model

N = 24
TRAINING = SyntheticTraining(N, 1)


def federation(clients: int = 4, aggregators: int = 2, **changes: Any) -> list[Node]:
    """Nodes that nobody has spoken to yet; the first two own a shard each.

    With momentum they keep results whole, for a snapshot is larger.
    """
    chosen: dict[str, Any] = {"n": N, "plan": RandomPlan(aggregators), "rule": FedAvgM(0.5)}
    settings = Settings(**(chosen | changes))
    view = View.serverless(
        [f"client-{k}" for k in range(clients)],
        aggregators=aggregators,
        samples=tuple(TRAINING.samples(k) for k in range(clients)),
    )
    agreement = Agreement(settings, view)
    return [Node(agreement, me, initial_model(N, 1)) for me in range(clients)]


def begin(nodes: list[Node], round: int, now: float = 0.0) -> None:
    for node in nodes:
        node.client.begin(round)
        deliver(nodes, node.me, node.open(round, now))


def contribute(node: Node, update: Vector, samples: int, steps: int = 1) -> list[Outgoing]:
    """What a node sends of an update; its own shards' segments have been counted by then."""
    try:
        return node.keep(node.client.contribute(update, samples, steps))
    except RefusedContribution as error:
        node.refused.append(f"round {node.client.round}: {error}")
        return []


def catch_up(node: Node, peer: Node, key: Key, have: int) -> list[Message]:
    """A node asks a peer for what it missed of a segment; returns what it was answered."""
    ask = Outgoing((peer.me,), CatchUp(node.agreement.header(node.me, 5, key), have))
    node.evidence.asks([ask])
    answers = [out.message for out in peer.receive(ask.message, node.me)]
    for answer in answers:
        node.receive(answer, peer.me)
    return answers


def deliver(nodes: list[Node], sender: int, outgoing: list[Outgoing]) -> None:
    """Carry messages and what is said in reply, at once."""
    for out in outgoing:
        for receiver in out.to:
            deliver(nodes, receiver, nodes[receiver].receive(out.message, sender))


def contributions(node: Node, round: int) -> list[Outgoing]:
    """What a node sends others in a round."""
    return contribute(node, *TRAINING(node.me, node.model, round))


def play(nodes: list[Node], round: int, who: list[int] | None = None) -> None:
    """A round in which some clients take part; what has too few at its deadline is withheld."""
    begin(nodes, round, 100.0 * round)
    for member in range(len(nodes)) if who is None else who:
        deliver(nodes, member, contributions(nodes[member], round))
    for node in nodes:
        deliver(nodes, node.me, node.close(100.0 * round + 11))
        for key in node.aggregator.keys:
            deliver(nodes, node.me, node.withhold(key))


def to_owner(node: Node, round: int = 1) -> Contribution:
    """The node's contribution to the first shard."""
    for out in contributions(node, round):
        if out.to == (0,) and isinstance(out.message, Contribution):
            return out.message
    raise AssertionError("nothing for the owner of shard 0")


def only_answer(outgoing: list[Outgoing], kind: type[Message], receiver: int) -> Any:
    assert len(outgoing) == 1
    assert outgoing[0].to == (receiver,)
    assert isinstance(outgoing[0].message, kind)
    return outgoing[0].message


def result_at(node: Node, round: int = 1, shard: int = 0) -> Result:
    result = node.replica.result_of((shard, 0), round)
    assert result is not None
    return result


def untouched(node: Node) -> bool:
    """Whether nothing has been counted in the node's first segment."""
    assert node.aggregator is not None
    state = node.aggregator._open.get((0, 0))
    return state is None or not state.collector.included
