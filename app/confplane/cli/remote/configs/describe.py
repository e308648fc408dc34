"""Describes of ``confplane configs``: their requests and their output."""

from __future__ import annotations

import asyncio
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final, Literal

import typer

from confplane.cli.remote.configs import lines
from confplane.cli.remote.configs.arguments import TYPES
from confplane.cli.remote.session import DONE, FAILED
from confplane.domain.entities import Entity
from confplane.domain.facets import FacetName

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from confplane.cli.remote.configs.arguments import Command
    from confplane.client import AsyncConfplane
    from confplane.client.types import ConfigResource

_Type = Literal["TOPIC", "BROKER", "GROUP", "CLIENT_METRICS"]
_RESOURCES: Final = 100
"""Resources of one request, because the response has all configs of each."""
_PAGE: Final = 1000
RESOURCE_TYPES: Final[dict[str, _Type]] = {
    "topics": "TOPIC",
    "brokers": "BROKER",
    "groups": "GROUP",
    "client-metrics": "CLIENT_METRICS",
}
_OWN_SOURCES: Final = {
    "topics": "DYNAMIC_TOPIC_CONFIG",
    "brokers": "DYNAMIC_BROKER_CONFIG",
    "groups": "DYNAMIC_GROUP_CONFIG",
    "client-metrics": "DYNAMIC_CLIENT_METRICS_CONFIG",
}
_DEFAULT_SOURCE: Final = "DYNAMIC_DEFAULT_BROKER_CONFIG"


async def describe(client: AsyncConfplane, command: Command) -> int:
    """Print the result of a describe, and return the exit code: 1 if a part can't be read."""
    if command.quotas:
        return await _describe_clients(client, command)
    return await _describe_resources(client, command)


# ---------------------------------------------------------------- users, clients, ips


async def of_clients(client: AsyncConfplane, facet: FacetName, command: Command) -> dict[str, Any]:
    """Return the answer to a strict describe of a command's entities in a facet."""
    components = [_matching(*each) for each in zip_longest(command.types, command.names)]
    family: Any = client.resources(facet)
    body: dict[str, Any] = (await family.describe(components, strict=True)).body
    return body


def _matching(kind: str, name: str | None) -> dict[str, str]:
    """Return a component of a filter: '' is the default entity, and no name matches all."""
    if name:
        return {"entityType": TYPES[kind], "matchType": "exact", "match": name}
    return {"entityType": TYPES[kind], "matchType": "any" if name is None else "default"}


async def _describe_clients(client: AsyncConfplane, command: Command) -> int:
    facets = [FacetName.CLIENT_QUOTAS, FacetName.CLIENT_CONFIGS][: 2 if "users" in command.types else 1]
    answers = await asyncio.gather(*(of_clients(client, facet, command) for facet in facets))
    printed: dict[str, list[str]] = {}
    for facet, answer in zip(facets, answers, strict=True):
        for entry in answer["entries"]:
            printed.setdefault(_id(entry), []).extend(_lines_of(facet, entry))
    for entity_id in sorted(printed):
        for line in printed[entity_id]:
            typer.echo(line)
    return _unread(sorted({path for answer in answers for path in answer["skipped"]}))


def _lines_of(facet: FacetName, entry: dict[str, Any]) -> Iterable[str]:
    if facet is FacetName.CLIENT_QUOTAS:
        return [lines.quotas(entry)]
    return [*([lines.client_configs(entry)] if entry["values"] else []), *lines.supported(entry)]


def _id(entry: dict[str, Any]) -> str:
    return Entity.from_components((each["entityType"], each["entityName"]) for each in entry["entity"]).id


# ---------------------------------------------------------------- topics, brokers, groups, client-metrics


async def of_resources(
    client: AsyncConfplane, kind: str, names: Sequence[str], *, synonyms: bool
) -> AsyncIterator[dict[str, Any]]:
    """Yield the results of a describe of resources of one type, in order."""
    for start in range(0, len(names), _RESOURCES):
        resources: list[ConfigResource] = [
            {"resourceType": RESOURCE_TYPES[kind], "resourceName": name} for name in names[start : start + _RESOURCES]
        ]
        for result in (await client.configs.describe(resources, include_synonyms=synonyms)).body["results"]:
            yield {**result}


def own(kind: str, result: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the configs that are set on a resource itself."""
    source = _OWN_SOURCES[kind] if result["resourceName"] else _DEFAULT_SOURCE
    return [each for each in result["configs"] if each["configSource"] == source]


async def _describe_resources(client: AsyncConfplane, command: Command) -> int:
    kind = command.types[0]
    names = command.names[:1] or await _all_names(client, kind)
    failed: list[str] = []
    async for result in of_resources(client, kind, names, synonyms=True):
        if result["errorCode"]:
            failed.append(f"{kind[:-1]} {result['resourceName']}: {result['errorMessage']}")
            continue
        typer.echo(lines.heading(kind, result["resourceName"], everything=command.everything))
        configs = result["configs"] if command.everything else own(kind, result)
        for each in sorted(configs, key=lambda config: str(config["name"])):
            typer.echo(lines.config(each))
    return _unread(failed)


async def _all_names(client: AsyncConfplane, kind: str) -> tuple[str, ...]:
    """Return the names of all entities of a type with a config, and the default of all brokers at the end."""
    listed = [
        Entity.from_id(item["id"]).components[0][1]
        async for item in client.configs.list(kind=TYPES[kind], page_size=_PAGE)
    ]
    named = sorted(filter(None, listed), key=int if kind == "brokers" else str)
    return (*named, "") if kind == "brokers" else tuple(named)


def _unread(parts: Sequence[str]) -> int:
    for part in parts:
        typer.echo(f"Can't be read: {part}", err=True)
    return FAILED if parts else DONE
