"""The resources of a facet: list, create, get, put, delete and effective values of single entities.

One set of handlers serves every facet; the differences are in the facet's own rules and its schemas.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Any, Final, Literal

from fastapi import Query
from pydantic import BaseModel
from starlette.responses import Response

from confplane.api import apply_waits, refresh
from confplane.api.dependencies import Call, CallDep, Consistency, IfNoneMatch, OpaquePageToken, PageSize
from confplane.api.models import DeletedResource, ResourceBody
from confplane.api.rendering.polled_response import PolledResponse
from confplane.api.resources import past
from confplane.api.resources.filters import ListFilters
from confplane.api.resources.render import full_resource, resource
from confplane.api.responses import JSON, PreparedResponse, consistency_headers, json_response
from confplane.api.reverts import routes as reverts
from confplane.api.routing.operations import ResponseSpec, change, read
from confplane.api.routing.paths import entity_in_path
from confplane.api.routing.preconditions import ConditionalHeaders, ConditionalHeadersDep, not_modified
from confplane.api.routing.routes import Routes, declared
from confplane.api.schedules.temporary import Temporary
from confplane.domain import id_patterns
from confplane.domain.changes import Node
from confplane.domain.definitions import Catalog
from confplane.domain.entities import Entity
from confplane.domain.errors import InvalidRequestError, NotFoundError
from confplane.domain.facets import FacetName
from confplane.domain.ops import Op, OpType
from confplane.domain.texts import step
from confplane.services.changes.edits import Edit, EditResult, Mode
from confplane.services.cluster_facet import ClusterFacet
from confplane.services.clusters import Cluster
from confplane.services.limits import LimitClass
from confplane.services.reads.describe import DescribeService

Resolve = Callable[[Call, Entity], Awaitable[PolledResponse]]
"""Finds the effective values of an entity."""


@dataclass(frozen=True, slots=True)
class ResourceModels:
    """The models of one facet's resources, for the specification."""

    noun: str
    """Last part of operation ids."""
    body: type[BaseModel]
    new: type[BaseModel]
    resource: type[BaseModel]
    page: type[BaseModel]
    effective: type[BaseModel]
    id_pattern: str
    example_id: str


@dataclass(frozen=True, slots=True)
class ListFilter:
    """An additional filter of one facet's list. It selects by the current state."""

    name: str
    annotation: Any
    """Type of the query parameter. The value is None if the filter is absent."""
    wanted: Callable[[Call, ClusterFacet, Any], Callable[[Entity], Awaitable[bool]]]
    """Makes the predicate on entities from a value of the filter."""


