"""The work of the handlers of resources, for every facet: list, create, get, put, delete.

The routes are those of the facets: ``api/client_quotas``, ``api/client_configs`` and ``api/configs``.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, Final, Literal, NamedTuple

from fastapi import Query
from pydantic import BaseModel
from starlette.responses import Response

from confplane.api import kraft
from confplane.api.dependencies import Call
from confplane.api.models import DeletedResource, ResourceBody
from confplane.api.resources import filters, past
from confplane.api.responses import (
    JSON,
    Headers,
    PolledResponse,
    PreparedResponse,
    change_header,
    consistency_headers,
    json_response,
    number,
    timestamp,
    written_revision,
)
from confplane.api.routing.operations import ResponseSpec, RouteOperation, change, read
from confplane.api.routing.preconditions import ConditionalHeaders, not_modified
from confplane.api.services import ResourceReads
from confplane.domain import id_patterns
from confplane.domain.changes import Node
from confplane.domain.definitions import Catalog
from confplane.domain.entities import Entity
from confplane.domain.errors import InvalidRequestError, NotFoundError
from confplane.domain.facets import FacetName, JsonValue
from confplane.domain.ops import Op, OpType
from confplane.domain.texts import step
from confplane.services.changes.alter import AlterService
from confplane.services.changes.edits import Edit, EditResult, Mode
from confplane.services.cluster_facet import ClusterFacet
from confplane.services.clusters import Cluster
from confplane.services.kraft.refresh import observed_at
from confplane.services.limits import LimitClass
from confplane.services.reads.describe import DescribeService, ListQuery


def resource(cluster_facet: ClusterFacet, entity_id: str, declared: Mapping[str, JsonValue]) -> dict[str, Any]:
    """Return a resource in the default view."""
    return {"id": entity_id, cluster_facet.facet.member: {key: number(value) for key, value in declared.items()}}


async def full_resource(
    cluster_facet: ClusterFacet,
    entity_id: str,
    stored: Mapping[str, str],
    *,
    node: Node | None,
    warnings: Sequence[str] = (),
    refreshed_at: int | None = None,
    members: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a resource in the full view: ``node`` unchanged, and ``stored`` as its map, actual or planned.

    ``refreshed_at`` is the time of the request's own refresh of an observed Kafka cluster, in milliseconds since the
    epoch. ``members`` are further members of the status.
    """
    entity = Entity.from_id(entity_id)
    observed = None if cluster_facet.laid_out else refreshed_at or observed_at(cluster_facet.store, entity)
    declared, etag = cluster_facet.tagged(entity, stored, node)
    managed = sorted(cluster_facet.managed_keys(entity) & declared.keys())
    fingerprints = await cluster_facet.fingerprints(entity, stored)
    return {
        **resource(cluster_facet, entity_id, declared),
        "entity": entity.as_dict(),
        "status": {
            "revision": None if node is None else str(node.mzxid),
            "etag": etag,
            "updatedAt": None if node is None else timestamp(node.mtime_ms),
            **({} if observed is None else {"observedAt": timestamp(observed)}),
            **({"managedKeys": managed} if managed else {}),
            **(members or {}),
            "warnings": list(warnings),
            **({} if fingerprints is None else {"fingerprints": fingerprints}),
        },
    }


Test = Callable[[Entity], Awaitable[bool]]
"""The test of an entity by its current state."""
EntityId = Annotated[
    str | None,
    Query(alias="id", description="Exactly this entity id", json_schema_extra={"pattern": id_patterns.ANY_ID}),
]
"""The filter of a list by the id."""
Absent = Annotated[
    Literal["empty"] | None,
    Query(description="`empty`: answer with no keys, and without an ETag, where otherwise 404 is the answer"),
]
"""The answer for an entity without the facet; :func:`get` reads it."""


class ResourceOperations(NamedTuple):
    """The facts of the operations on the resources of a facet."""

    listing: RouteOperation
    create: RouteOperation
    effective: RouteOperation
    get: RouteOperation
    put: RouteOperation
    delete: RouteOperation

    @classmethod
    def of(
        cls, noun: str, *, page: type[BaseModel], resource: type[BaseModel], effective: type[BaseModel]
    ) -> "ResourceOperations":
        """Return the facts of a facet, given its name in texts and the models of its responses."""
        created = {
            201: ResponseSpec(resource),
            200: ResponseSpec(resource, "Identical content was already there"),
        }
        levels = "The effective values, each with its source and every candidate level"
        content = "The declared content of an entity, exactly as it was set"
        return cls(
            read(f"List the entities that have {noun}", page, limit=LimitClass.BULK, problems=(410,)),
            change(f"Create the {noun} of an entity", created, tagged=True),
            read(levels, effective, limit=LimitClass.READ, tagged=True, problems=(409,)),
            read(content, resource, limit=LimitClass.READ, tagged=True, problems=(409, 410)),
            change(f"Replace all {noun} of an entity", resource, tagged=True),
            change(f"Remove all {noun} of an entity", DeletedResource),
        )


