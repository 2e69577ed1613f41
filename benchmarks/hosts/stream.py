"""One gRPC stream with TLS over loopback: ``python -m benchmarks.hosts.stream CERTIFICATES``.

The most that one sender and one receiver get through the library the nodes are built on. Run as a
program it is the receiver.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
from benchmarks.hosts.certificates import Certificates, issue
from benchmarks.hosts.places import Loopback, ended_at_last, environment, module
from benchmarks.hosts.serving import served

PIECE = 1 << 20
METHOD = "/eris.benchmark.Stream/Deliver"


def stream_rate(total_bytes: int, repeats: int) -> list[float]:
    """Bytes a second of each of several streams, one after another, to a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        certificates = issue(Path(folder), [Loopback().address])
        receiver = subprocess.Popen(
            module("stream", folder), stdout=subprocess.PIPE, text=True, env=environment()
        )
        with ended_at_last([receiver]):
            assert receiver.stdout is not None
            line = receiver.stdout.readline()
            if not line:
                raise SystemExit("the receiver of the bare stream ended early")
            target = f"{Loopback().address}:{json.loads(line)['port']}"
            return asyncio.run(_send(certificates, target, total_bytes, repeats))


async def _send(
    certificates: Certificates, target: str, total_bytes: int, repeats: int
) -> list[float]:
    authority, certificate, key = certificates.contents()
    credentials = grpc.ssl_channel_credentials(authority, key, certificate)
    block, found = bytes(PIECE), []
    pieces = -(-total_bytes // PIECE)
    async with grpc.aio.secure_channel(target, credentials) as channel:
        await channel.channel_ready()
        for _ in range(repeats):
            started = time.monotonic()
            call: Any = channel.stream_unary(METHOD)()
            for _ in range(pieces):
                await call.write(block)
            await call.done_writing()
            arrived = json.loads(await call)["bytes"]
            if arrived != pieces * PIECE:
                raise SystemExit(f"the bare stream lost bytes: {arrived} of {pieces * PIECE}")
            found.append(arrived / (time.monotonic() - started))
    return found


async def _receive(certificates: Certificates) -> None:
    async def deliver(requests: AsyncIterator[bytes], context: Any) -> bytes:
        arrived = 0
        async for piece in requests:
            arrived += len(piece)
        return json.dumps({"bytes": arrived}).encode()

    server, port = await served(METHOD, deliver, Loopback().address, certificates)
    sys.stdout.write(json.dumps({"port": port}) + "\n")
    sys.stdout.flush()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(_receive(Certificates(Path(sys.argv[1]))))
