"""The feed: the changes of a cluster as they happen, from any position on."""

import time
from contextlib import aclosing
from typing import Annotated, Literal

import orjson
from fastapi import Header, Query
from pydantic import Field
from starlette.responses import Response

from confplane.api import formats
from confplane.api.dependencies import Call, CallDep
from confplane.api.feed.render import FeedResponse, bookmark_json, event_json
from confplane.api.models import Absent, AnswerModel, ChangeId, Revision, Scalar, Time, one_of
from confplane.api.request_context import REQUEST_CONTEXT
from confplane.api.responses import PreparedResponse, consistency_headers, encoded, prefers
from confplane.api.routing.operations import ResponseSpec, read
from confplane.api.routing.routes import Routes
from confplane.api.services import FeedsDep
from confplane.domain.access.operations import Operation
from confplane.domain.change_requests import RequestEventType, RequestKind, RequestState
from confplane.domain.entities import Entity, EntityType, EntityTypeName
from confplane.domain.errors import InvalidRequestError
from confplane.domain.facets import FacetName, FacetNameText
from confplane.services.feed.consumer import FeedConsumer
from confplane.services.feed.events import FeedFilter, RequestSelection
from confplane.services.feed.positions import LONGEST, decode, encode
from confplane.services.limits import LimitClass
from confplane.services.reads.trail import visible

FEED_POSITION = Field(description="An opaque position: send it as `after` or `Last-Event-ID`", max_length=LONGEST)


class FeedKey(AnswerModel):
    """One key's values before and after a change."""

    key: str
    before: Scalar = Field(description="null: absent, or not kept")
    after: Scalar = Field(description="null: absent, or not kept")
    sensitive: bool


class FeedEntityChange(AnswerModel):
    """The keys of one entity in one facet."""

    facet: str
    id: str
    entity: dict[str, str | None] = Field(description="The entity's names by type; null is the default entity")
    revision: Revision
    complete: bool = Field(
        description="true: the entity has no other keys in this facet, so remove those from a copy. Some of these keys"
        " may be as they were"
    )
    keys: list[FeedKey]


class FeedRequestData(AnswerModel):
    """The change request of an event."""

    id: str = Field(description="The id of the request", json_schema_extra={"format": "uuid"})
    event: Annotated[str, one_of(*RequestEventType)]
    state: Annotated[str, one_of(*RequestState)] = Field(description="The state after the event")
    kind: Annotated[str, one_of(*RequestKind)]
    author: str = Field(description="The principal of the first author")
    revision: int
    comment: str | None = Field(description="The comment of the caller, or the reason of the event")
    entities: list[str] = Field(description="The ids of the entities")


class FeedEventData(AnswerModel):
    """One event."""

    type: Literal["change", "reset", "put-back", "request"] = Field(
        description="reset: list again, then continue with the events after it. put-back: an external write to a Kafka"
        " 4 cluster that was undone; it is not a version of an entity, and its revisions are 0. request: an event of a"
        " change request; `changeId` is its own id, and reason and ticket are those of the request"
    )
    id: str | Absent = Field(
        default=None,
        description="The position of the event. A put-back, and an external change that was found late, have none: they"
        " move no position, and may come again",
    )
    revision: Revision
    time: Time
    change_id: ChangeId
    principal: str
    on_behalf_of: str | None
    reason: str | None
    ticket: str | None
    source: Literal["confplane", "external"]
    partial: bool = Field(description="Further entities of the change exist that the caller may not describe")
    revert_at: Time | Absent = Field(default=None, description="Of a temporary change: the time of its end")
    ends: ChangeId | Absent = Field(default=None, description="The temporary change that this one ends")
    truncated: bool | Absent = Field(
        default=None, description="true: entities are left out, because the event would be above 1 MB; see `link`"
    )
    link: str | Absent = Field(default=None, description="Of a truncated event: the whole change")
    request: FeedRequestData | Absent = Field(default=None, description="Of the type request")
    entities: list[FeedEntityChange]


class FeedState(AnswerModel):
    """The current state of an entity in one facet, of a snapshot."""

    type: Literal["state"]
    id: str = Field(description="The position of the event: the rest of the snapshot, and then the changes")
    revision: Revision
    time: Time
    entities: list[FeedEntityChange] = Field(description="One, with all of its keys; `before` is null")


class FeedBookmark(AnswerModel):
    """The end of a snapshot."""

    type: Literal["bookmark"]
    revision: Revision = Field(description="The changes after this revision follow")


class FeedSnapshot(AnswerModel):
    """A part of a snapshot."""

    states: list[FeedState]
    bookmark: FeedBookmark | Absent = Field(default=None, description="In the last part")


class FeedPage(AnswerModel):
    """Events of a long poll."""

    events: list[FeedEventData]
    snapshot: FeedSnapshot | Absent = Field(
        default=None, description="The next part of the snapshot, before the events. Absent after its end"
    )
    position: str = FEED_POSITION
    revision: Revision = Field(
        description="Nothing that matches is missing up to this revision, if there are no events"
    )


routes = Routes(tag="feed")

_SSE = "text/event-stream"
_NDJSON = "application/x-ndjson"
_LONGEST_WAIT_S = 60
_MOST = 500
"""Events of a long poll, at most."""
_MOST_BYTES = 4_000_000


