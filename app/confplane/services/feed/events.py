"""Events of the feed, and which of their entities a consumer gets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from confplane.domain.entities import Entity, EntityType
from confplane.domain.enums import StrEnum
from confplane.domain.errors import ConfplaneError
from confplane.domain.facets import FacetName, shown_value
from confplane.services.ports.feed import REQUEST, FeedRequest
from confplane.services.ports.kafka import KraftEntityType, kraft_type_of
from confplane.services.ports.trail import EXTERNAL, IMPORT, OBSERVED, PUT_BACK

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from confplane.domain.access.ranges import NameRanges
    from confplane.domain.facets import JsonValue
    from confplane.services.cluster_facet import ClusterFacet
    from confplane.services.feed.positions import FeedPosition
    from confplane.services.ports.feed import FeedChange, FeedEntity

_EVENT_BYTES: Final = 1_000
_KEY_BYTES: Final = 200
SeesRequest = Callable[[FeedRequest], bool]
"""Returns True if a consumer may see a change request."""
Subject = tuple[Literal["entity", "user"], str]
"""An entity by its id, or a user with all its client-ids by its name."""


class KeyValues(NamedTuple):
    """A key's values before and after a change, as JSON answers them; None is absent, or not kept."""

    key: str
    before: JsonValue
    after: JsonValue
    sensitive: bool


class EventPart(NamedTuple):
    """The keys of one entity in one facet."""

    entity: Entity
    facet: FacetName
    revision: int
    keys: Sequence[KeyValues]
    complete: bool = False
    """True if the entity has no other keys in the facet."""


@dataclass(eq=False, slots=True)
class FeedEvent:
    """A change, or a reset after which consumers list again. All consumers share it."""

    position: FeedPosition
    change: FeedChange
    parts: Sequence[EventPart]
    """Empty for a reset, and for an event of a change request."""
    rendered: dict[Any, bytes] = field(default_factory=dict)
    """The parts of the event that the API has rendered, for all consumers."""

    @property
    def is_reset(self) -> bool:
        """True if consumers have to list again."""
        return not self.parts and self.change.request is None

    def subjects(self) -> Iterator[Subject]:
        """Yield the entities of the event, and their users."""
        for entity in self.entities:
            yield "entity", entity.id
            user = entity.get(EntityType.USER)
            if user is not None:
                yield "user", user

    @property
    def entities(self) -> Sequence[Entity]:
        """The entities of a change, or of a change request."""
        request = self.change.request
        return (
            [each.entity for each in self.parts] if request is None else list(map(Entity.from_id, request.entity_ids))
        )

    @property
    def external(self) -> bool:
        """True for a change that was made outside Confplane."""
        return self.change.kind in {EXTERNAL, OBSERVED, PUT_BACK}

    @property
    def type(self) -> str:
        """The type of the event: ``change``, ``reset``, ``put-back`` or ``request``."""
        return "reset" if self.is_reset else self.change.kind if self.change.kind in {PUT_BACK, REQUEST} else "change"

    @property
    def size(self) -> int:
        """Bytes of the event, approximately."""
        values = sum(
            len(str(each.before)) + len(str(each.after)) + _KEY_BYTES for part in self.parts for each in part.keys
        )
        request = self.change.request
        return _EVENT_BYTES + values + (0 if request is None else sum(map(len, request.entity_ids)))


class RequestSelection(StrEnum):
    """The events of change requests that a consumer asks for."""

    INCLUDE = "include"
    """Events of requests among all others."""
    ONLY = "only"
    """Events of requests, and no others."""


