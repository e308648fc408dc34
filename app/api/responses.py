"""JSON answers and their common headers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson
from starlette.responses import Response

from app.domain.numbers import plain_number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

    from app.domain.facets import JsonValue
    from app.services.ports.store import ClusterStore

_INT64: Final = 2**63
STORE: Final = "confplane.store"
"""Key of the scope with a request's cluster store, for the headers of every answer."""


def json_response(
    request: Request,
    body: Any,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    media_type: str = "application/json",
    revision: int | None = None,
) -> Response:
    """Render an answer.

    Args:
        request: The request; a cluster's store in its scope gives the headers of consistency.
        body: Anything that orjson renders.
        status: HTTP status.
        headers: More headers.
        media_type: Content type.
        revision: The revision of a write, where it is later than the mirror's.
    """
    store: ClusterStore | None = request.scope.get(STORE)
    sent = {} if store is None else consistency_headers(store, revision)
    if headers:
        sent.update(headers)
    sent["content-type"] = media_type
    return PreparedResponse(orjson.dumps(body), sent, status=status)


def json_bytes(request: Request, body: bytes) -> Response:
    """Answer 200 with rendered JSON, with the headers of consistency."""
    store: ClusterStore = request.scope[STORE]
    return PreparedResponse(body, consistency_headers(store) | {"content-type": "application/json"})


class PreparedResponse(Response):
    """A response made of finished parts: Starlette's constructor costs half as much as a whole polled read.

    ``headers`` are names to latin-1 values, all chosen by this service.
    """

    def __init__(self, body: bytes, headers: Mapping[str, str], *, status: int = 200) -> None:
        self.status_code = status
        self.body = body
        self.background = None
        self.raw_headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
        if status != 304:  # noqa: PLR2004 - HTTP
            self.raw_headers.append((b"content-length", b"%d" % len(body)))


def consistency_headers(store: ClusterStore, revision: int | None = None) -> dict[str, str]:
    """Return the revision of an answer, and its greatest staleness, as headers."""
    freshness = store.freshness()
    if freshness is None:
        # Before its first load a process can still answer for an earlier request with the same Idempotency-Key.
        return {} if revision is None else {"confplane-revision": str(revision)}
    at, stale_ms = freshness
    headers = {"confplane-revision": str(max(at, revision or 0))}
    if stale_ms is not None:
        headers["confplane-stale-ms"] = str(stale_ms)
    return headers


def number(value: JsonValue) -> Any:
    """Return a JSON value in a form that orjson renders correctly: numbers in plain decimal, of any size."""
    if isinstance(value, int) and -_INT64 <= value < _INT64:
        return value
    if isinstance(value, (int, float)):
        return orjson.Fragment(plain_number(value))
    return value
