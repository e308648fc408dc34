"""Change requests: ``confplane requests`` over HTTP."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

from fastapi import Path, Query
from starlette.responses import Response

from confplane.api import formats
from confplane.api.change_requests import models, render
from confplane.api.dependencies import Call, CallDep, IfNoneMatch, PageSize, PageToken
from confplane.api.manifests.routes import document_of, options_of
from confplane.api.responses import json_response, page_response, unchanged
from confplane.api.routing.operations import manage, propose, read
from confplane.api.routing.preconditions import ConditionalHeadersDep, not_modified
from confplane.api.routing.routes import Routes
from confplane.api.services import ChangeRequestsDep
from confplane.domain import id_patterns
from confplane.domain.change_requests import RequestState
from confplane.domain.entities import Entity
from confplane.domain.errors import ConfplaneError, InvalidRequestError
from confplane.domain.facets import FacetName
from confplane.domain.ops import Op, OpType
from confplane.services.changes.edits import Edit, EditResult, Mode
from confplane.services.cluster_facet import ClusterFacet
from confplane.services.limits import LimitClass
from confplane.services.ports.change_requests import ChangeRequest
from confplane.services.requests.manifests import ProposedManifest
from confplane.services.requests.proposals import RequestTerms
from confplane.services.requests.reader import etag_of, visible_differences
from confplane.services.requests.service import ChangeRequestService

if TYPE_CHECKING:
    from confplane.services.requests.requested import Proposal

routes = Routes(tag="change-requests")

_CREATED = 201
_PROPOSED = (403, 404, 409, 413, 422, 503)
_OF_REQUEST = ("/applyAt", "/expiresAt", "/reason", "/edits")
"""The pointers of a body's own members."""
_REVIEWED = (403, 404, 409, 422, 503)

RequestId = Annotated[
    str, Path(alias="requestId", description="The change request", json_schema_extra={"pattern": formats.UUID})
]


@routes.get(
    "/v1/clusters/{cluster}/change-requests",
    read("List change requests", models.ChangeRequestPage, limit=LimitClass.BULK, problems=(503,)),
)
async def list_change_requests(
    call: CallDep,
    requests: ChangeRequestsDep,
    *,
    state: Annotated[RequestState | None, Query(description="Only requests in this state")] = None,
    entity: Annotated[
        str | None,
        Query(description="Only requests of this entity, by its id", json_schema_extra={"pattern": id_patterns.ANY_ID}),
    ] = None,
    page_size: PageSize = 100,
    page_token: PageToken = None,
) -> Response:
    """The requests of entities that the caller may describe, and of authors on whom it has DESCRIBE on
    `change-requests`, the newest first.
    """  # noqa: D205 - one sentence
    page = await requests.reader.page(
        call.cluster.name,
        call.access,
        state=state,
        before=formats.parse_page_token(page_token),
        size=page_size,
        entity_id=None if entity is None else Entity.from_id(entity, pointer="entity").id,
    )
    call.charge(LimitClass.BULK, len(page.requests))
    return page_response(call.request, [render.summary(each) for each in page.requests], page.cursor)


@routes.post(
    "/v1/clusters/{cluster}/change-requests",
    propose(
        "Propose a change",
        {201: models.ChangeRequestData, 200: models.ChangeRequestData},
        tagged=True,
        problems=_PROPOSED,
    ),
)
async def create_change_request(call: CallDep, requests: ChangeRequestsDep, body: models.NewChangeRequest) -> Response:
    """201 for a new request, 200 with `validateOnly`. Needs PROPOSE and DESCRIBE_CONFIGS on each entity.

    Edits are checked as a write of all of them in one transaction is, and a manifest is planned as `manifests:plan`
    does. Each password is stored as a keyed fingerprint, and needs ALTER_CONFIGS on its broker.
    """
    call.charge(LimitClass.WRITE, _size(body))
    terms = RequestTerms(
        formats.parse_moment(body.expires_at, "/expiresAt"), formats.parse_moment(body.apply_at, "/applyAt")
    )
    with _pointing_into(body):
        made = await requests.proposals.create(
            call.cluster,
            await _proposed(call, requests, body),
            terms,
            call.caller,
            draft=body.draft,
            validate_only=call.validate_only,
        )
    return await _shown(call, requests, made, 200 if call.validate_only else _CREATED)


@routes.get(
    "/v1/clusters/{cluster}/change-requests/{requestId}",
    read("One change request", models.ChangeRequestData, limit=LimitClass.BULK, tagged=True, problems=(404, 503)),
)
async def get_change_request(
    call: CallDep, requests: ChangeRequestsDep, request_id: RequestId, if_none_match: IfNoneMatch = None
) -> Response:
    """A request with its content, its events and its ETag, which comments do not change."""
    found = await requests.reader.find(call.cluster.name, _id(request_id), call.access)
    if not_modified(if_none_match, etag_of(found)):
        return unchanged(call.request, etag_of(found))
    return await _shown(call, requests, found)


