"""Serves live pages: HTML once, then news of the document as server-sent events.

Reads only. On loopback anyone on the machine may look, but a page of another site may not ask in a
browser's name: requests must call the server by a name of its own. Elsewhere a token is needed.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Callable
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from eris.core.errors import ErisError
from eris.web.page import live, policy
from eris.web.places import Places

COOKIE = "eris-token"
EVERY = 1.0
"""Seconds between two looks at what is stored."""
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def application(
    places: Places, hosts: list[str], token: str | None, every: float, ends: Callable[[], bool]
) -> Starlette:
    """The dashboard; ``hosts`` are the names it may be called by, and pages are left alone once it
    ``ends``."""
    entrance = _Entrance(places, token, every, ends)
    routes = [Route("/events", entrance.events), Route("/{path:path}", entrance.page)]
    guard = Middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False)
    return Starlette(routes=routes, middleware=[guard])


class _Entrance:
    def __init__(
        self, places: Places, token: str | None, every: float, ends: Callable[[], bool]
    ) -> None:
        self._places, self._token, self._every, self._ends = places, token, every, ends

    async def page(self, request: Request) -> Response:
        """A page, or why there is none."""
        if not self._lets_in(request):
            return PlainTextResponse("a token is needed: open the address that was printed\n", 401)
        path = request.url.path
        try:
            document = await run_in_threadpool(self._places.document, path)
        except ErisError as refused:
            return PlainTextResponse(f"{refused}\n", 404, HEADERS)
        text = await run_in_threadpool(live, document, f"/events?page={quote(path, safe='')}")
        headers = {**HEADERS, "Content-Security-Policy": policy("connect-src 'self'")}
        answer = HTMLResponse(text, headers=headers)
        if self._token is not None:
            answer.set_cookie(COOKIE, self._token, httponly=True, samesite="strict")
        return answer

    async def events(self, request: Request) -> Response:
        """What changes of a page."""
        if not self._lets_in(request):
            return PlainTextResponse("a token is needed\n", 401)
        path = request.query_params.get("page", "/")
        try:
            await run_in_threadpool(self._places.document, path)
        except ErisError as refused:
            return PlainTextResponse(f"{refused}\n", 404, HEADERS)
        return StreamingResponse(
            self._news(request, path), media_type="text/event-stream", headers=HEADERS
        )

    async def _news(self, request: Request, path: str) -> AsyncIterator[str]:
        last = b""
        while not (self._ends() or await request.is_disconnected()):
            try:
                document = await run_in_threadpool(self._places.document, path)
                text = json.dumps(document.data(), ensure_ascii=False, allow_nan=False)
                digest = hashlib.sha256(text.encode()).digest()
                if digest != last:
                    yield f"data: {text}\n\n"
                    last = digest
            except ErisError:
                pass  # half written: the next look will tell
            yield ": here\n\n"
            await asyncio.sleep(self._every)

    def _lets_in(self, request: Request) -> bool:
        if self._token is None:
            return True
        given = request.query_params.get("token") or request.cookies.get(COOKIE) or ""
        return hmac.compare_digest(given.encode(), self._token.encode())
