"""The wire forms of the feed."""

from typing import Annotated, Literal

from pydantic import Field

from confplane.api.models import Absent, AnswerModel, ChangeId, Revision, Scalar, Time, one_of
from confplane.domain.change_requests import RequestEventType, RequestKind, RequestState
from confplane.services.feed.positions import LONGEST

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
