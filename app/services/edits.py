"""Edits: what a request asks of one entity, planned against a node as it was read.

Planning is pure, so the same code serves the real thing, ``validateOnly``, and the next attempt after a conflict.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from app.domain.changes import Difference, Node, Op, apply_ops, difference, encode_ops
from app.domain.entities import Entity, EntityType
from app.domain.errors import AlreadyExistsError, ConfplaneError, CorruptZnodeError, WriteOutcome
from app.services.etags import Precondition, etag_of
from app.services.ports import EntityWrite, IntentEntity, full_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from app.domain.facets import JsonValue
    from app.services.clusters import Collection


class Mode(StrEnum):
    """What an edit does with the facet's keys that it does not name."""

    ALTER = "alter"
    """They stay."""
    REPLACE = "replace"
    """They are removed; PUT, and DELETE with nothing named."""
    CREATE = "create"
    """There must be none, or exactly the ones named; POST."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One entity's part of a request."""

    entity: Entity
    ops: tuple[Op, ...]
    mode: Mode = Mode.ALTER
    precondition: Precondition = field(default_factory=Precondition)
    pointer: str | None = None


@dataclass(frozen=True, slots=True)
class EditResult:
    """What became of one edit. ``error`` is None on success."""

    edit: Edit
    error: ConfplaneError | None = None
    change_id: str | None = None
    revision: int | None = None
    diff: tuple[Difference, ...] = ()
    warnings: tuple[str, ...] = ()
    node: Node | None = None
    """The node afterwards; None where there is none."""
    created: bool = False
    """The facet had no key before and has some now."""
    after: dict[str, str] = field(default_factory=dict)
    """The whole map as it is stored, or would be under ``validateOnly``."""

    def declared(self, collection: Collection) -> dict[str, JsonValue]:
        """Return the facet's keys afterwards, as JSON answers them."""
        decode = collection.facet.decode
        return {key: decode(key, value) for key, value in collection.own(self.edit.entity, self.after).items()}


@dataclass(frozen=True, slots=True)
class Plan:
    """The decision on one edit, given the node that was read."""

    edit: Edit
    node: Node | None
    after: dict[str, str]
    diff: tuple[Difference, ...]
    warnings: tuple[str, ...]
    created: bool

    @property
    def expected(self) -> int | None:
        """The version that was read; None is absent."""
        return None if self.node is None else self.node.version

    def write(self, collection: Collection) -> EntityWrite:
        """Return the config node to be written."""
        extra = None if self.node is None else self.node.extra
        return EntityWrite(collection.tree, self.edit.entity, self.expected, self.after, extra)

    def intent(self, collection: Collection) -> IntentEntity:
        """Return what the trail keeps of it, without secrets."""
        entity = self.edit.entity
        return IntentEntity(
            entity_id=entity.id,
            facet=collection.name.value,
            path=full_path(collection.tree, entity),
            version_read=self.expected,
            czxid_read=None if self.node is None else self.node.czxid,
            keys=tuple(item.key for item in self.diff),
            ops=_recorded_ops(self.edit),
            before=_redacted(collection, entity, {} if self.node is None else self.node.config),
            after=_redacted(collection, entity, self.after),
        )


def encode(collection: Collection, edit: Edit) -> dict[str, str | None]:
    """Check an edit on its own: its entity and its values.

    Raises:
        InvalidRequestError: With a JSON pointer.
    """
    collection.facet.check_entity(edit.entity, pointer=edit.pointer)
    return encode_ops(collection.facet, edit.entity, edit.ops, exact=edit.mode is not Mode.ALTER)


