"""Operations that the resources of every facet have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar, cast

from confplane.client.core.answers import member, unreadable_answer_error
from confplane.client.core.calls import call, id_of, path_of
from confplane.client.core.operations import Family, S, listing, operation, procedure, tagged
from confplane.client.core.pages import Paged
from confplane.client.core.senders import backoff_s
from confplane.client.errors import PreconditionFailedError, ResourceNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from typing_extensions import Unpack

    from confplane.client.core.calls import (
        Answer,
        ApiCall,
        ConditionalWriteOptions,
        PageOptions,
        ReadOptions,
        ReadPageOptions,
        WriteOptions,
    )
    from confplane.client.core.senders import Steps
    from confplane.client.types import DeletedResource, HistoryItem, HistoryPage, PastDiff, RevertedEntity
    from confplane.domain.entities import Entity

V = TypeVar("V")
"""The type of a value."""
PageT = TypeVar("PageT")
ResourceT = TypeVar("ResourceT")
EffectiveT = TypeVar("EffectiveT")

_UPDATES: Final = 5
"""Maximum attempts of an update while other clients keep changing the entity."""


class FacetResources(Family[S], Generic[S, V, PageT, ResourceT, EffectiveT]):
    """The entities of one facet. An entity is given as an :class:`~confplane.domain.entities.Entity` or by its id."""

    facet: ClassVar[str]
    """The facet's name in paths."""
    member: ClassVar[str]
    """The member of a body that has the values."""

    @listing
    def list(  # noqa: PLR0913 - one argument a filter
        self,
        *,
        entity: Entity | str | None = None,
        user: str | None = None,
        client_id: str | None = None,
        ip: str | None = None,
        topic: str | None = None,
        broker: str | None = None,
        group: str | None = None,
        client_metrics: str | None = None,
        key: str | None = None,
        kind: str | None = None,
        prefix: str | None = None,
        at: int | str | None = None,
        applied: bool | None = None,
        owner: str | None = None,
        label: str | None = None,
        full: bool = False,
        **options: Unpack[ReadPageOptions],
    ) -> Paged[PageT, ResourceT]:
        """List the entities with content in this facet, ordered by id.

        Args:
            entity: This entity alone.
            user: The name of a user; empty for the default entity, as in all filters by name.
            client_id: A client-id.
            ip: An address.
            topic: A topic.
            broker: The number of a broker.
            group: A group.
            client_metrics: A subscription to the metrics of clients.
            key: Only entities with this key.
            kind: Only entities of exactly these types, e.g. ``user,client-id``.
            prefix: Only entities whose name has this prefix; for a pair, the name of the user.
            at: A revision or time (RFC 3339) of the past.
            applied: Of client configs: only entities whose clients all report that they use the latest configs, or
                (False) only entities for which some clients do not.
            owner: Only entities of which this owner of manifests has keys.
            label: Only entities with this label, as its name, ``=`` and its value.
            full: Include the name and the state of each entity.
            **options: How new the state must be, and the page.
        """
        filters = {
            "id": None if entity is None else id_of(entity),
            "user": user,
            "client-id": client_id,
            "ip": ip,
            "topic": topic,
            "broker": broker,
            "group": group,
            "client-metrics": client_metrics,
            "key": key,
            "kind": kind,
            "prefix": prefix,
            "applied": None if applied is None else str(applied).lower(),
            "owner": owner,
            "label": label,
        }
        return Paged(self._call("GET", "", options, params=filters | _view(at, full=full)))

    @operation
    def create(
        self, entity: Entity | str, values: Mapping[str, V], **terms: Unpack[ConditionalWriteOptions]
    ) -> ApiCall[ResourceT]:
        """Create an entity's content; equal existing content is not an error."""
        body = {"id": id_of(entity), self.member: dict(values)}
        return self._call("POST", "", terms, json=body, keyed=True)

    @tagged
    def get(
        self, entity: Entity | str, *, at: int | str | None = None, full: bool = False, **fresh: Unpack[ReadOptions]
    ) -> ApiCall[ResourceT]:
        """Read the declared content of an entity, now or ``at`` a revision or time (RFC 3339) of the past."""
        return self._call("GET", f"/{path_of(entity)}", fresh, params=_view(at, full=full))

    @operation
    def put(
        self, entity: Entity | str, values: Mapping[str, V], **terms: Unpack[ConditionalWriteOptions]
    ) -> ApiCall[ResourceT]:
        """Replace all keys of an entity."""
        return self._call("PUT", f"/{path_of(entity)}", terms, json={self.member: dict(values)}, keyed=True)

    @operation
    def delete(self, entity: Entity | str, **terms: Unpack[ConditionalWriteOptions]) -> ApiCall[DeletedResource]:
        """Remove all keys of an entity."""
        return self._call("DELETE", f"/{path_of(entity)}", terms, keyed=True)

    @tagged
    def effective(self, entity: Entity | str, **fresh: Unpack[ReadOptions]) -> ApiCall[EffectiveT]:
        """Read the effective values of an entity, each with its source."""
        return self._call("GET", f"/{path_of(entity)}/effective", fresh)

    @listing
    def history(self, entity: Entity | str, **page: Unpack[PageOptions]) -> Paged[HistoryPage, HistoryItem]:
        """List the changes of an entity, newest first."""
        return Paged(self._call("GET", f"/{path_of(entity)}/history", page))

    @operation
    def diff(self, entity: Entity | str, *, before: int | str, after: int | str | None = None) -> ApiCall[PastDiff]:
        """Read the keys that differ between two moments, each a revision or a time; ``after`` None is now."""
        params = {"from": str(before), "to": None if after is None else str(after)}
        return self._call("GET", f"/{path_of(entity)}/diff", params=params)

    @operation
    def revert(
        self, entity: Entity | str, to: int | str, *, force: bool = False, **terms: Unpack[ConditionalWriteOptions]
    ) -> ApiCall[RevertedEntity]:
        """Give an entity the keys that it had at a moment.

        Args:
            entity: The entity.
            to: A revision, or a time as RFC 3339.
            force: Revert even if the entity changed in the meantime.
            **terms: The terms of the write.
        """
        body = {"to": str(to), "force": force}
        return self._call("POST", f"/{path_of(entity)}:revert", terms, json=body, keyed=True)

    @procedure
    def update(
        self, entity: Entity | str, change: Callable[[dict[str, V]], Mapping[str, V]], **terms: Unpack[WriteOptions]
    ) -> Steps[Answer[ResourceT]]:
        """Read an entity, change its values, and write them unless the entity changed in the meantime.

        After such a concurrent change, the update is retried on the current state of ZooKeeper, with five attempts at
        most. The pause between attempts grows and has a random part.

        Args:
            entity: The entity.
            change: Returns the new values, given the current ones, which are empty if nothing is set. Called once for
                each attempt. Nothing is written if it returns equal values.
            **terms: The terms of the write; an Idempotency-Key is that of the first attempt.

        Raises:
            PreconditionFailedError: Other clients kept changing the entity.
            ResourceNotFoundError: Nothing is set, and ``change`` sets nothing.
            ClientError: A read or a write failed.
        """
        describe_get, describe_put = FacetResources.get.describe, FacetResources.put.describe
        for tries in range(_UPDATES):
            fresh: ReadOptions = {}
            if tries:
                yield backoff_s(tries)
                terms.pop("idempotency_key", None)  # it belongs to the body of the first attempt
                fresh = {"strong": True}  # the replica that answers may not have the concurrent change yet
            read = describe_get(self, entity, **fresh)
            found: Answer[Any] | None = None
            absent: ResourceNotFoundError | None = None
            try:
                found = yield read
            except ResourceNotFoundError as error:
                absent = error
            if found is not None and found.etag is None:
                raise unreadable_answer_error(read, "the answer lacks an ETag")
            present: dict[str, V] = {} if found is None else member(read, found, self.member, dict)
            values = change(dict(present))
            if values == present:
                if absent is not None:
                    raise absent
                return cast("Answer[ResourceT]", found)
            condition = {"if_none_match": "*"} if found is None else {"if_match": found.etag}
            try:
                return cast("Answer[ResourceT]", (yield describe_put(self, entity, values, **terms, **condition)))
            except PreconditionFailedError:
                if tries == _UPDATES - 1:
                    raise
        raise AssertionError("an update without a try")

    def _call(self, method: str, path: str, terms: Mapping[str, Any] | None = None, **parts: Any) -> ApiCall[Any]:
        return call(method, f"{self._base}/{self.facet}{path}", terms, **parts)


def _view(at: int | str | None, *, full: bool) -> dict[str, str | None]:
    return {"at": None if at is None else str(at), "view": "full" if full else None}
