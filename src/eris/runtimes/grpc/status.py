"""Questions to a node and to its federation's directory, for people who look after them."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import asdict
from typing import Any

from eris.core.errors import ErisError
from eris.runtimes.grpc.addresses import LOOPBACK, endpoint, everywhere, written
from eris.runtimes.grpc.directory import DirectoryClient
from eris.runtimes.grpc.parts import directory_channel
from eris.runtimes.grpc.settings import NodeSettings
from eris.runtimes.grpc.tls import Identity

TIMEOUT = 5.0


def node_status(http: str) -> dict[str, Any]:
    """What a node says of itself at its ``observe.http``."""
    host, port = endpoint(http, "observe.http", host=LOOPBACK)
    where = written(LOOPBACK if everywhere(host) else host, port)
    try:
        with urllib.request.urlopen(f"http://{where}/status", timeout=TIMEOUT) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
    except (OSError, ValueError) as failed:
        reason = failed.reason if isinstance(failed, urllib.error.URLError) else failed
        raise ErisError(f"the node does not answer at {where}: {reason}; is it running?") from None


async def describe(settings: NodeSettings) -> dict[str, Any]:
    """The federation as the directory knows it, asked with a node's certificate."""
    identity = Identity(settings.tls.certificate, settings.tls.key, settings.tls.authority)
    identity.check(settings.node.name)
    channel, address = directory_channel(settings, identity, settings.address)
    async with channel:
        client = DirectoryClient(channel, address, timeout=TIMEOUT)
        return asdict(await client.describe())