def plan(
    collection: Collection,
    edit: Edit,
    encoded: Mapping[str, str | None],
    node: Node | None,
    *,
    planned: Mapping[str, Mapping[str, str]],
) -> Plan:
    """Decide what an edit makes of a node.

    Args:
        collection: The facet and its cluster.
        edit: The edit.
        encoded: What :func:`encode` made of it.
        node: The entity's node as read; None when absent.
        planned: Entity id -> resulting map of the edits before it in the same atomic batch.

    Raises:
        CorruptZnodeError: The node can't be read, can't be written back without loss, or would keep a broken value.
        PreconditionFailedError: The precondition does not hold.
        AlreadyExistsError: A create met other content.
        InvalidRequestError: The resulting map contradicts itself.
    """
    entity = edit.entity
    if node is not None and node.defect is not None:
        raise CorruptZnodeError(full_path(collection.tree, entity), node.defect, outcome=WriteOutcome.NOT_APPLIED)
    before = {} if node is None else node.config
    own_before = collection.own(entity, before)
    if edit.precondition.demands:
        edit.precondition.check(_etag(collection, entity, node))
    wanted = dict(encoded)
    if edit.mode is not Mode.ALTER:
        if edit.mode is Mode.CREATE and own_before and not _same(collection, own_before, encoded):
            raise AlreadyExistsError(
                f"{entity.id} already has {collection.name} of other content; use PUT to replace them",
                outcome=WriteOutcome.NOT_APPLIED,
            )
        wanted.update({key: None for key in own_before if key not in encoded})
    after, warnings = apply_ops(collection.facet, entity, before, wanted)
    own_after = collection.own(entity, after)
    _check_stored(collection, entity, {key: own_after[key] for key in own_after.keys() - encoded.keys()})
    warnings += collection.facet.check_whole(
        entity, own_after, inherited=_inherited(collection, entity, planned), pointer=edit.pointer
    )
    return Plan(
        edit=edit,
        node=node,
        after=after,
        diff=tuple(difference(before, after)),
        warnings=tuple(warnings),
        created=bool(own_after) and not own_before,
    )


def _etag(collection: Collection, entity: Entity, node: Node | None) -> str | None:
    try:
        return etag_of(collection.declared(entity, node))
    except ValueError:
        # The content can't be shown, so nobody can hold an ETag of it; an unconditional write may still mend it.
        return '"undecodable"'


def _same(collection: Collection, stored: Mapping[str, str], encoded: Mapping[str, str | None]) -> bool:
    """Say whether stored values equal new ones; by value, since Kafka's tools spell some numbers in another way."""
    decode = collection.facet.decode
    try:
        return {key: decode(key, value) for key, value in stored.items()} == {
            key: None if value is None else decode(key, value) for key, value in encoded.items()
        }
    except ValueError:
        return False


def _check_stored(collection: Collection, entity: Entity, config: Mapping[str, str]) -> None:
    """Refuse a result that keeps a stored value no broker can read; an edit that replaces or removes it passes."""
    for key, value in config.items():
        try:
            collection.facet.decode(key, value)
        except ValueError as error:
            raise CorruptZnodeError(
                full_path(collection.tree, entity),
                f"holds a value of {key} that is none ({error}); set or remove {key} in the same request",
                outcome=WriteOutcome.NOT_APPLIED,
            ) from None


def _inherited(collection: Collection, entity: Entity, planned: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return this facet's keys of ``<user>`` for a ``<user, client-id>``; of nothing for other entities."""
    if entity.types != (EntityType.USER, EntityType.CLIENT_ID):
        return {}
    parent = Entity(entity.components[:1])
    if parent.id in planned:
        return collection.own(parent, planned[parent.id])
    node = collection.store.get(collection.tree, parent.id)
    return {} if node is None else collection.own(parent, node.config)


def _redacted(collection: Collection, entity: Entity, config: Mapping[str, str]) -> dict[str, str | None]:
    """Keep this facet's values; of all other keys (SCRAM credentials, unknown ones) only that they are there."""
    owns = collection.facet.owns
    return {key: value if owns(entity, key) else None for key, value in config.items()}


def _recorded_ops(edit: Edit) -> tuple[dict[str, Any], ...]:
    return tuple(op.as_json() for op in edit.ops) if edit.ops or edit.mode is Mode.ALTER else ({"removeAll": True},)
