"""Manifests as clients send them: their entities as entries of edits, and the options of their plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from confplane.domain.entities import Entity
from confplane.domain.errors import InvalidRequestError
from confplane.domain.manifests import FACETS, ManifestScope
from confplane.domain.ops import Op, OpType
from confplane.domain.texts import shown, step
from confplane.services.changes.edits import Edit, EditResult, Mode
from confplane.services.cooperative_yielding import in_slices
from confplane.services.plans.planned import PlanOptions

if TYPE_CHECKING:
    from confplane.api.dependencies import Call
    from confplane.api.manifests import models
    from confplane.services.changes.alter import Entry
    from confplane.services.cluster_facet import ClusterFacet

_FIELDS: Final = {"quotas": "quotas", "client_configs": "clientConfigs", "configs": "configs"}


async def document_of(call: Call, body: models.ManifestDocument) -> list[Entry]:
    """Return the entities of a manifest as entries.

    Raises:
        InvalidRequestError: The manifest is of another cluster.
    """
    if body.cluster and body.cluster != call.cluster.name:
        raise InvalidRequestError(
            f"The manifest is of the cluster {shown(body.cluster)}, and this request of {call.cluster.name!r}",
            pointer="/cluster",
        )
    return await in_slices(lambda item: _entry(call, *item), enumerate(body.entities))


def _entry(call: Call, index: int, item: models.ManifestEntity) -> Entry:
    pointer = f"/entities/{index}"
    entity = Entity(())
    error: InvalidRequestError | None = None
    given = [name for name in _FIELDS if name in item.model_fields_set]
    if not given:
        members = ", ".join(_FIELDS.values())
        error = InvalidRequestError(f"The entity needs one of {members}, as its type has them", pointer=pointer)
    try:
        entity = Entity.from_id(item.id, pointer=f"{pointer}/id")
    except InvalidRequestError as refusal:
        error = refusal
    edits: dict[ClusterFacet, Edit | EditResult] = {}
    for name in given or ["configs"]:
        member = _FIELDS[name]
        ops = tuple(
            Op(key, OpType.SET, value, f"{pointer}/{member}{step(key)}") for key, value in getattr(item, name).items()
        )
        edit = Edit(entity, ops, Mode.REPLACE, pointer=f"{pointer}/id")
        edits[call.cluster.facets[FACETS[member]]] = edit if error is None else EditResult(edit, error)
    return edits


def options_of(body: models.PlanManifest) -> PlanOptions:
    """Return the options of a plan.

    Raises:
        InvalidRequestError: The options contradict each other.
    """
    scope = None if body.scope is None else ManifestScope.parse(body.scope, pointer="/scope")
    if scope is not None and not body.prune:
        raise InvalidRequestError("scope is an option of prune: prune deletes what is in the scope", pointer="/scope")
    if body.prune and scope is None and body.owner is None:
        raise InvalidRequestError("prune needs an owner or a scope, whose entities it deletes", pointer="/prune")
    for member in ("labels", "force"):
        if getattr(body, member) and body.owner is None:
            raise InvalidRequestError(f"{member} needs an owner", pointer=f"/{member}")
    if body.max_deletes is not None and not body.prune:
        raise InvalidRequestError("maxDeletes is an option of prune", pointer="/maxDeletes")
    return PlanOptions(
        body.atomic,
        scope,
        body.max_deletes,
        prune=body.prune,
        owner=body.owner,
        labels=body.labels,
        forced=frozenset((each.id, each.key) for each in body.force),
    )
