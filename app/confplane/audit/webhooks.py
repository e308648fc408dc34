"""Subscriptions of webhooks, their positions in the feed, and their last deliveries in Postgres.

Each statement may be sent again after a lost reply: its second run finds the work of the first. A change of a
subscription adds its row of history in the same statement, as those of tokens and grants do (``audit/access.py``).

The number of subscriptions is bounded by slots, whose numbers are unique for each cluster and for each owner: so no
two concurrent requests can both take the last one.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import orjson
from sqlalchemy import Text, Uuid, bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY, TIMESTAMP
from sqlalchemy.exc import IntegrityError
from typing_extensions import override

from confplane.audit.access import HISTORY, ON_CONFLICT, changes_json
from confplane.audit.batcher import Batcher
from confplane.audit.database import from_row
from confplane.domain.errors import AlreadyExistsError, ConcurrentChangeError, WebhookConflictError, WriteOutcome
from confplane.services.ports.webhooks import (
    KEPT_DELIVERIES,
    MOST_OF_CLUSTER,
    MOST_OF_OWNER,
    Subscription,
    WebhookDelivery,
    WebhookFormat,
    WebhookStore,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from sqlalchemy import Row

    from confplane.audit.database import Database
    from confplane.services.ports.access import AccessChange

_TRIES: Final = MOST_OF_CLUSTER + MOST_OF_OWNER
"""Attempts to take a slot. Each failed one means that another request took it, so after these no slot is left."""
_CONTENT: Final = (
    *("owner", "groups", "by_token", "format", "filter", "shown_url", "note", "parked_at", "parked_reason"),
)
_COLUMNS: Final = (
    "id, cluster, name, owner, groups, by_token, format, filter, shown_url, sealed, note, created_at, created_by,"
    " revision, position, parked_at, parked_reason, failing_since, attempts, next_attempt_at, last_delivered_at, EXISTS"
    " (SELECT FROM tokens WHERE principal = webhooks.owner AND revoked_at IS NULL AND expires_at > now())"
    " AS owner_has_token"
)
_GIVEN: Final = """
jsonb_to_record(CAST(:webhook AS jsonb)) AS row(
  id uuid, cluster text, name text, owner text, groups text[], by_token boolean, format text, filter jsonb,
  shown_url text, note text, created_at timestamptz, created_by text, position text, parked_at timestamptz,
  parked_reason text)
"""
_FREE_OF_OWNER: Final = f"""
(SELECT min(number) FROM generate_series(1, {MOST_OF_OWNER}) AS number
 WHERE NOT EXISTS (SELECT FROM webhooks AS other WHERE other.owner = row.owner AND other.owner_slot = number))
"""  # noqa: S608 - of constants, as all below
_CREATE: Final = text(f"""
WITH given AS (
  SELECT row.*, {_FREE_OF_OWNER} AS owner_slot, (
    SELECT min(number) FROM generate_series(1, {MOST_OF_CLUSTER}) AS number
    WHERE NOT EXISTS (SELECT FROM webhooks AS other WHERE other.cluster = row.cluster AND other.slot = number)
  ) AS slot
  FROM {_GIVEN}
), added AS (
  INSERT INTO webhooks (
    id, cluster, name, slot, owner, owner_slot, groups, by_token, format, filter, shown_url, sealed, note, created_at,
    created_by, change_id, position)
  SELECT
    id, cluster, name, slot, owner, owner_slot, groups, by_token, format, filter, shown_url, :sealed, note, created_at,
    created_by, :change_id, position
  FROM given WHERE slot IS NOT NULL AND owner_slot IS NOT NULL ON CONFLICT DO NOTHING RETURNING id
)
{HISTORY} WHERE EXISTS (SELECT FROM added) {ON_CONFLICT}
""").bindparams(bindparam("change_id", type_=Uuid))  # noqa: S608 - as above
_REPLACE: Final = text(f"""
WITH replaced AS (
  UPDATE webhooks SET
    owner_slot = CASE WHEN webhooks.owner = row.owner THEN webhooks.owner_slot ELSE {_FREE_OF_OWNER} END,
    {", ".join(f"{name} = row.{name}" for name in _CONTENT)},
    sealed = :sealed, failing_since = NULL, attempts = 0, next_attempt_at = NULL,
    change_id = :change_id, revision = webhooks.revision + 1
  FROM {_GIVEN} WHERE webhooks.id = row.id AND webhooks.revision = :revision RETURNING webhooks.id
)
{HISTORY} WHERE EXISTS (SELECT FROM replaced) {ON_CONFLICT}
""").bindparams(bindparam("change_id", type_=Uuid))  # noqa: S608 - as above
_REMOVE: Final = text(f"""
WITH removed AS (DELETE FROM webhooks WHERE id = :id AND revision = :revision RETURNING id), gone AS (
  DELETE FROM webhook_deliveries WHERE webhook_id IN (SELECT id FROM removed)
)
{HISTORY} WHERE EXISTS (SELECT FROM removed) {ON_CONFLICT}
""")  # noqa: S608 - as above
_NOTED: Final = text("SELECT FROM access_changes WHERE id = :change_id").bindparams(bindparam("change_id", type_=Uuid))
_PARK: Final = text(f"""
WITH parked AS (
  UPDATE webhooks SET parked_at = now(), parked_reason = :reason, change_id = :change_id, revision = revision + 1
  WHERE id = :id AND revision = :revision AND parked_at IS NULL RETURNING id
)
{HISTORY} WHERE EXISTS (SELECT FROM parked) {ON_CONFLICT}
""").bindparams(bindparam("change_id", type_=Uuid))  # noqa: S608 - as above
_FIND: Final = text(f"SELECT change_id, {_COLUMNS} FROM webhooks WHERE cluster = :cluster AND name = :name")  # noqa: S608 - as above
_LIST: Final = text(f"SELECT {_COLUMNS} FROM webhooks WHERE cluster = ANY(:clusters) ORDER BY name").bindparams(  # noqa: S608 - as above
    bindparam("clusters", type_=ARRAY(Text))
)
_COUNTS: Final = text("""
SELECT count(*) FILTER (WHERE cluster = :cluster) AS of_cluster, count(*) FILTER (WHERE owner = :owner) AS of_owner
FROM webhooks WHERE cluster = :cluster OR owner = :owner
""")
_ADD_DELIVERY: Final = """
INSERT INTO webhook_deliveries (webhook_id, event_id, event_type, attempt, at, duration_ms, status, error)
SELECT
  found.id, :event_id, :event_type, :attempt, :at, :duration_ms, CAST(:status AS integer), CAST(:error AS text)
