"""Config definitions: the place, type and range of each config, and its update mode.

JSON, or by ``Accept: text/html`` KIP-21's table as a page, usable without scripts and without a network. Its search is
a form that works by itself; the script answers it while a person types, and makes columns sortable. The page's policy
allows exactly this style and this script, by their hashes.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import orjson
from fastapi import Query
from pydantic import BeforeValidator, Field, StringConstraints
from starlette.responses import Response

from confplane.api.dependencies import CallDep
from confplane.api.models import AnswerModel
from confplane.api.responses import JSON, PreparedResponse, consistency_headers, encoded, prefers
from confplane.api.routing.operations import ResponseSpec, read
from confplane.api.routing.routes import Routes
from confplane.domain.client_configs import ClientConfigsFacet
from confplane.domain.definitions import (
    Catalog,
    ConfigDef,
    ConfigKind,
    Scope,
    description,
    documentation_link,
    quota_description,
    releases_with,
)
from confplane.domain.facets import FacetName
from confplane.domain.quotas import QUOTA_KEYS, QuotaKey
from confplane.domain.releases import releases
from confplane.pages import fragment, inline, render, source_hash
from confplane.services.limits import LimitClass

if TYPE_CHECKING:
    from markupsafe import Markup

RELEASE_PATTERN = "^(" + "|".join(releases()).replace(".", "[.]") + ")$"
"""A release with definitions."""
MAX_SEARCH = 100
"""The greatest number of characters in a search."""

EntityTypeFilter = Literal[
    "topic", "broker", "client", "producer", "consumer", "user", "client-id", "ip", "group", "client-metrics"
]
Section = Literal["topic", "broker", "producer", "consumer", "group", "client-metrics", "quota"]
_QUOTA: Final = "quota"
_TITLES: Final = {
    ConfigKind.TOPIC.value: "Topic configs",
    ConfigKind.BROKER.value: "Broker configs",
    ConfigKind.GROUP.value: "Group configs",
    ConfigKind.CLIENT_METRICS.value: "Configs of subscriptions to the metrics of clients",
    _QUOTA: "Quotas of users, client-ids and ips",
    ConfigKind.PRODUCER.value: "Producer configs",
    ConfigKind.CONSUMER.value: "Consumer configs",
}
"""The sections in their order."""
_CLIENT_ENTITIES: Final = ("user", "user,client-id")
_PER_ENTITY: Final = "per-entity"
_QUOTA_LINK: Final = "https://kafka.apache.org/{}/documentation.html#design_quotas"
_STYLE: Final = inline("console.css", "definitions.css")
_SCRIPT: Final = inline("definitions.js")
_IMPORTANCE: Final = {"HIGH": "1", "MEDIUM": "2", "LOW": "3"}
_ENTITY_TYPES: Final = {
    "": "everything",
    "topic": "topics",
    "broker": "brokers",
    "client": "producers and consumers",
    "user": "users",
    "client-id": "client-ids",
    "ip": "ips",
    "group": "groups",
    "client-metrics": "client metrics",
}
_DYNAMIC: Final = {"": "dynamic or not", "true": "dynamic", "false": "not dynamic"}
_LARGEST: Final = {str(2**31 - 1): "the largest INT", str(2**63 - 1): "the largest LONG"}
_PART: Final = re.compile(r"(?<=[,:;])(?=[^\s.,:;])|(?<=\.)(?=[A-Za-z<])|(?<=_)(?=[a-z])|(?<=[a-z])(?=[A-Z][a-z])")
"""The places where a value may break: between words of a name and elements of a list, never within a number."""

_PAGE_HEADERS: Final = {
    "content-type": "text/html; charset=utf-8",
    "content-security-policy": (
        f"default-src 'none'; style-src {source_hash(_STYLE)}; script-src {source_hash(_SCRIPT)}; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "referrer-policy": "no-referrer",
}
"""The headers of the page."""


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
        return PreparedResponse(text, headers + encoded(_PAGE_HEADERS))
    return PreparedResponse(_document(shown, keys, entity_type, search, dynamic), [*headers, JSON])


@lru_cache(maxsize=64)
def _document(
    catalog: Catalog,
    keys: frozenset[str],
    entity_type: str | None,
    search: str,
    dynamic: bool | None,  # noqa: FBT001 - hashed by position
) -> bytes:
    rows = _select(catalog, keys, entity_type=entity_type, search=search, dynamic=dynamic)
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
    return render_page(
        _select(catalog, keys, entity_type=entity_type, search=search, dynamic=dynamic),
        cluster=cluster,
        release=catalog.release,
        entity_type=entity_type,
        search=search,
        dynamic=dynamic,
    )


def render_page(
    rows: Sequence[dict[str, Any]],
    *,
    cluster: str,
    release: str,
    entity_type: str | None,
    search: str,
    dynamic: bool | None,
) -> bytes:
    """Return the page with the rows of :func:`_select`, and the filters that selected them."""
    sections = groupby(rows, key=lambda row: str(row["section"]))
    return render(
        "definitions.html",
        style=_STYLE,
        script=_SCRIPT,
        cluster=cluster,
        release=release,
        releases={each: f"Kafka {each}" for each in releases()},
        search=search,
        entity_type=entity_type or "",
        entity_types=_ENTITY_TYPES,
        dynamic="" if dynamic is None else str(dynamic).lower(),
        dynamic_or_not=_DYNAMIC,
        count=len(rows),
        sections=[
            (section, _TITLES[section], [_rendered_row(orjson.dumps(row)) for row in found])
            for section, found in sections
        ],
    ).encode()


@lru_cache(maxsize=2048)
def _rendered_row(row: bytes) -> "Markup":
    """Return a row of the table. Searches select from the same rows repeatedly, so each row is rendered once."""
    found = orjson.loads(row)
    return fragment("definition.html", row=found, importance=_IMPORTANCE, parts=_PART.split, largest=_LARGEST)


def _select(
    catalog: Catalog,
    dynamic_client_configs: frozenset[str],
    *,
    entity_type: str | None,
    search: str,
    dynamic: bool | None,
) -> list[dict[str, Any]]:
    """Return the rows that pass all filters, ordered by section and name.

    Args:
        catalog: The cluster's definitions of a release.
        dynamic_client_configs: The client configs that this cluster makes dynamic.
        entity_type: A section, ``client`` for both kinds of clients, or an entity type for the configs that may be set
            on it.
        search: Part of a name, case-insensitive; empty for all.
        dynamic: Only configs that may (True) or may not (False) be changed while the cluster runs; None for both.
    """
    wanted = search.lower()
    return [
        row
        for row in _rows(catalog, dynamic_client_configs)
        if (entity_type is None or _belongs(row, entity_type))
        and wanted in row["name"].lower()
        and (dynamic is None or row["dynamic"] is dynamic)
    ]


def _belongs(row: dict[str, Any], entity_type: str) -> bool:
    if entity_type == "client":
        return row["section"] in {ConfigKind.PRODUCER, ConfigKind.CONSUMER}
    if entity_type == row["section"]:
        return True
    return any(entity_type in kind.split(",") for kind in row["settableOn"])


@lru_cache(maxsize=64)
def _rows(catalog: Catalog, dynamic_client_configs: frozenset[str]) -> Sequence[dict[str, Any]]:
    release = catalog.release
    sections: dict[str, Iterable[dict[str, Any]]] = {
        kind: [
            _config_row(release, kind, found, dynamic_client_configs)
            for found in (*catalog.of(kind).values(), *(each for of, each in catalog.prefixes if of is kind))
        ]
        for kind in ConfigKind
    }
    sections[_QUOTA] = [_quota_row(release, key) for key in QUOTA_KEYS.values()]
    return [row for section in _TITLES for row in sorted(sections[section], key=lambda row: str(row["name"]))]


def _config_row(
    release: str, kind: ConfigKind, found: ConfigDef, dynamic_client_configs: frozenset[str]
) -> dict[str, Any]:
    scope: str = found.scope
    settable_on = [kind.value] if found.dynamic else []
    if kind in {ConfigKind.PRODUCER, ConfigKind.CONSUMER} and found.name in dynamic_client_configs:
        scope, settable_on = _PER_ENTITY, list(_CLIENT_ENTITIES)
    return {
        "section": kind.value,
        "name": found.name,
        "type": found.type.value,
        "default": found.default,
        "required": found.required,
        "valid": None if found.valid is None else str(found.valid),
        "importance": found.importance,
        "dynamic": scope != Scope.READ_ONLY,
        "scope": str(scope),
        "settableOn": settable_on,
        "sensitive": found.sensitive,
        "internal": found.internal,
        "synonyms": [{"name": synonym.name, "factor": synonym.factor} for synonym in found.synonyms],
        "group": list(found.group),
        "listenerPrefix": None if found.prefix is None else found.prefix.value,
        "prefixRequired": found.prefix_only,
        "unit": None,
        "description": found.description or description(kind, found.name),
        "documentation": None if found.extra else documentation_link(kind, found.name, release),
        "releases": list(releases_with(kind, found.name)),
    }


def _quota_row(release: str, key: QuotaKey) -> dict[str, Any]:
    maximum = "" if key.maximum is None else f",{key.maximum}"
    return {
        "section": _QUOTA,
        "name": key.name,
        "type": key.type.value,
        "default": None,
        "required": False,
        "valid": f"[{key.minimum},...{maximum}]",
        "importance": "MEDIUM",
        "dynamic": True,
        "scope": _PER_ENTITY,
        "settableOn": sorted(",".join(kind) for kind in key.kinds),
        "sensitive": False,
        "internal": False,
        "synonyms": [],
        "group": [],
        "listenerPrefix": None,
        "prefixRequired": False,
        "unit": key.unit,
        "description": quota_description(key.name),
        "documentation": _QUOTA_LINK.format(release.replace(".", "")),
        "releases": list(releases()),
    }
