"""Bodies of requests, made from entities and values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from confplane.client.core.calls import drop_none
from confplane.domain.entities import Entity

if TYPE_CHECKING:
    from collections.abc import Mapping

V_co = TypeVar("V_co", covariant=True)


@dataclass(frozen=True)
class Change(Generic[V_co]):
    """New values of an entity: key to value, None to remove the key."""

    entity: Entity | str
    values: Mapping[str, V_co | None]
    etag: str | None = None
    """The ETag that the entity must have; None for any."""


class ClientChange(NamedTuple):
    """New quotas and client configs of an entity: key to value, None to remove the key."""

    entity: Entity | str
    quotas: Mapping[str, float | None] = {}
    configs: Mapping[str, str | None] = {}
    quotas_etag: str | None = None
    """The ETag that the quotas must have; None for any."""
    configs_etag: str | None = None
    """The ETag that the client configs must have; None for any."""


def components(entity: Entity | str) -> list[dict[str, str | None]]:
    """Return an entity in the form of the RPCs on clients."""
    return [{"entityType": kind.value, "entityName": name} for kind, name in entity_of(entity).components]


def resource(entity: Entity | str) -> dict[str, str]:
    """Return the type and the name of an entity in Kafka's terms; '' is the default of all brokers."""
    [(kind, name)] = entity_of(entity).components
    return {"resourceType": kind.replace("-", "_").upper(), "resourceName": name or ""}


def entry(change: Change[Any]) -> dict[str, Any]:
    """Return an entry of an alter of client quotas or client configs."""
    return {"entity": components(change.entity), "ops": ops(change.values), **drop_none(etag=change.etag)}


def client_entry(change: ClientChange) -> dict[str, Any]:
    """Return an entry of an alter of both."""
    return {
        "entity": components(change.entity),
        "quotas": ops(change.quotas),
        "configs": ops(change.configs),
        **drop_none(quotasEtag=change.quotas_etag, configsEtag=change.configs_etag),
    }


def incremental(change: Change[str]) -> dict[str, Any]:
    """Return a resource of an IncrementalAlterConfigs."""
    configs = [
        {"name": key, "configOperation": "DELETE"}
        if value is None
        else {"name": key, "configOperation": "SET", "value": value}
        for key, value in change.values.items()
    ]
    return {**resource(change.entity), "configs": configs, **drop_none(etag=change.etag)}


def ops(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the ops of an alter: None removes."""
    return [
        {"key": key, "remove": True} if value is None else {"key": key, "value": value} for key, value in values.items()
    ]


def entity_of(entity: Entity | str) -> Entity:
    """Return an entity that may be given by its id.

    Raises:
        InvalidEntityIdError: The text is not an entity id.
    """
    return entity if isinstance(entity, Entity) else Entity.from_id(entity)