@routes.get(
    "/v1/clusters/{cluster}/changes",
    read(
        "The changes of the cluster as they happen",
        {
            200: ResponseSpec(
                FeedPage,
                "Events. A stream by the header Accept, otherwise one page",
                {kind: {"schema": {"type": "string"}} for kind in (_SSE, _NDJSON)},
            )
        },
        limit=LimitClass.READ,
        problems=(409, 410, 503),
    ),
)
async def follow_changes(  # noqa: PLR0913 - one argument a parameter is FastAPI's way
    call: CallDep,
    feeds: FeedsDep,
    *,
    after: Annotated[
        str | None, Query(description="Continue after this position. Without it: from now on", max_length=LONGEST)
    ] = None,
    last_event_id: Annotated[
        str | None,
        Header(alias="Last-Event-ID", description="As `after`, and takes precedence over it", max_length=LONGEST),
    ] = None,
    snapshot: Annotated[
        bool,
        Query(description="Without a position: the current states first, then their changes. Not with `principal`"),
    ] = False,
    wait: Annotated[
        int | None,
        Query(ge=0, le=_LONGEST_WAIT_S, description="Of a page: seconds to wait for a first event. Not for streams"),
    ] = None,
    facet: Annotated[FacetNameText | None, Query(description="Only keys of this facet")] = None,
    entity_type: Annotated[
        EntityTypeName | None,
        Query(alias="entityType", description="Only entities of this type; pairs of a user are of the type client-id"),
    ] = None,
    entity: Annotated[
        str | None,
        Query(
            description="Only this entity, by its id",
            examples=["user=alice"],
            json_schema_extra={"pattern": formats.AUDITED_ID},
        ),
    ] = None,
    user: Annotated[str | None, Query(description="Only this user and its client-ids", max_length=1024)] = None,
    prefix: Annotated[str | None, Query(description="Only entities whose last name begins so", max_length=1024)] = None,
    key: Annotated[str | None, Query(description="Only entities of which this key changed", max_length=249)] = None,
    principal: Annotated[str | None, Query(description="Only changes of this principal", max_length=1024)] = None,
    requests: Annotated[
        Literal["include", "only"] | None,
        Query(
            description="Events of change requests as well, or no others. Without it: none. They have no facet or key"
        ),
    ] = None,
) -> Response:
    """One event for each change, in order: own changes exactly once, and of external changes the last state of each
    entity at least. Events of change requests come once, after the changes that they follow.

    The header `Accept` selects server-sent events (`text/event-stream`) or lines of JSON (`application/x-ndjson`).
    Otherwise the response is one page, for long polls.
    """  # noqa: D205 - one sentence
    accept = call.request.headers.get("accept")
    server_sent, lines = prefers(accept, _SSE), prefers(accept, _NDJSON)
    if wait is not None and (server_sent or lines):
        raise InvalidRequestError("wait is only for pages, not for streams. Leave it out", pointer="wait")
    if snapshot and principal is not None:
        raise InvalidRequestError("principal selects changes, and a state has none. Leave it out", pointer="principal")
    if snapshot and requests == "only":
        raise InvalidRequestError("requests=only leaves states out. Leave out snapshot", pointer="requests")
    name = call.cluster.name
    wanted = FeedFilter(
        None if facet is None else FacetName(facet),
        None if entity_type is None else EntityType(entity_type),
        _entity_id(call, entity),
        user,
        prefix,
        key,
        principal,
        None if requests is None else RequestSelection(requests),
    )
    given, pointer = (after, "after") if last_event_id is None else (last_event_id, "Last-Event-ID")
    position = None if given is None else decode(name, given, pointer)
    deadline = call.request.scope[REQUEST_CONTEXT].deadline
    consumer = await feeds.open(
        *(call.cluster, call.access, wanted, position, deadline),
        pointer=pointer,
        statuses=server_sent or lines,
        snapshot=snapshot,
    )
    headers = consistency_headers(call.cluster.store) + encoded(
        {"cache-control": "no-store", "x-accel-buffering": "no"}
    )
    if server_sent or lines:
        headers += encoded({"content-type": _SSE if server_sent else _NDJSON})
        return FeedResponse(name, consumer, headers, server_sent=server_sent)
    headers += encoded({"content-type": "application/json"})
    return PreparedResponse(await _page(name, consumer, wait or 0), headers)


def _entity_id(call: Call, entity: str | None) -> str | None:
    if entity is None:
        return None
    entity_id = Entity.from_id(entity, pointer="entity").id
    if visible(call.access, call.cluster.name) is not None:
        call.access.require(call.cluster.name, Operation.DESCRIBE_CONFIGS, entity_id, pointer="entity")
    return entity_id


async def _page(cluster: str, consumer: FeedConsumer, wait_s: float) -> bytes:
    """Return a page of events: those that there are, or the first that come in time."""
    events: list[bytes] = []
    states: list[bytes] = []
    bookmark: bytes | None = None
    in_snapshot = consumer.position.snapshot is not None
    size = count = 0
    try:
        async with aclosing(consumer.deliveries(time.monotonic() + wait_s)) as deliveries:
            async for delivery in deliveries:
                if delivery.event is None:
                    if delivery.of_snapshot and delivery.bookmark is not None:
                        bookmark = bookmark_json(delivery.bookmark)
                    continue
                event = event_json(cluster, delivery)
                (states if delivery.of_snapshot else events).append(event)
                if delivery.position is None:
                    continue  # it moves no position, so the next page would begin with it again
                count += 1
                size += len(event)
                if count >= _MOST or size > _MOST_BYTES:
                    break
        consumer.raise_if_ended()
        position = consumer.resting_position()
    finally:
        consumer.close()
    tail = orjson.dumps({"position": encode(cluster, position), "revision": str(position.place.revision)})
    snapshot = b""
    if in_snapshot:
        end = b"" if bookmark is None else b',"bookmark":%s' % bookmark
        snapshot = b'"snapshot":{"states":[%s]%s},' % (b",".join(states), end)
    return b'{"events":[%s],%s%s' % (b",".join(events), snapshot, tail[1:])
