"""The route class of this API: strict about queries and bodies before FastAPI looks at either.

A large body is parsed and validated in slices, so that others are served meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, get_args

from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from app.api import strict_json
from app.api.edge import HEADERS
from app.api.problems import SHOWN, not_json, validation_problem
from app.domain.errors import BodyTooLargeError, InvalidRequestError
from app.services.pace import Pace

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from fastapi.dependencies.models import Dependant

MAX_ENTRIES: Final = 10_000
"""Entries of a large body that are validated one by one; more than any model takes are left to it to refuse."""
MAX_BODY: Final = "max_body_bytes"
"""Attribute of ``app.state`` with the largest body in bytes."""
BODY: Final = "confplane.body"
"""Key of the scope under which the parsed body of a request with an Idempotency-Key is kept."""


class MediaTypeError(InvalidRequestError):
    """The body is declared to be something other than JSON."""


class InvalidBodyError(Exception):
    """The body is JSON and not what the model wants; ``found`` are pydantic's findings, ``sent`` the body."""

    def __init__(self, found: list[dict[str, Any]], sent: Any) -> None:
        super().__init__()
        self.found = found
        self.sent = sent


class StrictRoute(APIRoute):
    """Refuses unknown or repeated query parameters, and reads bodies with :mod:`app.api.strict_json`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return FastAPI's handler behind our checks."""
        handler = super().get_route_handler()
        allowed = _query_names(self.dependant)
        has_body = self.body_field is not None
        model: Any = None if self.body_field is None else self.body_field.field_info.annotation

        async def strict(request: Request) -> Response:
            check_query(request, allowed)
            if has_body:
                try:
                    value, large = await parsed(request, await read_body(request))
                    if large and model is not None:
                        value = await validated(model, value)
                    request = _ParsedRequest(request, value)
                except MediaTypeError as error:
                    return not_json(request, error)
                except InvalidBodyError as error:
                    return validation_problem(request, error.found, error.sent)
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


async def read_model(request: Request, model: type[BaseModel]) -> BaseModel:
    """Read, parse and validate a body.

    Raises:
        InvalidBodyError: It is not what the model wants.
        InvalidRequestError: As :func:`read_body` and :func:`parsed`.
    """
    value, large = await parsed(request, await read_body(request))
    return await validated(model, value) if large else model_of(model, value)


async def parsed(request: Request, body: bytes) -> tuple[Any, bool]:
    """Parse a body, None for an empty one, and say whether it is a large one.

    Raises:
        BodyTooLargeError: It has more items than this service takes.
        InvalidRequestError: It is no strict JSON.
    """
    large = len(body) >= strict_json.LARGE
    value = await strict_json.loads_large(body) if large else parse_json(body)
    if b"idempotency-key" in request.scope[HEADERS]:
        request.scope[BODY] = value
    return value, large


async def validated(model: type[BaseModel], value: Any) -> BaseModel:
    """Validate a large body: its list of entries one by one, in slices.

    Raises:
        InvalidBodyError: It is not what the model wants.
    """
    found: list[dict[str, Any]] = []
    listed = _listed(model)
    entries = value.get(listed[1]) if listed is not None and isinstance(value, dict) else None
    if listed is None or not isinstance(entries, list) or len(entries) > MAX_ENTRIES:
        return model_of(model, value)
    name, alias, item = listed
    made: list[BaseModel] = []
    pace = Pace()
    for index, entry in enumerate(entries):
        try:
            made.append(item.model_validate(entry))
        except ValidationError as error:
            found += _findings(error, alias, index)
            if len(found) >= SHOWN:
                break
        if pace.due:
            await pace.rest()
    try:
        whole = model.model_validate({**value, alias: []})
    except ValidationError as error:
        found += _findings(error)
    if found:
        raise InvalidBodyError(found, value)
    setattr(whole, name, made)
    return whole


def model_of(model: type[BaseModel], value: Any) -> BaseModel:
    """Validate a body at once.

    Raises:
        InvalidBodyError: It is not what the model wants.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise InvalidBodyError(_findings(error), value) from None


def _listed(model: type[BaseModel]) -> tuple[str, str, type[BaseModel]] | None:
    """Return the name, the alias and the model of the entries that a body is made of."""
    for name, field in model.model_fields.items():
        item = next(iter(get_args(field.annotation)), None)
        if isinstance(item, type) and issubclass(item, BaseModel):
            return name, field.alias or name, item
    return None


def _findings(error: ValidationError, *place: str | int) -> list[dict[str, Any]]:
    """Return what pydantic found, each with its place in the request."""
    return [
        {**item, "loc": ("body", *place, *item["loc"])} for item in error.errors(include_url=False, include_input=False)
    ]


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
    # A client that declares the length and waits for 100 Continue sends nothing in vain.
    if int(request.scope[HEADERS].get(b"content-length", 0)) > limit:
        raise _too_large(limit)
    while more:
        # Not by request.stream(): most bodies come in one piece.
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        pieces.append(message["body"])
        size += len(message["body"])
        more = message.get("more_body", False)
        if size > limit:
            raise _too_large(limit)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _too_large(limit: int) -> BodyTooLargeError:
    return BodyTooLargeError(f"The body is larger than {limit} bytes; send fewer entries a request")


class _ParsedRequest(Request):
    """A request whose body was read and parsed, as FastAPI looks for it."""

    def __init__(self, request: Request, value: Any) -> None:
        super().__init__(request.scope, request.receive)
        self._body = b"" if value is None else b"read"
        self._json = value
