"""The config definitions as rows: those of a release, the quota keys, and a cluster's dynamic client configs."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from confplane.domain.definitions import (
    ConfigDef,
    ConfigKind,
    Scope,
    description,
    documentation_link,
    quota_description,
    releases_with,
)
from confplane.domain.quotas import QUOTA_KEYS
from confplane.domain.releases import releases

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from confplane.domain.definitions import Catalog
    from confplane.domain.quotas import QuotaKey

QUOTA: Final = "quota"
TITLES: Final = {
    ConfigKind.TOPIC.value: "Topic configs",
    ConfigKind.BROKER.value: "Broker configs",
    ConfigKind.GROUP.value: "Group configs",
    ConfigKind.CLIENT_METRICS.value: "Configs of subscriptions to the metrics of clients",
    QUOTA: "Quotas of users, client-ids and ips",
    ConfigKind.PRODUCER.value: "Producer configs",
    ConfigKind.CONSUMER.value: "Consumer configs",
}
"""The sections in their order."""
_CLIENT_ENTITIES: Final = ("user", "user,client-id")
_PER_ENTITY: Final = "per-entity"
_QUOTA_LINK: Final = "https://kafka.apache.org/{}/documentation.html#design_quotas"


def select(
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
            _row(release, kind, found, dynamic_client_configs)
            for found in (*catalog.of(kind).values(), *(each for of, each in catalog.prefixes if of is kind))
        ]
        for kind in ConfigKind
    }
    sections[QUOTA] = [_quota(release, key) for key in QUOTA_KEYS.values()]
    return [row for section in TITLES for row in sorted(sections[section], key=lambda row: str(row["name"]))]


def _row(release: str, kind: ConfigKind, found: ConfigDef, dynamic_client_configs: frozenset[str]) -> dict[str, Any]:
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


def _quota(release: str, key: QuotaKey) -> dict[str, Any]:
    maximum = "" if key.maximum is None else f",{key.maximum}"
    return {
        "section": QUOTA,
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
