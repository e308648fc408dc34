"""Webhooks: subscriptions to the feed whose events are sent to URLs."""

from typing import Annotated, Any, Literal

from fastapi import Path
from pydantic import Field, StrictInt, StrictStr
from starlette.responses import Response

from confplane.api import formats
from confplane.api.dependencies import EMBEDDED, Call, CallDep, IfNoneMatch
from confplane.api.models import Absent, AnswerModel, Count, Page, RequestModel, Time, one_of
from confplane.api.responses import json_response, page_response, unchanged
from confplane.api.routing.operations import manage, read
from confplane.api.routing.preconditions import ConditionalHeadersDep, not_modified
from confplane.api.routing.routes import Routes
from confplane.api.services import WebhooksDep
from confplane.domain.entities import EntityTypeName
from confplane.domain.facets import FacetNameText
from confplane.domain.outbound_urls import LONGEST
from confplane.domain.texts import rfc3339
from confplane.services.access_admin.rules import LONGEST_NOTE
from confplane.services.limits import LimitClass
from confplane.services.ports.webhooks import KEPT_DELIVERIES, Subscription, WebhookDelivery, WebhookFormat
from confplane.services.webhooks.subscriptions import LONGEST_OVERLAP_S, NewWebhook, etag_of, subscription_view

_Facet = Annotated[FacetNameText | None, Field(description="Only this facet")]
_EntityType = Annotated[
    EntityTypeName | None,
    Field(description="Only entities of this type; pairs of a user are of the type client-id"),
]


class WebhookFilter(RequestModel):
    """The events that are sent, as the feed's parameters; what is left out is any."""

    facet: _Facet = None
    entity_type: _EntityType = None
    entity: Annotated[
        StrictStr | None,
        Field(description="Only this entity, by its id", json_schema_extra={"examples": ["user=alice"]}),
    ] = None
    user: StrictStr | None = Field(default=None, max_length=1024, description="Only this user and its client-ids")
    prefix: StrictStr | None = Field(
        default=None, max_length=1024, description="Only entities whose last name begins so"
    )
    key: StrictStr | None = Field(default=None, max_length=249, description="Only entities of which this key changed")
    principal: StrictStr | None = Field(default=None, max_length=1024, description="Only changes of this principal")
    requests: Annotated[
        Literal["include", "only"] | None,
        Field(description="Events of change requests as well, or no others. Left out: none of them"),
    ] = None


class WebhookBody(RequestModel):
    """The content of a webhook."""

    url: StrictStr | None = Field(
        default=None,
        max_length=LONGEST,
        description="An https URL. Its path, query and user info are secrets that no response shows. null keeps that of"
        " an existing webhook",
        examples=["https://hooks.example.com/confplane"],
    )
    format: Annotated[WebhookFormat, Field(strict=False), one_of(*WebhookFormat)] = WebhookFormat.CLOUDEVENTS
    filter: WebhookFilter = WebhookFilter()
    note: StrictStr | None = Field(default=None, max_length=LONGEST_NOTE)


class WebhookOwnerBody(RequestModel):
    """The new owner."""

    owner: StrictStr = Field(description="`User:name`", json_schema_extra={"pattern": formats.PRINCIPAL})


class WebhookRotationBody(RequestModel):
    """The terms of a new signing secret."""

    overlap_seconds: StrictInt = Field(
        ge=0, le=LONGEST_OVERLAP_S, description="Seconds for which requests are signed with the old secret as well"
    )


class WebhookFilterData(AnswerModel):
    """The events that are sent; null is any."""

    facet: str | None
    entity_type: str | None
    entity: str | None
    user: str | None
    prefix: str | None
    key: str | None
    principal: str | None
    requests: Literal["include", "only"] | None


class WebhookStatus(AnswerModel):
    """The state of the deliveries. The ETag does not depend on it."""

    state: Literal["active", "failing", "parked"] = Field(
        description="parked: nothing is sent until it is resumed; failing: the next event is tried again"
    )
    reason: str | None = Field(description="Of a parked webhook")
    failed_attempts: Count
    parked_at: Time | None
    failing_since: Time | None
    next_attempt_at: Time | None
    last_delivered_at: Time | None