@routes.post(
    "/v1/clusters/{cluster}/change-requests/{requestId}:revise",
    manage(
        "Replace the content of a change request, or decide it again",
        models.ChangeRequestData,
        tagged=True,
        problems=_PROPOSED,
    ),
)
async def revise_change_request(
    call: CallDep,
    requests: ChangeRequestsDep,
    request_id: RequestId,
    conditions: ConditionalHeadersDep,
    body: models.RevisedChangeRequest,
) -> Response:
    """Without a content, the same one is decided on the present state. All approvals are dropped.

    A draft is proposed, unless the body has `draft`. Times that the body names replace those of the request.

    Needs PROPOSE and DESCRIBE_CONFIGS on each entity of the new content, and to be an author, or PROPOSE on each entity
    of the content before, or ALTER on `change-requests`. The caller becomes an author.
    """
    call.charge(LimitClass.WRITE, _size(body))
    given = {"expires_at": (body.expires_at, "/expiresAt"), "apply_at": (body.apply_at, "/applyAt")}
    times = {name: formats.parse_moment(*given[name]) for name in given.keys() & body.model_fields_set}
    is_new = bool(body.edits) or body.revert is not None or body.manifest is not None
    with _pointing_into(body):
        revised = await requests.proposals.revise(
            call.cluster,
            _id(request_id),
            await _proposed(call, requests, body) if is_new else None,
            call.caller,
            conditions.precondition(),
            times=times,
            draft=body.draft,
            validate_only=call.validate_only,
        )
    return await _shown(call, requests, revised)


@routes.post(
    "/v1/clusters/{cluster}/change-requests/{requestId}:approve",
    manage("Approve a change request", models.ChangeRequestData, tagged=True, problems=_REVIEWED),
)
async def approve_change_request(
    call: CallDep, requests: ChangeRequestsDep, request_id: RequestId, body: models.RequestApproval
) -> Response:
    """Needs ALTER_CONFIGS on an entity of the request, and to be another person than its authors.

    409 if the request has another content than the digest says, or an entity was changed since it was decided.
    """
    approved = await requests.reviews.approve(
        call.cluster, _id(request_id), body.digest, call.caller, comment=body.comment, validate_only=call.validate_only
    )
    return await _shown(call, requests, approved)


@routes.post(
    "/v1/clusters/{cluster}/change-requests/{requestId}:reject",
    manage("Reject a change request", models.ChangeRequestData, tagged=True, problems=_REVIEWED),
)
async def reject_change_request(
    call: CallDep, requests: ChangeRequestsDep, request_id: RequestId, body: models.RequestComment
) -> Response:
    """For good. Needs ALTER_CONFIGS on an entity of the request, or ALTER on `change-requests`."""
    rejected = await requests.reviews.reject(
        call.cluster, _id(request_id), body.comment, call.caller, validate_only=call.validate_only
    )
    return await _shown(call, requests, rejected)


@routes.post(
    "/v1/clusters/{cluster}/change-requests/{requestId}:cancel",
    manage("Cancel a change request", models.ChangeRequestData, tagged=True, problems=_REVIEWED),
)
async def cancel_change_request(
    call: CallDep, requests: ChangeRequestsDep, request_id: RequestId, body: models.RequestComment
) -> Response:
    """For authors, and for callers with ALTER on `change-requests`."""
    cancelled = await requests.reviews.cancel(
        call.cluster, _id(request_id), body.comment, call.caller, validate_only=call.validate_only
    )
    return await _shown(call, requests, cancelled)


@routes.post(
    "/v1/clusters/{cluster}/change-requests/{requestId}:comment",
    manage("Comment on a change request", models.ChangeRequestData, tagged=True, problems=_REVIEWED),
)
async def comment_change_request(
    call: CallDep, requests: ChangeRequestsDep, request_id: RequestId, body: models.NewRequestComment
) -> Response:
    """Needs PROPOSE or ALTER_CONFIGS on an entity of the request, or ALTER on `change-requests`."""
    commented = await requests.reviews.comment(
        call.cluster, _id(request_id), body.comment, call.caller, validate_only=call.validate_only
    )
    return await _shown(call, requests, commented)


@routes.post(
    "/v1/clusters/{cluster}/change-requests/{requestId}:apply",
    manage(
        "Apply an approved change request, or continue to",
        models.ChangeRequestData,
        tagged=True,
        problems=(*_PROPOSED, 504),
    ),
)
async def apply_change_request(
    call: CallDep, requests: ChangeRequestsDep, request_id: RequestId, body: models.RequestApplicationValues
) -> Response:
    """Needs PROPOSE or ALTER_CONFIGS on each entity. Nothing is done to a request that is applied.

    Values are supplied by the author of the content, and by callers with ALTER_CONFIGS on their entities.

    The edits are written in one transaction, on the versions on which they were decided. 409 if an entity was changed
    since: the request is open again. A manifest is applied as a run of its plan; if a refusal ends the run, the request
    is `partly-applied`, and the same call continues.
    """
    supplied: dict[tuple[str, str], str | int | float | bool | None] = {
        (each.id, each.key): each.value for each in body.values
    }
    applied = await requests.apply(
        call.cluster, _id(request_id), supplied, call.caller, validate_only=call.validate_only
    )
    call.charge(LimitClass.WRITE, len(applied.entity_ids))
    return await _shown(call, requests, applied)


