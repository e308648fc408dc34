"""Requests that need a Kafka 4 cluster: refreshes before strong reads, waits after writes, and its report.

Client configs exist only in this service, so their reads refresh nothing.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from confplane.api.dependencies import while_valid
from confplane.api.request_context import REQUEST_CONTEXT
from confplane.api.responses import timestamp
from confplane.domain.access.operations import Operation
from confplane.domain.entities import EntityType
from confplane.domain.errors import ConfplaneError, UnavailableError
from confplane.domain.facets import FacetName
from confplane.services.kraft.apply.apply_status import FACETS, PENDING
from confplane.services.kraft.refresh import no_brokers
from confplane.services.ports.kafka import KraftEntityType
from confplane.services.ports.observation_report import parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from confplane.api.dependencies import Call
    from confplane.api.request_context import RequestContext
    from confplane.domain.changes import Node
    from confplane.domain.entities import Entity
    from confplane.services.changes.edits import EditResult
    from confplane.services.cluster_facet import ClusterFacet
    from confplane.services.kraft.apply.apply_status import ApplyStatus
    from confplane.services.ports.observation_report import ApplyReport, EntityTypeReport, ListedNames
    from confplane.services.ports.observed_topics import ObservedTopics
    from confplane.services.ports.store import ClusterStore

_ENTITY_TYPES: Final[Mapping[FacetName, tuple[KraftEntityType, ...]]] = {
    FacetName.CLIENT_QUOTAS: (KraftEntityType.QUOTAS,),
    FacetName.CLIENT_CONFIGS: (),
    FacetName.CONFIGS: (
        KraftEntityType.BROKERS,
        KraftEntityType.GROUPS,
        KraftEntityType.CLIENT_METRICS,
        KraftEntityType.TOPICS,
    ),
}


async def refresh_facet(call: Call, name: FacetName) -> None:
    """Refresh all entities of a facet. Errors are those of :func:`_refresh`."""
    await _refresh(call, entity_types=_ENTITY_TYPES[name])


async def refresh_entity(call: Call, name: FacetName, entity: Entity) -> None:
    """Refresh one entity. Errors are those of :func:`_refresh`."""
    if _ENTITY_TYPES[name]:
        await _refresh(call, entity)


async def refresh_levels(call: Call, name: FacetName, entities: Iterable[Entity]) -> None:
    """Refresh entities of a facet and the levels that they inherit from. Errors are those of :func:`_refresh`.

    Quotas inherit from other quotas. Topics and brokers inherit from all brokers.
    """
    if name is FacetName.CLIENT_QUOTAS:
        await _refresh(call, entity_types=(KraftEntityType.QUOTAS,))
    elif name is FacetName.CONFIGS:
        named = list(entities)
        kinds = {each.types[0] for each in named}
        brokers = (KraftEntityType.BROKERS,) if kinds & {EntityType.TOPIC, EntityType.BROKER} else ()
        await _refresh(call, *(each for each in named if each.types[0] is not EntityType.BROKER), entity_types=brokers)


async def _refresh(call: Call, *entities: Entity, entity_types: Sequence[KraftEntityType] = ()) -> None:
    """Refresh from the cluster if the request asks for strong consistency and the cluster is observed.

    Args:
        call: The request; its ``observed_at`` is set.
        entities: The entities that are read.
        entity_types: Entity types that are read completely.

    Raises:
        ForbiddenError: The caller may not describe an entity.
        LimitExceededError: Too many requests of the caller are waiting.
        UnauthenticatedError: The caller's token was revoked during the refresh.
        UnavailableError: The cluster is unavailable or does not return the entities.
    """
    if not call.strong or call.cluster.store.target() is None or not (entities or entity_types):
        return
    for entity in entities:
        call.access.require(call.cluster.name, Operation.DESCRIBE_CONFIGS, entity.id)
    context: RequestContext = call.request.scope[REQUEST_CONTEXT]
    with nullcontext() if context.allowance is None else context.allowance.wait():
        await while_valid(call.access, _refresh_observed(call, entities, entity_types, context.deadline))


async def _refresh_observed(
    call: Call, entities: Sequence[Entity], entity_types: Sequence[KraftEntityType], deadline: float
) -> None:
    refresher = call.cluster.refresher
    if refresher is None:
        raise no_brokers(call.cluster.name)
    refreshed = await refresher.refresh(entities, entity_types, deadline)
    call.observed_at = None if refreshed is None else refreshed.observed_at


async def read_status(call: Call, cluster_facet: ClusterFacet, nodes: Sequence[Node]) -> dict[str, dict[str, Any]]:
    """Return the member ``applied`` of nodes by entity id. Empty if nothing is applied or Postgres is unavailable."""
    waiter = call.cluster.apply_waiter
    if not waiter.applies or cluster_facet.name not in FACETS:
        return {}
    try:
        return _members(await waiter.statuses(nodes))
    except UnavailableError:
        return {}  # a read continues without Postgres


async def wait_for_status(call: Call, written: Iterable[tuple[ClusterFacet, EditResult]]) -> dict[str, dict[str, Any]]:
    """Wait until the results of a write are applied, if the request asks for it.

    The write is already committed, so this never fails: a caller that has too many waits, or whose credential expires
    during the wait, gets its response immediately.

    Returns:
        The member ``applied`` by entity id, of the results that are applied to a Kafka cluster.
    """
    waiter = call.cluster.apply_waiter
    if call.wait_applied_s is None or not waiter.applies:
        return {}
    revisions = {
        result.edit.entity.id: result.revision
        for cluster_facet, result in written
        if cluster_facet.name in FACETS and result.revision is not None and result.node is not None
    }
    if not revisions:
        return {}
    context: RequestContext = call.request.scope[REQUEST_CONTEXT]
    deadline = min(time.monotonic() + call.wait_applied_s, context.deadline)
    try:
        with nullcontext() if context.allowance is None else context.allowance.wait():
            return _members(await while_valid(call.access, waiter.wait(revisions, deadline)))
    except ConfplaneError:
        return _members(dict.fromkeys(revisions, PENDING))


def _members(statuses: dict[str, ApplyStatus]) -> dict[str, dict[str, Any]]:
    return {entity_id: {"applied": status_json(each)} for entity_id, each in statuses.items()}


def status_json(status: ApplyStatus) -> dict[str, Any]:
    """Return an apply status as JSON has it."""
    return {
        "state": status.state.value,
        "revision": None if status.revision is None else str(status.revision),
        "code": status.code,
        "message": status.message,
        "refusedKeys": [
            {"key": key, "code": each.code, "message": each.text} for key, each in sorted(status.refused_keys.items())
        ],
    }


async def target_data(store: ClusterStore, topics: ObservedTopics, *, named: bool) -> dict[str, Any]:
    """Return the target of a cluster and its observation, for ``GET /v1/clusters/{cluster}``.

    Args:
        store: The cluster's store.
        topics: The table of topics.
        named: The caller may see the names of entities, and the addresses and ids in the text of a problem.
    """
    target = store.target()
    report = None if target is None else parse(store.observation())
    return {
        "kind": "zookeeper" if target is None else "kraft",
        "mode": None if target is None else target.mode.value,
        "modes": None
        if target is None
        else {entity_type.value: mode.value for entity_type, mode in target.modes_by_entity_type.items()},
        "clusterId": None if target is None else target.cluster_id,
        "imported": None if target is None else target.imported,
        "paused": None if target is None else target.paused,
        "release": None if report is None else report.release or None,
        "metadataVersion": None if report is None else report.metadata_version or None,
        "reportedAt": None if report is None else timestamp(report.at),
        "logOffset": None if report is None or report.followed_offset is None else str(report.followed_offset),
        "logProblem": None if report is None else _problem(report.log_problem, named=named),
        "problem": None if report is None else _problem(report.problem, named=named),
        "areas": None
        if report is None
        else {
            entity_type.value: _entity_type_data(report.areas[entity_type], named=named)
            for entity_type in KraftEntityType
            if entity_type in report.areas
        },
        "topics": None if target is None else await _topics(store.name, topics),
        "applying": None if report is None or report.applying is None else _applying(report.applying, named=named),
    }


async def _topics(cluster: str, topics: ObservedTopics) -> dict[str, Any] | None:
    try:
        poll = await topics.poll(cluster)
    except UnavailableError:
        return None
    return None if poll is None else poll.as_json(datetime.now(UTC))


def _applying(report: ApplyReport, *, named: bool) -> dict[str, Any]:
    return {
        "pending": report.pending,
        "waitingMs": report.waiting_ms,
        "unknown": _names(report.unknown, named=named),
        "refused": _names(report.refused, named=named),
        "held": _names(report.held, named=named),
        "contested": _names(report.contested, named=named),
        "extra": _names(report.extra, named=named),
        "problem": _problem(report.problem, named=named),
    }


def _entity_type_data(report: EntityTypeReport, *, named: bool) -> dict[str, Any]:
    return {
        "permission": report.permission.value,
        "reason": _problem(report.reason, named=named),
        "observedAt": None if report.observed_at is None else timestamp(report.observed_at),
        "entities": report.entities,
        "unmanaged": _names(report.unmanaged, named=named),
        "hidden": _names(report.hidden, named=named),
        "denied": _names(report.denied, named=named),
        "ineffective": _names(report.ineffective, named=named),
        "problem": _problem(report.problem, named=named),
    }


def _names(names: ListedNames, *, named: bool) -> dict[str, Any]:
    first = names.first if named else ()
    return {"count": names.count, "first": [{"name": name, "reason": reason} for name, reason in first]}


def _problem(text: str, *, named: bool) -> str | None:
    """Return a text that may have names in it, or None if it is empty."""
    if not text:
        return None
    return text if named else "Only callers who may describe the whole cluster see the reason"