class WebhookData(AnswerModel):
    """A webhook."""

    name: str
    cluster: str
    url: str = Field(description="Without path, query and user info", examples=["https://hooks.example.com/..."])
    format: Literal["cloudevents", "slack", "teams"]
    filter: WebhookFilterData
    note: str | None
    owner: str = Field(description="The principal whose grants choose the events")
    created_at: Time
    created_by: str
    status: WebhookStatus
    secret: str | Absent = Field(
        default=None, description="A new signing secret (Standard Webhooks). It is shown once, and stored sealed"
    )


class WebhookPage(Page[WebhookData]):
    """The webhooks by name."""


class WebhookDeliveryData(AnswerModel):
    """One request of a webhook."""

    event_id: str = Field(description="The id of the change, or of the event of a change request")
    event_type: Literal["change", "put-back", "request", "reset", "test"]
    attempt: Annotated[int, Field(ge=1)]
    time: Time
    duration_ms: Count
    status: int | None = Field(description="The HTTP status of the response; null without one")
    error: str | None = Field(description="null: the receiver took the event")


class WebhookDeliveryPage(Page[WebhookDeliveryData]):
    """The last deliveries, newest first."""

    items: list[WebhookDeliveryData] = Field(max_length=KEPT_DELIVERIES)


class WebhookTestResult(AnswerModel):
    """The result of a test."""

    delivery: WebhookDeliveryData | None = Field(description="null under `validateOnly`")


routes = Routes(tag="webhooks")

_CREATED = 201

WebhookName = Annotated[
    str,
    Path(
        alias="name",
        description="Lower-case letters, digits and hyphens",
        json_schema_extra={"pattern": formats.WEBHOOK},
        openapi_examples={EMBEDDED: {"value": "payments"}},
    ),
]


@routes.get(
    "/v1/clusters/{cluster}/webhooks",
    read("List webhooks by name", WebhookPage, limit=LimitClass.BULK, problems=(503,)),
)
async def list_webhooks(call: CallDep, webhooks: WebhooksDep) -> Response:
    """The webhooks on which the caller has DESCRIBE on `webhooks`."""
    found = await webhooks.list(call.cluster.name, call.access)
    return page_response(call.request, [subscription_view(each) for each in found], None)


@routes.get(
    "/v1/clusters/{cluster}/webhooks/{name}",
    read("One webhook", WebhookData, limit=LimitClass.BULK, tagged=True, problems=(503,)),
)
async def get_webhook(
    call: CallDep, webhooks: WebhooksDep, name: WebhookName, if_none_match: IfNoneMatch = None
) -> Response:
    """A webhook with its ETag, which is that of its content without `status`."""
    found = await webhooks.find(call.cluster.name, name, call.access)
    if not_modified(if_none_match, etag_of(found)):
        return unchanged(call.request, etag_of(found))
    return _shown(call, found)


@routes.put(
    "/v1/clusters/{cluster}/webhooks/{name}",
    manage(
        "Create or replace a webhook",
        {200: WebhookData, 201: WebhookData},
        tagged=True,
        problems=(409,),
    ),
)
async def put_webhook(
    call: CallDep, webhooks: WebhooksDep, name: WebhookName, conditions: ConditionalHeadersDep, body: WebhookBody
) -> Response:
    """201 for a new webhook, which sends the changes from now on; its owner is the caller.

    Needs ALTER on `webhooks`, and a credential without limits. `secret` is in this response alone.
    """
    given = body.filter.model_dump(by_alias=True, exclude_none=True)
    stored = await webhooks.put(
        call.cluster,
        name,
        NewWebhook(body.url, body.format, given, body.note),
        conditions.precondition(),
        call.caller,
        validate_only=call.validate_only,
    )
    return _shown(call, stored.subscription, stored.secret, 201 if stored.is_new and not call.validate_only else 200)


