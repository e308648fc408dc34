"""Change requests as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confplane.api.responses import number
from confplane.domain.entities import Entity
from confplane.domain.facets import FacetName
from confplane.domain.texts import rfc3339
from confplane.services.changes.edits import json_of
from confplane.services.changes.stored_draft import to_supply
from confplane.services.requests.manifests import is_manifest, run_id
from confplane.services.requests.participants import approvals_of_rules, lacking

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime
    from uuid import UUID

    from confplane.services.clusters import Cluster
    from confplane.services.ports.change_requests import ChangeRequest, GivenApproval, Participant, RequestEvent
    from confplane.services.requests.participants import RuleApprovals


def summary(request: ChangeRequest) -> dict[str, Any]:
    """Return a request without its content."""
    return {
        "id": str(request.id),
        "kind": request.kind.value,
        "state": request.state.value,
        "revision": request.revision,
        "digest": request.digest,
        "author": _person(request.authors[-1]),
        "reason": request.reason,
        "ticket": request.ticket,
        "entities": list(request.entity_ids),
        "createdAt": rfc3339(request.created_at),
        "expiresAt": _time(request.expires_at),
        "applyAt": _time(request.apply_at),
        "approvals": [_approval(each) for each in request.approvals],
        "requirements": [str(each) for each in lacking(request, request.approvals)],
        "changeId": _text(request.change_id),
        "reverts": _text(request.reverts),
        "revertedBy": _text(request.reverted_by),
        "error": request.error,
    }


def whole(cluster: Cluster, request: ChangeRequest, events: Iterable[RequestEvent]) -> dict[str, Any]:
    """Return a request with its content and its events."""
    return {
        **summary(request),
        "authors": [_person(each) for each in request.authors],
        "warnings": list(request.warnings),
        "approvalRules": [_rule(each) for each in approvals_of_rules(request)],
        "changes": [_change(cluster, edit) for edit in request.draft["edits"]],
        "manifest": _manifest(request) if is_manifest(request.draft) else None,
        "toSupply": [{"id": entity_id, "key": key} for entity_id, key in to_supply(request.draft)],
        "differences": list(request.differences),
        "events": [_event(each) for each in events],
    }


def _approval(given: GivenApproval) -> dict[str, Any]:
    return {**_person(given.approver), "at": rfc3339(given.at)}


def _rule(found: RuleApprovals) -> dict[str, Any]:
    requirement, given = found.requirement, found.given
    return {
        "rule": requirement.rule,
        "count": requirement.count,
        "approvers": list(requirement.approvers.texts),
        "entities": found.entity_ids,
        "given": [_approval(each) for each in given],
        "missing": max(0, requirement.count - len(given)),
    }


def _change(cluster: Cluster, edit: Mapping[str, Any]) -> dict[str, Any]:
    cluster_facet, entity = cluster.facets[FacetName(edit["facet"])], Entity.from_id(edit["entity"])

    claimed: Mapping[str, str | None] = edit.get("claimed", {})

    def shown(key: str, value: str | None) -> Any:
        return number(json_of(cluster_facet, entity, key, value))

    return {
        "facet": edit["facet"],
        "id": entity.id,
        "mode": edit["mode"],
        "diff": [
            {
                "key": item["key"],
                "before": shown(item["key"], item["before"]),
                "after": shown(item["key"], item["after"]),
                **({"secret": True} if item["secret"] else {}),
            }
            for item in edit["diff"]
        ],
        **({"claimed": [{"key": key, "owner": owner} for key, owner in claimed.items()]} if claimed else {}),
    }


def _manifest(request: ChangeRequest) -> dict[str, Any]:
    plan = request.draft["plan"]
    return {"planId": plan["id"], "runId": run_id(request.id), **{name: plan[name] for name in plan if name != "id"}}


def _event(event: RequestEvent) -> dict[str, Any]:
    return {
        "action": event.action,
        "at": rfc3339(event.at),
        "principal": event.principal,
        "behalfOf": event.behalf_of,
        "text": event.text,
        "revision": event.revision,
        "state": event.state.value,
    }


def _person(participant: Participant) -> dict[str, Any]:
    identity = participant.identity
    return {"principal": identity.principal, "behalfOf": identity.acts_for}


def _text(request_id: UUID | None) -> str | None:
    return None if request_id is None else str(request_id)


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else rfc3339(moment)