@dataclass(frozen=True, slots=True)
class FeedFilter:
    """The events that a consumer asks for; None means any."""

    facet: FacetName | None = None
    entity_type: EntityType | None = None
    entity_id: str | None = None
    user: str | None = None
    prefix: str | None = None
    key: str | None = None
    principal: str | None = None
    requests: RequestSelection | None = None
    """None: no events of change requests."""

    @property
    def subject(self) -> Subject | None:
        """The only entity or user that is asked for; None if there may be several."""
        if self.entity_id is not None:
            return "entity", self.entity_id
        return None if self.user is None else ("user", self.user)

    def takes_status(self, entity: Entity) -> bool:
        """Return True if the apply statuses of an entity are asked for. They have neither a key nor a principal."""
        facet = FacetName.CLIENT_QUOTAS if kraft_type_of(entity) is KraftEntityType.QUOTAS else FacetName.CONFIGS
        whole = self.principal is None and self.key is None and self.requests is not RequestSelection.ONLY
        return whole and self.takes(EventPart(entity, facet, 0, ()))

    def takes(self, part: EventPart) -> bool:
        """Return True if an entity of a change is asked for."""
        return (
            (self.facet is None or part.facet is self.facet)
            and self._takes_entity(part.entity)
            and (part.complete or self.takes_keys(part))
        )

    def takes_keys(self, part: EventPart) -> bool:
        """Return True if no key is asked for, or one of those that are there."""
        return self.key is None or any(each.key == self.key for each in part.keys)

    def _takes_entity(self, entity: Entity) -> bool:
        return (
            (self.entity_id is None or entity.id == self.entity_id)
            and (self.entity_type is None or entity.types[-1] is self.entity_type)
            and (self.user is None or dict(entity.components).get(EntityType.USER) == self.user)
            and (self.prefix is None or (entity.components[-1][1] or "").startswith(self.prefix))
        )

    def _takes_request(self, event: FeedEvent) -> bool:
        """Return True if an event of a request is asked for. It has neither a facet nor a key."""
        request = event.change.request
        known = request is not None and request.type is not None
        without = self.requests is None or self.facet is not None or self.key is not None
        return known and not without and any(map(self._takes_entity, event.entities))

    def select(
        self, event: FeedEvent, visible: NameRanges | None, may_see: SeesRequest
    ) -> tuple[Sequence[EventPart], bool] | None:
        """Return the entities of an event for a consumer, and whether further entities are hidden from it.

        Args:
            event: The event.
            visible: The entities that the consumer may see; None: all.
            may_see: Decides about an event of a change request, which has no entities.

        Returns:
            None if the consumer does not get the event.
        """
        request = event.change.request
        if request is None and self.requests is RequestSelection.ONLY:
            return None
        if event.is_reset:
            return (), False
        if self.principal is not None and event.change.principal != self.principal:
            return None
        if request is not None:
            return ((), False) if self._takes_request(event) and may_see(request) else None
        parts = event.parts
        if visible is not None:
            parts = [part for part in parts if part.entity.id in visible]
        partial = len(parts) < len(event.parts)
        if not any(map(self.takes, parts)):
            return None
        return [part for part in parts if self.takes(part)], partial


def event_of(change: FeedChange, facets: Mapping[FacetName, ClusterFacet], position: FeedPosition) -> FeedEvent | None:
    """Return the event of a change; None for a change that gave no key another value.

    An import is a reset.
    """
    if change.kind == IMPORT:
        return FeedEvent(position, change, ())
    parts = [part for entity in change.entities for part in _parts(change, entity, facets)]
    return FeedEvent(position, change, parts) if parts else None


def _parts(change: FeedChange, changed: FeedEntity, facets: Mapping[FacetName, ClusterFacet]) -> Iterator[EventPart]:
    if changed.op in {"MOVE", "DISCARD", "REENCODE"} or not changed.keys:
        return
    try:
        entity = Entity.from_id(changed.entity_id)
    except ConfplaneError:
        return  # a state of the cluster, such as a freeze
    revision = changed.revision or change.place.revision
    names = sorted({*changed.keys, *changed.after}) if changed.complete else changed.keys
    for name, cluster_facet in facets.items():
        facet = cluster_facet.facet
        keys = [
            KeyValues(
                key,
                shown_value(facet, entity, key, changed.before.get(key)),
                shown_value(facet, entity, key, changed.after.get(key)),
                facet.has_secrets and facet.is_secret(entity, key),
            )
            for key in names
            if facet.owns(entity, key)
        ]
        if keys or (changed.complete and facet.entity_types.issuperset(entity.types)):
            yield EventPart(entity, name, revision, keys, changed.complete)
