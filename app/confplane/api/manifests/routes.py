"""Manifests: their plans, and the applies of plans."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import orjson
from starlette.responses import Response

from confplane.api import batches, kraft, problems
from confplane.api.dependencies import Call, CallDep, Consistency
from confplane.api.manifests import models
from confplane.api.manifests.export import YAML, export
from confplane.api.resources.filters import ListFilters, Owner
from confplane.api.responses import consistency_headers, number, written_revision
from confplane.api.routing.bounded import extended_response
from confplane.api.routing.operations import ResponseSpec, change, partly, read
from confplane.api.routing.routes import Routes
from confplane.api.routing.write_headers import BreakGlass
from confplane.api.schedules import Temporary
from confplane.api.services import AppliesDep, PlansDep, RegistrationsDep, ResourceReadsDep
from confplane.domain.entities import Entity
from confplane.domain.errors import ConfplaneError, InvalidRequestError
from confplane.domain.manifests import FACETS, ManifestScope
from confplane.domain.ops import Op, OpType
from confplane.domain.texts import shown, step
from confplane.services.changes.alter import Entry
from confplane.services.changes.edits import Edit, EditResult, EntryResult, Mode
from confplane.services.cluster_facet import ClusterFacet
from confplane.services.cooperative_yielding import TimeSlice, in_slices
from confplane.services.kraft.apply.apply_status import FACETS as APPLIED_FACETS
from confplane.services.limits import LimitClass
from confplane.services.plans.clients import count_affected
from confplane.services.plans.planned import Plan, PlannedEdit, PlanOptions, PlanReference
from confplane.services.ports.registrations import RegistrationLog

routes = Routes(tag="manifests")

_LONGEST_S: Final = 55
"""The longest duration of a plan or an apply in seconds, below the minute after which proxies give up. An apply ends
before a batch that would last longer, and may be continued."""
_PLANNED: Final = 20
"""So many entities that an apply plans cost one write, in addition to the entities that it sends."""
_FIELDS: Final = {"quotas": "quotas", "client_configs": "clientConfigs", "configs": "configs"}


@routes.post(
    "/v1/clusters/{cluster}/manifests:plan",
    read(
        "Plan a manifest: what an apply would create, change and delete",
        partly(models.ManifestPlan, "Some entities are refused"),
        limit=LimitClass.BULK,
        problems=(404, 409, 413, 422),
        problem=models.PlanProblem,
        longest_s=_LONGEST_S,
    ),
    checks=[Consistency, BreakGlass],
)
async def plan_manifest(
    call: CallDep, plans: PlansDep, registrations: RegistrationsDep, body: models.PlanManifest
) -> Response:
    """Each facet that an entity of the manifest names is to have exactly the keys of the manifest; other facets stay.

    Nothing is stored. Each entity needs DESCRIBE_CONFIGS only, but a broker's password ALTER_CONFIGS. `mayAlter` tells
    which entities the caller may alter. With Confplane-Break-Glass it is the plan of an apply with this header.
    """
    call.charge(LimitClass.BULK, len(body.entities))
    document, options = await document_of(call, body), options_of(body)
    for name in call.cluster.facets:
        await kraft.refresh_facet(call, name)
    consistency = consistency_headers(call.cluster.store)
    plan = await plans.plan(call.cluster, document, options, call.caller)
    call.charge(LimitClass.BULK, len(plan.entries) - len(document))  # the deletions
    errors = [each.error for each in await in_slices(_result, plan.entries)]
    answer = {
        "throttleTimeMs": call.throttle_ms(LimitClass.BULK),
        "failed": sum(error is not None for error in errors),
        **await _rendered(call, registrations, plan),
    }
    response = batches.multi_status_response(call.request, answer, errors, consistency=consistency)
    return await extended_response(call, response, "changes", _changes(plan))


@routes.post(
    "/v1/clusters/{cluster}/manifests:apply",
    change(
        "Apply the plan of a manifest",
        partly(models.AppliedManifest, "An entity failed, which ended the run"),
        problems=(413,),
        problem=models.ApplyProblem,
        longest_s=_LONGEST_S,
    ),
    checks=[Temporary],
)
async def apply_manifest(
    call: CallDep, applies: AppliesDep, registrations: RegistrationsDep, body: models.ApplyManifest
) -> Response:
    """Carries out a plan, if the document, the options and all versions are those of the plan.

    Without `atomic` the entities are sent in batches; the first failure ends the run, and what was applied stays. The
    same request continues a run that has ended before its last entity, for a day.
    """
    call.charge(LimitClass.WRITE, len(body.entities) // _PLANNED)
    document, options = await document_of(call, body), options_of(body)
    # Each batch has the deadline of all requests, after which the leader settles what is left open.
    seconds, validate_only = call.request.app.deadline_s, call.validate_only
    planned = PlanReference(body.plan_id)
    applied = await applies.apply(
        call.cluster, document, options, planned, call.caller, seconds=seconds, validate_only=validate_only
    )
    revision = written_revision(call.cluster.store, [results for _, results in applied.done])
    # Entities that are left are paid for by the request that sends them.
    call.charge(LimitClass.WRITE, len(applied.done) - 1)
    if applied.error is not None:
        members = await _rendered(call, registrations, applied.plan)
        members["changes"] = [orjson.Fragment(each) async for part in _changes(applied.plan) for each in part]
        if body.revision is not None:
            members["changedSince"] = _changed_since(applied.plan, int(body.revision))
        return problems.respond(call.request, applied.error, **members)
    parts = [
        (planned, result)
        for entry, results in applied.done
        for planned, result in zip(entry, results.results, strict=True)
    ]
    waited = await kraft.wait_for_status(call, ((planned.cluster_facet, result) for planned, result in parts))
    rendered = await in_slices(lambda each: orjson.Fragment(orjson.dumps(_applied_change(*each, waited))), parts)
    left = applied.left
    members = {
        "planId": applied.plan.id,
        "runId": applied.request_id,
        "next": {"id": left[0][0].entity.id, "left": len(left)} if left else None,
        "results": rendered,
    }
    return batches.alter_response(call, [results for _, results in applied.done], members, revision)


@routes.get(
    "/v1/clusters/{cluster}/manifests:export",
    read(
        "Export the configs of the cluster as a manifest",
        {
            200: ResponseSpec(
                models.ExportedManifest,
                f"JSON, or with `Accept: {YAML}` the file that `confplane export --format manifest` writes",
                {YAML: {"schema": {"$ref": "#/components/schemas/ExportedManifest"}}},
            )
        },
        limit=LimitClass.BULK,
    ),
    checks=[Consistency],
)
async def export_manifest(
    call: CallDep, reads: ResourceReadsDep, *, filters: ListFilters, owner: Owner = None
) -> Response:
    """The entities that the filters select and the caller may describe, ordered by id. A secret is null, and kept by an
    apply. With `owner`, entities have the keys of this owner only, and the manifest names it, with the labels that all
    of the entities have.

    Entities are read page by page, each of its own moment. If a znode can't be read, the member `skipped` names it, and
    a plan refuses the document; in YAML a comment at the end names it.
    """  # noqa: D205 - one sentence
    for name in call.cluster.facets:
        await kraft.refresh_facet(call, name)
    return await export(call, reads, filters, owner)


def _changed_since(plan: Plan, revision: int) -> list[dict[str, str]]:
    nodes = ((each, each.result.node) for each in plan.edits)
    return [
        {"id": each.entity.id, "facet": each.cluster_facet.name.value, "revision": str(node.mzxid)}
        for each, node in nodes
        if node is not None and node.mzxid > revision
    ]


def _applied_change(planned: PlannedEdit, result: EditResult, waited: Mapping[str, Any]) -> dict[str, Any]:
    name, entity_id = planned.cluster_facet.name, planned.entity.id
    named = {"id": entity_id, "facet": name.value, "action": planned.action}
    named |= waited.get(entity_id, {}) if name in APPLIED_FACETS else {}
    entry = batches.altered_entry(EntryResult((result,)), named, None)
    del entry["diff"]
    return entry


def _result(entry: tuple[PlannedEdit, ...]) -> EntryResult:
    return EntryResult(tuple(each.result for each in entry))


async def _rendered(call: Call, registrations: RegistrationLog, plan: Plan) -> dict[str, Any]:
    """Return the members of an answer with a plan, without its changes."""
    actions = Counter("refused" if each.result.error is not None else each.action for each in plan.edits)
    access = call.caller.access
    return {
        "planId": plan.id,
        "revision": str(plan.revision),
        "summary": {name: actions[name] for name in ("create", "update", "delete", "claim", "none", "refused")},
        "affectedClients": await count_affected(call.cluster, plan, registrations, access),
        "refusal": None if plan.refusal is None else _refusal(plan.refusal),
    }


async def _changes(plan: Plan) -> AsyncIterator[list[bytes]]:
    """Yield the changes of a plan in parts: a plan of many is larger than any response that is kept as a whole."""
    time_slice = TimeSlice()
    for entry in plan.entries:
        yield [
            orjson.dumps(_change(each))
            for each in entry
            if each.action != "none" or each.result.error is not None or each.result.warnings
        ]
        if time_slice.due:
            await time_slice.pause()


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
    change = batches.altered_entry(EntryResult((planned.result,)), named, differences)
    if planned.claimed:
        change["claimed"] = [{"key": key, "owner": owner} for key, owner in planned.claimed.items()]
    return change


# ---------------------------------------------------------------- manifests as clients send them


async def document_of(call: Call, body: models.PlanManifest) -> list[Entry]:
    """Return the entities of a manifest as entries.

    Raises:
        InvalidRequestError: The manifest is of another cluster.
    """
    if body.cluster and body.cluster != call.cluster.name:
        raise InvalidRequestError(
            f"The manifest is of the cluster {shown(body.cluster)}, and this request of {call.cluster.name!r}",
            pointer="/cluster",
        )
    mode = Mode.MERGE if body.merge else Mode.REPLACE
    return await in_slices(lambda item: _entry(call, mode, *item), enumerate(body.entities))


def _entry(call: Call, mode: Mode, index: int, item: models.ManifestEntity) -> Entry:
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
        edit = Edit(entity, ops, mode, pointer=f"{pointer}/id")
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
    if body.merge and (body.prune or body.owner is not None):
        raise InvalidRequestError(
            "merge keeps what the document does not name: give neither owner nor prune", pointer="/merge"
        )
    if body.max_deletes is not None and not body.prune:
        raise InvalidRequestError("maxDeletes is an option of prune", pointer="/maxDeletes")
    return PlanOptions(
        body.atomic,
        scope,
        body.max_deletes,
        prune=body.prune,
        merge=body.merge,
        owner=body.owner,
        labels=body.labels,
        forced=frozenset((each.id, each.key) for each in body.force),
    )