class ResourceHandlers:
    """The handlers of one facet's resources.

    Args:
        name: The facet.
        resolve: Finds the effective values.
    """

    def __init__(self, name: FacetName, resolve: Resolve) -> None:
        self._name = name
        self._resolve = resolve

    def routes(
        self,
        models: ResourceModels,
        *,
        extra_routes: Callable[[Routes], None] | None = None,
        list_filter: ListFilter | None = None,
    ) -> Routes:
        """Return the routes.

        Args:
            models: The models of the resources.
            extra_routes: Adds routes of this facet only, before the paths that end with an id.
            list_filter: An additional filter of the list.
        """
        name, noun, path = self._name.value, models.noun, "/{id:path}"
        entity = entity_in_path(models.id_pattern, models.example_id)
        resolved = entity_in_path(models.id_pattern, models.example_id, suffix="/effective")
        summary = f"List the entities that have {name}"
        routes = Routes(f"/v1/clusters/{{cluster}}/{name}", tag=name)
        operation = read(summary, models.page, id=f"list{noun}", limit=LimitClass.BULK, tagged=False, problems=(410,))
        self._list_filter = list_filter
        filters = {} if list_filter is None else {list_filter.name: (list_filter.annotation, None)}
        routes.get("", operation, checks=[Consistency])(declared(self._list, filters))
        summary = f"Create the {name} of an entity"
        created = {
            201: ResponseSpec(models.resource),
            200: ResponseSpec(models.resource, "Identical content was already there"),
        }
        operation = change(summary, created, id=f"create{noun}", limit=LimitClass.WRITE, tagged=True, problems=())
        routes.post("", operation, checks=[Temporary])(declared(self._create, body=models.new))
        summary = "The effective values, each with its source and every candidate level"
        operation = read(
            summary, models.effective, id=f"effective{noun}", limit=LimitClass.READ, tagged=True, problems=(409,)
        )
        routes.get(f"{path}/effective", operation, checks=[Consistency])(declared(self._effective, entity=resolved))
        if extra_routes is not None:
            extra_routes(routes)
        reverts.add_routes(routes, self._name, noun, models.id_pattern, models.example_id)
        past.add_routes(routes, self._name, noun, models.id_pattern, models.example_id)
        summary = "The declared content of an entity, exactly as it was set"
        operation = read(
            summary, models.resource, id=f"get{noun}", limit=LimitClass.READ, tagged=True, problems=(409, 410)
        )
        routes.get(path, operation, checks=[Consistency])(declared(self._get, entity=entity))
        summary = f"Replace all {name} of an entity"
        operation = change(summary, models.resource, id=f"put{noun}", limit=LimitClass.WRITE, tagged=True, problems=())
        routes.put(path, operation, checks=[Temporary])(declared(self._put, entity=entity, body=models.body))
        summary = f"Remove all {name} of an entity"
        operation = change(
            summary, DeletedResource, id=f"delete{noun}", limit=LimitClass.WRITE, tagged=False, problems=()
        )
        routes.delete(path, operation, checks=[Temporary])(declared(self._delete, entity=entity))
        return routes

    async def _list(
        self,
        call: CallDep,
        *,
        entity_id: Annotated[
            str | None,
            Query(alias="id", description="Exactly this entity id", json_schema_extra={"pattern": id_patterns.ANY_ID}),
        ] = None,
        filters: ListFilters,
        page_size: PageSize = 100,
        page_token: OpaquePageToken = None,
        at: past.At = None,
        **filter_values: Any,
    ) -> Response:
        cluster_facet = call.cluster_facet(self._name)
        query = replace(filters, id=entity_id, page_size=page_size, page_token=page_token)
        list_filter = self._list_filter
        value = None if list_filter is None else filter_values.get(list_filter.name)
        if at is not None:
            if list_filter is not None and value is not None:
                raise InvalidRequestError(f"{list_filter.name} is a filter of now: leave at out", pointer="at")
            return await past.listed(call, cluster_facet, query, at)
        await refresh.refresh_facet(call, self._name)
        only = None if list_filter is None or value is None else list_filter.wanted(call, cluster_facet, value)
        page = await call.services.describe.page(cluster_facet, query, only)
        call.charge(LimitClass.BULK, page.units)
        if call.view == "full":
            applied = await apply_waits.read_status(call, cluster_facet, [node for node, _ in page.items])
            items = [
                await full_resource(
                    cluster_facet,
                    node.id,
                    node.config,
                    node=node,
                    refreshed_at=call.observed_at,
                    applied=applied.get(node.id),
                )
                for node, _ in page.items
            ]
        else:
            items = [resource(cluster_facet, node.id, content) for node, content in page.items]
        return json_response(
            call.request, {"items": items, "nextPageToken": page.next_page_token, "skipped": page.skipped}
        )

    async def _create(self, call: CallDep, conditions: ConditionalHeadersDep, body: ResourceBody) -> Response:
        cluster_facet = call.cluster.facets[self._name]
        edit = _edit(cluster_facet, body, Mode.CREATE, conditions, entity=None)
        result = await _run(call, cluster_facet, edit)
        response = await _written(call, cluster_facet, result, status=201 if result.created else 200)
        scope = call.request.scope
        response.headers["Location"] = f"{scope.get('root_path', '')}{scope['path']}/{edit.entity.id}"
        return response

    async def _get(
        self,
        call: CallDep,
        entity: Entity,
        if_none_match: IfNoneMatch = None,
        at: past.At = None,
        absent: Annotated[
            Literal["empty"] | None,
            Query(description="`empty`: answer with no keys, and without an ETag, where otherwise 404 is the answer"),
        ] = None,
    ) -> Response:
        try:
            return await self._existing(call, entity, if_none_match, at)
        except NotFoundError:
            if absent is None:
                raise
        cluster_facet = call.cluster_facet(self._name)
        not_modified(if_none_match, "")  # a malformed header is still refused
        if call.view == "full" and at is None:
            body = await full_resource(cluster_facet, entity.id, {}, node=None, refreshed_at=call.observed_at)
        else:
            body = resource(cluster_facet, entity.id, {})
        return json_response(call.request, body)

    async def _existing(self, call: Call, entity: Entity, if_none_match: str | None, at: str | None) -> Response:
        cluster_facet, describe = call.cluster_facet(self._name), call.services.describe
        if at is not None:
            return await past.single(call, cluster_facet, entity, at, if_none_match)
        if call.strong:
            await refresh.refresh_entity(call, self._name, entity)
        node = describe.node(cluster_facet, entity.id)
        if call.view == "full":
            _, etag = describe.content(cluster_facet, node)
            not_modified(if_none_match, etag)  # has no ETag, but a malformed header is still refused
            applied = (await apply_waits.read_status(call, cluster_facet, [node])).get(node.id)
            body = await full_resource(
                cluster_facet, node.id, node.config, node=node, refreshed_at=call.observed_at, applied=applied
            )
            return json_response(call.request, body)
        # Only these configs depend on the definitions of the cluster's release, which may change.
        catalog = cluster_facet.catalog if self._name is FacetName.CONFIGS else None
        return _answer(call.cluster, _rendered(describe, cluster_facet.whole, node, catalog), if_none_match)

    async def _effective(self, call: CallDep, entity: Entity, if_none_match: IfNoneMatch = None) -> Response:
        await refresh.refresh_levels(call, self._name, [entity])
        return _answer(call.cluster, await self._resolve(call, entity), if_none_match)

    async def _put(
        self, call: CallDep, entity: Entity, conditions: ConditionalHeadersDep, body: ResourceBody
    ) -> Response:
        cluster_facet = call.cluster.facets[self._name]
        edit = _edit(cluster_facet, body, Mode.REPLACE, conditions, entity=entity)
        return await _written(call, cluster_facet, await _run(call, cluster_facet, edit))

    async def _delete(self, call: CallDep, entity: Entity, conditions: ConditionalHeadersDep) -> Response:
        cluster_facet = call.cluster.facets[self._name]
        edit = Edit(entity, (), Mode.REPLACE, conditions.precondition())
        result = await _run(call, cluster_facet, edit)
        warnings = {"warnings": list(result.warnings)} if result.warnings else {}
        body = {"id": edit.entity.id, **warnings, **await _waited(call, cluster_facet, result)}
        return json_response(call.request, body, headers=_change_header(result), revision=result.revision)


