"""Four nodes with secure sums, over real TLS in one process: seats, new keys, and their disks."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from eris.experiments.federations.processes import LocalFederation
from eris.protocol.secure.keys import MemberKeys
from eris.protocol.secure.vault import Vault
from eris.runtimes.grpc import keys as node_keys
from eris.runtimes.grpc import node as node_module
from eris.runtimes.grpc.node import NetworkNode
from eris.testing.kills import TIMES
from support.spellings import spellings

NAMES = ("anna", "ben", "cleo", "dora")
ROUNDS = 4


def private(keys: MemberKeys) -> list[bytes]:
    """The secrets of a member, as bytes."""
    raw = (Encoding.Raw, PrivateFormat.Raw, NoEncryption())
    return [keys.exchange.private_bytes(*raw), keys.signing.private_bytes(*raw),
            keys.process_secret]  # fmt: skip


def test_four_nodes_sit_renew_their_keys_and_write_none_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_keys, "REKEY_EVERY", 2)
    monkeypatch.setattr(node_module, "rehearse", lambda agreed: None)  # one process compiles once
    drawn: list[MemberKeys] = []
    make = MemberKeys.of

    def noted(entropy: bytes) -> MemberKeys:
        drawn.append(make(entropy))
        return drawn[-1]

    monkeypatch.setattr(MemberKeys, "of", noted)
    values = {**TIMES, "node.linger": 0.3, "federation.rounds": ROUNDS, "observe.record": True,
              "training.trainer": "eris.testing.quadratic:Quadratic",
              "federation.secure_sums": "2 of 3",
              "training.options": {"n": 40, "pace": 0.05}}  # fmt: skip
    federation = LocalFederation(tmp_path / "nodes", NAMES, values)

    async def run() -> None:
        nodes = [NetworkNode(federation.settings(name)) for name in NAMES]
        await asyncio.gather(*(node.run() for node in nodes))

    asyncio.run(run())
    for name in NAMES:
        views = list(federation.events(name, "view"))
        for view in views:
            for owner, helpers in zip(view["owners"], view["helpers"], strict=True):
                assert len({owner, *helpers}) == 4, "one shard is of all four"
        assert len(views) > 1, "new keys, new views"
    models = [model for name in NAMES if (model := federation.model(name)) is not None]
    assert len(models) == len(NAMES)
    assert all(np.array_equal(model, models[0]) for model in models)
    assert len(drawn) >= 2 * len(NAMES), "every node has drawn keys again"
    written = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert any(path.name == "checkpoint.safetensors" for path in written)
    assert any(path.name == "directory.sqlite" for path in written)
    for secret in {secret for keys in drawn for secret in private(keys)}:
        assert len(secret) == 32
        for path, data in written.items():
            assert not any(spelling in data for spelling in spellings(secret)), path
    public = drawn[0].public.exchange
    ledger = b"".join(data for path, data in written.items() if "directory.sqlite" in path.name)
    assert public.hex().encode() in ledger, "the search finds what is there"


def test_keys_do_not_show_themselves() -> None:
    keys = MemberKeys.of(bytes(range(96)))
    vault = Vault(lambda count, round: bytes(range(count)))
    for shown in (repr(keys), str(keys), repr(vault), repr(vars(vault))):
        assert not any(s in shown.encode() for secret in private(keys) for s in spellings(secret))