async def page(
    call: Call,
    reads: ResourceReads,
    name: FacetName,
    query: ListQuery,
    *,
    at: str | None,
    owner: str | None,
    label: str | None,
    applied: Test | None = None,
) -> Response:
    """Answer with a page of a list.

    Args:
        call: The request.
        reads: The services.
        name: The facet.
        query: The filters and the page.
        at: The moment of a list of the past.
        owner: Selects entities of an owner now.
        label: Selects entities with a label now.
        applied: Selects entities by the reports of clients.
    """
    cluster_facet = call.cluster_facet(name)
    if at is not None:
        for present, given in (("owner", owner), ("label", label), ("applied", applied)):
            if given is not None:
                raise InvalidRequestError(f"{present} is a filter of now: leave at out", pointer="at")
        return await past.listed(call, reads.history, cluster_facet, query, at)
    await kraft.refresh_facet(call, name)
    tests = [
        each for each in (filters.selection(reads.owners, cluster_facet, owner, label), applied) if each is not None
    ]
    consistency = consistency_headers(call.cluster.store)
    page = await reads.describe.page(cluster_facet, query, _all_of(tests))
    call.charge(LimitClass.BULK, page.units)
    if call.view == "full":
        members = await filters.status_members(call, reads.owners, cluster_facet, [node for node, _ in page.items])
        items = [
            await full_resource(
                cluster_facet,
                node.id,
                node.config,
                node=node,
                refreshed_at=call.observed_at,
                members=members.get(node.id),
            )
            for node, _ in page.items
        ]
    else:
        items = [resource(cluster_facet, node.id, content) for node, content in page.items]
    body = {"items": items, "nextPageToken": page.next_page_token, "skipped": page.skipped}
    return json_response(call.request, body, consistency=consistency)


async def create(
    call: Call, alter: AlterService, name: FacetName, conditions: ConditionalHeaders, body: ResourceBody
) -> Response:
    """Create the resource that a body names."""
    cluster_facet = call.cluster.facets[name]
    edit = _edit(cluster_facet, body, Mode.CREATE, conditions, entity=None)
    result = await _run(call, alter, cluster_facet, edit)
    response = await _written(call, cluster_facet, result, status=201 if result.created else 200)
    scope = call.request.scope
    response.headers["Location"] = f"{scope.get('root_path', '')}{scope['path']}/{edit.entity.id}"
    return response


async def get(
    call: Call,
    reads: ResourceReads,
    name: FacetName,
    entity: Entity,
    if_none_match: str | None,
    *,
    at: str | None,
    absent: str | None,
) -> Response:
    """Answer with one resource."""
    cluster_facet, describe = call.cluster_facet(name), reads.describe
    try:
        if at is not None:
            return await past.single(call, reads.history, cluster_facet, entity, at, if_none_match)
        if call.strong:
            await kraft.refresh_entity(call, name, entity)
        node = describe.node(cluster_facet, entity.id)
        if call.view == "full":
            return await _full(call, reads, cluster_facet, node, if_none_match)
        # Only these configs depend on the definitions of the cluster's release, which may change.
        catalog = cluster_facet.catalog if name is FacetName.CONFIGS else None
        return polled(call.cluster, _rendered(describe, cluster_facet.whole, node, catalog), if_none_match)
    except NotFoundError:
        if absent is None:
            raise
    not_modified(if_none_match, "")  # a malformed header is still refused
    consistency = consistency_headers(call.cluster.store)
    if call.view == "full" and at is None:
        body = await full_resource(cluster_facet, entity.id, {}, node=None, refreshed_at=call.observed_at)
    else:
        body = resource(cluster_facet, entity.id, {})
    return json_response(call.request, body, consistency=consistency)


async def _full(
    call: Call, reads: ResourceReads, cluster_facet: ClusterFacet, node: Node, if_none_match: str | None
) -> Response:
    consistency = consistency_headers(call.cluster.store)
    _, etag = reads.describe.content(cluster_facet, node)
    not_modified(if_none_match, etag)  # has no ETag, but a malformed header is still refused
    members = (await filters.status_members(call, reads.owners, cluster_facet, [node])).get(node.id)
    body = await full_resource(
        cluster_facet, node.id, node.config, node=node, refreshed_at=call.observed_at, members=members
    )
    return json_response(call.request, body, consistency=consistency)


async def put(
    call: Call, alter: AlterService, name: FacetName, entity: Entity, conditions: ConditionalHeaders, body: ResourceBody
) -> Response:
    """Replace a resource."""
    cluster_facet = call.cluster.facets[name]
    edit = _edit(cluster_facet, body, Mode.REPLACE, conditions, entity=entity)
    return await _written(call, cluster_facet, await _run(call, alter, cluster_facet, edit))


