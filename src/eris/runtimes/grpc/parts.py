"""The parts of a node that follow from its settings alone."""

from __future__ import annotations

import logging
import secrets
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from eris.core.errors import ErisError, InvalidSetting
from eris.protocol.authority.directory import MOST_MEMBERS, Directory
from eris.protocol.authority.history import ANEW
from eris.protocol.enccluster.coding import Encrypted
from eris.protocol.schemes.halves import Tables
from eris.protocol.secure.certified import KeyStatement
from eris.protocol.settings import Settings
from eris.runtimes.grpc import pem
from eris.runtimes.grpc.directory import Attention, DirectoryClient, DirectoryService
from eris.runtimes.grpc.ledger import Ledger, holds_federation
from eris.runtimes.grpc.link import KEEPALIVE, TransportLimits
from eris.runtimes.grpc.logs import event
from eris.runtimes.grpc.settings import Agreed, NodeSettings, shard_sizes
from eris.runtimes.grpc.storage import Memory
from eris.runtimes.grpc.tls import Identity
from eris.runtimes.logarithm_tables import is_kept, kept_table

_log = logging.getLogger("eris.node")
DIRECTORY_FILE = "directory.sqlite"
LARGEST_ANSWER = 32 << 20
"""Bytes: the keys of ten thousand members, in two views."""


def renewed_after(settings: NodeSettings) -> float:
    """Seconds after which a member renews its lease, if nothing else lets it ask earlier."""
    return settings.membership.lease / 3


def hosted_directory(settings: NodeSettings, agreed: Agreed) -> DirectoryService:
    """The directory that a node hosts, as it was left.

    A new one is made only in a folder that is of no run yet: beside what is left of one, its ledger
    is missing.
    """
    terms: dict[str, Any] = {
        "charter": settings.charter(agreed),
        "sizes": shard_sizes(agreed),
        "start_with": settings.start_with,
        "lease": settings.membership.lease,
        "least_clients": agreed.least_clients,
        "entropy": secrets.token_hex(32),
        "most_clients": MOST_MEMBERS if agreed.noise is None else agreed.noise.clients,
        "weighed": agreed.weighed,
        "central": settings.gossip is None and settings.parts.central,
        "seats": agreed.seats,
        "anew": isinstance(agreed, Settings) and agreed.scheme.own_references,
    }
    path, clock = settings.node.folder / DIRECTORY_FILE, Attention(renewed_after(settings))
    if Memory(settings.node.folder).begun and not holds_federation(path):
        raise ErisError(
            f"{path} is missing or holds nothing, but what lies beside it is of a run that has "
            f"begun: the directory does not remember this federation; remove directory.sqlite* "
            f"there and put the newest copy in its place, or {ANEW}"
        )
    ledger = Ledger(path)
    state = ledger.load()
    found = Directory.restore(state, clock(), **terms) if state else Directory(**terms)
    authorities = pem.certificates(settings.tls.authority) if agreed.keyed else []

    def check(keys: KeyStatement) -> None:
        keys.check(agreed.fingerprint, authorities, datetime.now(UTC), last=0)

    return DirectoryService(found, ledger, clock, check=check)


def prepared_tables(settings: NodeSettings, agreed: Settings, folder: Path | None) -> Tables:
    """Where an owner looks up the logarithms of encrypted sums. A large table is built once, before
    the node joins, and is kept in a ``folder``, or in its own."""
    if agreed.keyed and settings.roster is not None:
        expected = "a directory: a roster tells of no keys, by which sums are sealed here"
        raise InvalidSetting("membership.roster", str(settings.membership.roster), expected)
    folder = folder or settings.node.folder
    if isinstance(agreed.scheme, Encrypted) and settings.node.aggregator:
        reach = agreed.scheme.reach(settings.start_with)
        if not is_kept(folder, reach):
            event(_log, logging.INFO, "building a table of logarithms", reach=reach, folder=folder)
        kept_table(folder, reach)
    return partial(kept_table, folder)


def transport_limits(settings: NodeSettings, agreed: Agreed) -> TransportLimits:
    """What a peer may cost, with the model that was agreed."""
    return TransportLimits(
        message_bytes=settings.message_bytes(agreed),
        queue_bytes=settings.limits.queue_bytes,
        # Results wait as one object in all queues: room for a round's costs a shard, not K.
        result_bytes=settings.limits.queue_bytes + 8 * max(shard_sizes(agreed), default=agreed.n),
    )


def directory_channel(
    settings: NodeSettings, identity: Identity, address: str
) -> tuple[grpc.aio.Channel, str]:
    """A channel to the directory, whose host must be the member of its name, and the address.

    A node that hosts the directory finds it at its own ``address``.
    """
    where, name = settings.membership.directory, settings.membership.directory_name
    if settings.membership.host_directory:
        where, name = address, settings.node.name
    if where is None or name is None:
        raise ErisError("a federation with a roster has no directory to ask")
    channel = grpc.aio.secure_channel(
        f"dns:///{where}",
        identity.channel_credentials(),
        options=[
            *KEEPALIVE,
            ("grpc.ssl_target_name_override", name),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_http_proxy", 0),
            ("grpc.max_reconnect_backoff_ms", 2000),
            ("grpc.max_receive_message_length", LARGEST_ANSWER),
        ],
    )
    return channel, where


async def describe(settings: NodeSettings) -> dict[str, Any]:
    """The federation as the directory knows it, asked with a node's certificate."""
    identity = Identity(settings.tls.certificate, settings.tls.key, settings.tls.authority)
    identity.check(settings.node.name)
    channel, address = directory_channel(settings, identity, settings.address)
    async with channel:
        client = DirectoryClient(channel, address, timeout=5.0)
        return asdict(await client.describe())
