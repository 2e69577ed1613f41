"""A dashboard at work, in this process."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from eris.web.places import Places
from eris.web.server import application


@contextmanager
def served(places: Places, token: str | None = None) -> Iterator[int]:
    """A dashboard at work; its port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        app = application(places, ["127.0.0.1"], token, 0.01, lambda: server.should_exit)
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off",
                                               timeout_graceful_shutdown=5))  # fmt: skip
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()
