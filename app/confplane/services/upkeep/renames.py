"""Writing renamed configs under their new names, entity by entity, each as one audited change.

Finished entities stay finished: an entity that has the new name is passed over, so a run that was cut short can be run
again. The old names are never touched.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from confplane.domain.changes import stored
from confplane.domain.entities import Entity
from confplane.domain.errors import (
    ConcurrentChangeError,
    ConfplaneError,
    CorruptZnodeError,
    InvalidConfigError,
    InvalidRequestError,
    PolicyViolationError,
    UnknownTopicError,
)
from confplane.domain.facets import FacetName
from confplane.domain.ops import Op, OpType
from confplane.domain.renames import missing, renames
from confplane.services.changes.edits import Edit
from confplane.services.changes.entity_drafts import EntityDraft

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from confplane.domain.changes import Node
    from confplane.domain.definitions import ConfigKind
    from confplane.domain.renames import RenamedConfig
    from confplane.services.changes.alter import AlterService
    from confplane.services.changes.callers import Caller
    from confplane.services.cluster_facet import ClusterFacet
    from confplane.services.clusters import Cluster

_CHANGE_S = 30.0
"""Seconds for each entity's change."""
_OF_ONE = (
    ConcurrentChangeError,
    CorruptZnodeError,
    InvalidConfigError,
    InvalidRequestError,
    PolicyViolationError,
    UnknownTopicError,
)
"""Errors that concern only one entity."""


@dataclass(frozen=True, slots=True)
class RenameResult:
    """The result for one entity."""

    entity_id: str
    renamed: tuple[RenamedConfig, ...]
    """The configs written under a new name, or to be written; of an error, the configs that were not, as far as
    known."""
    change_id: str | None = None
    """The id of the change; None if nothing was written."""
    error: ConfplaneError | None = None


class RenameService:
    """Writes renamed configs of one cluster's topics and brokers under their new names.

    Args:
        alter: Runs the changes.
        cluster: The cluster.
        table: Renames; None is the catalog's.
    """

    def __init__(
        self, alter: AlterService, cluster: Cluster, table: Mapping[ConfigKind, Mapping[str, str]] | None = None
    ) -> None:
        self._alter = alter
        self._configs = cluster.facets[FacetName.CONFIGS]
        self._table = renames() if table is None else table

    @property
    def known(self) -> int:
        """The number of known renames."""
        return sum(len(names) for names in self._table.values())

    def lacking(self) -> list[str]:
        """Return the ids of the entities that lack a new name, or can't be read, in order; from the mirror."""
        if not self.known:
            return []
        catalog = self._configs.catalog
        return [
            node.id
            for node in self._configs.store.with_keys(self._configs.tree, FacetName.CONFIGS.value)
            if node.defect is not None or missing(catalog, Entity.from_id(node.id), node.config, self._table)
        ]

    async def run(self, entity_ids: Iterable[str], caller: Caller, *, apply: bool) -> AsyncIterator[RenameResult]:
        """Process entities one by one, and yield the result of each.

        Args:
            entity_ids: Ids from :meth:`lacking`; an entity that lacks nothing by now is left as it is.
            caller: The caller; each entity has a deadline of its own.
            apply: Write; otherwise do everything up to the write.

        Raises:
            ConfplaneError: No further work is possible now: a store is away, the cluster is frozen. Results that were
                yielded stand.
        """
        for entity_id in entity_ids:
            edit = Edit(Entity.from_id(entity_id), ())
            result, draft = await self._alter.rewrite(
                self._configs,
                edit,
                partial(self._decide, edit),
                replace(caller, deadline=time.monotonic() + _CHANGE_S),
                validate_only=not apply,
            )
            if result.error is not None and not isinstance(result.error, _OF_ONE):
                raise result.error
            renamed = draft.detail if draft else self._missing(edit.entity, self._configs.get(entity_id))
            yield RenameResult(entity_id, renamed, result.change_id, result.error)

    def _missing(self, entity: Entity, node: Node | None) -> tuple[RenamedConfig, ...]:
        return tuple(missing(self._configs.catalog, entity, stored(node), self._table))

    async def _decide(
        self,
        edit: Edit,
        cluster_facet: ClusterFacet,
        node: Node | None,
        planned: Mapping[str, Mapping[str, str]],
    ) -> EntityDraft:
        """Draft the new names that a node lacks, with the drafter of all edits of its facet."""
        renamed = self._missing(edit.entity, node)
        shown = replace(edit, ops=_ops(item for item in renamed if not item.secret))
        decide = self._alter.drafter(cluster_facet).decide(cluster_facet, shown)
        draft = await decide(cluster_facet, node, planned)
        # A value encoded under one name can be decoded under the other: a secret's encoding does not depend on its key.
        after = draft.after | {item.new: item.value for item in renamed if item.secret}
        whole = EntityDraft.of(cluster_facet, replace(edit, ops=_ops(renamed)), node, after, list(draft.warnings))
        return replace(whole, detail=renamed)


def _ops(renamed: Iterable[RenamedConfig]) -> tuple[Op, ...]:
    return tuple(Op(item.new, OpType.SET, item.value) for item in renamed)
