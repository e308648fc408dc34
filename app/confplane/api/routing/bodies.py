"""Request bodies: read within limits, parsed by :mod:`confplane.api.routing.strict_json`, validated by their models.

A large body is parsed and validated in slices, so that other requests are served in between.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, get_args

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect

from confplane.api.models import MAX_ENTRIES
from confplane.api.problems import SHOWN, FindingsError
from confplane.api.request_context import REQUEST_CONTEXT
from confplane.api.routing import strict_json
from confplane.domain.errors import BodyTooLargeError, MediaTypeError
from confplane.services.cooperative_yielding import TimeSlice, next_turn, take_turn

if TYPE_CHECKING:
    from starlette.requests import Request

    from confplane.api.models import RequestModel

BODY: Final = "confplane.body"
"""Key of the scope with the parsed body of a request with an Idempotency-Key."""
_CACHE_SIZE: Final = 8_192
_LONG: Final = 8 * 1024
"""Bytes of a body whose parsing is long work, some tenths of a millisecond."""
_SHORT: Final = 512
"""Maximum bytes of a cached body: enough to name one or two clients."""


class BodyReader:
    """Reads the bodies of one model.

    Short bodies of describes are cached, because a poller sends the same bytes each time.

    Args:
        model: The model that validates the bodies.
    """

    def __init__(self, model: type[RequestModel]) -> None:
        self._model = model
        self._short = _SHORT if model.polled else -1
        self._kept = lru_cache(maxsize=_CACHE_SIZE)(self._parse)

    async def __call__(self, request: Request) -> BaseModel:
        """Return the body of a request.

        Raises:
            MediaTypeError: The body is not declared to be JSON.
            BodyTooLargeError: The body has more bytes or items than this service accepts.
            InvalidRequestError: The body is not strict JSON.
            FindingsError: The model refuses the body.
        """
        body = await _received(request, self._model.most_bytes)
        if len(body) <= self._short:
            return self._kept(body)
        if len(body) >= _LONG:
            await take_turn()
        large = len(body) >= strict_json.LARGE
        most_items = strict_json.MAX_ITEMS * self._model.most_entries // MAX_ENTRIES
        value = await strict_json.loads_large(body, most_items) if large else _parsed(body)
        if b"idempotency-key" in request.scope[REQUEST_CONTEXT].headers:
            request.scope[BODY] = value
        if large:
            return await validated(self._model, value)
        model = _validated_at_once(self._model, value)
        if len(body) >= _LONG:
            await next_turn()
        return model

    def _parse(self, body: bytes) -> BaseModel:
        return _validated_at_once(self._model, _parsed(body))


def _parsed(body: bytes) -> Any:
    """Return the value of a body that is not large, or None if it is empty."""
    return strict_json.loads(body) if body else None


async def validated(model: type[RequestModel], value: Any) -> BaseModel:
    """Validate a large body: its list of entries one by one, in slices.

    Raises:
        BodyTooLargeError: The list has more entries than this service accepts at all.
        FindingsError: The model refuses the body.
    """
    found: list[dict[str, Any]] = []
    listed = _listed(model)
    entries = value.get(listed[1]) if listed is not None and isinstance(value, dict) else None
    if listed is not None and isinstance(entries, list) and len(entries) > model.most_entries > MAX_ENTRIES:
        raise BodyTooLargeError(f"The body has {len(entries)} {listed[1]}; at most {model.most_entries} are taken")
    if listed is None or not isinstance(entries, list) or len(entries) > model.most_entries:
        return _validated_at_once(model, value)
    name, alias, item = listed
    made: list[BaseModel] = []
    time_slice = TimeSlice()
    for index, entry in enumerate(entries):
        try:
            made.append(item.model_validate(entry))
        except ValidationError as error:
            found += _findings(error, alias, index)
            if len(found) >= SHOWN:
                break
        if time_slice.due:
            await time_slice.pause()
    try:
        whole = model.model_validate({**value, alias: []})
    except ValidationError as error:
        found += _findings(error)
    if found:
        raise FindingsError(found, value)
    setattr(whole, name, made)
    return whole


def _validated_at_once(model: type[BaseModel], value: Any) -> BaseModel:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise FindingsError(_findings(error), value) from None


def _listed(model: type[BaseModel]) -> tuple[str, str, type[BaseModel]] | None:
    """Return the name, the alias and the model of a body's entries."""
    for name, field in model.model_fields.items():
        item = next(iter(get_args(field.annotation)), None)
        if isinstance(item, type) and issubclass(item, BaseModel):
            return name, field.alias or name, item
    return None


def _findings(error: ValidationError, *place: str | int) -> list[dict[str, Any]]:
    """Return pydantic's findings, each with its place in the request."""
    return [
        {**item, "loc": ("body", *place, *item["loc"])} for item in error.errors(include_url=False, include_input=False)
    ]


async def _received(request: Request, most_bytes: int | None) -> bytes:
    given: bytes = request.scope[REQUEST_CONTEXT].headers.get(b"content-type", b"")
    if given != b"application/json":  # the header of nearly all requests
        kind = given.decode("latin-1").partition(";")[0].strip().lower()
        if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
            raise MediaTypeError(f"The body is {kind[:100] or 'of no type'}; send Content-Type: application/json")
    limit: int = request.app.max_body_bytes
    if most_bytes is not None:
        limit = max(limit, most_bytes)
    # A client that declares the length and waits for 100 Continue does not send the body needlessly.
    if int(request.scope[REQUEST_CONTEXT].headers.get(b"content-length", 0)) > limit:
        raise _too_large(limit)
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
            raise _too_large(limit)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _too_large(limit: int) -> BodyTooLargeError:
    return BodyTooLargeError(f"The body is larger than {limit} bytes; send fewer entries a request")
