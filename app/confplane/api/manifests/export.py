"""Exports: the configs of a cluster as a manifest, read and sent piece by piece."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import orjson

from confplane.api.accept import prefers
from confplane.api.rendering.entries import Form
from confplane.api.responses import number
from confplane.api.streams import entries_response
from confplane.domain.facets import FacetName
from confplane.domain.manifests import API_VERSION, KIND
from confplane.manifest_text import ENTITIES, NO_ENTITIES, entity_member, entity_text, join_facets, manifest_head
from confplane.services.cooperative_yielding import TimeSlice
from confplane.services.limits import LimitClass

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from starlette.responses import Response

    from confplane.api.dependencies import Call
    from confplane.domain.facets import JsonValue
    from confplane.services.cluster_facet import ClusterFacet
    from confplane.services.reads.describe import DescribeService, ListQuery

    Entities = AsyncIterator[tuple[str, dict[FacetName, dict[str, JsonValue]]]]

YAML: Final = "application/yaml"
_PAGE: Final = 500
"""Entities of a facet that are read at once. An entity that is there all the while is in an export once."""


async def export(call: Call, describe: DescribeService, query: ListQuery) -> Response:
    """Answer with the entities that a query selects and the caller may describe."""
    skipped: list[str] = []
    facets = {name: _listed(call, describe, call.cluster_facet(name), query, skipped) for name in call.cluster.facets}
    entities = join_facets(facets)
    if prefers(call.request.headers.get("accept"), YAML):
        return await entries_response(call, _yaml(call.cluster.name), _yaml_parts(entities), skipped)
    return await entries_response(call, _JSON, _json_parts(entities), skipped)


async def _listed(
    call: Call, describe: DescribeService, cluster_facet: ClusterFacet, query: ListQuery, skipped: list[str]
) -> AsyncIterator[tuple[str, dict[str, JsonValue]]]:
    """Yield the entities of a facet; the paths of znodes that can't be read are added to ``skipped``."""
    query = replace(query, page_size=_PAGE, page_token=None)
    while True:
        page = await describe.page(cluster_facet, query)
        call.charge(LimitClass.BULK, page.units)
        skipped += [path for path in page.skipped if path not in skipped]  # facets may share a znode
        for node, declared in page.items:
            yield node.id, declared
        if page.next_page_token is None:
            return
        query = replace(query, page_token=page.next_page_token)


_HEAD: Final = b'{"apiVersion":%s,"kind":%s,"entities":[' % (orjson.dumps(API_VERSION), orjson.dumps(KIND))


def _json_tail(_: int, skipped: Sequence[str]) -> bytes:
    # A manifest has no such member: a plan refuses an export that is not complete.
    return b'],"skipped":' + orjson.dumps(skipped) + b"}" if skipped else b"]}"


_JSON: Final = Form(
    "application/json",
    lambda entries, first: (b"" if first else b",") + b",".join(entries),
    lambda _: _HEAD,
    _json_tail,
)


async def _json_parts(entities: Entities) -> AsyncIterator[list[bytes]]:
    time_slice = TimeSlice()
    async for entity_id, facets in entities:
        yield [orjson.dumps(entity_member(entity_id, {facet: _numbers(values) for facet, values in facets.items()}))]
        if time_slice.due:
            await time_slice.pause()


def _numbers(values: Mapping[str, JsonValue]) -> dict[str, Any]:
    return {key: number(value) for key, value in values.items()}


def _yaml(cluster: str) -> Form:
    def tail(_: int, skipped: Sequence[str]) -> bytes:
        return b"".join(
            b"# Left out: the znode %s: the service can't read it\n" % orjson.dumps(path) for path in skipped
        )

    head = manifest_head(cluster).encode()
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
