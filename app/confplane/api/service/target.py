"""The target of a cluster and its observation, as returned by ``GET /v1/clusters/{cluster}``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from confplane.api.responses import timestamp
from confplane.domain.errors import UnavailableError
from confplane.services.ports.kafka import KraftEntityType
from confplane.services.ports.observation_report import parse

if TYPE_CHECKING:
    from confplane.services.ports.observation_report import ApplyReport, EntityTypeReport, ListedNames
    from confplane.services.ports.observed_topics import ObservedTopics
    from confplane.services.ports.store import ClusterStore


async def target_data(store: ClusterStore, topics: ObservedTopics, *, named: bool) -> dict[str, Any]:
    """Return the target of a cluster.

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
