"""KIP-21: one pair of methods for the configs and quotas of entities of every type.

Topics and brokers have configs; users have quotas and client configs, altered together in one change; client-ids and
ips have only quotas. Values are text throughout. Errors are of two kinds: InvalidEntity, and InvalidConfig for any
fault of a key or value.

Source: KIP-21.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from confplane.domain.access.operations import Operation
from confplane.domain.broker_keys import definition_of
from confplane.domain.changes import stored
from confplane.domain.client_configs import SUPPORTED_CONFIGS
from confplane.domain.configs import KINDS, check_release
from confplane.domain.entities import Entity, EntityType
from confplane.domain.errors import (
    ConfplaneError,
    ErrorList,
    InvalidConfigError,
    InvalidRequestError,
    InvalidTopicError,
    UnknownTopicError,
)
from confplane.domain.facets import FacetName
from confplane.domain.numbers import parse_java_double
from confplane.domain.ops import Op, OpType
from confplane.domain.quotas import QUOTA_KEYS, SCRAM_KEYS
from confplane.domain.resolution import levels_of, resolve
from confplane.domain.texts import clipped, shown
from confplane.services.changes.config_drafts import unknown_key_error
from confplane.services.changes.edits import Edit
from confplane.services.cooperative_yielding import TimeSlice, in_slices
from confplane.services.ports.refusals import RefusedEdit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from confplane.domain.facets import JsonValue
    from confplane.services.access import Access
    from confplane.services.changes.alter import AlterService, Entry
    from confplane.services.changes.callers import Caller
    from confplane.services.changes.edits import EntryResult
    from confplane.services.cluster_facet import ClusterFacet
    from confplane.services.clusters import Cluster

_TYPES: Final = {
    name: kind
    for kind in EntityType
    for name in (kind.value, kind.plural, f"{kind.value}s", kind.plural.removesuffix("s"))
}
"""Names of entity types: those of the RPCs and those of the znodes, each in singular and plural."""
NO_LEVEL: Final = "DEFAULT_CONFIG"
"""The source of a value that no level sets: Kafka's default, no limit of a quota, or a client's own config."""


class InvalidEntityError(InvalidRequestError):
    """KIP-21's InvalidEntity, which Kafka never gave a number: no such type, or a name that no entity can have."""


@dataclass(frozen=True, slots=True)
class EntityChange:
    """A request's changes of one entity."""

    entity_type: str
    entity_name: str | None
    added: tuple[tuple[str, JsonValue], ...]
    deleted: tuple[str, ...]
    pointer: str


@dataclass(frozen=True, slots=True)
class Fallback:
    """The effective value of a key after its deletion."""

    key: str
    value: str | None
    """The value as text; None for a secret, or if no level has a value."""
    source: str
    """The level of the value: for topics and brokers a config source by Kafka's name, otherwise an entity id."""


@dataclass(frozen=True, slots=True)
class EntityResult:
    """The result for one entity."""

    error: ConfplaneError | None = None
    result: EntryResult | None = None
    """The result of the change; None if none was begun."""
    fallbacks: tuple[Fallback, ...] = ()
    """The fallbacks of the deleted keys, in the order of the request."""
    warnings: tuple[str, ...] = ()


def entity_of(entity_type: str, entity_name: str | None, *, pointer: str) -> Entity:
    """Return the entity of a request's names; None is the default of its type.

    Raises:
        InvalidEntityError: No entity can have these names.
    """
    kind = _TYPES.get(entity_type)
    if kind is None:
        listed = ", ".join(EntityType)
        raise InvalidEntityError(
            f"There is no entity type {shown(entity_type)}; there are: {listed}, each in singular or plural",
            pointer=f"{pointer}/entityType",
        )
    try:
        return Entity.from_components([(kind, entity_name)])
    except InvalidRequestError as error:
        raise InvalidEntityError(error.detail, pointer=f"{pointer}/entityName") from None


