"""Encrypted sums in simulated worlds: the laws of docs/enccluster.md, and bugs that break them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from eris.core.compress import Encoded, Encoding
from eris.protocol.enccluster import shares
from eris.protocol.enccluster.answering import Answerer, RevealKey
from eris.protocol.enccluster.collecting import EncryptedCollector
from eris.protocol.enccluster.sending import EncryptingSender
from eris.protocol.enccluster.sets import SetStatement
from eris.protocol.enccluster.shares import ShareDesk
from eris.protocol.enccluster.wire import write_statement
from eris.protocol.messages import (
    Contribution,
    Message,
    Payload,
    Refusal,
    Result,
    Reveal,
    RevealRequest,
)
from eris.protocol.round.aggregator import Aggregator
from eris.protocol.round.member import Member
from eris.protocol.schemes.collector import Asking
from eris.protocol.schemes.encrypted_clusters import EncryptedClusterCoding
from eris.testing.shape import CLUSTERED, Shape
from eris.testing.weather import Incident, Trouble
from eris.testing.world import World
from support.bugs import Hasty, catch

# What is encrypted cannot be looked at: a client is trusted for its values, as in any mean.
KINDS = frozenset(Trouble) - {Trouble.POISON}
SHAPE = Shape(members=6, shards=3, rounds=5, kept=1.0, encrypted="clusters")
OWNED = replace(SHAPE, shards=6, rounds=4)
"""Everyone owns a shard."""
LIE = [Incident(Trouble.LIE, 0.2, 9.0, frozenset({2}))]
PASSING = (Trouble.CRASH, Trouble.LEAVE, Trouble.DROP, Trouble.DELAY, Trouble.OUTAGE)


@pytest.mark.parametrize("first", range(0, 6, 3))
def test_the_laws_hold_whatever_fails(first: int) -> None:
    opened = 0
    for seed in range(first, first + 3):
        world = World(seed, shape=Shape.encrypting(seed), kinds=KINDS)
        world.run()
        opened += world.witness.saw["a sum is opened"]
    assert opened > 20


@pytest.mark.parametrize("encrypted", ["clusters", "weights"])
def test_in_fine_weather_every_sum_is_opened_and_is_of_all(encrypted: str) -> None:
    world = World(3, shape=replace(SHAPE, encrypted=encrypted, rounds=3), kinds=frozenset())
    world.run()
    results = world.witness.results.values()
    assert len(results) == 3 * 3
    assert all(result.included == frozenset(range(6)) for result in results)


def test_who_stops_between_its_ciphertext_and_its_share_is_named() -> None:
    """What was closed on it is withheld; others go on without it, and then with it again."""
    world = World(0, shape=replace(SHAPE, rounds=14), kinds=frozenset())

    def closed_on(client: int) -> bool:
        up = [host.member for host in world.hosts if host.member is not None]
        states = [s for member in up for s in member.node.aggregator._revealing.values()]
        return any(client in state.asked for state in states)

    while not closed_on(5):
        world.step()
    world._end(world.hosts[5])
    world.run()
    withheld = [one for one in world.witness.results.values() if one.payload is None]
    assert withheld
    assert world.witness.saw["a set is not opened, and withheld"] == len(withheld)
    last = [one for (_, round), one in world.witness.results.items() if round == 14]
    assert [result.included for result in last] == [frozenset(range(6))] * 3


def test_the_labels_of_two_foundings_are_different() -> None:
    """Of equal settings, that is; a simulation without a directory has those of its seed."""
    names = set()
    for entropy in ("1" * 32, "2" * 32):
        world = World(0, shape=SHAPE, kinds=frozenset())
        directory = world.authority.directory
        assert directory is not None
        directory._history = type(directory._history).new(entropy)
        world.run_until(0.5)
        members = [host.member for host in world.hosts if host.member is not None]
        found = {member.agreement.coding.federation for member in members}  # type: ignore[attr-defined]
        assert len(found) == 1
        names |= found
    assert len(names) == 2


def test_what_is_no_contribution_or_no_share_is_refused_by_name_and_the_round_survives() -> None:
    world = World(0, shape=SHAPE, kinds=frozenset())

    def receives(owner: Member, message: Message, source: int) -> list[Message]:
        out = owner.receive(message, source, world.hosts[owner.me].clock(world.now))
        return [outgoing.message for outgoing in out]

    def collecting() -> Member | None:
        up = [host.member for host in world.hosts if host.member is not None]
        return next((m for m in up if m.round == 2 and m.node.aggregator._open), None)

    while (owner := collecting()) is None:
        world.step()
    key = next(iter(owner.node.aggregator._open))
    collector = owner.node.aggregator._open[key].collector
    late = next(m for m in range(6) if m not in collector.included and m != owner.me)
    header, version = owner.agreement.header(late, 2, key), owner.node.replica.versions[key]

    def contribution(data: bytes, sender: int = late) -> Contribution:
        payload = Payload(Encoded(Encoding.CIPHERTEXTS, CLUSTERED, data))
        return Contribution(replace(header, sender=sender), version, 4, 1, payload)

    # Bytes that are no points; the client is told, and waited for no longer.
    no_points = (4).to_bytes(4, "little") + bytes(33 * 4 + CLUSTERED // 4)
    (refusal,) = receives(owner, contribution(no_points), late)
    assert isinstance(refusal, Refusal)
    assert "is not on the curve" in refusal.reason
    # Another's number, more bytes than a segment has, a share of a round that is over or of nobody.
    other = next(m for m in range(6) if m not in (late, owner.me))
    share = Reveal(replace(header, round=1), frozenset({late}), bytes(64))
    question = RevealRequest(owner.agreement.header(other, 2, key), frozenset({late}), bytes(1000))
    for message, source in (
        (contribution(no_points, sender=other), late),
        (contribution(bytes(100_000)), late),
        (share, late),
        (replace(share, header=header, data=bytes(10_000)), late),
        (question, other),
    ):
        assert not any(isinstance(out, Result) for out in receives(owner, message, source))
    said = " ".join(owner.node.refused)
    assert f"contribution from member {late}: claims to be from member {other}" in said
    assert f"member {other} does not own shard {key[0]}" in said
    world.witness.sums.lying.add(late)  # type: ignore[union-attr]
    world.run()
    result = world.witness.results[key, 2]
    assert result.included == frozenset(range(6)) - {late}


# -- bugs -------------------------------------------------------------------------------------


def test_a_client_that_answers_about_two_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = Answerer.answer

    def forgetful(self: Answerer, statement: SetStatement, *about: Any) -> Any:
        self.answered.pop(RevealKey.of(statement.label), None)
        return answer(self, statement, *about)

    monkeypatch.setattr(Answerer, "answer", forgetful)
    monkeypatch.setattr(Answerer, "_forget", lambda *_: None)
    catch(monkeypatch, "answers for two sets", shape=OWNED, incidents=LIE)


def test_a_client_that_does_not_count_the_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Answerer, "_check_law", lambda *_: None)
    catch(monkeypatch, "answers for 3 clients", shape=OWNED, incidents=LIE)


def test_a_client_that_does_not_look_for_its_own_contribution(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Answerer, "_check_digest", lambda *_: None)
    law = "answers for what it did not contribute"
    catch(monkeypatch, law, shape=OWNED, incidents=LIE)


def test_masks_that_are_not_bound_to_their_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    info = shares.mask_info
    unbound = lambda label, statement, *about: info(label, bytes(32), *about)  # noqa: E731
    monkeypatch.setattr(shares, "mask_info", unbound)
    law = "shares of different statements are a key"
    catch(monkeypatch, law, shape=OWNED, incidents=LIE, most=20)


def test_a_share_that_leaves_before_it_is_on_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Answerer, "_written", lambda self, key: self.answered[key])
    catch(monkeypatch, "answers what is not on its disk", shape=SHAPE)


def test_scalars_in_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    def state(self: EncryptingSender) -> dict[str, Any]:
        waiting = self.answerer._waiting.values()
        kept = b"".join(bytes(slot) for one in waiting for slot in one.scalars[0]._slots)
        return {"scalars": np.frombuffer(kept, np.uint8)}

    monkeypatch.setattr(EncryptingSender, "state", state)
    law = "a scalar of member . is on its disk"
    catch(monkeypatch, law, *PASSING, shape=SHAPE, most=20)


def test_an_owner_that_tries_again_without_who_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    def again(self: EncryptedCollector, silent: frozenset[int]) -> Asking:
        """The set shrinks where somebody is silent, and is signed once more."""
        statement, keys = self._asked.statement, self._desk.keys(self._round)
        assert keys is not None
        kept = tuple(one for one in statement.members if one.client not in silent)
        self._shares = ShareDesk(replace(statement, members=kept))
        statement = self._shares.statement
        data = write_statement(statement, statement.signed_by(keys))
        return Asking({one.client: data for one in kept})

    ask = Aggregator._ask

    def about_who_is_left(self: Aggregator, key: Any, state: Any, asking: Asking) -> None:
        state.included = frozenset(state.collector._asked.statement.by_client)
        ask(self, key, state, asking)

    monkeypatch.setattr(EncryptedCollector, "again", again)
    monkeypatch.setattr(Aggregator, "_ask", about_who_is_left)
    law = "its owner closes on two sets"
    catch(monkeypatch, law, Trouble.DROP, Trouble.DELAY, shape=SHAPE)


def test_a_successor_that_asks_in_its_predecessors_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    law = "opens a sum that is not its own|who does not own it|but the round belongs to|in epochs"
    shape = replace(SHAPE, rounds=10)
    kinds = (*PASSING, Trouble.PARTITION)
    catch(monkeypatch, law, *kinds, directory=Hasty, shape=shape)


def test_a_withheld_result_without_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EncryptedCollector, "abandon", lambda self: None)
    catch(monkeypatch, "its owner names", *PASSING, shape=SHAPE, most=20)


def test_a_sum_that_is_off_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = EncryptedClusterCoding.opened

    def off(self: EncryptedClusterCoding, books: Sequence[Any], *about: Any) -> Any:
        found = opened(self, books, *about).copy()
        found[0] += 1
        return found

    monkeypatch.setattr(EncryptedClusterCoding, "opened", off)
    catch(monkeypatch, "is not the mean of the plain integers", shape=SHAPE)
