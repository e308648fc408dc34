"""Manifests as contents of change requests: the document and the options of a plan as plain data, without secrets."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from confplane.domain.access.operations import Operation, ResourceType
from confplane.domain.access.ranges import spell
from confplane.domain.entities import Entity
from confplane.domain.errors import InvalidRequestError
from confplane.domain.facets import FacetName
from confplane.domain.manifests import ManifestScope
from confplane.services.changes.edits import Edit, EditResult, Mode
from confplane.services.changes.stored_draft import restored_op, stored_op
from confplane.services.plans.planned import PlanOptions

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from uuid import UUID

    from confplane.domain.facets import JsonValue
    from confplane.services.changes.alter import Entry
    from confplane.services.changes.stored_draft import Fingerprint
    from confplane.services.cluster_facet import ClusterFacet
    from confplane.services.plans.planned import Plan, PlannedEdit

MOST_ENTITIES: Final = 10_000
MOST_CHANGES: Final = 1_000
"""Entities of the document, and changes, of a request."""
_FORM: Final = 2
"""The form of a content with a manifest. A process of an earlier release refuses to review or apply it."""


class ProposedManifest(NamedTuple):
    """A manifest that is proposed."""

    document: Sequence[Entry]
    options: PlanOptions
    plan_id: str | None = None
    """The plan that the author saw; None: any."""


def is_manifest(draft: Mapping[str, Any]) -> bool:
    """Return True if a content is a manifest; False for edits."""
    return "document" in draft


def check_size(manifest: ProposedManifest) -> None:
    """Refuse a document that is too large for a request.

    Raises:
        InvalidRequestError: It has too many entities.
    """
    if len(manifest.document) > MOST_ENTITIES:
        raise InvalidRequestError(
            f"The manifest has {len(manifest.document)} entities, and a change request takes {MOST_ENTITIES:,}. Split"
            " it",
            pointer="/entities",
        )


def store_manifest(plan: Plan, manifest: ProposedManifest, fingerprint: Fingerprint) -> dict[str, Any]:
    """Return a plan with its document and its options as data for JSON, without sensitive values.

    Raises:
        InvalidRequestError: The plan changes nothing, or too much.
        EncoderSecretMissingError: The fingerprint of a value is not known, so the value could not be compared later.
    """
    edits = [_stored_edit(each) for each in plan.edits if each.has_effect]
    if not edits:
        raise InvalidRequestError("The request changes nothing: the plan of the manifest is empty")
    if len(edits) > MOST_CHANGES:
        raise InvalidRequestError(
            f"The plan has {len(edits)} changes, and a change request takes {MOST_CHANGES:,}. Split the manifest",
            pointer="/entities",
        )
    bases = {each.key: _base(each) for each in plan.edits}
    options = manifest.options
    return {
        "form": _FORM,
        "edits": edits,
        "document": [
            [_stored_part(*part, bases, fingerprint) for part in entry.items()] for entry in manifest.document
        ],
        "plan": {
            "id": plan.id,
            "policies": plan.policies,
            "atomic": options.atomic,
            "scope": None if options.scope is None else str(options.scope),
            "maxDeletes": options.max_deletes,
            "prune": options.prune,
            "merge": options.merge,
            "owner": options.owner,
            "labels": dict(options.labels),
            "force": [{"id": entity_id, "key": key} for entity_id, key in sorted(options.forced)],
        },
    }


def restore_manifest(
    draft: Mapping[str, Any],
    facets: Mapping[FacetName, ClusterFacet],
    supplied: Mapping[tuple[str, str], JsonValue],
    fingerprint: Fingerprint,
) -> ProposedManifest:
    """Return the manifest of a content.

    Args:
        draft: The content.
        facets: The facets of the cluster.
        supplied: The sensitive values, by entity id and key.
        fingerprint: The cluster's fingerprints.

    Raises:
        InvalidRequestError: A sensitive value is missing, or is not the one that was decided on.
    """
    plan = draft["plan"]
    options = PlanOptions(
        plan["atomic"],
        None if plan["scope"] is None else ManifestScope.parse(plan["scope"]),
        plan["maxDeletes"],
        prune=plan["prune"],
        merge=plan.get("merge", False),  # those of earlier releases have none
        owner=plan["owner"],
        labels=plan["labels"],
        forced=frozenset((each["id"], each["key"]) for each in plan["force"]),
    )
    mode = Mode.MERGE if options.merge else Mode.REPLACE
    document: list[Entry] = []
    for number, entry in enumerate(draft["document"]):
        edits: dict[ClusterFacet, Edit | EditResult] = {}
        for part in entry:
            entity = Entity.from_id(part["entity"])
            ops = tuple(restored_op(entity, op, supplied, fingerprint) for op in part["ops"])
            edits[facets[FacetName(part["facet"])]] = Edit(entity, ops, mode, pointer=f"/entities/{number}/id")
        document.append(edits)
    return ProposedManifest(document, options)


def resources_of(draft: Mapping[str, Any]) -> list[tuple[Operation, str]]:
    """Return what an approver needs besides the entities of a content: the owner, and those of keys to take over."""
    if not is_manifest(draft) or (owner := draft["plan"]["owner"]) is None:
        return []
    taken = {before for edit in draft["edits"] for before in edit["claimed"].values() if before is not None}
    return [
        (Operation.ALTER, spell(ResourceType.MANIFESTS, owner)),
        *((Operation.TAKE_OVER, spell(ResourceType.MANIFESTS, each)) for each in sorted(taken)),
    ]


def is_complete(draft: Mapping[str, Any], places: Collection[tuple[str, str]]) -> bool:
    """Return True if committed changes of these facets and entities are all of a content. Edits are one change."""
    return not is_manifest(draft) or all((edit["facet"], edit["entity"]) in places for edit in draft["edits"])


def run_id(request_id: UUID) -> str:
    """Return the request id of all changes of a request with a manifest."""
    return f"request-{request_id}"


def _stored_edit(planned: PlannedEdit) -> dict[str, Any]:
    return {
        "facet": planned.cluster_facet.name.value,
        "entity": planned.entity.id,
        "mode": Mode.REPLACE.value,
        "ops": [],
        "reverts": [],
        **_base(planned),
        "diff": [asdict(item) for item in planned.result.diff],
        "claimed": dict(planned.claimed),
    }


def _stored_part(
    cluster_facet: ClusterFacet,
    edit: Edit | EditResult,
    bases: Mapping[tuple[FacetName, str], Mapping[str, Any]],
    fingerprint: Fingerprint,
) -> dict[str, Any]:
    if isinstance(edit, EditResult):
        raise edit.error or ValueError("an edit that can't be formed has an error")
    entity = edit.entity
    return {
        "facet": cluster_facet.name.value,
        "entity": entity.id,
        "ops": [stored_op(cluster_facet, entity, op, fingerprint) for op in edit.ops],
        **bases[cluster_facet.name, entity.id],
    }


def _base(planned: PlannedEdit) -> dict[str, Any]:
    node = planned.result.node
    if node is None:
        return {"version": None, "czxid": None, "mtime": None}
    return {"version": node.version, "czxid": node.czxid, "mtime": node.mtime_ms}