def describe(
    cluster: Cluster, access: Access, entity_type: str, entity_name: str | None, *, pointer: str
) -> dict[str, str | None]:
    """Return the configs and quotas set on an entity, by key, as text; None is a secret. From the mirror.

    Raises:
        InvalidEntityError: No entity can have these names.
        ForbiddenError: The caller may not describe the entity.
        UnknownTopicError: The cluster's metadata have no such topic.
        CorruptZnodeError: A znode of the entity can't be read.
        UnavailableError: The mirror was never loaded.
    """
    entity = _checked(cluster, entity_type, entity_name, pointer)
    access.require(cluster.name, Operation.DESCRIBE_CONFIGS, entity.id, pointer=f"{pointer}/entityName")
    facets = _facets_of(cluster, entity)
    topic = entity.get(EntityType.TOPIC)
    if topic is not None and facets[0].store.topic_exists(topic) is False:
        raise UnknownTopicError(
            f"The topic {topic} does not exist in the cluster's metadata", pointer=f"{pointer}/entityName"
        )
    found: dict[str, str | None] = {}
    for cluster_facet in facets:
        node = cluster_facet.get(entity.id)
        cluster_facet.check_readable(entity, node, pointer)
        is_secret = cluster_facet.facet.is_secret
        own = cluster_facet.own(entity, stored(node))
        found |= {key: None if is_secret(entity, key) else value for key, value in own.items()}
    return dict(sorted(found.items()))


async def alter(
    service: AlterService,
    cluster: Cluster,
    changes: Sequence[EntityChange],
    caller: Caller,
    *,
    validate_only: bool = False,
) -> list[EntityResult]:
    """Change entities, each in a change of its own, and return one result each, in order.

    Args:
        service: Runs the changes.
        cluster: The cluster of the entities.
        changes: The changes, one for each entity.
        caller: The caller.
        validate_only: Go the same way up to the write, and return the results that the write would have.

    An entity named twice fails in every place it is named.
    """
    made = await _entries(cluster, changes, caller.access)
    if caller.refused is not None and not validate_only:
        pairs = zip(changes, made, strict=True)
        caller.refused.extend(_refused(change, each) for change, each in pairs if isinstance(each, ConfplaneError))
    entries = [each for each in made if not isinstance(each, ConfplaneError)]
    answers = iter(await service.alter_entries(entries, caller, validate_only=validate_only))
    altered = [each if isinstance(each, ConfplaneError) else (each, next(answers)) for each in made]
    planned: defaultdict[FacetName, dict[str, Mapping[str, str]]] = defaultdict(dict)
    for each in altered:
        if not isinstance(each, ConfplaneError) and each[1].error is None:
            for cluster_facet, result in zip(each[0], each[1].results, strict=True):
                planned[cluster_facet.name][result.edit.entity.id] = result.after
    return await in_slices(lambda both: _result(cluster, *both, planned), zip(changes, altered, strict=True))


def _result(
    cluster: Cluster,
    change: EntityChange,
    altered: tuple[Entry, EntryResult] | ConfplaneError,
    planned: Mapping[FacetName, Mapping[str, Mapping[str, str]]],
) -> EntityResult:
    if isinstance(altered, ConfplaneError):
        return EntityResult(altered)
    entry, result = altered
    if result.error is not None:
        return EntityResult(_as_kip_21(result.error), result)
    found: dict[str, Fallback] = {}
    warnings = list(result.warnings)
    for cluster_facet, each in zip(entry, result.results, strict=True):
        deleted = [op.key for op in each.edit.ops if op.type is OpType.DELETE]
        fallbacks, assumed = _fallbacks(cluster, cluster_facet, each.edit.entity, deleted, planned[cluster_facet.name])
        found |= {fallback.key: fallback for fallback in fallbacks}
        warnings += assumed
    return EntityResult(None, result, tuple(found[key] for key in change.deleted), tuple(warnings))


async def _entries(cluster: Cluster, changes: Sequence[EntityChange], access: Access) -> list[Entry | ConfplaneError]:
    """Make an entry of each change, or the error that refuses the change."""
    made: list[tuple[Entity, Entry] | ConfplaneError] = []
    # Counted first: an entity named twice is refused in both places, whatever else is wrong in one of them.
    named: Counter[str] = Counter()
    time_slice = TimeSlice()
    for change in changes:
        if time_slice.due:
            await time_slice.pause()
        try:
            entity = _checked(cluster, change.entity_type, change.entity_name, change.pointer)
            named[entity.id] += 1
            # Already here: which keys may be deleted depends on the stored keys.
            access.require(cluster.name, Operation.ALTER_CONFIGS, entity.id, pointer=f"{change.pointer}/entityName")
            made.append((entity, _entry(cluster, entity, change)))
        except ConfplaneError as error:
            made.append(error)
    return [
        item
        if isinstance(item, ConfplaneError)
        else InvalidRequestError(
            f"{item[0].id} is named more than once in this request; combine its operations in one entry",
            pointer=change.pointer,
        )
        if named[item[0].id] > 1
        else item[1]
        for item, change in zip(made, changes, strict=True)
    ]


