"""One member and its ledger, without a network."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from eris.core.shards import RandomPlan
from eris.protocol.authority.standing import LOOKAHEAD, Scheduled, Standing
from eris.protocol.round.member import Member
from eris.protocol.secure.noise_terms import SharedNoise
from eris.protocol.secure.sending import SecureSender
from eris.protocol.secure.simulated import Vaults
from eris.protocol.secure.terms import SecureSums
from eris.protocol.settings import Settings
from eris.protocol.view import View
from eris.runtimes.grpc.journal import Journal, read
from eris.runtimes.grpc.privacy import NodePrivacy
from eris.runtimes.grpc.sections import PrivacyTable
from eris.runtimes.privacy_ledger import PrivacyLedger
from eris.testing.fixed_rows import FixedRows
from eris.training.trainer import LocalUpdate

N, ROUNDS = 4000, 3
NAMES = ("anna", "ben", "cleo", "dora", "emil")
START = np.zeros(N, np.float32)


def agreed(clients: int = 5, **noise: Any) -> Settings:
    usual: dict[str, Any] = {
        "protects": "sample", "epsilon": 8.0, "clip": 0.5, "rounds": ROUNDS, "clients": clients,
        "samples": 8, "min_included": 4, "colluders": 1,
    }  # fmt: skip
    secure, planned = SecureSums.parse("2 of 3"), SharedNoise.planned(**(usual | noise))
    return Settings(n=N, plan=RandomPlan(5), secure=secure, noise=planned, non_finite="zero",
                    min_included=4, quorum=4)  # fmt: skip


class Site:
    """One member and its privacy, in a folder; made again it is a restart."""

    def __init__(
        self, folder: Path, run: str = "first", settings: Settings | None = None, **table: Any
    ) -> None:
        self.settings = settings or agreed()
        self.folder = folder
        chosen: dict[str, Any] = {"data": "ward-3", "ledger": folder / "privacy"} | table
        self.privacy = NodePrivacy(self.settings, PrivacyTable(**chosen), folder)
        vaults = Vaults(self.settings)
        view = vaults.seat(replace(View.serverless(list(NAMES), aggregators=5), epoch=1))
        views = (Scheduled(view, 1),)
        standing = Standing(0, views, NAMES, LOOKAHEAD, 0, held=LOOKAHEAD)
        self.member = Member(self.settings, standing, START, rounds=ROUNDS, vault=vaults[0])
        sender = self.member.node.client.sender
        assert isinstance(sender, SecureSender)
        self.sender = sender
        self.journal = Journal(folder / "journal.jsonl")
        self.privacy.attach(sender, run, views, self.journal)
        self.member.start(0.0)

    def train(self) -> None:
        """Hand over what the fixed rows give."""
        job = self.member.job
        assert job is not None
        made = self.privacy.update(FixedRows("anna", n=N), job)
        assert isinstance(made, LocalUpdate)
        update = self.privacy.weighed(made)
        self.member.trained(update.vector, update.samples, 1, 0.0, update.content)

    @property
    def charged(self) -> list[int]:
        path = self.folder / "privacy"
        return [charge.round for charge in PrivacyLedger(path, "ward-3", []).charges.whole]

    def told(self, event: str = "abstains") -> list[dict[str, Any]]:
        return [line for line in read(self.folder / "journal.jsonl") if line["event"] == event]
