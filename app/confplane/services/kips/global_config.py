"""KIP-5: the configs that all brokers share, which Kafka keeps as their dynamic default; and the old znode's import.

A change is merged with the stored config and checked as a whole, like every change of broker configs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from confplane.domain.broker_levels import DynamicLevel, read_level
from confplane.domain.changes import stored
from confplane.domain.errors import ConfplaneError, CorruptZnodeError, NotFoundError
from confplane.domain.etags import Precondition
from confplane.domain.facets import FacetName
from confplane.domain.global_config import ImportDecision, check_shared, decide, parse_legacy
from confplane.domain.ops import Op, OpType
from confplane.services.changes.edits import Edit
from confplane.services.changes.entity_drafts import check_node
from confplane.services.reads.config_levels import DEFAULT_BROKER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confplane.domain.changes import Node
    from confplane.domain.global_config import LegacyEntry
    from confplane.services.access import Access
    from confplane.services.changes.alter import AlterService
    from confplane.services.changes.callers import Caller
    from confplane.services.changes.edits import EditResult
    from confplane.services.cluster_facet import ClusterFacet
    from confplane.services.clusters import Cluster


@dataclass(frozen=True, slots=True)
class BrokerDefaultConfig:
    """The configs that all brokers share."""

    config: dict[str, str | None]
    """The values by key; None is a secret, or a custom config, whose meaning is unknown."""
    revision: int | None
    """The revision of the last change; None if there was none."""
    warnings: list[str]


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """The result of a trial run of the import of the old znode."""

    entries: list[LegacyEntry]
    warnings: tuple[str, ...]
    """The warnings of the change that the import would make."""
    obstacle: ConfplaneError | None
    """The reason why the import as a whole can't be done; faults of single entries are in ``entries``."""
    edit: Edit | None
    """The change; None if there is nothing to change."""


def read(cluster: Cluster, access: Access) -> BrokerDefaultConfig:
    """Return the global config, from the mirror.

    Raises:
        ForbiddenError: The caller may not describe the default of all brokers.
        CorruptZnodeError: The znode of the global config can't be read.
        UnavailableError: The mirror was never loaded.
    """
    cluster_facet = cluster.facets[FacetName.CONFIGS].visible_to(access)
    node = cluster_facet.get(DEFAULT_BROKER.id)
    cluster_facet.check_readable(DEFAULT_BROKER, node)
    config = stored(node)
    _, warnings = read_level(cluster_facet.catalog, config, DynamicLevel.DEFAULT)
    is_secret = cluster_facet.facet.is_secret
    shown = {key: None if is_secret(DEFAULT_BROKER, key) else config[key] for key in sorted(config)}
    return BrokerDefaultConfig(shown, None if node is None else node.mzxid, warnings)


async def change(
    alter: AlterService, cluster: Cluster, ops: Sequence[Op], caller: Caller, *, validate_only: bool = False
) -> EditResult:
    """Change the global config: SET and DELETE, merged with the stored config.

    Raises:
        ConfplaneError: The change is refused, or could not be made. A config that stays with each broker is refused
            before anything else; its removal is not.
    """
    check_shared((op.key, op.pointer) for op in ops if op.type is not OpType.DELETE)
    cluster_facet = cluster.facets[FacetName.CONFIGS]
    [result] = await alter.alter(cluster_facet, [Edit(DEFAULT_BROKER, tuple(ops))], caller, validate_only=validate_only)
    if result.error is not None:
        raise result.error
    return result


async def plan_import(
    alter: AlterService, cluster: Cluster, path: str, caller: Caller, *, overwrite: bool = False
) -> ImportPlan:
    """Read the old znode, and return what an import would do; writes nothing.

    Args:
        alter: Runs the change up to the write.
        cluster: The cluster.
        path: The path of the old znode, below the chroot.
        caller: The caller.
        overwrite: Replace other values of the cluster default.

    Raises:
        NotFoundError: The znode does not exist.
        CorruptZnodeError: The znode, or the cluster default, can't be read.
        UnavailableError: ZooKeeper did not answer in time.
    """
    cluster_facet = cluster.facets[FacetName.CONFIGS]
    store = cluster_facet.store
    data = await store.read_raw(path, caller.deadline)
    if data is None:
        raise NotFoundError(f"Cluster {cluster.name} has no znode {path}, so there is nothing to import")
    try:
        legacy = parse_legacy(data)
    except ValueError as fault:
        raise CorruptZnodeError(path, str(fault)) from None
    node = await store.read(cluster_facet.tree, DEFAULT_BROKER, caller.deadline)
    check_node(cluster_facet, Edit(DEFAULT_BROKER, ()), node)
    entries = decide(cluster_facet.catalog, legacy, stored(node), overwrite=overwrite)
    while True:
        edit = _edit(cluster_facet, node, entries)
        if edit is None:
            return ImportPlan(entries, (), None, None)
        [result] = await alter.alter(cluster_facet, [edit], caller, validate_only=True)
        error = result.error
        if error is None:
            return ImportPlan(entries, result.warnings, None, edit)
        # An entry that does not fit the rest is dropped; the rest is tried again.
        offender = next((op.key for op in edit.ops if op.pointer == error.pointer), None)
        if offender is None:
            return ImportPlan(entries, (), error, edit)
        entries = [
            replace(entry, decision=ImportDecision.REFUSED, reason=error.detail) if entry.key == offender else entry
            for entry in entries
        ]


async def run_import(alter: AlterService, cluster: Cluster, plan: ImportPlan, caller: Caller) -> EditResult | None:
    """Carry out the plan, as one change; None if there is nothing to change. The old znode stays.

    Raises:
        PreconditionFailedError: The cluster default was changed after the planning; nothing was written.
        ConfplaneError: The change is refused, or could not be made.
    """
    if plan.obstacle is not None:
        raise plan.obstacle
    if plan.edit is None:
        return None
    [result] = await alter.alter(cluster.facets[FacetName.CONFIGS], [plan.edit], caller)
    if result.error is not None:
        raise result.error
    return result


def _edit(cluster_facet: ClusterFacet, node: Node | None, entries: Sequence[LegacyEntry]) -> Edit | None:
    """Return the change that imports entries into the cluster default; its precondition is the default as read."""
    ops = tuple(
        Op(entry.key, OpType.SET, entry.value, f"/config/{entry.key.replace('~', '~0').replace('/', '~1')}")
        for entry in entries
        if entry.decision is ImportDecision.IMPORT
    )
    if not ops:
        return None
    etag = cluster_facet.tagged(DEFAULT_BROKER, stored(node), node)[1]
    unchanged = Precondition(if_none_match=("*",)) if etag is None else Precondition(if_match=(etag,))
    return Edit(DEFAULT_BROKER, ops, precondition=unchanged)
