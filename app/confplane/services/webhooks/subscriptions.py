"""Subscriptions: created, replaced, listed, tested, handed over, resumed and removed."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from uuid_utils.compat import uuid7

from confplane.domain.access.identities import ADMIN, Authentication
from confplane.domain.access.operations import Operation, ResourceType
from confplane.domain.access.ranges import spell
from confplane.domain.entities import Entity, EntityType
from confplane.domain.errors import (
    ConcurrentChangeError,
    ForbiddenError,
    InvalidRequestError,
    NotFoundError,
    WebhookConflictError,
    WriteOutcome,
)
from confplane.domain.facets import FacetName
from confplane.domain.texts import rfc3339, storable
from confplane.services.access_admin import rules
from confplane.services.access_admin.history import change_of
from confplane.services.feed.events import FeedFilter, RequestSelection
from confplane.services.feed.positions import encode
from confplane.services.ports.webhooks import Subscription, WebhookFormat
from confplane.services.reads.trail import visible
from confplane.services.webhooks.deliverer import UnsealableError
from confplane.services.webhooks.formats import event_of
from confplane.services.webhooks.owners import check_creator
from confplane.services.webhooks.secrets import WebhookSecrets, new_secret, seal, unseal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from confplane.domain.etags import Precondition
    from confplane.domain.outbound_urls import UrlGuard
    from confplane.services.access import Access
    from confplane.services.changes.callers import Caller
    from confplane.services.clusters import Cluster
    from confplane.services.feed.hub import FeedHub
    from confplane.services.ports.webhooks import WebhookDelivery, WebhookSealer, WebhookStore
    from confplane.services.webhooks.deliverer import WebhookDeliverer
    from confplane.services.webhooks.owners import WebhookOwners

LONGEST_OVERLAP_S: Final = 7 * 86_400
"""Seconds for which a replaced signing secret may be valid."""
FILTERS: Final = ("facet", "entityType", "entity", "user", "prefix", "key", "principal", "requests")
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_TRIES: Final = 5
_PATIENCE_S: Final = 5.0
"""Seconds for which a test waits for the requests of other webhooks."""
_OFF: Final = "Webhooks are off on this service: the setting webhooks.key_file is missing (docs/webhooks.md)"


@dataclass(frozen=True, slots=True)
class NewWebhook:
    """The content of a subscription as it is asked for."""

    url: str | None = field(repr=False)
    """None to keep the URL of an existing one."""
    format: WebhookFormat
    filter: Mapping[str, str]
    note: str | None


@dataclass(frozen=True, slots=True)
class StoredWebhook:
    """A subscription after a write."""

    subscription: Subscription
    secret: str | None = field(default=None, repr=False)
    """A new signing secret, which is shown once."""
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class WebhookParts:
    """The parts that exist where webhooks are on."""

    guard: UrlGuard
    sealer: WebhookSealer
    deliverer: WebhookDeliverer


class WebhookService:
    """Manages subscriptions.

    Every coroutine raises ``UnavailableError`` if Postgres is unavailable.

    Args:
        store: The tables.
        owners: The rights of owners.
        feeds: The feeds, for the position of a new subscription.
        groups_of: Returns the groups of a principal's valid tokens.
        parts: None where webhooks are off.
        now: The time.
    """

    def __init__(
        self,
        store: WebhookStore,
        owners: WebhookOwners,
        feeds: FeedHub,
        groups_of: Callable[[str], frozenset[str]],
        parts: WebhookParts | None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._store = store
        self._owners = owners
        self._feeds = feeds
        self._groups_of = groups_of
        self._parts = parts
        self._now = now

    async def list(self, cluster: str, access: Access) -> list[Subscription]:
        """Return the subscriptions that a caller may see, by name."""
        found = await self._store.list(cluster)
        return [each for each in found if access.allows(cluster, Operation.DESCRIBE, _spelled(each.name))]

    async def find(self, cluster: str, name: str, access: Access) -> Subscription:
        """Return a subscription.

        Raises:
            ForbiddenError: The caller lacks DESCRIBE on it, whether it exists or not.
            NotFoundError: It does not exist.
        """
        _check_name(name)
        access.require(cluster, Operation.DESCRIBE, _spelled(name), pointer="name")
        return await self._found(cluster, name)

    async def put(
        self,
        cluster: Cluster,
        name: str,
        wanted: NewWebhook,
        precondition: Precondition,
        caller: Caller,
        *,
        validate_only: bool = False,
    ) -> StoredWebhook:
        """Create a subscription to the changes from now on, or replace the content of one.

        Raises:
            InvalidRequestError: A part of the content is not valid.
            ForbiddenError: The caller lacks ALTER on it, sees less than the owner of an existing one, or can't own one
                and supplies a URL.
            PreconditionFailedError: It has another ETag.
            WebhookConflictError: There are too many.
            NotFoundError: Webhooks are off.
            UnavailableError: A store is unavailable.
        """
        _check_name(name)
        caller.access.require(cluster.name, Operation.ALTER, _spelled(name), pointer="name")
        parts = self._on()
        _check(wanted)
        for _ in range(_TRIES):
            old = await self._store.find(cluster.name, name)
            precondition.check(None if old is None else etag_of(old))
            if old is None:
                return await self._create(cluster, name, wanted, caller, parts, validate_only=validate_only)
            made, secret = self._replacement(old, wanted, parts)
            if made == old:
                return StoredWebhook(old)
            # The URL gets what the owner may see, also after the end of the caller's credential.
            self._check_sight(old, caller.access)
            if made.sealed != old.sealed:
                check_creator(caller.access)
            found = await self._replace(old, made, "webhook-replaced", caller, validate_only=validate_only)
            if found is not None:
                return StoredWebhook(found, None if validate_only else secret)
        raise _changing(name)

    async def remove(
        self, cluster: str, name: str, precondition: Precondition, caller: Caller, *, validate_only: bool = False
    ) -> Subscription:
        """Remove a subscription, and return its last content.

        Raises:
            ForbiddenError: The caller lacks ALTER on it.
            NotFoundError: It does not exist.
            PreconditionFailedError: It has another ETag.
        """
        for _ in range(_TRIES):
            old = await self._alterable(cluster, name, caller)
            precondition.check(etag_of(old))
            if validate_only:
                return old
            change = change_of(caller, "webhook-removed", subject_of(old), before=content_view(old))
            if await self._store.remove(old, change):
                return old
        raise _changing(name)

    async def assign(
        self, cluster: str, name: str, owner: str, caller: Caller, *, validate_only: bool = False
    ) -> Subscription:
        """Hand a subscription over to another owner: the caller, or one who sees no more than the caller.

        Raises:
            InvalidRequestError: The owner is not a user.
            ForbiddenError: The caller lacks ALTER on it, can't own one, or sees less than the new owner.
            NotFoundError: It does not exist, or webhooks are off.
            WebhookConflictError: The new owner has no rights, or owns too many.
        """
        self._on()
        if owner != ADMIN:
            rules.check_holder(owner, "/owner")
        check_creator(caller.access)
        for _ in range(_TRIES):
            old = await self._alterable(cluster, name, caller)
            made = replace(old, **self._ownership(owner, caller), owner_has_token=True)
            self._check_owner(made, caller.access)
            if made == replace(old, owner_has_token=True):
                return old
            found = await self._replace(old, made, "webhook-assigned", caller, validate_only=validate_only)
            if found is not None:
                return found
        raise _changing(name)

    async def resume(self, cluster: str, name: str, caller: Caller, *, validate_only: bool = False) -> Subscription:
        """Continue a parked subscription with the first event that was not delivered; retry a failing one at once.

        Raises:
            ForbiddenError: The caller lacks ALTER on it.
            NotFoundError: It does not exist, or webhooks are off.
            WebhookConflictError: Its owner has lost its rights.
        """
        self._on()
        for _ in range(_TRIES):
            old = await self._alterable(cluster, name, caller)
            loss = self._owners.loss(old)
            if loss is not None:
                raise WebhookConflictError(
                    f"The webhook {name} can't be resumed: {loss}. Hand it over with :assign",
                    outcome=WriteOutcome.NOT_APPLIED,
                )
            if old.parked_at is None and old.failing_since is None:
                return old
            made = replace(old, parked_at=None, parked_reason=None)
            found = await self._replace(old, made, "webhook-resumed", caller, validate_only=validate_only)
            if found is not None:
                return found
        raise _changing(name)

    async def rotate(
        self, cluster: str, name: str, overlap_s: int, caller: Caller, *, validate_only: bool = False
    ) -> StoredWebhook:
        """Replace the signing secret; requests are signed with the old one as well until the overlap ends.

        Raises:
            InvalidRequestError: The overlap is not valid, or the format has no signatures.
            ForbiddenError: The caller lacks ALTER on it, or can't own one: the secret outlasts its credential.
            NotFoundError: It does not exist, or webhooks are off.
        """
        parts = self._on()
        check_creator(caller.access)
        if not 0 <= overlap_s <= LONGEST_OVERLAP_S:
            raise InvalidRequestError(
                f"overlapSeconds has to be 0 to {LONGEST_OVERLAP_S} (7 days)", pointer="/overlapSeconds"
            )
        for _ in range(_TRIES):
            old = await self._alterable(cluster, name, caller)
            if old.format is not WebhookFormat.CLOUDEVENTS:
                raise InvalidRequestError(f"Requests of the format {old.format} have no signatures", pointer="name")
            now = self._now()
            known = unseal(parts.sealer, old.id, old.sealed)
            if known is None:
                raise _unsealable(name)
            secrets = known.rotated(now, now + timedelta(seconds=overlap_s))
            made = replace(old, sealed=seal(parts.sealer, old.id, secrets))
            found = await self._replace(old, made, "webhook-secret-rotated", caller, validate_only=validate_only)
            if found is not None:
                return StoredWebhook(found, None if validate_only else secrets.signing[0].text)
        raise _changing(name)

    async def test(
        self, cluster: str, name: str, caller: Caller, *, validate_only: bool = False
    ) -> WebhookDelivery | None:
        """Send a sample, and return the result; it moves nothing. None under ``validate_only``.

        Raises:
            ForbiddenError: The caller lacks ALTER on it.
            NotFoundError: It does not exist, or webhooks are off.
            WebhookConflictError: Its secrets were sealed under another key.
            UnavailableError: Postgres is unavailable, or no place for a request is free in time.
        """
        parts = self._on()
        subscription = await self._alterable(cluster, name, caller)
        if validate_only:
            return None
        try:
            event = event_of("test", self._now())
            delivery = await parts.deliverer.send(subscription, lambda: event, 1, patience_s=_PATIENCE_S)
        except UnsealableError:
            raise _unsealable(name) from None
        if delivery is not None:
            await self._store.record_test(subscription.id, delivery)
        return delivery

    async def deliveries(self, cluster: str, name: str, access: Access) -> Sequence[WebhookDelivery]:
        """Return the last deliveries, newest first.

        Raises:
            ForbiddenError: The caller lacks DESCRIBE on it.
            NotFoundError: It does not exist.
        """
        return await self._store.deliveries((await self.find(cluster, name, access)).id)

    def _on(self) -> WebhookParts:
        if self._parts is None:
            raise NotFoundError(_OFF)
        return self._parts

    async def _found(self, cluster: str, name: str) -> Subscription:
        found = await self._store.find(cluster, name)
        if found is None:
            raise NotFoundError(f"Cluster {cluster} has no webhook {name!a}")
        return found

    async def _alterable(self, cluster: str, name: str, caller: Caller) -> Subscription:
        _check_name(name)
        caller.access.require(cluster, Operation.ALTER, _spelled(name), pointer="name")
        return await self._found(cluster, name)

    async def _create(
        self,
        cluster: Cluster,
        name: str,
        wanted: NewWebhook,
        caller: Caller,
        parts: WebhookParts,
        *,
        validate_only: bool,
    ) -> StoredWebhook:
        check_creator(caller.access)
        if wanted.url is None:
            raise InvalidRequestError("A new webhook needs its url", pointer="/url")
        url = parts.guard.parse(wanted.url, "/url")
        secret = new_secret() if wanted.format is WebhookFormat.CLOUDEVENTS else None
        new_id = uuid7()
        secrets = WebhookSecrets(wanted.url, () if secret is None else (secret,))
        made = Subscription(
            id=new_id,
            cluster=cluster.name,
            name=name,
            **self._ownership(caller.principal, caller),
            format=wanted.format,
            filter=dict(wanted.filter),
            shown_url=url.shown,
            sealed=seal(parts.sealer, new_id, secrets),
            note=wanted.note,
            created_at=self._now(),
            created_by=caller.principal,
        )
        self._check_owner(made, caller.access)
        if validate_only:
            return StoredWebhook(made, is_new=True)
        made = replace(made, position=await self._position(cluster, feed_filter(made.filter), caller))
        change = change_of(caller, "webhook-created", subject_of(made), after=content_view(made))
        found = await self._store.create(made, change)
        return StoredWebhook(found, None if secret is None else secret.text, is_new=True)

    async def _position(self, cluster: Cluster, wanted: FeedFilter, caller: Caller) -> str:
        consumer = await self._feeds.open(cluster, caller.access, wanted, None, caller.deadline)
        try:
            return encode(cluster.name, consumer.resting_position())
        finally:
            consumer.close()

    def _replacement(
        self, old: Subscription, wanted: NewWebhook, parts: WebhookParts
    ) -> tuple[Subscription, str | None]:
        """Return a replaced subscription, and a new signing secret if it had none and needs one."""
        known = unseal(parts.sealer, old.id, old.sealed)
        if wanted.url is not None:
            secrets = WebhookSecrets(wanted.url) if known is None else replace(known, url=wanted.url)
        elif known is not None:
            secrets = known
        else:
            raise _unsealable(old.name)
        secret = None
        if wanted.format is WebhookFormat.CLOUDEVENTS and not secrets.signing:
            secret = new_secret()
            secrets = replace(secrets, signing=(secret,))
        made = replace(
            old,
            format=wanted.format,
            filter=dict(wanted.filter),
            shown_url=parts.guard.parse(secrets.url, "/url").shown,
            note=wanted.note,
        )
        if secrets != known:
            made = replace(made, sealed=seal(parts.sealer, old.id, secrets))
        return made, None if secret is None else secret.text

    def _ownership(self, owner: str, caller: Caller) -> dict[str, Any]:
        identity = caller.access.identity
        if owner == identity.principal:
            by_token, groups = identity.kind is Authentication.TOKEN, identity.groups | identity.denying_groups
        else:
            by_token, groups = owner != ADMIN, self._groups_of(owner)
        return {"owner": owner, "by_token": by_token, "groups": groups}

    def _check_owner(self, made: Subscription, access: Access) -> None:
        """Refuse an owner without rights, and one who sees what the caller does not."""
        loss = self._owners.loss(made)
        if loss is not None:
            raise WebhookConflictError(
                f"The webhook {made.name} would be parked at once: {loss}. Grants of groups do not count",
                outcome=WriteOutcome.NOT_APPLIED,
            )
        self._check_sight(made, access)

    def _check_sight(self, made: Subscription, access: Access) -> None:
        theirs, own = self._owners.visible(made), visible(access, made.cluster)
        sees_less = own is not None and (theirs is None or not theirs <= own)
        if "requests" in made.filter and not sees_less:
            described = access.allowed(made.cluster, Operation.DESCRIBE_CONFIGS)
            sees_less = not self._owners.described(made) <= described
        if sees_less:
            raise ForbiddenError(
                f"The webhook's owner {made.owner} may see configs that {access.identity.principal} may not. Take the"
                f" webhook over first, or ask {made.owner} for the change"
            )

    async def _replace(
        self, old: Subscription, made: Subscription, kind: str, caller: Caller, *, validate_only: bool
    ) -> Subscription | None:
        if validate_only:
            return made
        change = change_of(caller, kind, subject_of(old), before=content_view(old), after=content_view(made))
        return await self._store.replace(made, change)


def feed_filter(given: Mapping[str, str]) -> FeedFilter:
    """Return the filter of a subscription in the feed's form."""
    facet, entity_type, requests = (given.get(name) for name in ("facet", "entityType", "requests"))
    return FeedFilter(
        None if facet is None else FacetName(facet),
        None if entity_type is None else EntityType(entity_type),
        given.get("entity"),
        given.get("user"),
        given.get("prefix"),
        given.get("key"),
        given.get("principal"),
        None if requests is None else RequestSelection(requests),
    )


