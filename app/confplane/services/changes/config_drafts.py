"""Drafts of the facet ``configs``: ops are applied, the whole result is checked, passwords are encoded."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from confplane.domain import brokers, topics
from confplane.domain.broker_keys import definition_of, is_password, is_reloaded_file
from confplane.domain.broker_levels import ConfigLevels, DynamicLevel
from confplane.domain.changes import stored
from confplane.domain.client_metrics import check_client_metrics
from confplane.domain.configs import KINDS, check_release
from confplane.domain.entities import Entity, EntityType
from confplane.domain.errors import (
    EncoderSecretMissingError,
    InvalidConfigError,
    InvalidRequestError,
    InvalidTopicError,
    UndecodablePasswordError,
    UnknownTopicError,
)
from confplane.domain.facets import FacetName
from confplane.domain.groups import check_group
from confplane.domain.incremental import apply_incremental, check_list_ops, check_ops, without_repetitions
from confplane.domain.ops import Op, OpType
from confplane.domain.texts import clipped
from confplane.services.changes.edits import WHOLE, Edit, Mode
from confplane.services.changes.entity_drafts import EntityDraft, already_exists, check_node
from confplane.services.cooperative_yielding import next_turn
from confplane.services.ports.kafka import KraftEntityType
from confplane.services.znode_metadata import read_metadata

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from confplane.domain.changes import Node
    from confplane.domain.definitions import ConfigDef
    from confplane.services.changes.entity_drafts import DecideEntity
    from confplane.services.cluster_facet import ClusterFacet
    from confplane.services.ports.crypto import Cipher
    from confplane.services.reads.config_levels import BrokerLevels

_SLICE: Final = 10
"""Brokers checked between two pauses for other requests: a few milliseconds."""

_RELOADED: Final = (
    "{}: the broker loads the file again if it was modified. If it can't, it keeps the old one, and only its log"
    " says so"
)
_NOT_RELOADED: Final = (
    "{} has this path already, so nothing is written, and the broker does not load the file again. Give the new file"
    " another name"
)
_STAYS: Final = "{} stays: the Kafka cluster sets it by itself and refuses its removal"


class ConfigDrafter:
    """The drafter of ``configs``.

    Args:
        levels: The levels of the cluster's brokers.
        cipher: Encodes their passwords.
    """

    def __init__(self, levels: BrokerLevels, cipher: Cipher) -> None:
        self._levels = levels
        self._cipher = cipher

    def decide(self, cluster_facet: ClusterFacet, edit: Edit) -> DecideEntity:
        """Check an edit, and return the decision of its attempts; see ``Drafter``."""
        ops: list[Op] = []
        # Secrets that a whole resource gives as null, as it was read: they stay. Key -> JSON pointer.
        kept: dict[str, str | None] = {}
        for op in edit.ops:
            whole = op.type is OpType.SET and edit.mode is not Mode.ALTER
            if whole and op.value is None and cluster_facet.facet.is_secret(edit.entity, op.key):
                kept[op.key] = op.pointer
            else:
                ops.append(op)
        check_ops(ops)
        try:
            cluster_facet.facet.check_entity(edit.entity, pointer=edit.pointer)
        except InvalidTopicError as error:
            check_list_ops(ops, cluster_facet.catalog.topic)
            # An alter reports an invalid name as a topic that does not exist.
            raise UnknownTopicError(f"There is no such topic: {error.detail}", pointer=edit.pointer) from None
        check_release(cluster_facet.catalog, edit.entity, pointer=edit.pointer)
        check_list_ops(ops, _definitions(cluster_facet, edit.entity))
        return partial(self._draft, edit, ops, kept)

    async def _draft(
        self,
        edit: Edit,
        edit_ops: Sequence[Op],
        kept: Mapping[str, str | None],
        cluster_facet: ClusterFacet,
        node: Node | None,
        planned: Mapping[str, Mapping[str, str]],
    ) -> EntityDraft:
        check_node(cluster_facet, edit, node)
        entity, before = edit.entity, stored(node)
        missing = next((key for key in kept if key not in before), None)
        if missing is not None:
            raise InvalidRequestError(
                f"{clipped(missing)} is null, which keeps a stored secret, and none is stored; give its value or leave "
                "it out",
                pointer=kept[missing],
            )
        ops = list(edit_ops)
        managed = cluster_facet.managed_keys(entity)
        if edit.mode in WHOLE:
            named = {op.key for op in ops} | kept.keys()
            # In a replacement a missing key is a fault of the map itself, so the pointer names the map.
            lacking = f"/{cluster_facet.facet.member}" if named else None
            removed = [key for key in before if key not in named | edit.keeps | managed]
            ops += [Op(key, OpType.DELETE, pointer=lacking) for key in removed]
        [(kind, _)] = entity.components
        asked = apply_incremental(before, ops, _definitions(cluster_facet, entity))
        after, repetitions = without_repetitions(asked, ops, partial(_definition_of, cluster_facet, entity))
        pointers = {op.key: op.pointer for op in ops if op.pointer is not None}
        passwords = [op.key for op in ops if op.type is OpType.SET and is_password(op.key)]
        if kind is not EntityType.BROKER:
            passwords = []  # no other entity has any
        if (
            edit.mode is Mode.CREATE
            and before.keys() - managed
            and any(before.get(key) != after.get(key) for key in before.keys() | after.keys() if key not in passwords)
        ):
            raise already_exists(cluster_facet, entity)
        pending = read_metadata(None if node is None else node.extra).pending_keys
        warnings = [*repetitions, *await self._check(entity, before, asked, pointers, planned, pending=pending)]
        if edit.mode is Mode.REPLACE and not edit.ops:
            warnings += [_STAYS.format(key) for key in sorted(managed & before.keys())]
        same_files = _same_files(cluster_facet, edit, before)
        reloaded = same_files if _is_sent(cluster_facet) else []
        warnings += [(_RELOADED if key in reloaded else _NOT_RELOADED).format(clipped(key)) for key in same_files]
        if passwords:
            broker_id = int(entity.get(EntityType.BROKER) or 0)  # the default broker has no passwords
            try:
                after |= await asyncio.to_thread(self._sealed, broker_id, passwords, before, after)
            except EncoderSecretMissingError as error:
                error.pointer = pointers.get(passwords[0])
                raise
        if edit.mode is Mode.CREATE and before.keys() - managed and after != before:
            raise already_exists(cluster_facet, entity)
        return EntityDraft.of(cluster_facet, edit, node, after, warnings, reloaded=reloaded)

    async def _check(
        self,
        entity: Entity,
        before: Mapping[str, str],
        after: Mapping[str, str],
        pointers: Mapping[str, str],
        planned: Mapping[str, Mapping[str, str]],
        *,
        pending: Collection[str],
    ) -> list[str]:
        """Check the whole map that a change would leave, by the rules of the entity's type; return warnings."""
        match entity.types[0]:
            case EntityType.TOPIC:
                levels = self._levels.of_any(planned)
                return topics.check_topic(after, stored=before, pending=pending, levels=levels, pointers=pointers)
            case EntityType.GROUP:
                levels = self._levels.of_any(planned)
                return check_group(after, stored=before, levels=levels, pointers=pointers)
            case EntityType.CLIENT_METRICS:
                catalog = self._levels.of_unknown(planned).catalog
                return check_client_metrics(catalog, after, stored=before, pointers=pointers)
            case _:
                return await self._check_broker(entity, before, after, pointers, planned)

    async def _check_broker(
        self,
        entity: Entity,
        before: Mapping[str, str],
        after: Mapping[str, str],
        pointers: Mapping[str, str],
        planned: Mapping[str, Mapping[str, str]],
    ) -> list[str]:
        name = entity.get(EntityType.BROKER)
        now = {**planned, entity.id: before}
        affected: list[ConfigLevels]
        if name is not None:
            level, affected = DynamicLevel.BROKER, [self._levels.of(int(name), now)]
        else:
            # A default is effective on every broker, so it must be valid on each.
            level = DynamicLevel.DEFAULT
            affected = [
                self._levels.of_unknown(now),
                *(self._levels.of(broker, now) for broker in self._levels.known(planned)),
            ]
        warnings: dict[str, None] = {}
        for position, levels in enumerate(affected):
            if position % _SLICE == _SLICE - 1:
                await next_turn()
            warnings |= dict.fromkeys(brokers.validate(after, level=level, levels=levels, pointers=pointers))
        return list(warnings)

    def _sealed(
        self, broker_id: int, keys: Iterable[str], before: Mapping[str, str], after: Mapping[str, str]
    ) -> dict[str, str]:
        """Encode passwords; an unchanged password keeps its stored text, since every encoding is a different text."""
        return {
            key: before[key]
            if key in before and self._is_stored(broker_id, key, before[key], after[key])
            else self._cipher.encode(broker_id, key, after[key])
            for key in keys
        }

    def _is_stored(self, broker_id: int, key: str, encoded: str, plain: str) -> bool:
        try:
            return self._cipher.matches(broker_id, key, encoded, plain)
        except UndecodablePasswordError:
            return False


