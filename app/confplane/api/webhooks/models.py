"""The forms of webhooks."""

from typing import Annotated, Literal

from pydantic import Field, StrictInt, StrictStr

from confplane.api import patterns
from confplane.api.models import Absent, AnswerModel, Count, Page, RequestModel, Time, one_of
from confplane.domain.entities import EntityTypeName
from confplane.domain.facets import FacetNameText
from confplane.domain.outbound_urls import LONGEST
from confplane.services.access_admin.rules import LONGEST_NOTE
from confplane.services.ports.webhooks import KEPT_DELIVERIES, WebhookFormat
from confplane.services.webhooks.subscriptions import LONGEST_OVERLAP_S

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

    owner: StrictStr = Field(description="`User:name`", json_schema_extra={"pattern": patterns.PRINCIPAL})


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
