"""A node as the one thing that a process does: signals, and how it ends."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from pathlib import Path

from eris.core.errors import ErisError
from eris.runtimes.grpc.keys import keep_memory_off_disk
from eris.runtimes.grpc.logs import event
from eris.runtimes.grpc.node import NetworkNode
from eris.runtimes.grpc.settings import NodeSettings
from eris.runtimes.grpc.threads import at_work

_log = logging.getLogger("eris.node")


def serve(settings: NodeSettings, tables: Path | None = None) -> None:
    """Run a node in this process until training is over or SIGTERM or SIGINT comes."""

    async def run() -> None:
        node = NetworkNode(settings, tables)
        if node.agreed.keyed and (problem := keep_memory_off_disk()):
            event(_log, logging.WARNING, "memory", problem=problem)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, node.stop)
        await node.run()

    code = 0
    try:
        asyncio.run(run())
    except ErisError as failed:
        if not at_work():
            raise
        print(f"error: {failed}", file=sys.stderr)
        code = 2
    if at_work():
        # Training goes on, for nothing: what it is in the middle of may not survive the orderly
        # end of an interpreter.
        logging.shutdown()
        os._exit(code)
