"""The route class of this API: strict about queries and bodies before FastAPI looks at either."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from app.api import strict_json
from app.api.edge import HEADERS
from app.api.problems import not_json
from app.domain.errors import BodyTooLargeError, InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from fastapi.dependencies.models import Dependant

MAX_BODY: Final = "max_body_bytes"
"""Attribute of ``app.state`` with the largest body in bytes."""
BODY: Final = "confplane.body"
"""Key of the scope under which the parsed body of a request with an Idempotency-Key is kept."""


class MediaTypeError(InvalidRequestError):
    """The body is declared to be something other than JSON."""


class StrictRoute(APIRoute):
    """Refuses unknown or repeated query parameters, and reads bodies with :mod:`app.api.strict_json`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return FastAPI's handler behind our checks."""
        handler = super().get_route_handler()
        allowed = _query_names(self.dependant)
        has_body = self.body_field is not None

        async def strict(request: Request) -> Response:
            check_query(request, allowed)
            if has_body:
                try:
                    request = _ParsedRequest(request, await read_json(request))
                except MediaTypeError as error:
                    return not_json(request, error)
            return await handler(request)

        return strict


def check_query(request: Request, allowed: frozenset[str]) -> None:
    """Refuse query parameters that a route does not have.

    Raises:
        InvalidRequestError: Naming the first of them, and those that there are.
    """
    seen: set[str] = set()
    for name, value in request.query_params.multi_items():
        if name not in allowed:
            raise InvalidRequestError(
                f"Unknown query parameter {name[:100]!a}; there are: {', '.join(sorted(allowed))}", pointer=name[:100]
            )
        if name in seen:
            raise InvalidRequestError(f"The query parameter {name} is given twice", pointer=name)
        if "\0" in value or "\ufffd" in value:
            raise InvalidRequestError(f"The query parameter {name} is not UTF-8 text without NUL", pointer=name)
        seen.add(name)


def _query_names(dependant: Dependant) -> frozenset[str]:
    names = {field.alias for field in dependant.query_params}
    for part in dependant.dependencies:
        names |= _query_names(part)
    return frozenset(names)


async def read_json(request: Request) -> Any:
    """Read and parse a body; None for an empty one.

    Raises:
        MediaTypeError: It is not declared to be JSON.
        BodyTooLargeError: It is larger than this service takes.
        InvalidRequestError: It is no strict JSON.
    """
    value = parse_json(await read_body(request))
    if b"idempotency-key" in request.scope[HEADERS]:
        request.scope[BODY] = value
    return value


def parse_json(body: bytes) -> Any:
    """Parse a body; None for an empty one.

    Raises:
        InvalidRequestError: It is no strict JSON.
    """
    return strict_json.loads(body) if body else None


async def read_body(request: Request) -> bytes:
    """Read a body that has to be JSON.

    Raises:
        MediaTypeError: It is not declared to be JSON.
        BodyTooLargeError: It is larger than this service takes.
    """
    given: bytes = request.scope[HEADERS].get(b"content-type", b"")
    if given != b"application/json":  # what nearly all send
        kind = given.decode("latin-1").partition(";")[0].strip().lower()
        if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
            raise MediaTypeError(f"The body is {kind[:100] or 'of no type'}; send Content-Type: application/json")
    limit: int = getattr(request.app.state, MAX_BODY)
    pieces: list[bytes] = []
    size = 0
    more = True
    while more:
        # Not by request.stream(): most bodies come in one piece.
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        pieces.append(message["body"])
        size += len(message["body"])
        more = message.get("more_body", False)
        if size > limit:
            raise BodyTooLargeError(f"The body is larger than {limit} bytes; send fewer entries a request")
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class _ParsedRequest(Request):
    """A request whose body was read and parsed, as FastAPI looks for it."""

    def __init__(self, request: Request, value: Any) -> None:
        super().__init__(request.scope, request.receive)
        self._body = b"" if value is None else b"read"
        self._json = value
