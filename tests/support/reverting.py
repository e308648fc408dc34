"""Reverts through the parts of one process, and the contents afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from confplane.audit import PostgresTrailHistory
from confplane.domain.changes import stored
from confplane.domain.etags import Precondition
from confplane.domain.facets import FacetName, Tree
from confplane.services.changes.callers import Caller
from confplane.services.reads.describe import DescribeService
from confplane.services.reads.history import HistoryService
from confplane.services.reverts.service import RevertSelection, RevertService
from tests.support.stores import soon

if TYPE_CHECKING:
    from confplane.domain.entities import Entity
    from confplane.services.changes.edits import EditResult
    from confplane.services.reverts.service import Reversal
    from confplane.wiring import ServiceParts
    from tests.support.replicas import Replica


def reverts_of(parts: ServiceParts) -> RevertService:
    """The service of reverts over these parts."""
    trail = PostgresTrailHistory(parts.database)
    # Registrations are no part of the past.
    history = HistoryService(trail, parts.audit, DescribeService(cast("Any", None)))
    return RevertService(parts.audit, trail, history, parts.alter)


def caller_of(principal: str = "User:admin", request_id: str = "revert") -> Caller:
    """A caller with a minute's time."""
    return Caller.operator(principal, "127.0.0.1", request_id, soon(60))


async def revert(one: Replica, change: str | UUID | RevertSelection, **given: Any) -> list[Reversal]:
    """Revert a change, or a selection of changes."""
    selection = change if isinstance(change, RevertSelection) else RevertSelection(change_id=UUID(str(change)))
    cluster = one.parts.clusters.get("default")
    done = await reverts_of(one.parts).changes(cluster, selection, given.pop("caller", caller_of()), **given)
    return done.results


async def back_to(
    one: Replica, entity: Entity, to: int, facet: FacetName = FacetName.CLIENT_QUOTAS, **given: Any
) -> EditResult:
    """Return an entity to a revision."""
    collection = one.parts.clusters.get("default").facets[facet]
    made = await reverts_of(one.parts).entity(
        collection, entity, to, caller_of(), **{"precondition": Precondition(), **given}
    )
    return made.result


async def now(one: Replica, entity: Entity, tree: Tree = Tree.CONFIG) -> dict[str, str]:
    """The config of an entity in one tree."""
    return stored(await one.store.read(tree, entity, soon(60)))


def made(result: EditResult) -> str:
    """The id of the change that a good result made."""
    assert result.error is None, result.error
    assert result.change_id is not None
    return result.change_id
