"""The clients' common private key, where the method is SEFL: a file that operators hand to clients.

It is made once for a federation, by whoever holds its authority, and goes to every client as its
TLS key does; an aggregation server never gets it. What is agreed has the public half, so that
nobody can join with another one.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from eris.core.errors import InvalidSetting
from eris.files import PRIVATE
from eris.protocol.enccluster.paillier import PaillierPair
from eris.protocol.schemes import EncryptedEntries
from eris.protocol.schemes.encrypted_entries import EntrySender
from eris.protocol.schemes.scheme import Sender
from eris.runtimes.grpc import pem
from eris.runtimes.grpc.settings import NodeSettings
from eris.tables import UNSET

CLIENTS_KEY = "clients.key"
LARGEST = 8192
"""Bytes of such a file."""


def drawn(key_bits: int) -> PaillierPair:
    """A new key, from the operating system's randomness."""
    return PaillierPair.drawn(key_bits, os.urandom)


def public_key(pair: PaillierPair) -> str:
    """Its public half, as settings have it."""
    return f"{pair.public.n:x}"


def write(path: Path, pair: PaillierPair) -> None:
    """Write a key to a new file that nobody but its owner may read."""
    text = json.dumps({"paillier": [f"{prime:x}" for prime in pair.primes]})
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE), "w") as file:
            file.write(text + "\n")
    except OSError as failed:
        raise pem.BadIdentity(f"{path} was not written: {failed.strerror}") from failed


def load(path: Path) -> PaillierPair:
    """The key in a file."""
    data = pem.secret(path)
    try:
        if len(data) > LARGEST:
            raise ValueError(f"{len(data)} bytes")
        p, q = (int(prime, 16) for prime in json.loads(data)["paillier"])
        return PaillierPair.of_primes(p, q)
    except (ValueError, LookupError, TypeError) as damaged:
        expected = "a file that `eris ca clients-key` made"
        raise InvalidSetting("tls.clients_key", str(path), f"{expected}: {damaged}") from None


def unlock(sender: Sender, pair: PaillierPair | None) -> None:
    """Let a client of SEFL open sums."""
    if pair is not None and isinstance(sender, EntrySender):
        sender.coding.unlock(pair)


def of_node(settings: NodeSettings, agreed: object) -> PaillierPair | None:
    """The key of a node that should have one; refuses one that should not, or another key."""
    path, client = settings.tls.clients_key, settings.node.client
    if not isinstance(agreed, EncryptedEntries):
        if path is not None:
            raise InvalidSetting(
                "tls.clients_key", str(path), "nothing: it is of method sefl alone"
            )
        return None
    if not client:
        if path is not None:
            expected = "nothing: a server that has the clients' key reads every update"
            raise InvalidSetting("tls.clients_key", str(path), expected)
        return None
    if path is None:
        expected = f"the clients' common key, such as {CLIENTS_KEY}, from whoever made it"
        raise InvalidSetting("tls.clients_key", UNSET, expected)
    pair = load(path)
    if public_key(pair) != agreed.public_key:
        found = f"{public_key(pair)[:16]}…"
        expected = f"{agreed.public_key[:16]}…, the public half of {path}"
        raise InvalidSetting("federation.method_options.public_key", found, expected)
    return pair
