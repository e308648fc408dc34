"""Webhooks: subscriptions to the feed whose events are sent to URLs."""

from typing import Annotated, Any

from fastapi import Path
from starlette.responses import Response

from confplane.api import patterns
from confplane.api.dependencies import EMBEDDED, Call, CallDep, IfNoneMatch
from confplane.api.responses import json_response, page_response, unchanged
from confplane.api.routing.operations import manage, read
from confplane.api.routing.preconditions import ConditionalHeadersDep, not_modified
from confplane.api.routing.routes import Routes
from confplane.api.services import WebhooksDep
from confplane.api.webhooks import models
from confplane.domain.texts import rfc3339
from confplane.services.limits import LimitClass
from confplane.services.ports.webhooks import Subscription, WebhookDelivery
from confplane.services.webhooks.subscriptions import NewWebhook, etag_of, subscription_view

routes = Routes(tag="webhooks")

_CREATED = 201

WebhookName = Annotated[
    str,
    Path(
        alias="name",
        description="Lower-case letters, digits and hyphens",
        json_schema_extra={"pattern": patterns.WEBHOOK},
        openapi_examples={EMBEDDED: {"value": "payments"}},
    ),
]


@routes.get(
    "/v1/clusters/{cluster}/webhooks",
    read("List webhooks by name", models.WebhookPage, limit=LimitClass.BULK, problems=(403, 503)),
)
async def list_webhooks(call: CallDep, webhooks: WebhooksDep) -> Response:
    """The webhooks on which the caller has DESCRIBE on `webhooks`."""
    found = await webhooks.list(call.cluster.name, call.access)
    return page_response(call.request, [subscription_view(each) for each in found], None)


@routes.get(
    "/v1/clusters/{cluster}/webhooks/{name}",
    read("One webhook", models.WebhookData, limit=LimitClass.BULK, tagged=True, problems=(403, 404, 503)),
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
        {200: models.WebhookData, 201: models.WebhookData},
        tagged=True,
        problems=(403, 404, 409, 503),
    ),
)
async def put_webhook(
    call: CallDep, webhooks: WebhooksDep, name: WebhookName, conditions: ConditionalHeadersDep, body: models.WebhookBody
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
    manage("Remove a webhook", models.WebhookData, problems=(403, 404, 409, 503)),
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
    manage("Hand a webhook over", models.WebhookData, tagged=True, problems=(403, 404, 409, 503)),
)
async def assign_webhook(
    call: CallDep, webhooks: WebhooksDep, name: WebhookName, body: models.WebhookOwnerBody
) -> Response:
    """The webhook with its new owner, whose grants choose the events: the caller, or a user who sees no more."""
    found = await webhooks.assign(call.cluster.name, name, body.owner, call.caller, validate_only=call.validate_only)
    return _shown(call, found)


@routes.post(
    "/v1/clusters/{cluster}/webhooks/{name}:resume",
    manage("Resume a webhook", models.WebhookData, tagged=True, problems=(403, 404, 409, 503)),
)
async def resume_webhook(call: CallDep, webhooks: WebhooksDep, name: WebhookName) -> Response:
    """Continue a parked webhook with the first event that was not delivered, or try a failing one at once."""
    found = await webhooks.resume(call.cluster.name, name, call.caller, validate_only=call.validate_only)
    return _shown(call, found)


@routes.post(
    "/v1/clusters/{cluster}/webhooks/{name}:rotate",
    manage("Replace the signing secret of a webhook", models.WebhookData, tagged=True, problems=(403, 404, 409, 503)),
)
async def rotate_webhook_secret(
    call: CallDep, webhooks: WebhooksDep, name: WebhookName, body: models.WebhookRotationBody
) -> Response:
    """The webhook with the new `secret`, which is in this response alone."""
    stored = await webhooks.rotate(
        call.cluster.name, name, body.overlap_seconds, call.caller, validate_only=call.validate_only
    )
    return _shown(call, stored.subscription, stored.secret)


@routes.post(
    "/v1/clusters/{cluster}/webhooks/{name}:test",
    manage("Send a sample", models.WebhookTestResult, problems=(403, 404, 409, 503)),
)
async def test_webhook(call: CallDep, webhooks: WebhooksDep, name: WebhookName) -> Response:
    """Send an event of the type `test` now, and return the result. It moves nothing, and works on parked webhooks."""
    found = await webhooks.test(call.cluster.name, name, call.caller, validate_only=call.validate_only)
    return json_response(call.request, {"delivery": None if found is None else _delivery(found)})


@routes.get(
    "/v1/clusters/{cluster}/webhooks/{name}/deliveries",
    read(
        "The last deliveries of a webhook", models.WebhookDeliveryPage, limit=LimitClass.BULK, problems=(403, 404, 503)
    ),
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