async def delete(
    call: Call, alter: AlterService, name: FacetName, entity: Entity, conditions: ConditionalHeaders
) -> Response:
    """Remove a resource."""
    cluster_facet = call.cluster.facets[name]
    edit = Edit(entity, (), Mode.REPLACE, conditions.precondition())
    result = await _run(call, alter, cluster_facet, edit)
    revision = written_revision(call.cluster.store, [result])
    warnings = {"warnings": list(result.warnings)} if result.warnings else {}
    body = {"id": edit.entity.id, **warnings, **await _waited(call, cluster_facet, result)}
    return json_response(call.request, body, headers=change_header(result.change_id), revision=revision)


def _all_of(tests: list[Test]) -> Test | None:
    """Return the test that an entity passes if it passes all; None if there are none."""
    if len(tests) < 2:  # noqa: PLR2004
        return tests[0] if tests else None

    async def passes(entity: Entity) -> bool:
        for test in tests:
            if not await test(entity):
                return False
        return True

    return passes


def polled(
    cluster: Cluster, found: PolledResponse, if_none_match: str | None, consistency: Headers | None = None
) -> Response:
    """Answer a polled read, with 304 if the client has the current response.

    ``consistency`` is as of :func:`~confplane.api.responses.json_response`.
    """
    headers = [found.tag, *(consistency_headers(cluster.store) if consistency is None else consistency)]
    if not_modified(if_none_match, found.etag):
        return PreparedResponse(b"", headers, status=304)
    headers.append(JSON)
    return PreparedResponse(found.body, headers)


_LONG: Final = 4_096
"""Characters of the largest config whose response is cached."""


def _rendered(
    describe: DescribeService, cluster_facet: ClusterFacet, node: Node, catalog: Catalog | None
) -> PolledResponse:
    """Return the default view of a node. Nodes never change, so a polled node is rendered once for each catalog."""
    # The cache is bounded in nodes, and a large one would take as much as thousands of others.
    render = _cached if sum(map(len, node.items)) <= _LONG else _cached.__wrapped__
    return render(describe, cluster_facet, node, catalog)


@lru_cache(maxsize=16_384)
def _cached(
    describe: DescribeService, cluster_facet: ClusterFacet, node: Node, catalog: Catalog | None
) -> PolledResponse:
    del catalog  # only part of the key: the facet reads by its current catalog
    declared, etag = describe.content(cluster_facet, node)
    return PolledResponse.of(resource(cluster_facet, node.id, declared), etag)


async def _run(call: Call, alter: AlterService, cluster_facet: ClusterFacet, edit: Edit) -> EditResult:
    [result] = await alter.alter(cluster_facet, [edit], call.caller, validate_only=call.validate_only)
    if result.error is not None:
        raise result.error
    return result


def _edit(
    cluster_facet: ClusterFacet, body: Any, mode: Mode, conditions: ConditionalHeaders, *, entity: Entity | None
) -> Edit:
    """Make the edit of a PUT or POST; id and entity in the body must name the entity of the path."""
    named = Entity.from_id(body.id, pointer="/id") if body.id is not None else None
    pointer: str | None = "/id"
    if body.entity is not None:
        pointer = "/entity"
        spelled = Entity.from_names(body.entity, pointer=pointer)
        if named is not None and named != spelled:
            raise InvalidRequestError(f"id names {named.id}, entity names {spelled.id}", pointer=pointer)
        named = spelled
    if entity is None:
        entity = named
    elif named is not None and named != entity:
        raise InvalidRequestError(f"The body names {named.id}, the path names {entity.id}", pointer=pointer)
    else:
        pointer = None
    if entity is None:
        raise InvalidRequestError('Name the entity: "id" or "entity" is needed', pointer="/id")
    member = cluster_facet.facet.member
    given: dict[str, Any] = getattr(body, member)
    if not given:
        raise InvalidRequestError(f"{member} is empty; use DELETE to remove them all", pointer=f"/{member}")
    ops = tuple(Op(key, OpType.SET, value, f"/{member}{step(key)}") for key, value in given.items())
    return Edit(entity, ops, mode, conditions.precondition(body_etag=body.etag), pointer)


async def _written(call: Call, cluster_facet: ClusterFacet, result: EditResult, *, status: int = 200) -> Response:
    """Answer a write with the whole resource."""
    entity, headers = result.edit.entity, change_header(result.change_id)
    revision = written_revision(call.cluster.store, [result])
    waited = await _waited(call, cluster_facet, result)
    if call.view == "full":
        nodes = [] if waited or result.node is None or call.validate_only else [result.node]
        applied = waited or (await kraft.read_status(call, cluster_facet, nodes)).get(entity.id)
        body = await full_resource(
            cluster_facet, entity.id, result.after, node=result.node, warnings=result.warnings, members=applied
        )
    else:
        declared, etag = cluster_facet.tagged(entity, result.after, result.node)
        body = resource(cluster_facet, entity.id, declared) | waited
        if etag is not None and not call.validate_only:
            headers["ETag"] = etag
    return json_response(call.request, body, status=status, headers=headers, revision=revision)


async def _waited(call: Call, cluster_facet: ClusterFacet, result: EditResult) -> dict[str, Any]:
    return (await kraft.wait_for_status(call, [(cluster_facet, result)])).get(result.edit.entity.id, {})