FROM found
"""
# It does not see the row that the same statement adds.
_KEEP: Final = f"""
DELETE FROM webhook_deliveries WHERE webhook_id = :id AND id <= (
  SELECT id FROM webhook_deliveries WHERE webhook_id = :id ORDER BY id DESC OFFSET {KEPT_DELIVERIES - 1} LIMIT 1
)
"""  # noqa: S608 - as above
_TIME: Final = TIMESTAMP(timezone=True)
_RECORD: Final = text(f"""
WITH found AS (
  UPDATE webhooks SET
    position = :position,
    failing_since = CASE WHEN :delivered THEN NULL ELSE coalesce(failing_since, :at) END,
    attempts = CASE WHEN :delivered THEN 0 ELSE :attempt END,
    next_attempt_at = :next_attempt_at,
    last_delivered_at = CASE WHEN :delivered THEN :at ELSE last_delivered_at END
  WHERE id = :id AND position = :expected RETURNING id
), added AS ({_ADD_DELIVERY})
{_KEEP}
""").bindparams(bindparam("id", type_=Uuid), bindparam("at", type_=_TIME), bindparam("next_attempt_at", type_=_TIME))  # noqa: S608 - as above
_RECORD_TEST: Final = text(f"""
WITH found AS (SELECT id FROM webhooks WHERE id = :id), added AS ({_ADD_DELIVERY})
{_KEEP}
""").bindparams(bindparam("id", type_=Uuid), bindparam("at", type_=_TIME))  # noqa: S608 - as above
_MOVE: Final = text("UPDATE webhooks SET position = :position WHERE id = :id AND position = :expected").bindparams(
    bindparam("id", type_=Uuid)
)
_IS_AT: Final = text("SELECT FROM webhooks WHERE id = :id AND position = :position").bindparams(
    bindparam("id", type_=Uuid)
)
_DELIVERIES: Final = text("""
SELECT event_id, event_type, attempt, at, duration_ms, status, error FROM webhook_deliveries
WHERE webhook_id = :id ORDER BY id DESC LIMIT :most
""").bindparams(bindparam("id", type_=Uuid))


class PostgresWebhooks(WebhookStore):
    """Webhooks and their deliveries, in Postgres."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lists = Batcher(self._list)

    @override
    async def find(self, cluster: str, name: str) -> Subscription | None:
        row = await self._database.row(_FIND, cluster=cluster, name=name)
        return None if row is None else _subscription(row)

    async def _list(self, clusters: Sequence[str]) -> Sequence[list[Subscription]]:
        found = [_subscription(row) for row in await self._database.rows(_LIST, clusters=list(clusters))]
        return [[each for each in found if each.cluster == cluster] for cluster in clusters]

    @override
    async def list(self, cluster: str) -> list[Subscription]:
        return await self._lists.request(cluster)

    @override
    async def create(self, subscription: Subscription, change: AccessChange) -> Subscription:
        given = {
            "webhook": _json(subscription),
            "sealed": subscription.sealed,
            "change_id": change.id,
            "changes": changes_json([change]),
        }
        for _ in range(_TRIES):
            await self._database.execute(_CREATE, **given)
            row = await self._database.row(_FIND, cluster=subscription.cluster, name=subscription.name)
            if row is not None and row.change_id == change.id:
                return _subscription(row)
            if row is not None:
                raise AlreadyExistsError(
                    f"The cluster has a webhook {subscription.name} already", outcome=WriteOutcome.NOT_APPLIED
                )
            await self._check_counts(subscription)
        raise _changing(subscription)

    @override
    async def replace(self, subscription: Subscription, change: AccessChange) -> Subscription | None:
        given = {
            "webhook": _json(subscription),
            "sealed": subscription.sealed,
            "revision": subscription.revision,
            "change_id": change.id,
            "changes": changes_json([change]),
        }
        for _ in range(_TRIES):
            try:
                await self._database.execute(_REPLACE, **given)
            except IntegrityError:  # no slot of the new owner is free, or a concurrent request took it
                await self._check_counts(subscription)
                continue
            row = await self._database.row(_FIND, cluster=subscription.cluster, name=subscription.name)
            return None if row is None or row.change_id != change.id else _subscription(row)
        raise _changing(subscription)

    @override
    async def remove(self, subscription: Subscription, change: AccessChange) -> bool:
        given = {"id": subscription.id, "revision": subscription.revision, "changes": changes_json([change])}
        await self._database.execute(_REMOVE, **given)
        return await self._database.row(_NOTED, change_id=change.id) is not None

    @override
    async def park(self, subscription: Subscription, reason: str, change: AccessChange) -> bool:
        await self._database.execute(
            _PARK,
            id=subscription.id,
            revision=subscription.revision,
            reason=reason,
            change_id=change.id,
            changes=changes_json([change]),
        )
        return await self._database.row(_NOTED, change_id=change.id) is not None

    @override
    async def record(
        self,
        subscription: Subscription,
        delivery: WebhookDelivery,
        *,
        position: str | None = None,
        next_attempt_at: datetime | None = None,
    ) -> bool:
        position = subscription.position if position is None else position
        await self._database.execute(
            _RECORD,
            id=subscription.id,
            expected=subscription.position,
            position=position,
            delivered=delivery.delivered,
            next_attempt_at=next_attempt_at,
            **asdict(delivery),
        )
        return await self._is_at(subscription.id, position)

    @override
    async def record_test(self, subscription_id: UUID, delivery: WebhookDelivery) -> None:
        await self._database.execute(_RECORD_TEST, id=subscription_id, **asdict(delivery))

    @override
    async def move(self, subscription: Subscription, position: str) -> bool:
        await self._database.execute(_MOVE, id=subscription.id, expected=subscription.position, position=position)
        return await self._is_at(subscription.id, position)

    @override
    async def deliveries(self, subscription_id: UUID) -> Sequence[WebhookDelivery]:
        rows = await self._database.rows(_DELIVERIES, id=subscription_id, most=KEPT_DELIVERIES)
        return [from_row(WebhookDelivery, row) for row in rows]

    async def _is_at(self, subscription_id: UUID, position: str) -> bool:
        return await self._database.row(_IS_AT, id=subscription_id, position=position) is not None

    async def _check_counts(self, subscription: Subscription) -> None:
        row = await self._database.row(_COUNTS, cluster=subscription.cluster, owner=subscription.owner)
        if row is not None and row.of_owner >= MOST_OF_OWNER:
            raise WebhookConflictError(
                f"{subscription.owner} owns {MOST_OF_OWNER} webhooks, and may own no more. Remove one of them first",
                outcome=WriteOutcome.NOT_APPLIED,
            )
        if row is not None and row.of_cluster >= MOST_OF_CLUSTER:
            raise WebhookConflictError(
                f"The cluster has {MOST_OF_CLUSTER} webhooks, and may have no more. Remove one of them first",
                outcome=WriteOutcome.NOT_APPLIED,
            )


def _changing(subscription: Subscription) -> ConcurrentChangeError:
    return ConcurrentChangeError(
        f"Other writers kept changing webhooks of {subscription.owner}; nothing was applied, send the request again",
        outcome=WriteOutcome.NOT_APPLIED,
    )


def _json(subscription: Subscription) -> str:
    names = ("id", "cluster", "name", "created_at", "created_by", "position", *_CONTENT)
    content = {name: getattr(subscription, name) for name in names}
    return orjson.dumps(
        {**content, "groups": sorted(subscription.groups), "filter": dict(subscription.filter)}
    ).decode()


def _subscription(row: Row[Any]) -> Subscription:
    return from_row(
        Subscription,
        row,
        groups=frozenset(row.groups),
        format=WebhookFormat(row.format),
        sealed=bytes(row.sealed),
    )