def _same_files(cluster_facet: ClusterFacet, edit: Edit, before: Mapping[str, str]) -> list[str]:
    """Return the keys of reloaded files that an alter of a broker sets to their stored paths.

    A replacement or a revert with equal content does not ask for it.
    """
    if edit.entity.types != (EntityType.BROKER,) or edit.mode is not Mode.ALTER or edit.reverts:
        return []
    return [
        op.key
        for op in edit.ops
        if op.type is OpType.SET and before.get(op.key) == op.value and is_reloaded_file(cluster_facet.catalog, op.key)
    ]


def _is_sent(cluster_facet: ClusterFacet) -> bool:
    """Return True if configs of brokers are sent to a Kafka cluster, and not read from ZooKeeper by the brokers."""
    target = cluster_facet.store.target()
    return target is not None and target.applies_to(KraftEntityType.BROKERS)


def deleted_unknown_keys(cluster_facet: ClusterFacet, edit: Edit) -> list[str]:
    """Return the keys that an edit deletes although no catalog and no znode has them; a Kafka cluster may have them."""
    entity = edit.entity
    if cluster_facet.name is not FacetName.CONFIGS or entity.types not in KINDS:
        return []
    keys = [op.key for op in edit.ops if op.type is OpType.DELETE]
    unknown = [key for key in keys if _definition_of(cluster_facet, entity, key) is None]
    if not unknown:
        return []
    before = stored(cluster_facet.whole.get(entity.id))
    return [key for key in unknown if key not in before]


def unknown_key_error(entity: Entity, key: str, pointer: str | None) -> InvalidConfigError:
    """Return the error of the deletion of a key that nothing has."""
    return InvalidConfigError(
        f"Unknown config name: {clipped(key)} is not a config of a {entity.types[0]}, and nothing is stored under it",
        pointer=pointer,
    )


def _definition_of(cluster_facet: ClusterFacet, entity: Entity, key: str) -> ConfigDef | None:
    if entity.types == (EntityType.BROKER,):
        return definition_of(cluster_facet.catalog, key)
    return _definitions(cluster_facet, entity).get(key)


def _definitions(cluster_facet: ClusterFacet, entity: Entity) -> Mapping[str, ConfigDef]:
    return cluster_facet.catalog.of(KINDS[entity.types])