def _answer(cluster: Cluster, polled: PolledResponse, if_none_match: str | None) -> Response:
    """Answer a polled read, with 304 if the client has the current response."""
    headers = [polled.tag, *consistency_headers(cluster.store)]
    if not_modified(if_none_match, polled.etag):
        return PreparedResponse(b"", headers, status=304)
    headers.append(JSON)
    return PreparedResponse(polled.body, headers)


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


async def _run(call: Call, cluster_facet: ClusterFacet, edit: Edit) -> EditResult:
    [result] = await call.services.alter.alter(cluster_facet, [edit], call.caller, validate_only=call.validate_only)
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
    entity, headers = result.edit.entity, _change_header(result)
    waited = await _waited(call, cluster_facet, result)
    if call.view == "full":
        nodes = [] if waited or result.node is None or call.validate_only else [result.node]
        applied = waited or (await apply_waits.read_status(call, cluster_facet, nodes)).get(entity.id)
        body = await full_resource(
            cluster_facet, entity.id, result.after, node=result.node, warnings=result.warnings, applied=applied
        )
    else:
        declared, etag = cluster_facet.tagged(entity, result.after, result.node)
        body = resource(cluster_facet, entity.id, declared) | waited
        if etag is not None and not call.validate_only:
            headers["ETag"] = etag
    return json_response(call.request, body, status=status, headers=headers, revision=result.revision)


async def _waited(call: Call, cluster_facet: ClusterFacet, result: EditResult) -> dict[str, Any]:
    return (await apply_waits.wait_for_status(call, [(cluster_facet, result)])).get(result.edit.entity.id, {})


def _change_header(result: EditResult) -> dict[str, str]:
    return {} if result.change_id is None else {"Confplane-Change-Id": result.change_id}
