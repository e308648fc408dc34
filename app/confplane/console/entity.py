"""One entity: its values and why each is in force, its history, its clients, and who may change it."""

import asyncio
from typing import Any, Final

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.responses import Response

from confplane.console.api import ApiRefusal
from confplane.console.entities import FACETS, facets_of
from confplane.console.page import ConsolePage, PageDep
from confplane.domain.entities import Entity, split_id
from confplane.domain.errors import InvalidEntityIdError

router = APIRouter()

_PATH: Final = "/console/clusters/{cluster}/entities/{entity_id}"
_HISTORY: Final = 25
_DEFAULTS: Final = frozenset({"DEFAULT_CONFIG", "STATIC_BROKER_CONFIG"})
"""Sources of values that nobody has set here: Kafka's defaults, and the brokers' own files."""
_APPLYING: Final = frozenset({"adopt", "enforce"})
"""The modes in which the Kafka cluster gets the values that are set here."""
SOURCES: Final = {
    "DYNAMIC_TOPIC_CONFIG": "this topic",
    "DYNAMIC_BROKER_CONFIG": "this broker",
    "DYNAMIC_DEFAULT_BROKER_CONFIG": "the default of all brokers",
    "GROUP_CONFIG": "this group",
    "DYNAMIC_GROUP_CONFIG": "this group",
    "CLIENT_METRICS_CONFIG": "this subscription",
    "DYNAMIC_CLIENT_METRICS_CONFIG": "this subscription",
    "STATIC_BROKER_CONFIG": "the broker's server.properties",
    "DEFAULT_CONFIG": "Kafka's default",
}
"""Levels of configs in words."""


@router.get(_PATH)
async def values(page: PageDep, cluster: str, entity_id: str) -> Response:
    """The values that are set and those in force, each with the levels that decide."""
    facets = _facets(entity_id)
    declared = await asyncio.gather(*(declared_in(page, cluster, facet, entity_id) for facet in facets))
    effective = await asyncio.gather(
        *(page.api.get(f"/v1/clusters/{cluster}/{facet}/{entity_id}/effective") for facet in facets)
    )
    target = (await page.api.get(f"/v1/clusters/{cluster}")).get("target")
    recent = await asyncio.gather(*(_recent(page, cluster, facet, entity_id) for facet in facets))
    parts = [
        {"facet": facet, "set": one[FACETS[facet]], "status": one["status"], "warnings": all_.get("warnings", ()),
         "keys": _keys(facet, all_)}
        for facet, one, all_ in zip(facets, declared, effective, strict=True)
    ]  # fmt: skip
    changes = sorted((each for found in recent for each in found), key=lambda each: each["time"], reverse=True)
    changed: dict[str, Any] = {}
    for change in changes:
        for each in change["changes"]:
            changed.setdefault(each["key"], change)
    try:
        temporary = (await page.api.get(f"/v1/clusters/{cluster}/schedules", entity=entity_id))["items"]
    except ApiRefusal:
        temporary = ()  # the page is without them
    command = page.command(
        "GET",
        f"/v1/clusters/{cluster}/{facets[0]}/{entity_id}/effective",
        *("effective", entity_id, "--cluster", cluster),
    )
    return _render(
        page, "entity.html", cluster, entity_id, "values", parts=parts, changed=changed, last=next(iter(changes), None),
        temporary=temporary, compared=target is not None and target.get("mode") in _APPLYING, command=command,
        of_any_user=split_id(entity_id)[0][0] == "client-id",
    )  # fmt: skip


@router.get(f"{_PATH}/history")
async def history(page: PageDep, cluster: str, entity_id: str, facet: str = "", token: str | None = None) -> Response:
    """The changes of the entity, newest first, with what each changed."""
    facets = _facets(entity_id)
    chosen = facet if facet in facets else facets[0]
    path = f"/v1/clusters/{cluster}/{chosen}/{entity_id}/history"
    found = await page.api.get(path, pageSize=_HISTORY, pageToken=token)
    command = page.command("GET", path, "history", entity_id, "--cluster", cluster)
    return _render(
        page, "entity_history.html", cluster, entity_id, "history", items=found["items"], next=found["nextPageToken"],
        facet=chosen, first=token is None, command=command,
    )  # fmt: skip


