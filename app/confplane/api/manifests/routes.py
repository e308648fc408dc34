"""Manifests: their plans."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import orjson
from starlette.responses import Response

from confplane.api import batches
from confplane.api.dependencies import Call, CallDep, Consistency
from confplane.api.manifests import models
from confplane.api.refresh import refresh_facet
from confplane.api.responses import number
from confplane.api.routing.operations import partly, read
from confplane.api.routing.routes import Routes
from confplane.domain.entities import Entity
from confplane.domain.errors import ConfplaneError, InvalidRequestError
from confplane.domain.manifests import FACETS, ManifestScope
from confplane.domain.ops import Op, OpType
from confplane.domain.texts import shown, step
from confplane.services.changes.alter import Entry, EntryPart
from confplane.services.changes.edits import Edit, EditResult, EntryResult, Mode
from confplane.services.cooperative_yielding import in_slices
from confplane.services.limits import LimitClass
from confplane.services.plans.plan import Plan, PlannedEdit, PlanOptions

routes = Routes("/v1/clusters/{cluster}/manifests", tag="manifests")

_FIELDS: Final = {"quotas": "quotas", "client_configs": "clientConfigs", "configs": "configs"}


@routes.post(
    ":plan",
    read(
        "Plan a manifest: what an apply would create, change and delete",
        partly(models.ManifestPlan, "Some entities are refused"),
        limit=LimitClass.BULK,
        tagged=False,
        problems=(404, 409, 413, 422),
        problem=models.PlanProblem,
    ),
    checks=[Consistency],
)
async def plan_manifest(call: CallDep, body: models.PlanManifest) -> Response:
    """Each facet that an entity of the manifest names is to have exactly the keys of the manifest; other facets stay.

    Nothing is stored. Each entity needs DESCRIBE_CONFIGS only; `mayAlter` tells which entities the caller may alter.
    """
    call.charge(LimitClass.BULK, len(body.entities))
    document, options = await _document(call, body), _options(body)
    for name in call.cluster.facets:
        await refresh_facet(call, name)
    plan = await call.services.plans.plan(call.cluster, document, options, call.caller)
    errors = [each.error for each in await in_slices(_result, plan.entries)]
    answer = {
        "throttleTimeMs": call.throttle_ms(LimitClass.BULK),
        "failed": sum(error is not None for error in errors),
        **await _rendered(plan),
    }
    return batches.multi_status_response(call.request, answer, errors)


async def _document(call: Call, body: models.ManifestDocument) -> list[Entry]:
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
    parts = []
    for name in given or ["configs"]:
        member = _FIELDS[name]
        ops = tuple(
            Op(key, OpType.SET, value, f"{pointer}/{member}{step(key)}") for key, value in getattr(item, name).items()
        )
        edit = Edit(entity, ops, Mode.REPLACE, pointer=f"{pointer}/id")
        parts.append(EntryPart(call.cluster.facets[FACETS[member]], edit if error is None else EditResult(edit, error)))
    return tuple(parts)


def _options(body: models.PlanManifest) -> PlanOptions:
    """Return the options of a plan.

    Raises:
        InvalidRequestError: The options contradict each other.
    """
    scope = None if body.scope is None else ManifestScope.parse(body.scope, pointer="/scope")
    if body.prune != (scope is not None):
        raise InvalidRequestError("prune and scope go together: prune deletes what is in the scope", pointer="/prune")
    if body.max_deletes is not None and not body.prune:
        raise InvalidRequestError("maxDeletes is an option of prune", pointer="/maxDeletes")
    return PlanOptions(body.atomic, scope, body.max_deletes)


def _result(entry: tuple[PlannedEdit, ...]) -> EntryResult:
    return EntryResult(tuple(each.result for each in entry))


async def _rendered(plan: Plan) -> dict[str, Any]:
    """Return the members of an answer with a plan."""
    actions = Counter("refused" if each.result.error is not None else each.action for each in plan.edits)
    shown_edits = [each for each in plan.edits if each.action != "none" or each.result.error or each.result.warnings]
    return {
        "planId": plan.id,
        "revision": str(plan.revision),
        "summary": {name: actions[name] for name in ("create", "update", "delete", "none", "refused")},
        "refusal": None if plan.refusal is None else _refusal(plan.refusal),
        "changes": await in_slices(lambda each: orjson.Fragment(orjson.dumps(_change(each))), shown_edits),
    }


def _refusal(error: ConfplaneError) -> dict[str, str]:
    return {"pointer": error.pointer or "", "detail": error.detail}


def _change(planned: PlannedEdit) -> dict[str, Any]:
    named = {
        "id": planned.entity.id,
        "facet": planned.cluster_facet.name.value,
        "action": planned.action,
        "pruned": planned.pruned,
        "mayAlter": planned.may_alter,
    }
    differences = batches.diff(planned.cluster_facet, planned.result)
    for each in differences:
        key = each["key"]
        if key in planned.fingerprints:
            each["fingerprint"] = planned.fingerprints[key]
        if (fallback := planned.fallbacks.get(key)) is not None:
            each["fallback"] = {"value": number(fallback.value), "source": fallback.source}
    return batches.altered_entry(EntryResult((planned.result,)), named, differences)
