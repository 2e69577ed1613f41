"""No round and shard has two owners, in any history of a federation and its directory."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from eris.protocol.authority.directory import Joined, Refused
from eris.protocol.authority.standing import Standing
from support.registry import founded, join, restored


class Process:
    """A start of a member: what it was last told, and so what it may publish."""

    def __init__(self, joined: Joined) -> None:
        self.incarnation, self.abstain = joined.incarnation, joined.abstain_through
        self.told, self.round = joined.standing, 0

    def hear(self, standing: Standing) -> None:
        assert standing.through >= self.told.through
        if self.told.views:
            before, after = self.told.views[-1], standing.views[-1]
            assert after.view.epoch >= before.view.epoch
            assert after.from_round >= before.from_round
        self.told = standing

    def may_publish(self) -> Iterator[tuple[int, int, int]]:
        """(round, epoch, shard), by nothing but what this process knows."""
        for round in range(self.abstain + 1, self.told.through + 1):
            holding = [s.view for s in self.told.views if s.from_round <= round]
            for shard in holding[-1].owned_by(self.told.me) if holding else ():
                yield round, holding[-1].epoch, shard


class Walk:
    """A random history of a federation, with everything anyone was ever allowed to publish."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now = 0.0
        self.directory = founded(start_with=self.chance.randint(1, 3))
        self.running: dict[str, Process] = {}
        self.replaced: list[tuple[str, int]] = []
        self.published: dict[tuple[int, int], tuple[str, int]] = {}  # (round, shard): by whom
        self.epochs: dict[int, int] = {}  # of rounds
        self.permits: dict[str, int] = {}
        self.views: list[tuple[int, int]] = []
        self.happened: set[str] = set()

    def step(self) -> None:
        self.now += self.chance.choice((0.0, 0.5, 2.0, 6.0))
        name = f"member-{self.chance.randrange(5)}"
        act = self.chance.choices(
            (self.join, self.renew, self.leave, self.tick, self.crash), (3, 12, 1, 2, 1)
        )[0]
        act(name)
        for name, process in self.running.items():
            self.check(name, process)
        views = [(s.view.epoch, s.from_round) for s in self.directory.standing(0).views]
        assert views == sorted(set(views))
        assert not self.views or views[-1] == self.views[-1] or views[-1][0] > self.views[-1][0]
        self.views += views[-1:]

    def check(self, name: str, process: Process) -> None:
        for round, epoch, shard in process.may_publish():
            mine = (name, process.incarnation)
            assert self.published.setdefault((round, shard), mine) == mine
            assert self.epochs.setdefault(round, epoch) == epoch

    def join(self, name: str) -> None:
        roles = {"client": self.chance.random() < 0.8, "aggregator": self.chance.random() < 0.8}
        share = self.chance.choice((0.34, 0.67, 1.0))
        joined = join(self.directory, self.now, name, max_share=share, **roles)
        if name in self.running:
            self.replaced.append((name, self.running[name].incarnation))
            self.happened.add("restarted")
        assert joined.abstain_through >= self.permits.get(name, 0)
        self.running[name] = Process(joined)

    def renew(self, name: str) -> None:
        if self.replaced and self.chance.random() < 0.1:
            late, incarnation = self.chance.choice(self.replaced)
            with pytest.raises(Refused):
                self.directory.renew(
                    self.now, late, f"key of {late}", round=99, incarnation=incarnation
                )
        if name not in self.running:
            return
        process = self.running[name]
        # Up to a round beyond what it was permitted, and often less than it said before.
        process.round = self.chance.randint(process.round // 2, process.told.through + 2)
        standing = self.directory.renew(
            self.now,
            name,
            f"key of {name}",
            round=process.round,
            incarnation=process.incarnation,
        )
        process.hear(standing)
        self.permits[name] = standing.through
        self.happened.add("permitted" if standing.through > process.abstain else "renewed")

    def leave(self, name: str) -> None:
        if name in self.running:
            self.directory.leave(self.now, name, f"key of {name}")
            del self.running[name]
            self.happened.add("left")

    def tick(self, name: str) -> None:
        if self.directory.tick(self.now):
            self.happened.add("left out")

    def crash(self, name: str) -> None:
        members = range(len(self.directory.state()["members"]))
        before = [self.directory.standing(number) for number in members]
        self.directory = restored(self.directory, self.now, start_with=self.directory.start_with)
        after = [self.directory.standing(number) for number in members]
        assert [replace(standing, mark=None) for standing in after] == [
            replace(standing, mark=None) for standing in before
        ]
        self.happened.add("crashed")


def test_no_round_and_shard_has_two_owners_in_any_history() -> None:
    happened: set[str] = set()
    rounds = epochs = 0
    for seed in range(150):
        walk = Walk(seed)
        walk.join("member-0")
        for _ in range(80):
            walk.step()
        happened |= walk.happened
        rounds += len(walk.epochs)
        epochs += len(set(walk.epochs.values()))
    assert happened == {"restarted", "permitted", "renewed", "left", "left out", "crashed"}
    assert rounds > 2_000, rounds
    assert epochs > 500, epochs
