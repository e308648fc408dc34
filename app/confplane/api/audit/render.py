"""Changes of the trail as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confplane.api.responses import number, reverts, timestamp
from confplane.domain.facets import FacetName
from confplane.domain.ops import OpType
from confplane.domain.texts import rfc3339

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confplane.services.ports.refusals import StoredAttempt
    from confplane.services.ports.trail import AuditRecord, ObservedRange


def audit_record(record: AuditRecord) -> dict[str, Any]:
    """Return one change of the trail."""
    intent, outcome = record.intent, record.outcome
    return {
        "changeId": str(intent.change_id),
        "kind": record.kind,
        "writes": record.writes,
        "observed": None if intent.observed is None else _observation(intent.observed),
        "reverts": reverts(intent),
        "revertAt": None if intent.revert_at is None else rfc3339(intent.revert_at),
        "ends": None if intent.ends is None else str(intent.ends),
        "applies": None if intent.applies is None else str(intent.applies),
        "cluster": intent.cluster,
        "attempt": intent.attempt,
        "principal": intent.principal,
        "onBehalfOf": intent.behalf_of,
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
        "partial": record.partial,
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


def audit_refusal(stored: StoredAttempt) -> dict[str, Any]:
    """Return a refused attempt."""
    attempt = stored.attempt
    return {
        "id": str(stored.id),
        "cluster": attempt.cluster,
        "principal": attempt.principal,
        "onBehalfOf": attempt.behalf_of,
        "operation": attempt.operation,
        "entity": attempt.entity_id,
        "keys": list(attempt.keys),
        "errorCode": attempt.error_code,
        "problem": f"/problems/{attempt.problem}",
        "requestId": attempt.request_id,
        "time": timestamp(stored.time_ms),
        "count": attempt.count,
    }


def _observation(observed: ObservedRange) -> dict[str, Any]:
    return {
        "after": None if observed.after is None else str(observed.after),
        "until": str(observed.until),
        "at": timestamp(observed.at_ms),
        "exact": observed.exact,
        "writes": observed.writes,
    }


def _audited_op(facet: str, op: Mapping[str, Any]) -> dict[str, Any]:
    """Return an op of the trail in the form of answers.

    Outside ``configs``, a removal has ``remove`` and a set value has no member for its type. The trail once stored this
    form, so clients already read it. Rows from that time are returned unchanged.
    """
    shown = {name: number(value) for name, value in op.items()}
    if facet == FacetName.CONFIGS or "key" not in op:
        return shown
    kind = shown.pop("op", None)
    return {"key": op["key"], "remove": True} if kind == OpType.DELETE.name else shown
