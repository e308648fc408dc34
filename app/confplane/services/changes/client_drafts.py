"""Drafts of client quotas and client configs: checks of each value, then of the entity's own map as a whole."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from confplane.domain.changes import Node, apply_ops, encode_ops, stored
from confplane.domain.client_configs import group_remarks
from confplane.domain.entities import Entity, EntityType
from confplane.domain.errors import CorruptZnodeError, InvalidRequestError, WriteOutcome
from confplane.domain.facets import FacetName, full_path
from confplane.domain.quotas import check_kraft
from confplane.services.changes.edits import WHOLE, Edit, Mode
from confplane.services.changes.entity_drafts import EntityDraft, already_exists, check_node

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confplane.domain.facets import ClientFacet
    from confplane.services.changes.entity_drafts import DecideEntity
    from confplane.services.cluster_facet import ClusterFacet


class ClientDrafter:
    """The drafter of a client facet."""

    def __init__(self, facet: ClientFacet) -> None:
        self._facet = facet

    def encode(self, cluster_facet: ClusterFacet, edit: Edit) -> dict[str, str | None]:
        """Return key -> the string to store, or None for a removal."""
        self._facet.check_entity(edit.entity, pointer=edit.pointer)
        kraft = self._facet.name is FacetName.CLIENT_QUOTAS and cluster_facet.store.target() is not None
        encoded = encode_ops(self._facet, edit.entity, edit.ops, exact=kraft or edit.mode is not Mode.ALTER)
        if kraft:
            check_kraft(edit.ops, encoded)
        return encoded

    def decide(self, cluster_facet: ClusterFacet, edit: Edit) -> DecideEntity:
        """Check an edit, and return the decision of its attempts; see ``Drafter``."""
        return partial(self._draft, edit, self.encode(cluster_facet, edit))

    async def _draft(
        self,
        edit: Edit,
        encoded: Mapping[str, str | None],
        cluster_facet: ClusterFacet,
        node: Node | None,
        planned: Mapping[str, Mapping[str, str]],
    ) -> EntityDraft:
        check_node(cluster_facet, edit, node)
        entity, before = edit.entity, stored(node)
        wanted: Mapping[str, str | None] = encoded
        if edit.mode in WHOLE:
            own_before = cluster_facet.own(entity, before)
            if edit.mode is Mode.CREATE and own_before and not self._same(entity, own_before, encoded):
                raise already_exists(cluster_facet, entity)
            wanted = {**encoded, **{key: None for key in own_before if key not in encoded and key not in edit.keeps}}
        after, warnings = apply_ops(self._facet, entity, before, wanted)
        own_after = cluster_facet.own(entity, after)
        self._check_stored(cluster_facet, edit, {key: own_after[key] for key in own_after.keys() - encoded.keys()})
        pointers = {op.key: op.pointer for op in edit.ops if op.pointer is not None}
        inherited = _inherited(cluster_facet, entity, planned)
        try:
            warnings += self._facet.check_whole(entity, own_after, inherited=inherited, pointers=pointers)
        except InvalidRequestError as error:
            error.pointer = error.pointer or edit.pointer  # the stored keys contradict each other already
            raise
        if cluster_facet.name is FacetName.CLIENT_CONFIGS and cluster_facet.store.target() is not None:
            warnings += group_remarks(encoded)
        return EntityDraft.of(cluster_facet, edit, node, after, warnings)

    def _same(self, entity: Entity, before: Mapping[str, str], encoded: Mapping[str, str | None]) -> bool:
        """Return True if stored values equal new ones, by value: Kafka's tools spell some numbers differently."""
        decode = self._facet.decode
        try:
            return {key: decode(entity, key, value) for key, value in before.items()} == {
                key: None if value is None else decode(entity, key, value) for key, value in encoded.items()
            }
        except ValueError:
            return False

    def _check_stored(self, cluster_facet: ClusterFacet, edit: Edit, config: Mapping[str, str]) -> None:
        """Refuse a result that keeps a stored value no broker can read; an edit may replace or remove such a value."""
        for key, value in config.items():
            try:
                self._facet.decode(edit.entity, key, value)
            except ValueError as error:
                raise CorruptZnodeError(
                    full_path(cluster_facet.tree, edit.entity),
                    f"holds a value of {key} that is not valid ({error}); set or remove {key} in the same request",
                    pointer=edit.pointer,
                    outcome=WriteOutcome.NOT_APPLIED,
                ) from None


def _inherited(cluster_facet: ClusterFacet, entity: Entity, planned: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return this facet's keys of ``<user>`` for a ``<user, client-id>``; nothing for other entities."""
    if entity.types != (EntityType.USER, EntityType.CLIENT_ID):
        return {}
    parent = Entity(entity.components[:1])
    if parent.id in planned:
        return cluster_facet.own(parent, planned[parent.id])
    return cluster_facet.own(parent, stored(cluster_facet.get(parent.id)))
