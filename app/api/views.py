"""Domain objects as the JSON of answers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from app.api.responses import number
from app.domain import errors
from app.domain.broker_keys import definition_of
from app.domain.definitions import Kind, description
from app.domain.entities import Entity, EntityType, split_id
from app.domain.facets import FacetName
from app.domain.ops import OpType
from app.services.changes.edits import json_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from app.domain.broker_levels import EffectiveConfig
    from app.domain.changes import Node
    from app.domain.errors import ConfplaneError
    from app.domain.facets import JsonValue
    from app.services.changes.edits import EditResult
    from app.services.collections import Collection
    from app.services.ports.registrations import Registration
    from app.services.ports.rollups import RollupRun
    from app.services.ports.trail import AuditRecord
    from app.services.reads.config_describe import DescribedConfigs
    from app.services.reads.describe import Effective


def entity_data(entity_id: str) -> list[dict[str, str | None]]:
    """Return an entity in the form of the RPCs."""
    return [{"entityType": kind, "entityName": name} for kind, name in split_id(entity_id)]


def values(declared: Mapping[str, JsonValue]) -> list[dict[str, Any]]:
    """Return values in the form of the RPCs."""
    return [{"key": key, "value": number(value)} for key, value in declared.items()]


def resource(collection: Collection, entity_id: str, declared: Mapping[str, JsonValue]) -> dict[str, Any]:
    """Return a resource in the default view."""
    return {"id": entity_id, collection.facet.member: {key: number(value) for key, value in declared.items()}}


async def full_resource(
    collection: Collection,
    entity_id: str,
    stored: Mapping[str, str],
    *,
    node: Node | None,
    warnings: Sequence[str] = (),
) -> dict[str, Any]:
    """Return a resource in the full view: ``node`` as it is, ``stored`` as its map, real or planned."""
    entity = Entity.from_id(entity_id)
    declared, etag = collection.tagged(entity, stored, node)
    fingerprints = await collection.fingerprints(entity, stored)
    return {
        **resource(collection, entity_id, declared),
        "entity": entity.as_dict(),
        "status": {
            "revision": None if node is None else str(node.mzxid),
            "etag": etag,
            "updatedAt": None if node is None else timestamp(node.mtime_ms),
            "warnings": list(warnings),
            **({} if fingerprints is None else {"fingerprints": fingerprints}),
        },
    }


def effective(collection: Collection, found: Effective) -> dict[str, Any]:
    """Return the effective values with their sources."""
    return {
        "id": found.entity.id,
        "entity": found.entity.as_dict(),
        collection.facet.member: [
            {
                "key": item.key,
                "value": number(item.value),
                "source": item.source,
                "synonyms": [
                    {"source": synonym.source, "level": synonym.level, "value": number(synonym.value)}
                    for synonym in item.synonyms
                ],
            }
            for item in found.values
        ],
        "levels": [
            {
                "level": level.level,
                "id": level.entity_id,
                "reason": level.reason,
                "sharedBy": level.shared_by,
                collection.facet.member: {key: number(value) for key, value in level.declared.items()},
            }
            for level in found.levels
        ],
        "warnings": list(found.warnings),
    }


def effective_configs(found: DescribedConfigs) -> dict[str, Any]:
    """Return the effective configs of a topic or broker."""
    return {
        "id": found.entity.id,
        "entity": found.entity.as_dict(),
        "configs": [
            {
                "key": item.name,
                "value": item.value,
                "source": item.source.value,
                **_config_members(item),
                "synonyms": _synonyms(item),
            }
            for item in found.configs
        ],
        "warnings": found.warnings,
    }


def described_config(entity: Entity, item: EffectiveConfig, *, synonyms: bool, documentation: bool) -> dict[str, Any]:
    """Return one config in the form of DescribeConfigs."""
    return {
        "name": item.name,
        "value": item.value,
        "configSource": item.source.value,
        **_config_members(item),
        "synonyms": _synonyms(item) if synonyms else [],
        "documentation": _documentation(entity, item.name) if documentation else None,
    }


def _config_members(item: EffectiveConfig) -> dict[str, Any]:
    return {
        "readOnly": item.read_only,
        "isSensitive": item.sensitive,
        "configType": "UNKNOWN" if item.type is None else item.type.value,
        "assumed": item.assumed,
    }


def _synonyms(item: EffectiveConfig) -> list[dict[str, Any]]:
    return [{"name": name, "value": value, "source": source.value} for name, value, source in item.synonyms]


def _documentation(entity: Entity, name: str) -> str | None:
    if entity.types == (EntityType.TOPIC,):
        return description(Kind.TOPIC, name)
    definition = definition_of(name)
    return None if definition is None else description(Kind.BROKER, definition.name)


def timestamp(ms: int) -> str:
    """Return milliseconds since the epoch as RFC 3339 in UTC."""
    return rfc3339(datetime.fromtimestamp(ms / 1000, UTC))


def rfc3339(moment: datetime) -> str:
    """Return a moment in UTC, to the millisecond."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def error_members(error: ConfplaneError | None) -> dict[str, Any]:
    """Return the members with the error of a result among several, or of its success."""
    return {
        "errorCode": 0 if error is None else int(error.code),
        "errorName": "NONE" if error is None else error.code.name,
        "errorMessage": None if error is None else error.detail,
    }


