"""The past of resources: content at a moment, changes, and differences between two moments."""

from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

from fastapi import Query
from pydantic import Field
from starlette.responses import Response

from confplane.api import formats, models
from confplane.api.dependencies import Call
from confplane.api.responses import json_response, number, page_response, reverts, timestamp, unchanged
from confplane.api.routing.operations import read
from confplane.api.routing.preconditions import not_modified
from confplane.domain.entities import Entity
from confplane.domain.errors import InvalidRequestError
from confplane.domain.facets import FacetName
from confplane.services.cluster_facet import ClusterFacet
from confplane.services.limits import LimitClass
from confplane.services.reads.describe import ListQuery
from confplane.services.reads.history import HistoryEntry, HistoryService, PastEntity, ValueChange

_MOMENT: Final = (
    "Digits alone are a revision, any other text a time (RFC 3339 with an offset). A time in the future means now"
)
At = Annotated[str | None, Query(description=f"The content of a moment of the past. {_MOMENT}", max_length=64)]
"""The moment of a read of the past; :func:`confplane.api.formats.parse_revision_or_time` reads it."""
From = Annotated[str | None, Query(alias="from", description=f"Needed. {_MOMENT}", max_length=64)]
To = Annotated[str | None, Query(description=f"{_MOMENT}. Now where it is absent", max_length=64)]


class KeyChange(models.AnswerModel):
    """A key's values before and after; null is absent, or not kept."""

    key: str
    before: str | float | None
    after: str | float | None
    not_kept: Literal[True] | models.Absent = Field(
        default=None,
        description="The value is not kept, because it is a secret or was not observed. It may be unchanged",
    )


class HistoryItem(models.AnswerModel):
    """One change of an entity in one facet."""

    change_id: models.ChangeId
    kind: models.Kind = Field(description="As in the trail; external: a change made outside this service")
    writes: int | None = Field(description="For an external change: the minimum number of writes")
    revision: models.Revision
    time: models.Time
    principal: str
    on_behalf_of: str | None
    request_id: str
    reason: str | None
    ticket: str | None
    reverts: models.Reverts
    moved: Literal[True] | models.Absent = Field(
        default=None, description="The client configs went to another layout; no value changed"
    )
    changes: list[KeyChange]


class HistoryPage(models.Page[HistoryItem]):
    """A page of an entity's changes, newest first."""


class PastDiff(models.AnswerModel):
    """An entity at two moments, and the keys that differ."""

    id: models.EntityId
    before: models.PastMoment
    after: models.PastMoment
    changes: list[KeyChange]


HISTORY: Final = read(
    "The changes of an entity, including external ones, newest first",
    HistoryPage,
    limit=LimitClass.BULK,
    problems=(503,),
    description="Each change has the keys that it gave another value, with their values before and after; secrets"
    " are null. Changes are sorted by revision. The history begins where the trail does.",
)
"""The facts of :func:`history`."""
DIFF: Final = read(
    "The keys of an entity that differ between two moments",
    PastDiff,
    limit=LimitClass.BULK,
    problems=(409, 410, 503),
    description="410 for a time before the trail began. A time within a run of external writes that were"
    " observed as one has `exact: false` and the bounds of the run.",
)
"""The facts of :func:`diff`."""


async def history(
    call: Call, past: HistoryService, name: FacetName, entity: Entity, page_size: int, page_token: str | None
) -> Response:
    """Answer with a page of an entity's changes."""
    items, cursor = await past.changes(call.cluster_facet(name), entity, page_size=page_size, page_token=page_token)
    call.charge(LimitClass.BULK, len(items))
    return page_response(call.request, [_item(item) for item in items], cursor)


async def diff(
    call: Call, past: HistoryService, name: FacetName, entity: Entity, from_: str | None, to: str | None
) -> Response:
    """Answer with the differences between two moments of an entity."""
    if from_ is None:
        raise InvalidRequestError("Name the first moment: from is needed", pointer="from")
    found = await past.diff(
        call.cluster_facet(name),
        entity,
        formats.parse_revision_or_time(from_, "from"),
        _or_now(to),
        call.caller.deadline,
    )
    body = {
        "id": entity.id,
        "before": _moment(found.before),
        "after": _moment(found.after),
        "changes": [_key_change(change) for change in found.changes],
    }
    return json_response(call.request, body)


async def single(
    call: Call, past: HistoryService, cluster_facet: ClusterFacet, entity: Entity, at: str, if_none_match: str | None
) -> Response:
    """Answer with an entity at a moment."""
    found = await past.existing(cluster_facet, entity, formats.parse_revision_or_time(at, "at"), call.caller.deadline)
    if not_modified(if_none_match, found.etag):
        return unchanged(call.request, found.etag)
    return json_response(call.request, _resource(call, cluster_facet, found), headers={"ETag": found.etag})


async def listed(call: Call, past: HistoryService, cluster_facet: ClusterFacet, query: ListQuery, at: str) -> Response:
    """Answer with a page of a list at a moment."""
    page = await past.page(cluster_facet, query, formats.parse_revision_or_time(at, "at"), call.caller.deadline)
    call.charge(LimitClass.BULK, page.visited)
    body = {
        "items": [_resource(call, cluster_facet, item) for item in page.items],
        "nextPageToken": page.next_page_token,
        "skipped": page.skipped,
        "revision": str(page.revision),
    }
    return json_response(call.request, body)


def _or_now(text: str | None) -> int | datetime:
    return datetime.max.replace(tzinfo=UTC) if text is None else formats.parse_revision_or_time(text, "to")


def _resource(call: Call, cluster_facet: ClusterFacet, found: PastEntity) -> dict[str, Any]:
    content = {key: number(value) for key, value in found.declared.items()}
    names = {"entity": Entity.from_id(found.entity_id).as_dict()} if call.view == "full" else {}
    return {"id": found.entity_id, **names, cluster_facet.facet.member: content, "at": _moment(found)}


def _moment(found: PastEntity) -> dict[str, Any]:
    bounds = [None if each is None else str(each) for each in (found.low, found.high)]
    return {
        "revision": str(found.revision),
        "exact": found.exact,
        **({} if found.exact else {"run": bounds}),
        "notKept": list(found.not_kept),
    }


def _item(item: HistoryEntry) -> dict[str, Any]:
    intent = item.record.intent
    return {
        "changeId": str(intent.change_id),
        "kind": item.record.kind,
        "writes": item.record.writes,
        "revision": str(item.revision),
        "time": timestamp(item.time_ms),
        "principal": intent.principal,
        "onBehalfOf": intent.behalf_of,
        "requestId": intent.request_id,
        "reason": intent.reason,
        "ticket": intent.ticket,
        "reverts": reverts(intent),
        **({"moved": True} if item.moved else {}),
        "changes": [_key_change(change) for change in item.changes],
    }


def _key_change(change: ValueChange) -> dict[str, Any]:
    return {
        "key": change.key,
        "before": number(change.before),
        "after": number(change.after),
        **({"notKept": True} if change.not_kept else {}),
    }
