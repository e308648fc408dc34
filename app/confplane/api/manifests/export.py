"""Exports: the configs of a cluster as a manifest, read and sent piece by piece."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import orjson

from confplane.api.rendering import Form
from confplane.api.resources.filters import selection
from confplane.api.responses import number, prefers
from confplane.api.routing.bounded import entries_response
from confplane.domain.facets import FacetName
from confplane.domain.manifests import API_VERSION, KIND
from confplane.domain.ownership import NO_OWNERS
from confplane.manifest_text import (
    ENTITIES,
    NO_ENTITIES,
    LabelsOfOwner,
    entity_member,
    entity_text,
    join_facets,
    manifest_head,
)
from confplane.services.cooperative_yielding import TimeSlice
from confplane.services.limits import LimitClass

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from starlette.responses import Response

    from confplane.api.dependencies import Call
    from confplane.api.services import ResourceReads
    from confplane.domain.changes import Node
    from confplane.domain.entities import Entity
    from confplane.domain.facets import JsonValue
    from confplane.services.cluster_facet import ClusterFacet
    from confplane.services.reads.describe import ListQuery

    Entities = AsyncIterator[tuple[str, dict[FacetName, dict[str, JsonValue]]]]

YAML: Final = "application/yaml"
_PAGE: Final = 500
"""Entities of a facet that are read at once. An entity that is there all the while is in an export once."""


async def export(call: Call, reads: ResourceReads, query: ListQuery, owner: str | None) -> Response:
    """Answer with the entities that a query selects and the caller may describe.

    Args:
        call: The request.
        reads: The reads of resources.
        query: The filters.
        owner: Export the keys of this owner, as a manifest of its own; None: all keys.
    """
    skipped: list[str] = []
    labels = LabelsOfOwner()
    facets = {
        name: _listed(call, reads, call.cluster_facet(name), query, skipped)
        if owner is None
        else _of_owner(call, reads, call.cluster_facet(name), query, skipped, owner=owner, labels=labels)
        for name in call.cluster.facets
    }
    entities = join_facets(facets)
    if prefers(call.request.headers.get("accept"), YAML):
        form, parts = _yaml(call.cluster.name, owner, labels), _yaml_parts(entities)
    else:
        form, parts = _json(owner, labels), _json_parts(entities)
    return await entries_response(call, form, parts, skipped)


async def _listed(
    call: Call, reads: ResourceReads, cluster_facet: ClusterFacet, query: ListQuery, skipped: list[str]
) -> AsyncIterator[tuple[str, dict[str, JsonValue]]]:
    """Yield the entities of a facet; the paths of znodes that can't be read are added to ``skipped``."""
    async for items in _pages(call, reads, cluster_facet, query, skipped):
        for node, declared in items:
            yield node.id, declared


async def _of_owner(
    call: Call,
    reads: ResourceReads,
    cluster_facet: ClusterFacet,
    query: ListQuery,
    skipped: list[str],
    *,
    owner: str,
    labels: LabelsOfOwner,
) -> AsyncIterator[tuple[str, dict[str, JsonValue]]]:
    """Yield the entities of a facet with the keys of an owner; its labels are added to ``labels``.

    Raises:
        UnavailableError: Postgres is unavailable, so the owners are not known.
    """
    selects = selection(reads.owners, cluster_facet, owner, None)
    async for items in _pages(call, reads, cluster_facet, query, skipped, selects):
        found = await reads.owners.of_nodes(cluster_facet, [node for node, _ in items])
        for node, declared in items:
            ownership = found.get(node.id, NO_OWNERS)
            keys = {key: value for key, value in declared.items() if ownership.owners.get(key) == owner}
            if keys:
                labels.add(ownership.labels.get(owner, {}))
                yield node.id, keys


async def _pages(
    call: Call,
    reads: ResourceReads,
    cluster_facet: ClusterFacet,
    query: ListQuery,
    skipped: list[str],
    selects: Callable[[Entity], Awaitable[bool]] | None = None,
) -> AsyncIterator[list[tuple[Node, dict[str, JsonValue]]]]:
    query = replace(query, page_size=_PAGE, page_token=None)
    while True:
        page = await reads.describe.page(cluster_facet, query, selects)
        call.charge(LimitClass.BULK, page.units)
        skipped += [path for path in page.skipped if path not in skipped]  # facets may share a znode
        yield page.items
        if page.next_page_token is None:
            return
        query = replace(query, page_token=page.next_page_token)


def _json(owner: str | None, labels: LabelsOfOwner) -> Form:
    members = {"apiVersion": API_VERSION, "kind": KIND} | ({} if owner is None else {"owner": owner})
    head = orjson.dumps(members)[:-1] + b',"entities":['

    def tail(_: int, skipped: Sequence[str]) -> bytes:
        # A manifest has no member `skipped`: a plan refuses an export that is not complete.
        further = labels.members | ({"skipped": list(skipped)} if skipped else {})
        return b"]" + (b"," + orjson.dumps(further)[1:] if further else b"}")

    return Form(
        "application/json",
        lambda entries, first: (b"" if first else b",") + b",".join(entries),
        lambda _: head,
        tail,
    )


async def _json_parts(entities: Entities) -> AsyncIterator[list[bytes]]:
    time_slice = TimeSlice()
    async for entity_id, facets in entities:
        yield [orjson.dumps(entity_member(entity_id, {facet: _numbers(values) for facet, values in facets.items()}))]
        if time_slice.due:
            await time_slice.pause()


def _numbers(values: Mapping[str, JsonValue]) -> dict[str, Any]:
    return {key: number(value) for key, value in values.items()}


def _yaml(cluster: str, owner: str | None, labels: LabelsOfOwner) -> Form:
    def tail(_: int, skipped: Sequence[str]) -> bytes:
        return labels.text.encode() + b"".join(
            b"# Left out: the znode %s: the service can't read it\n" % orjson.dumps(path) for path in skipped
        )

    head = manifest_head(cluster, owner).encode()
    return Form(YAML, lambda entries, _: b"".join(entries), lambda _: head, tail)


async def _yaml_parts(entities: Entities) -> AsyncIterator[list[bytes]]:
    time_slice = TimeSlice()
    empty = True
    async for entity_id, facets in entities:
        if empty:
            yield [ENTITIES.encode()]
        empty = False
        # Numbers are written as the API's JSON has them.
        plain = {facet: orjson.loads(orjson.dumps(_numbers(values))) for facet, values in facets.items()}
        yield [entity_text(entity_id, plain).encode()]
        if time_slice.due:
            await time_slice.pause()
    if empty:
        yield [NO_ENTITIES.encode()]
