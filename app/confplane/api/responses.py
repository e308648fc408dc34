"""JSON responses and their common headers, and the choice of another form by the header Accept."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Self
from uuid import UUID

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from confplane.domain.facets import JsonValue
from confplane.domain.numbers import plain_number
from confplane.domain.texts import rfc3339
from confplane.services.changes.edits import EditResult, EntryResult
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
PIECE: Final = 256 * 1024
"""Bytes of a body that are sent at once."""
Headers = list[tuple[bytes, bytes]]


def json_response(
    request: Request,
    body: Any,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    media_type: str = "application/json",
    revision: int | None = None,
    consistency: Headers | None = None,
) -> Response:
    """Render an answer.

    Args:
        request: The request; if its scope has a cluster, the response has consistency headers.
        body: Anything that orjson renders.
        status: HTTP status.
        headers: More headers.
        media_type: Content type.
        revision: The revision of a write, as of :func:`written_revision`.
        consistency: The consistency headers at the time at which the state was read; None: those of now. A read that
            waits after that passes them, because the state may be older than a later revision.
    """
    cluster: Cluster | None = request.scope.get(CLUSTER)
    if consistency is None:
        consistency = [] if cluster is None else consistency_headers(cluster.store, revision)
    sent = [*consistency, *encoded({**(headers or {}), "content-type": media_type})]
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

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response, a large body in pieces."""
        del scope, receive
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        body = self.body
        if len(body) <= PIECE:
            await send({"type": "http.response.body", "body": body})
            return
        # The listener waits before a piece while the client does not receive the earlier ones: once the last, empty one
        # was sent, nearly everything was received.
        for start in range(0, len(body), PIECE):
            await send({"type": "http.response.body", "body": body[start : start + PIECE], "more_body": True})
        await send({"type": "http.response.body", "body": b""})


class StreamedResponse(PreparedResponse):
    """A response whose pieces are made while it is sent, so that it never is in memory as a whole.

    If a piece can't be made, the connection is closed before the end of the body, which clients notice.
    """

    def __init__(self, pieces: AsyncGenerator[bytes, None], headers: Headers, *, status: int = 200) -> None:
        super().__init__(b"", headers, status=status)
        headers.pop()  # the length is not known
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the pieces, until the client closes the connection."""
        del scope
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        gone = asyncio.ensure_future(disconnected(receive))
        try:
            async with aclosing(self._pieces):
                async for piece in self._pieces:
                    if gone.done():
                        return
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
        finally:
            gone.cancel()
        await send({"type": "http.response.body", "body": b""})


class PolledResponse(NamedTuple):
    """The response to a polled read, without the consistency headers."""

    body: bytes
    etag: str
    tag: tuple[bytes, bytes]
    """The ETag as a header."""

    @classmethod
    def of(cls, content: Mapping[str, Any], etag: str) -> Self:
        """Render a content."""
        return cls(orjson.dumps(content), etag, (b"etag", etag.encode()))


async def disconnected(receive: Receive) -> None:
    """Wait until the client of a request whose body was received closes the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


def encoded(headers: Mapping[str, str]) -> Headers:
    """Return headers in the form of a response, with values in latin-1."""
    return [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]


def consistency_headers(store: ClusterStore, revision: int | None = None) -> Headers:
    """Return the revision of a response, its maximum staleness, and the applied revision, as headers.

    The revision is the given one, or else the mirror's.
    """
    freshness = store.freshness()
    if freshness is None:
        # Before its first load, a process can still replay the response to an earlier request with the same
        # Idempotency-Key.
        return [] if revision is None else [(b"confplane-revision", b"%d" % revision)]
    at, stale_ms = freshness
    headers = [(b"confplane-revision", b"%d" % (at if revision is None else revision))]
    if stale_ms is not None:
        headers.append((b"confplane-stale-ms", b"%d" % stale_ms))
    if store.restored:
        headers.append((b"confplane-store-restored", b"true"))
    applied = store.applied_revision()
    if applied is not None:
        headers.append((b"confplane-applied-revision", b"%d" % applied))
    return headers


def change_header(change_id: UUID | str | None) -> dict[str, str]:
    """Return the header with the change that a write made; none if nothing changed."""
    return {} if change_id is None else {"Confplane-Change-Id": str(change_id)}


def written_revision(store: ClusterStore, results: Iterable[EditResult | EntryResult]) -> int | None:
    """Return the revision of the state that the response to a write shows. To be called right after the write.

    It is that of the latest change, although the mirror may have later ones. A refusal has the revision at which its
    state was confirmed. Any other result without a change has the state of the mirror, or a later one: its own revision
    is that of the last change of its entity.
    """
    revisions: list[int | None] = []
    for each in results:
        revisions.append(each.revision if each.error is None else each.error.revision)
        if each.error is None and each.change_id is None:
            revisions.append(None)
    freshness = store.freshness()
    if freshness is not None and (None in revisions or not revisions):
        revisions.append(freshness[0])
    return max((each for each in revisions if each is not None), default=None)


def prefers(accept: str | None, media_type: str) -> bool:
    """Return True if an Accept header ranks a media type above JSON (RFC 9110). JSON wins a tie."""
    if accept is None:
        return False
    return _quality(accept, media_type) > _quality(accept, "application/json")


def _quality(accept: str, wanted: str) -> float:
    """Return the weight of a media type: that of the most specific range that covers it, or 0 if no range does."""
    found = (0, 0.0)
    for item in accept.split(","):
        media_range, *parameters = (part.strip().lower() for part in item.split(";"))
        ranges = {"*/*": 1, f"{wanted.partition('/')[0]}/*": 2, wanted: 3}
        if media_range in ranges:
            found = max(found, (ranges[media_range], _weight(parameters)))
    return found[1]


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                weight = float(value)
            except ValueError:
                return 0.0
            return weight if 0 <= weight <= 1 else 0.0
    return 1.0


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