@routes.post(
    "/v1/clusters/{cluster}/change-requests/{requestId}:revert",
    propose(
        "Propose the revert of an applied change request",
        {201: models.ChangeRequestData, 200: models.ChangeRequestData},
        tagged=True,
        problems=_PROPOSED,
    ),
)
async def revert_change_request(
    call: CallDep, requests: ChangeRequestsDep, request_id: RequestId, body: models.RequestRevert
) -> Response:
    """The revert is a request of its own, which others approve: 201 with the new one, 200 with `validateOnly`.

    The applied one is `reverting` until the new one has ended, and then `reverted`, `reverted-partly` or `applied`
    again. Needs PROPOSE and DESCRIBE_CONFIGS on each entity.
    """
    made = await requests.reversals.revert(
        call.cluster,
        _id(request_id),
        RequestTerms(
            formats.parse_moment(body.expires_at, "/expiresAt"), formats.parse_moment(body.apply_at, "/applyAt")
        ),
        call.caller,
        partly=body.partly,
        validate_only=call.validate_only,
    )
    call.charge(LimitClass.WRITE, len(made.entity_ids))
    return await _shown(call, requests, made, 200 if call.validate_only else _CREATED)


def _id(text: str) -> UUID:
    return formats.parse_uuid(text, "requestId")


async def _shown(call: Call, requests: ChangeRequestService, request: ChangeRequest, status: int = 200) -> Response:
    is_trial = call.validate_only and request.version == 1
    events = () if is_trial else await requests.reader.visible_events(request, call.caller.access)
    headers = {"ETag": etag_of(request)}
    if status == _CREATED:
        scope = call.request.scope
        path, name, _ = scope["path"].rpartition("/change-requests")
        headers["Location"] = f"{scope.get('root_path', '')}{path}{name}/{request.id}"
    shown = replace(request, differences=visible_differences(call.caller.access, request))
    return json_response(call.request, render.whole(call.cluster, shown, events), status=status, headers=headers)


def _size(body: models.ChangeRequestEdits) -> int:
    return len(body.edits) if body.manifest is None else len(body.manifest.entities)


@contextmanager
def _pointing_into(body: models.ChangeRequestEdits) -> Iterator[None]:
    """Let the errors of a manifest point into the body that has it."""
    try:
        yield
    except ConfplaneError as error:
        for each in (error, *error.further):
            if body.manifest is not None and each.pointer is not None and each.pointer not in _OF_REQUEST:
                each.pointer = f"/manifest{each.pointer}"
        raise


async def _proposed(call: Call, requests: ChangeRequestService, body: models.ChangeRequestEdits) -> "Proposal":
    """Return the content of a body.

    Raises:
        InvalidRequestError: It has several forms or none, or names a facet of an entity more than once.
    """
    if [bool(body.edits), body.revert is not None, body.manifest is not None].count(True) != 1:
        raise InvalidRequestError("Give edits, revert with the id of a change, or a manifest", pointer="/edits")
    if body.manifest is not None:
        document = await document_of(call, body.manifest)
        return ProposedManifest(document, options_of(body.manifest), body.manifest.plan_id)
    if body.revert is not None:
        return await requests.reversals.reversal(call.cluster, formats.parse_uuid(body.revert, "/revert"), call.caller)
    entries: dict[str, dict[ClusterFacet, Edit | EditResult]] = {}
    for index, item in enumerate(body.edits):
        pointer = f"/edits/{index}"
        entity = Entity.from_id(item.id, pointer=f"{pointer}/id")
        ops = tuple(
            Op(op.key, OpType[op.op], op.value, f"{pointer}/ops/{place}/value") for place, op in enumerate(item.ops)
        )
        if not ops and Mode(item.mode) is not Mode.REPLACE:
            raise InvalidRequestError("ops is empty; only the mode replace takes none", pointer=f"{pointer}/ops")
        edit = Edit(entity, ops, Mode(item.mode), pointer=f"{pointer}/id")
        facets = entries.setdefault(entity.id, {})
        cluster_facet = call.cluster.facets[FacetName(item.facet)]
        if cluster_facet in facets:
            raise InvalidRequestError(f"{entity.id} is named more than once with {item.facet}", pointer=f"{pointer}/id")
        facets[cluster_facet] = edit
    return list(entries.values())
