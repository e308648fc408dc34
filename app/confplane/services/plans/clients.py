"""The registered clients that a plan gives other effective quotas or client configs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from confplane.domain.access.operations import Operation
from confplane.domain.changes import stored
from confplane.domain.entities import Entity
from confplane.domain.facets import FacetName
from confplane.domain.resolution import levels_of, resolve
from confplane.services.cooperative_yielding import TimeSlice

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from confplane.services.access import Access
    from confplane.services.cluster_facet import ClusterFacet
    from confplane.services.clusters import Cluster
    from confplane.services.plans.planned import Plan, PlannedEdit
    from confplane.services.ports.registrations import RegistrationLog

_FACETS: Final = (FacetName.CLIENT_QUOTAS, FacetName.CLIENT_CONFIGS)
_ALL: Final = ""


async def count_affected(cluster: Cluster, plan: Plan, registrations: RegistrationLog, access: Access) -> int:
    """Return the number of registered clients whose effective values the plan changes.

    A client is a user, or a user with a client-id. Those count that the caller may describe.
    """
    edits: dict[FacetName, dict[str, PlannedEdit]] = {name: {} for name in _FACETS}
    for each in plan.edits:
        if each.cluster_facet.name in edits and each.result.diff:
            edits[each.cluster_facet.name][each.entity.id] = each
    if not any(edits.values()):
        return 0
    described = access.allowed(cluster.name, Operation.DESCRIBE_CONFIGS)
    users = {name: _users(some) for name, some in edits.items()}
    affected = 0
    time_slice = TimeSlice()
    for client_id in registrations.registered(cluster.name, within=described):
        user = client_id.partition(",")[0]
        affected += any(
            (user in users[name] or _ALL in users[name])
            and _is_affected(cluster.facets[name], Entity.from_id(client_id), some)
            for name, some in edits.items()
        )
        if time_slice.due:
            await time_slice.pause()
    return affected


def _users(entity_ids: Iterable[str]) -> set[str]:
    """Return the user components of entities, with :data:`_ALL` for entities that may apply to clients of any user."""
    users = (entity_id.partition(",")[0] for entity_id in entity_ids)
    return {user if user.startswith("user=") else _ALL for user in users}


def _is_affected(cluster_facet: ClusterFacet, client: Entity, edits: Mapping[str, PlannedEdit]) -> bool:
    levels = levels_of(cluster_facet.name, client)
    keys = {
        item.key for level in levels if (edit := edits.get(level.entity_id)) is not None for item in edit.result.diff
    }
    if not keys:
        return False
    before = {level.entity_id: stored(cluster_facet.whole.get(level.entity_id)) for level in levels}
    after = before | {
        level.entity_id: edits[level.entity_id].result.after for level in levels if level.entity_id in edits
    }
    was, becomes = (resolve(cluster_facet.name, levels, values) for values in (before, after))
    return any(
        (was[key].value if key in was else None) != (becomes[key].value if key in becomes else None) for key in keys
    )