@router.get(f"{_PATH}/drift")
async def drift(page: PageDep, cluster: str, entity_id: str) -> Response:
    """The values that the Kafka cluster has instead of those that are set here; for htmx as a part of the page."""
    _facets(entity_id)
    path = f"/v1/clusters/{cluster}/drift"
    found = await page.api.get(path, entity=entity_id)
    values: dict[str, Any] = {"drifted": next(iter(found["items"]), None), "cluster": cluster, "id": entity_id}
    if page.is_partial:
        return page.partial("entity_drift_part.html", **values)
    command = page.command("GET", path, "drift", "list", "--cluster", cluster, query={"entity": entity_id})
    return page.render("entity_drift.html", view="", facets=facets_of(entity_id), command=command, **values)


@router.get(f"{_PATH}/clients")
async def clients(page: PageDep, cluster: str, entity_id: str) -> Response:
    """The software that is registered for the entity, and what it says that it runs with."""
    _facets(entity_id)
    path = f"/v1/clusters/{cluster}/registrations"
    registered = await page.api.get(path, id=entity_id)
    try:
        reported = await page.api.get(f"/v1/clusters/{cluster}/client-configs/{entity_id}/status")
    except ApiRefusal:
        reported = None  # only users and their client-ids report
    command = page.command("GET", path, query={"id": entity_id})
    return _render(
        page,
        "entity_clients.html",
        cluster,
        entity_id,
        "clients",
        registered=registered["items"],
        more=registered["nextPageToken"] is not None,
        reported=reported,
        command=command,
    )


@router.get(f"{_PATH}/access")
async def access(page: PageDep, cluster: str, entity_id: str) -> Response:
    """The grants that allow changes of the entity, and the denies."""
    _facets(entity_id)
    kind, name = split_id(entity_id)[0]
    path, resource = f"/v1/clusters/{cluster}/access", kind if name is None else f"{kind}:{name}"
    resource = "cluster" if name is None else resource
    found = await page.api.get(path, resource=resource, operation="ALTER_CONFIGS")
    command = page.command("GET", path, query={"resource": resource, "operation": "ALTER_CONFIGS"})
    return _render(
        page, "entity_access.html", cluster, entity_id, "access", items=found["items"], resource=resource,
        command=command,
    )  # fmt: skip


def _render(page: ConsolePage, template: str, cluster: str, entity_id: str, view: str, **values_: Any) -> Response:
    facets = facets_of(entity_id)
    return page.render(template, cluster=cluster, id=entity_id, view=view, sources=SOURCES, facets=facets, **values_)


def _facets(entity_id: str) -> tuple[str, ...]:
    """Return the facets of an entity.

    Raises:
        HTTPException: The id is not one of an entity.
    """
    try:
        Entity.from_id(entity_id)
    except InvalidEntityIdError:
        raise HTTPException(404, "No such entity") from None
    return facets_of(entity_id)


async def declared_in(page: ConsolePage, cluster: str, facet: str, entity_id: str) -> Any:
    """Return the content of an entity in a facet; empty if nothing is set."""
    return await page.api.get(f"/v1/clusters/{cluster}/{facet}/{entity_id}", view="full", absent="empty")


async def _recent(page: ConsolePage, cluster: str, facet: str, entity_id: str) -> list[Any]:
    """Return the last changes; none while Postgres is unavailable, so that the values are shown."""
    try:
        found = await page.api.get(f"/v1/clusters/{cluster}/{facet}/{entity_id}/history", pageSize=_HISTORY)
    except ApiRefusal:
        return []
    items: list[Any] = found["items"]
    return items


def _keys(facet: str, effective: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the keys with their levels, the winner first: those that are set somewhere, and those that are not."""
    member, configs = FACETS[facet], facet == "configs"
    levels = effective.get("levels", ())
    found: dict[str, list[dict[str, Any]]] = {"set": [], "default": []}
    for item in effective[member]:
        shown = [
            {"source": each["source"], "name": each.get("name"), "value": each["value"], "wins": at == 0}
            for at, each in enumerate(item["synonyms"])
        ]
        having = {each["source"] for each in item["synonyms"]}
        unset = [] if configs else [level["id"] for level in levels if level["id"] not in having]
        shared = next((level["sharedBy"] for level in levels if level["id"] == item["source"]), None)
        is_default = configs and item["source"] in _DEFAULTS
        found["default" if is_default else "set"].append(
            {"key": item["key"], "value": item["value"], "source": item["source"], "levels": shown, "unset": unset,
             "shared": shared}
        )  # fmt: skip
    return found
