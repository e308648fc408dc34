"""Config definitions: the place, type and range of each config, and its update mode.

JSON, or by ``Accept: text/html`` KIP-21's table as a page.
"""

from functools import lru_cache
from typing import Annotated, Final, Literal

import orjson
from fastapi import Query
from pydantic import BeforeValidator, Field, StringConstraints
from starlette.responses import Response

from confplane.api.accept import prefers
from confplane.api.definitions import page
from confplane.api.definitions.rows import select
from confplane.api.dependencies import CallDep
from confplane.api.models import AnswerModel
from confplane.api.responses import JSON, PreparedResponse, consistency_headers, encoded
from confplane.api.routing.operations import ResponseSpec, read
from confplane.api.routing.routes import Routes
from confplane.domain.client_configs import ClientConfigsFacet
from confplane.domain.definitions import Catalog
from confplane.domain.facets import FacetName
from confplane.domain.releases import releases
from confplane.services.limits import LimitClass

RELEASE_PATTERN = "^(" + "|".join(releases()).replace(".", "[.]") + ")$"
"""A release with definitions."""
MAX_SEARCH = 100
"""The greatest number of characters in a search."""

EntityTypeFilter = Literal[
    "topic", "broker", "client", "producer", "consumer", "user", "client-id", "ip", "group", "client-metrics"
]
Section = Literal["topic", "broker", "producer", "consumer", "group", "client-metrics", "quota"]


class SynonymData(AnswerModel):
    """A broker config that a topic's or a group's config falls back on."""

    name: str
    factor: int = Field(description="The factor from its value: 3600000 from hours to milliseconds")


class ConfigDefinition(AnswerModel):
    """One config: its values, and the places where it may be set."""

    section: Section = Field(description="Whose config it is")
    name: str
    type: Literal["BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD"]
    default: str | None = Field(description="As Kafka writes it; null: no default")
    required: bool
    valid: str | None = Field(description="The rule besides the type, in Kafka's notation", examples=["[1,...]"])
    importance: Literal["HIGH", "MEDIUM", "LOW"]
    dynamic: bool = Field(description="May be changed while the cluster runs")
    scope: Literal[
        "read-only", "per-broker", "cluster-wide", "per-topic", "per-group", "per-subscription", "per-entity"
    ]
    settable_on: list[str] = Field(
        description="Entity types that may have it: `user,client-id` is the pair", examples=[["user", "user,client-id"]]
    )
    sensitive: bool = Field(description="A secret: never shown")
    internal: bool = Field(description="Not meant for users of Kafka")
    synonyms: list[SynonymData] = Field(
        description="For topics and groups: the broker configs that it falls back on, in order of precedence"
    )
    group: list[str] = Field(description="Brokers: names for the same thing, the one that counts first")
    listener_prefix: str | None = Field(
        description="For brokers: the form of the key for one listener", examples=["listener.name.<listener>."]
    )
    prefix_required: bool = Field(description="Brokers: dynamic only with a listener's prefix")
    unit: str | None = Field(description="For quotas: the unit", examples=["bytes per second"])
    description: str | None
    documentation: str | None = Field(
        description="Link to Kafka's documentation; null for a key that the setting `extra_keys` declares"
    )
    releases: list[str] = Field(
        description="The releases of Kafka that define the config, among `releases` of the response",
        examples=[["4.3", "4.4"]],
    )


class ConfigDefinitions(AnswerModel):
    """Definitions, ordered by section and name."""

    kafka_version: Annotated[str, Field(description="The release of these definitions", examples=["3.9"])]
    releases: list[str] = Field(description="All releases with definitions, ascending", examples=[list(releases())])
    items: list[ConfigDefinition]
    next_page_token: None = Field(description="Always null: all are on one page")


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
                model=ConfigDefinitions,
            )
        },
        limit=LimitClass.BULK,
    ),
)
async def list_config_definitions(
    call: CallDep,
    *,
    entity_type: Annotated[
        EntityTypeFilter | None,
        _EMPTY_IS_NONE,
        Query(alias="entityType", description="A kind of config, or an entity type for what may be set on it"),
    ] = None,
    search: Annotated[
        str,
        Query(max_length=MAX_SEARCH, description="A part of the name, case-insensitive", examples=["retention"]),
    ] = "",
    dynamic: Annotated[
        bool | None, _EMPTY_IS_NONE, Query(description="May it be changed while the cluster runs")
    ] = None,
    release: Annotated[
        # The constraint is the string's own: it can't be applied to an empty value.
        Annotated[str, StringConstraints(pattern=RELEASE_PATTERN)] | None,
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
