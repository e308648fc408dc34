"""Events of the feed as JSON, and streams of them.

An entity of an event is rendered once for all consumers.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

import orjson

from confplane.api.kraft import status_json
from confplane.api.responses import PreparedResponse, disconnected, number, timestamp
from confplane.services.feed.positions import encode

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from confplane.api.responses import Headers
    from confplane.services.feed.consumer import FeedConsumer, FeedDelivery
    from confplane.services.feed.events import EventPart, FeedEvent
    from confplane.services.ports.feed import FeedRequest

_LARGEST: Final = 1_000_000
"""Bytes of an event above which its entities are cut."""
_NOBODY: Final = ("confplane", None, None, None)
_RECONNECT_MS: Final = 5_000


def event_json(cluster: str, delivery: FeedDelivery) -> bytes:
    """Return an event as JSON."""
    event = delivery.event
    assert event is not None  # noqa: S101 - for the type checker
    if delivery.of_snapshot:
        return _state_json(cluster, event)
    change = event.change
    # A reset goes to all consumers, and its change may be of entities that are hidden from them: nothing of its author.
    author = _NOBODY if event.is_reset else (change.principal, change.behalf_of, change.reason, change.ticket)
    principal, behalf_of, reason, ticket = author
    head: dict[str, Any] = {"type": event.type}
    if delivery.position is not None:
        head["id"] = encode(cluster, delivery.position)
    head |= {
        "revision": str(event.position.place.revision),
        "time": timestamp(change.time_ms),
        "changeId": str(change.place.change_id),
        "principal": principal,
        "onBehalfOf": behalf_of,
        "reason": reason,
        "ticket": ticket,
        "source": "external" if event.external else "confplane",
        "partial": delivery.partial,
    }
    if change.revert_at_ms is not None:
        head["revertAt"] = timestamp(change.revert_at_ms)
    if change.ends is not None:
        head["ends"] = str(change.ends)
    if change.request is not None:
        head["request"] = _request(change.request)
    parts, size = [], 0
    for part in delivery.parts:
        rendered = _part(event, part)
        size += len(rendered)
        if size > _LARGEST:
            head |= {"truncated": True, "link": f"/v1/clusters/{cluster}/audit/{change.place.change_id}"}
            break
        parts.append(rendered)
    return b'%s,"entities":[%s]}' % (orjson.dumps(head)[:-1], b",".join(parts))


def _request(request: FeedRequest) -> dict[str, Any]:
    return {
        "id": str(request.id),
        "event": request.type,
        "state": request.state,
        "kind": request.kind,
        "author": request.author,
        "revision": request.revision,
        "comment": request.comment,
        "entities": list(request.entity_ids),
    }


def _state_json(cluster: str, event: FeedEvent) -> bytes:
    [part] = event.parts
    head = {
        "type": "state",
        "id": encode(cluster, event.position),
        "revision": str(part.revision),
        "time": timestamp(event.change.time_ms),
    }
    return b'%s,"entities":[%s]}' % (orjson.dumps(head)[:-1], _part(event, part))


def bookmark_json(revision: int) -> bytes:
    """Return a bookmark as JSON."""
    return orjson.dumps({"type": "bookmark", "revision": str(revision)})


def _part(event: FeedEvent, part: EventPart) -> bytes:
    found = event.rendered.get(id(part))
    if found is None:
        found = event.rendered[id(part)] = orjson.dumps(
            {
                "facet": part.facet,
                "id": part.entity.id,
                "entity": {kind.value: name for kind, name in part.entity.components},
                "revision": str(part.revision),
                "complete": part.complete,
                "keys": [
                    {
                        "key": each.key,
                        "before": number(each.before),
                        "after": number(each.after),
                        "sensitive": each.sensitive,
                    }
                    for each in part.keys
                ],
            }
        )
    return found


def sse(kind: str, event_id: str | None, data: bytes) -> bytes:
    """Return an event in the framing of server-sent events."""
    identified = b"" if event_id is None else b"id: %s\n" % event_id.encode()
    return b"event: %s\n%sdata: %s\n\n" % (kind.encode(), identified, data)


def ndjson(kind: str, event_id: str | None, data: bytes) -> bytes:
    """Return an event as a line of JSON, which has its type and its id."""
    del kind, event_id
    return data + b"\n"


class FeedResponse(PreparedResponse):
    """A stream of events, until the consumer's stream ends or the client closes the connection.

    Args:
        cluster: The cluster.
        consumer: The consumer, which the response closes.
        headers: The headers.
        server_sent: Server-sent events; otherwise lines of JSON.
    """

    def __init__(self, cluster: str, consumer: FeedConsumer, headers: Headers, *, server_sent: bool) -> None:
        super().__init__(b"", headers)
        headers.pop()  # the length is not known
        self._cluster = cluster
        self._consumer = consumer
        self._frame = sse if server_sent else ndjson
        self._comment = b":\n\n" if server_sent else b"\n"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        del scope
        consumer = self._consumer
        gone = asyncio.ensure_future(disconnected(receive))
        gone.add_done_callback(lambda _: consumer.end("disconnected"))
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            # Sent at once, so that proxies and clients see the begin of the stream.
            await _sent(send, self._comment)
            async with aclosing(consumer.deliveries()) as deliveries:
                async for delivery in deliveries:
                    await _sent(send, self._piece(delivery))
            if not gone.done():
                await _sent(send, self._goodbye())
                await send({"type": "http.response.body", "body": b""})
        finally:
            consumer.close()
            gone.cancel()

    def _piece(self, delivery: FeedDelivery) -> bytes:
        event = delivery.event
        if delivery.statuses is not None:
            entities = [{"id": key} | status_json(each) for key, each in delivery.statuses.items()]
            return self._frame("applied", None, orjson.dumps({"type": "applied", "entities": entities}))
        if event is None:
            if delivery.bookmark is None:
                return self._comment
            return self._frame("bookmark", None, bookmark_json(delivery.bookmark))
        event_id = None if delivery.position is None else encode(self._cluster, delivery.position)
        kind = "state" if delivery.of_snapshot else event.type
        return self._frame(kind, event_id, event_json(self._cluster, delivery))

    def _goodbye(self) -> bytes:
        wait_ms = random.randrange(_RECONNECT_MS)  # noqa: S311 - spreads the consumers of a process over others
        data = {"type": "goodbye", "reason": self._consumer.reason, "retryMs": wait_ms}
        return self._frame("goodbye", None, orjson.dumps(data))


async def _sent(send: Send, body: bytes) -> None:
    # The listener waits while the client takes nothing, and disconnects it after a while.
    await send({"type": "http.response.body", "body": body, "more_body": True})
