"""Config definitions: the place, type and range of each config, and its update mode.

JSON, or by ``Accept: text/html`` KIP-21's table as a page.
"""

from functools import lru_cache
from typing import Annotated, Final

import orjson
from fastapi import Query
from pydantic import BeforeValidator, StringConstraints
from starlette.responses import Response

from confplane.api.accept import prefers
from confplane.api.definitions import models, page
from confplane.api.definitions.rows import select
from confplane.api.dependencies import CallDep
from confplane.api.responses import JSON, PreparedResponse, consistency_headers, encoded
from confplane.api.routing.operations import ResponseSpec, read
from confplane.api.routing.routes import Routes
from confplane.domain.client_configs import ClientConfigsFacet
from confplane.domain.definitions import Catalog
from confplane.domain.facets import FacetName
from confplane.domain.releases import releases
from confplane.services.limits import LimitClass

routes = Routes(tag="config-definitions")

_HTML: Final = "text/html"
_EMPTY_IS_NONE: Final = BeforeValidator(lambda value: None if value == "" else value)
"""Empty fields count as absent: a form sends its fields even without a choice."""


@routes.get(
    "/v1/clusters/{cluster}/config-definitions",
    read(
        "Config definitions: types, defaults, ranges, dynamic or not",
        {
            200: ResponseSpec.text(
                "JSON, or with `Accept: text/html` a page that can be searched and sorted",
                _HTML,
                model=models.ConfigDefinitions,
            )
        },
        limit=LimitClass.BULK,
    ),
)
async def list_config_definitions(
    call: CallDep,
    *,
    entity_type: Annotated[
        models.EntityTypeFilter | None,
        _EMPTY_IS_NONE,
        Query(alias="entityType", description="A kind of config, or an entity type for what may be set on it"),
    ] = None,
    search: Annotated[
        str,
        Query(max_length=models.MAX_SEARCH, description="A part of the name, case-insensitive", examples=["retention"]),
    ] = "",
    dynamic: Annotated[
        bool | None, _EMPTY_IS_NONE, Query(description="May it be changed while the cluster runs")
    ] = None,
    release: Annotated[
        # The constraint is the string's own: it can't be applied to an empty value.
        Annotated[str, StringConstraints(pattern=models.RELEASE_PATTERN)] | None,
        _EMPTY_IS_NONE,
        Query(
            description="A release of Kafka; by default the cluster's own, or the nearest one with definitions",
            examples=["4.4"],
        ),
    ] = None,
) -> Response:
    """One release's definitions, the quotas, and this cluster's dynamic client configs and extra keys."""
    facet = call.cluster.facets[FacetName.CLIENT_CONFIGS].facet
    keys = facet.keys if isinstance(facet, ClientConfigsFacet) else frozenset()
    shown = call.cluster.store.catalog(release)
    headers = [(b"vary", b"Accept"), *consistency_headers(call.cluster.store)]
    if prefers(call.request.headers.get("accept"), _HTML):
        text = _page(shown, keys, entity_type, search, dynamic, call.cluster.name)
        return PreparedResponse(text, headers + encoded(page.HEADERS))
    return PreparedResponse(_document(shown, keys, entity_type, search, dynamic), [*headers, JSON])


@lru_cache(maxsize=64)
def _document(
    catalog: Catalog,
    keys: frozenset[str],
    entity_type: str | None,
    search: str,
    dynamic: bool | None,  # noqa: FBT001 - hashed by position
) -> bytes:
    rows = select(catalog, keys, entity_type=entity_type, search=search, dynamic=dynamic)
    return orjson.dumps(
        {"kafkaVersion": catalog.release, "releases": list(releases()), "items": rows, "nextPageToken": None}
    )


@lru_cache(maxsize=64)
def _page(
    catalog: Catalog,
    keys: frozenset[str],
    entity_type: str | None,
    search: str,
    dynamic: bool | None,  # noqa: FBT001 - hashed by position
    cluster: str,
) -> bytes:
    return page.page(
        select(catalog, keys, entity_type=entity_type, search=search, dynamic=dynamic),
        cluster=cluster,
        release=catalog.release,
        entity_type=entity_type,
        search=search,
        dynamic=dynamic,
    )