def content_view(subscription: Subscription) -> dict[str, Any]:
    """Return the content of a subscription, without secrets and without the state of its deliveries."""
    return {
        "name": subscription.name,
        "url": subscription.shown_url,
        "format": subscription.format.value,
        "filter": {name: subscription.filter.get(name) for name in FILTERS},
        "note": subscription.note,
        "owner": subscription.owner,
    }


def subscription_view(subscription: Subscription) -> dict[str, Any]:
    """Return a subscription with the state of its deliveries."""
    parked, failing = subscription.parked_at, subscription.failing_since
    times = {
        "parkedAt": parked,
        "failingSince": failing,
        "nextAttemptAt": subscription.next_attempt_at if parked is None else None,
        "lastDeliveredAt": subscription.last_delivered_at,
    }
    return {
        **content_view(subscription),
        "cluster": subscription.cluster,
        "createdAt": rfc3339(subscription.created_at),
        "createdBy": subscription.created_by,
        "status": {
            "state": "parked" if parked is not None else "failing" if failing is not None else "active",
            "reason": subscription.parked_reason,
            "failedAttempts": subscription.attempts,
            **{name: None if at is None else rfc3339(at) for name, at in times.items()},
        },
    }


def etag_of(subscription: Subscription) -> str:
    """Return the ETag of a subscription's content, quotes included."""
    return f'"{subscription.id.hex[-12:]}-{subscription.revision}"'


