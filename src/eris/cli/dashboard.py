"""``eris dashboard``: runs and nodes on a live page."""

from __future__ import annotations

import errno
import os
import secrets
import socket
from typing import Annotated

import typer

from eris.cli.run import RunsOption
from eris.core.errors import ErisError, InvalidSetting
from eris.experiments.figures import say
from eris.experiments.runs.extras import need
from eris.experiments.runs.store import kept_runs
from eris.runtimes.grpc.addresses import LOOPBACK, endpoint, ip, written

TOKEN = "ERIS_DASHBOARD_TOKEN"


def dashboard(
    listen: Annotated[
        str, typer.Option(help="host:port to listen at; :port is on loopback, :0 any port.")
    ] = ":8420",
    node: Annotated[
        list[str] | None,
        typer.Option(help="observe.http of a node that is at work, host:port; may be repeated."),
    ] = None,
    runs: RunsOption = None,
) -> None:
    """Show runs, in progress and finished, and nodes at work, on a page that follows them.

    It reads what is stored and what nodes say of themselves, and changes nothing. On loopback it is
    open to whoever is on this machine; at any other address a token is needed, which is printed
    (or taken from $ERIS_DASHBOARD_TOKEN).

    \b
    eris dashboard
    eris dashboard --node :9101 --node :9102
    eris dashboard --listen 10.0.0.5:8420    # prints an address with a token
    """
    need("starlette", "uvicorn")
    import uvicorn

    from eris.web.places import Places
    from eris.web.server import EVERY, application

    for one in node or []:
        endpoint(one, "--node", host=LOOPBACK)
    host, port = endpoint(listen, "--listen", host=LOOPBACK, any_port=True)
    found = ip(host)
    local = host == "localhost" or (found is not None and found.is_loopback)
    token = None if local else os.environ.get(TOKEN) or secrets.token_urlsafe(24)
    if token is not None and len(token) < 16:
        raise InvalidSetting(TOKEN, f"{len(token)} characters", "at least 16")
    listening = _listening(host, port)
    port = listening.getsockname()[1]
    hosts = [LOOPBACK, "localhost", "[::1]"] if local else ["*"]
    places = Places(kept_runs(runs), node or [])
    query = "" if token is None else f"?token={token}"
    say(f"http://{written(host, port)}/{query}", "Ctrl-C ends it")
    app = application(places, hosts, token, EVERY, lambda: server.should_exit)
    server = uvicorn.Server(uvicorn.Config(
        app, log_config=None, access_log=False, server_header=False, timeout_graceful_shutdown=5,
    ))  # fmt: skip
    server.run(sockets=[listening])


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(128)
    except OSError as failed:
        listening.close()
        why = failed.strerror or str(failed)
        if failed.errno == errno.EADDRINUSE:
            why = "another program uses this port; stop it, or choose another: --listen :0"
        raise ErisError(f"cannot listen at {written(host, port)}: {why}") from None
    return listening
