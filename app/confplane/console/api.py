"""Calls of the public API in this process, with the token of a session.

Each call passes through the API's own middleware: authentication, limits, audit and request ids are of any caller.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

import orjson

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope

_REFUSED: Final = 400
_UNAUTHENTICATED: Final = 401
_SAFE: Final = "/:=,~"
"""Characters of paths that the API has literally: those of entity ids and of verbs."""


def encoded(path: str, query: Mapping[str, Any] | None) -> tuple[str, str]:
    """Return a path of the API and its query as in an address. Parameters with the value None are left out."""
    given = {name: value for name, value in (query or {}).items() if value is not None}
    return quote(path, safe=_SAFE), urlencode(given)


@dataclass(frozen=True, slots=True)
class ApiAnswer:
    """A successful answer."""

    status: int
    headers: Mapping[str, str]
    """By name in lower case."""
    body: bytes

    def json(self) -> Any:
        """Return the content."""
        return orjson.loads(self.body)


class ApiRefusal(Exception):  # noqa: N818 - most refusals are not faults of anybody
    """The API refused a request of a token that it accepts.

    Args:
        answer: The API's answer.
        command: The method and the path of the request.

    Attributes:
        status: The HTTP status.
        problem: The members of the problem (RFC 9457).
        detail: Its text for people.
        retry_after: Seconds after which a retry may help; None if there is no such time.
    """

    def __init__(self, answer: ApiAnswer, command: str) -> None:
        super().__init__(f"{command}: {answer.status}")
        self.status = answer.status
        is_json = answer.headers.get("content-type", "").endswith("json")
        self.problem: dict[str, Any] = answer.json() if is_json else {"title": "The service refused", "detail": ""}
        self.detail: str = self.problem["detail"]
        self.retry_after = answer.headers.get("retry-after")


class TokenRefusedError(Exception):
    """The API does not accept the token (401). It is not a refusal, so that no page takes it for "nothing to show".

    Args:
        detail: What the API says.
    """

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


@dataclass(frozen=True, slots=True)
class InProcessApi:
    """The API for one request of a browser."""

    app: ASGIApp
    token: str
    scope: Scope
    """The scope of the browser's request, for the address of its client."""
    request_id: str

    async def get(self, path: str, **query: Any) -> Any:
        """Return the JSON of a read. A query parameter with the value None is left out; ``_`` in names is ``-``.

        Raises:
            ApiRefusal: The API refused.
            TokenRefusedError: The API does not accept the token.
        """
        given = {name.replace("_", "-"): value for name, value in query.items()}
        return (await self.send("GET", path, query=given)).json()

    async def send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> ApiAnswer:
        """Send a request, and return its answer.

        Args:
            method: The HTTP method.
            path: The path, not encoded.
            query: Parameters; those with the value None are left out.
            body: Anything that orjson renders; None for no body.
            headers: Further headers.

        Raises:
            ApiRefusal: The status is 400 or above.
            TokenRefusedError: The status is 401.
        """
        content = b"" if body is None else orjson.dumps(body)
        kind = {} if body is None else {"content-type": "application/json"}
        unread = [content]

        async def receive() -> Message:
            if unread:
                return {"type": "http.request", "body": unread.pop(), "more_body": False}
            await asyncio.Future()  # the browser's own connection decides when this request is cancelled
            raise AssertionError

        answer = await self._call(method, path, query, len(content), {**kind, **(headers or {})}, receive)
        _check(answer, f"{method} {path}")
        return answer

    async def stream(
        self,
        path: str,
        *,
        query: Mapping[str, Any],
        headers: Mapping[str, str],
        until: Awaitable[object],
        pass_on: Callable[[bytes], Awaitable[None]],
    ) -> None:
        """Read a stream, and pass each piece on as it comes, until the API or the reader ends the stream.

        Args:
            path: The path, not encoded.
            query: Parameters; those with the value None are left out.
            headers: Further headers.
            until: Returns when the reader wants no more.
            pass_on: Takes a piece. While it waits, the API sends no further one.

        Raises:
            ApiRefusal: The status is 400 or above; no piece was passed on.
            TokenRefusedError: The status is 401.
        """
        unread = [b""]

        async def receive() -> Message:
            if unread:
                return {"type": "http.request", "body": unread.pop(), "more_body": False}
            await until
            return {"type": "http.disconnect"}

        answer = await self._call("GET", path, query, 0, headers, receive, pass_on=pass_on)
        _check(answer, f"GET {path}")

    async def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        length: int,
        headers: Mapping[str, str] | None,
        receive: Receive,
        *,
        pass_on: Callable[[bytes], Awaitable[None]] | None = None,
    ) -> ApiAnswer:
        """Call the API. The content of a successful response goes to ``pass_on``, or else into the answer."""
        given = {
            "host": "console",
            "authorization": f"Bearer {self.token}",
            "x-request-id": self.request_id,
            "content-length": str(length),
            **{name.lower(): value for name, value in (headers or {}).items()},
        }
        raw_path, parameters = encoded(path, query)
        scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": self.scope["scheme"],
            "path": path,
            "raw_path": raw_path.encode(),
            "query_string": parameters.encode(),
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in given.items()],
            "client": self.scope.get("client"),
            "server": self.scope.get("server"),
        }
        status, sent, received = 0, {}, bytearray()

        async def send(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
                sent = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in message["headers"]}
            elif pass_on is not None and status < _REFUSED:
                await pass_on(message.get("body", b""))
            else:
                received.extend(message.get("body", b""))

        await self.app(scope, receive, send)
        return ApiAnswer(status, sent, bytes(received))


def _check(answer: ApiAnswer, command: str) -> None:
    if answer.status == _UNAUTHENTICATED:
        raise TokenRefusedError(answer.json()["detail"])
    if answer.status >= _REFUSED:
        raise ApiRefusal(answer, command)