def subject_of(subscription: Subscription) -> str:
    """Return the subject of a subscription's rows of history."""
    return f"webhooks/{subscription.cluster}/{subscription.name}"


def _check_name(name: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise InvalidRequestError(
            "The name of a webhook has 1 to 63 lower-case letters, digits and hyphens, and begins with no hyphen",
            pointer="name",
        )


def _check(wanted: NewWebhook) -> None:
    rules.check_text(wanted.note, "note", "/note")
    for member, value in wanted.filter.items():
        if not value or not storable(value):
            raise InvalidRequestError(
                f"filter.{member} is empty, or has a NUL or a lone surrogate. Leave it out for any",
                pointer=f"/filter/{member}",
            )
    entity = wanted.filter.get("entity")
    if entity is not None:
        Entity.from_id(entity, pointer="/filter/entity")


def _spelled(name: str) -> str:
    return spell(ResourceType.WEBHOOKS, name)


def _unsealable(name: str) -> WebhookConflictError:
    return WebhookConflictError(
        f"The secrets of the webhook {name} were sealed under another webhooks.key_file. Send its url again",
        outcome=WriteOutcome.NOT_APPLIED,
    )


def _changing(name: str) -> ConcurrentChangeError:
    return ConcurrentChangeError(
        f"Other writers kept changing the webhook {name}; nothing was applied, send the request again",
        outcome=WriteOutcome.NOT_APPLIED,
    )