@routes.delete(
    "/v1/clusters/{cluster}/webhooks/{name}",
    manage("Remove a webhook", WebhookData, problems=(409,)),
)
async def delete_webhook(
    call: CallDep, webhooks: WebhooksDep, name: WebhookName, conditions: ConditionalHeadersDep
) -> Response:
    """The webhook as it was last."""
    found = await webhooks.remove(
        call.cluster.name, name, conditions.precondition(), call.caller, validate_only=call.validate_only
    )
    return json_response(call.request, subscription_view(found))


@routes.post(
    "/v1/clusters/{cluster}/webhooks/{name}:assign",
    manage("Hand a webhook over", WebhookData, tagged=True, problems=(409,)),
)
async def assign_webhook(call: CallDep, webhooks: WebhooksDep, name: WebhookName, body: WebhookOwnerBody) -> Response:
    """The webhook with its new owner, whose grants choose the events: the caller, or a user who sees no more."""
    found = await webhooks.assign(call.cluster.name, name, body.owner, call.caller, validate_only=call.validate_only)
    return _shown(call, found)


@routes.post(
    "/v1/clusters/{cluster}/webhooks/{name}:resume",
    manage("Resume a webhook", WebhookData, tagged=True, problems=(409,)),
)
async def resume_webhook(call: CallDep, webhooks: WebhooksDep, name: WebhookName) -> Response:
    """Continue a parked webhook with the first event that was not delivered, or try a failing one at once."""
    found = await webhooks.resume(call.cluster.name, name, call.caller, validate_only=call.validate_only)
    return _shown(call, found)


@routes.post(
    "/v1/clusters/{cluster}/webhooks/{name}:rotate",
    manage("Replace the signing secret of a webhook", WebhookData, tagged=True, problems=(409,)),
)
async def rotate_webhook_secret(
    call: CallDep, webhooks: WebhooksDep, name: WebhookName, body: WebhookRotationBody
) -> Response:
    """The webhook with the new `secret`, which is in this response alone."""
    stored = await webhooks.rotate(
        call.cluster.name, name, body.overlap_seconds, call.caller, validate_only=call.validate_only
    )
    return _shown(call, stored.subscription, stored.secret)


@routes.post(
    "/v1/clusters/{cluster}/webhooks/{name}:test",
    manage("Send a sample", WebhookTestResult, problems=(409,)),
)
async def test_webhook(call: CallDep, webhooks: WebhooksDep, name: WebhookName) -> Response:
    """Send an event of the type `test` now, and return the result. It moves nothing, and works on parked webhooks."""
    found = await webhooks.test(call.cluster.name, name, call.caller, validate_only=call.validate_only)
    return json_response(call.request, {"delivery": None if found is None else _delivery(found)})


@routes.get(
    "/v1/clusters/{cluster}/webhooks/{name}/deliveries",
    read("The last deliveries of a webhook", WebhookDeliveryPage, limit=LimitClass.BULK, problems=(503,)),
)
async def list_webhook_deliveries(call: CallDep, webhooks: WebhooksDep, name: WebhookName) -> Response:
    """The last 50 requests, newest first, each with its result."""
    found = await webhooks.deliveries(call.cluster.name, name, call.access)
    return page_response(call.request, [_delivery(each) for each in found], None)


def _shown(call: Call, found: Subscription, secret: str | None = None, status: int = 200) -> Response:
    view = subscription_view(found)
    if secret is not None:
        view["secret"] = secret
    headers = {"ETag": etag_of(found), **({} if secret is None else {"Cache-Control": "no-store"})}
    if status == _CREATED:
        headers["Location"] = call.request.scope.get("root_path", "") + call.request.scope["path"]
    return json_response(call.request, view, status=status, headers=headers)


def _delivery(found: WebhookDelivery) -> dict[str, Any]:
    return {
        "eventId": found.event_id,
        "eventType": found.event_type,
        "attempt": found.attempt,
        "time": rfc3339(found.at),
        "durationMs": found.duration_ms,
        "status": found.status,
        "error": found.error,
    }
