"""The details of plans: the fingerprints of new secrets, and what takes effect in place of removed keys."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from confplane.domain.access.operations import Operation
from confplane.domain.changes import stored
from confplane.domain.entities import Entity
from confplane.domain.facets import FacetName
from confplane.domain.resolution import levels_of
from confplane.services.changes.edits import json_of
from confplane.services.cooperative_yielding import TimeSlice
from confplane.services.plans.planned import KeyFallback

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confplane.services.access import Access
    from confplane.services.clusters import Cluster
    from confplane.services.plans.planned import PlannedEdit


async def completed(
    cluster: Cluster, planned: list[tuple[PlannedEdit, ...]], access: Access
) -> list[tuple[PlannedEdit, ...]]:
    """Add the fingerprints of new secrets, and what takes effect in place of removed keys."""
    after = {each.key: each.result.after for entry in planned for each in entry if each.result.diff}
    configs = {entity_id: values for (name, entity_id), values in after.items() if name is FacetName.CONFIGS}
    time_slice = TimeSlice()
    for number, entry in enumerate(planned):
        made = []
        for each in entry:
            fingerprints = await _fingerprints(each)
            fallbacks = _fallbacks(cluster, each, after, configs, access) if each.result.diff else {}
            if fingerprints or fallbacks:
                made.append(replace(each, fingerprints=fingerprints, fallbacks=fallbacks))
            else:
                made.append(each)
        planned[number] = tuple(made)
        if time_slice.due:
            await time_slice.pause()
    return planned


async def _fingerprints(planned: PlannedEdit) -> Mapping[str, str | None]:
    """Return the fingerprints of the secrets that the document sets."""
    cluster_facet, result = planned.cluster_facet, planned.result
    if not cluster_facet.facet.has_secrets or result.error is not None:
        return {}
    given = {op.key for op in result.edit.ops if op.value is not None}
    secrets = {
        key: result.after[key]
        for key in given & result.after.keys()
        if cluster_facet.facet.is_secret(planned.entity, key)
    }
    if not secrets:
        return {}
    known = await cluster_facet.fingerprints(planned.entity, secrets) or {}
    return {key: known.get(key) for key in sorted(secrets)}


def _fallbacks(
    cluster: Cluster,
    planned: PlannedEdit,
    after: Mapping[tuple[FacetName, str], Mapping[str, str]],
    configs: Mapping[str, Mapping[str, str]],
    access: Access,
) -> dict[str, KeyFallback]:
    """Return what takes effect in place of the keys that an edit removes, once the whole plan is applied."""
    entity, name = planned.entity, planned.cluster_facet.name
    removed = [item.key for item in planned.result.diff if item.key not in planned.result.after]
    if not removed:
        return {}
    if name is FacetName.CONFIGS:
        found = cluster.configs.effective_of(entity, removed, configs)
        return {each.name: KeyFallback(None if each.sensitive else each.value, str(each.source)) for each in found}
    if name is FacetName.CLIENT_CONFIGS and not access.allows(cluster.name, Operation.RESOLVE, entity.id):
        return {}
    whole = planned.cluster_facet.whole
    levels = [level.entity_id for level in levels_of(name, entity)]
    if entity.id not in levels:
        return {}
    fallbacks: dict[str, KeyFallback] = {}
    for entity_id in levels[levels.index(entity.id) + 1 :]:
        lower = Entity.from_id(entity_id)
        values = after.get((name, entity_id))
        if values is None:
            values = stored(whole.get(entity_id))
        for key in removed:
            if key in values and key not in fallbacks:
                fallbacks[key] = KeyFallback(json_of(whole, lower, key, values[key]), entity_id)
    return fallbacks
