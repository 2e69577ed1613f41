"""A bare gRPC server with mutual TLS and one method that takes a stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from benchmarks.hosts.certificates import Certificates

Deliver = Callable[[AsyncIterator[bytes], Any], Awaitable[bytes]]


async def served(
    method: str, deliver: Deliver, address: str, certificates: Certificates
) -> tuple[grpc.aio.Server, int]:
    """The running server, and the port it was given."""
    authority, certificate, key = certificates.contents()
    service, _, name = method[1:].partition("/")
    handler: Any = grpc.stream_unary_rpc_method_handler(deliver)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(service, {name: handler}),)
    )
    credentials = grpc.ssl_server_credentials([(key, certificate)], authority, True)
    port = server.add_secure_port(f"{address}:0", credentials)
    await server.start()
    return server, port
