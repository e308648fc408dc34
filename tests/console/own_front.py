"""A console in the test's own process, over the API of a running service or a made-up one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
from starlette.responses import JSONResponse, Response

from confplane.console.app import Front
from confplane.console.page import SESSION_COOKIE, Console
from confplane.console.sessions import ConsoleSession, SessionKeeper
from confplane.crypto import ConsoleKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Receive, Scope, Send

    from tests.support.service import Service

COOKIE = "a"
KEY = ConsoleKey("k" * 43)
CSRF = KEY.sign(COOKIE, "form")
"""The token of the session's forms."""


class OneSession(SessionKeeper):
    """A keeper of one session, which does not end.

    Args:
        token: The session's token.
    """

    def __init__(self, token: str) -> None:
        """Keep nothing but the session."""
        self._token = token

    async def find(self, cookie: str, *, use: bool = True) -> ConsoleSession:
        del use
        return ConsoleSession(cookie, self._token, "User:admin")


def browser_of(api: ASGIApp, token: str = "") -> httpx.AsyncClient:
    """Return a browser that is signed in at a console over an API."""
    front = Front(api, Console(api, OneSession(token), KEY, None, secure=False))
    transport = httpx.ASGITransport(front)
    return httpx.AsyncClient(transport=transport, base_url="http://console", cookies={SESSION_COOKIE: COOKIE})


def refusing(service: Service, is_refused: Callable[[str, str], bool]) -> ASGIApp:
    """Return the API of a running service, which does not accept the token for some requests.

    Args:
        service: The service.
        is_refused: Decides by the method and the path.
    """

    async def api(scope: Scope, receive: Receive, send: Send) -> None:
        if is_refused(scope["method"], scope["path"]):
            answer: Response = JSONResponse({"title": "Unauthenticated", "detail": "The token was revoked"}, 401)
        else:
            url = httpx.URL(service.url, raw_path=scope["raw_path"] + b"?" + scope["query_string"])
            async with httpx.AsyncClient(trust_env=False) as client:
                content = (await receive()).get("body", b"")
                headers = [pair for pair in scope["headers"] if pair[0] != b"host"]
                found = await client.request(scope["method"], url, headers=headers, content=content)
            kept = {name: text for name, text in found.headers.items() if name not in {"content-length", "server"}}
            answer = Response(found.content, found.status_code, kept)
        await answer(scope, receive, send)

    return api