def error_parts(error: ConfplaneError) -> list[dict[str, str]]:
    """Return the place of an error."""
    return [] if error.pointer is None else [{"pointer": error.pointer, "detail": error.detail}]


def altered(collection: Collection, result: EditResult, named: Mapping[str, Any]) -> dict[str, Any]:
    """Return one result of an alter; ``named`` are the members that name its entity."""
    error = result.error
    entry: dict[str, Any] = {
        **error_members(error),
        **named,
        "changeId": result.change_id,
        "revision": None if result.revision is None else str(result.revision),
        "diff": diff(collection, result),
        "warnings": list(result.warnings),
    }
    if error is not None:
        entry["retriable"] = error.retriable
        entry["outcome"] = None if error.outcome is None else error.outcome.value
        entry["errors"] = error_parts(error)
        if isinstance(error, errors.PreconditionFailedError):
            entry["etag"] = error.etag
        if isinstance(error, errors.OutcomeUnknownError):
            entry["changeId"] = error.change_id
    return entry


def diff(collection: Collection, result: EditResult) -> list[dict[str, Any]]:
    """Return the differences that an edit makes; a secret's values are null, and marked."""
    entity = result.edit.entity
    return [
        {
            "key": item.key,
            "before": number(json_of(collection, entity, item.key, item.before)),
            "after": number(json_of(collection, entity, item.key, item.after)),
            **({"secret": True} if item.secret else {}),
        }
        for item in result.diff
    ]


def compatibility(found: Registration) -> dict[str, Any]:
    """Return a registration in the form of a describe."""
    return {
        "clientInformation": {"softwareName": found.software_name, "softwareVersion": found.software_version},
        "supportedConfigs": list(found.supported_configs),
    }


def registration(found: Registration, first_seen: datetime, last_seen: datetime) -> dict[str, Any]:
    """Return a registration in the form of its own collection."""
    return {
        "id": found.entity_id,
        "entity": dict(split_id(found.entity_id)),
        **compatibility(found),
        "firstSeenAt": rfc3339(first_seen),
        "lastSeenAt": rfc3339(last_seen),
    }


def audit_record(record: AuditRecord) -> dict[str, Any]:
    """Return one change of the trail."""
    intent, outcome = record.intent, record.outcome
    return {
        "changeId": str(intent.change_id),
        "kind": record.kind,
        "writes": record.writes,
        "cluster": intent.cluster,
        "attempt": intent.attempt,
        "principal": intent.principal,
        "source": intent.source,
        "requestId": intent.request_id,
        "reason": intent.reason,
        "ticket": intent.ticket,
        "createdAt": rfc3339(record.created_at),
        "outcome": "open" if outcome is None else "committed" if outcome.committed else "rejected",
        "revision": None if outcome is None or outcome.revision is None else str(outcome.revision),
        "committedAt": None if outcome is None or outcome.time_ms is None else timestamp(outcome.time_ms),
        "recordedAt": None if record.recorded_at is None else rfc3339(record.recorded_at),
        "errorCode": None if outcome is None else outcome.error_code,
        "errorMessage": None if outcome is None else outcome.error,
        "entities": [
            {
                "id": entity.entity_id,
                "facet": entity.facet,
                "path": entity.path,
                "versionRead": entity.version_read,
                "version": None if outcome is None else outcome.versions.get(entity.path),
                "remade": outcome is not None and entity.path in outcome.remade,
                "keys": list(entity.keys),
                "ops": [_audited_op(entity.facet, op) for op in entity.ops],
                "before": entity.before,
                "after": entity.after,
            }
            for entity in intent.entities
        ],
    }


def _audited_op(facet: str, op: Mapping[str, Any]) -> dict[str, Any]:
    """Return an op of the trail in the form of answers.

    Outside of ``configs`` a removal has ``remove`` and a set value has no member for its type: the form that callers
    have read since the trail itself kept it. Rows of that time are answered unchanged.
    """
    shown = {name: number(value) for name, value in op.items()}
    if facet == FacetName.CONFIGS or "key" not in op:
        return shown
    kind = shown.pop("op", None)
    return {"key": op["key"], "remove": True} if kind == OpType.DELETE.name else shown


def rollup_run(run: RollupRun) -> dict[str, Any]:
    """Return a complete run of a rollup."""
    revisions = {name: run.position.get(name) for name in ("floor", "horizon", "watermark")}
    return {
        "id": str(run.id),
        "asOf": rfc3339(run.as_of),
        "startedAt": rfc3339(run.started_at),
        "finishedAt": None if run.finished_at is None else rfc3339(run.finished_at),
        "principal": run.principal,
        "rows": run.rows,
        "revisions": {name: None if found is None else str(found) for name, found in revisions.items()},
        "previous": None if run.previous is None else str(run.previous),
    }


def rollup_attempt(run: RollupRun) -> dict[str, Any]:
    """Return a run of a rollup, of any end."""
    return {
        "id": str(run.id),
        "state": run.state.value,
        "asOf": rfc3339(run.as_of),
        "startedAt": rfc3339(run.started_at),
        "finishedAt": None if run.finished_at is None else rfc3339(run.finished_at),
        "principal": run.principal,
        "error": run.error,
    }