def _refused(change: EntityChange, error: ConfplaneError) -> RefusedEdit:
    try:
        entity_id = entity_of(change.entity_type, change.entity_name, pointer=change.pointer).id
    except InvalidEntityError:
        entity_id = ""
    return RefusedEdit(entity_id, [*(key for key, _ in change.added), *change.deleted], error)


def _entry(cluster: Cluster, entity: Entity, change: EntityChange) -> Entry:
    """Return a change's edits, one for each facet that its keys belong to."""
    added = [(f"{change.pointer}/addedConfigs/{place}", key, value) for place, (key, value) in enumerate(change.added)]
    deleted = [(f"{change.pointer}/deletedConfigs/{place}", key) for place, key in enumerate(change.deleted)]
    pointers = [(key, pointer) for pointer, key, _ in added] + [(key, pointer) for pointer, key in deleted]
    _check_once(pointers)
    facets = _facets_of(cluster, entity)
    ops: dict[FacetName, list[Op]] = {}
    errors = ErrorList()
    for pointer, key, value in added:
        try:
            name = _facet_of(facets, entity, key, pointer).name
            text = _text(key, value, pointer)
            quota = name is FacetName.CLIENT_QUOTAS and key not in SCRAM_KEYS
            op = Op(key, OpType.SET, _number(key, text, pointer) if quota else text, pointer)
        except (InvalidRequestError, InvalidConfigError) as error:
            errors.add(error)
        else:
            ops.setdefault(name, []).append(op)
    for pointer, key in deleted:
        try:
            found = _facet_of(facets, entity, key, pointer)
            _check_known(found, entity, key, pointer)
        except InvalidConfigError as error:
            errors.add(error)
        else:
            ops.setdefault(found.name, []).append(Op(key, OpType.DELETE, pointer=pointer))
    errors.raise_all()
    altered = [cluster_facet for cluster_facet in facets if cluster_facet.name in ops] or facets[:1]
    return {
        cluster_facet: Edit(
            entity, tuple(ops.get(cluster_facet.name, ())), pointer=change.pointer, refuses_unknown=True
        )
        for cluster_facet in altered
    }


def _checked(cluster: Cluster, entity_type: str, entity_name: str | None, pointer: str) -> Entity:
    entity = entity_of(entity_type, entity_name, pointer=pointer)
    cluster_facet = _facets_of(cluster, entity)[0]
    if entity.types in KINDS:
        try:
            check_release(cluster_facet.catalog, entity)
        except InvalidRequestError as error:
            raise InvalidEntityError(error.detail, pointer=f"{pointer}/entityType") from None
    try:
        cluster_facet.facet.check_entity(entity)
    except (InvalidRequestError, InvalidTopicError) as error:
        raise InvalidEntityError(error.detail, pointer=f"{pointer}/entityName") from None
    return entity


def _facets_of(cluster: Cluster, entity: Entity) -> list[ClusterFacet]:
    """Return the cluster facets with keys for entities of this type."""
    if entity.types in KINDS:
        names = [FacetName.CONFIGS]
    elif entity.types[0] is EntityType.USER:
        names = [FacetName.CLIENT_QUOTAS, FacetName.CLIENT_CONFIGS]
    else:
        names = [FacetName.CLIENT_QUOTAS]
    return [cluster.facets[name] for name in names]


def _check_once(keys: Iterable[tuple[str, str]]) -> None:
    seen: set[str] = set()
    for key, pointer in keys:
        if key in seen:
            raise InvalidRequestError(
                f"{clipped(key)} is named twice; a key is either added or deleted, once", pointer=pointer
            )
        seen.add(key)


