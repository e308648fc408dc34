"""JSON responses and their common headers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import orjson
from starlette.responses import Response

from confplane.domain.numbers import plain_number
from confplane.domain.texts import rfc3339

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from starlette.requests import Request

    from confplane.domain.facets import JsonValue
    from confplane.services.clusters import Cluster
    from confplane.services.ports.store import ClusterStore
    from confplane.services.ports.trail import Intent

_INT64: Final = 2**63
CLUSTER: Final = "confplane.cluster"
"""Key of the scope with a request's cluster, for the headers of every response."""
_BODILESS: Final = frozenset({204, 304})
"""Statuses of responses that have neither a body nor a Content-Length."""
CHALLENGE: Final = "confplane.challenge"
"""Key of the scope with the header WWW-Authenticate of a refusal; absent if the plain one applies."""
JSON: Final = (b"content-type", b"application/json")
"""The header of a JSON response."""
NOSNIFF: Final = (b"x-content-type-options", b"nosniff")
"""The header of every response."""
Headers = list[tuple[bytes, bytes]]


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
        request: The request; if its scope has a cluster, the response has consistency headers.
        body: Anything that orjson renders.
        status: HTTP status.
        headers: More headers.
        media_type: Content type.
        revision: The revision of a write, if it is later than the mirror's.
    """
    cluster: Cluster | None = request.scope.get(CLUSTER)
    sent = [] if cluster is None else consistency_headers(cluster.store, revision)
    sent += encoded({**(headers or {}), "content-type": media_type})
    return PreparedResponse(orjson.dumps(body), sent, status=status)


def unchanged(request: Request, etag: str) -> Response:
    """Answer 304, with the consistency headers if the request is for a cluster."""
    cluster: Cluster | None = request.scope.get(CLUSTER)
    sent = [] if cluster is None else consistency_headers(cluster.store)
    return PreparedResponse(b"", [(b"etag", etag.encode()), *sent], status=304)


def json_bytes(cluster: Cluster, body: bytes) -> Response:
    """Answer 200 with rendered JSON and the consistency headers."""
    return PreparedResponse(body, [*consistency_headers(cluster.store), JSON])


class PreparedResponse(Response):
    """A response made of finished parts, because Starlette's constructor costs half as much as a whole polled read.

    ``headers`` is a list of pairs, with names in lower case. The response owns and may change the list.
    """

    def __init__(self, body: bytes, headers: Headers, *, status: int = 200) -> None:
        self.status_code = status
        self.body = body
        self.background = None
        self.raw_headers = headers
        if status not in _BODILESS:
            headers.append((b"content-length", b"%d" % len(body)))


def encoded(headers: Mapping[str, str]) -> Headers:
    """Return headers in the form of a response, with values in latin-1."""
    return [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]


def consistency_headers(store: ClusterStore, revision: int | None = None) -> Headers:
    """Return the revision of a response, its maximum staleness, and the applied revision, as headers."""
    freshness = store.freshness()
    if freshness is None:
        # Before its first load, a process can still replay the response to an earlier request with the same
        # Idempotency-Key.
        return [] if revision is None else [(b"confplane-revision", b"%d" % revision)]
    at, stale_ms = freshness
    headers = [(b"confplane-revision", b"%d" % (at if revision is None else max(at, revision)))]
    if stale_ms is not None:
        headers.append((b"confplane-stale-ms", b"%d" % stale_ms))
    if store.restored:
        headers.append((b"confplane-store-restored", b"true"))
    applied = store.applied_revision()
    if applied is not None:
        headers.append((b"confplane-applied-revision", b"%d" % applied))
    return headers


def number(value: JsonValue) -> Any:
    """Return a JSON value in a form that orjson renders correctly: numbers in plain decimal, of any size."""
    if isinstance(value, int) and -_INT64 <= value < _INT64:
        return value
    if isinstance(value, (int, float)):
        return orjson.Fragment(plain_number(value))
    return value


def page_response(request: Request, items: Sequence[Any], cursor: UUID | str | None) -> Response:
    """Answer with a page of a list; ``cursor`` leads to the next page and is None at the end."""
    return json_response(request, {"items": items, "nextPageToken": None if cursor is None else str(cursor)})


def reverts(intent: Intent) -> list[str] | None:
    """Return the ids of the changes that a change reverts, or None if it is not a revert."""
    return [str(change_id) for change_id in intent.reverts] or None


def timestamp(ms: int) -> str:
    """Return milliseconds since the epoch as RFC 3339 in UTC."""
    return rfc3339(datetime.fromtimestamp(ms / 1000, UTC))
