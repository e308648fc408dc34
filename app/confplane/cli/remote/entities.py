"""Entities in arguments: an entity id as in URLs, or plain names: ``user=alice``, ``user=CN=a b,client-id=x``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeVar

from confplane.cli.output import echo
from confplane.client import ClientError, NothingSetError
from confplane.domain.entities import DEFAULT_NODE, Entity, EntityType
from confplane.domain.errors import InvalidEntityIdError, InvalidRequestError
from confplane.domain.facets import FacetName

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable

    from confplane.client import Answer, AsyncConfplane


T = TypeVar("T")
MEMBERS: Final = {
    FacetName.CLIENT_QUOTAS: "quotas",
    FacetName.CLIENT_CONFIGS: "configs",
    FacetName.CONFIGS: "configs",
}
"""The member of an answer that has a facet's keys."""
PAIR: Final = "user,client-id"
KINDS: Final = (*EntityType, PAIR)
"""Types of entities, including the pair, as used in the API's filters."""

_NEXT_TYPE: Final = re.compile(rf",(?=(?:{'|'.join(EntityType)})(?:=|,|$))")
"""A comma between two components; any other comma belongs to a name, as in the user ``CN=a,O=b``."""

_DEFAULT_TYPES: Final = frozenset({EntityType.USER, EntityType.CLIENT_ID, EntityType.IP, EntityType.BROKER})
_OTHER_DEFAULTS: Final = frozenset({DEFAULT_NODE, "*"})
"""Names that other tools use for the default entity. Users and client-ids can have them as their own names."""
_PAIR: Final = (EntityType.USER, EntityType.CLIENT_ID)
_FACETS: Final = {
    (EntityType.USER,): (FacetName.CLIENT_QUOTAS, FacetName.CLIENT_CONFIGS),
    _PAIR: (FacetName.CLIENT_QUOTAS, FacetName.CLIENT_CONFIGS),
    (EntityType.CLIENT_ID,): (FacetName.CLIENT_QUOTAS,),
    (EntityType.IP,): (FacetName.CLIENT_QUOTAS,),
}


def entity_of(text: str, *, hint: bool = True) -> Entity:
    """Return the entity of an argument; a type alone is its default entity.

    An argument that is an entity id (:meth:`Entity.from_id`) is parsed as such, so ``user=a~20b`` is the user ``a b``.
    In any other argument names are plain. A hint on standard error names the default entity if a name looks like it.

    Raises:
        InvalidRequestError: No entity can have these types and names.
    """
    kind = text.removesuffix("s")
    listing = f" `confplane get --type {kind}` lists entities." if kind in set(EntityType) else ""
    if text in set(EntityType) - _DEFAULT_TYPES:
        raise InvalidRequestError(f"{text} needs a name: {text}=NAME.{listing}")
    try:
        return Entity.from_id(text)
    except InvalidEntityIdError:
        pass
    components = []
    for part in _NEXT_TYPE.split(text):
        kind, separator, name = part.partition("=")
        if kind not in set(EntityType):
            listed = ", ".join(f"{each}=NAME" for each in EntityType)
            raise InvalidRequestError(f"{text!r} is not a valid entity. Use a type and a name: {listed}.{listing}")
        components.append((kind, name if separator else None))
    defaults = [
        (kind, None if kind in _DEFAULT_TYPES and name in _OTHER_DEFAULTS else name) for kind, name in components
    ]
    if hint and defaults != components:
        echo(
            f"Hint: {text} is not the default entity, which is written {Entity.from_components(defaults).id}", err=True
        )
    entity = Entity.from_components(components)
    if len(components) > 1 and (entity.types != _PAIR or len(components) > len(_PAIR)):
        raise InvalidRequestError(f"{text!r} is not a valid entity. Only one user and one client-id can be combined.")
    return entity


def facets_of(entity: Entity) -> tuple[FacetName, ...]:
    """Return the collections that have an entity's keys."""
    return _FACETS.get(entity.types, (FacetName.CONFIGS,))


def facets_of_kind(kind: str) -> tuple[FacetName, ...]:
    """Return the collections that have the keys of entities of a type, or of the pair ``user,client-id``.

    Raises:
        InvalidRequestError: The type does not exist.
    """
    if kind not in KINDS:
        raise InvalidRequestError(f"Unknown entity type {kind!r}. Available: {'; '.join(KINDS)}.")
    return _FACETS.get(tuple(EntityType(each) for each in kind.split(",")), (FacetName.CONFIGS,))


async def gather(works: Iterable[Awaitable[T]]) -> list[T]:
    """Await requests concurrently, and return their answers in order."""
    import asyncio  # noqa: PLC0415 - help does without it

    return list(await asyncio.gather(*works))


async def read_entity_values(
    client: AsyncConfplane, entity: Entity, moment: str | None = None
) -> dict[FacetName, Answer[Any]]:
    """Return the answer for each facet in which keys of an entity are set, now or at a time in the past."""
    facets = facets_of(entity)
    answers = await gather(_of(client, each, entity, moment) for each in facets)
    return {facet: answer for facet, answer in zip(facets, answers, strict=True) if answer is not None}


async def _of(client: AsyncConfplane, facet: FacetName, entity: Entity, moment: str | None) -> Answer[Any] | None:
    try:
        return await client.resources(facet).get(entity, at=moment)
    except NothingSetError:
        return None


def note_stale(answers: Iterable[Answer[Any]]) -> None:
    """Report on standard error if the service has lost its ZooKeeper and answers from a copy."""
    if stale := [answer.stale_ms for answer in answers if answer.stale_ms is not None]:
        seconds = max(stale) // 1000
        echo(f"Warning: The service has not reached ZooKeeper for {seconds} s. Later changes are not shown", err=True)


def keys_of(facet: FacetName, answer: Answer[Any]) -> dict[str, Any]:
    """Return the keys and values of an answer."""
    values: dict[str, Any] = answer.body[MEMBERS[facet]]
    return values


async def keys_of_type(client: AsyncConfplane, kind: str) -> list[str]:
    """Return the keys that entities of a type can have, or none if the service does not list them."""
    try:
        definitions = await client.config_definitions.list(entity_type=kind)
    except ClientError:
        return []
    return sorted({item["name"] for item in definitions.body["items"]})