def _facet_of(facets: Sequence[ClusterFacet], entity: Entity, key: str, pointer: str) -> ClusterFacet:
    """Return the cluster facet that a key belongs to, of the cluster facets of an entity."""
    if len(facets) == 1:
        return facets[0]
    quotas, configs = facets
    if key in QUOTA_KEYS or key in SCRAM_KEYS:
        return quotas
    if key == SUPPORTED_CONFIGS or quotas.catalog.find(key) or any(each.facet.owns(entity, key) for each in facets):
        return configs
    raise InvalidConfigError(
        f"Unknown config name: {clipped(key)}; a user has quotas and the dynamic configs of clients", pointer=pointer
    )


def _check_known(cluster_facet: ClusterFacet, entity: Entity, key: str, pointer: str) -> None:
    """Refuse the deletion of a key that is neither known nor stored.

    A Kafka cluster without ZooKeeper may have the key, and is asked about it when the edit is run.
    """
    if cluster_facet.name is not FacetName.CONFIGS:
        known = cluster_facet.facet.owns(entity, key) or key in SCRAM_KEYS or key == SUPPORTED_CONFIGS
    elif entity.types == (EntityType.BROKER,):
        known = definition_of(cluster_facet.catalog, key) is not None
    else:
        known = key in cluster_facet.catalog.of(KINDS[entity.types])
    is_asked = cluster_facet.name is FacetName.CONFIGS and cluster_facet.store.target() is not None
    if not known and not is_asked and key not in stored(cluster_facet.get(entity.id)):
        raise unknown_key_error(entity, key, pointer)


def _text(key: str, value: JsonValue, pointer: str) -> str:
    if isinstance(value, str):
        return value
    hint = "; name the key in deletedConfigs to remove it" if value is None else ""
    raise InvalidRequestError(
        f'The value of {clipped(key)} must be a JSON string in quotes, such as "1000"{hint}',
        pointer=f"{pointer}/configValue",
    )


def _number(key: str, text: str, pointer: str) -> int | float:
    """Read a quota: digits exactly, else as Kafka's own tool does."""
    if text.isascii() and text.isdigit() and len(text) <= len(str(2**63)):
        return int(text)
    try:
        return parse_java_double(text)
    except ValueError:
        raise InvalidConfigError(
            f'The value of {clipped(key)} must be a number, such as "1024"', pointer=pointer
        ) from None


def _as_kip_21(error: ConfplaneError) -> ConfplaneError:
    """Return the error as KIP-21 has it: InvalidConfig for any fault of a key or a value, whichever part found it."""
    if type(error) is not InvalidRequestError:
        return error
    converted = InvalidConfigError(error.detail, pointer=error.pointer, outcome=error.outcome)
    converted.in_trail = error.in_trail
    converted.further = error.further
    return converted


def _fallbacks(
    cluster: Cluster,
    cluster_facet: ClusterFacet,
    entity: Entity,
    keys: Sequence[str],
    planned: Mapping[str, Mapping[str, str]],
) -> tuple[tuple[Fallback, ...], list[str]]:
    """Return the fallbacks of deleted keys after the whole request, and warnings about unknown ones."""
    if not keys:
        return (), []
    if cluster_facet.name is not FacetName.CONFIGS:
        return _resolved(cluster_facet, entity, keys, planned), []
    found = cluster.configs.effective_of(entity, keys, planned)
    assumed = [
        f"{clipped(item.name)} falls back on Kafka's default, unless the brokers' own files, which are not known here, "
        "say otherwise"
        for item in found
        if item.assumed
    ]
    return tuple(Fallback(item.name, item.value, item.source.value) for item in found), assumed


def _resolved(
    cluster_facet: ClusterFacet, entity: Entity, keys: Sequence[str], planned: Mapping[str, Mapping[str, str]]
) -> tuple[Fallback, ...]:
    def at(entity_id: str) -> dict[str, str]:
        config = planned.get(entity_id)
        if config is None:
            config = stored(cluster_facet.get(entity_id))
        return cluster_facet.own(Entity.from_id(entity_id), config)

    levels = levels_of(cluster_facet.name, entity)
    found = resolve(cluster_facet.name, levels, {level.entity_id: at(level.entity_id) for level in levels})
    return tuple(
        Fallback(key, found[key].value, found[key].source.entity_id) if key in found else Fallback(key, None, NO_LEVEL)
        for key in keys
    )
